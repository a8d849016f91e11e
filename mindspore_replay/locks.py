"""Holds the locks of buffers."""

import contextlib
from typing import Any


class FolderLock:
    """The lock of a buffer in a folder: that of this process's calls from Python, and that of all processes.

    Args:
        lock (RLock): The first.
        store (Store): The rows.
    """

    def __init__(self, lock: Any, store: Any) -> None:
        self._lock, self._store = lock, store

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._store.hold()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_: Any) -> None:
        self._store.let_go()
        self._lock.release()


def hold_locks(buffers: Any) -> contextlib.ExitStack:
    """Acquire the locks of several buffers, always in the same order."""
    stack = contextlib.ExitStack()
    for lock in sorted((buffer.lock for buffer in buffers), key=id):
        stack.enter_context(lock)
    return stack
