"""Records constructor arguments, and writes them as JSON, so that objects can be made again from a file."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..base.column import Column, Priorities, fields_of
from ..base.habits import check_arguments
from .registry import find

_Class = TypeVar("_Class", bound=type)


def keeps_arguments(cls: _Class) -> _Class:
    """Let the objects of a class keep the arguments of their constructor. Unknown ones are a TypeError."""
    base: Any = cls

    def new(made_class: type, *args: object, **kwargs: object) -> object:
        check_arguments(made_class, kwargs)
        above: Callable[..., object] = super(base, made_class).__new__
        instance = above(made_class) if above is object.__new__ else above(made_class, *args, **kwargs)
        object.__setattr__(instance, "_given", (_frozen(args), {key: _frozen(value) for key, value in kwargs.items()}))
        return instance

    type.__setattr__(cls, "__new__", new)
    return cls


@keeps_arguments
class Shown:
    """Base class whose objects show these arguments in their repr."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={_text(v)}' for k, v in given_arguments(self).items())})"


def _text(value: object) -> str:
    """Return the repr of a value; of a function, its name."""
    return getattr(value, "__qualname__", None) or repr(value)


def given_arguments(instance: object) -> dict[str, Any]:
    """Return the arguments that an object was made with, by name. Lists become tuples."""
    args, kwargs = vars(instance)["_given"]
    bound = inspect.signature(type(instance).__init__).bind(instance, *args, **kwargs)
    return dict(list(bound.arguments.items())[1:])


def positional_arguments(cls: type) -> str:
    """Return the names of a class's positional arguments, for messages: ``(x, y)``."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    return f"({', '.join(p.name for p in parameters if p.kind != p.KEYWORD_ONLY)})"


def _frozen(value: object) -> object:
    """Return the value with its lists as tuples, which the caller cannot change later."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def without(view: object) -> str | None:
    """Return why a file cannot store a view, or ``None`` if it can."""
    arguments = given_arguments(view) if "_given" in vars(view) else {}
    storable = find(type(view).__name__) is type(view) and not any(map(callable, arguments.values()))
    return None if storable else f"{type(view).__name__} holds what no file can: Python code"


def encoded(value: object) -> object:
    """Return an argument as JSON. A function in a view is left out."""
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    if hasattr(value, "apply_to"):
        arguments = given_arguments(value) if "_given" in vars(value) else {}
        return {"view": type(value).__name__, "arguments": {key: encoded(item) for key, item in arguments.items()}}
    if isinstance(value, (Column, Priorities)):
        return {"record": type(value).__name__, "arguments": {k: encoded(v) for k, v in fields_of(value).items()}}
    if isinstance(value, Mapping):
        return {"items": [[key, encoded(item)] for key, item in value.items()]}
    if callable(value):
        return {"function": None}
    return value.item() if isinstance(value, np.generic) else value


def decoded(value: object) -> Any:
    """Return the argument encoded in JSON."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "view" in value:
        view = find(value["view"])
        if not hasattr(view, "apply_to"):
            raise ValueError(f"the view {value['view']} is no class of mindspore_replay")
        return view(**decoded_arguments(value["arguments"]))
    if "record" in value:
        return {"Column": Column, "Priorities": Priorities}[value["record"]](**decoded_arguments(value["arguments"]))
    if "items" in value:
        return {key: decoded(item) for key, item in value["items"]}
    return _function_left_out


def decoded_arguments(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments encoded in JSON, by name."""
    return {key: decoded(value) for key, value in values.items()}


def _function_left_out(*_: object) -> NoReturn:
    """Stands for a function that is not in a file."""
    raise RuntimeError("the function of the view exists only in the learner's program")
