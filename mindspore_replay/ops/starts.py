"""Rows at which windows may start.

The tree contains the weights of valid starts, and zero for every other row, so a draw reads only the rows drawn. Rows
of one insertion belong to the rule's `streams` environments in turn, so neighbours in time are that many slots apart.
An insertion costs O(window) a row. Axes: ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.kernels.library import FAILURES, TOO_LONG
from ..store.spec.episodes import DELETED, END, FINAL, OPEN, PAD_OPEN, WindowRule
from .access import Access
from .checks import check
from .primitives import column, columns, concat, gather, range_of, zeros_like
from .ring import newest
from .rows import Rows
from .sum_tree import last_of_each


@ms.jit_class
class Marks:
    """``(rows, ends, n) -> follows [n] bool, flags [n] uint8``: those of new rows, as in csrc/core/marks.h.

    The first say which rows are only the observation after the row before them. `ends` are the caller's flags.
    """

    def __init__(self, rule: WindowRule) -> None:
        self.column, self.needs_next, self.streams = rule.terminated, rule.needs_next, rule.streams
        self.end, self.open = Tensor(END | OPEN, ms.uint8), Tensor(FINAL | OPEN, ms.uint8)
        self.final_end, self.going_on = Tensor(END | FINAL, ms.uint8), Tensor(255 - END - FINAL, ms.uint8)

    def __call__(self, rows, ends, n):
        """Return the flags of rows."""
        said = ops.broadcast_to(ops.reshape(ends, (-1,)), (n,))
        number = ops.cast(said, ms.int32)
        follows, final = number == FINAL, ops.bitwise_and(number, FINAL) > 0
        said = ops.select(final, zeros_like(said) + self.final_end, said)
        if self.column < 0:
            return follows, said
        terminated = ops.reshape(rows[self.column], (n,))
        terminated = terminated if terminated.dtype == ms.bool_ else terminated != 0
        ended = ops.bitwise_and(ops.cast(said, ms.int32), END) > 0
        row_flags = ops.select(ops.logical_and(terminated, ops.logical_not(ended)), zeros_like(said) + self.end, said)
        if self.needs_next:
            unknown = ops.logical_and(ended, ops.logical_not(ops.logical_or(terminated, final)))
            row_flags = ops.select(unknown, ops.bitwise_or(said, self.open), row_flags)
        if n <= self.streams:
            return follows, row_flags
        before = row_flags[: -self.streams]
        followed = ops.logical_and(self.may_be_followed(before), follows[self.streams :])
        before = ops.select(followed, self.followed(before), before)
        return follows, concat((before, row_flags[-self.streams :]))

    def final(self, flags):
        """Return which stored rows are final by the caller's flags."""
        return ops.bitwise_and(ops.cast(flags, ms.int32), FINAL | OPEN) == FINAL

    def may_be_followed(self, flags):
        """Return which rows have ended their episodes, and may be followed by the observation after them."""
        return ops.bitwise_and(ops.cast(flags, ms.int32), END | OPEN) == END | OPEN

    def followed(self, flags):
        """Return the flags of rows that a final row follows in their episodes."""
        return ops.bitwise_and(flags, self.going_on)


@ms.jit_class
class UpdateEnds:
    """``(slots [n], written [n] bool, terminated [n] bool)``: moves ends after an update of the column of terminations.

    As in csrc/core/timeline.h, but steps and weights of all rows are recomputed. Cost O(C). Axes: ``S`` steps of a
    stream, ``E`` streams.
    """

    def __init__(self, state: Access, rule: WindowRule) -> None:
        self.state, self.rule, self.marks, self.needs_next = state, rule, Marks(rule), int(rule.needs_next)
        self.ended, self.unknown = Tensor(END | OPEN, ms.uint8), Tensor(FINAL | OPEN, ms.uint8)
        self.known = Tensor(255 - FINAL, ms.uint8)
        steps, streams = -(-state.capacity // rule.streams), rule.streams
        self.rows = Tensor(np.arange(steps * streams), ms.int64)  # in time; a few more than the capacity
        self.index = Tensor(np.broadcast_to(np.arange(steps)[:, None], (steps, streams)), ms.int64)
        self.reversed = Tensor(np.arange(steps)[::-1].copy(), ms.int64)
        self.none = Tensor(np.full((1, streams), -1), ms.int64)
        self.all = Tensor(np.ones(state.capacity, bool))

    def __call__(self, slots, written, terminated):
        """Set flags, steps and weights."""
        self.set_flags(slots, written, terminated)
        slots, stored = self.state.slots(self.state.oldest() + self.rows)
        stored = self.by_stream(stored)
        flags = self.by_stream(ops.cast(self.state.flags.at(slots), ms.int32))
        ends = ops.logical_and(stored, ops.bitwise_and(flags, END) > 0)
        steps = self.set_steps(slots, stored, ends)
        drawn = self.by_stream(self.state.use_counts.at(slots)) >= 0
        drawn = ops.logical_and(drawn, ops.bitwise_and(flags, FINAL) == 0)
        going_on = ops.logical_and(stored, ops.bitwise_and(flags, DELETED) == 0)
        self.set_weights(slots, ops.logical_and(drawn, self.are_starts(steps, ends, going_on, stored)))

    def by_stream(self, rows):
        """Return rows in time as ``[S, E]``."""
        return ops.reshape(rows, self.index.shape)

    def last(self, chosen):
        """Return for each row the last chosen one up to it, by its index in the stream, or -1 for none."""
        return ops.cummax(ops.select(chosen, self.index, zeros_like(self.index) - 1), 0)[0]

    def first(self, chosen):
        """Return for each row the first chosen one from it on, by its index in the stream, or ``S`` for none."""
        chosen = gather(ops.cast(chosen, ms.int32), self.reversed, 0) > 0
        return self.index.shape[0] - 1 - gather(self.last(chosen), self.reversed, 0)

    def set_flags(self, slots, written, terminated):
        """Set the flags of the rows that were written. Entries for one slot are the same."""
        flags = self.state.flags.at(slots)
        following, exists = self.state.slots(self.state.handles(slots) + self.rule.streams)
        before_final = ops.logical_and(exists, self.marks.final(self.state.flags.at(following)))
        written = ops.logical_and(written, ops.logical_not(self.marks.final(flags)))
        ended = ops.bitwise_and(ops.cast(flags, ms.int32), END) > 0
        ends = ops.logical_and(terminated, ops.logical_not(ops.logical_or(ended, before_final)))
        new = ops.select(ops.logical_and(written, ends), ops.bitwise_or(flags, self.ended), flags)
        if self.rule.needs_next:
            ended = ops.logical_and(written, ended)
            new = ops.select(ended, ops.bitwise_and(flags, self.known), new)
            unknown = ops.logical_and(ended, ops.logical_not(terminated))
            new = ops.select(unknown, ops.bitwise_or(flags, self.unknown), new)
        ops.scatter_update(self.state.flags.parameter, slots, new)

    def set_steps(self, slots, stored, ends):
        """Count the steps from the last end before each row, and return them, ``[S, E]``."""
        last = concat((self.none, self.last(ends)[:-1]))
        steps = self.by_stream(self.state.steps.at(slots))
        steps = ops.select(ops.logical_and(stored, last >= 0), self.index - last - 1, steps)
        capacity = self.state.capacity
        ops.scatter_update(self.state.steps.parameter, slots[:capacity], ops.reshape(steps, (-1,))[:capacity])
        return steps

    def are_starts(self, steps, ends, going_on, stored):
        """Return at which rows a window may start, judging by the rows around them, as store/spec/episodes.py does."""
        past, most = ops.minimum(steps, self.rule.past), self.index + (self.rule.future - 1)
        barrier = self.last(ops.logical_not(going_on))
        starts = ops.logical_and(barrier < self.index - past, self.index >= past)
        stop = self.first(ops.logical_or(ends, ops.logical_not(self.following(going_on))))
        whole = stop >= most
        last = ops.minimum(stop, most)
        by_end = ops.gather_elements(ops.cast(ends, ms.int32), 0, last) > 0
        on_stride = ops.floor_mod(steps, self.rule.stride) == 0
        if self.rule.max_length > 0:  # with a limit, windows are whole episodes
            whole = by_end
        elif self.rule.pad_end:
            whole = ops.logical_or(whole, by_end)
        if self.rule.pad_end == PAD_OPEN:
            newest = ops.cast(ops.logical_not(self.following(stored)), ms.int32)
            is_open = ops.gather_elements(newest, 0, last) > 0
            whole = ops.logical_or(whole, ops.logical_and(is_open, last - self.index >= self.needs_next))
        if not self.rule.pad_end:
            on_stride = ops.logical_or(on_stride, by_end)
        return ops.logical_and(starts, ops.logical_and(whole, on_stride))

    def following(self, rows):
        """Return what is said of the row after each, and False after the last of a stream."""
        rows = ops.cast(rows, ms.int64)
        return concat((rows[1:], zeros_like(rows[:1]))) > 0

    def set_weights(self, slots, starts):
        """Set the weights of all rows: those of their priorities for starts, and zero for the others."""
        capacity = self.state.capacity
        slots, starts = slots[:capacity], ops.reshape(starts, (-1,))[:capacity]
        weight = self.state.weight_of(self.state.priorities.at(slots))
        self.state.tree.put(slots, self.all, ops.select(starts, weight, zeros_like(weight)), self.all)


@ms.jit_class
class Windows:
    """Eligibility if samples are windows: rows that are valid starts.

    Its methods are those of `Rows`, and `complete`, `valid_starts`.
    """

    def __init__(self, state: Access, rule: WindowRule) -> None:
        self.state, self.rule = state, rule
        self.marks = Marks(rule)
        self.window = Tensor(np.arange(-rule.past, rule.future)[None], ms.int64)
        self.newest = Tensor(np.arange(-rule.streams, 0), ms.int64)
        self.none = Tensor(np.full((1, rule.streams), -1), ms.int64)
        # Starts that a new row may complete are this many steps before it.
        before = np.arange(0, rule.future, rule.stride) if rule.pad_end else np.array([rule.future - 1])
        self.before = Tensor(before[None], ms.int64)
        # Steps of a window that may be missing because they are not there yet: not the next observation of the start.
        self.may_be_missing = Tensor(np.arange(rule.future)[None] != rule.needs_next)
        self.oldest = Tensor(np.arange(rule.past * rule.streams), ms.int64) if rule.past else None
        self.offsets = Tensor(np.arange(1 - rule.future, rule.past + 1)[None], ms.int64)
        self.deleted, self.undeleted = Tensor(DELETED, ms.uint8), Tensor(255 - DELETED, ms.uint8)
        self.check = check("insert", FAILURES[TOO_LONG])

    def valid_starts(self, handles):
        """Return at which rows windows may start, ``[n]`` bool. Cost O(window) each."""
        past, future, streams = self.rule.past, self.rule.future, self.rule.streams
        slots, stored = self.state.slots(handles)
        steps = self.state.steps.at(slots)
        uses = self.state.use_counts.at(slots)
        serials = ops.expand_dims(handles, 1) + self.window * streams
        window, exists = self.state.slots(serials)
        flags = ops.cast(self.state.flags.at(window), ms.int32)
        good = ops.logical_and(exists, ops.bitwise_and(flags, DELETED) == 0)
        good = ops.cast(good, ms.int32)
        valid = ops.logical_and(stored, uses >= 0)
        valid = ops.logical_and(valid, ops.bitwise_and(column(flags, past), FINAL) == 0)
        if past > 0:
            before = ops.minimum(steps, past)
            valid = ops.logical_and(valid, handles - before * streams >= self.state.oldest())
            outside = columns(self.window, 0, past) < ops.expand_dims(-before, 1)
            valid = ops.logical_and(valid, ops.all(ops.logical_or(outside, columns(good, 0, past) > 0), (1,)))
        ends = ops.bitwise_and(columns(flags, past, past + future), END)
        ended = ops.cumsum(ends, 1) - ends  # before this step
        whole = ops.logical_or(ended > 0, columns(good, past, past + future) > 0)
        if self.rule.pad_end == PAD_OPEN:
            missing = ops.logical_and(columns(serials, past, past + future) >= self.state.next(), self.may_be_missing)
            whole = ops.logical_or(whole, missing)
        whole = ops.all(whole, (1,))
        if self.rule.max_length > 0:  # with a limit, windows are whole episodes
            whole = ops.logical_and(whole, column(ended, future - 1) + column(ends, future - 1) > 0)
        valid = ops.logical_and(valid, whole)
        starts = ops.floor_mod(steps, self.rule.stride) == 0
        if not self.rule.pad_end:
            valid = ops.logical_and(valid, column(ended, future - 1) == 0)
            starts = ops.logical_or(starts, column(ends, future - 1) > 0)
        return ops.logical_and(valid, starts)

    def start_weights(self, handles, slots):
        """Return the weights of rows: those of their priorities for valid starts, and zero for the others."""
        weight = self.state.weight_of(self.state.priorities.at(slots))
        return ops.select(self.valid_starts(handles), weight, zeros_like(weight))

    def live(self, handles, slots, stored):
        """Return which handles are of eligible rows."""
        return self.valid_starts(handles)

    def stored(self, slots, wanted):
        """Return which of the wanted rows are not deleted."""
        stored = ops.bitwise_and(ops.cast(self.state.flags.at(slots), ms.int32), DELETED) == 0
        if self.state.has_late:
            stored = ops.logical_or(stored, self.state.pending(self.state.use_counts.at(slots)))
        return ops.logical_and(wanted, stored)

    def remove(self, handles, slots, wanted):
        """Remove rows. Returns their number, and which handles were of rows stored before."""
        found = self.stored(slots, wanted)
        flags = self.state.flags.at(slots)
        _, marked, counted = last_of_each(slots, found)
        uses = self.state.use_counts.at(slots)
        removed = ops.logical_and(marked, self.state.kept(uses))
        self.state.use_counts.replace(slots, removed, self.state.removed(uses))
        self.state.flags.replace(slots, marked, ops.bitwise_or(flags, self.deleted))
        self.close(handles, slots, found)
        return ops.reduce_sum(ops.cast(counted, ms.int32)), found

    def close(self, handles, slots, found):
        """Set the weights of starts whose windows contain these rows to zero."""
        serials = ops.expand_dims(handles, 1) + self.offsets * self.rule.streams
        starts, stored = self.state.slots(serials)
        # Steps increase by one along an episode.
        same = self.state.steps.at(starts) == ops.expand_dims(self.state.steps.at(slots), 1) + self.offsets
        closed = ops.logical_and(ops.logical_and(stored, same), ops.expand_dims(found, 1))
        starts, closed = ops.reshape(starts, (-1,)), ops.reshape(closed, (-1,))
        _, exists, counted = last_of_each(starts, closed)
        self.state.tree.put(starts, exists, self.state.tree.none, counted)

    def before_insertion(self, rows, slots, n, ends, ok):
        """Write the steps and flags of n new rows. Returns whether they may be inserted, and their steps."""
        written = slots.shape[0]
        follows, marks = self.marks(rows, ends, n)
        steps, followed, fits = self.next_steps(follows, marks)
        if fits is not None:
            ok = ops.logical_and(ok, fits)
        steps = ops.select(ok, newest(steps, written), self.state.steps.at(slots))
        if self.state.has_late:  # a row that holds only an observation has no late columns to wait for
            marks = ops.select(self.marks.final(marks), marks, ops.bitwise_or(marks, self.deleted))
        marks = ops.select(ok, newest(marks, written), self.state.flags.at(slots))
        if followed is not None:
            before, flags, goes_on = followed
            self.state.flags.replace(before, ops.logical_and(ok, goes_on), self.marks.followed(flags))
        ops.scatter_update(self.state.steps.parameter, slots, steps)
        ops.scatter_update(self.state.flags.parameter, slots, marks)
        return ok, steps

    def next_steps(self, follows, marks):
        """Return the steps of rows to be inserted, the rows that are followed, and whether no episode becomes too long.

        The arguments are the results of `Marks`. The second result is, for the slots before the new rows, whether their
        episodes had ended and now continue. The third is ``None`` without a limit. The graph fails if it is false.
        """
        streams = self.rule.streams
        slots, stored = self.state.slots(self.state.next() + self.newest)
        before = self.state.flags.at(slots)
        goes_on = ops.logical_and(stored, ops.bitwise_and(ops.cast(before, ms.int32), END) == 0)
        followed = None
        if self.rule.terminated >= 0:
            followed = ops.logical_and(self.marks.may_be_followed(before), follows[:streams])
            followed = ops.logical_and(stored, followed)
            goes_on = ops.logical_or(goes_on, followed)
            followed = (slots, before, followed)
        first = self.state.steps.at(slots) + 1
        first = ops.expand_dims(ops.select(goes_on, first, zeros_like(first)), 0)
        ends = ops.reshape(ops.bitwise_and(ops.cast(marks, ms.int32), END), (-1, streams))
        index = ops.broadcast_to(ops.expand_dims(range_of(ends.shape[0]), 1), ends.shape)
        steps = first + index
        if ends.shape[0] > 1:
            # Steps count from the last end; an end in the row itself takes effect with the next row.
            last = ops.cummax(ops.select(ends > 0, index, zeros_like(index) - 1), 0)[0]
            last = concat((self.none, last[:-1]))
            steps = ops.select(last >= 0, index - last - 1, steps)
        steps = ops.reshape(steps, (-1,))
        if self.rule.max_length == 0:
            return steps, followed, None
        ok = ops.all(steps < self.rule.max_length)
        self.check(ok, (steps,))
        return steps, followed, ok

    def first_weights(self, priority):
        """Return zeros, since the windows of new rows are not complete yet."""
        return zeros_like(ops.cast(priority, ms.float64))

    def first_uses(self, slots):
        """Return the use counts of new rows in these slots, which `before_insertion` has prepared."""
        uses = ops.broadcast_to(self.state.new_uses, slots.shape)
        if self.state.has_late:
            flags = ops.cast(self.state.flags.at(slots), ms.int32)
            uses = ops.select(ops.bitwise_and(flags, DELETED) > 0, uses, zeros_like(uses))
        return uses

    def release(self, handles, slots, done):
        """Make the starts eligible whose windows rows complete, since their late columns have been written."""
        uses = self.state.use_counts.at(slots)
        self.state.use_counts.replace(slots, done, zeros_like(uses))
        self.state.flags.replace(slots, done, ops.bitwise_and(self.state.flags.at(slots), self.undeleted))
        handles = ops.reshape(ops.expand_dims(handles, 1) + self.offsets * self.rule.streams, (-1,))
        starts, stored = self.state.slots(handles)
        around = ops.reshape(ops.broadcast_to(ops.expand_dims(done, 1), (done.shape[0], self.offsets.shape[1])), (-1,))
        last, exists, counted = last_of_each(starts, ops.logical_and(stored, around))
        self.state.tree.put(starts, exists, gather(self.start_weights(handles, starts), last, 0), counted)

    def after_insertion(self, steps):
        """Update the weights after new rows are stored."""
        if self.oldest is not None:
            self.forget_past()
        if self.rule.terminated >= 0:
            self.lengthen(steps.shape[0])
        self.complete(steps)
        return steps

    def forget_past(self):
        """Set the weights of rows whose past was overwritten to zero."""
        oldest = self.state.oldest()
        serials = oldest + self.oldest
        slots, stored = self.state.slots(serials)
        past = ops.minimum(self.state.steps.at(slots), self.rule.past)
        gone = ops.logical_and(stored, serials - past * self.rule.streams < oldest)
        self.state.tree.put(slots, gone, self.state.tree.none, gone)

    def lengthen(self, written):
        """Set the weights of starts whose windows end before the new rows, if these go on with their episodes."""
        before = self.state.next() - written + self.newest
        slots, stored = self.state.slots(before)
        flags = ops.cast(self.state.flags.at(slots), ms.int32)
        longer = ops.logical_and(stored, ops.bitwise_and(flags, END | OPEN) == OPEN)
        starts = before - (self.rule.future - 1) * self.rule.streams
        slots, stored = self.state.slots(starts)
        longer = ops.logical_and(longer, stored)
        self.state.tree.put(slots, longer, self.start_weights(starts, slots), longer)

    def complete(self, steps):
        """Set the weights of starts whose windows the newest rows, with these steps, may have completed."""
        written, streams = steps.shape[0], self.rule.streams
        serials = ops.expand_dims(self.state.next() - written + range_of(written), 1)
        before = self.before
        if self.rule.pad_end:
            before = before + ops.expand_dims(ops.floor_mod(steps, self.rule.stride), 1)
        handles = ops.reshape(serials - before * streams, (-1,))
        slots, stored = self.state.slots(handles)
        weight, counted = self.start_weights(handles, slots), stored
        if self.rule.pad_end and written > streams:
            last, stored, counted = last_of_each(slots, stored)
            weight = gather(weight, last, 0)
        self.state.tree.put(slots, stored, weight, counted)


def eligibility(state: Access, rule: WindowRule | None) -> Rows | Windows:
    """Return the part of operators that determines eligible rows."""
    return Rows(state) if rule is None else Windows(state, rule)
