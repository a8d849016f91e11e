"""Rows at which windows may start.

A valid start has its weight in the tree and every other row has weight zero, so a draw reads only the rows drawn. Rows
of one insertion belong to the rule's `streams` environments in turn, so neighbours in time are that many slots apart.
An insertion costs O(window) a row. Axes: ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.library import FAILURES, TOO_LONG
from ..store.windows import DELETED, END, FINAL, WindowRule
from .checks import check
from .in_place import InPlace
from .primitives import column, columns, concat, gather, range_of, zeros_like
from .ring import newest
from .rows import Handles, Rows, Uses, WeightOf
from .state import State
from .sum_tree import CompositeTree, LastOfEach


@ms.jit_class
class Legal:
    """``(handles [n]) -> legal [n] bool``: whether windows may start at rows. Cost O(window) each."""

    def __init__(self, state: State, rule: WindowRule) -> None:
        self.state, self.rule = state, rule
        self.handles = Handles(state)
        self.offsets = Tensor(np.arange(-rule.past, rule.future)[None], ms.int64)
        self.steps, self.flags, self.uses = InPlace((), np.int64), InPlace((), np.uint8), InPlace((), np.int32)

    def __call__(self, handles):
        """Return which rows are valid starts."""
        past, future, streams = self.rule.past, self.rule.future, self.rule.streams
        oldest = self.handles.oldest()
        slots, stored = self.handles.slots(handles)
        steps = gather(self.steps(self.state.steps), slots, 0)
        uses = gather(self.uses(self.state.use_counts), slots, 0)
        serials = ops.expand_dims(handles, 1) + self.offsets * streams
        window, exists = self.handles.slots(serials)
        flags = ops.cast(gather(self.flags(self.state.flags), window, 0), ms.int32)
        good = ops.cast(ops.logical_and(exists, ops.bitwise_and(flags, DELETED) == 0), ms.int32)
        legal = ops.logical_and(stored, uses >= 0)
        legal = ops.logical_and(legal, ops.bitwise_and(column(flags, past), FINAL) == 0)
        if past > 0:
            before = ops.minimum(steps, past)
            legal = ops.logical_and(legal, handles - before * streams >= oldest)
            outside = columns(self.offsets, 0, past) < ops.expand_dims(-before, 1)
            legal = ops.logical_and(legal, ops.all(ops.logical_or(outside, columns(good, 0, past) > 0), 1))
        ends = ops.bitwise_and(columns(flags, past, past + future), END)
        ended = ops.cumsum(ends, 1) - ends  # before this step
        whole = ops.all(ops.logical_or(ended > 0, columns(good, past, past + future) > 0), 1)
        legal = ops.logical_and(legal, whole)
        starts = ops.floor_mod(steps, self.rule.stride) == 0
        if not self.rule.pad_end:
            legal = ops.logical_and(legal, column(ended, future - 1) == 0)
            starts = ops.logical_or(starts, column(ends, future - 1) > 0)
        return ops.logical_and(legal, starts)


@ms.jit_class
class NextSteps:
    """``(ends [n] uint8) -> steps [n] int64, ok``: the steps, in their episodes, of rows about to be inserted.

    Not `ok`, and the graph fails, if a row would make its episode too long.
    """

    def __init__(self, state: State, rule: WindowRule) -> None:
        self.state, self.rule = state, rule
        self.handles = Handles(state)
        self.newest = Tensor(np.arange(rule.streams) - rule.streams, ms.int64)
        self.none = Tensor(np.full((1, rule.streams), -1), ms.int64)
        self.steps, self.flags = InPlace((), np.int64), InPlace((), np.uint8)
        self.check = check("insert", FAILURES[TOO_LONG])

    def __call__(self, ends):
        """Return the steps, and whether no episode becomes too long; ``None`` if there is no limit."""
        streams = self.rule.streams
        slots, stored = self.handles.slots(self.handles.next() + self.newest)
        flags = ops.cast(gather(self.flags(self.state.flags), slots, 0), ms.int32)
        goes_on = ops.logical_and(stored, ops.bitwise_and(flags, END) == 0)
        first = gather(self.steps(self.state.steps), slots, 0) + 1
        first = ops.expand_dims(ops.select(goes_on, first, zeros_like(first)), 0)
        ends = ops.reshape(ops.bitwise_and(ops.cast(ends, ms.int32), END), (-1, streams))
        index = ops.broadcast_to(ops.expand_dims(range_of(ends.shape[0]), 1), ends.shape)
        steps = first + index
        if ends.shape[0] > 1:
            # Steps count from the last end; an end in the row itself takes effect with the next row.
            last = ops.cummax(ops.select(ends > 0, index, zeros_like(index) - 1), 0)[0]
            last = concat((self.none, last[:-1]))
            steps = ops.select(last >= 0, index - last - 1, steps)
        ok = ops.all(ops.logical_or(ends > 0, steps < self.rule.max_length - 1)) if self.rule.max_length > 0 else None
        if ok is not None:
            self.check(ok, (steps,))
        return ops.reshape(steps, (-1,)), ok


@ms.jit_class
class Complete:
    """``(steps [n])``: sets the weights of starts whose windows the newest n rows may have completed."""

    def __init__(self, state: State, factors: Tensor, rule: WindowRule) -> None:
        self.state, self.rule = state, rule
        self.legal = Legal(state, rule)
        self.handles = Handles(state)
        self.weight_of = WeightOf(factors)
        self.tree = CompositeTree(state.capacity)
        self.last_of_each = LastOfEach()
        # Starts that a new row may complete are this many steps before it.
        before = np.arange(0, rule.future, rule.stride) if rule.pad_end else np.array([rule.future - 1])
        self.before = Tensor(before[None], ms.int64)
        self.view = InPlace((), np.float32)

    def __call__(self, steps):
        """Set the weights, given the steps of the new rows."""
        written, streams = steps.shape[0], self.rule.streams
        serials = ops.expand_dims(self.handles.next() - written + range_of(written), 1)
        before = self.before
        if self.rule.pad_end:
            before = before + ops.expand_dims(ops.floor_mod(steps, self.rule.stride), 1)
        handles = ops.reshape(serials - before * streams, (-1,))
        slots, stored = self.handles.slots(handles)
        legal = self.legal(handles)
        tree = self.tree.view(self.state.weights)
        weight = self.weight_of(gather(self.view(self.state.priorities), slots, 0))
        weight = ops.select(legal, weight, zeros_like(weight))
        counted = stored
        if self.rule.pad_end and written > streams:
            last, exists, counted = self.last_of_each(slots, stored)
            weight = ops.select(exists, gather(weight, last, 0), gather(tree, slots, 0))
        else:
            weight = ops.select(stored, weight, gather(tree, slots, 0))
        self.tree.write(self.state.weights, tree, slots, weight, counted, slots)


@ms.jit_class
class Windows:
    """Eligibility if samples are windows: rows that are valid starts.

    Its methods are those of `Rows`.
    """

    def __init__(self, state: State, factors: Tensor, rule: WindowRule) -> None:
        self.state, self.rule = state, rule
        self.handles = Handles(state)
        self.tree = CompositeTree(state.capacity)
        self.last_of_each = LastOfEach()
        self.legal = Legal(state, rule)
        self.next_steps = NextSteps(state, rule)
        self.complete = Complete(state, factors, rule)
        self.oldest = Tensor(np.arange(rule.past * rule.streams), ms.int64) if rule.past else None
        self.offsets = Tensor(np.arange(1 - rule.future, rule.past + 1)[None], ms.int64)
        self.deleted, self.undeleted = Tensor(DELETED, ms.uint8), Tensor(255 - DELETED, ms.uint8)
        self.zero = Tensor(0.0, ms.float64)
        self.weight_of = WeightOf(factors)
        self.use_counts = Uses(state)
        self.steps, self.flags, self.uses = InPlace((), np.int64), InPlace((), np.uint8), InPlace((), np.int32)
        self.priorities = InPlace((), np.float32)

    def live(self, handles, slots, stored):
        """Return which handles are of eligible rows."""
        return self.legal(handles)

    def stored(self, slots, wanted):
        """Return which of the wanted rows are not deleted."""
        flags = gather(self.flags(self.state.flags), slots, 0)
        stored = ops.bitwise_and(ops.cast(flags, ms.int32), DELETED) == 0
        if self.state.has_late:
            uses = gather(self.uses(self.state.use_counts), slots, 0)
            stored = ops.logical_or(stored, self.use_counts.pending(uses))
        return ops.logical_and(wanted, stored)

    def remove(self, handles, slots, wanted):
        """Remove rows. Returns their number, and which handles were of rows stored before."""
        found = self.stored(slots, wanted)
        flags = gather(self.flags(self.state.flags), slots, 0)
        _, marked, counted = self.last_of_each(slots, found)
        uses = gather(self.uses(self.state.use_counts), slots, 0)
        removed = ops.logical_and(marked, self.use_counts.stored(uses))
        ops.scatter_update(self.state.use_counts, slots, ops.select(removed, self.use_counts.removed(uses), uses))
        ops.scatter_update(self.state.flags, slots, ops.select(marked, ops.bitwise_or(flags, self.deleted), flags))
        self.close(handles, slots, found)
        return ops.reduce_sum(ops.cast(counted, ms.int32)), found

    def close(self, handles, slots, found):
        """Set the weights of starts whose windows contain these rows to zero."""
        steps = self.steps(self.state.steps)
        serials = ops.expand_dims(handles, 1) + self.offsets * self.rule.streams
        starts, stored = self.handles.slots(serials)
        # Steps increase by one along an episode.
        same = gather(steps, starts, 0) == ops.expand_dims(gather(steps, slots, 0), 1) + self.offsets
        closed = ops.logical_and(ops.logical_and(stored, same), ops.expand_dims(found, 1))
        starts, closed = ops.reshape(starts, (-1,)), ops.reshape(closed, (-1,))
        _, exists, counted = self.last_of_each(starts, closed)
        tree = self.tree.view(self.state.weights)
        weight = ops.masked_fill(gather(tree, starts, 0), exists, self.zero)
        self.tree.write(self.state.weights, tree, starts, weight, counted, starts)

    def before_insertion(self, slots, n, ends, ok):
        """Write the steps and flags of n new rows; returns whether they may be inserted, and their steps."""
        written = slots.shape[0]
        ends = ops.broadcast_to(ops.reshape(ends, (-1,)), (n,))
        steps, fits = self.next_steps(ends)
        if fits is not None:
            ok = ops.logical_and(ok, fits)
        steps = ops.select(ok, newest(steps, written), gather(self.steps(self.state.steps), slots, 0))
        if self.state.has_late:  # a row that holds only an observation waits for nothing
            final = ops.bitwise_and(ops.cast(ends, ms.int32), FINAL) > 0
            ends = ops.select(final, ends, ops.bitwise_or(ends, self.deleted))
        ends = ops.select(ok, newest(ends, written), gather(self.flags(self.state.flags), slots, 0))
        ops.scatter_update(self.state.steps, slots, steps)
        ops.scatter_update(self.state.flags, slots, ends)
        return ok, steps

    def first_weights(self, priority):
        """Return zeros, since the windows of new rows are not complete yet."""
        return zeros_like(ops.cast(priority, ms.float64))

    def first_uses(self, slots):
        """Return the use counts of new rows in these slots, which `before_insertion` has prepared."""
        uses = ops.broadcast_to(self.state.new_uses, slots.shape)
        if self.state.has_late:
            flags = ops.cast(gather(self.flags(self.state.flags), slots, 0), ms.int32)
            uses = ops.select(ops.bitwise_and(flags, DELETED) > 0, uses, zeros_like(uses))
        return uses

    def release(self, handles, slots, done):
        """Make the starts eligible whose windows rows complete, since their late columns have been written."""
        uses = gather(self.uses(self.state.use_counts), slots, 0)
        ops.scatter_update(self.state.use_counts, slots, ops.select(done, zeros_like(uses), uses))
        flags = gather(self.flags(self.state.flags), slots, 0)
        ops.scatter_update(self.state.flags, slots, ops.select(done, ops.bitwise_and(flags, self.undeleted), flags))
        handles = ops.reshape(ops.expand_dims(handles, 1) + self.offsets * self.rule.streams, (-1,))
        starts, stored = self.handles.slots(handles)
        around = ops.reshape(ops.broadcast_to(ops.expand_dims(done, 1), (done.shape[0], self.offsets.shape[1])), (-1,))
        last, exists, counted = self.last_of_each(starts, ops.logical_and(stored, around))
        weight = self.weight_of(gather(self.priorities(self.state.priorities), starts, 0))
        weight = ops.select(self.legal(handles), weight, zeros_like(weight))
        tree = self.tree.view(self.state.weights)
        weight = ops.select(exists, gather(weight, last, 0), gather(tree, starts, 0))
        self.tree.write(self.state.weights, tree, starts, weight, counted, starts)

    def after_insertion(self, steps):
        """Update the weights after new rows are stored."""
        if self.oldest is not None:
            self.forget_past()
        self.complete(steps)
        return steps

    def forget_past(self):
        """Set the weights of rows whose past was overwritten to zero."""
        oldest = self.handles.oldest()
        serials = oldest + self.oldest
        slots, stored = self.handles.slots(serials)
        past = ops.minimum(gather(self.steps(self.state.steps), slots, 0), self.rule.past)
        gone = ops.logical_and(stored, serials - past * self.rule.streams < oldest)
        tree = self.tree.view(self.state.weights)
        weight = ops.masked_fill(gather(tree, slots, 0), gone, self.zero)
        self.tree.write(self.state.weights, tree, slots, weight, gone, slots)


def eligibility(state: State, factors: Tensor, rule: WindowRule | None) -> Rows | Windows:
    """Return the part of an operator that determines eligible rows."""
    return Rows(state, factors) if rule is None else Windows(state, factors, rule)
