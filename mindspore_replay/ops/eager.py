"""Joins the two bodies of a method: one for the compiler, and one for Python, which begins with `wait_for_work`.

The compiler's bodies compute in their own dtypes, whatever mixed precision their caller has.
"""

from collections.abc import Callable
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


def compiled(method: Any) -> Callable[..., Any]:
    """Return a function that compiles a bound method when it is called first."""
    exact(method.__func__)
    return ms.jit(method)
