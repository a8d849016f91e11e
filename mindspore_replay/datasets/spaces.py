"""Maps gymnasium's spaces to columns: one for each leaf, named by its path, joined by dots."""

from collections.abc import Mapping

import numpy as np

from ..store.base.nested import leaves as leaves_of_values
from ..training.spaces import leaves as leaves_of_spaces
from .steps import Arrays, Field


def leaves(what: str, space: object, name: str) -> dict[str, Field]:
    """Return shape and dtype of each leaf of a space, by name: ``"observation.arm.position"``, ``"observation.0"``."""
    found = leaves_of_spaces(what, name, space)
    return {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in found}


def flatten(values: object, name: str) -> Arrays:
    """Return the arrays of the leaves of nested values, by name."""
    return {key: np.asarray(value) for key, value in leaves_of_values({name: values}, ()).items()}


def unflatten(space: object, columns: Mapping[str, np.ndarray], name: str) -> object:
    """Return nested values from the arrays of the leaves. Each leaf is a list of rows."""
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        return {key: unflatten(part, columns, f"{name}.{key}") for key, part in inner.items()}
    if inner is not None:
        return tuple(unflatten(part, columns, f"{name}.{key}") for key, part in enumerate(inner))
    return list(columns[name])
