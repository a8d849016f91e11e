"""Rows in time: the step of each in its episode, where episodes end, and which rows a window may start at.

`marks` are those of `weights.py` and then ``(steps, flags)``. A legal start has its weight in the tree and every other
row weighs zero, so a draw looks at nothing but what it draws. Rows of one insertion belong to `streams` environments in
turn, and neighbours in time are that many slots apart. An insertion costs O(window) a row. Axes: ``C`` capacity, ``E``
streams.
"""

from collections.abc import Mapping
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from . import native
from .in_place import InPlace
from .sum_tree import CompositeTree, LastOfEach
from .weights import (
    CompositeAdvance,
    CompositeCount,
    CompositeInsert,
    CompositeNamed,
    CompositeReset,
    CompositeUpdate,
    Handles,
    WeightOf,
)

#: What `flags` say of a row: it is the last of its episode; it holds only the observation after its episode, so it is
#: read and never drawn; no window may hold it.
END, FINAL, DELETED = 1, 2, 4


class WindowRule(NamedTuple):
    """Which windows are legal, in steps of one stream.

    Args:
        past (int): Steps before the start; fewer where the episode begins.
        future (int): Steps from the start on, itself included.
        stride (int): Period of starts, counted from the first step of the episode.
        pad_end (bool): Whether a window may reach beyond the end of its episode.
        streams (int): Environments that write in step.
        max_length (int): Steps of the longest episode, 0 for no limit.
    """

    past: int
    future: int
    stride: int
    pad_end: bool
    streams: int
    max_length: int

    def tensor(self) -> Tensor:
        """The rule as the kernels take it."""
        return Tensor(self.array())

    def array(self) -> np.ndarray:
        return np.array(self, np.int64)


def legal_starts(state: Mapping[str, np.ndarray], rule: WindowRule) -> np.ndarray:
    """Which slots hold a row that a window may start at, found from scratch. Shape ``[C]``, bool. Cost O(C)."""
    capacity, count, streams = len(state["steps"]), int(state["count"]), rule.streams
    legal = np.zeros(capacity, bool)
    slots = (int(state["head"]) + np.arange(count)) % capacity
    for stream in range(streams):  # the rows of one stream, from the oldest
        rows = slots[stream::streams]
        legal[rows] = _legal_in_stream(state["steps"][rows], state["flags"][rows], state["use_counts"][rows] < 0, rule)
    return legal


def _legal_in_stream(steps: np.ndarray, flags: np.ndarray, removed: np.ndarray, rule: WindowRule) -> np.ndarray:
    index = np.arange(len(steps))
    ends, deleted = flags & END > 0, flags & DELETED > 0
    stops = ends.copy()  # rows after which a window cannot go on
    stops[-1:] = True
    stops[:-1] |= deleted[1:]
    stop = np.minimum.accumulate(np.where(stops, index, len(index))[::-1])[::-1]
    last = np.minimum(stop, index + rule.future - 1)
    whole = last == index + rule.future - 1
    barrier = np.maximum.accumulate(np.where(deleted, index, -1))
    past = np.minimum(rule.past, steps)
    fits = whole | ends[last] if rule.pad_end else whole
    on_stride = steps % rule.stride == 0
    if not rule.pad_end:
        on_stride |= ends[last]
    return fits & on_stride & (barrier < index - past) & (index >= past) & ~removed & (flags & FINAL == 0)


def check_timeline(cls_name: str, state: Mapping[str, np.ndarray], streams: int) -> None:
    """Raises a ValueError if the steps of rows do not follow from each other, or a deleted row counts as live."""
    slots = (int(state["head"]) + np.arange(int(state["count"]))) % len(state["steps"])
    steps, flags, uses = (state[key][slots] for key in ("steps", "flags", "use_counts"))
    following = np.where(flags & END, 0, steps + 1)[:-streams] if streams < len(steps) else steps[:0]
    wrong = []
    if (steps < 0).any() or (steps[streams:] != following).any():
        wrong.append("'steps' do not go on from each row to the next of its stream")
    if ((flags & DELETED > 0) & (uses >= 0)).any() or (flags > (END | FINAL | DELETED)).any():
        wrong.append("'flags' are none that rows have, or a deleted row counts as live")
    if ((flags & FINAL > 0) & (flags & END == 0)).any():
        wrong.append("a row with only an observation is not the last of its episode")
    if wrong:
        raise ValueError(f"For '{cls_name}', the rows must make episodes: {'; '.join(wrong)}.")


@ms.jit_class
class CompositeLegal:
    """``(ring, marks, handles [n]) -> legal [n] bool``: whether windows may start at rows. Cost O(window) each."""

    def __init__(self, capacity: int, rule: WindowRule) -> None:
        self.rule = rule
        self.handles = Handles(capacity)
        self.offsets = Tensor(np.arange(-rule.past, rule.future)[None], ms.int64)
        self.views = InPlace((), np.int64), InPlace((), np.uint8), InPlace((), np.int32)

    def __call__(self, ring, marks, handles):
        past, future, streams = self.rule.past, self.rule.future, self.rule.streams
        oldest = ring[2][0] - ops.cast(ring[1], ms.int64)
        slots, stored = self.handles.slots(handles, ring)
        steps = ops.gather(self.views[0](marks[7]), slots, 0)
        uses = ops.gather(self.views[2](marks[3]), slots, 0)
        serials = ops.expand_dims(handles, 1) + self.offsets * streams
        window, exists = self.handles.slots(serials, ring)
        flags = ops.cast(ops.gather(self.views[1](marks[8]), window, 0), ms.int32)
        good = ops.logical_and(exists, ops.bitwise_and(flags, DELETED) == 0)
        legal = ops.logical_and(stored, uses >= 0)
        legal = ops.logical_and(legal, ops.bitwise_and(flags[:, past], FINAL) == 0)
        if past > 0:
            before = ops.minimum(steps, past)
            legal = ops.logical_and(legal, handles - before * streams >= oldest)
            outside = self.offsets[:, :past] < ops.expand_dims(-before, 1)
            legal = ops.logical_and(legal, ops.all(ops.logical_or(outside, good[:, :past]), 1))
        ends = ops.bitwise_and(flags[:, past:], END)
        ended = ops.cumsum(ends, 1) - ends > 0  # before this step
        legal = ops.logical_and(legal, ops.all(ops.logical_or(ended, good[:, past:]), 1))
        starts = ops.floor_mod(steps, self.rule.stride) == 0
        if not self.rule.pad_end:
            legal = ops.logical_and(legal, ops.logical_not(ended[:, future - 1]))
            starts = ops.logical_or(starts, ends[:, future - 1] > 0)
        return ops.logical_and(legal, starts)


@ms.jit_class
class CompositeNextSteps:
    """``(ring, marks, ends [n] uint8) -> steps [n] int64, ok``: the steps of rows that are about to be inserted.

    Not `ok`, and the graph fails, if a row makes its episode longer than it may be.
    """

    def __init__(self, capacity: int, rule: WindowRule) -> None:
        self.rule = rule
        self.handles = Handles(capacity)
        self.newest = Tensor(np.arange(rule.streams) - rule.streams, ms.int64)
        self.none = Tensor(np.full((1, rule.streams), -1), ms.int64)
        self.views = InPlace((), np.int64), InPlace((), np.uint8)
        self.check = ops.Assert()

    def __call__(self, ring, marks, ends):
        streams = self.rule.streams
        slots, stored = self.handles.slots(ring[2][0] + self.newest, ring)
        flags = ops.cast(ops.gather(self.views[1](marks[8]), slots, 0), ms.int32)
        goes_on = ops.logical_and(stored, ops.bitwise_and(flags, END) == 0)
        first = ops.gather(self.views[0](marks[7]), slots, 0) + 1
        first = ops.expand_dims(ops.select(goes_on, first, ops.zeros_like(first)), 0)
        ends = ops.reshape(ops.bitwise_and(ops.cast(ends, ms.int32), END), (-1, streams))
        index = ops.broadcast_to(ops.expand_dims(ops.arange(ends.shape[0]), 1), ends.shape)
        steps = first + index
        if ends.shape[0] > 1:
            # After an end steps count from it; an end in the row itself counts for the next.
            last = ops.cummax(ops.select(ends > 0, index, ops.zeros_like(index) - 1), 0)[0]
            last = ops.concat((self.none, last[:-1]), 0)
            steps = ops.select(last >= 0, index - last - 1, steps)
        ok = ops.all(ops.logical_or(ends > 0, steps < self.rule.max_length - 1)) if self.rule.max_length > 0 else None
        if ok is not None:
            self.check(ok, (steps,))
        return ops.reshape(steps, (-1,)), ok


@ms.jit_class
class CompositeComplete:
    """``(ring, marks, steps [n])``: gives starts the weight that is right now that the newest n rows are there."""

    def __init__(self, capacity: int, factors: Tensor, rule: WindowRule) -> None:
        self.rule = rule
        self.legal = CompositeLegal(capacity, rule)
        self.handles = Handles(capacity)
        self.weight_of = WeightOf(factors)
        self.tree = CompositeTree(capacity)
        self.last_of_each = LastOfEach()
        # Starts that a new row may complete are so many steps before it.
        before = np.arange(0, rule.future, rule.stride) if rule.pad_end else np.array([rule.future - 1])
        self.before = Tensor(before[None], ms.int64)
        self.view = InPlace((), np.float32)

    def __call__(self, ring, marks, steps):
        written, streams = steps.shape[0], self.rule.streams
        serials = ops.expand_dims(ring[2][0] - written + ops.arange(written), 1)
        before = self.before
        if self.rule.pad_end:
            before = before + ops.expand_dims(ops.floor_mod(steps, self.rule.stride), 1)
        handles = ops.reshape(serials - before * streams, (-1,))
        slots, stored = self.handles.slots(handles, ring)
        legal = self.legal(ring, marks, handles)
        tree = self.tree.view(marks[0])
        weight = self.weight_of(ops.gather(self.view(marks[1]), slots, 0))
        weight = ops.select(legal, weight, ops.zeros_like(weight))
        counted = stored
        if self.rule.pad_end and written > streams:
            last, exists, counted = self.last_of_each(slots, stored)
            weight = ops.select(exists, ops.gather(weight, last, 0), ops.gather(tree, slots, 0))
        else:
            weight = ops.select(stored, weight, ops.gather(tree, slots, 0))
        self.tree.write(marks[0], tree, slots, weight, counted, slots)


@ms.jit_class
class CompositeInsertTimed(CompositeInsert):
    """``(columns, ring, marks, priority, ends, rows)``: appends rows. Changes columns, ring and marks.

    `priority` is float32 and `ends` uint8 flags, one for all rows or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, capacity: int, columns: Columns, factors: Tensor, rule: WindowRule) -> None:
        CompositeInsert.__init__(self, capacity, columns, factors)
        self.capacity = capacity
        self.rule = rule
        self.next_steps = CompositeNextSteps(capacity, rule)
        self.complete = CompositeComplete(capacity, factors, rule)
        self.handles = Handles(capacity)
        self.oldest = Tensor(np.arange(rule.past * rule.streams), ms.int64) if rule.past else None
        self.marked = InPlace((), np.int64), InPlace((), np.uint8)

    def first_weight(self, priority):
        """The weights of new rows, until their windows are complete."""
        return ops.zeros_like(ops.cast(priority, ms.float64))

    def __call__(self, columns, ring, marks, priority, ends, rows):
        n = self.ring.rows_of(rows)
        ok = self.accepts(priority)
        ends = ops.broadcast_to(ops.reshape(ends, (-1,)), (n,))
        steps, fits = self.next_steps(ring, marks, ends)
        if fits is not None:
            ok = ops.logical_and(ok, fits)
        slots = ops.cast(self.ring.slots(ring[0], ring[1], n), self.tree.index)
        written = slots.shape[0]
        steps = ops.select(ok, steps[n - written :], ops.gather(self.marked[0](marks[7]), slots, 0))
        ends = ops.select(ok, ends[n - written :], ops.gather(self.marked[1](marks[8]), slots, 0))
        ops.scatter_update(marks[7], slots, steps)
        ops.scatter_update(marks[8], slots, ends)
        kept = self.store(columns, ring, marks, priority, rows, ok)
        if self.oldest is not None:
            self.forget_past(ring, marks)
        self.complete(ring, marks, steps)
        return kept

    def forget_past(self, ring, marks):
        """Takes the weight from rows whose past has been overwritten."""
        oldest = ring[2][0] - ops.cast(ring[1], ms.int64)
        serials = oldest + self.oldest
        slots, stored = self.handles.slots(serials, ring)
        past = ops.minimum(ops.gather(self.marked[0](marks[7]), slots, 0), self.rule.past)
        gone = ops.logical_and(stored, serials - past * self.rule.streams < oldest)
        tree = self.tree.view(marks[0])
        weight = ops.masked_fill(ops.gather(tree, slots, 0), gone, ops.zeros_like(self.tree.infinity))
        self.tree.write(marks[0], tree, slots, weight, gone, slots)


@ms.jit_class
class NativeInsertTimed:
    """``(columns, ring, marks, priority, ends, rows)``: appends rows. Changes columns, ring and marks.

    `priority` is float32 and `ends` uint8 flags, one for all rows or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, factors: Tensor, rule: WindowRule) -> None:
        self.factors = factors
        self.rule = rule.tensor()
        self.insert = native.custom("replay_insert_timed", lambda *_: (), ms.int32)

    def __call__(self, columns, ring, marks, priority, ends, rows):
        return self.insert(*columns, *ring, *marks, self.rule, self.factors, priority, ends, *rows)


@ms.jit_class
class CompositeEndEpisodes:
    """``(column, ring, marks) -> episodes``, int32 ``[]``: ends those that go on. Changes marks.

    Args:
        flags (int): What the flags of their last rows are to say.
    """

    def __init__(self, capacity: int, factors: Tensor, rule: WindowRule, flags: int) -> None:
        self.flags = Tensor(flags, ms.uint8)
        self.newest = Tensor(np.arange(rule.streams) - rule.streams, ms.int64)
        self.handles = Handles(capacity)
        self.complete = CompositeComplete(capacity, factors, rule)
        self.views = InPlace((), np.int64), InPlace((), np.uint8)

    def __call__(self, column, ring, marks):
        slots, stored = self.handles.slots(ring[2][0] + self.newest, ring)
        flags = ops.gather(self.views[1](marks[8]), slots, 0)
        ended = ops.logical_and(stored, ops.bitwise_and(ops.cast(flags, ms.int32), END) == 0)
        steps = ops.gather(self.views[0](marks[7]), slots, 0)
        ops.scatter_update(marks[8], slots, ops.select(ended, ops.bitwise_or(flags, self.flags), flags))
        self.complete(ring, marks, steps)
        return ops.reduce_sum(ops.cast(ended, ms.int32))


@ms.jit_class
class NativeEndEpisodes:
    """``(column, ring, marks) -> episodes``, int32 ``[]``: ends those that go on. Changes marks.

    Args:
        flags (int): What the flags of their last rows are to say.
    """

    def __init__(self, factors: Tensor, rule: WindowRule, flags: int) -> None:
        self.factors = factors
        self.rule = rule.tensor()
        self.flags = Tensor([flags], ms.uint8)
        self.end = native.custom("replay_end_episodes", lambda *_: (1,), ms.int32)

    def __call__(self, column, ring, marks):
        return ops.reshape(self.end(column, *ring, *marks, self.rule, self.factors, self.flags), ())


@ms.jit_class
class CompositeUpdateTimed(CompositeUpdate):
    """``(column, ring, marks, handles [n], priority) -> dead handles``, int32 ``[]``. Changes marks.

    `priority` is float32, one for all handles or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, capacity: int, factors: Tensor, rule: WindowRule) -> None:
        CompositeUpdate.__init__(self, capacity, factors)
        self.legal = CompositeLegal(capacity, rule)

    def live(self, ring, marks, handles, slots, stored):
        """Which handles are those of legal starts."""
        return self.legal(ring, marks, handles)


@ms.jit_class
class NativeUpdateTimed:
    """``(column, ring, marks, handles [n], priority) -> dead handles``, int32 ``[]``. Changes marks.

    `priority` is float32, one for all handles or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, factors: Tensor, rule: WindowRule) -> None:
        self.factors = factors
        self.rule = rule.tensor()
        self.update = native.custom("replay_update_timed", lambda *_: (1,), ms.int32)

    def __call__(self, column, ring, marks, handles, priority):
        return ops.reshape(self.update(column, *ring, *marks, self.rule, self.factors, handles, priority), ())


@ms.jit_class
class CompositeDeleteTimed:
    """``(column, ring, marks, handles [n]) -> rows deleted``, int32 ``[]``. Changes marks."""

    def __init__(self, capacity: int, rule: WindowRule) -> None:
        self.rule = rule
        self.handles = Handles(capacity)
        self.tree = CompositeTree(capacity)
        self.last_of_each = LastOfEach()
        self.offsets = Tensor(np.arange(1 - rule.future, rule.past + 1)[None], ms.int64)
        self.deleted = Tensor(DELETED, ms.uint8)
        self.zero = Tensor(0.0, ms.float64)
        self.views = InPlace((), np.int64), InPlace((), np.uint8), InPlace((), np.int32)
        self.count = CompositeCount()
        self.named = CompositeNamed()

    def __call__(self, column, ring, marks, handles):
        deleted, dead = self.remove(ring, marks, handles)
        self.count(marks, (0, 0, 0, deleted, dead))
        return deleted

    def remove(self, ring, marks, handles):
        """Deletes rows. Gives how many there were, and how many handles were not those of one."""
        slots, stored = self.handles.slots(handles, ring)
        flags = ops.gather(self.views[1](marks[8]), slots, 0)
        found = ops.logical_and(stored, ops.bitwise_and(ops.cast(flags, ms.int32), DELETED) == 0)
        marked = self.last_of_each(slots, found)
        uses = ops.gather(self.views[2](marks[3]), slots, 0)
        removed = ops.logical_and(marked[1], uses >= 0)
        ops.scatter_update(marks[3], slots, ops.select(removed, -1 - uses, uses))
        ops.scatter_update(marks[8], slots, ops.select(marked[1], ops.bitwise_or(flags, self.deleted), flags))
        self.close(ring, marks, handles, slots, found)
        return ops.reduce_sum(ops.cast(marked[2], ms.int32)), self.named(handles, ops.logical_not(found))

    def close(self, ring, marks, handles, slots, found):
        """Takes the weight from the starts whose windows hold these rows."""
        steps = self.views[0](marks[7])
        serials = ops.expand_dims(handles, 1) + self.offsets * self.rule.streams
        starts, stored = self.handles.slots(serials, ring)
        # Along an episode steps go up by one.
        same = ops.gather(steps, starts, 0) == ops.expand_dims(ops.gather(steps, slots, 0), 1) + self.offsets
        closed = ops.logical_and(ops.logical_and(stored, same), ops.expand_dims(found, 1))
        starts, closed = ops.reshape(starts, (-1,)), ops.reshape(closed, (-1,))
        entries = self.last_of_each(starts, closed)
        tree = self.tree.view(marks[0])
        weight = ops.masked_fill(ops.gather(tree, starts, 0), entries[1], self.zero)
        self.tree.write(marks[0], tree, starts, weight, entries[2], starts)


@ms.jit_class
class NativeDeleteTimed:
    """``(column, ring, marks, handles [n]) -> rows deleted``, int32 ``[]``. Changes marks."""

    def __init__(self, rule: WindowRule) -> None:
        self.rule = rule.tensor()
        self.delete = native.custom("replay_delete_timed", lambda *_: (1,), ms.int32)

    def __call__(self, column, ring, marks, handles):
        return ops.reshape(self.delete(column, *ring, *marks, self.rule, handles), ())


@ms.jit_class
class CompositeAdvanceTimed(CompositeAdvance):
    """``(column, ring, marks, steps int64 [])``: moves the clock and deletes rows that became stale. Changes marks."""

    def __init__(self, capacity: int, max_staleness: int | None, rule: WindowRule) -> None:
        CompositeAdvance.__init__(self, capacity, max_staleness)
        self.delete = CompositeDeleteTimed(capacity, rule)

    def take_away(self, ring, marks, first, slots, removed):
        """Deletes those of the rows from serial number `first` on that are not deleted yet."""
        handles = ops.select(removed, first + self.offsets, self.offsets * 0 - 1)
        return self.delete.remove(ring, marks, handles)[0]


@ms.jit_class
class NativeAdvanceTimed:
    """``(column, ring, marks, steps int64 [])``: moves the clock and deletes rows that became stale. Changes marks."""

    def __init__(self, max_staleness: int | None, rule: WindowRule) -> None:
        self.rule = rule.tensor()
        self.max_staleness = Tensor([-1 if max_staleness is None else max_staleness], ms.int64)
        self.advance = native.custom("replay_advance_timed", lambda *_: (1,), ms.int64)

    def __call__(self, column, ring, marks, steps):
        return self.advance(column, *ring, *marks, self.rule, steps, self.max_staleness)


@ms.jit_class
class CompositeResetTimed(CompositeReset):
    """``(column, ring, marks)``: forgets all rows; serial numbers and counts go on. Changes ring, marks. Costs O(C)."""

    def __init__(self, capacity: int) -> None:
        CompositeReset.__init__(self, capacity, (1, 3, 4, 7, 8))


@ms.jit_class
class NativeResetTimed:
    """``(column, ring, marks)``: forgets all rows; serial numbers and counts go on. Changes ring, marks. Costs O(C)."""

    def __init__(self, rule: WindowRule) -> None:
        self.rule = rule.tensor()
        self.reset = native.custom("replay_reset_timed", lambda *_: (), ms.int32)

    def __call__(self, column, ring, marks):
        return self.reset(column, *ring, *marks, self.rule)
