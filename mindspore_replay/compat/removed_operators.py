"""Placeholders for removed operators that have nothing to do with replay: they can be made, and calls raise errors."""

import mindspore as ms

from .base import Operator


class _Removed(Operator):
    """Accepts any arguments. A call raises a NotImplementedError, in a graph when that is compiled."""

    message = ""

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs

    def __call__(self, *args):
        raise NotImplementedError(self.message)


def removed_operator(name: str) -> type[Operator]:
    """Return a class with the name of a removed operator."""
    message = f"MindSpore no longer has the operator '{name}', and this package does not replace it."
    return ms.jit_class(type(name, (_Removed,), {"message": message, "__module__": __name__}))
