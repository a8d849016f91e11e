"""Records constructor arguments, so that objects can be made again from a file."""

import inspect
from typing import Any


class KeepsArguments:
    """Base class whose objects keep the arguments of their constructor."""

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the object, and record its arguments."""
        alone = super().__new__ is object.__new__  # which takes only the class
        made: Any = super().__new__(cls) if alone else super().__new__(cls, *args, **kwargs)
        made.__dict__["_given"] = (_frozen(args), {key: _frozen(value) for key, value in kwargs.items()})
        return made


class Shown(KeepsArguments):
    """Base class whose objects show these arguments in their repr."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={_text(v)}' for k, v in given_arguments(self).items())})"


def _text(value: Any) -> str:
    """Return the repr of a value; of a function, its name."""
    return getattr(value, "__qualname__", None) or repr(value)


def given_arguments(made: KeepsArguments) -> dict[str, Any]:
    """Return the arguments that an object was made with, by name; lists become tuples."""
    args, kwargs = vars(made)["_given"]
    bound = inspect.signature(type(made).__init__).bind(made, *args, **kwargs)
    return dict(list(bound.arguments.items())[1:])


def positional_arguments(cls: type) -> str:
    """Return the names of a class's positional arguments, for messages: ``(x, y)``."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    return f"({', '.join(p.name for p in parameters if p.kind != p.KEYWORD_ONLY)})"


def _frozen(value: Any) -> Any:
    """Return the value with its lists as tuples, which the caller cannot change later."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value
