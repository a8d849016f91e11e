"""Operators that change stored rows: reweight, write, delete, age, look up, reset. Each operator costs O(log C) a row.

Axes: ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns, numpy_type
from ..store.episodes import END, WindowRule
from ..store.late import MOST_LATE, PENDING
from ..store.library import BAD_WEIGHT, FAILURES
from ..store.state import LAST_CLOCK, UPDATE_BLOCK
from ..store.tree import initial_weights
from .checks import check, stops_graphs
from .in_place import InPlace
from .primitives import gather, item, normal, stack, zeros_like
from .reservoir import handles_of
from .rows import Count, Handles, Named, Uses, WeightOf
from .staleness import RemoveStale
from .starts import Complete, UpdateEnds, eligibility
from .state import State
from .sum_tree import CompositeTree, LastOfEach


@ms.jit_class
class CompositeUpdatePriorities:
    """``(handles [n], priority) -> invalid handles``, int32 ``[]``. Sets the priorities and weights of rows.

    `priority` is float32, one for all handles or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, state: State, factors: Tensor, rule: WindowRule | None) -> None:
        self.state = state
        self.rows = eligibility(state, factors, rule)
        self.weight_of = WeightOf(factors)
        self.tree = CompositeTree(state.capacity)
        self.handles = handles_of(state)
        self.last_of_each = LastOfEach()
        self.view = InPlace((), np.float32)
        self.check, self.goes_on = check("update_priorities", FAILURES[BAD_WEIGHT]), not stops_graphs()
        self.count = Count(state)
        self.named = Named()

    def __call__(self, handles, priority):
        """Set priorities, and return the number of invalid handles."""
        ok = ops.all(ops.logical_and(ops.isfinite(priority), priority >= 0))
        self.check(ok, (priority,))
        slots, stored = self.handles.slots(handles)
        live = self.rows.live(handles, slots, stored)
        written = ops.logical_and(live, ok)
        priorities = ops.broadcast_to(normal(priority), slots.shape)
        last, exists, counted = self.last_of_each(slots, written)
        new = gather(priorities, last, 0)
        tree = self.tree.view(self.state.weights)
        weight = ops.select(exists, self.weight_of(new), gather(tree, slots, 0))
        old = gather(self.view(self.state.priorities), slots, 0)
        ops.scatter_update(self.state.priorities, slots, ops.select(exists, new, old))
        self.tree.write(self.state.weights, tree, slots, weight, counted, slots)
        largest = ops.reduce_max(ops.select(written, priorities, zeros_like(priorities)))
        ops.assign(self.state.max_priority, ops.maximum(self.state.max_priority, largest))
        invalid = ops.logical_not(live)
        self.count(invalid=self.named(handles, ops.logical_and(invalid, ok)))
        if self.goes_on:
            invalid = ops.logical_and(invalid, ok)
        return ops.reduce_sum(ops.cast(invalid, ms.int32))


@ms.jit_class
class CompositeUpdate:
    """``(handles [n], rows [n, *F]) -> invalid handles``, int32 ``[]``: overwrites rows of one column.

    Of several rows for one handle the last is kept.
    """

    def __init__(
        self, state: State, columns: Columns, column: int, rule: WindowRule | None, late_bit: int, counts: bool
    ) -> None:
        self.state, self.column = state, state.columns[column]
        self.rows_state = None if state.weights is None else eligibility(state, state.row_rule, rule)
        self.not_written, self.pending = Tensor((1 << MOST_LATE) - 1 - late_bit, ms.int32), Tensor(PENDING, ms.int32)
        self.late, self.use_counts = late_bit > 0, Uses(state)
        self.counts = counts and state.counts is not None
        if self.counts:
            self.count, self.named = Count(state), Named()
        self.update_ends = None
        if rule is not None and rule.terminated == column:
            self.update_ends = UpdateEnds(state, state.row_rule, rule)
        self.handles = handles_of(state)
        self.last_of_each = LastOfEach()
        self.ones = (1,) * len(columns.shapes[column])
        self.block, self.first = Tensor(UPDATE_BLOCK, ms.int32), Tensor([0], ms.int32)
        self.rows = InPlace(columns.shapes[column], numpy_type(columns.stored_dtypes[column]))
        self.uses, self.updates = InPlace((), np.int32), InPlace((), np.int64)

    def __call__(self, handles, rows):
        """Write rows, and return the number of invalid handles."""
        slots, live = self.handles.slots(handles)
        if self.rows_state is not None:
            live = self.rows_state.stored(slots, live)
        last, exists, _ = self.last_of_each(slots, live)
        old = gather(self.rows(self.column), slots, 0)
        new = gather(ops.cast(rows, self.column.dtype), last, 0)
        ops.scatter_update(self.column, slots, ops.select(ops.reshape(exists, (-1, *self.ones)), new, old))
        if self.update_ends is not None:
            self.update_ends(slots, exists, ops.reshape(new, (-1,)) != 0)
        self.note(slots, live)
        if self.late:
            self.arrive(handles, slots, exists)
        if self.counts:
            self.count(invalid=self.named(handles, ops.logical_not(live)))
        return ops.reduce_sum(ops.cast(ops.logical_not(live), ms.int32))

    def note(self, slots, written):
        """Count the update, and note it for the blocks of the rows that were written."""
        number = gather(self.updates(self.state.updates), self.first, 0) + 1
        blocks = ops.floor_div(ops.cast(slots, ms.int32), self.block) + 1
        blocks = ops.select(written, blocks, zeros_like(blocks))
        ops.scatter_update(self.state.updates, blocks, ops.broadcast_to(number, blocks.shape))
        ops.scatter_update(self.state.updates, self.first, number)

    def arrive(self, handles, slots, written):
        """Note that the late column was written, and make the rows eligible that miss no other."""
        uses = gather(self.uses(self.state.use_counts), slots, 0)
        missing = ops.bitwise_and(uses, self.not_written)
        waited = ops.logical_and(written, self.use_counts.pending(uses))
        ops.scatter_update(self.state.use_counts, slots, ops.select(waited, self.pending + missing, uses))
        self.rows_state.release(handles, slots, ops.logical_and(waited, missing == 0))


@ms.jit_class
class CompositeDelete:
    """``(handles [n]) -> rows removed``, int32 ``[]``. Changes the state of rows."""

    def __init__(self, state: State, factors: Tensor, rule: WindowRule | None) -> None:
        self.rows = eligibility(state, factors, rule)
        self.handles = handles_of(state)
        self.count = Count(state)
        self.named = Named()

    def __call__(self, handles):
        """Remove rows, and return their number."""
        slots, stored = self.handles.slots(handles)
        deleted, found = self.rows.remove(handles, slots, stored)
        self.count(deleted=deleted, invalid=self.named(handles, ops.logical_not(found)))
        return deleted


@ms.jit_class
class CompositeAdvance:
    """``(steps int64 []) -> now``: advances the clock and removes rows that became stale. Changes the state of rows."""

    def __init__(self, state: State, factors: Tensor, rule: WindowRule | None, max_staleness: int | None) -> None:
        self.state = state
        self.remove_stale = None if max_staleness is None else RemoveStale(state, factors, rule, max_staleness)
        self.zero = Tensor(0, ms.int64)
        self.last = Tensor(LAST_CLOCK, ms.int64)
        self.check = check("advance", "the clock would go back, or pass 2^62")

    def __call__(self, steps):
        """Advance the clock, remove stale rows, and return the new time."""
        clock = self.state.clock
        now = item(clock, 0) + steps
        ok = ops.logical_and(steps >= self.zero, steps <= self.last - item(clock, 0))
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

    def __init__(self, state: State) -> None:
        self.state = state
        self.handles = handles_of(state)
        self.use_counts = Uses(state)
        self.priorities, self.uses, self.clocks = InPlace((), np.float32), InPlace((), np.int32), InPlace((), np.int64)

    def __call__(self, handles):
        """Return priorities, use counts and stalenesses; 0, -1 and -1 for rows no longer stored."""
        slots, stored = self.handles.slots(handles)
        priority = gather(self.priorities(self.state.priorities), slots, 0)
        uses = gather(self.uses(self.state.use_counts), slots, 0)
        uses = self.use_counts.deliveries(uses)
        age = item(self.state.clock, 0) - gather(self.clocks(self.state.insertion_clocks), slots, 0)
        self.priorities.done(self.state.priorities, (priority, uses, age))
        return (
            ops.select(stored, priority, zeros_like(priority)),
            ops.select(stored, uses, zeros_like(uses) - 1),
            ops.select(stored, age, zeros_like(age) - 1),
        )


@ms.jit_class
class CompositeReset:
    """``() -> 0``: removes all rows; serial numbers and counters continue. Costs O(1), and O(C) with weights."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.weighted = state.weights is not None
        self.zeroed = state.those(("priorities", "use_counts", "insertion_clocks", "steps", "flags"))
        self.empty = Tensor(initial_weights(state.capacity)) if self.weighted else None
        self.one = Tensor(1.0, ms.float32)
        self.zero = Tensor(0, ms.int32)

    def __call__(self):
        """Remove all rows."""
        serials = self.state.serials
        if self.weighted:
            ops.assign(self.state.weights, self.empty)
            for i in range(len(self.zeroed)):
                ops.assign(self.zeroed[i], zeros_like(self.zeroed[i]))
            ops.assign(self.state.max_priority, self.one)
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

    def __init__(self, state: State, factors: Tensor, rule: WindowRule, flags: int) -> None:
        self.state = state
        self.last_flags = Tensor(flags, ms.uint8)
        self.newest = Tensor(np.arange(rule.streams) - rule.streams, ms.int64)
        self.handles = Handles(state)
        self.complete = Complete(state, factors, rule)
        self.steps, self.flags = InPlace((), np.int64), InPlace((), np.uint8)

    def __call__(self):
        """End the open episodes, and return their number."""
        slots, stored = self.handles.slots(self.handles.next() + self.newest)
        flags = gather(self.flags(self.state.flags), slots, 0)
        ended = ops.logical_and(stored, ops.bitwise_and(ops.cast(flags, ms.int32), END) == 0)
        steps = gather(self.steps(self.state.steps), slots, 0)
        ops.scatter_update(self.state.flags, slots, ops.select(ended, ops.bitwise_or(flags, self.last_flags), flags))
        self.complete(steps)
        return ops.reduce_sum(ops.cast(ended, ms.int32))
