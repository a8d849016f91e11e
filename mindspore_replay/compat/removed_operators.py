"""Placeholders for removed operators that have nothing to do with replay: they can be made, and calls raise errors."""

from types import ModuleType

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


def removed_module(name: str, operators: tuple[str, ...]) -> ModuleType:
    """Return a module with the name of a removed one, with these operators."""
    module = ModuleType(name, "Stands in for a module that MindSpore no longer has.")
    for operator in operators:
        setattr(module, operator, removed_operator(operator))
    return module
