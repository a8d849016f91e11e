"""Places of a buffer's rows: in slots, and in files from the oldest to the newest."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..store.compressed import CompressedColumn

#: Bytes to write or read at once.
CHUNK = 1 << 23


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Return the memory of a contiguous array, as bytes."""
    return array.reshape(-1).view(np.uint8)


class Slots:
    """Slots of rows, from the oldest row to the newest.

    Args:
        capacity (int): Slots of the ring.
        first (int): The first slot.
        count (int): Number of slots, in the order of the ring.
        chosen (Union[numpy.ndarray, None]): Slots in any order instead. Default: ``None``.
    """

    def __init__(self, capacity: int, first: int, count: int, chosen: np.ndarray | None = None) -> None:
        self.capacity = capacity
        self.first = first % capacity
        self.count = count if chosen is None else len(chosen)
        self.chosen = chosen

    def __len__(self) -> int:
        return self.count

    def runs(self) -> list[tuple[int, int]]:
        """Return the first slot and the length of each run of adjacent slots."""
        before_end = min(self.count, self.capacity - self.first)
        runs = [(self.first, before_end), (0, self.count - before_end)]
        return [run for run in runs if run[1]]

    def part(self, start: int, count: int) -> "Slots":
        """Return `count` of these slots, from number `start` on."""
        if self.chosen is not None:
            return Slots(self.capacity, 0, count, self.chosen[start : start + count])
        return Slots(self.capacity, self.first + start, count)

    def chunks(self, array: np.ndarray) -> Iterator[Any]:
        """Return the rows in these slots as bytes, in small pieces; pieces of adjacent slots are not copied."""
        if self.chosen is not None or isinstance(array, CompressedColumn):
            yield from (bytes_of(array[slots]) for slots in self._few(array))
            return
        for first, count in self.runs():
            memory = bytes_of(array[first : first + count])
            yield from (memory[i : i + CHUNK] for i in range(0, memory.size, CHUNK))

    def fill(self, array: np.ndarray, read: Callable[[np.ndarray], None], wait: Callable[[], None]) -> None:
        """Write rows into these slots: ``read(memory)`` begins to fill memory with the next rows, ``wait()`` ends it.

        The rows of adjacent slots are complete only after the caller has waited.
        """
        if self.chosen is not None or isinstance(array, CompressedColumn):
            for slots in self._few(array):
                rows = np.empty((len(slots), *array.shape[1:]), array.dtype)
                read(bytes_of(rows))
                wait()
                array[slots] = rows
            return
        for first, count in self.runs():
            read(bytes_of(array[first : first + count]))

    def _few(self, array: np.ndarray) -> Iterator[np.ndarray]:
        """Return the slots, in groups that make a chunk of bytes."""
        slots = (self.first + np.arange(self.count)) % self.capacity if self.chosen is None else self.chosen
        step = max(1, CHUNK // max(1, array[:1].nbytes))
        yield from (slots[i : i + step] for i in range(0, self.count, step))
