"""Files of a buffer's folder: opened, mapped, reserved, locked, and written to the disk."""

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

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
        if error.strerror is None or error.strerror.startswith("For '"):
            raise
        text = f"For '{function}', {path} could not be written and is what it was before: {error.strerror}"
        raise OSError(error.errno, text) from error


def descriptor_of(path: Path, stack: contextlib.ExitStack) -> int:
    """Open a file that is no link, which the stack closes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    stack.callback(os.close, descriptor)
    return descriptor


@contextlib.contextmanager
def opened(path: str | Path, flags: int) -> Iterator[int]:
    """Open a file during the block, which gets its descriptor."""
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def mapped(path: Path, size: int) -> mmap.mmap:
    """Return the memory of a file that is no link."""
    with opened(path, os.O_RDWR | os.O_NOFOLLOW) as descriptor:
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED)


def allocate(path: Path, size: int, undo: contextlib.ExitStack) -> None:
    """Make a file of zeros, which `undo` deletes again.

    Its blocks are reserved: a full disk would later kill a process that writes to memory.
    """
    with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
        undo.callback(path.unlink, missing_ok=True)
        if size:
            os.posix_fallocate(descriptor, 0, size)


def sync(path: Path) -> None:
    """Write a file or a folder to the disk."""
    with opened(path, os.O_RDONLY) as descriptor:
        (os.fsync if path.is_dir() else sync_open)(descriptor)


def sync_open(descriptor: int) -> None:
    """Write a file to the disk."""
    os.fdatasync(descriptor)


def is_locked(descriptor: int, kind: int) -> bool:
    """Lock a file if it is free, and return True if so."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
