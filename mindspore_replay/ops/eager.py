"""Joins the two bodies of a method: one for the compiler, one for Python."""

from collections.abc import Callable
from typing import Any, TypeVar

try:
    from mindspore.graph.api import _pynative_executor  # MindSpore 2.9 and newer
except ImportError:
    from mindspore.common.api import _pynative_executor

_Method = TypeVar("_Method", bound=Callable[..., Any])

#: Returns when the operators in flight are done, so that memory may be touched. MindSpore's own function, without the
#: Python around it: every call of a buffer waits.
wait_for_work = _pynative_executor._executor.sync


def graph_body(body: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Gives a method a second body, which MindSpore's compiler reads instead of the method.

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
