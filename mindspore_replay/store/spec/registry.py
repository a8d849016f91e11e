"""Classes by the names that files and configurations have for them."""

import importlib
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)

_classes: dict[str, type] = {}


def registered(cls: _Class) -> _Class:
    """Let files name a class: `find` returns it."""
    _classes[cls.__name__] = cls
    return cls


def find(name: str, folder: str = "") -> Any:
    """Return the class of a name, ``None`` if there is none.

    A public one of the package, or of a `folder` of it, is imported on first use.
    """
    if name not in _classes:
        package = __name__.partition(".")[0]
        getattr(importlib.import_module(f"{package}.{folder}".rstrip(".")), name, None)
    return _classes.get(name)
