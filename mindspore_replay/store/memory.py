"""Memory for the arrays of a buffer."""

import math
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

_LINE, _HUGE = 64, 1 << 21
#: Elsewhere, as on Windows, anonymous memory is private anyway.
_PRIVATE: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def zeros(layout: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, np.ndarray]:
    """Arrays of zeros in one piece of memory, which they get as they are written: the small ones share a page.

    It is in huge pages where the system has them: rows are read at random.
    """
    bytes_of = {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in layout.items()}
    total = sum(-(-size // _LINE) * _LINE for size in bytes_of.values())
    huge = hasattr(mmap, "MADV_HUGEPAGE") and total >= _HUGE
    memory = mmap.mmap(-1, total + (2 * _HUGE if huge else 0), **_PRIVATE)
    if huge:
        memory.madvise(mmap.MADV_HUGEPAGE)
    rest = np.frombuffer(memory, np.uint8)
    rest = rest[-rest.ctypes.data % _HUGE if huge else 0 :]
    arrays = {}
    for name in sorted(layout, key=bytes_of.__getitem__):
        shape, dtype = layout[name]
        arrays[name] = rest[: bytes_of[name]].view(dtype).reshape(shape)
        rest = rest[-(-bytes_of[name] // _LINE) * _LINE :]
    return {name: arrays[name] for name in layout}
