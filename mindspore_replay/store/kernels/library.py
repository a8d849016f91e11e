"""Finds and loads the kernel libraries, or reports why one is not available."""

import ctypes
import functools
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .signatures import Item, Signature, parse

try:
    from ... import _calls as calls
except ImportError:
    calls = None  # type: ignore[assignment]

#: Status of a kernel: success, too few rows, a position without a row, an invalid priority, an episode that is too
#: long, a lock in shared memory that is not usable, an open episode of another process, no room for new rows, an
#: invalid version, a page that the disk cannot read or write, a row of a wrong length, a folder that was deleted, or
#: rows that may not go in or out yet; csrc/core/status.h has the others.
OK, TOO_FEW_ROWS, OUT_OF_RANGE, BAD_WEIGHT, TOO_LONG = 0, 2, 3, 4, 5
NO_LOCK, OPEN_EPISODE, FULL, BAD_VERSION, NO_DISK, BAD_LENGTH, NO_FOLDER, NOT_YET = range(8, 16)

#: Descriptions of these failures.
FAILURES = {
    TOO_FEW_ROWS: "fewer rows are eligible than a sample needs",
    OUT_OF_RANGE: "an index is out of range: no row is stored there",
    BAD_WEIGHT: "a priority, weight or beta is negative, NaN or infinite, or beyond its range",
    TOO_LONG: "an episode would have more rows than it may have",
    OPEN_EPISODE: "the newest rows are an open episode of another process: each process must insert whole episodes, "
    "whose last row comes with end=True; end_episodes() ends an episode whose process is gone",
    FULL: "there is no room: rows would be evicted that can still be drawn",
    BAD_VERSION: "a version is negative, or newer than the learner's clock",
    NO_DISK: "the disk could not read or write a page of the folder: what is in memory is not what was there",
    NO_FOLDER: "the folder was deleted, and its rows are in memory alone: save() them elsewhere before the buffer is "
    "closed",
    BAD_LENGTH: "a length is negative or above longest, or a call has more items than there is memory for",
}

_NO_LOCK = "the buffer was closed, or the lock in the memory of its folder is not usable"

#: File name of the kernel library for each device target that has one. When MindSpore compiles a graph, it takes files
#: with "akg_kernel_meta" in their path, where its own kernels are, whatever folder MS_CUSTOM_AOT_WHITE_LIST allows.
_NAMES = {"CPU": "_kernels.akg_kernel_meta", "GPU": "_kernels_cuda.akg_kernel_meta"}
_FOLDER = Path(__file__).resolve().parents[2]


class KernelError(RuntimeError):
    """A kernel rejected its arguments or failed. It changed nothing.

    Examples:
        >>> from mindspore_replay.store import KernelError
        >>> print(KernelError("replay_sample", 2))
        The kernel 'replay_sample' failed with status 2: fewer rows are eligible than a sample needs.
    """

    def __init__(self, kernel: str, status: int) -> None:
        reason = _NO_LOCK if status == NO_LOCK else FAILURES.get(status, "")
        did, why = ("failed", f": {reason}") if reason else ("refused its arguments", "")
        super().__init__(f"The kernel '{kernel}' {did} with status {status}{why}.")
        self.status = status


class Library(NamedTuple):
    """A kernel library, or the reason why there is none."""

    path: Path | None
    handle: ctypes.CDLL | None
    reason: str


@functools.lru_cache
def library_for(device: str) -> Library:
    """Return the kernel library for a device target of MindSpore."""
    if device not in _NAMES:
        reason = f"native kernels run on CPU and GPU, and the device target is {device}, where nothing has been run"
        return Library(None, None, reason)
    library = "the kernel library" if device == "CPU" else "the CUDA kernel library"
    path = _FOLDER / f"{_NAMES[device]}.so"
    if not path.exists():
        note = path.with_suffix(".txt")  # written by setup.py if it could not build the library
        if device == "CPU" and not note.exists() and (installed := next(filter(has_kernels, other_copies()), None)):
            return Library(None, None, shadowing(_FOLDER, installed))
        why = note.read_text(encoding="utf-8").strip() if note.exists() else f"there is no {path}"
        return Library(None, None, f"{library} was not built: {why}")
    if device == "CPU" and calls is None:
        reason = (
            "its Python module was not built: install Python's headers (python3-dev) and install this package again"
        )
        return Library(None, None, reason)
    try:
        return Library(path, ctypes.CDLL(str(path)), "")
    except OSError as error:
        return Library(None, None, f"{library} does not load: {error}")


def loaded(device: str = "CPU") -> ctypes.CDLL:
    """Return the kernel library for a device target, which is available."""
    handle = library_for(device).handle
    assert handle is not None
    return handle


def extension() -> Any:
    """Return the Python module of the kernels, which is available."""
    assert calls is not None
    return calls


@functools.lru_cache
def address_of(function: str) -> int:
    """Return the address of a function of the kernel library."""
    address = ctypes.cast(getattr(loaded(), function), ctypes.c_void_p).value
    assert address is not None
    return address


def has_kernels(package: Path) -> bool:
    """Return True if the kernels of a copy of this package were built."""
    return (package / f"{_NAMES['CPU']}.so").exists()


def other_copies() -> Iterator[Path]:
    """Yield the folders of other copies of this package that Python would find if it did not find this one."""
    name = __name__.partition(".")[0]
    found = [Path(entry or ".", name) for entry in sys.path]
    for finder in sys.meta_path:  # such as that of an editable installation
        spec = finder.find_spec(name, None)
        found += map(Path, (spec and spec.submodule_search_locations) or ())
    yield from (place for place in found if place.resolve() != _FOLDER and (place / "__init__.py").exists())


def shadowing(source: Path, installed: Path) -> str:
    """Return what follows where Python finds a source folder before the installed package."""
    outside = f"start Python outside of {source.parent}"
    if has_kernels(source) or not has_kernels(installed):
        return f"Python imports the package in {source}, and not the installed one in {installed}: {outside}"
    return (
        f"the package in {source} has no kernels, the installed one in {installed} has: {outside}, or build the "
        f"kernels there with pip install -e {source.parent}"
    )


def _lines(handle: ctypes.CDLL) -> Iterator[str]:
    handle.replay_signature.restype = ctypes.c_char_p
    for i in itertools.count():
        line = handle.replay_signature(i)
        if line is None:
            return
        yield line.decode()


@functools.lru_cache
def table(device: str) -> tuple[dict[str, tuple[Item, ...]], dict[str, Signature]]:
    """Return the groups of state and the signatures in a library that is loaded."""
    return parse(_lines(loaded(device)))
