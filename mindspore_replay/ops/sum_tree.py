"""Operators of graphs on the tree of weights (store/kernels/tree.py): set, total, sums of ranges, the slot at a point.

Each costs O(log C) a slot. Axes: ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from ..store.kernels.tree import FANOUT, Level, levels, tree_size
from .in_place import Stored
from .primitives import (
    column,
    concat,
    concat_columns,
    gather,
    int64,
    item,
    range_of,
    searchsorted,
    searchsorted_int32,
    stack,
    zeros_like,
)


def index_type(capacity: int) -> object:
    """Return the dtype of indices of such a tree: int32, which gather accepts without a cast, if it is large enough."""
    return ms.int32 if tree_size(capacity) < 2**31 else ms.int64


_NONE, _DEAD = Tensor([-1], ms.int64), Tensor((1 << 62) - 1, ms.int64)


def last_of_each(slots, live):
    """Find the last of several entries for one slot: ``-> last [n] int64, exists [n] bool, counted [n] bool``.

    Entry ``last[i]`` is the last live one with the slot of entry i, if one `exists`. `counted` marks one entry of each
    slot that has any.
    """
    n = slots.shape[0]
    index = range_of(n)
    first = ops.cast(slots, ms.int64) * n
    order = ops.sort(ops.select(live, first + index, _DEAD))[0]
    # Number of entries of this slot or a smaller one; after `_NONE`, the last of them.
    before = searchsorted_int32(order, first + n)
    found = gather(concat((_NONE, order)), before, 0) - first
    return ops.maximum(found, int64(0)), found >= int64(0), found == index


@ms.jit_class
class _Places:
    """Indices of a level's nodes and their children in the tree.

    Args:
        level (Level): The level.
        index (mindspore.dtype): Dtype of indices.
    """

    FEW = 256

    def __init__(self, level: Level, index: object) -> None:
        children = np.arange(FANOUT)
        self.nodes = level.nodes
        # Indices for node 0; those for node i are a multiple of i larger.
        self.sums = Tensor([level.children + children], index)
        self.minima = Tensor([level.child_minima + children], index)
        self.node = Tensor([[level.sums, level.minima]], index)
        # Indices for all nodes, if there are few.
        nodes = np.arange(level.nodes if level.nodes <= self.FEW else 1)[:, None]
        self.all_sums = Tensor(nodes * FANOUT + level.children + children, index)
        self.all_minima = Tensor(nodes * FANOUT + level.child_minima + children, index)
        self.all_nodes = Tensor(nodes + np.array([level.sums, level.minima]), index)


@ms.jit_class
class CompositeTree(Stored):
    """Operations on a tree. `tree` is the result of `view`.

    Args:
        weights (Parameter): The tree.
        capacity (int): Slots of the tree.
    """

    def __init__(self, weights: Parameter, capacity: int) -> None:
        super().__init__(weights)
        self.capacity = capacity
        last = tree_size(capacity) - 1
        self.index = index_type(capacity)
        self.levels = tuple(_Places(level, self.index) for level in levels(capacity))
        top = levels(capacity)[-1]
        self.total_at = Tensor(top.sums, self.index)
        self.minimum_at = Tensor(top.minima, self.index)
        self.positive_at = Tensor(last, self.index)
        self.positive_slot = Tensor([last], self.index)
        self.infinity = Tensor(np.inf, ms.float64)
        self.children = Tensor(np.arange(FANOUT)[None], self.index)
        self.last = Tensor([FANOUT - 1], self.index)
        self.none = Tensor(0.0, ms.float64)
        self.least = ops.ReduceMin(keep_dims=True)
        self.before_each = ops.CumSum(exclusive=True)

    def total(self, tree):
        """Return the total weight."""
        return gather(tree, self.total_at, 0)

    def minimum(self, tree):
        """Return the smallest positive weight."""
        return gather(tree, self.minimum_at, 0)

    def positive(self, tree):
        """Return the number of positive weights."""
        return gather(tree, self.positive_at, 0)

    def put(self, slots, chosen, values, counted):
        """Set the chosen leaves. Entries for one slot have the same value, and at most one of them is `counted`."""
        tree = self.view()
        return self.write(tree, slots, ops.select(chosen, values, gather(tree, slots, 0)), counted, slots)

    def write(self, tree, slots, values, counted, touched):
        """Set leaves, and return the tree to read from afterwards.

        Entries for one slot have the same value, and one of them is `counted`. The nodes above the slots `touched` are
        recomputed.
        """
        slots = ops.cast(slots, self.index)
        gained = ops.sign(values) - ops.sign(gather(tree, slots, 0))
        gained = ops.reduce_sum(gained * ops.cast(counted, ms.float64))
        tree = ops.scatter_add(self.parameter, self.positive_slot, ops.reshape(gained, (1,)))
        tree = ops.scatter_update(self.parameter, slots, ops.depend(values, tree))
        nodes = ops.expand_dims(ops.cast(touched, self.index), 1)
        for i in range(len(self.levels)):
            level = self.levels[i]
            few = level.nodes <= FANOUT or level.nodes <= nodes.shape[0]
            if few and level.nodes <= level.FEW:
                nodes = level.all_nodes
                sums_at, minima_at, node_at = level.all_sums, level.all_minima, level.all_nodes
            else:
                if level.nodes <= nodes.shape[0]:
                    nodes = ops.expand_dims(ops.cast(range_of(level.nodes), self.index), 1)
                else:
                    nodes = ops.floor_divide(nodes, FANOUT)
                first = nodes * FANOUT
                sums_at, minima_at, node_at = first + level.sums, first + level.minima, nodes + level.node
            sums = gather(tree, sums_at, 0)
            minima = gather(tree, minima_at, 0) if i else ops.masked_fill(sums, sums <= 0, self.infinity)
            above = concat_columns((gather(ops.cumsum(sums, 1), self.last, 1), self.least(minima, 1)))
            tree = ops.scatter_update(self.parameter, node_at, above)
        return tree

    def descend(self, tree, targets, ok, edges):
        """Return the slots at which targets in ``(0, total]`` fall, of dtype `index`. Slot 0 for all if not `ok`.

        With `edges`, of `within`, only the weights of a range count; ``None``: all.
        """
        n = targets.shape[0]
        targets = ops.expand_dims(ops.select(ok, targets, zeros_like(targets)), 1)
        sums = gather(tree, self.levels[-1].sums, 0)
        if edges is not None:
            sums = self.inside(edges, len(self.levels) - 1, self.children, sums)
        sums = ops.broadcast_to(sums, (n, FANOUT))
        child = searchsorted(ops.cumsum(sums, 1), targets)
        nodes = ops.cast(child, self.index)
        for height in range(len(self.levels) - 2, -1, -1):
            targets = targets - ops.gather_elements(self.before_each(sums, 1), 1, child)
            first = nodes * FANOUT
            sums = gather(tree, first + self.levels[height].sums, 0)
            if edges is not None:
                sums = self.inside(edges, height, first + self.children, sums)
            prefix = ops.cumsum(sums, 1)
            targets = ops.minimum(targets, gather(prefix, self.last, 1))
            child = searchsorted(prefix, targets)
            nodes = first + ops.cast(child, self.index)
        return ops.reshape(nodes, (n,))

    def within(self, tree, first, last):
        """Return the edges of a range of slots, around the end of the ring if `last` is smaller.

        `first` and `last` are ``[]`` of dtype `index`. Returns the edges, the total and the smallest positive weight
        of the range, as csrc/core/tree_range.h does. The edges are a flag for a range that wraps, and for each level
        the nodes above the first and the last slot and their weights within the range, each ``[2]``.
        """
        slots = stack((first, last))
        wraps, nodes = last < first, slots
        sums = gather(tree, slots, 0)
        minima = ops.masked_fill(sums, sums <= 0, self.infinity)
        edges = (wraps,)
        for height in range(len(self.levels)):
            edges = (*edges, (nodes, sums))
            level = self.levels[height]
            above = ops.floor_divide(nodes, FANOUT)
            begin = ops.expand_dims(above, 1) * FANOUT
            children = begin + self.children
            weights = self.inside(edges, height, children, gather(tree, begin + level.sums, 0))
            if height == 0:
                least = ops.masked_fill(weights, weights <= 0, self.infinity)
            else:
                least = self.chosen(
                    wraps, nodes, minima, children, gather(tree, begin + level.minima, 0), self.infinity
                )
            nodes, sums, minima = above, column(ops.cumsum(weights, 1), FANOUT - 1), column(self.least(least, 1), 0)
        return edges, item(sums, 0), item(minima, 0)

    def inside(self, edges, height, children, weights):
        """Return the weights of nodes within a range."""
        nodes, sums = edges[height + 1]
        return self.chosen(edges[0], nodes, sums, children, weights, self.none)

    def chosen(self, wraps, nodes, of_nodes, children, values, otherwise):
        """Select values for nodes inside a range, for the two at its edges, and for the others."""
        first, last = item(nodes, 0), item(nodes, 1)
        after, before = children > first, children < last
        inside = ops.select(wraps, ops.logical_or(after, before), ops.logical_and(after, before))
        values = ops.select(inside, values, otherwise)
        values = ops.select(children == last, item(of_nodes, 1), values)
        return ops.select(children == first, item(of_nodes, 0), values)

    def before(self, tree, slots):
        """Return the sums of the leaves before slots in ``[0, C]``."""
        inside = ops.expand_dims(ops.cast(ops.floor_mod(slots, self.capacity), self.index), 1)
        result = zeros_like(ops.cast(slots, ms.float64))
        for height in range(len(self.levels) - 1, -1, -1):
            child = ops.floor_divide(inside, FANOUT**height)
            nodes = ops.floor_divide(child, FANOUT)
            sums = self.before_each(gather(tree, nodes * FANOUT + self.levels[height].sums, 0), 1)
            result = result + column(ops.gather_elements(sums, 1, child - nodes * FANOUT), 0)
        return ops.select(slots < self.capacity, result, result + self.total(tree))

    def sum_rows(self, tree, first, size, head):
        """Return the sums of logical rows ``[first, first + size)``. Each Tensor has shape ``[m]``."""
        begin = ops.floor_mod(first + head, self.capacity)
        end = begin + size
        wraps = end > self.capacity
        before_begin = self.before(tree, begin)
        before_end = self.before(tree, ops.select(wraps, end - self.capacity, end))
        wrapped = self.total(tree) - before_begin + before_end
        sums = ops.select(wraps, wrapped, before_end - before_begin)
        return ops.select(size > 0, sums, zeros_like(sums))

    def rotate(self, tree, slot, targets):
        """Convert points of the total weight counted from the first weight of a slot to points counted from slot 0."""
        total = self.total(tree)
        targets = targets + self.before(tree, slot)
        return ops.select(targets > total, ops.minimum(targets - total, total), targets)
