"""Buffers described without their rows: by the arguments of a class, or by the JSON of a file."""

import importlib
from collections.abc import Mapping
from typing import Any

from ..base.schema import Schema
from .arguments import decoded_arguments
from .spec import BufferSpec, constructors


def spec_of(cls: type, arguments: Mapping[str, Any], columns: type[Schema] = Schema) -> BufferSpec:
    """Return what a buffer of a class with these arguments is, without making it. Errors are the constructor's."""
    constructor: Any = getattr(cls, "_constructor", None)
    if constructor is None or getattr(cls, "__init__") is not getattr(constructor, "__init__"):  # noqa: B009
        raise ValueError(f"For '{cls.__name__}', the constructor must be that of a public class.")
    return _described(cls.__name__, constructor, arguments, columns)


def read(description: Mapping[str, Any], seed: int | None = 0) -> BufferSpec:
    """Return the buffer that JSON describes. Errors are those of the constructors, or name what is malformed."""
    name = description["class"]
    public_class = description.get("kind", name)
    constructor = constructor_of(public_class)
    if constructor is None:
        raise ValueError(f"there is no class {public_class!r}")
    arguments = {**decoded_arguments(description["arguments"]), "capacity": description["capacity"], "seed": seed}
    return _described(str(name), constructor, arguments, Schema)


def constructor_of(public_class: object) -> Any:
    """Return the class with the constructor of a public class, which it may import; ``None`` if there is none."""
    if not isinstance(public_class, str):
        return None
    if public_class not in constructors:
        importlib.import_module("..faces.classes", __package__)
    return constructors.get(public_class)


def _described(name: str, constructor: type, arguments: Mapping[str, Any], columns: type[Schema]) -> BufferSpec:
    """Return the `spec` of an object of a class with this name, for errors."""
    only_spec = {"_columns_of": columns, "_make": _keep}
    return type(name, (constructor,), only_spec)(**arguments).spec  # type: ignore[no-any-return]


def _keep(described: Any, spec: BufferSpec, *_place: object) -> None:
    """Take the place of the method that makes a buffer's rows."""
    described.spec = spec
