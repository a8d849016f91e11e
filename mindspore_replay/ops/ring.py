"""The ring of rows: write, read by logical position, gather by slot. Each costs O(rows touched) at any capacity.

Columns are Parameters ``[C, *F]``. Rows are Tensors ``[*F]`` (one row) or ``[n, *F]``. Axes: ``C`` capacity, ``*F`` a
column's shape.
"""

from collections.abc import Sequence

import mindspore as ms
from mindspore import Tensor, ops

from ..columns import Columns, numpy_type
from ..store.kernels.library import FAILURES, OUT_OF_RANGE
from .checks import blank, check
from .in_place import InPlace
from .primitives import gather, int64, range_of, zeros_like


def newest(batch, n):
    """Return a copy of the last n rows of a batch, which may be a column of the buffer itself."""
    return batch[batch.shape[0] - n :]


def newest_of_each(values, n):
    """Return the values of the newest n rows, ``[n]``, of values that are one for all rows or one for each."""
    values = ops.reshape(values, (-1,))
    return newest(values, n) if values.shape[0] > 1 else ops.broadcast_to(values, (n,))


@ms.jit_class
class RingWrite:
    """``(columns, head, count, serials, rows)``: appends rows. Changes columns, head, count and serials."""

    def __init__(self, capacity: int, shapes: Sequence[tuple[int, ...]]) -> None:
        self.capacity = capacity
        self.inserted = Tensor([1, 0], ms.int64)
        self.rank = len(shapes[0])

    def rows_of(self, rows):
        """Return the number of rows."""
        return 1 if ops.rank(rows[0]) == self.rank else rows[0].shape[0]

    def slots(self, head, count, n):
        """Return the slots of the newest of n rows, at most `capacity` of them."""
        written = n if n < self.capacity else self.capacity
        end = ops.cast(head, ms.int64) + ops.cast(count, ms.int64) + n
        return ops.floor_mod(end - written + range_of(written), int64(self.capacity))

    def write(self, columns, slots, rows):
        """Write the newest rows to these slots."""
        places = ops.cast(slots, ms.int32)
        single = ops.rank(rows[0]) == self.rank
        for i in range(len(columns)):
            batch = ops.expand_dims(rows[i], 0) if single else newest(rows[i], slots.shape[0])
            ops.scatter_update(columns[i], places, ops.cast(batch, columns[i].dtype))

    def move(self, head, count, serials, n):
        """Advance the cursors by n rows."""
        total = ops.cast(count, ms.int64) + n
        kept = ops.minimum(total, int64(self.capacity))
        ops.assign(
            head, ops.cast(ops.floor_mod(ops.cast(head, ms.int64) + total - kept, int64(self.capacity)), ms.int32)
        )
        ops.assign(count, ops.cast(kept, ms.int32))
        ops.assign(serials, serials + self.inserted * n)
        return kept

    def __call__(self, columns, head, count, serials, rows):
        """Append rows."""
        n = self.rows_of(rows)
        self.write(columns, self.slots(head, count, n), rows)
        return self.move(head, count, serials, n)


@ms.jit_class
class Gather:
    """``(columns, slots) -> rows`` of the columns' own types. `slots` is int64, ``[n]`` or ``[]``."""

    def __init__(self, columns: Columns) -> None:
        self.types = columns.types
        stored = [numpy_type(dtype) for dtype in columns.stored_types]
        self.views = tuple(InPlace(shape, dtype) for shape, dtype in zip(columns.shapes, stored))

    def __call__(self, columns, slots):
        """Return copies of the rows in these slots."""
        rows = ()
        for i in range(len(columns)):
            rows = (*rows, ops.cast(gather(self.views[i](columns[i]), slots, 0), self.types[i]))
        self.views[0].done(columns[0], rows)
        return rows


@ms.jit_class
class RingRead:
    """``(columns, head, count, index) -> rows``. `index` is int64, ``[n]`` or ``[]``: 0 the oldest, -1 the newest."""

    def __init__(self, capacity: int, columns: Columns) -> None:
        self.capacity = capacity
        self.gather = Gather(columns)
        self.check, self.blank = check("read", FAILURES[OUT_OF_RANGE]), blank()

    def __call__(self, columns, head, count, index):
        """Return the rows at logical positions. Fail the graph if one has no row."""
        stored = ops.cast(count, ms.int64)
        inside = ops.logical_and(index >= -stored, index < stored)
        ok = ops.all(inside)
        self.check(ok, (index, stored))
        row = ops.select(index < int64(0), index + stored, index)
        row = ops.select(inside, row, zeros_like(row))
        rows = self.gather(columns, ops.floor_mod(row + ops.cast(head, ms.int64), int64(self.capacity)))
        return rows if self.blank is None else self.blank(rows, ok)


@ms.jit_class
class SingleRow:
    """``(rows) -> row``: converts a kernel's output for an index ``[]``, with scalars of shape ``[]``."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self.shapes = shapes

    def __call__(self, rows):
        """Return the row, with scalars of shape ``[]``."""
        single = ()
        for i in range(len(self.shapes)):
            single = (*single, rows[i] if len(self.shapes[i]) > 0 else self.scalar(rows[i]))
        return single

    def scalar(self, row):
        """Return the element of a Tensor ``[1]``. MindSpore has no Reshape for bfloat16 on the CPU."""
        if row.dtype == ms.bfloat16:
            return ops.cast(ops.reshape(ops.cast(row, ms.float32), ()), ms.bfloat16)
        return ops.reshape(row, ())
