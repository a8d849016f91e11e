"""Methods that run at compile time."""

import itertools
from collections.abc import Callable
from typing import Any

from mindspore import ops

_numbers = itertools.count()


class compile_time:  # noqa: N801  a decorator
    """Decorates methods that graph bodies call with constants: shapes, dtypes, names, Python numbers.

    Such a method runs once, when the graph is compiled, and may raise any error. MindSpore caches these functions by
    name, so each object gets a function with a unique name, on first access.
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
