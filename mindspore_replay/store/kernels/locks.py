"""Locks of buffers, how to hold several of them, and blocks and events that a signal cannot split.

Python runs the handlers of signals between bytecodes, after calls, and they may raise, as that of Ctrl-C does. So
nothing is acquired but by a ``with`` statement of an object written in C, whatever else ends with a block is a `Block`,
and what is set together is set without a call in between.
"""

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from .library import calls

#: What is held by a ``with`` statement.
Held = contextlib.AbstractContextManager[Any]
_RLOCK = type(threading.RLock())
#: Seconds after which a thread that waits looks again.
_LOOK_AGAIN = 0.5


class WithLock(Protocol):
    """A buffer."""

    @property
    def lock(self) -> Held:
        """The lock of its calls."""


@contextlib.contextmanager
def _block(begin: Callable[[], Any], end: Callable[[bool], Any]) -> Iterator[Any]:
    succeeded = False
    try:
        yield begin()
        succeeded = True
    finally:
        end(succeeded)


@contextlib.contextmanager
def _locks(*parts: Held) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        result = None
        for part in parts:
            result = stack.enter_context(part)
        yield result


#: ``(begin, end)``: calls ``begin()``, whose result is that of the block, and after the block ``end(succeeded)``, also
#: if `begin` raises. `end` may be called again, after a signal interrupted it.
Block: Callable[[Callable[[], Any], Callable[[bool], Any]], Held] = _block if calls is None else calls.Block
#: ``(*parts)``: holds several locks and `Block`s, and returns the result of the last.
Locks: Callable[..., Held] = _locks if calls is None else calls.Locks


def finally_(end: Callable[[], Any]) -> Held:
    """Return a block after which a function is called. It may be called again, after a signal interrupted it."""
    return Block(_nothing, lambda _: end())


def on_failure(undo: Callable[[], Any]) -> Held:
    """Return a block that calls a function if it fails. It may be called again, after a signal interrupted it."""
    return Block(_nothing, lambda succeeded: None if succeeded else undo())


def first(begin: Callable[[], Any]) -> Held:
    """Return a part of `Locks` that calls a function first."""
    return Block(begin, _nothing)


def _nothing(*_: object) -> None:
    pass


def released(lock: Any) -> Held:
    """Return a block during which a lock that this thread may hold is free, if it is one of `threading`."""
    counts: list[Any] = []

    def release() -> None:
        if isinstance(lock, _RLOCK) and lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            save = lock._release_save  # type: ignore[attr-defined]  # noqa: SLF001
            counts.extend(itertools.starmap(save, [()]))  # released and noted in one call

    def acquire(_: bool) -> None:
        if counts and not lock._is_owned():  # noqa: SLF001
            lock._acquire_restore(*counts)  # noqa: SLF001

    return Block(release, acquire)


class Event:
    """An event as `threading.Event`, which an interrupted thread does not leave locked."""

    def __init__(self) -> None:
        self._happened, self._gate = False, threading.Lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        """Return True if it has happened."""
        return self._happened

    def set(self) -> None:
        """Let it happen."""
        self._happened = True
        self._open()

    def wait(self, seconds: float = math.inf) -> bool:
        """Wait until it happens, at most so many seconds. Return whether it has."""
        until = time.monotonic() + seconds
        while not self.is_set() and (left := until - time.monotonic()) > 0:
            if self._gate.acquire(timeout=min(left, _LOOK_AGAIN)):
                self._open()  # for the next thread that waits
        return self.is_set()

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is open
            self._gate.release()


class Signals:
    """Wakes threads that wait for a change."""

    def __init__(self) -> None:
        self._next = Event()

    def seen(self) -> Event:
        """Return what to wait for, found before the condition is checked."""
        return self._next

    def wait(self, seen: Event, seconds: float) -> None:
        """Wait for a signal after `seen`, at most some seconds."""
        seen.wait(seconds)

    def send(self) -> None:
        """Wake all that wait."""
        event, self._next = self._next, Event()
        event.set()


def hold_locks(buffers: Iterable[WithLock]) -> Held:
    """Acquire the locks of several buffers, always in the same order."""
    return Locks(*sorted((buffer.lock for buffer in buffers), key=lambda lock: id(_parts(lock)[0])))


def hold_calls(buffers: Iterable[WithLock]) -> Held:
    """Keep this process's calls from Python out of several buffers."""
    return Locks(*sorted((_parts(buffer.lock)[0] for buffer in buffers), key=id))


def hold_folders(buffers: Iterable[WithLock]) -> Held:
    """Keep all processes, and graphs of this one, out of those of the buffers that are in folders.

    Until the end nothing of MindSpore may be used that waits for graphs: they may wait for this.
    """
    locks = (_parts(buffer.lock) for buffer in buffers)
    return Locks(*(part for lock in sorted(locks, key=lambda parts: id(parts[0])) for part in lock[1:]))


def is_in_folder(buffer: WithLock) -> bool:
    """Return True if the buffer has a lock of all processes."""
    return len(_parts(buffer.lock)) > 1


def _parts(lock: Held) -> tuple[Held, ...]:
    """Return the lock of this process's calls from Python, and of a buffer in a folder that of all processes."""
    parts: tuple[Held, ...] = lock.parts() if calls is not None and isinstance(lock, calls.Locks) else (lock,)
    return parts
