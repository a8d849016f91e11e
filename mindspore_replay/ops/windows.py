"""Samples of windows: starts are drawn, and what lies around them is gathered, natively in one launch.

Axes: ``B`` samples, ``T`` steps of a window, ``*F`` a column's shape.
"""

from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns, numpy_type
from . import native
from .in_place import InPlace
from .random import Bits, Ranks, UnitInterval
from .sample import CompositeDrawByRank, CompositeDrawByWeight
from .timeline import DELETED, END, FINAL, WindowRule
from .weights import CompositeDeliver, Handles

# Kinds of outputs, as csrc/windows.h has them.
WINDOW, MASK, RETURN, DISCOUNT, RELABELLED, GOAL, LENGTH, CHAIN, STACK = range(9)

# Where positions are counted from: the start, or the last row of the chain of an n-step return.
FROM_START, FROM_LAST = 0, 1

#: By which row a sample gets another goal: none, or a strategy of hindsight.
STRATEGIES = ("none", "future", "episode", "final", "random")


class Output(NamedTuple):
    """What a sample gives beside handles and importance weights.

    Args:
        kind (int): ``WINDOW``: rows of a column. ``MASK``: whether there are such rows, bool. ``RETURN``: the
            discounted sum of a column over the chain. ``DISCOUNT``: gamma^k over k rows of the chain, and 0 where the
            last of them has a nonzero `column`. ``RELABELLED``: whether the sample has another goal, bool. ``GOAL``: a
            row of `other` if so, else of `column`. ``LENGTH``: steps of the episode from the start on, as far as
            outputs reach, int32. ``CHAIN``: rows of the chain, int32. ``STACK``: as ``WINDOW``, but a run is of zeros
            unless its last row is there.
        column (int): A column, where the kind has one.
        other (int): Another.
        anchor (int): What positions are counted from.
        first (int): The first position.
        runs (int): Of windows, stacks and masks: runs of positions, each of which begins one later than the one before.
        length (int): Positions of a run.
        lead (tuple[int, ...]): The axes that `runs` and `length` make in the output, between ``B`` and ``*F``.
    """

    kind: int
    column: int = 0
    other: int = 0
    anchor: int = FROM_START
    first: int = 0
    runs: int = 1
    length: int = 1
    lead: tuple[int, ...] = ()

    def shape(self, n: int, columns: Columns) -> tuple[int, ...]:
        if self.kind in (WINDOW, STACK, RETURN, GOAL):
            return (n, *self.lead, *columns.shapes[self.column])
        return (n, *self.lead)

    def dtype(self, columns: Columns) -> Any:
        fixed = {MASK: ms.bool_, RELABELLED: ms.bool_, DISCOUNT: ms.float32, LENGTH: ms.int32, CHAIN: ms.int32}
        return fixed[self.kind] if self.kind in fixed else columns.types[self.column]

    def reach(self, chain: int) -> int:
        """How many steps from the start on it may read."""
        if self.kind not in (WINDOW, STACK, MASK):
            return 1
        return (chain - 1 if self.anchor == FROM_LAST else 0) + self.first + self.runs - 1 + self.length


class SamplePlan(NamedTuple):
    """How a sample of windows is drawn and what it gives.

    Args:
        n (int): ``B``.
        prioritized (bool): Whether by weight; otherwise each legal start is equally likely, and weights are 0 and 1.
        replace (bool), ordered (bool), max_use (Union[int, None]): As for `ReplayBuffer`.
        by_buffer (bool): Whether the smallest weight of the buffer is the measure of importance weights.
        beta_step (float): By which beta moves.
        chain (int): Rows of the longest n-step return, at least 1.
        needs_next (bool): Whether the observation after a row is that of the next row.
        gamma (float): Discount of one step.
        strategy (str): One of `STRATEGIES`.
        ratio (float): Share of samples with another goal.
        outputs (tuple[Output, ...]): What it gives.
    """

    n: int
    prioritized: bool
    replace: bool
    ordered: bool
    max_use: int | None
    by_buffer: bool
    beta_step: float
    chain: int
    needs_next: bool
    gamma: float
    strategy: str
    ratio: float
    outputs: tuple[Output, ...]

    def options(self) -> np.ndarray:
        """Everything of it that is an int, as the kernel takes it."""
        draw = [self.prioritized, self.replace, self.ordered, self.max_use or 0, self.by_buffer]
        chain = [self.chain, self.needs_next, STRATEGIES.index(self.strategy)]
        outputs = [number for output in self.outputs for number in output[:-1]]
        return np.array([*draw, *chain, *outputs], np.int64)

    def numbers(self) -> np.ndarray:
        """The ratio, and the powers of gamma from 0 to `chain`."""
        return np.array([self.ratio, *(self.gamma**step for step in range(self.chain + 1))])

    def shapes(self, columns: Columns) -> tuple[tuple[int, ...], ...]:
        """Shapes of handles, importance weights and outputs."""
        return ((self.n,), (self.n,), *(output.shape(self.n, columns) for output in self.outputs))

    def types(self, columns: Columns) -> tuple[Any, ...]:
        return (ms.int64, ms.float32, *(output.dtype(columns) for output in self.outputs))


@ms.jit_class
class NativeSampleWindows:
    """``(columns, ring, marks, state, sample_range [2], beta, given_beta) -> handles, importance weights, outputs``.

    `beta` is a Parameter, float64 ``[1]``, that each sample moves by its step, up to 1; `given_beta` takes its place
    where it is given. Counts deliveries. Changes the random state, marks and beta.
    """

    def __init__(self, plan: SamplePlan, rule: WindowRule, columns: Columns) -> None:
        self.rule = rule.tensor()
        self.options = Tensor(plan.options())
        self.numbers = Tensor(plan.numbers())
        self.beta_step = Tensor(np.array([plan.beta_step]))
        shapes = plan.shapes(columns)
        self.sample = native.custom("replay_sample_windows", lambda *_: shapes, plan.types(columns))

    def __call__(self, columns, ring, marks, state, sample_range, beta, given_beta):
        given_beta = beta if given_beta is None else given_beta
        return self.sample(
            *columns, *ring, *marks, self.rule, state, sample_range, beta, given_beta, self.beta_step, self.numbers,
            self.options,
        )  # fmt: skip


@ms.jit_class
class _CompositeOutput:
    """What composite outputs are made of: rows around starts, and how far each start's episode reaches.

    `around` is ``(slots [n], before [n], after [n], chain [n], goal slots [n], relabelled [n] bool)``, int64 but for
    the last.
    """

    def __init__(self, output: Output, plan: SamplePlan, capacity: int, streams: int, columns: Columns) -> None:
        self.output = output
        self.capacity, self.streams = capacity, streams
        self.out_shape = output.shape(plan.n, columns)
        self.out_type = output.dtype(columns)
        positions = output.first + np.arange(output.runs)[:, None] + np.arange(output.length)
        if output.kind == RETURN:
            positions = np.arange(plan.chain)[None]
        self.positions = Tensor(positions.reshape(1, -1), ms.int64)
        until = np.broadcast_to(positions[:, -1:], positions.shape) if output.kind == STACK else positions
        self.until = Tensor(until.reshape(1, -1), ms.int64)  # the positions that must be there for each to be
        self.alone = positions.size == 1 and output.first == 0 and output.anchor == FROM_START
        row = columns.shapes[output.column]
        self.ones = (1,) * len(row)
        self.row = row
        stored = numpy_type(columns.stored_types[output.column])
        self.view = InPlace(row, stored)
        self.zero = Tensor(np.zeros((), stored))
        self.powers = Tensor(plan.numbers()[1:])
        self.chain_index = Tensor(np.arange(plan.chain)[None], ms.int64)
        self.last = plan.chain - 1
        self.none = Tensor(0.0, ms.float64)

    def slots_at(self, slots, positions):
        return ops.floor_mod(ops.expand_dims(slots, 1) + positions * self.streams, self.capacity)

    def __call__(self, columns, around):
        slots, before, after, chain, goal_slots, relabelled = around
        kind = self.output.kind
        if kind == LENGTH:
            return ops.cast(after, ms.int32)
        if kind == CHAIN:
            return ops.cast(chain, ms.int32)
        if kind == RELABELLED:
            return relabelled
        if kind == RETURN:
            return self.returns(columns, slots, chain)
        if kind == DISCOUNT:
            return self.discount(columns, slots, chain)
        if kind == GOAL:
            return self.goal(columns, slots, goal_slots, relabelled)
        positions, until = self.positions, self.until
        if self.output.anchor == FROM_LAST:
            positions = positions + ops.expand_dims(chain - 1, 1)
            until = until + ops.expand_dims(chain - 1, 1)
        inside = ops.logical_and(positions >= ops.expand_dims(-before, 1), until < ops.expand_dims(after, 1))
        if kind == MASK:
            return ops.reshape(inside, self.out_shape)
        rows = ops.gather(self.view(columns[self.output.column]), self.slots_at(slots, positions), 0)
        if not self.alone:
            rows = ops.select(ops.reshape(inside, (*inside.shape, *self.ones)), rows, self.zero)
        return ops.cast(ops.reshape(rows, self.out_shape), self.out_type)

    def returns(self, columns, slots, chain):
        rows = ops.gather(self.view(columns[self.output.column]), self.slots_at(slots, self.positions), 0)
        powers = ops.reshape(self.powers[: self.last + 1], (1, -1, *self.ones))
        inside = ops.reshape(self.chain_index < ops.expand_dims(chain, 1), (-1, self.last + 1, *self.ones))
        terms = ops.select(inside, ops.cast(rows, ms.float64) * powers, self.none)
        return ops.cast(ops.cumsum(terms, 1)[:, self.last], self.out_type)

    def discount(self, columns, slots, chain):
        last = ops.floor_mod(slots + (chain - 1) * self.streams, self.capacity)
        terminated = ops.gather(self.view(columns[self.output.column]), last, 0) != 0
        return ops.cast(ops.masked_fill(ops.gather(self.powers, chain, 0), terminated, self.none), ms.float32)

    def goal(self, columns, slots, goal_slots, relabelled):
        own = ops.gather(self.view(columns[self.output.column]), slots, 0)
        other = ops.gather(self.view(columns[self.output.other]), goal_slots, 0)
        rows = ops.select(ops.reshape(relabelled, (-1, *self.ones)), other, own)
        return ops.cast(rows, self.out_type)


@ms.jit_class
class _GoalRows:
    """``(ring, marks, state, starts, ok) -> goal slots [n], relabelled [n] bool``, as csrc/windows.h has it.

    `starts` is ``(handles, slots, steps)``, int64 ``[n]``. Changes the random state, unless not `ok`.
    """

    def __init__(self, plan: SamplePlan, capacity: int, streams: int) -> None:
        self.n = plan.n
        self.strategy = plan.strategy
        self.capacity, self.streams = capacity, streams
        self.ratio = Tensor(plan.ratio, ms.float64)
        self.bits = Bits(2 * plan.n)
        self.unit = UnitInterval()
        self.ranks = Ranks(plan.n, True)
        self.rounds = (max(capacity // streams, 1)).bit_length()
        self.views = InPlace((), np.int64), InPlace((), np.uint8)

    def slot_at(self, slots, step):
        return ops.floor_mod(slots + step * self.streams, self.capacity)

    def to_last(self, marks, newest, slots, steps):
        """How many steps after each row the last stored one of its episode lies: along an episode steps go up by 1."""
        view = self.views[0](marks[7])
        low, high = ops.zeros_like(newest), newest
        for _ in range(self.rounds):
            middle = low + ops.floor_divide(high - low + 1, 2)
            same = ops.gather(view, self.slot_at(slots, middle), 0) == steps + middle
            low = ops.select(same, middle, low)
            high = ops.select(same, high, middle - 1)
            high = ops.maximum(high, low)
        return low

    def __call__(self, ring, marks, state, starts, ok):
        handles, slots, steps = starts
        bits, advanced = self.bits(state)
        relabelled = self.unit(bits[: self.n]) <= self.ratio
        bits = bits[self.n :]
        view = self.views[1](marks[8])
        if self.strategy == "random":
            row = self.ranks(bits, ops.cast(ring[1], ms.int64))
            goals = ops.floor_mod(row + ops.cast(ring[0], ms.int64), self.capacity)
        else:
            newest = ops.floor_divide(ring[2][0] - 1 - handles, self.streams)
            last = self.to_last(marks, newest, slots, steps)
            flags = ops.cast(ops.gather(view, self.slot_at(slots, last), 0), ms.int32)
            last = last - ops.cast(ops.bitwise_and(flags, FINAL) > 0, ms.int64)
            if self.strategy == "final":
                step = last
            else:
                first = ops.zeros_like(last)
                if self.strategy == "episode":
                    oldest = ring[2][0] - ops.cast(ring[1], ms.int64)
                    first = ops.minimum(steps, ops.floor_divide(handles - oldest, self.streams))
                step = self.ranks(bits, first + last + 1) - first
            goals = self.slot_at(slots, step)
        flags = ops.cast(ops.gather(view, goals, 0), ms.int32)
        relabelled = ops.logical_and(relabelled, ops.bitwise_and(flags, DELETED + FINAL) == 0)
        ops.assign(state, ops.select(ok, advanced, state))
        return goals, relabelled


@ms.jit_class
class CompositeSampleWindows:
    """``(columns, ring, marks, state, sample_range [2], beta, given_beta) -> handles, importance weights, outputs``.

    As `NativeSampleWindows`.
    """

    def __init__(self, plan: SamplePlan, capacity: int, rule: WindowRule, columns: Columns) -> None:
        self.plan, self.rule = plan, rule
        self.draw: Any
        if plan.prioritized:
            self.draw = CompositeDrawByWeight(plan.n, capacity, plan.ordered, plan.by_buffer, plan.beta_step)
        else:
            self.draw = CompositeDrawByRank(plan.n, capacity, plan.replace, plan.ordered)
        self.ones = Tensor(np.ones(plan.n, np.float32))
        self.handles = Handles(capacity)
        self.deliver = CompositeDeliver(capacity, plan.max_use)
        self.outputs = tuple(_CompositeOutput(output, plan, capacity, rule.streams, columns) for output in plan.outputs)
        self.reach = max(1, *(output.reach(plan.chain) for output in plan.outputs))
        steps = max(self.reach, plan.chain + plan.needs_next)
        self.ahead = Tensor(np.arange(steps)[None], ms.int64)
        self.goals = _GoalRows(plan, capacity, rule.streams) if plan.strategy != "none" else None
        self.views = InPlace((), np.int64), InPlace((), np.uint8)

    def __call__(self, columns, ring, marks, state, sample_range, beta, given_beta):
        if self.plan.prioritized:
            slots, importance, ok = self.draw(ring, marks, state, beta, given_beta)
        else:
            slots, ok = self.draw(ring, marks, state, sample_range)
            importance = self.ones + 0
        slots = ops.cast(slots, ms.int64)
        handles = self.handles.of(slots, ring)
        steps = ops.gather(self.views[0](marks[7]), slots, 0)
        after, chain = self.extent(ring, marks, handles)
        goals, relabelled = slots, slots < 0
        if self.goals is not None:
            goals, relabelled = self.goals(ring, marks, state, (handles, slots, steps), ok)
        around = (slots, ops.minimum(steps, self.rule.past), after, chain, goals, relabelled)
        fields = ()
        for i in range(len(self.outputs)):
            fields = fields + (self.outputs[i](columns, around),)
        self.outputs[0].view.done(columns[self.plan.outputs[0].column], fields)
        self.deliver(marks, slots, ok)
        return (handles, importance, *fields)

    def extent(self, ring, marks, handles):
        """How many steps of its episode there are from each start on, and how many of them make its chain."""
        window, exists = self.handles.slots(ops.expand_dims(handles, 1) + self.ahead * self.rule.streams, ring)
        flags = ops.cast(ops.gather(self.views[1](marks[8]), window, 0), ms.int32)
        ends = ops.bitwise_and(flags, END)
        good = ops.logical_and(exists, ops.bitwise_and(flags, DELETED) == 0)
        broken = ops.logical_or(ops.cumsum(ends, 1) - ends > 0, ops.logical_not(good))
        there = self.up_to_first(broken)
        after = ops.cumsum(ops.cast(there[:, : self.reach], ms.int64), 1)[:, self.reach - 1]
        longest = self.plan.chain
        broken = ops.logical_or(ops.logical_not(there), ops.bitwise_and(flags, FINAL) > 0)[:, :longest]
        if self.plan.needs_next:
            followed = ops.logical_or(ends[:, :longest] > 0, there[:, 1 : longest + 1])
            broken = ops.logical_or(broken, ops.logical_not(followed))
        chain = ops.cumsum(ops.cast(self.up_to_first(broken), ms.int64), 1)[:, longest - 1]
        return after, ops.maximum(chain, ops.ones_like(chain))

    def up_to_first(self, broken):
        """Which steps come before the first that is broken."""
        return ops.cumsum(ops.cast(broken, ms.int64), 1) == 0


@ms.jit_class
class Relabel:
    """``(outputs) -> fields``: gives relabelled samples the reward for their goal.

    Args:
        layout (SampleLayout): The layout of a sample, with hindsight.
        fields (tuple[str, ...]): Names of the outputs that are fields; the hidden ones come after them.
    """

    def __init__(self, layout: Any, fields: tuple[str, ...]) -> None:
        hindsight = layout.hindsight
        self.reward_fn = hindsight.reward_fn
        self.count = len(fields)
        self.achieved, self.goal, self.reward = (
            fields.index(name) for name in (hindsight.achieved, hindsight.goal, hindsight.reward)
        )
        self.chain = layout.chain if layout.returns is not None else 0
        self.goal_shape = layout.columns.shapes[layout.columns.names.index(hindsight.goal)]
        self.powers = Tensor(np.array([layout.gamma**step for step in range(max(self.chain, 1))]))
        self.index = Tensor(np.arange(max(self.chain, 1)), ms.int32)
        self.zero = Tensor(0.0, ms.float64)

    def __call__(self, *outputs):
        relabelled = outputs[self.count]
        goal, reward = outputs[self.goal], outputs[self.reward]
        if self.chain == 0:
            new = ops.cast(self.reward_fn(outputs[self.achieved], goal), reward.dtype)
            reward = ops.select(relabelled, ops.reshape(new, reward.shape), reward)
        else:
            reward = self.returns(outputs, relabelled, goal, reward)
        return outputs[: self.reward] + (reward,) + outputs[self.reward + 1 : self.count]

    def returns(self, outputs, relabelled, goal, reward):
        """The n-step returns of relabelled samples, whose every step has the one goal."""
        chain, achieved, rewards = outputs[self.count + 1], outputs[self.count + 2], outputs[self.count + 3]
        n, rows = rewards.shape[0], rewards.shape[0] * self.chain
        goals = ops.broadcast_to(ops.expand_dims(goal, 1), achieved.shape)
        new = self.reward_fn(
            ops.reshape(achieved, (rows, *self.goal_shape)), ops.reshape(goals, (rows, *self.goal_shape))
        )
        new = ops.cast(ops.reshape(new, (n, self.chain)), ms.float64)
        terms = ops.select(self.index < ops.expand_dims(chain, 1), new * self.powers, self.zero)
        total = ops.cumsum(terms, 1)[:, self.chain - 1]
        return ops.select(relabelled, ops.cast(total, reward.dtype), reward)
