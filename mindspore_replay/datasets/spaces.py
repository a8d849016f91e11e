"""Maps gymnasium's spaces to columns: one for each leaf, named by its path, joined by dots."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .filling import Field
from .steps import Arrays


def leaves(what: str, space: Any, name: str) -> dict[str, Field]:
    """Return shape and dtype of each leaf of a space, by name: ``"observation.arm.position"``, ``"observation.0"``."""
    kind = _kind(space)
    if kind in ("Dict", "Tuple"):
        return {
            k: field for key, subspace in _parts(space) for k, field in leaves(what, subspace, f"{name}.{key}").items()
        }
    if kind is None:
        raise TypeError(
            f"For '{what}', {name!r} must be of a space whose values are arrays of one shape, which are Box, Discrete, "
            f"MultiBinary and MultiDiscrete, or of Dict or Tuple of those, but got {space!r}."
        )
    return {name: (tuple(space.shape), np.dtype(space.dtype))}


def flatten(space: Any, values: Any, name: str) -> Arrays:
    """Return the arrays of the leaves of nested values, by name."""
    if _kind(space) in ("Dict", "Tuple"):
        return {
            k: v for key, subspace in _parts(space) for k, v in flatten(subspace, values[key], f"{name}.{key}").items()
        }
    return {name: np.asarray(values)}


def unflatten(space: Any, columns: Mapping[str, np.ndarray], name: str) -> Any:
    """Return nested values from the arrays of the leaves; each leaf is a list of rows."""
    kind = _kind(space)
    if kind in ("Dict", "Tuple"):
        parts = {key: unflatten(subspace, columns, f"{name}.{key}") for key, subspace in _parts(space)}
        return parts if kind == "Dict" else tuple(parts.values())
    return list(columns[name])


def _parts(space: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a Dict or Tuple, by key or number."""
    return list(space.spaces.items()) if _kind(space) == "Dict" else list(enumerate(space.spaces))


def _kind(space: Any) -> str | None:
    """Return the name of the kind of a space; ``None`` if columns cannot hold it."""
    from gymnasium import spaces

    for kind in ("Dict", "Tuple", "Box", "Discrete", "MultiBinary", "MultiDiscrete"):
        if isinstance(space, getattr(spaces, kind)):
            return kind
    return None
