"""Memory for the arrays of a buffer."""

import math
import mmap
from typing import Any

import numpy as np


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Zeros that get memory as they are written, in huge pages where the system has them: rows are read at random."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or not shape:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
