"""Holds the locks of several buffers."""

import contextlib
from typing import Any


def hold_locks(buffers: Any) -> contextlib.ExitStack:
    """Acquire the locks of several buffers, always in the same order."""
    stack = contextlib.ExitStack()
    for lock in sorted((buffer.lock for buffer in buffers), key=id):
        stack.enter_context(lock)
    return stack
