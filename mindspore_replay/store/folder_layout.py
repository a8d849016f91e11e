"""Where the arrays of a buffer lie in the files of its folder."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from . import sharing, state
from .flushed import FILES, PAGE
from .recipe.spec import BufferSpec

#: The file of the arrays of the state.
STATE = "state"
_LINE = 64


def column_file(i: int) -> str:
    """Return the name of a column's file."""
    return f"column.{i}"


class Place(NamedTuple):
    """Place of an array in a file."""

    file: str
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def end(self) -> int:
        """Where it ends in the file."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize


def _is_flushed(name: str) -> bool:
    """Return True if an array of the state is flushed: it does not follow from the others."""
    return name != "weights" and not name.startswith("undo.")


def places_of(spec: BufferSpec) -> dict[str, Place]:
    """Return the place of each array, in the state first of those that are flushed, up to the end of a page."""
    places, start, schema, options = {}, 0, spec.columns, spec.options
    columns = {f"column.{name}": column_file(i) for i, name in enumerate(schema.names)}
    layout = sharing.layout(schema, options.capacity) | state.whole_layout(schema, options)
    was_flushed = True
    for name, (shape, dtype) in sorted(layout.items(), key=lambda item: not _is_flushed(item[0])):
        kind = schema.numpy_type(dtype)
        if name in columns:
            places[name] = Place(columns[name], 0, shape, kind)
            continue
        line = PAGE if was_flushed and not _is_flushed(name) else _LINE
        places[name] = Place(STATE, -(-start // line) * line, shape, kind)
        start, was_flushed = places[name].end, _is_flushed(name)
    return places


def flushed_bytes(places: Mapping[str, Place]) -> int:
    """Return the bytes of the state's pages that are flushed."""
    return min(place.start for name, place in places.items() if name.startswith("undo."))


def sizes_of(places: Mapping[str, Place]) -> dict[str, int]:
    """Return the bytes of each file."""
    sizes = dict.fromkeys(FILES, PAGE + flushed_bytes(places))
    for place in places.values():
        sizes[place.file] = max(sizes.get(place.file, 0), place.end)
    return sizes
