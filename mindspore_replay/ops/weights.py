"""What a buffer with weights does to its rows: insert, deliver, remove, age, reweight.

`marks` are the Parameters ``(weights, priorities, max_priority, use_counts, insertion_clocks, clock)``, of which
`buffers/limits.py` documents each, and `ring` is ``(head, count, serials)``. Rows are named by handles, their serial
numbers; a handle is dead if its row is not stored any more, or was removed: deleted, used up or stale. Each operator
costs O(log C) a row. Axes: ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from . import native
from .in_place import InPlace
from .ring import CompositeGather, CompositeRingWrite
from .sum_tree import FANOUT, CompositeTree, LastOfEach, index_type, initial_weights

#: The last value of a learner's clock.
LAST_CLOCK = 2**62
#: What is counted of rows: deliveries; removals as used up, as stale, by hand; dead handles that were skipped.
COUNTS = ("drawn", "used_up", "stale", "deleted", "dead")


def weight_factors(alpha: float, epsilon: float) -> Tensor:
    """The rule by which a priority becomes a weight, as the operators take it. Shape ``[2]``, float64."""
    return Tensor(np.array([alpha, epsilon]))


@ms.jit_class
class WeightOf:
    """``(priority float32) -> float64``: ``(priority + epsilon)^alpha``.

    It is rounded to float32, so that power functions that differ in the last bits give the same.
    """

    def __init__(self, factors: Tensor) -> None:
        self.alpha, self.epsilon = factors[0], factors[1]

    def __call__(self, priority):
        weight = ops.pow(ops.cast(priority, ms.float64) + self.epsilon, self.alpha)
        return ops.cast(ops.cast(weight, ms.float32), ms.float64)


@ms.jit_class
class Handles:
    """Handles of slots, and slots of handles, all ``[n]``. Handles are int64, slots int32 or int64."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.index = index_type(capacity)

    def of(self, slots, ring):
        row = ops.floor_mod(slots - ring[0], self.capacity)
        return ops.cast(row, ms.int64) + (ring[2][0] - ops.cast(ring[1], ms.int64))

    def slots(self, handles, ring):
        """Slots, all in ``[0, C)``, and whether they hold the rows."""
        inserted = ring[2][0]
        stored = ops.logical_and(handles >= inserted - ops.cast(ring[1], ms.int64), handles < inserted)
        return ops.cast(ops.floor_mod(handles - ring[2][1], self.capacity), self.index), stored


@ms.jit_class
class CompositeRemove:
    """``(marks, slots [n], removed [n] bool) -> rows removed``, int32 ``[]``: weights become zero. Changes marks."""

    def __init__(self, capacity: int) -> None:
        self.tree = CompositeTree(capacity)
        self.last_of_each = LastOfEach()
        self.zero = Tensor(0.0, ms.float64)
        self.view = InPlace((), np.int32)

    def __call__(self, marks, slots, removed):
        weights, use_counts = marks[0], marks[3]
        entries = self.last_of_each(slots, removed)
        exists, counted = entries[1], entries[2]
        uses = ops.gather(self.view(use_counts), slots, 0)
        tree = self.tree.view(weights)
        old = ops.gather(tree, slots, 0)
        ops.scatter_update(use_counts, slots, ops.select(exists, -1 - uses, uses))
        self.tree.write(weights, tree, slots, ops.masked_fill(old, exists, self.zero), counted, slots)
        return ops.reduce_sum(ops.cast(counted, ms.int32))


@ms.jit_class
class CompositeCount:
    """``(marks, (drawn, used_up, stale, deleted, dead))``: counts what happened to rows; each int or int64 ``[]``."""

    def __init__(self) -> None:
        self.units = tuple(Tensor(unit) for unit in np.eye(len(COUNTS), dtype=np.int64))

    def __call__(self, marks, happened):
        total = marks[6]
        for i in range(len(self.units)):
            if isinstance(happened[i], Tensor):
                total = total + self.units[i] * ops.cast(happened[i], ms.int64)
        ops.assign(marks[6], total)


@ms.jit_class
class CompositeNamed:
    """``(handles [n], chosen [n] bool) -> int32 []``: how many of the chosen stand for a row, as -1 does not."""

    def __call__(self, handles, chosen):
        return ops.reduce_sum(ops.cast(ops.logical_and(chosen, handles >= 0), ms.int32))


@ms.jit_class
class CompositeDeliver:
    """``(marks, slots [n], ok)``: counts deliveries and removes rows that have had `max_use`, unless not `ok`."""

    def __init__(self, capacity: int, max_use: int | None) -> None:
        self.max_use = max_use
        self.remove = CompositeRemove(capacity)
        self.count = CompositeCount()

    def __call__(self, marks, slots, ok):
        deliveries = ops.broadcast_to(ops.cast(ok, ms.int32), slots.shape)
        use_counts = ops.scatter_add(marks[3], slots, deliveries)
        used_up = 0
        if self.max_use is not None:
            uses = ops.gather(use_counts, slots, 0)
            used_up = self.remove(marks, slots, ops.logical_and(ok, uses >= self.max_use))
        self.count(marks, (ops.cast(ok, ms.int64) * slots.shape[0], used_up, 0, 0, 0))


@ms.jit_class
class CompositeInsert:
    """``(columns, ring, marks, priority, rows)``: appends rows. Changes columns, ring and marks.

    `priority` is float32, one for all rows or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, capacity: int, columns: Columns, factors: Tensor) -> None:
        self.ring = CompositeRingWrite(capacity, columns.shapes)
        self.rows_at = CompositeGather(columns)
        self.shapes = columns.shapes
        self.weight_of = WeightOf(factors)
        self.tree = CompositeTree(capacity)
        self.ends = Tensor([0, capacity - 1], self.tree.index)
        self.views = InPlace((), np.float32), InPlace((), np.int32), InPlace((), np.int64)
        self.check = ops.Assert()

    def __call__(self, columns, ring, marks, priority, rows):
        return self.store(columns, ring, marks, priority, rows, self.accepts(priority))

    def accepts(self, priority):
        """Whether these are priorities; fails the graph if not."""
        ok = ops.all(ops.logical_and(ops.isfinite(priority), priority >= 0))
        self.check(ok, (priority,))
        return ok

    def store(self, columns, ring, marks, priority, rows, ok):
        """Appends the rows, unless not `ok`."""
        head, count, serials = ring[0], ring[1], ring[2]
        weights, priorities, max_priority = marks[0], marks[1], marks[2]
        use_counts, insertion_clocks, clock = marks[3], marks[4], marks[5]
        n = self.ring.rows_of(rows)
        slots = ops.cast(self.ring.slots(head, count, n), self.tree.index)
        given = ops.reshape(priority, (-1,))
        given = given[n - slots.shape[0] :] if given.shape[0] > 1 else ops.broadcast_to(given, slots.shape)
        # A check that failed does not stop what follows it: then what is there is written again.
        tree = self.tree.view(weights)
        weight = ops.select(ok, self.first_weight(given), ops.gather(tree, slots, 0))
        given = ops.select(ok, given, ops.gather(self.views[0](priorities), slots, 0))
        uses = ops.gather(self.views[1](use_counts), slots, 0)
        uses = ops.select(ok, ops.zeros_like(uses), uses)
        clocks = ops.gather(self.views[2](insertion_clocks), slots, 0)
        clocks = ops.select(ok, ops.zeros_like(clocks) + clock[0], clocks)
        self.ring.write(columns, slots, self.new_or_old(ok, columns, slots, n, rows))
        self.tree.write(weights, tree, slots, weight, slots >= 0, self.touched(slots))
        ops.scatter_update(priorities, slots, given)
        ops.scatter_update(use_counts, slots, uses)
        ops.scatter_update(insertion_clocks, slots, clocks)
        largest = ops.maximum(max_priority, ops.reduce_max(priority))
        ops.assign(max_priority, ops.select(ok, largest, max_priority))
        kept = self.ring.move(head, count, serials, n * ops.cast(ok, ms.int64))
        ops.assign(clock, ops.stack((clock[0], ops.maximum(clock[1], serials[0] - kept))))
        return kept

    def first_weight(self, priority):
        """The weights of new rows."""
        return self.weight_of(priority)

    def touched(self, slots):
        """Slots below each node above these: of every 16 in a row one, and the ends."""
        if slots.shape[0] <= FANOUT:
            return slots
        return ops.concat((slots[::FANOUT], slots[-1:], self.ends))

    def new_or_old(self, ok, columns, slots, n, rows):
        """The newest rows of a batch; what lies in their slots if not `ok`."""
        old = self.rows_at(columns, slots)
        batches = ()
        for i in range(len(columns)):
            batch = ops.reshape(rows[i], (n, *self.shapes[i]))[n - slots.shape[0] :]
            batches = (*batches, ops.select(ok, batch, old[i]))
        return batches


@ms.jit_class
class NativeInsert:
    """``(columns, ring, marks, priority, rows)``: appends rows. Changes columns, ring and marks.

    `priority` is float32, one for all rows or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors
        self.insert = native.custom("replay_insert_weighted", lambda *_: (), ms.int32)

    def __call__(self, columns, ring, marks, priority, rows):
        return self.insert(*columns, *ring, *marks, self.factors, priority, *rows)


@ms.jit_class
class CompositeUpdate:
    """``(column, ring, marks, handles [n], priority) -> dead handles``, int32 ``[]``. Changes marks.

    `priority` is float32, one for all handles or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, capacity: int, factors: Tensor) -> None:
        self.weight_of = WeightOf(factors)
        self.tree = CompositeTree(capacity)
        self.handles = Handles(capacity)
        self.last_of_each = LastOfEach()
        self.views = InPlace((), np.float32), InPlace((), np.int32)
        self.check = ops.Assert()
        self.count = CompositeCount()
        self.named = CompositeNamed()

    def __call__(self, column, ring, marks, handles, priority):
        weights, priorities, max_priority = marks[0], marks[1], marks[2]
        ok = ops.all(ops.logical_and(ops.isfinite(priority), priority >= 0))
        self.check(ok, (priority,))
        slots, stored = self.handles.slots(handles, ring)
        live = self.live(ring, marks, handles, slots, stored)
        written = ops.logical_and(live, ok)
        given = ops.broadcast_to(priority, slots.shape)
        last, exists, counted = self.last_of_each(slots, written)
        new = ops.gather(given, last, 0)
        tree = self.tree.view(weights)
        weight = ops.select(exists, self.weight_of(new), ops.gather(tree, slots, 0))
        old = ops.gather(self.views[0](priorities), slots, 0)
        ops.scatter_update(priorities, slots, ops.select(exists, new, old))
        self.tree.write(weights, tree, slots, weight, counted, slots)
        largest = ops.reduce_max(ops.select(written, given, ops.zeros_like(given)))
        ops.assign(max_priority, ops.maximum(max_priority, largest))
        dead = ops.logical_not(live)
        self.count(marks, (0, 0, 0, 0, self.named(handles, ops.logical_and(dead, ok))))
        return ops.reduce_sum(ops.cast(dead, ms.int32))

    def live(self, ring, marks, handles, slots, stored):
        """Which handles are those of rows that may be drawn."""
        return ops.logical_and(stored, ops.gather(self.views[1](marks[3]), slots, 0) >= 0)


@ms.jit_class
class NativeUpdate:
    """``(column, ring, marks, handles [n], priority) -> dead handles``, int32 ``[]``. Changes marks.

    `priority` is float32, one for all handles or one for each, shape ``[]`` or ``[n]``.
    """

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors
        self.update = native.custom("replay_update_priorities", lambda *_: (1,), ms.int32)

    def __call__(self, column, ring, marks, handles, priority):
        return ops.reshape(self.update(column, *ring, *marks, self.factors, handles, priority), ())


@ms.jit_class
class CompositeDelete:
    """``(column, ring, marks, handles [n]) -> rows removed``, int32 ``[]``. Changes marks."""

    def __init__(self, capacity: int) -> None:
        self.handles = Handles(capacity)
        self.remove = CompositeRemove(capacity)
        self.count = CompositeCount()
        self.named = CompositeNamed()

    def __call__(self, column, ring, marks, handles):
        slots, stored = self.handles.slots(handles, ring)
        uses = ops.gather(self.remove.view(marks[3]), slots, 0)
        live = ops.logical_and(stored, uses >= 0)
        deleted = self.remove(marks, slots, live)
        self.count(marks, (0, 0, 0, deleted, self.named(handles, ops.logical_not(live))))
        return deleted


@ms.jit_class
class NativeDelete:
    """``(column, ring, marks, handles [n]) -> rows removed``, int32 ``[]``. Changes marks."""

    def __init__(self) -> None:
        self.delete = native.custom("replay_delete", lambda *_: (1,), ms.int32)

    def __call__(self, column, ring, marks, handles):
        return ops.reshape(self.delete(column, *ring, *marks, handles), ())


@ms.jit_class
class CompositeAdvance:
    """``(column, ring, marks, steps int64 [])``: moves the clock and removes rows that became stale. Changes marks.

    Rows lie in the order of their clocks, so it goes on from the oldest that was not stale, some at a time.
    """

    AT_ONCE = 64

    def __init__(self, capacity: int, max_staleness: int | None) -> None:
        self.max_staleness = max_staleness
        self.remove = CompositeRemove(capacity)
        self.handles = Handles(capacity)
        self.view = InPlace((), np.int64)
        self.offsets = Tensor(np.arange(self.AT_ONCE), ms.int64)
        self.zero = Tensor(0, ms.int64)
        self.last = Tensor(LAST_CLOCK, ms.int64)
        self.check = ops.Assert()
        self.count = CompositeCount()

    def __call__(self, column, ring, marks, steps):
        clock = marks[5]
        now = clock[0] + steps
        ok = ops.logical_and(steps >= self.zero, steps <= self.last - clock[0])
        self.check(ok, (steps, clock[0]))
        now = ops.select(ok, now, clock[0])
        first = clock[1]
        if self.max_staleness is not None:
            stale = ops.cast(self.AT_ONCE, ms.int64)
            while stale == self.AT_ONCE:
                slots, removed = self.stale(ring, marks, first, now)
                gone = self.take_away(ring, marks, first, slots, removed)
                self.count(marks, (0, 0, gone, 0, 0))
                stale = ops.reduce_sum(ops.cast(removed, ms.int64))
                first = first + stale
        ops.assign(clock, ops.stack((now, first)))
        return now

    def take_away(self, ring, marks, first, slots, removed):
        """Removes those of the rows from serial number `first` on that are not removed yet."""
        uses = ops.gather(self.remove.view(marks[3]), slots, 0)
        return self.remove(marks, slots, ops.logical_and(removed, uses >= 0))

    def stale(self, ring, marks, first, now):
        handles = first + self.offsets
        slots, stored = self.handles.slots(handles, ring)
        age = now - ops.gather(self.view(marks[4]), slots, 0)
        return slots, ops.logical_and(stored, age > self.max_staleness)


@ms.jit_class
class NativeAdvance:
    """``(column, ring, marks, steps int64 [])``: moves the clock and removes rows that became stale. Changes marks."""

    def __init__(self, max_staleness: int | None) -> None:
        self.max_staleness = Tensor([-1 if max_staleness is None else max_staleness], ms.int64)
        self.advance = native.custom("replay_advance", lambda *_: (1,), ms.int64)

    def __call__(self, column, ring, marks, steps):
        return self.advance(column, *ring, *marks, steps, self.max_staleness)


@ms.jit_class
class CompositeInfo:
    """``(column, ring, marks, handles [n]) -> priority float32, use count int32, staleness int64``, each ``[n]``."""

    def __init__(self, capacity: int) -> None:
        self.handles = Handles(capacity)
        self.views = InPlace((), np.float32), InPlace((), np.int32), InPlace((), np.int64)

    def __call__(self, column, ring, marks, handles):
        priorities, use_counts, insertion_clocks, clock = marks[1], marks[3], marks[4], marks[5]
        slots, stored = self.handles.slots(handles, ring)
        priority = ops.gather(self.views[0](priorities), slots, 0)
        uses = ops.gather(self.views[1](use_counts), slots, 0)
        uses = ops.select(uses < 0, -1 - uses, uses)
        age = clock[0] - ops.gather(self.views[2](insertion_clocks), slots, 0)
        self.views[0].done(priorities, (priority, uses, age))
        return (
            ops.select(stored, priority, ops.zeros_like(priority)),
            ops.select(stored, uses, ops.zeros_like(uses) - 1),
            ops.select(stored, age, ops.zeros_like(age) - 1),
        )


@ms.jit_class
class NativeInfo:
    """``(column, ring, marks, handles [n]) -> priority float32, use count int32, staleness int64``, each ``[n]``."""

    def __init__(self) -> None:
        types = ms.float32, ms.int32, ms.int64
        self.info = native.custom("replay_info", lambda *shapes: (shapes[-1],) * 3, types)

    def __call__(self, column, ring, marks, handles):
        return self.info(column, *ring, *marks, handles)


@ms.jit_class
class CompositeReset:
    """``(column, ring, marks)``: forgets all rows; serial numbers and counts go on. Changes ring, marks. Costs O(C)."""

    def __init__(self, capacity: int, zeroed: tuple[int, ...] = (1, 3, 4)) -> None:
        self.zeroed = zeroed  # which marks
        self.empty = Tensor(initial_weights(capacity))
        self.one = Tensor(1.0, ms.float32)
        self.zero = Tensor(0, ms.int32)

    def __call__(self, column, ring, marks):
        serials, clock = ring[2], marks[5]
        ops.assign(marks[0], self.empty)
        for i in self.zeroed:
            ops.assign(marks[i], ops.zeros_like(marks[i]))
        ops.assign(marks[2], self.one)
        ops.assign(clock, ops.stack((serials[0] - serials[0], serials[0])))
        ops.assign(serials, ops.stack((serials[0], serials[0])))
        ops.assign(ring[0], self.zero)
        ops.assign(ring[1], self.zero)
        return self.zero + 0


@ms.jit_class
class NativeReset:
    """``(column, ring, marks)``: forgets all rows; serial numbers and counts go on. Changes ring, marks. Costs O(C)."""

    def __init__(self) -> None:
        self.reset = native.custom("replay_reset_weighted", lambda *_: (), ms.int32)

    def __call__(self, column, ring, marks):
        return self.reset(column, *ring, *marks)
