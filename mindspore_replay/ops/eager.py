"""Joins the two bodies of a method: one for the compiler, one for Python."""

from collections.abc import Callable
from typing import Any, TypeVar

try:
    from mindspore.graph.api import _pynative_executor  # MindSpore 2.9 and newer
except ImportError:
    from mindspore.common.api import _pynative_executor

from . import tracing

_Method = TypeVar("_Method", bound=Callable[..., Any])

# MindSpore's own function, without the Python around it: every call of a buffer waits.
_sync = _pynative_executor._executor.sync


def wait_for_work() -> None:
    """Waits for the operators in flight, so that memory may be touched. Every call from Python begins with it.

    Raises:
        RuntimeError: If the call is being traced.
    """
    if tracing.contexts._jit_context is not None:
        tracing.refuse_trace()
    _sync()


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
