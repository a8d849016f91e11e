"""Spaces of gymnasium as columns: one for each leaf, with the names on the way to it joined by dots."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .filling import Field
from .steps import Arrays


def leaves(what: str, space: Any, name: str) -> dict[str, Field]:
    """Shape and dtype of each leaf of a space, by name: ``"observation.arm.position"``, ``"observation.0"``."""
    kind = _kind(space)
    if kind in ("Dict", "Tuple"):
        return {k: field for key, part in _parts(space) for k, field in leaves(what, part, f"{name}.{key}").items()}
    if kind is None:
        raise TypeError(
            f"For '{what}', {name!r} must be of a space whose values are arrays of one shape, which are Box, Discrete, "
            f"MultiBinary and MultiDiscrete, or of Dict or Tuple of those, but got {space!r}."
        )
    return {name: (tuple(space.shape), np.dtype(space.dtype))}


def flatten(space: Any, values: Any, name: str) -> Arrays:
    """Return the arrays of the leaves by name, of nested values."""
    if _kind(space) in ("Dict", "Tuple"):
        return {k: v for key, part in _parts(space) for k, v in flatten(part, values[key], f"{name}.{key}").items()}
    return {name: np.asarray(values)}


def unflatten(space: Any, columns: Mapping[str, np.ndarray], name: str) -> Any:
    """Return the nested values of the leaves, each a list of rows."""
    kind = _kind(space)
    if kind in ("Dict", "Tuple"):
        parts = {key: unflatten(part, columns, f"{name}.{key}") for key, part in _parts(space)}
        return parts if kind == "Dict" else tuple(parts.values())
    return list(columns[name])


def _parts(space: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a Dict or Tuple, by key or number."""
    return list(space.spaces.items()) if _kind(space) == "Dict" else list(enumerate(space.spaces))


def _kind(space: Any) -> str | None:
    """Of which of the spaces that columns can hold a space is."""
    from gymnasium import spaces

    for kind in ("Dict", "Tuple", "Box", "Discrete", "MultiBinary", "MultiDiscrete"):
        if isinstance(space, getattr(spaces, kind)):
            return kind
    return None
