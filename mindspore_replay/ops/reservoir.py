"""Algorithm R: each row of a stream so far is equally likely to be among the C rows that are stored.

The first C rows fill the slots. After them row t of the stream, counted from 0, draws a place in ``[0, t]``. If that is
a slot it replaces the row there. The place depends only on the key of the random state and the row's serial number, so
a row is found by its serial number. Each operator costs O(1) a row, and O(log C) with weights. Axes: ``C`` capacity,
``*F`` a column's shape.

Reference:
    Vitter 1985, "Random sampling with a reservoir", https://doi.org/10.1145/3147.3165
"""

import mindspore as ms
from mindspore import Tensor, ops

from ..columns import Columns
from .access import Access
from .primitives import gather, int64, item, range_of, stack
from .ring import newest_of_each
from .sum_tree import last_of_each
from .versions import Versions


@ms.jit_class
class CompositeReservoirInsert:
    """``(rows, priority, ends, version) -> rows stored``: inserts rows. Changes the state, apart from the random state.

    `priority` and `ends` are not used. A row has priority and weight 1. `version` is int64, ``[]`` or ``[n]``, or
    ``None`` for the clock.
    """

    def __init__(self, state: Access, columns: Columns) -> None:
        self.state = state
        self.weighted = state.weights is not None
        self.versions = Versions(state) if self.weighted else None
        self.shapes, self.ones = columns.shapes, tuple((1,) * len(shape) for shape in columns.shapes)
        self.inserted = Tensor([1, 0], ms.int64)
        self.first_weight = Tensor(0.0 if state.has_late else 1.0, ms.float64)
        self.first_priority = Tensor(1.0, ms.float32)

    def __call__(self, rows, priority, ends, version):
        """Insert rows, and return the number of rows stored."""
        serials, columns = self.state.serials, self.state.columns
        n = 1 if ops.rank(rows[0]) == len(self.shapes[0]) else rows[0].shape[0]
        serial = item(serials, 0) + range_of(n)
        slots, kept = self.state.places(serial)
        written, ok = ops.cast(n, ms.int64), None
        if version is not None:
            ok = self.versions.accepts(version)
            kept, written = ops.logical_and(kept, ok), written * ops.cast(ok, ms.int64)
        # Of several rows for one slot the last is kept. Rows that are not kept write slot 0, its old or new contents.
        last, exists, counted = last_of_each(slots, kept)
        for i in range(len(columns)):
            new = gather(ops.reshape(ops.cast(rows[i], columns[i].dtype), (n, *self.shapes[i])), last, 0)
            self.state.contents[i].replace(slots, ops.reshape(exists, (n, *self.ones[i])), new)
        self.state.row_serials.replace(slots, exists, gather(serial, last, 0))
        count = ops.minimum(item(serials, 0) - item(serials, 1) + written, int64(self.state.capacity))
        ops.assign(serials, serials + self.inserted * written)
        ops.assign(self.state.count, ops.cast(count, ms.int32))
        if self.weighted:
            clocks = item(self.state.clock, 0)
            if version is not None:
                clocks = gather(newest_of_each(version, n), last, 0)
                clock = self.state.clock
                ops.assign(clock, stack((item(clock, 0), item(clock, 1), self.versions.unordered(version, n, ok))))
            self.state.tree.put(slots, exists, self.first_weight, counted)
            self.state.priorities.replace(slots, exists, self.first_priority)
            self.state.use_counts.replace(slots, exists, self.state.new_uses)
            self.state.insertion_clocks.replace(slots, exists, clocks)
        return count
