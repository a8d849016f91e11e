"""Memory for the arrays of a buffer."""

import contextlib
import ctypes
import math
import mmap
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import library

_LINE, _HUGE = 64, 1 << 21
#: On other systems, such as Windows, anonymous memory is always private.
_PRIVATE: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


#: Files with the limit of a control group, in bytes: version 2, and 1.
_LIMITS = "/sys/fs/cgroup{}/memory.max", "/sys/fs/cgroup/memory{}/memory.limit_in_bytes"


def memory_limit() -> int:
    """Return the bytes of memory that this process may use: the machine's, or the limit of its control groups."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else sys.maxsize]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, group = line.split(":", 2)
            for path in {"0": _LIMITS[:1]}.get(number, _LIMITS[1:] if "memory" in controllers.split(",") else ()):
                for place in (group.rstrip("/"), ""):  # a container may not see its group under its name
                    with contextlib.suppress(OSError, ValueError):
                        found.append(int(Path(path.format(place)).read_text(encoding="utf-8")))
    return min(found)


class Memory(mmap.mmap):
    """Memory, and what follows when it goes."""

    at_the_end: tuple[object, ...] = ()


def address(array: np.ndarray) -> ctypes.c_void_p:
    """Return the address of an array, as an argument."""
    return ctypes.c_void_p(array.ctypes.data)


def holding(head: ctypes.c_void_p, failed: Callable[[int], None] = lambda _: None) -> "library.calls.Hold":
    """Return a block that keeps others out of a buffer's arrays; `failed` raises the error for a status."""
    functions = map(library.address_of, ("replay_hold", "replay_let_go"))
    return library.extension().Hold(*functions, head.value or 0, failed)


def at_the_end(block: mmap.mmap, function: str, head: ctypes.c_void_p, references: object = None) -> None:
    """Call a function of the kernel library with an address when a block of memory goes; until then keep an object."""
    assert isinstance(block, Memory)
    undo = library.extension().Undo(library.address_of(function), head.value or 0, references)
    block.at_the_end = (undo, *block.at_the_end)


def block_of(array: np.ndarray) -> mmap.mmap:
    """Return the block of memory that an array of `zeros` is in."""
    block: object = array
    while isinstance(block, np.ndarray):
        block = block.base
    block = block.obj if isinstance(block, memoryview) else block
    assert isinstance(block, mmap.mmap)
    return block


def give_back(block: mmap.mmap) -> None:
    """Give the memory of `zeros` back to the system. The arrays stay valid, and contain zeros."""
    if hasattr(mmap, "MADV_DONTNEED"):
        block.madvise(mmap.MADV_DONTNEED)


def zeros(layout: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, np.ndarray]:
    """Return arrays of zeros in one block of memory, which the system provides as it is written.

    The block is in huge pages if the system has them, since rows are read at random. Small arrays share a page.
    """
    bytes_of = {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in layout.items()}
    total = sum(-(-size // _LINE) * _LINE for size in bytes_of.values())
    huge = hasattr(mmap, "MADV_HUGEPAGE") and total >= _HUGE
    memory = Memory(-1, total + (2 * _HUGE if huge else 0), **_PRIVATE)
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
