"""Holds the locks of buffers."""

import contextlib
from collections.abc import Iterable
from typing import Any


class FolderLock:
    """The lock of a buffer in a folder: that of this process's calls from Python, and that of all processes.

    Args:
        lock (RLock): The first.
        store (Store): The rows.
    """

    def __init__(self, lock: Any, store: Any) -> None:
        self.of_calls, self.store = lock, store

    def __enter__(self) -> None:
        self.of_calls.acquire()
        try:
            self.store.hold()
        except BaseException:
            self.of_calls.release()
            raise

    def __exit__(self, *_: Any) -> None:
        self.store.let_go()
        self.of_calls.release()


def hold_locks(buffers: Any) -> contextlib.ExitStack:
    """Acquire the locks of several buffers, always in the same order."""
    return _held(buffer.lock for buffer in buffers)


def hold_calls(buffers: Any) -> contextlib.ExitStack:
    """Keep calls from Python, of this process, from several buffers."""
    return _held(_of_calls(buffer.lock) for buffer in buffers)


def hold_folders(buffers: Any) -> contextlib.ExitStack:
    """Keep all processes, and kernels in graphs of this one, from those of the buffers that are in folders.

    Until the end nothing of MindSpore may be used that waits for graphs: they may wait for this.
    """
    stack = contextlib.ExitStack()
    for lock in sorted((buffer.lock for buffer in buffers if is_in_folder(buffer)), key=lambda lock: id(lock.of_calls)):
        stack.enter_context(lock.store.kernels_kept_out())
    return stack


def is_in_folder(buffer: Any) -> bool:
    """Return True if the buffer has a lock of all processes."""
    return isinstance(buffer.lock, FolderLock)


def _held(locks: Iterable[Any]) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for lock in sorted(locks, key=lambda lock: id(_of_calls(lock))):
        stack.enter_context(lock)
    return stack


def _of_calls(lock: Any) -> Any:
    """Return the part of a lock that keeps out calls from Python of this process."""
    return getattr(lock, "of_calls", lock)
