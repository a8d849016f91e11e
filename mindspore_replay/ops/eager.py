"""Joins the two bodies of a method: one for the compiler, and one for Python, which begins with `wait_for_work`."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..mindspore_api import wait_for_work

__all__ = ["graph_body", "wait_for_work"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def graph_body(body: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Give a method a second body, which MindSpore's compiler reads instead of the method's own.

    The compiler follows ``__wrapped__`` to the source that it compiles; Python calls the method itself.

    Args:
        body (Callable): The body for the compiler, with the method's arguments.

    Returns:
        Callable: A decorator for the method that Python runs.
    """

    def join(method: _Method) -> _Method:
        method.__wrapped__ = body  # type: ignore[attr-defined]
        return method

    return join
