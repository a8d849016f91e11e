"""Locks of buffers, and how to hold several of them."""

import contextlib
from collections.abc import Iterable
from typing import Protocol

#: What is held by a ``with`` statement.
Held = contextlib.AbstractContextManager[object]


class Lock(Held, Protocol):
    """A lock that one thread may acquire several times."""

    def acquire(self) -> bool:
        """Wait for it."""

    def release(self) -> None:
        """Release it once."""


class Exclusive(Protocol):
    """A store, whose kernels can be kept out."""

    def hold(self) -> None:
        """Keep out kernels of all threads, and of other processes, until `let_go`."""

    def let_go(self) -> None:
        """End a `hold`."""

    def kernels_kept_out(self) -> contextlib.AbstractContextManager[None]:
        """Hold during the block."""


class Owner(Protocol):
    """A buffer."""

    @property
    def lock(self) -> Held:
        """The lock of its calls."""


class FolderLock:
    """The lock of a buffer in a folder: the lock of this process's calls from Python and the lock of all processes.

    Args:
        lock (RLock): The first.
        store (Store): The rows.
    """

    def __init__(self, lock: Lock, store: Exclusive) -> None:
        self.of_calls, self.store = lock, store

    def __enter__(self) -> None:
        self.of_calls.acquire()
        try:
            self.store.hold()
        except BaseException:
            self.of_calls.release()
            raise

    def __exit__(self, *_: object) -> None:
        self.store.let_go()
        self.of_calls.release()


def hold_locks(buffers: Iterable[Owner]) -> contextlib.ExitStack:
    """Acquire the locks of several buffers, always in the same order."""
    return _held(buffer.lock for buffer in buffers)


def hold_calls(buffers: Iterable[Owner]) -> contextlib.ExitStack:
    """Keep this process's calls from Python out of several buffers."""
    return _held(_of_calls(buffer.lock) for buffer in buffers)


def hold_folders(buffers: Iterable[Owner]) -> contextlib.ExitStack:
    """Keep all processes, and graphs of this one, out of those of the buffers that are in folders.

    Until the end nothing of MindSpore may be used that waits for graphs: they may wait for this.
    """
    stack = contextlib.ExitStack()
    locks = (buffer.lock for buffer in buffers)
    for lock in sorted((lock for lock in locks if isinstance(lock, FolderLock)), key=lambda lock: id(lock.of_calls)):
        stack.enter_context(lock.store.kernels_kept_out())
    return stack


def is_in_folder(buffer: Owner) -> bool:
    """Return True if the buffer has a lock of all processes."""
    return isinstance(buffer.lock, FolderLock)


def _held(locks: Iterable[Held]) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for lock in sorted(locks, key=lambda lock: id(_of_calls(lock))):
        stack.enter_context(lock)
    return stack


def _of_calls(lock: Held) -> Held:
    """Return the lock that keeps out this process's calls from Python."""
    return lock.of_calls if isinstance(lock, FolderLock) else lock
