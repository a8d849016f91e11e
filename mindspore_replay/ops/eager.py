"""Joins the two bodies of a method: one for the compiler, and one for Python, which begins with `wait_for_work`.

The compiler's bodies compute in their own dtypes, whatever mixed precision their caller has.
"""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import mindspore as ms

from ..mindspore_api import exact, wait_for_work

__all__ = ["compiled", "graph_body", "wait_for_work"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def graph_body(body: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Give a method a second body, which MindSpore's compiler reads instead of the method's own.

    The compiler follows ``__wrapped__`` to the source that it compiles. Python calls the method itself.

    Args:
        body (Callable): The body for the compiler, with the method's arguments.

    Returns:
        Callable: A decorator for the method that Python runs.
    """

    def join(method: _Method) -> _Method:
        method.__wrapped__ = body  # type: ignore[attr-defined]
        exact(method)
        return method

    return join


def give_graph_bodies(cls: type, *bases: type) -> None:
    """Give the methods of a class a second body each: the function `_x_graph`, its own or a base's, for the method `x`.

    A method that the class inherits is copied, since the class that defines it keeps its own.
    """
    for name, body in [item for one in (*bases, cls) for item in vars(one).items()]:
        public = "__len__" if name == "_len_graph" else name[1:].removesuffix("_graph")
        method = getattr(cls, public, None)
        if name.endswith("_graph") and inspect.isfunction(method):
            copied = FunctionType(method.__code__, method.__globals__, public, method.__defaults__, method.__closure__)
            vars(copied).update(vars(method), __signature__=inspect.signature(method), __wrapped__=body)
            copied.__kwdefaults__, copied.__annotations__ = method.__kwdefaults__, method.__annotations__
            copied.__doc__, copied.__module__, copied.__qualname__ = method.__doc__, method.__module__, public
            exact(copied)
            setattr(cls, public, copied)


def compiled(method: Any) -> Callable[..., Any]:
    """Return a function that compiles a bound method when it is called first."""
    exact(method.__func__)
    return ms.jit(method)
