"""Contents of a sample: the rows drawn, and rows around them if they are the starts of windows.

Axes: ``B`` samples, ``T`` steps of a window, ``*F`` a column's shape.
"""

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import TYPES, Columns, numpy_type
from ..store.spec.episodes import DELETED, END, FINAL, WindowRule
from ..store.spec.plan import (
    CHAIN,
    DISCOUNT,
    FROM_LAST,
    FROM_START,
    GIVEN,
    GOAL,
    HANDLE,
    LENGTH,
    MASK,
    OF_CHAIN,
    RELABELLED,
    REPEATED,
    REPEATED_STACK,
    RETURN,
    STACKS,
    WEIGHT,
    Output,
    SamplePlan,
)
from .access import Access
from .primitives import column, columns, concat_columns, gather, zeros_like
from .random import random_bits, ranks, unit_interval


def places(plan: SamplePlan, first: Sequence[int], by_column: bool) -> tuple[int, ...]:
    """Return the index of each output of a plan among an operator's outputs.

    The operator's are outputs of the kinds `first`, then rows of all columns, or the plan's other outputs in order.

    Args:
        plan (SamplePlan): The plan.
        first (Sequence[int]): Kinds of outputs.
        by_column (bool): Whether rows of all columns follow them.
    """
    around = plan.around
    return tuple(
        first.index(WEIGHT if output.kind == GIVEN else output.kind)  # a draw gives one of the two
        if output.kind in (HANDLE, WEIGHT, GIVEN)
        else len(first) + (output.column if by_column else around.index(output))
        for output in plan.outputs
    )


def products_of(discounts):
    """Return the products of the first 0, 1, ... discounts of each row of a matrix, float64 ``[m, n + 1]``."""
    discounts = ops.cast(discounts, ms.float64)
    longest = discounts.shape[1]
    product = ops.ones_like(columns(discounts, 0, 1))
    products = (product,)
    for step in range(longest):
        product = product * columns(discounts, step, step + 1)
        products = (*products, product)
    return concat_columns(products)


@ms.jit_class
class RowsDrawn:
    """``(slots [n], importance weights [n], ok) -> outputs`` of a plan whose outputs are only the rows drawn."""

    def __init__(self, state: Access, plan: SamplePlan, columns: Columns) -> None:
        self.state = state
        self.gives_handles = any(output.kind == HANDLE for output in plan.outputs)
        self.places = places(plan, (HANDLE, WEIGHT), True)

    def __call__(self, slots, importance, ok):
        """Return the outputs."""
        handles = self.state.handles(slots) if self.gives_handles else None
        values = (handles, importance, *self.state.rows_at(slots))
        outputs = ()
        for place in self.places:
            outputs = (*outputs, values[place])
        return outputs


@ms.jit_class
class WindowsAround:
    """``(starts [n], importance weights [n], ok) -> outputs`` of a plan with other rows than those drawn.

    Changes the random state if goals are drawn, unless not `ok`.
    """

    def __init__(self, state: Access, plan: SamplePlan, columns: Columns, rule: WindowRule) -> None:
        self.state, self.plan, self.rule = state, plan, rule
        self.around = tuple(_Around(output, state, plan, rule.streams, columns) for output in plan.around)
        self.places = places(plan, (HANDLE, WEIGHT), False)
        self.reach = plan.reach
        steps = max(self.reach, plan.chain + plan.needs_next)
        self.ahead = Tensor(np.arange(steps)[None], ms.int64)
        self.by_steps = plan.by_steps
        self.goals = _GoalRows(state, plan, rule.streams) if plan.strategy != "none" else None

    def __call__(self, starts, importance, ok):
        """Return the outputs."""
        slots = ops.cast(starts, ms.int64)
        handles = self.state.handles(slots)
        steps = self.state.steps.at(slots)
        after, sample_steps, transitions = self.extent(handles)
        goals, relabelled = slots, slots < 0
        if self.goals is not None:
            goals, relabelled = self.goals(handles, slots, steps, ok)
        before = ops.minimum(steps, self.rule.past)
        values = (handles, importance)
        for i in range(len(self.around)):
            values = (*values, self.around[i](slots, before, after, sample_steps, transitions, goals, relabelled))
        outputs = ()
        for place in self.places:
            outputs = (*outputs, values[place])
        self.state.steps.done(outputs)
        return outputs

    def extent(self, handles):
        """Return, from each start on, the steps of its episode, the steps in the sample, and the transitions."""
        window, exists = self.state.slots(ops.expand_dims(handles, 1) + self.ahead * self.rule.streams)
        flags = ops.cast(self.state.flags.at(window), ms.int32)
        ends = ops.bitwise_and(flags, END)
        good = ops.logical_and(exists, ops.bitwise_and(flags, DELETED) == 0)
        broken = ops.logical_or(ops.cumsum(ends, 1) - ends > 0, ops.logical_not(good))
        unbroken = ops.cast(self.up_to_first(broken), ms.int64)
        after = column(ops.cumsum(unbroken, 1), self.reach - 1)
        if self.by_steps:
            last = column(ops.gather_elements(flags, 1, ops.expand_dims(after - 1, 1)), 0)
            none = ops.bitwise_and(last, FINAL) > 0
            if self.plan.needs_next:
                none = ops.logical_or(none, ops.bitwise_and(last, END) == 0)
            transitions = after - ops.cast(none, ms.int64)
            return after, transitions, transitions
        longest = self.plan.chain
        final = ops.bitwise_and(columns(flags, 0, longest), FINAL) > 0
        broken = ops.logical_or(columns(unbroken, 0, longest) == 0, final)
        if self.plan.needs_next:
            followed = ops.logical_or(columns(ends, 0, longest) > 0, columns(unbroken, 1, longest + 1) > 0)
            broken = ops.logical_or(broken, ops.logical_not(followed))
        chain = column(ops.cumsum(ops.cast(self.up_to_first(broken), ms.int64), 1), longest - 1)
        return after, after, ops.maximum(chain, ops.ones_like(chain))

    def up_to_first(self, broken):
        """Return the steps before the first that is broken."""
        return ops.cumsum(ops.cast(broken, ms.int64), 1) == 0


@ms.jit_class
class _Around:
    """``(slots, before, after, sample steps, transitions, goal slots, relabelled bool) -> output``: rows around starts.

    The arguments are int64 ``[n]`` but for the last. The output may also contain how far each start's episode reaches.
    """

    def __init__(self, output: Output, state: Access, plan: SamplePlan, streams: int, columns: Columns) -> None:
        self.state, self.output = state, output
        self.capacity, self.streams = state.capacity, streams
        self.out_shape = output.shape(plan.n, columns)
        self.out_type = TYPES[output.dtype(columns)]
        self.by_steps = plan.by_steps
        self.from_last = output.anchor == FROM_LAST
        runs = np.arange(output.runs)[:, None]
        positions = output.first + np.arange(output.length) + (0 if self.from_last else runs)
        positions = np.broadcast_to(positions, (output.runs, output.length))
        self.positions = Tensor(positions.reshape(1, -1), ms.int64)
        last = np.broadcast_to(positions[:, -1:], positions.shape)
        until = last if output.kind in STACKS else positions
        self.until = Tensor(until.reshape(1, -1), ms.int64)  # the positions that must exist for each to be used
        self.repeats = output.kind in (REPEATED, REPEATED_STACK)
        self.last = Tensor(last.reshape(1, -1), ms.int64)
        # For each position, the step whose chain is its origin, or that begins its run.
        self.of_chain = output.anchor == OF_CHAIN
        first = output.other if self.from_last else output.first
        whole_runs = self.from_last or self.of_chain
        steps = np.broadcast_to(first + runs, positions.shape) if whole_runs else positions
        self.chain_steps = Tensor(steps.reshape(1, -1), ms.int64)
        self.is_start = positions.size == 1 and output.first == 0 and output.anchor == FROM_START
        row = columns.shapes[output.column]
        self.ones = (1,) * len(row)
        self.row = row
        self.zero = Tensor(np.zeros((), numpy_type(columns.stored_types[output.column])))
        self.powers = Tensor(plan.powers())
        self.longest = plan.chain
        self.chain_index = Tensor(np.arange(plan.chain)[None, None], ms.int64)
        self.none = Tensor(0.0, ms.float64)

    def rows_at(self, column, slots, positions):
        """Return the rows of a column at positions from starts."""
        slots = ops.floor_mod(ops.expand_dims(slots, 1) + positions * self.streams, self.capacity)
        return self.state.contents[column].at(slots)

    def __call__(self, slots, before, after, sample_steps, transitions, goal_slots, relabelled):
        kind = self.output.kind
        if kind == LENGTH:
            return ops.cast(sample_steps, ms.int32)
        if kind == CHAIN:
            return self.chain_lengths(before, sample_steps, transitions)
        if kind == RELABELLED:
            return relabelled
        if kind == RETURN:
            return self.returns(slots, before, sample_steps, transitions)
        if kind == DISCOUNT:
            return self.discount(slots, before, sample_steps, transitions)
        positions, until, last = self.positions, self.until, self.last
        if self.from_last:
            ahead = self.chain_steps + self.chains(transitions) - 1
            positions, until, last = positions + ahead, until + ahead, last + ahead
        else:
            after = sample_steps
        if self.repeats:  # the first row of the episode, if the run has a row
            first = ops.expand_dims(-before, 1)
            positions = ops.select(last < first, positions, ops.maximum(positions, first))
        inside = ops.logical_and(positions >= ops.expand_dims(-before, 1), until < ops.expand_dims(after, 1))
        if self.of_chain:
            inside = positions - self.chain_steps < self.chains(transitions)
        if (self.from_last or self.of_chain) and self.by_steps:
            inside = ops.logical_and(inside, self.held(before, sample_steps))
        if kind == MASK:
            return ops.reshape(inside, self.out_shape)
        rows = self.rows_at(self.output.column, slots, positions)
        if kind == GOAL:
            goals = self.state.contents[self.output.other].at(ops.expand_dims(goal_slots, 1))
            rows = ops.select(ops.reshape(relabelled, (-1, 1, *self.ones)), goals, rows)
        if not self.is_start or self.by_steps:
            rows = ops.select(ops.reshape(inside, (*inside.shape, *self.ones)), rows, self.zero)
        return ops.cast(ops.reshape(rows, self.out_shape), self.out_type)

    def chains(self, transitions):
        """Return the rows of the chains of steps, ``[n, T]``, undefined for steps outside the sample."""
        chains = ops.minimum(ops.expand_dims(transitions, 1) - self.chain_steps, self.longest)
        return ops.maximum(chains, zeros_like(chains))

    def held(self, before, sample_steps):
        """Return which steps are in the sample, ``[n, T]``."""
        return ops.logical_and(
            self.chain_steps >= ops.expand_dims(-before, 1), self.chain_steps < ops.expand_dims(sample_steps, 1)
        )

    def chain_lengths(self, before, sample_steps, transitions):
        lengths = self.chains(transitions)
        if self.by_steps:
            lengths = lengths * ops.cast(self.held(before, sample_steps), ms.int64)
        return ops.cast(ops.reshape(lengths, self.out_shape), ms.int32)

    def returns(self, slots, before, sample_steps, transitions):
        inside = self.chain_index < ops.expand_dims(self.chains(transitions), 2)
        if self.by_steps:
            inside = ops.logical_and(inside, ops.expand_dims(self.held(before, sample_steps), 2))
        n, steps = inside.shape[0], inside.shape[1]
        positions = ops.reshape(ops.expand_dims(self.chain_steps, 2) + self.chain_index, (1, steps * self.longest))
        rows = self.rows_at(self.output.column, slots, positions)
        rows = ops.reshape(ops.cast(rows, ms.float64), (n * steps, self.longest, *self.row))
        powers = ops.reshape(self.powers[: self.longest], (1, self.longest, *self.ones))
        inside = ops.reshape(inside, (n * steps, self.longest, *self.ones))
        if self.output.other > 0:
            products = columns(products_of(self.step_discounts(slots)), 0, self.longest)
            powers = powers * ops.reshape(products, (n * steps, self.longest, *self.ones))
        terms = ops.select(inside, rows * powers, self.none)
        total = column(ops.cumsum(terms, 1), self.longest - 1)
        return ops.cast(ops.reshape(total, self.out_shape), self.out_type)

    def step_discounts(self, slots):
        """Return the steps' own discounts over each chain, ``[n * T, longest]``."""
        positions = ops.reshape(ops.expand_dims(self.chain_steps, 2) + self.chain_index, (1, -1))
        rows = self.rows_at(self.output.other - 1, slots, positions)
        return ops.reshape(rows, (-1, self.longest))

    def discount(self, slots, before, sample_steps, transitions):
        chains = self.chains(transitions)
        none = self.rows_at(self.output.column, slots, self.chain_steps + chains - 1) != 0
        if self.by_steps:
            none = ops.logical_or(none, ops.logical_not(self.held(before, sample_steps)))
        factors = gather(self.powers, chains, 0)
        if self.output.other > 0:
            product = ops.gather_elements(products_of(self.step_discounts(slots)), 1, ops.reshape(chains, (-1, 1)))
            factors = factors * ops.reshape(product, chains.shape)
        discounts = ops.masked_fill(factors, none, self.none)
        return ops.cast(ops.reshape(discounts, self.out_shape), ms.float32)


@ms.jit_class
class _GoalRows:
    """``(handles, slots, steps, ok) -> goal slots [n], relabelled [n] bool``, as in csrc/core/windows.h.

    The first three are those of starts, int64 ``[n]``. Changes the random state, unless not `ok`.
    """

    def __init__(self, state: Access, plan: SamplePlan, streams: int) -> None:
        capacity = state.capacity
        self.state, self.n = state, plan.n
        self.strategy = plan.strategy
        self.capacity, self.streams = capacity, streams
        self.ratio = Tensor(plan.ratio, ms.float64)
        self.rounds = (max(capacity // streams, 1)).bit_length()

    def slot_at(self, slots, step):
        return ops.floor_mod(slots + step * self.streams, self.capacity)

    def to_last(self, newest, slots, steps):
        """Return the steps from each row to the last stored one of its episode. Steps increase by 1 along it."""
        low, high = zeros_like(newest), newest
        for _ in range(self.rounds):
            middle = low + ops.floor_divide(high - low + 1, 2)
            same = self.state.steps.at(self.slot_at(slots, middle)) == steps + middle
            low = ops.select(same, middle, low)
            high = ops.select(same, high, middle - 1)
            high = ops.maximum(high, low)
        return low

    def __call__(self, handles, slots, steps, ok):
        random_state = self.state.random_state
        bits, advanced = random_bits(random_state, 2 * self.n)
        relabelled = unit_interval(bits[: self.n]) <= self.ratio
        bits = bits[self.n :]
        if self.strategy == "random":
            row = ranks(bits, ops.cast(self.state.count, ms.int64), True)
            goals = ops.floor_mod(row + ops.cast(self.state.head, ms.int64), self.capacity)
        else:
            newest = ops.floor_divide(self.state.next() - 1 - handles, self.streams)
            last = self.to_last(newest, slots, steps)
            flags = ops.cast(self.state.flags.at(self.slot_at(slots, last)), ms.int32)
            last = last - ops.cast(ops.bitwise_and(flags, FINAL) > 0, ms.int64)
            if self.strategy == "final":
                step = last
            else:
                first = zeros_like(last)
                if self.strategy == "episode":
                    earlier = ops.floor_divide(handles - self.state.oldest(), self.streams)
                    first = ops.minimum(steps, earlier)
                step = ranks(bits, first + last + 1, True) - first
            goals = self.slot_at(slots, step)
        flags = ops.cast(self.state.flags.at(goals), ms.int32)
        relabelled = ops.logical_and(relabelled, ops.bitwise_and(flags, DELETED + FINAL) == 0)
        ops.assign(random_state, ops.select(ok, advanced, random_state))
        return goals, relabelled
