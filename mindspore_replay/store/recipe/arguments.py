"""Records constructor arguments, and writes them as JSON, so that objects can be made again from a file."""

import inspect
from collections.abc import Collection
from typing import Any

import numpy as np

from ..habits import check_arguments
from ..schema import given_type_name
from .registry import find


class KeepsArguments:
    """Base class whose objects keep the arguments of their constructor."""

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the object, and record its arguments; raise a TypeError if one is unknown."""
        check_arguments(cls, kwargs)
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


#: Arguments that are stored elsewhere or not at all: a saved random state replaces the seed.
_LEFT_OUT = ("capacity", "parts", "seed", "storage", "backend")


class _NotWrittenError(Exception):
    """An argument that cannot be written to a file."""


def described(made: KeepsArguments, left_out: Collection[str] = ()) -> dict[str, Any]:
    """Return as JSON the ``arguments`` that an object was made with; or the ``reason`` why a file cannot hold them."""
    name = type(made).__name__
    try:
        if find(name) is not type(made):
            raise _NotWrittenError(f"{name} is no class of mindspore_replay")
        given = {key: value for key, value in given_arguments(made).items() if key not in (*_LEFT_OUT, *left_out)}
        return {"arguments": {key: _encoded(value) for key, value in given.items()}}
    except _NotWrittenError as reason:
        return {"reason": str(reason)}


def _encoded(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if hasattr(value, "apply_to"):
        if find(type(value).__name__) is not type(value):
            raise _NotWrittenError(f"{type(value).__name__} holds what no file can: Python code")
        return {"view": type(value).__name__, **described(value)}
    return given_type_name(value)


def decoded(value: Any) -> Any:
    """Return the value of an argument, given as JSON."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if isinstance(value, dict) and "view" in value:
        return find(value["view"])(**decoded(value["arguments"]))
    if isinstance(value, dict):
        return {key: decoded(item) for key, item in value.items()}
    return value
