"""Positions of a buffer's arrays in the files of its folder."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..kernels import state
from ..spec.spec import BufferSpec
from . import sharing

#: The file of the arrays of the state, and that of the columns: one, since a flush waits for the disk once a file.
STATE, COLUMNS = "state", "columns"
#: The files of `flushed.py`, which begin with a page for the record.
FILES = ("flushed.0", "flushed.1")
PAGE = 4096
#: Arrays of the state that change where a row is inserted or updated, and nowhere else.
OF_INSERTION = ("checksums", "insertion_clocks", "row_serials")
_LINE, _LONGEST_LOG = 64, 1 << 22


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

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def _is_flushed(name: str) -> bool:
    """Return True if an array of the state is flushed: it does not follow from the others."""
    return name != "weights" and not name.startswith("undo.")


def places_of(spec: BufferSpec) -> dict[str, Place]:
    """Return the place of each array. In the state those that are flushed come first, up to the end of a page."""
    places, schema, options = {}, spec.columns, spec.options
    layout = sharing.layout(schema, options.capacity) | state.whole_layout(schema, options)
    ends, was_flushed = {STATE: 0, COLUMNS: 0}, True
    for name, (shape, dtype) in sorted(
        layout.items(), key=lambda item: (not _is_flushed(item[0]), item[0] in OF_INSERTION)
    ):
        file = COLUMNS if name.startswith(state.OF_ROWS) else STATE
        begins_page = file == COLUMNS or (was_flushed and not _is_flushed(name))
        line, was_flushed = PAGE if begins_page else _LINE, _is_flushed(name)
        places[name] = Place(file, -(-ends[file] // line) * line, shape, schema.numpy_type(dtype))
        ends[file] = places[name].end
    return places


def flushed_bytes(places: Mapping[str, Place]) -> int:
    """Return the bytes of the state's pages that are flushed."""
    return min(place.start for name, place in places.items() if name.startswith("undo."))


def sizes_of(places: Mapping[str, Place]) -> dict[str, int]:
    """Return the bytes of each file. A log longer than all that it is about would be of no use."""
    sizes = dict.fromkeys((STATE, COLUMNS), 0)
    for place in places.values():
        sizes[place.file] = max(sizes[place.file], place.end)
    log = min(-(-sum(sizes.values()) // PAGE) * PAGE, _LONGEST_LOG)
    return dict.fromkeys(FILES, PAGE + flushed_bytes(places) + log) | sizes
