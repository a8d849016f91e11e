"""Operators that draw rows and copy their contents to the outputs of a sample.

A draw costs O(1) a row, and O(log C) with weights. Axes: ``B`` samples, ``C`` capacity.
"""

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.episodes import WindowRule
from ..store.library import BAD_WEIGHT, FAILURES, TOO_FEW_ROWS
from ..store.plan import SamplePlan
from .checks import check, stops_graphs
from .epochs import DrawInEpochs, Pad
from .in_place import InPlace
from .primitives import gather, item, items
from .random import Bits, DrawUniform, Ranks, SliceBound, UnitInterval
from .rows import Deliver
from .state import State
from .sum_tree import CompositeTree, CountInRange
from .windows import RowsDrawn, WindowsAround


@ms.jit_class
class _Uniform:
    """``(sample_range [2], given_beta) -> slots [n], None, ok``: each row of the range is equally likely."""

    def __init__(self, state: State, plan: SamplePlan) -> None:
        self.state = state
        self.draw = DrawUniform(plan.n, state.capacity, plan.replace, plan.ordered)

    def __call__(self, sample_range, given_beta):
        slots, ok = self.draw(self.state.random_state, self.state.head, self.state.count, sample_range)
        return slots, None, ok


@ms.jit_class
class _ByRank:
    """``(sample_range [2], given_beta) -> slots [n], None, ok``: eligible rows of the range, by their ranks.

    Ranks are random, or those of the oldest or the newest rows, in order. Weights must be 0 and 1. Not `ok`, and the
    graph fails, if fewer than n rows are eligible. Advances the random state, as every draw does.
    """

    def __init__(self, state: State, plan: SamplePlan) -> None:
        self.state = state
        self.n = Tensor(plan.n, ms.int64)
        self.zero = Tensor(0, ms.int64)
        self.one = Tensor(1, ms.int64)
        self.in_order, self.newest = plan.in_order, plan.draw == "newest_first"
        self.from_oldest = plan.ordered or plan.in_order
        self.first_ranks = Tensor(np.arange(plan.n), ms.int64)
        self.advance = Tensor([0, plan.n], ms.int64)
        self.capacity = state.capacity
        self.bound = SliceBound()
        self.bits = Bits(plan.n)
        self.random_ranks = Ranks(plan.n, plan.replace)
        self.tree = CompositeTree(state.capacity)
        self.check = check("sample", FAILURES[TOO_FEW_ROWS])

    def __call__(self, sample_range, given_beta):
        random_state = self.state.random_state
        tree = self.tree.view(self.state.weights)
        head = ops.cast(self.state.head, ms.int64)
        count = ops.cast(self.state.count, ms.int64)
        first = self.bound(items(sample_range, 0, 1), count)
        size = ops.maximum(self.bound(items(sample_range, 1, 2), count) - first, self.zero)
        eligible = item(ops.cast(self.tree.sum_rows(tree, first, size, head), ms.int64), 0)
        enough = eligible >= self.n
        self.check(enough, (eligible, self.n))
        if self.in_order:
            ranks = eligible - self.one - self.first_ranks if self.newest else self.first_ranks
            advanced = random_state + self.advance
        else:
            bits, advanced = self.bits(random_state)
            ranks = self.random_ranks(bits, eligible)
        targets = ops.cast(ranks + self.one, ms.float64)
        rotated = self.tree.rotate(tree, ops.floor_mod(first + head, self.capacity), targets)
        if not self.from_oldest:
            rotated = ops.select(size < self.capacity, rotated, targets)
        slots = self.tree.descend(tree, rotated, enough)
        # A failed check does not stop what follows it.
        ops.assign(random_state, ops.select(enough, advanced, random_state))
        return slots, None, enough


@ms.jit_class
class _ByPriority:
    """``(sample_range, given_beta) -> slots [n], importance weights [n], ok``, by weight.

    One row comes from each of n equal strata of the total weight, in a buffer with a window of that of the range. Each
    draw advances beta by its step, up to 1; `given_beta`, float64 ``[]``, overrides it. Not `ok`, and the graph fails,
    if fewer than n rows are eligible or beta is outside [0, 1]. Changes the random state and beta.
    """

    def __init__(self, state: State, plan: SamplePlan) -> None:
        self.state = state
        self.n = Tensor(plan.n, ms.float64)
        self.index = Tensor(np.arange(plan.n), ms.float64)
        self.by_buffer = plan.by_buffer
        self.moves = plan.beta_step > 0
        self.beta_step = Tensor(plan.beta_step, ms.float64)
        self.one = Tensor(1.0, ms.float64)
        self.view = InPlace((), np.float64)
        self.bits = Bits(plan.n)
        self.unit = UnitInterval()
        self.tree = CompositeTree(state.capacity)
        self.counts = None if state.window is None else CountInRange(state)
        self.bound = SliceBound()
        self.offsets = Tensor([0, 1], ms.int64)  # the last row is the one before the end
        self.check, self.check_beta = check("sample", FAILURES[TOO_FEW_ROWS]), check("sample", FAILURES[BAD_WEIGHT])

    def __call__(self, sample_range, given_beta):
        random_state, beta = self.state.random_state, self.state.beta
        tree = self.tree.view(self.state.weights)
        if self.counts is None:
            edges, total, least = None, self.tree.total(tree), self.tree.minimum(tree)
            positive = self.tree.positive(tree)
        else:
            ends = self.ends(sample_range)
            edges, total, least = self.tree.within(tree, item(ends, 0), item(ends, 1))
            positive = self.counts(sample_range)
        ok = positive >= self.n
        self.check(ok, (positive, self.n))
        now = self.view(beta)
        if given_beta is None:
            given_beta = now
        else:
            in_range = ops.logical_and(given_beta >= 0, given_beta <= self.one)
            self.check_beta(in_range, (given_beta,))
            ok = ops.logical_and(ok, in_range)
        bits, advanced = self.bits(random_state)
        targets = (self.index + self.unit(bits)) * (total / self.n)
        targets = ops.minimum(targets, total)
        slots = self.tree.descend(tree, targets, ok, edges)
        drawn = gather(tree, slots, 0)
        smallest = least if self.by_buffer else ops.reduce_min(drawn)
        importance = ops.cast(ops.pow(smallest / drawn, given_beta), ms.float32)
        # A failed check does not stop what follows it.
        ops.assign(random_state, ops.select(ok, advanced, random_state))
        if self.moves:
            moved = ops.select(ok, ops.minimum(now + self.beta_step, self.one), now)
            ops.assign(beta, ops.depend(moved, importance))
        return slots, importance, ok

    def ends(self, sample_range):
        """Return the first and the last slot of a range of logical rows, ``[2]``; any slots if the range is empty."""
        head, count = ops.cast(self.state.head, ms.int64), ops.cast(self.state.count, ms.int64)
        bounds = self.bound(sample_range, count) + head
        return ops.cast(ops.floor_mod(bounds - self.offsets, self.state.capacity), self.tree.index)


#: Classes of ``(sample_range [2], given_beta) -> slots [n], importance weights [n] or None, ok`` by the name of the
#: draw, made with the state and the plan. In place of weights, epochs give a mask of the samples that are no padding.
#: Kernels implement those of `store.plan.DRAWS`; others run graphs.
DRAWS: dict[str, Any] = {
    "uniform": _Uniform,
    "rank": _ByRank,
    "priority": _ByPriority,
    "oldest_first": _ByRank,
    "newest_first": _ByRank,
    "epochs": DrawInEpochs,
}


@ms.jit_class
class CompositeSample:
    """``(sample_range [2], given_beta) -> outputs`` of the plan. Counts deliveries if there are weights.

    Each draw by priority advances beta by its step, up to 1; `given_beta`, float64 ``[]``, overrides it unless it is
    ``None``. Changes the random state.
    """

    def __init__(self, state: State, plan: SamplePlan, columns: Columns, rule: WindowRule | None) -> None:
        self.draw = DRAWS[plan.draw](state, plan)
        self.outputs: Any
        if rule is None or not plan.reaches_out:
            self.outputs = RowsDrawn(state, plan, columns)
        else:
            self.outputs = WindowsAround(state, plan, columns, rule)
        self.deliver = None if state.weights is None else Deliver(state, plan.max_use)
        self.pads = plan.draw == "epochs"
        self.pad = None if stops_graphs() and not self.pads else Pad(plan, columns)

    def __call__(self, sample_range, given_beta):
        """Draw a sample, and return its outputs."""
        slots, importance, ok = self.draw(sample_range, given_beta)
        outputs = self.outputs(slots, importance, ok)
        if self.pads:  # and `importance` says which samples are no padding
            ok = ops.logical_and(ok, importance)
        if self.pad is not None:
            outputs = self.pad(outputs, ops.broadcast_to(ok, slots.shape))
        if self.deliver is not None:
            self.deliver(slots, ok)
        return outputs
