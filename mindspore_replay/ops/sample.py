"""Samples: slots are drawn and their rows gathered, natively in one launch."""

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from . import native
from .in_place import InPlace
from .random import Bits, CompositeDraw, Ranks, SliceBound, UnitInterval
from .ring import CompositeGather
from .sum_tree import CompositeTree
from .weights import CompositeDeliver, Handles


@ms.jit_class
class CompositeSample:
    """``(columns, head, count, state, sample_range [2]) -> rows``, each ``[n, *F]``. Changes the random state."""

    def __init__(self, n: int, capacity: int, replace: bool, ordered: bool, columns: Columns) -> None:
        self.draw = CompositeDraw(n, capacity, replace, ordered)
        self.gather = CompositeGather(columns)

    def __call__(self, columns, head, count, state, sample_range):
        return self.gather(columns, self.draw(state, head, count, sample_range))


@ms.jit_class
class NativeSample:
    """``(columns, head, count, state, sample_range [2]) -> rows``, each ``[n, *F]``. Changes the random state."""

    def __init__(self, n: int, capacity: int, replace: bool, ordered: bool, types: Sequence[Any]) -> None:
        self.options = Tensor(np.array([capacity, replace, ordered], np.int64))
        k = len(types)
        self.sample = native.custom(
            "replay_sample_uniform", lambda *shapes: tuple((n, *shape[1:]) for shape in shapes[:k]), tuple(types)
        )

    def __call__(self, columns, head, count, state, sample_range):
        return self.sample(*columns, head, count, state, sample_range, self.options)


@ms.jit_class
class CompositeDrawByRank:
    """``(ring, marks, state, sample_range [2]) -> slots [n], ok``: each eligible row is equally likely.

    Weights must be 0 and 1. Not `ok`, and the graph fails, if fewer than n rows are eligible. Changes the random state.
    """

    def __init__(self, n: int, capacity: int, replace: bool, ordered: bool) -> None:
        self.n = Tensor(n, ms.int64)
        self.zero = Tensor(0, ms.int64)
        self.one = Tensor(1, ms.int64)
        self.ordered = ordered
        self.capacity = capacity
        self.bound = SliceBound()
        self.bits = Bits(n)
        self.ranks = Ranks(n, replace)
        self.tree = CompositeTree(capacity)
        self.check = ops.Assert()

    def __call__(self, ring, marks, state, sample_range):
        tree = self.tree.view(marks[0])
        head = ops.cast(ring[0], ms.int64)
        count = ops.cast(ring[1], ms.int64)
        first = self.bound(sample_range[:1], count)
        size = ops.maximum(self.bound(sample_range[1:], count) - first, self.zero)
        eligible = ops.cast(self.tree.sum_rows(tree, first, size, head), ms.int64)[0]
        enough = eligible >= self.n
        self.check(enough, (eligible, self.n))
        bits, advanced = self.bits(state)
        targets = ops.cast(self.ranks(bits, eligible) + self.one, ms.float64)
        rotated = self.tree.rotate(tree, ops.floor_mod(first + head, self.capacity), targets)
        if not self.ordered:
            rotated = ops.select(size < self.capacity, rotated, targets)
        slots = self.tree.descend(tree, rotated, enough)
        ops.assign(state, ops.select(enough, advanced, state))  # a check that failed does not stop what follows it
        return slots, enough


@ms.jit_class
class CompositeSampleWeighted:
    """``(columns, ring, marks, state, sample_range [2]) -> handles [n], rows``: each eligible row is equally likely.

    Weights must be 0 and 1. Counts deliveries. Changes the random state and marks.
    """

    def __init__(
        self, n: int, capacity: int, replace: bool, ordered: bool, max_use: int | None, columns: Columns
    ) -> None:
        self.draw = CompositeDrawByRank(n, capacity, replace, ordered)
        self.finish = _CompositeFinish(capacity, max_use, columns)

    def __call__(self, columns, ring, marks, state, sample_range):
        slots, enough = self.draw(ring, marks, state, sample_range)
        return self.finish(columns, ring, marks, slots, enough)


@ms.jit_class
class NativeSampleWeighted:
    """``(columns, ring, marks, state, sample_range [2]) -> handles [n], rows``: each eligible row is equally likely.

    Weights must be 0 and 1. Counts deliveries. Changes the random state and marks.
    """

    def __init__(self, n: int, replace: bool, ordered: bool, max_use: int | None, types: Any) -> None:
        self.options = Tensor(np.array([replace, ordered, max_use or 0], np.int64))
        k = len(types)
        self.sample = native.custom(
            "replay_sample_weighted",
            lambda *shapes: ((n,), *((n, *shape[1:]) for shape in shapes[:k])),
            (ms.int64, *types),
        )

    def __call__(self, columns, ring, marks, state, sample_range):
        return self.sample(*columns, *ring, *marks, state, sample_range, self.options)


@ms.jit_class
class CompositeDrawByWeight:
    """``(ring, marks, state, beta, given_beta) -> slots [n], importance weights [n], ok``: one row from each of n equal
    strata of the total weight.

    `beta` is a Parameter, float64 ``[1]``, that each draw moves by its step, up to 1; `given_beta`, float64 ``[]``,
    takes its place where it is given. Not `ok`, and the graph fails, if fewer than n rows are eligible or beta is
    outside [0, 1]. Changes the random state and beta.
    """

    def __init__(self, n: int, capacity: int, ordered: bool, by_buffer: bool, beta_step: float) -> None:
        self.n = Tensor(n, ms.float64)
        self.index = Tensor(np.arange(n), ms.float64)
        self.ordered = ordered
        self.by_buffer = by_buffer
        self.moves = beta_step > 0
        self.beta_step = Tensor(beta_step, ms.float64)
        self.one = Tensor(1.0, ms.float64)
        self.view = InPlace((), np.float64)
        self.bits = Bits(n)
        self.unit = UnitInterval()
        self.tree = CompositeTree(capacity)
        self.check = ops.Assert()

    def __call__(self, ring, marks, state, beta, given_beta):
        tree = self.tree.view(marks[0])
        total = self.tree.total(tree)
        positive = self.tree.positive(tree)
        ok = positive >= self.n
        self.check(ok, (positive, self.n))
        now = self.view(beta)
        if given_beta is None:
            given_beta = now
        else:
            in_range = ops.logical_and(given_beta >= 0, given_beta <= self.one)
            self.check(in_range, (given_beta,))
            ok = ops.logical_and(ok, in_range)
        bits, advanced = self.bits(state)
        targets = (self.index + self.unit(bits)) * (total / self.n)
        targets = ops.minimum(targets, total)
        if self.ordered:
            targets = self.tree.rotate(tree, ops.reshape(ops.cast(ring[0], ms.int64), (1,)), targets)
        slots = self.tree.descend(tree, targets, ok)
        drawn = ops.gather(tree, slots, 0)
        smallest = self.tree.minimum(tree) if self.by_buffer else ops.reduce_min(drawn)
        importance = ops.cast(ops.pow(smallest / drawn, given_beta), ms.float32)
        ops.assign(state, ops.select(ok, advanced, state))  # a check that failed does not stop what follows it
        if self.moves:
            moved = ops.select(ok, ops.minimum(now + self.beta_step, self.one), now)
            ops.assign(beta, ops.depend(moved, importance))
        return slots, importance, ok


@ms.jit_class
class CompositeSamplePrioritized:
    """``(columns, ring, marks, state, beta, given_beta) -> handles [n], importance weights [n], rows``, by weight.

    Draws as `CompositeDrawByWeight` does, and counts deliveries. Changes the random state, marks and beta.
    """

    def __init__(
        self,
        n: int,
        capacity: int,
        ordered: bool,
        max_use: int | None,
        by_buffer: bool,
        beta_step: float,
        columns: Columns,
    ) -> None:
        self.draw = CompositeDrawByWeight(n, capacity, ordered, by_buffer, beta_step)
        self.finish = _CompositeFinish(capacity, max_use, columns)

    def __call__(self, columns, ring, marks, state, beta, given_beta):
        slots, importance, ok = self.draw(ring, marks, state, beta, given_beta)
        batch = self.finish(columns, ring, marks, slots, ok)
        return (batch[0], importance, *batch[1:])


@ms.jit_class
class NativeSamplePrioritized:
    """``(columns, ring, marks, state, beta, given_beta) -> handles [n], importance weights [n], rows``, by weight.

    One row is drawn from each of n equal strata of the total weight. `beta` is a Parameter, float64 ``[1]``, that each
    sample moves by its step, up to 1; `given_beta`, float64 ``[]``, takes its place where it is given. Counts
    deliveries. Changes the random state, marks and beta.
    """

    def __init__(
        self, n: int, ordered: bool, max_use: int | None, by_buffer: bool, beta_step: float, types: Any
    ) -> None:
        self.beta_step = Tensor(np.array([beta_step]))
        self.options = Tensor(np.array([ordered, max_use or 0, by_buffer], np.int64))
        k = len(types)
        self.sample = native.custom(
            "replay_sample_prioritized",
            lambda *shapes: ((n,), (n,), *((n, *shape[1:]) for shape in shapes[:k])),
            (ms.int64, ms.float32, *types),
        )

    def __call__(self, columns, ring, marks, state, beta, given_beta):
        given_beta = beta if given_beta is None else given_beta
        return self.sample(*columns, *ring, *marks, state, beta, given_beta, self.beta_step, self.options)


@ms.jit_class
class _CompositeFinish:
    """``(columns, ring, marks, slots, ok) -> handles, rows`` of a draw; counts the deliveries, unless not `ok`."""

    def __init__(self, capacity: int, max_use: int | None, columns: Columns) -> None:
        self.handles = Handles(capacity)
        self.gather = CompositeGather(columns)
        self.deliver = CompositeDeliver(capacity, max_use)

    def __call__(self, columns, ring, marks, slots, ok):
        handles = self.handles.of(slots, ring)
        rows = self.gather(columns, slots)
        self.deliver(marks, slots, ok)
        return (handles, *rows)
