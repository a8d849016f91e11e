"""The parts of a file: their arrays, and the slots of their rows."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from ..store.faces.local import LocalBuffer
from ..store.kernels.state import is_by_slot


def is_buffer(value: object) -> TypeGuard[LocalBuffer]:
    """Return True if an object is a buffer, not a mixture."""
    return isinstance(value, LocalBuffer)


class Part(NamedTuple):
    """An object whose own state is saved.

    Args:
        prefix (str): Prefix of the names of its arrays.
        owner (Any): A buffer, a mixture, or another object with the methods of `BufferState` that files need.
        is_buffer (bool): Whether it has rows. Default: ``False``.
    """

    prefix: str
    owner: Any
    is_buffer: bool = False

    def arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, each a `Plain` or with its methods."""
        return getattr(self.owner, "state", self.owner).state_arrays()  # type: ignore[no-any-return]

    def is_by_row(self, key: str) -> bool:
        """Return True if a file has an entry of this array for each row; of the tree of weights it has the leaves."""
        return self.is_buffer and (key == "weights" or is_by_slot(key))

    def updates(self) -> int:
        """Return the number of updates of rows so far. A part without rows has none."""
        return int(self.owner.updates[0]) if self.is_buffer else 0


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Return the memory of a contiguous array, as bytes."""
    return array.reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class Slots:
    """Slots of a ring with rows, from the oldest row to the newest."""

    capacity: int
    first: int
    count: int

    def pieces(self, array: Any, nbytes: int = 1 << 23) -> Iterator[slice]:
        """Return the slots in pieces of adjacent ones, whose rows in this array have so many bytes at most."""
        step = max(1, nbytes // max(1, math.prod(array.shape[1:]) * array.dtype.itemsize))
        before_end = min(self.count, self.capacity - self.first)
        for first, count in ((self.first, before_end), (0, self.count - before_end)):
            yield from (slice(first + i, first + min(i + step, count)) for i in range(0, count, step))
