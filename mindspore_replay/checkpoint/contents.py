"""Contents of a file: cursors as they are, and the stored rows, oldest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .file_format import Entry, checksum, lay_out
from .parts import Part
from .rows import CHUNK, Slots, bytes_of


class Saved(NamedTuple):
    """An array to write.

    Args:
        array (numpy.ndarray): The memory of the state, or a copy where `slots` is ``None``.
        dtype (str): Name of its dtype in files.
        slots (Union[Slots, None]): Rows of it to write; ``None`` for the whole array.
    """

    array: np.ndarray
    dtype: str
    slots: Slots | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the data to write."""
        return self.array.shape if self.slots is None else (len(self.slots), *self.array.shape[1:])

    def chunks(self) -> Iterator[Any]:
        """Return the data to write as bytes, in pieces."""
        if self.slots is not None:
            return self.slots.chunks(self.array)
        memory = bytes_of(self.array)
        return (memory[i : i + CHUNK] for i in range(0, memory.size, CHUNK))


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


def cursors_of(state: Any) -> Cursors:
    """Return the cursors among the arrays of a state."""
    return Cursors(int(state["head"]), int(state["count"]), *(int(serial) for serial in state["serials"]))


def is_reservoir(part: Part) -> bool:
    """Return True if the part is a reservoir, whose rows have no order."""
    return "row_serials" in part.state()


class Contents:
    """Contents of a file to write. The buffers' locks must be held.

    Args:
        parts (Sequence[Part]): The buffers.
        since (Sequence[int]): For each buffer, the serial number of the first row whose columns are written.
    """

    def __init__(self, parts: Sequence[Part], since: Sequence[int]) -> None:
        self.since = list(since)
        self._parts = parts
        self._saved: dict[str, Saved] = {}
        self.inserted: list[int] = []
        self._oldest: list[int] = []
        for part, first in zip(parts, since):
            self._add(part, first)
        self.entries: dict[str, Entry] = lay_out(
            {name: (saved.dtype, saved.shape) for name, saved in self._saved.items()}
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(entry.nbytes for entry in self.entries.values())

    def _add(self, part: Part, since: int) -> None:
        held = part.state()
        state = {key: array.asnumpy() for key, array in held.items()}
        row_keys = part.row_keys()
        stored = new = Slots(1, 0, 0)
        if part.is_buffer:
            stored, new = self._rows(part, state, since)
        else:
            self.inserted.append(0)
            self._oldest.append(0)
        for key, array in state.items():
            name, dtype = part.prefix + key, held[key].dtype
            if key == "weights":
                self._saved[name] = Saved(array[: part.owner.capacity], dtype, stored)  # inner nodes follow from leaves
            elif key in row_keys:
                self._saved[name] = Saved(array, dtype, new if "." in key else stored)
            else:
                self._saved[name] = Saved(array.copy(), dtype, None)

    def _rows(self, part: Part, state: dict[str, np.ndarray], since: int) -> tuple[Slots, Slots]:
        """Return the slots of all rows, and of those whose columns are written."""
        cursors, capacity = cursors_of(state), part.owner.capacity
        stored = Slots(capacity, cursors.head, cursors.count)
        if is_reservoir(part):
            serials = state["row_serials"][: cursors.count]
            oldest = int(serials.min(initial=cursors.inserted))
            new = Slots(capacity, 0, 0, np.flatnonzero(serials >= since)) if oldest < since else stored
        else:
            oldest = cursors.oldest
            old = min(max(since - oldest, 0), cursors.count)
            new = stored.part(old, cursors.count - old)
        self.inserted.append(cursors.inserted)
        self._oldest.append(oldest)
        return stored, new

    def has_rows_before(self, serials: Sequence[int]) -> bool:
        """Return True if any buffer still holds a row older than the serial number given for it."""
        return any(oldest < serial for oldest, serial in zip(self._oldest, serials))

    def chunks(self, name: str) -> Iterator[Any]:
        """Return the bytes of an array, in pieces."""
        return self._saved[name].chunks()

    def check_unchanged(self, checksums: dict[str, int]) -> None:
        """Raise a RuntimeError if anything changed since the arrays were read with these checksums.

        Columns are not read again: a new row always has a new serial number.
        """
        for part in self._parts:
            for key, held in part.state().items():
                name = part.prefix + key
                if part.is_buffer and "." in key:  # columns; and a limiter, which counts calls that wait for the lock
                    continue
                array = held.asnumpy()
                now = self._saved[name]._replace(array=array[: part.owner.capacity] if key == "weights" else array)
                if checksum(now.chunks()) != checksums[name]:
                    raise RuntimeError(
                        f"For 'save', 'buffer' must not change while it is written, but {name!r} did: a compiled graph "
                        "is at work. Save between its calls."
                    )
