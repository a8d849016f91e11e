"""Buffers described without their rows: by the arguments of a class, or by the JSON of a file."""

import importlib
from collections.abc import Mapping
from typing import Any

from ..base.schema import Schema
from .arguments import decoded_arguments
from .spec import BufferSpec, recipes


def spec_of(cls: type, arguments: Mapping[str, Any], columns: type[Schema] = Schema) -> BufferSpec:
    """Return what a buffer of a class with these arguments is, without making it. Errors are the constructor's."""
    recipe: Any = getattr(cls, "_recipe", None)
    if recipe is None or getattr(cls, "__init__") is not getattr(recipe, "__init__"):  # noqa: B009
        raise ValueError(f"For '{cls.__name__}', the constructor must be that of a public class.")
    return _described(cls.__name__, recipe, arguments, columns)


def read(description: Mapping[str, Any], seed: int | None = 0) -> BufferSpec:
    """Return the buffer that JSON describes. Errors are those of the constructors, or name what is malformed."""
    name = description["class"]
    kind = description.get("kind", name)
    recipe = constructor_of(kind)
    if recipe is None:
        raise ValueError(f"there is no class {kind!r}")
    arguments = {**decoded_arguments(description["arguments"]), "capacity": description["capacity"], "seed": seed}
    return _described(str(name), recipe, arguments, Schema)


def constructor_of(kind: object) -> Any:
    """Return the class with the constructor of a public class, which it may import; ``None`` if there is none."""
    if not isinstance(kind, str):
        return None
    if kind not in recipes:
        importlib.import_module("..faces.classes", __package__)
    return recipes.get(kind)


def _described(name: str, recipe: type, arguments: Mapping[str, Any], columns: type[Schema]) -> BufferSpec:
    """Return the `spec` of an object of a class with this name, for errors."""
    only_spec = {"_columns_of": columns, "_make": _keep}
    return type(name, (recipe,), only_spec)(**arguments).spec  # type: ignore[no-any-return]


def _keep(described: Any, spec: BufferSpec, *_place: object) -> None:
    """Take the place of the method that makes a buffer's rows."""
    described.spec = spec
