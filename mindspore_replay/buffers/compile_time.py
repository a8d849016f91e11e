"""Methods that the compiler runs itself, while it builds a graph."""

import itertools
from collections.abc import Callable
from typing import Any

from mindspore import ops

_numbers = itertools.count()


class compile_time:  # noqa: N801  a decorator
    """Makes a method one that graph bodies call with constants: shapes, dtypes, names, Python numbers.

    It runs once, when the graph is compiled, and may raise any error. MindSpore caches such functions by their names,
    so each object gets one with a name of its own, when it is first asked for.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        made = ops.constexpr(self._method.__get__(instance), name=f"{self._name}{next(_numbers)}")
        instance.__dict__[self._name] = made
        return made
