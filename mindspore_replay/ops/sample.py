"""Operators that draw rows and copy their contents to the outputs of a sample.

A draw costs O(1) a row, and O(log C) with weights. Axes: ``B`` samples, ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.kernels.library import BAD_WEIGHT, FAILURES, TOO_FEW_ROWS
from ..store.spec.episodes import WindowRule
from ..store.spec.plan import SamplePlan
from .access import Access
from .checks import check, stops_graphs
from .epochs import DrawInEpochs, Pad
from .in_place import Stored
from .primitives import gather, int64, item, items, range_of
from .random import DrawUniform, random_bits, ranks, slice_bound, unit_interval
from .rows import Deliver
from .sums import CountInRange
from .windows import RowsDrawn, WindowsAround


@ms.jit_class
class _Uniform:
    """``(sample_range [2], given_beta) -> slots [n], None, ok``: each row of the range is equally likely."""

    def __init__(self, state: Access, plan: SamplePlan) -> None:
        self.state = state
        self.draw = DrawUniform(plan, state.capacity)

    def __call__(self, sample_range, given_beta):
        slots, ok = self.draw(self.state.random_state, self.state.head, self.state.count, sample_range)
        return slots, None, ok


@ms.jit_class
class _ByRank:
    """``(sample_range [2], given_beta) -> slots [n], None, ok``: eligible rows of the range, by their ranks.

    Ranks are random, or those of the oldest or the newest rows, in order. Weights must be 0 and 1. Not `ok`, and the
    graph fails, if fewer than n rows are eligible. Advances the random state, as every draw does.
    """

    def __init__(self, state: Access, plan: SamplePlan) -> None:
        self.state = state
        self.n, self.needed, self.replace = plan.n, plan.needed, plan.replace
        self.in_order, self.newest = plan.in_order, plan.draw == "newest_first"
        self.from_oldest = plan.ordered or plan.in_order
        self.advance = Tensor([0, plan.n], ms.int64)
        self.check = check("sample", FAILURES[TOO_FEW_ROWS])

    def __call__(self, sample_range, given_beta):
        random_state = self.state.random_state
        tree, capacity = self.state.tree, self.state.capacity
        view = tree.view()
        head = ops.cast(self.state.head, ms.int64)
        count = ops.cast(self.state.count, ms.int64)
        first = slice_bound(items(sample_range, 0, 1), count)
        size = ops.maximum(slice_bound(items(sample_range, 1, 2), count) - first, int64(0))
        eligible = item(ops.cast(tree.sum_rows(view, first, size, head), ms.int64), 0)
        enough = eligible >= int64(self.needed)
        self.check(enough, (eligible, int64(self.needed)))
        if self.in_order:
            drawn, advanced = range_of(self.n), random_state + self.advance
            if self.newest:
                drawn = eligible - int64(1) - drawn
        else:
            bits, advanced = random_bits(random_state, self.n)
            drawn = ranks(bits, eligible, self.replace)
        targets = ops.cast(drawn + int64(1), ms.float64)
        rotated = tree.rotate(view, ops.floor_mod(first + head, capacity), targets)
        if not self.from_oldest:
            rotated = ops.select(size < capacity, rotated, targets)
        slots = tree.descend(view, rotated, enough, None)
        # A failed check does not stop what follows it.
        ops.assign(random_state, ops.select(enough, advanced, random_state))
        return slots, None, enough


@ms.jit_class
class _ByPriority:
    """``(sample_range, given_beta) -> slots [n], importance weights [n], ok``, by weight.

    Draws one row from each of n equal strata of the total weight, or, with a window, of the range's weight. Each draw
    advances beta by its step, up to 1. `given_beta`, float64 ``[]``, overrides it. Not `ok`, and the graph fails, if
    fewer than n rows are eligible or beta is outside [0, 1]. Changes the random state and beta.
    """

    def __init__(self, state: Access, plan: SamplePlan) -> None:
        self.state = state
        self.n, self.needed = Tensor(plan.n, ms.float64), Tensor(plan.needed, ms.float64)
        self.index = Tensor(np.arange(plan.n), ms.float64)
        self.by_buffer = plan.by_buffer
        self.moves = plan.beta_step > 0
        self.beta_step = Tensor(plan.beta_step, ms.float64)
        self.one = Tensor(1.0, ms.float64)
        self.beta, self.draws = Stored(state.beta), plan.n
        self.counts = None if state.window is None else CountInRange(state.state)
        self.offsets = Tensor([0, 1], ms.int64)  # the last row is the one before the end
        self.check, self.check_beta = check("sample", FAILURES[TOO_FEW_ROWS]), check("sample", FAILURES[BAD_WEIGHT])

    def __call__(self, sample_range, given_beta):
        random_state, tree = self.state.random_state, self.state.tree
        view = tree.view()
        if self.counts is None:
            edges, total, least = None, tree.total(view), tree.minimum(view)
            positive = tree.positive(view)
        else:
            ends = self.ends(sample_range)
            edges, total, least = tree.within(view, item(ends, 0), item(ends, 1))
            positive = self.counts(sample_range)
        ok = positive >= self.needed
        self.check(ok, (positive, self.needed))
        now = self.beta.view()
        if given_beta is None:
            given_beta = now
        else:
            in_range = ops.logical_and(given_beta >= 0, given_beta <= self.one)
            self.check_beta(in_range, (given_beta,))
            ok = ops.logical_and(ok, in_range)
        bits, advanced = random_bits(random_state, self.draws)
        targets = (self.index + unit_interval(bits)) * (total / self.n)
        targets = ops.minimum(targets, total)
        slots = tree.descend(view, targets, ok, edges)
        drawn = gather(view, slots, 0)
        smallest = least if self.by_buffer else ops.reduce_min(drawn)
        importance = ops.cast(ops.pow(smallest / drawn, given_beta), ms.float32)
        # A failed check does not stop what follows it.
        ops.assign(random_state, ops.select(ok, advanced, random_state))
        if self.moves:
            moved = ops.select(ok, ops.minimum(now + self.beta_step, self.one), now)
            ops.assign(self.state.beta, ops.depend(moved, importance))
        return slots, importance, ok

    def ends(self, sample_range):
        """Return the first and the last slot of a range of logical rows, ``[2]``, any slots if the range is empty."""
        head, count = ops.cast(self.state.head, ms.int64), ops.cast(self.state.count, ms.int64)
        bounds = slice_bound(sample_range, count) + head
        return ops.cast(ops.floor_mod(bounds - self.offsets, self.state.capacity), self.state.index)


#: Classes of ``(sample_range [2], given_beta) -> slots [n], importance weights [n] or None, ok`` by the name of the
#: draw, made with the state and the plan. In place of weights, epochs give a mask of the samples that are no padding.
#: Kernels implement those of `store.plan.DRAWS`; others run graphs.
DRAWS: dict[str, type] = {
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

    Each draw by priority advances beta by its step, up to 1. `given_beta`, float64 ``[]``, overrides it unless it is
    ``None``. Changes the random state.
    """

    def __init__(self, state: Access, plan: SamplePlan, columns: Columns, rule: WindowRule | None) -> None:
        self.draw = DRAWS[plan.draw](state, plan)
        self.outputs: RowsDrawn | WindowsAround
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
