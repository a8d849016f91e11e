"""What takes the place of the rows of a closed buffer, and of buffers that a forked process got from its parent."""

import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol


class Gone:
    """Takes the place of rows or of a lock: whatever it is asked for, it raises an error.

    Args:
        cls_name (str): Class to name in it.
        reason (str): What it says.
    """

    def __init__(self, cls_name: str, reason: str) -> None:
        self.__dict__.update(_cls_name=cls_name, _reason=reason)

    def fail(self, *_: object) -> NoReturn:
        """Raise the error."""
        raise RuntimeError(f"For '{self._cls_name}', {self._reason}.")

    def __getattr__(self, name: str) -> Any:
        self.fail()

    def __enter__(self) -> None:
        self.fail()

    def __exit__(self, *_: object) -> None:
        pass


class Living:
    """Objects, as long as something else refers to them.

    Unlike a `weakref.WeakSet` it calls nothing when one goes: what the handler of a signal raises there is lost.
    """

    def __init__(self) -> None:
        self._lock, self._references, self._most = threading.Lock(), list[Any](), 32

    def add(self, item: object) -> None:
        """Add an object."""
        with self._lock:
            self._references.append(weakref.ref(item))
            if len(self._references) > self._most:
                self._references = [reference for reference in self._references if reference() is not None]
                self._most = 2 * len(self._references) + 32

    def __iter__(self) -> Iterator[Any]:
        return iter([item for reference in self._references if (item := reference()) is not None])


class _OfProcess(Protocol):
    """What one process owns."""

    def leave(self) -> None:
        """Leave it to the process from which this one was forked: threads there may hold its locks."""


_owned = Living()


def left_by_forks(owner: _OfProcess) -> None:
    """Call the `leave` of an object in processes that are forked from this one."""
    _owned.add(owner)


def forked(cls_name: str, folder: object) -> Gone:
    """Return what takes the place of a buffer of the process from which this one was forked, and of its lock."""
    way_out = "in this process, attach(folder) uses the rows of a buffer that is made with storage=folder"
    if folder is not None:
        way_out = f"in this process use attach({os.fspath(folder)!r})"  # type: ignore[call-overload]
    return Gone(cls_name, f"the buffer belongs to the process from which this one was forked: {way_out}")


def _leave_all() -> None:
    global _owned
    before, _owned = _owned, Living()
    for owner in before:
        owner.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
