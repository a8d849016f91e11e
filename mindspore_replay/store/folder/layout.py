"""Positions of a buffer's arrays in the files of its folder."""

import functools
import math
import re
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
_names_of_undo = functools.partial(filter, re.compile(r"undo\.").match)


class Place(NamedTuple):
    """Place of an array in a file."""

    file: str
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.nbytes // self.shape[0]


def places_of(spec: BufferSpec) -> dict[str, Place]:
    """Return the place of each array. In the state those that are flushed come first, up to the end of a page.

    Behind them are the undo row, and the tree of weights, which follows from its leaves.
    """
    schema, options = spec.columns, spec.options
    layout = sharing.layout(schema, options.capacity) | state.whole_layout(schema, options)
    last = {"weights", *_names_of_undo(layout)}
    of_rows = {name for name in layout if name.startswith(state.OF_ROWS)}
    places, ends, was_last = dict[str, Place](), {STATE: 0, COLUMNS: 0}, False
    for name in sorted(layout, key=lambda name: (name in last, name in OF_INSERTION)):
        shape, dtype = layout[name][0], schema.numpy_type(layout[name][1])
        file, is_last = COLUMNS if name in of_rows else STATE, name in last
        line, was_last = PAGE if file == COLUMNS or is_last > was_last else _LINE, is_last
        places[name] = Place(file, -(-ends[file] // line) * line, shape, dtype, math.prod(shape) * dtype.itemsize)
        ends[file] = places[name].start + places[name].nbytes
    return places


def flushed_bytes(places: Mapping[str, Place]) -> int:
    """Return the bytes of the state's pages that are flushed: up to the first array of the undo row."""
    return places[next(_names_of_undo(places))].start


def sizes_of(places: Mapping[str, Place]) -> dict[str, int]:
    """Return the bytes of each file. A log longer than all that it is about would be of no use."""
    sizes = {place.file: place.start + place.nbytes for place in places.values()}  # of the last array in each
    log = min(-(-sum(sizes.values()) // PAGE) * PAGE, _LONGEST_LOG)
    return dict.fromkeys(FILES, PAGE + flushed_bytes(places) + log) | sizes
