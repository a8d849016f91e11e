"""Methods that run at compile time."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import ops

from ..columns import numpy_type

_numbers = itertools.count()
#: What graph bodies pass for a Tensor, before its dtype and shape; for a dict, before its keys and values; and for a
#: number whose value is not known.
TENSOR, MAPPING, NUMBER = "(a Tensor)", "(a dict)", "(a number)"


class Tensor:
    """A stand-in for a Tensor of a graph: zeros of its dtype and shape, all that is known at compile time."""

    stands_in = True

    def __init__(self, dtype: object, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape

    def __index__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Tensor(shape={list(self.shape)}, dtype={self.dtype})"

    def asnumpy(self) -> np.ndarray:
        """Return zeros, without their memory."""
        return np.broadcast_to(np.zeros((), numpy_type(self.dtype)), self.shape)


def stand_in(argument: object) -> Any:
    """Return a stand-in for an argument of a graph, for the checks of calls from Python."""
    if not isinstance(argument, (list, tuple)):
        return 0 if isinstance(argument, str) and argument == NUMBER else argument
    tag = argument[0] if argument and isinstance(argument[0], str) else None
    if tag == TENSOR:
        return Tensor(*argument[1:])
    if tag == MAPPING:
        return dict(zip(argument[1], map(stand_in, argument[2])))
    return type(argument)(map(stand_in, argument))


class compile_time:  # noqa: N801  a decorator
    """Decorates methods that graph bodies call with constants: shapes, dtypes, names, Python numbers.

    Such a method runs once, when the graph is compiled, and may raise any error. MindSpore caches these functions by
    name, so each object gets a function with a unique name, on first access.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> "Callable[..., Any] | compile_time":
        if instance is None:
            return self
        function = ops.constexpr(self._method.__get__(instance), name=f"{self._name}{next(_numbers)}")
        instance.__dict__[self._name] = function
        return function


@functools.cache
def names_in(cls: Any) -> frozenset[str]:
    """Return the names of the methods of a class that run at compile time."""
    return frozenset(name for name in dir(cls) if isinstance(getattr(cls, name, None), compile_time))
