"""Composite operators: what graphs do without kernels, by MindSpore's own operators, on any device.

They serve single rows, uniformly or by priority, with limits. Results and state are the kernels', bit for bit. With
weights a call costs O(C), since a change recomputes the tree from its leaves; without, O(rows touched). After a failed
check operators write the old contents again. Columns are Parameters ``[C, *F]``, rows Tensors ``[*F]`` or ``[n, *F]``.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from ..columns import Columns, numpy_type
from ..store.base.checks import LAST_CLOCK
from ..store.base.late import MOST_USES
from ..store.base.random import ALL_ROWS
from ..store.base.structs import COUNTS
from ..store.kernels.library import BAD_WEIGHT, FAILURES, OUT_OF_RANGE, TOO_FEW_ROWS
from ..store.kernels.state import UPDATE_BLOCK
from ..store.kernels.tree import FANOUT, initial_weights, levels, tree_size
from ..store.spec.options import Options
from ..store.spec.plan import SamplePlan
from .checks import blank, check, stops_graphs
from .in_place import InPlace, Stored
from .primitives import (
    column,
    concat,
    gather,
    int64,
    item,
    normal,
    range_of,
    searchsorted,
    searchsorted_int32,
    stack,
    zeros_like,
)
from .random import random_bits, ranks, rows_between, unit_interval
from .state import State

#: Places of the events that are counted.
DRAWN, USED_UP, STALE, DELETED, INVALID = range(len(COUNTS))
_NONE, _DEAD = Tensor([-1], ms.int64), Tensor((1 << 62) - 1, ms.int64)


@ms.jit_class
class DrawUniform:
    """``(state, head, count, sample_range [2]) -> slots [n] int64, ok``: uniform. Changes the state if `ok`."""

    def __init__(self, plan: SamplePlan, capacity: int) -> None:
        self.n, self.needed, self.replace, self.ordered = plan.n, plan.needed, plan.replace, plan.ordered
        self.capacity, self.check = capacity, check("sample", FAILURES[TOO_FEW_ROWS])

    def __call__(self, state, head, count, sample_range):
        """Draw slots, and advance the state if `ok`."""
        head = ops.cast(head, ms.int64)
        first, size = rows_between(sample_range, count)
        enough = size >= int64(self.needed)
        self.check(enough, (size, int64(self.needed)))
        bits, advanced = random_bits(state, self.n)
        rows = ranks(bits, size, self.replace) + first
        ops.assign(state, ops.select(enough, advanced, state))
        slots = ops.floor_mod(rows + head, int64(self.capacity))
        if not self.ordered:
            slots = ops.select(size < int64(self.capacity), slots, rows)
        return slots, enough


@ms.jit_class
class Gather:
    """``(columns, slots) -> rows`` of the columns' own types. `slots` is ``[n]`` or ``[]``."""

    def __init__(self, columns: Columns) -> None:
        self.types, stored = columns.types, map(numpy_type, columns.stored_types)
        self.views = tuple(InPlace(shape, dtype) for shape, dtype in zip(columns.shapes, stored))

    def __call__(self, columns, slots):
        """Return copies of the rows in these slots."""
        rows = ()
        for i in range(len(columns)):
            rows = (*rows, ops.cast(gather(self.views[i](columns[i]), slots, 0), self.types[i]))
        self.views[0].done(columns[0], rows)
        return rows


def _newest(batch, n):
    """Return a copy of the last n rows of a batch, which may be a column of the buffer itself."""
    return batch[batch.shape[0] - n :]


@ms.jit_class
class RingWrite:
    """``(columns, head, count, serials, rows, ok) -> slots`` of the newest rows: appends rows. `ok` may be ``None``."""

    def __init__(self, capacity: int, columns: Columns) -> None:
        self.capacity, self.shapes, self.gather = capacity, columns.shapes, Gather(columns)
        self.inserted, self.rank = Tensor([1, 0], ms.int64), len(columns.shapes[0])

    def __call__(self, columns, head, count, serials, rows, ok):
        """Append rows, and return the slots of the newest."""
        n = 1 if ops.rank(rows[0]) == self.rank else rows[0].shape[0]
        first, stored = ops.cast(head, ms.int64), ops.cast(count, ms.int64)
        written = n if n < self.capacity else self.capacity
        slots = ops.floor_mod(first + stored + (n - written) + range_of(written), int64(self.capacity))
        places, old = ops.cast(slots, ms.int32), () if ok is None else self.gather(columns, slots)
        for i in range(len(columns)):
            batch = _newest(ops.reshape(rows[i], (n, *self.shapes[i])), written)
            batch = batch if ok is None else ops.select(ok, batch, old[i])
            ops.scatter_update(columns[i], places, ops.cast(batch, columns[i].dtype))
        moved = n if ok is None else n * ops.cast(ok, ms.int64)
        after = ops.minimum(stored + moved, int64(self.capacity))
        ops.assign(head, ops.cast(ops.floor_mod(first + stored + moved - after, int64(self.capacity)), ms.int32))
        ops.assign(count, ops.cast(after, ms.int32))
        ops.assign(serials, serials + self.inserted * moved)
        return slots


@ms.jit_class
class RingRead:
    """``(columns, head, count, index) -> rows``. `index` is int64, ``[n]`` or ``[]``: 0 the oldest, -1 the newest."""

    def __init__(self, capacity: int, columns: Columns) -> None:
        self.capacity, self.gather = capacity, Gather(columns)
        self.check, self.blank = check("read", FAILURES[OUT_OF_RANGE]), blank()

    def __call__(self, columns, head, count, index):
        """Return the rows at logical positions. Fail the graph if one has no row."""
        stored = ops.cast(count, ms.int64)
        inside = ops.logical_and(index >= -stored, index < stored)
        ok = ops.all(inside)
        self.check(ok, (index, stored))
        row = ops.select(inside, ops.select(index < int64(0), index + stored, index), zeros_like(index))
        rows = self.gather(columns, ops.floor_mod(row + ops.cast(head, ms.int64), int64(self.capacity)))
        return rows if self.blank is None else self.blank(rows, ok)


def last_of_each(slots, live):
    """Return for each entry the last live one with its slot, whether one exists, and whether it is that one itself."""
    n = slots.shape[0]
    index = range_of(n)
    first = ops.cast(slots, ms.int64) * n
    order = ops.sort(ops.select(live, first + index, _DEAD))[0]
    # Number of entries of this slot or a smaller one; after `_NONE`, the last of them.
    before = searchsorted_int32(order, first + n)
    found = gather(concat((_NONE, order)), before, 0) - first
    return ops.maximum(found, int64(0)), found >= int64(0), found == index


@ms.jit_class
class Tree(Stored):
    """The tree of weights (store/kernels/tree.py). `tree` is the result of `view`."""

    def __init__(self, weights: Parameter, capacity: int) -> None:
        super().__init__(weights)
        self.index = ms.int32 if tree_size(capacity) < 2**31 else ms.int64
        self.slots = Tensor(np.arange(capacity), self.index)
        self.heights = levels(capacity)
        sizes = [capacity, *(level.nodes for level in self.heights)]
        #: What fills up each level to whole rows; the last of all numbers is that of positive weights.
        self.pads = tuple(-size % FANOUT for size in sizes)
        self.zeros = tuple(Tensor(np.zeros(max(pad, 1))) for pad in self.pads)
        self.infinities = tuple(Tensor(np.full(max(pad, 1), np.inf)) for pad in (*self.pads[:-1], FANOUT - 2))
        self.children = tuple(Tensor([level.children + np.arange(FANOUT)], self.index) for level in self.heights)
        places = self.heights[-1].sums, self.heights[-1].minima, tree_size(capacity) - 1
        self.total_at, self.least_at, self.positive_at = (Tensor(place, self.index) for place in places)
        self.infinity, self.before_each = Tensor(np.inf, ms.float64), ops.CumSum(exclusive=True)

    def refresh(self, removed):
        """Set the leaves of removed rows, bool ``[C]``, to zero, and compute all nodes. Cost O(C)."""
        leaves = gather(self.view(), self.slots, 0)
        leaves = ops.select(removed, zeros_like(leaves), leaves)
        positive = ops.reshape(ops.reduce_sum(ops.cast(leaves > 0, ms.float64)), (1,))
        sums = concat((leaves, self.zeros[0])) if self.pads[0] > 0 else leaves
        minima = ops.masked_fill(sums, sums <= 0, self.infinity)
        all_sums, all_minima = (sums,), ()
        for i in range(1, len(self.pads)):
            # A cumulative sum adds in the kernels' order.
            sums = column(ops.cumsum(ops.reshape(sums, (-1, FANOUT)), 1), FANOUT - 1)
            minima = ops.reduce_min(ops.reshape(minima, (-1, FANOUT)), 1)
            if self.pads[i] > 0:
                sums, minima = concat((sums, self.zeros[i])), concat((minima, self.infinities[i]))
            all_sums, all_minima = (*all_sums, sums), (*all_minima, minima)
        ops.assign(self.parameter, concat((*all_sums, *all_minima, positive)))

    def descend(self, tree, targets, ok):
        """Return the slots at which targets in ``(0, total]`` fall, of dtype `index`. Slot 0 for all if not `ok`."""
        targets = ops.expand_dims(ops.select(ok, targets, zeros_like(targets)), 1)
        nodes = ops.cast(zeros_like(targets), self.index)
        for height in range(len(self.children) - 1, -1, -1):
            first = nodes * FANOUT
            sums = gather(tree, first + self.children[height], 0)
            prefix = ops.cumsum(sums, 1)
            targets = ops.minimum(targets, ops.expand_dims(column(prefix, FANOUT - 1), 1))
            child = searchsorted(prefix, targets)
            targets = targets - ops.gather_elements(self.before_each(sums, 1), 1, child)
            nodes = first + ops.cast(child, self.index)
        return ops.reshape(nodes, (-1,))


@ms.jit_class
class CompositeOperators:
    """What `Operators` does by kernels, for a buffer of single rows, with the same arguments."""

    def __init__(self, state: State, columns: Columns, options: Options) -> None:
        plan = options.plan
        self.state, self.capacity, self.shapes = state, state.capacity, columns.shapes
        self.all_rows, self.wanted = Tensor(ALL_ROWS, ms.int64), options.rows_to_wait_for
        self.zero, self.none, self.blank = Tensor(0, ms.int32), Tensor(-1, ms.int64), blank()
        #: Whether graphs go on after a failure, and a call from Python reports it.
        self.goes_on = not stops_graphs()
        self.ring, self.reading = RingWrite(state.capacity, columns), RingRead(state.capacity, columns)
        self.gather, self.uniform = Gather(columns), DrawUniform(plan, state.capacity)
        self.weighted, self.prioritized = options.weighting is not None, options.beta is not None
        if not self.weighted:
            return
        self.n, self.needed, self.replace, self.ordered = plan.n, plan.needed, plan.replace, plan.ordered
        self.alpha, self.epsilon = (Tensor(number, ms.float64) for number in options.weighting or ())
        self.tree = Tree(state.weights, state.capacity)
        self.priorities, self.use_counts = Stored(state.priorities), Stored(state.use_counts)
        self.clocks, self.updates = Stored(state.insertion_clocks), Stored(state.updates)
        self.contents = tuple(map(Stored, state.columns))
        self.largest_held = options.largest_held
        self.rows, self.most_uses = Tensor(np.arange(state.capacity), ms.int64), Tensor(MOST_USES, ms.int32)
        self.max_use, self.max_staleness = plan.max_use, options.max_staleness
        self.units = tuple(Tensor(unit) for unit in np.eye(len(COUNTS), dtype=np.int64))
        self.block, self.first = Tensor(UPDATE_BLOCK, ms.int32), Tensor([0], ms.int32)
        self.empty = Tensor(initial_weights(state.capacity))
        self.check_rows = check("sample", FAILURES[TOO_FEW_ROWS])
        bad = FAILURES[BAD_WEIGHT]
        self.check_beta, self.check_insert = check("sample", bad), check("insert", bad)
        self.check_priority = check("update_priorities", bad)
        self.check_clock = check("advance", "the clock would go back, or pass 2^62")
        if self.prioritized:
            self.beta, self.first_beta = Stored(state.beta), Tensor([options.beta], ms.float64)
            self.size, self.strata = Tensor(plan.n, ms.float64), Tensor(np.arange(plan.n), ms.float64)
            self.by_buffer, self.one = plan.by_buffer, Tensor(1.0, ms.float64)
            self.moves, self.beta_step = plan.beta_step > 0, Tensor(plan.beta_step, ms.float64)

    # A row is invalid if it is not stored, or removed: then its use count is the complement of what it was.

    def slots(self, handles):
        """Return slots, all in ``[0, C)``, and whether they contain the rows of these handles."""
        serials = self.state.serials
        oldest = item(serials, 0) - ops.cast(self.state.count, ms.int64)
        stored = ops.logical_and(handles >= oldest, handles < item(serials, 0))
        return ops.cast(ops.floor_mod(handles - item(serials, 1), self.capacity), self.tree.index), stored

    def handles(self, slots):
        """Return the handles of the rows in slots, ``[n]``."""
        row = ops.cast(ops.floor_mod(slots - self.state.head, self.capacity), ms.int64)
        return row + item(self.state.serials, 0) - ops.cast(self.state.count, ms.int64)

    def weight_of(self, priority):
        """Return ``(priority + epsilon)^alpha``, rounded to float32, since power functions differ in the last bits."""
        weight = ops.pow(ops.cast(priority, ms.float64) + self.epsilon, self.alpha)
        return ops.cast(ops.cast(weight, ms.float32), ms.float64)

    def remove(self, slots, chosen):
        """Remove the chosen rows, and return their number, int32 ``[]``."""
        _, exists, counted = last_of_each(slots, chosen)
        self.use_counts.replace(slots, exists, -1 - self.use_counts.at(slots))
        self.tree.refresh(self.use_counts.view() < 0)
        return ops.reduce_sum(ops.cast(counted, ms.int32))

    def count_events(self, place, number):
        """Add to a counter."""
        ops.assign(self.state.counts, self.state.counts + self.units[place] * ops.cast(number, ms.int64))

    def count_invalid(self, handles, invalid, counts):
        """Return the number of invalid handles, int32 ``[]``. If it `counts`, add that of those that name a row."""
        if counts:
            named = ops.logical_and(invalid, handles >= 0)
            self.count_events(INVALID, ops.reduce_sum(ops.cast(named, ms.int32)))
        return ops.reduce_sum(ops.cast(invalid, ms.int32))

    def insert(self, rows, priority, ends, version):
        """Store rows, and return the handle of the first, or -1 if they were refused. The last two are ``None``."""
        state = self.state
        first = item(state.serials, 0) + int64(0)
        if not self.weighted:
            self.ring(state.columns, state.head, state.count, state.serials, rows, None)
            return first
        if priority is not None:
            largest = ops.maximum(state.max_priority, ops.reduce_max(priority))
        else:
            priority = largest = self.largest() if self.largest_held else state.max_priority + 0.0
        ok = ops.all(ops.logical_and(ops.isfinite(priority), priority >= 0))
        self.check_insert(ok, (priority,))
        slots = ops.cast(self.ring(state.columns, state.head, state.count, state.serials, rows, ok), self.tree.index)
        priorities, shape = ops.reshape(normal(priority), (-1,)), slots.shape
        priorities = _newest(priorities, shape[0]) if priorities.shape[0] > 1 else ops.broadcast_to(priorities, shape)
        self.priorities.replace(slots, ok, priorities)
        self.use_counts.replace(slots, ok, ops.broadcast_to(self.zero, slots.shape))
        self.clocks.replace(slots, ok, item(state.clock, 0))
        self.tree.replace(slots, ok, self.weight_of(priorities))
        self.tree.refresh(self.use_counts.view() < 0)
        ops.assign(state.max_priority, ops.select(ok, largest, state.max_priority))
        oldest = ops.maximum(item(state.clock, 1), item(state.serials, 0) - ops.cast(state.count, ms.int64))
        ops.assign(state.clock, stack((item(state.clock, 0), oldest, item(state.clock, 2))))
        return ops.select(ok, first, self.none) if self.goes_on else first

    def largest(self):
        """Return the largest priority of the rows stored, the initial one if there are none."""
        stored = ops.floor_mod(self.rows - ops.cast(self.state.head, ms.int64), self.capacity) < self.state.count
        valid = ops.logical_and(stored, self.use_counts.view() >= 0)
        priorities = self.priorities.view()
        largest = ops.reduce_max(ops.select(valid, priorities, zeros_like(priorities) - 1))
        return ops.select(largest < 0, self.state.initial_priority, largest)

    def sample(self, sample_range, given_beta):
        """Draw a sample: ``-> outputs`` of the plan. `given_beta`, float64, overrides beta unless it is ``None``."""
        state, first = self.state, ()
        sample_range = self.all_rows if sample_range is None else sample_range
        if self.prioritized:
            slots, first, ok = self.by_priority(given_beta)
        elif self.weighted:
            slots, ok = self.by_rank(sample_range)
        else:
            slots, ok = self.uniform(state.random_state, state.head, state.count, sample_range)
        outputs = (*first, *self.gather(state.columns, slots))
        if self.blank is not None:
            outputs = self.blank(outputs, ok)
        if not self.weighted:
            return outputs
        handles = ops.select(ok, self.handles(slots), self.none) if self.goes_on else self.handles(slots)
        self.tree.done((handles, outputs))
        self.deliver(slots, ok)
        return (handles, *outputs)

    draw = sample

    def eligible_of(self, sample_range):
        """Return all slots in the order of ranks, and for each the number of eligible rows of the range up to it."""
        first, size = rows_between(sample_range, self.state.count)
        begin = first + ops.cast(self.state.head, ms.int64)
        begin = begin if self.ordered else ops.select(size < self.capacity, begin, int64(0))
        slots = ops.cast(ops.floor_mod(begin + self.rows, self.capacity), self.tree.index)
        eligible = ops.logical_and(self.rows < size, gather(self.tree.view(), slots, 0) > 0)
        return slots, ops.cumsum(ops.cast(eligible, ms.int32), 0)

    def by_rank(self, sample_range):
        """Draw eligible rows of a range: ``-> slots [n], ok``. Weights are 0 and 1."""
        state, (slots, counts) = self.state, self.eligible_of(sample_range)
        found = ops.cast(item(counts, self.capacity - 1), ms.int64)
        ok = found >= int64(self.needed)
        self.check_rows(ok, (found, int64(self.needed)))
        bits, advanced = random_bits(state.random_state, self.n)
        rank = ops.cast(ranks(bits, found, self.replace) + int64(1), ms.int32)
        place = ops.minimum(ops.cast(searchsorted_int32(counts, rank), ms.int64), int64(self.capacity - 1))
        ops.assign(state.random_state, ops.select(ok, advanced, state.random_state))
        return gather(slots, place, 0), ok

    def by_priority(self, given_beta):
        """Draw a row from each of n equal strata of the weight: ``-> slots [n], (importance weights [n],), ok``."""
        state, view, now = self.state, self.tree.view(), self.beta.view()
        total, positive = gather(view, self.tree.total_at, 0), gather(view, self.tree.positive_at, 0)
        ok = positive >= self.needed
        self.check_rows(ok, (positive,))
        if given_beta is not None:
            in_range = ops.logical_and(given_beta >= 0, given_beta <= self.one)
            self.check_beta(in_range, (given_beta,))
            ok = ops.logical_and(ok, in_range)
        bits, advanced = random_bits(state.random_state, self.n)
        targets = (self.strata + unit_interval(bits)) * (total / self.size)
        slots = self.tree.descend(view, ops.minimum(targets, total), ok)
        weights = gather(view, slots, 0)
        importance = (gather(view, self.tree.least_at, 0) if self.by_buffer else ops.reduce_min(weights)) / weights
        importance = ops.cast(ops.pow(importance, now if given_beta is None else given_beta), ms.float32)
        ops.assign(state.random_state, ops.select(ok, advanced, state.random_state))
        if self.moves:
            moved = ops.select(ok, ops.minimum(now + self.beta_step, self.one), now)
            ops.assign(state.beta, ops.depend(moved, importance))
        return slots, (importance,), ok

    def deliver(self, slots, ok):
        """Count deliveries, and remove rows that are used up, unless not `ok`."""
        slots, counts = ops.cast(slots, self.tree.index), self.use_counts
        ops.scatter_add(counts.parameter, slots, ops.broadcast_to(ops.cast(ok, ms.int32), slots.shape))
        uses = counts.at(slots)
        self.count_events(DRAWN, self.n * ops.cast(ok, ms.int64))
        if self.max_use is None:
            ops.scatter_update(counts.parameter, slots, ops.minimum(uses, self.most_uses))
        else:
            self.count_events(USED_UP, self.remove(slots, ops.logical_and(ok, uses >= self.max_use)))

    def read(self, index):
        """Read rows: ``-> rows``. `index` is int64, ``[n]`` or ``[]``: 0 the oldest, -1 the newest."""
        return self.reading(self.state.columns, self.state.head, self.state.count, index)

    def count(self):
        """Return the number of rows stored, int32 ``[]``."""
        return self.state.count

    def full(self):
        """Return whether there is no room for another row, bool ``[]``."""
        return self.state.count >= self.capacity

    def eligible(self):
        """Return the number of rows that may be drawn."""
        if not self.weighted:
            return self.state.count
        positive = gather(self.tree.view(), self.tree.positive_at, 0)
        self.tree.done(positive)
        return positive

    available = eligible

    def eligible_in(self, sample_range):
        """Count the rows of a range of logical rows, int64 ``[2]``, that may be drawn."""
        counts = self.eligible_of(sample_range)[1]
        self.tree.done(counts)
        return item(counts, self.capacity - 1)

    def rows_to_wait_for(self):
        """Return the number of eligible rows from which on `can_sample` is true."""
        return self.wanted

    def info(self, handles):
        """Return priorities, use counts and stalenesses, each ``[n]``, with 0, -1 and -1 for rows not stored."""
        slots, stored = self.slots(handles)
        priority, uses = self.priorities.at(slots), self.use_counts.at(slots)
        uses = ops.select(uses < 0, -1 - uses, uses)
        age = item(self.state.clock, 0) - self.clocks.at(slots)
        self.priorities.done((priority, uses, age))
        uses = ops.select(stored, uses, zeros_like(uses) - 1)
        return ops.select(stored, priority, zeros_like(priority)), uses, ops.select(stored, age, zeros_like(age) - 1)

    def update(self, column, counts, handles, rows):
        """Write `rows`, ``[n, *F]``, to a column: ``-> invalid handles``. Of several rows for one the last counts."""
        slots, stored = self.slots(handles)
        live = ops.logical_and(stored, self.use_counts.at(slots) >= 0)
        last, exists, _ = last_of_each(slots, live)
        content, ones = self.contents[column], (1,) * len(self.shapes[column])
        new = gather(ops.cast(rows, content.parameter.dtype), last, 0)
        content.replace(slots, ops.reshape(exists, (-1, *ones)), new)
        number, blocks = self.updates.at(self.first) + 1, ops.floor_div(ops.cast(slots, ms.int32), self.block) + 1
        blocks = ops.select(live, blocks, zeros_like(blocks))
        ops.scatter_update(self.state.updates, blocks, ops.broadcast_to(number, blocks.shape))
        ops.scatter_update(self.state.updates, self.first, number)
        return self.count_invalid(handles, ops.logical_not(live), counts)

    def update_priorities(self, handles, priority):
        """Set the priorities of rows: ``-> invalid handles``. `priority` is float32, ``[]`` or ``[n]``."""
        ok = ops.all(ops.logical_and(ops.isfinite(priority), priority >= 0))
        self.check_priority(ok, (priority,))
        slots, stored = self.slots(handles)
        valid = ops.logical_and(stored, self.use_counts.at(slots) >= 0)
        written, priorities = ops.logical_and(valid, ok), ops.broadcast_to(normal(priority), slots.shape)
        last, exists, _ = last_of_each(slots, written)
        new = gather(priorities, last, 0)
        self.priorities.replace(slots, exists, new)
        self.tree.replace(slots, exists, self.weight_of(new))
        self.tree.refresh(self.use_counts.view() < 0)
        largest = ops.reduce_max(ops.select(written, priorities, zeros_like(priorities)))
        ops.assign(self.state.max_priority, ops.maximum(self.state.max_priority, largest))
        return self.count_invalid(handles, ops.logical_and(ops.logical_not(valid), ok), True)

    def delete(self, handles):
        """Remove rows: ``-> rows removed``, int32 ``[]``."""
        slots, stored = self.slots(handles)
        found = ops.logical_and(stored, self.use_counts.at(slots) >= 0)
        deleted = self.remove(slots, found)
        self.count_events(DELETED, deleted)
        self.count_invalid(handles, ops.logical_not(found), True)
        return deleted

    def advance(self, steps):
        """Advance the clock by `steps`, int64 ``[]``, remove rows that became stale, and return the new time."""
        clock = self.state.clock
        now, fresh, unordered = item(clock, 0), item(clock, 1), item(clock, 2)
        ok = ops.logical_and(steps >= int64(0), steps <= int64(LAST_CLOCK) - now)
        self.check_clock(ok, (steps, now))
        now = ops.select(ok, now + steps, now)
        if self.max_staleness is not None:
            # From the oldest row that was not stale before; after it is the next row, if no other is fresh now.
            handles, next_row = self.handles(self.rows), item(self.state.serials, 0)
            candidates = ops.logical_and(handles >= fresh, handles < next_row)
            stale = ops.logical_and(candidates, now - self.clocks.view() > self.max_staleness)
            others = ops.logical_and(candidates, ops.logical_not(stale))
            fresh = ops.reduce_min(ops.select(others, handles, zeros_like(handles) + next_row))
            stale = ops.logical_and(stale, self.use_counts.view() >= 0)
            self.count_events(STALE, self.remove(self.tree.slots, stale))
        ops.assign(clock, stack((now, fresh, unordered)))
        return now

    def reset(self):
        """Remove all rows. Serial numbers and counters continue, and beta is reset."""
        state, serials = self.state, self.state.serials
        if self.prioritized:
            ops.assign(state.beta, self.first_beta)
        if self.weighted:
            ops.assign(state.weights, self.empty)
            for array in (state.priorities, state.use_counts, state.insertion_clocks):
                ops.assign(array, zeros_like(array))
            ops.assign(state.max_priority, state.initial_priority)
            none = item(serials, 0) - item(serials, 0)
            ops.assign(state.clock, stack((none, item(serials, 0), none)))
        ops.assign(serials, stack((item(serials, 0), item(serials, 0))))
        ops.assign(state.head, self.zero)
        ops.assign(state.count, self.zero)
        return self.zero + 0
