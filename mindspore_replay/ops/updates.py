"""Operators that change stored rows: reweight, write, delete, age, look up, reset. Each operator costs O(log C) a row.

Axes: ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.base.checks import LAST_CLOCK
from ..store.base.late import MOST_LATE, PENDING
from ..store.kernels.library import BAD_WEIGHT, FAILURES
from ..store.kernels.state import UPDATE_BLOCK
from ..store.kernels.tree import initial_weights
from ..store.spec.episodes import END, WindowRule
from .access import DELETED_ROWS, INVALID, Access
from .checks import check, stops_graphs
from .primitives import gather, int64, item, normal, stack, zeros_like
from .rows import Rows
from .staleness import RemoveStale
from .starts import UpdateEnds, Windows
from .sum_tree import last_of_each


@ms.jit_class
class CompositeUpdatePriorities:
    """``(handles [n], priority) -> invalid handles``, int32 ``[]``. Sets the priorities and weights of rows.

    A row that cannot be drawn yet gets its weight later. `priority` is float32, one for all handles or one for each,
    shape ``[]`` or ``[n]``.
    """

    def __init__(self, state: Access, rows: Rows | Windows) -> None:
        self.state, self.rows = state, rows
        self.check, self.goes_on = check("update_priorities", FAILURES[BAD_WEIGHT]), not stops_graphs()

    def __call__(self, handles, priority):
        """Set priorities, and return the number of invalid handles."""
        ok = ops.all(ops.logical_and(ops.isfinite(priority), priority >= 0))
        self.check(ok, (priority,))
        slots, stored = self.state.slots(handles)
        kept = ops.logical_and(stored, self.state.kept(self.state.use_counts.at(slots)))
        written = ops.logical_and(kept, ok)
        priorities = ops.broadcast_to(normal(priority), slots.shape)
        weights = self.state.weight_of(priorities)
        weights = ops.select(self.rows.live(handles, slots, stored), weights, zeros_like(weights))
        last, exists, counted = last_of_each(slots, written)
        self.state.priorities.replace(slots, exists, gather(priorities, last, 0))
        self.state.tree.put(slots, exists, gather(weights, last, 0), counted)
        largest = ops.reduce_max(ops.select(written, priorities, zeros_like(priorities)))
        ops.assign(self.state.max_priority, ops.maximum(self.state.max_priority, largest))
        invalid = ops.logical_not(kept)
        self.state.count_events(((INVALID, self.state.named(handles, ops.logical_and(invalid, ok))),))
        if self.goes_on:
            invalid = ops.logical_and(invalid, ok)
        return ops.reduce_sum(ops.cast(invalid, ms.int32))


@ms.jit_class
class LargestHeld:
    """``() -> priority``, float32 ``[]``: the largest of the rows stored, the initial one if there are none. O(C)."""

    def __init__(self, state: Access) -> None:
        self.state, self.slots = state, Tensor(np.arange(state.capacity, dtype=np.int32))
        self.none = Tensor(-1, ms.float32)

    def __call__(self):
        """Return the priority."""
        head, end = self.state.head, self.state.head + self.state.count
        up_to_end = ops.logical_and(self.slots >= head, self.slots < end)
        stored = ops.logical_or(up_to_end, self.slots < end - self.state.capacity)
        held = ops.logical_and(stored, self.state.kept(self.state.use_counts.view()))
        priorities = self.state.priorities.view()
        largest = ops.reduce_max(ops.select(held, priorities, ops.broadcast_to(self.none, priorities.shape)))
        return ops.select(largest < 0, self.state.initial_priority, largest)


@ms.jit_class
class CompositeUpdate:
    """``(handles [n], rows [n, *F]) -> invalid handles``, int32 ``[]``: overwrites rows of one column.

    Of several rows for one handle the last is kept.
    """

    def __init__(
        self,
        state: Access,
        rows: Rows | Windows,
        columns: Columns,
        column: int,
        rule: WindowRule | None,
        late_bit: int,
        counts: bool,
    ) -> None:
        self.state, self.column = state, state.contents[column]
        self.rows = None if state.weights is None else rows
        self.not_written, self.pending = Tensor((1 << MOST_LATE) - 1 - late_bit, ms.int32), Tensor(PENDING, ms.int32)
        self.late, self.counts = late_bit > 0, counts and state.counts is not None
        self.update_ends = UpdateEnds(state, rule) if rule is not None and rule.terminated == column else None
        self.ones = (1,) * len(columns.shapes[column])
        self.block, self.first = Tensor(UPDATE_BLOCK, ms.int32), Tensor([0], ms.int32)

    def __call__(self, handles, rows):
        """Write rows, and return the number of invalid handles."""
        slots, live = self.state.slots(handles)
        if self.rows is not None:
            live = self.rows.stored(slots, live)
        last, exists, _ = last_of_each(slots, live)
        new = gather(ops.cast(rows, self.column.parameter.dtype), last, 0)
        self.column.replace(slots, ops.reshape(exists, (-1, *self.ones)), new)
        if self.update_ends is not None:
            self.update_ends(slots, exists, ops.reshape(new, (-1,)) != 0)
        self.note(slots, live)
        if self.late:
            self.arrive(handles, slots, exists)
        if self.counts:
            self.state.count_events(((INVALID, self.state.named(handles, ops.logical_not(live))),))
        return ops.reduce_sum(ops.cast(ops.logical_not(live), ms.int32))

    def note(self, slots, written):
        """Count the update, and note it for the blocks of the rows that were written."""
        number = self.state.updates.at(self.first) + 1
        blocks = ops.floor_div(ops.cast(slots, ms.int32), self.block) + 1
        blocks = ops.select(written, blocks, zeros_like(blocks))
        ops.scatter_update(self.state.updates.parameter, blocks, ops.broadcast_to(number, blocks.shape))
        ops.scatter_update(self.state.updates.parameter, self.first, number)

    def arrive(self, handles, slots, written):
        """Note that the late column was written, and make the rows eligible that miss no other."""
        uses = self.state.use_counts.at(slots)
        missing = ops.bitwise_and(uses, self.not_written)
        waited = ops.logical_and(written, self.state.pending(uses))
        self.state.use_counts.replace(slots, waited, self.pending + missing)
        self.rows.release(handles, slots, ops.logical_and(waited, missing == 0))


@ms.jit_class
class CompositeDelete:
    """``(handles [n]) -> rows removed``, int32 ``[]``. Changes the state of rows."""

    def __init__(self, state: Access, rows: Rows | Windows) -> None:
        self.state, self.rows = state, rows

    def __call__(self, handles):
        """Remove rows, and return their number."""
        slots, stored = self.state.slots(handles)
        deleted, found = self.rows.remove(handles, slots, stored)
        unknown = self.state.named(handles, ops.logical_not(found))
        self.state.count_events(((DELETED_ROWS, deleted), (INVALID, unknown)))
        return deleted


@ms.jit_class
class CompositeAdvance:
    """``(steps int64 []) -> now``: advances the clock and removes rows that became stale. Changes the state of rows."""

    def __init__(self, state: Access, rows: Rows | Windows, max_staleness: int | None) -> None:
        self.state = state
        self.remove_stale = None if max_staleness is None else RemoveStale(state, rows, max_staleness)
        self.check = check("advance", "the clock would go back, or pass 2^62")

    def __call__(self, steps):
        """Advance the clock, remove stale rows, and return the new time."""
        clock = self.state.clock
        now = item(clock, 0) + steps
        ok = ops.logical_and(steps >= int64(0), steps <= int64(LAST_CLOCK) - item(clock, 0))
        self.check(ok, (steps, item(clock, 0)))
        now = ops.select(ok, now, item(clock, 0))
        advanced = stack((now, item(clock, 1), item(clock, 2)))
        if self.remove_stale is not None:
            advanced = self.remove_stale(advanced)
        ops.assign(clock, advanced)
        return now


@ms.jit_class
class CompositeInfo:
    """``(handles [n]) -> priority float32, use count int32, staleness int64``, each ``[n]``."""

    def __init__(self, state: Access) -> None:
        self.state = state

    def __call__(self, handles):
        """Return priorities, use counts and stalenesses, with 0, -1 and -1 for rows no longer stored."""
        slots, stored = self.state.slots(handles)
        priority = self.state.priorities.at(slots)
        uses = self.state.deliveries(self.state.use_counts.at(slots))
        age = item(self.state.clock, 0) - self.state.insertion_clocks.at(slots)
        self.state.priorities.done((priority, uses, age))
        return (
            ops.select(stored, priority, zeros_like(priority)),
            ops.select(stored, uses, zeros_like(uses) - 1),
            ops.select(stored, age, zeros_like(age) - 1),
        )


@ms.jit_class
class CompositeReset:
    """``() -> 0``: removes all rows. Serial numbers and counters continue. Costs O(1), and O(C) with weights."""

    def __init__(self, state: Access) -> None:
        self.state = state
        self.weighted = state.weights is not None
        arrays = state.priorities, state.use_counts, state.insertion_clocks, state.steps, state.flags
        self.zeroed = tuple(array.parameter for array in arrays if array is not None)
        self.empty = Tensor(initial_weights(state.capacity)) if self.weighted else None
        self.zero = Tensor(0, ms.int32)

    def __call__(self):
        """Remove all rows."""
        serials = self.state.serials
        if self.weighted:
            ops.assign(self.state.weights, self.empty)
            for i in range(len(self.zeroed)):
                ops.assign(self.zeroed[i], zeros_like(self.zeroed[i]))
            ops.assign(self.state.max_priority, self.state.initial_priority)
            none = item(serials, 0) - item(serials, 0)
            ops.assign(self.state.clock, stack((none, item(serials, 0), none)))
        ops.assign(serials, stack((item(serials, 0), item(serials, 0))))
        ops.assign(self.state.head, self.zero)
        ops.assign(self.state.count, self.zero)
        return self.zero + 0


@ms.jit_class
class CompositeEndEpisodes:
    """``() -> episodes``, int32 ``[]``: ends the open episodes. Changes the state of rows.

    Args:
        flags (int): Flags to set on their last rows.
    """

    def __init__(self, state: Access, rows: Rows | Windows, flags: int) -> None:
        self.state, self.rows = state, rows
        self.last_flags = Tensor(flags, ms.uint8)

    def __call__(self):
        """End the open episodes, and return their number."""
        slots, stored = self.state.slots(self.state.next() + self.rows.newest)
        flags = self.state.flags.at(slots)
        ended = ops.logical_and(stored, ops.bitwise_and(ops.cast(flags, ms.int32), END) == 0)
        steps = self.state.steps.at(slots)
        self.state.flags.replace(slots, ended, ops.bitwise_or(flags, self.last_flags))
        self.rows.complete(steps)
        return ops.reduce_sum(ops.cast(ended, ms.int32))
