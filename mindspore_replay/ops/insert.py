"""Appends rows to a ring. It costs O(1) a row, O(log C) with weights, and O(window) with windows.

Axes: ``C`` capacity.
"""

import mindspore as ms
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.kernels.library import BAD_WEIGHT, FAILURES, FULL
from ..store.kernels.tree import FANOUT
from ..store.spec.options import Options
from .access import Access
from .checks import check
from .primitives import concat, gather, item, normal, stack
from .ring import RingWrite, newest, newest_of_each
from .room import Room
from .rows import Rows
from .staleness import RemoveStale
from .starts import Windows
from .versions import Versions


@ms.jit_class
class CompositeInsert:
    """``(rows, priority, ends, version) -> rows stored``: appends rows and their state.

    `rows` is a tuple of Tensors, ``[*F]`` or ``[n, *F]``. `priority`, float32, the flags `ends`, uint8, and `version`,
    int64, are one for all rows or one for each, shape ``[]`` or ``[n]``. `ends` is ``None`` in a buffer without
    windows. With `version` ``None``, rows get the time of the clock. The operators after a failed check still run. They
    then write the old contents again.
    """

    def __init__(self, state: Access, columns: Columns, options: Options, rows: Rows | Windows) -> None:
        self.state, self.ring, self.rows = state, RingWrite(state.capacity, columns.shapes), rows
        self.room = Room(state, options.rule) if options.never_evicts_valid else None
        self.shapes = columns.shapes
        self.ends = Tensor([0, state.capacity - 1], state.index)
        self.check_priority, self.check_room = check("insert", FAILURES[BAD_WEIGHT]), check("insert", FAILURES[FULL])
        self.versions = Versions(state)
        limit = options.max_staleness
        self.remove_stale = None if limit is None else RemoveStale(state, rows, limit)

    def __call__(self, rows, priority, ends, version):
        """Append rows and their state, and return the number of rows stored."""
        n = self.ring.rows_of(rows)
        slots = ops.cast(self.ring.slots(self.state.head, self.state.count, n), self.state.index)
        ok, steps = self.rows.before_insertion(rows, slots, n, ends, self.accepts(priority, version, n))
        priorities = newest_of_each(normal(priority), slots.shape[0])
        tree = self.state.tree.view()
        weight = ops.select(ok, self.rows.first_weights(priorities), gather(tree, slots, 0))
        self.ring.write(self.state.columns, slots, self.new_or_old(ok, slots, n, rows))
        self.state.tree.write(tree, slots, weight, slots >= 0, self.touched(slots))
        self.set_state(slots, priorities, version, ok)
        largest = ops.maximum(self.state.max_priority, ops.reduce_max(priority))
        ops.assign(self.state.max_priority, ops.select(ok, largest, self.state.max_priority))
        written = n * ops.cast(ok, ms.int64)
        kept = self.ring.move(self.state.head, self.state.count, self.state.serials, written)
        clock = self.state.clock
        oldest, unordered = item(self.state.serials, 0) - kept, item(clock, 2)
        if version is not None:
            unordered = self.versions.unordered(version, n, ok)
        ops.assign(clock, stack((item(clock, 0), ops.maximum(item(clock, 1), oldest), unordered)))
        self.rows.after_insertion(steps)
        if version is not None and self.remove_stale is not None:
            ops.assign(clock, self.remove_stale(clock))
        return kept

    def accepts(self, priority, version, n):
        """Return True for valid priorities and versions, and room for n rows. Fail the graph otherwise."""
        ok = ops.all(ops.logical_and(ops.isfinite(priority), priority >= 0))
        self.check_priority(ok, (priority,))
        if version is not None:
            ok = ops.logical_and(ok, self.versions.accepts(version))
        if self.room is not None:
            room = self.room()
            self.check_room(room >= n, (room,))
            ok = ops.logical_and(ok, room >= n)
        return ok

    def set_state(self, slots, priorities, version, ok):
        """Write priorities, use counts and insertion clocks."""
        self.state.priorities.replace(slots, ok, priorities)
        self.state.use_counts.replace(slots, ok, self.rows.first_uses(slots))
        clocks = item(self.state.clock, 0) if version is None else newest_of_each(version, slots.shape[0])
        self.state.insertion_clocks.replace(slots, ok, clocks)

    def touched(self, slots):
        """Return slots that have the same nodes above them as these: every 16th, the last, and the ring's ends."""
        if slots.shape[0] <= FANOUT:
            return slots
        return concat((slots[::FANOUT], slots[-1:], self.ends))

    def new_or_old(self, ok, slots, n, rows):
        """Return the newest rows of a batch, or the contents of their slots if not `ok`."""
        old = self.state.rows_at(slots)
        batches = ()
        for i in range(len(self.shapes)):
            batch = newest(ops.reshape(rows[i], (n, *self.shapes[i])), slots.shape[0])
            batches = (*batches, ops.select(ok, batch, old[i]))
        return batches
