"""Bases of classes, and the names of their methods in Python's own errors."""

import inspect
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)
_Closing = TypeVar("_Closing", bound="Closing")


class Closing:
    """Closed at the end of a ``with`` block."""

    def close(self) -> None:
        """Free what is held."""
        raise NotImplementedError

    def __enter__(self: _Closing) -> _Closing:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def mixin(cls: _Class) -> _Class:
    """Keep the name of a class out of Python's errors on calls of its methods: users see only its subclasses."""
    for name, member in vars(cls).items():
        method = getattr(member, "__func__", member)
        for function in (method, getattr(method, "__wrapped__", None)):
            if inspect.isfunction(function) and function.__qualname__ == f"{cls.__name__}.{name}":
                function.__qualname__ = name
    return cls
