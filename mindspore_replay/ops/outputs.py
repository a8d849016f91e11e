"""Memory for what a kernel gives to Python."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor
from mindspore._c_expression import TensorPy

# Memory of this size the C library takes from the system at each allocation, which costs more than filling it.
_LARGE = 1 << 17  # bytes
_KEPT = 4  # blocks of a large output: one in the learner's hands, and some that were drawn ahead
_UNUSED = 3  # references to a block that only this module knows: the list, a variable, the argument of getrefcount


#: The Tensor that shares a contiguous array's memory. MindSpore's own function, without the Python around it.
share: Callable[[np.ndarray], Tensor] = TensorPy.from_numpy


class Outputs:
    """Makes arrays that a kernel is to fill in, and that become Tensors by `share`.

    The memory of a large one is used again as soon as nothing refers to it any more: no Tensor, and nothing that shares
    its memory. So a loop that draws batch after batch stays in the same few blocks.

    Args:
        specs (Iterable[tuple]): Shape and NumPy dtype of each array.
    """

    def __init__(self, specs: Iterable[tuple[Sequence[int], Any]]) -> None:
        self._specs = [(tuple(shape), np.dtype(dtype)) for shape, dtype in specs]
        large = [int(np.prod(shape)) * dtype.itemsize >= _LARGE for shape, dtype in self._specs]
        self._blocks: list[list[np.ndarray] | None] = [[] if is_large else None for is_large in large]

    def make(self) -> list[np.ndarray]:
        """Arrays, with any contents."""
        return [
            np.empty(shape, dtype) if blocks is None else _block(blocks, shape, dtype)
            for (shape, dtype), blocks in zip(self._specs, self._blocks)
        ]


def _block(blocks: list[np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """A block that is not in use."""
    for block in blocks:
        if sys.getrefcount(block) == _UNUSED:
            return block
    block = np.empty(shape, dtype)
    if len(blocks) < _KEPT:
        blocks.append(block)
    return block
