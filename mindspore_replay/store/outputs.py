"""Memory for the outputs of kernels that are returned to Python."""

import functools
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

# At this size the C library gets memory from the system at each allocation, which costs more than filling it.
_LARGE = 1 << 17  # bytes
_KEPT = 4  # blocks of a large output: one used by the learner, and some that were drawn ahead
_UNUSED = 3  # references to an unused block: the list, a variable, the argument of getrefcount

Maker = Callable[[], np.ndarray]


class _Blocks:
    """Makes large arrays, with any contents.

    A block is reused as soon as nothing else refers to its memory, neither a Tensor nor an array. So a loop that draws
    batches uses the same few blocks.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._blocks: list[np.ndarray] = []

    def __call__(self) -> np.ndarray:
        for block in self._blocks:
            if sys.getrefcount(block) == _UNUSED:
                return block
        block = np.empty(self._shape, self._dtype)
        if len(self._blocks) < _KEPT:
            self._blocks.append(block)
        return block


def makers(specs: Iterable[tuple[tuple[int, ...], np.dtype[Any]]]) -> tuple[Maker, ...]:
    """Return a function for each shape and dtype that makes such an array, with any contents."""
    return tuple(
        _Blocks(shape, dtype)
        if math.prod(shape) * dtype.itemsize >= _LARGE
        else functools.partial(np.empty, shape, dtype)
        for shape, dtype in specs
    )
