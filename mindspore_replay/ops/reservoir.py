"""Algorithm R: each row of a stream so far is equally likely to be among the C rows that are stored.

The first C rows fill the slots. After them row t of the stream, counted from 0, draws a place in ``[0, t]``; if that is
a slot it replaces the row there. The place depends only on the key of the random state and the row's serial number, so
a row is found by its serial number. Each operator costs O(1) a row, and O(log C) with weights. Axes: ``C`` capacity,
``*F`` a column's shape.

Reference:
    Vitter 1985, "Random sampling with a reservoir", https://doi.org/10.1145/3147.3165
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from .in_place import InPlace
from .primitives import gather, item, range_of, stack, zeros_like
from .random import BitsAt, MixBits, UnitInterval
from .ring import Gather
from .rows import Handles
from .state import State
from .sum_tree import CompositeTree, LastOfEach
from .versions import Versions


@ms.jit_class
class ReservoirSlots:
    """``(serials, state, serial [n]) -> slots [n] int32, kept [n] bool`` of rows with these serial numbers.

    `serials` are the Parameter ``[rows ever inserted, serial number of the stream's first row]``.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = Tensor(capacity, ms.int64)
        self.one = Tensor(1, ms.int64)
        self.mix = MixBits()
        self.bits = BitsAt()
        self.unit = UnitInterval()

    def __call__(self, serials, state, serial):
        """Return the slots drawn for these rows, and whether they are stored at all."""
        earlier = serial - item(serials, 1)
        unit = self.unit(self.bits(self.mix(item(state, 0)), serial))  # samples use the key's own sequence
        place = ops.cast(ops.ceil(unit * ops.cast(earlier + self.one, ms.float64)), ms.int64) - self.one
        slots = ops.select(earlier < self.capacity, earlier, place)
        kept = slots < self.capacity
        return ops.cast(ops.select(kept, slots, zeros_like(slots)), ms.int32), kept


@ms.jit_class
class ReservoirHandles:
    """Converts between slots of a reservoir and handles, which are serial numbers of rows, int64."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.find = ReservoirSlots(state.capacity)
        self.view = InPlace((), np.int64)

    def of(self, slots):
        """Return the handles of the rows in slots, ``[n]``."""
        handles = gather(self.view(self.state.row_serials), slots, 0)
        self.view.done(self.state.row_serials, handles)
        return handles

    def slots(self, handles):
        """Return slots, all in ``[0, C)``, and whether they hold the rows of these handles."""
        serials = self.state.serials
        known = ops.logical_and(handles >= item(serials, 1), handles < item(serials, 0))
        asked = ops.select(known, handles, zeros_like(handles) + item(serials, 1))
        slots, kept = self.find(serials, self.state.random_state, asked)
        matches = gather(self.view(self.state.row_serials), slots, 0) == handles
        stored = ops.logical_and(ops.logical_and(known, kept), matches)
        self.view.done(self.state.row_serials, stored)
        return slots, stored


def handles_of(state: State) -> Handles | ReservoirHandles:
    """Return the part of an operator that finds rows by handle."""
    return Handles(state) if state.row_serials is None else ReservoirHandles(state)


@ms.jit_class
class CompositeReservoirInsert:
    """``(rows, priority, ends, version) -> rows stored``: inserts rows. Changes the state, apart from the random state.

    `priority` and `ends` are not used; a row has priority and weight 1. `version` is int64, ``[]`` or ``[n]``, or
    ``None`` for the clock.
    """

    def __init__(self, state: State, columns: Columns) -> None:
        self.state = state
        self.weighted = state.weights is not None
        self.capacity = Tensor(state.capacity, ms.int64)
        self.slots = ReservoirSlots(state.capacity)
        self.last_of_each = LastOfEach()
        self.versions = Versions(state) if self.weighted else None
        self.rows_at = Gather(columns)
        self.shapes = columns.shapes
        self.inserted = Tensor([1, 0], ms.int64)
        self.tree = CompositeTree(state.capacity)
        self.one = Tensor(1.0, ms.float64)
        self.first_weight = Tensor(0.0 if state.has_late else 1.0, ms.float64)
        self.first_priority = Tensor(1.0, ms.float32)
        self.priorities, self.uses, self.numbers = InPlace((), np.float32), InPlace((), np.int32), InPlace((), np.int64)

    def __call__(self, rows, priority, ends, version):
        """Insert rows, and return the number of rows stored."""
        serials, columns = self.state.serials, self.state.columns
        n = 1 if ops.rank(rows[0]) == len(self.shapes[0]) else rows[0].shape[0]
        serial = item(serials, 0) + range_of(n)
        slots, kept = self.slots(serials, self.state.random_state, serial)
        written, ok = ops.cast(n, ms.int64), None
        if version is not None:
            ok = self.versions.accepts(version)
            kept, written = ops.logical_and(kept, ok), written * ops.cast(ok, ms.int64)
        # Of several rows for one slot the last is kept. Rows that are not kept write slot 0, its old or new contents.
        last, exists, counted = self.last_of_each(slots, kept)
        old = self.rows_at(columns, slots)
        for i in range(len(columns)):
            stored = columns[i].dtype
            new = gather(ops.reshape(ops.cast(rows[i], stored), (n, *self.shapes[i])), last, 0)
            replaced = ops.reshape(exists, (n, *(1 for _ in self.shapes[i])))
            ops.scatter_update(columns[i], slots, ops.select(replaced, new, ops.cast(old[i], stored)))
        self.replace(self.numbers, self.state.row_serials, slots, exists, gather(serial, last, 0))
        count = ops.minimum(item(serials, 0) - item(serials, 1) + written, self.capacity)
        ops.assign(serials, serials + self.inserted * written)
        ops.assign(self.state.count, ops.cast(count, ms.int32))
        if self.weighted:
            clocks = item(self.state.clock, 0)
            if version is not None:
                clocks = gather(ops.broadcast_to(ops.reshape(version, (-1,)), (n,)), last, 0)
                clock = self.state.clock
                ops.assign(clock, stack((item(clock, 0), item(clock, 1), self.versions.unordered(version, n, ok))))
            self.set_state(slots, exists, counted, clocks)
        return count

    def set_state(self, slots, exists, counted, clocks):
        """Mark the rows in these slots as new, with priority and weight 1."""
        tree = self.tree.view(self.state.weights)
        weight = ops.select(exists, self.first_weight, gather(tree, slots, 0))
        self.tree.write(self.state.weights, tree, slots, weight, counted, slots)
        self.replace(self.priorities, self.state.priorities, slots, exists, self.first_priority)
        self.replace(self.uses, self.state.use_counts, slots, exists, self.state.new_uses)
        self.replace(self.numbers, self.state.insertion_clocks, slots, exists, clocks)

    def replace(self, view, parameter, slots, exists, new):
        """Write new values to the slots that get one."""
        old = gather(view(parameter), slots, 0)
        ops.scatter_update(parameter, slots, ops.select(exists, new, old))
