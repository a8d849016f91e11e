"""Files of a buffer's folder: opened, mapped, reserved, locked, and written to the disk."""

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from ..kernels import library
from ..kernels.memory import Memory

try:
    import fcntl
except ImportError:  # on Windows, where no folder is made
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def unchanged_if_refused(path: Path, function: str) -> Iterator[None]:
    """Name the file that the block was to replace in an OSError of the system, after which the file is as before."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or error.strerror.startswith("For '"):  # else the handler of a signal raised it
            raise
        text = f"For '{function}', {path} could not be written and is what it was before: {error.strerror}"
        raise OSError(error.errno, text) from error


def opened(path: str | Path, flags: int) -> "library.calls.File":
    """Open a file, which is closed with the object at the latest."""
    return library.extension().File(os.fsencode(path), flags)


def opened_plainly(path: Path) -> "library.calls.File":
    """Open a file that is no link to read and write it."""
    return opened(path, os.O_RDWR | os.O_NOFOLLOW)


def mapped(path: Path, size: int) -> Memory:
    """Return the memory of a file that is no link."""
    with contextlib.closing(opened_plainly(path)) as file:
        return Memory(file.fileno(), size, mmap.MAP_SHARED)


def allocate(path: Path, size: int) -> None:
    """Make a file of zeros.

    Its blocks are reserved: a full disk would later kill a process that writes to memory.
    """
    file = opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    if size:
        os.posix_fallocate(file.fileno(), 0, size)


def sync(path: Path) -> None:
    """Write a file or a folder to the disk."""
    file = opened(path, os.O_RDONLY)
    if path.is_dir():
        os.fsync(file.fileno())
    else:
        sync_open(file)


def sync_open(file: "library.calls.File") -> None:
    """Write a file to the disk."""
    os.fdatasync(file.fileno())


def is_locked(file: "library.calls.File", operation: int) -> bool:
    """Lock a file if it is free, and return True if so."""
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
