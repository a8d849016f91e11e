"""What `insert`, `reset` and other methods that return the buffer return in a compiled body.

To the compiler a returned buffer is any object of Python: it would leave the next method in a chain to Python while the
graph runs, out of order or failing. So it gets an object whose methods refuse to be compiled. In Python, to which a
compiled function may return it, that object's methods are the buffer's.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import mindspore as ms

from ..ops.eager import graph_body


def _refuse_chain(self, *args, **kwargs):
    raise RuntimeError(
        "In a compiled body the methods of a buffer cannot be chained. Write two statements, such as "
        "'self.buffer.reset()' and 'self.buffer.insert(rows)'."
    )


def _method(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._given_by, name)(*args, **kwargs)

    return graph_body(_refuse_chain)(call)


def _keep(self: Any, buffer: Any) -> None:
    self._given_by = buffer


@functools.cache
def _class_for(buffer_class: Hashable) -> Any:
    """A class with the names of all methods of a class of buffers that have a body for the compiler."""
    names = [name for name in dir(buffer_class) if hasattr(getattr(buffer_class, name), "__wrapped__")]
    return ms.jit_class(type("ReturnedBuffer", (), {"__init__": _keep, **{name: _method(name) for name in names}}))


def end_of_chain(buffer: Any) -> Any:
    """The object to return in a compiled body in place of the buffer."""
    return _class_for(type(buffer))(buffer)
