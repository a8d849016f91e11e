"""Names of methods in Python's own errors."""

import inspect
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def mixin(cls: _Class) -> _Class:
    """Keep the name of a class out of Python's own errors on calls of its methods: users know only its subclasses."""
    for name, member in vars(cls).items():
        method = getattr(member, "__func__", member)
        for function in (method, getattr(method, "__wrapped__", None)):
            if inspect.isfunction(function) and function.__qualname__ == f"{cls.__name__}.{name}":
                function.__qualname__ = name
    return cls
