"""The parts of a file: their arrays, and the slots of their rows."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np

from ..store.faces.local import LocalBuffer
from ..store.kernels.state import is_by_slot
from ..store.rows.compressed import CompressedColumn


class Saved(Protocol):
    """A state that is saved: that of a buffer or a mixture, or plain values."""

    #: Record of the last `save`: only rows with larger serial numbers, and those updated since, differ from its files.
    last_saved: object

    def state_arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, each a `Plain` or with its methods."""

    def check_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Raise a ValueError if a state, without columns, is inconsistent."""


def is_buffer(value: object) -> TypeGuard[LocalBuffer]:
    """Return True if an object is a buffer, not a mixture."""
    return isinstance(value, LocalBuffer)


@dataclass(frozen=True)
class Part:
    """An object whose own state is saved.

    Args:
        prefix (str): Prefix of the names of its arrays.
        owner (Any): A buffer, a mixture, or another `Saved`.
        is_buffer (bool): Whether it has rows. Default: ``False``.
    """

    prefix: str
    owner: Any
    is_buffer: bool = False

    @functools.cached_property
    def saved(self) -> Saved:
        """The state of the owner."""
        return getattr(self.owner, "state", self.owner)  # type: ignore[no-any-return]

    def state(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, each a `Plain` or with its methods."""
        return self.saved.state_arrays()

    def updates(self) -> np.ndarray:
        """Return the numbers of updates. A part without rows has none."""
        return np.asarray(self.owner.updates) if self.is_buffer else np.zeros(1, np.int64)

    def row_keys(self) -> set[str]:
        """Return the keys of the arrays with one row per slot."""
        return {key for key in self.state() if self.is_buffer and is_by_slot(key)}


@dataclass(frozen=True)
class Cursors:
    """Cursors of stored rows: ``head``, ``count`` and ``serials``."""

    head: int
    count: int
    inserted: int
    base: int

    @property
    def oldest(self) -> int:
        """Serial number of the oldest row of a ring."""
        return self.inserted - self.count

    def state(self) -> dict[str, np.ndarray]:
        """Return the cursors as the arrays of a state."""
        serials = np.array([self.inserted, self.base])
        return {"head": np.array(self.head, np.int32), "count": np.array(self.count, np.int32), "serials": serials}


def cursors_of(state: Mapping[str, np.ndarray]) -> Cursors:
    """Return the cursors among the arrays of a state."""
    return Cursors(int(state["head"]), int(state["count"]), *(int(serial) for serial in state["serials"]))


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
        """Return the rows in these slots as bytes, in small pieces. Pieces of adjacent slots are not copied."""
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
