r"""A weight for each slot, in a tree of sums: set, total, sums of ranges, and the slot that a point of the total falls
on.

The tree is one float64 Parameter ``[M]``: the leaves, of which the first ``C`` are the slots' weights; the sums of each
level above, 16 children to a node; the smallest positive weight below each of those nodes, infinite if there is none;
and how many weights are positive. The sum of a node is the sequential sum of its children and is computed anew whenever
one of them changes: the tree is a function of its leaves, the same in every backend, and never drifts. Each operator
costs O(log C) a slot.

Axes: ``C`` capacity, ``M`` numbers of the tree.
"""

from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from . import native
from .in_place import InPlace
from .random import SliceBound

FANOUT = 16

#: Times a weight: the largest float64 below the weight, or the one before it.
BELOW_ONE = 1.0 - 2.0**-53


class Level(NamedTuple):
    """Nodes of a level above the leaves, and where its sums and minima, and the sums of its children, begin."""

    nodes: int
    sums: int
    minima: int
    children: int
    child_minima: int


def _round_up(size: int) -> int:
    return -(-size // FANOUT) * FANOUT


def levels(capacity: int) -> tuple[Level, ...]:
    """The levels of a tree for this many slots, from the one above the leaves to the root."""
    nodes: list[int] = []
    sizes = [_round_up(capacity)]
    while not nodes or nodes[-1] > 1:
        nodes.append(sizes[-1] // FANOUT)
        sizes.append(1 if nodes[-1] == 1 else _round_up(nodes[-1]))
    begins = np.cumsum([0, *sizes]).tolist()
    minima = begins[-1] - begins[1]
    return tuple(
        Level(count, begins[i + 1], begins[i + 1] + minima, begins[i], begins[i] + minima if i else 0)
        for i, count in enumerate(nodes)
    )


def tree_size(capacity: int) -> int:
    """Numbers of a tree for this many slots."""
    return levels(capacity)[-1].minima + 2


def initial_weights(capacity: int) -> np.ndarray:
    """The tree of weights that are all zero. Shape ``[M]``, float64."""
    weights = np.zeros(tree_size(capacity))
    weights[levels(capacity)[0].minima : -1] = np.inf
    return weights


def build_weights(leaves: np.ndarray) -> np.ndarray:
    """The tree of these weights, computed from scratch. Shape ``[M]``, float64. Cost O(C)."""
    weights = initial_weights(len(leaves))
    weights[: len(leaves)] = leaves
    weights[-1] = np.count_nonzero(leaves)
    for level in levels(len(leaves)):
        size = level.nodes * FANOUT
        sums = weights[level.children : level.children + size].reshape(-1, FANOUT)
        minima = weights[level.child_minima : level.child_minima + size].reshape(-1, FANOUT)
        weights[level.sums : level.sums + level.nodes] = np.cumsum(sums, 1)[:, -1]
        weights[level.minima : level.minima + level.nodes] = np.where(minima > 0, minima, np.inf).min(1)
    return weights


@ms.jit_class
class LastOfEach:
    """For entries that name slots: which of them speaks last for the slot of each.

    ``(slots [n] int64, live [n] bool) -> last [n] int64, exists [n] bool, counted [n] bool``. Entry ``last[i]`` is the
    last live one with the slot of entry i, if one `exists`; `counted` marks one entry for each slot that has any.
    """

    def __init__(self) -> None:
        self.zero = Tensor(0, ms.int64)
        self.dead = Tensor((1 << 62) - 1, ms.int64)

    def __call__(self, slots, live):
        n = slots.shape[0]
        index = ops.arange(n)
        order, _ = ops.sort(ops.select(live, slots * n + index, self.dead))
        position = ops.searchsorted(order, (slots + 1) * n) - 1
        found = ops.gather(order, ops.maximum(position, self.zero), 0)
        exists = ops.logical_and(position >= self.zero, ops.floor_divide(found, n) == slots)
        last = ops.select(exists, ops.floor_mod(found, n), self.zero)
        return last, exists, ops.logical_and(exists, last == index)


@ms.jit_class
class CompositeTree:
    """What the composite operators do to a tree. `weights` is its Parameter, and `tree` is what `view` made of it.

    Args:
        capacity (int): Slots of the tree.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.levels = levels(capacity)
        last = tree_size(capacity) - 1
        self.index = ms.int32 if last < 2**31 - 1 else ms.int64  # gather takes int32 without a cast
        children = np.arange(FANOUT)
        # Where the children of node 0 of each level are: their sums, all but the last one's, and their minima.
        self.sums_at = tuple(Tensor(level.children + children[None], self.index) for level in self.levels)
        self.most_at = tuple(Tensor(level.children + children[None, :-1], self.index) for level in self.levels)
        self.minima_at = tuple(Tensor(level.child_minima + children[None], self.index) for level in self.levels)
        self.node_at = tuple(Tensor([[level.sums, level.minima]], self.index) for level in self.levels)
        self.children = Tensor(children, ms.int64)
        self.summary_at = Tensor([self.levels[-1].sums, self.levels[-1].minima, last], self.index)
        self.positive_at = Tensor([last], self.index)
        self.zero = Tensor(0.0, ms.float64)
        self.infinity = Tensor(np.inf, ms.float64)
        self.below_one = Tensor(BELOW_ONE, ms.float64)
        self.least, self.most, self.sum = (
            reduce(keep_dims=True) for reduce in (ops.ReduceMin, ops.ReduceMax, ops.ReduceSum)
        )
        self.view = InPlace((), np.float64)

    def summary(self, tree):
        """Total, smallest positive weight, number of positive weights."""
        return ops.gather(tree, self.summary_at, 0)

    def count(self, values):
        return ops.reduce_sum(ops.cast(values, ms.float64))

    def write(self, weights, tree, slots, values, counted, touched):
        """Sets leaves. Entries of one slot have one value and one of them is `counted`; the nodes above the slots
        `touched` are computed anew."""
        slots = ops.cast(slots, self.index)
        old = ops.gather(tree, slots, 0)
        gained = self.count(ops.logical_and(counted, values > self.zero))
        lost = self.count(ops.logical_and(counted, old > self.zero))
        positive = ops.gather(tree, self.positive_at, 0) + (gained - lost)
        ops.scatter_update(weights, self.positive_at, positive)
        tree = ops.scatter_update(weights, slots, ops.depend(values, positive))
        nodes = ops.expand_dims(ops.cast(touched, self.index), 1)
        for i in range(len(self.levels)):
            nodes = ops.floor_divide(nodes, FANOUT)
            if self.levels[i].nodes <= nodes.shape[0]:
                nodes = ops.expand_dims(ops.cast(ops.arange(self.levels[i].nodes), self.index), 1)
            first = nodes * FANOUT
            sums = ops.gather(tree, first + self.sums_at[i], 0)
            if i == 0:
                minima = ops.select(sums > self.zero, sums, ops.zeros_like(sums) + self.infinity)
            else:
                minima = ops.gather(tree, first + self.minima_at[i], 0)
            above = ops.concat((ops.cumsum(sums, 1)[:, FANOUT - 1 :], self.least(minima, 1)), 1)
            tree = ops.scatter_update(weights, nodes + self.node_at[i], above)

    def descend(self, tree, targets, ok):
        """The slots on which targets in ``[0, total)`` fall; slot 0 for all if not `ok`."""
        targets = ops.expand_dims(ops.select(ok, targets, ops.zeros_like(targets) - 1), 1)
        nodes = ops.cast(ops.zeros_like(targets), self.index)
        for i in range(len(self.levels)):
            height = len(self.levels) - 1 - i
            first = nodes * FANOUT
            prefix = ops.cumsum(ops.gather(tree, first + self.most_at[height], 0), 1)
            passed = ops.cast(prefix <= targets, ms.float64)
            nodes = first + ops.cast(self.sum(passed, 1), self.index)
            before = self.most(prefix * passed, 1)
            weight = ops.gather(tree, nodes + self.levels[height].children, 0)
            targets = ops.minimum(targets - before, weight * self.below_one)
        return ops.cast(nodes[:, 0], ms.int64)

    def before(self, tree, slots):
        """The sums of the leaves in front of slots in ``[0, C]``."""
        inside = ops.floor_mod(slots, self.capacity)
        result = ops.zeros_like(ops.cast(slots, ms.float64))
        for i in range(len(self.levels)):
            height = len(self.levels) - 1 - i
            child = ops.floor_divide(inside, FANOUT**height)
            first = ops.floor_divide(child, FANOUT) * FANOUT
            children = ops.expand_dims(first, 1) + self.children
            sums = ops.gather(tree, children + self.levels[height].children, 0)
            sums = ops.select(children < ops.expand_dims(child, 1), sums, ops.zeros_like(sums))
            result = result + ops.cumsum(sums, 1)[:, FANOUT - 1]
        return ops.select(slots < self.capacity, result, result + self.summary(tree)[0])

    def sum_rows(self, tree, first, size, head):
        """The sums of logical rows ``[first, first + size)``; each Tensor has shape ``[m]``."""
        begin = ops.floor_mod(first + head, self.capacity)
        end = begin + size
        wraps = end > self.capacity
        before_begin = self.before(tree, begin)
        before_end = self.before(tree, ops.select(wraps, end - self.capacity, end))
        wrapped = self.summary(tree)[0] - before_begin + before_end
        sums = ops.select(wraps, wrapped, before_end - before_begin)
        return ops.select(size > 0, sums, ops.zeros_like(sums))

    def rotate(self, tree, slot, targets):
        """Points of the total weight, counted from the first weight of a slot, as points counted from slot 0."""
        total = self.summary(tree)[0]
        targets = targets + self.before(tree, slot)
        return ops.select(targets >= total, targets - total, targets)


@ms.jit_class
class CompositeTreeSet:
    """``(weights, slots [n] int64, values [n] float64)``: sets weights, of duplicates the last. Changes weights."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tree = CompositeTree(capacity)
        self.last_of_each = LastOfEach()
        self.check = ops.Assert()

    def __call__(self, weights, slots, values):
        inside = ops.all(ops.logical_and(slots >= 0, slots < self.capacity))
        ok = ops.logical_and(inside, ops.all(ops.logical_and(ops.isfinite(values), values >= 0)))
        self.check(ok, (slots, values))
        slots = ops.select(ok, slots, ops.zeros_like(slots))
        last, exists, counted = self.last_of_each(slots, ops.logical_and(ok, slots >= 0))
        tree = self.tree.view(weights)
        values = ops.select(exists, ops.gather(values, last, 0), ops.gather(tree, slots, 0))
        self.tree.write(weights, tree, slots, values, counted, slots)
        return ops.reduce_sum(values)


@ms.jit_class
class NativeTreeSet:
    """``(weights, slots [n] int64, values [n] float64)``: sets weights, of duplicates the last. Changes weights."""

    def __init__(self, capacity: int) -> None:
        self.capacity = Tensor([capacity], ms.int64)
        self.set = native.custom("replay_tree_set", lambda *_: (1,), ms.float64)

    def __call__(self, weights, slots, values):
        return self.set(weights, self.capacity, slots, values)


@ms.jit_class
class CompositeTreeDescend:
    """``(weights, targets [n] float64) -> slots [n] int64`` on which the targets fall, each in ``[0, total)``.

    That is the first slot up to which the weights sum to more than the target. Its weight is never zero.
    """

    def __init__(self, capacity: int) -> None:
        self.tree = CompositeTree(capacity)
        self.check = ops.Assert()

    def __call__(self, weights, targets):
        tree = self.tree.view(weights)
        total = self.tree.summary(tree)[0]
        ok = ops.all(ops.logical_and(targets >= 0, targets < total))
        self.check(ok, (targets, total))
        slots = self.tree.descend(tree, targets, ok)
        self.tree.view.done(weights, slots)
        return slots


@ms.jit_class
class NativeTreeDescend:
    """``(weights, targets [n] float64) -> slots [n] int64`` on which the targets fall, each in ``[0, total)``.

    That is the first slot up to which the weights sum to more than the target. Its weight is never zero.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = Tensor([capacity], ms.int64)
        self.descend = native.custom("replay_tree_descend", lambda *shapes: shapes[2], ms.int64)

    def __call__(self, weights, targets):
        return self.descend(weights, self.capacity, targets)


@ms.jit_class
class CompositeTreeSums:
    """``(weights, head, count, ranges [m, 2] int64) -> sums [m] float64`` of the weights of logical rows, as slices."""

    def __init__(self, capacity: int) -> None:
        self.tree = CompositeTree(capacity)
        self.bound = SliceBound()

    def __call__(self, weights, head, count, ranges):
        count = ops.cast(count, ms.int64)
        first = self.bound(ranges[:, 0], count)
        size = ops.maximum(self.bound(ranges[:, 1], count) - first, ops.zeros_like(first))
        sums = self.tree.sum_rows(self.tree.view(weights), first, size, ops.cast(head, ms.int64))
        self.tree.view.done(weights, sums)
        return sums


@ms.jit_class
class NativeTreeSums:
    """``(weights, head, count, ranges [m, 2] int64) -> sums [m] float64`` of the weights of logical rows, as slices."""

    def __init__(self, capacity: int) -> None:
        self.capacity = Tensor([capacity], ms.int64)
        self.sums = native.custom("replay_tree_sums", lambda *shapes: (shapes[4][0],), ms.float64)

    def __call__(self, weights, head, count, ranges):
        return self.sums(weights, self.capacity, head, count, ranges)


@ms.jit_class
class CompositeTreeSummary:
    """``(weights) -> [3] float64``: total, smallest positive weight (infinite if none), number of positive weights."""

    def __init__(self, capacity: int) -> None:
        self.tree = CompositeTree(capacity)

    def __call__(self, weights):
        summary = self.tree.summary(self.tree.view(weights))
        self.tree.view.done(weights, summary)
        return summary


@ms.jit_class
class NativeTreeSummary:
    """``(weights) -> [3] float64``: total, smallest positive weight (infinite if none), number of positive weights."""

    def __init__(self, capacity: int) -> None:
        self.capacity = Tensor([capacity], ms.int64)
        self.summary = native.custom("replay_tree_summary", lambda *_: (3,), ms.float64)

    def __call__(self, weights):
        return self.summary(weights, self.capacity)
