"""Arguments of constructors, for objects that are made anew from a file."""

import inspect
from typing import Any


class KeepsArguments:
    """A class whose objects remember the arguments of their constructor."""

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the object, and keep the arguments."""
        alone = super().__new__ is object.__new__  # which takes no arguments beside the class
        made: Any = super().__new__(cls) if alone else super().__new__(cls, *args, **kwargs)
        made.__dict__["_given"] = (_frozen(args), {key: _frozen(value) for key, value in kwargs.items()})
        return made


class Shown(KeepsArguments):
    """A class whose objects show these arguments."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={_text(v)}' for k, v in given_arguments(self).items())})"


def _text(value: Any) -> str:
    """Return a value as a reader knows it: a function by its name."""
    return getattr(value, "__qualname__", None) or repr(value)


def given_arguments(made: KeepsArguments) -> dict[str, Any]:
    """Return the arguments that an object was made with, by name; lists as tuples, and without those left out."""
    args, kwargs = vars(made)["_given"]
    bound = inspect.signature(type(made).__init__).bind(made, *args, **kwargs)
    return dict(list(bound.arguments.items())[1:])


def positional_arguments(cls: type) -> str:
    """Return the arguments of a class that go by their order, as a reader writes them: ``(x, y)``."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    return f"({', '.join(p.name for p in parameters if p.kind != p.KEYWORD_ONLY)})"


def _frozen(value: Any) -> Any:
    """Return the value, and tuples for lists in it, which the caller may change later."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value
