"""Operators of graphs that read the weights of a buffer: sums, counts and a summary."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from .access import Access
from .in_place import Stored
from .primitives import column, item, stack, zeros_like
from .random import slice_bound
from .state import State


@ms.jit_class
class CompositeSums:
    """``(ranges [m, 2] int64) -> sums [m] float64``: sums of the weights of slices of logical rows."""

    def __init__(self, state: Access) -> None:
        self.state = state

    def __call__(self, ranges):
        """Return the sums."""
        tree, count = self.state.tree, ops.cast(self.state.count, ms.int64)
        first = slice_bound(column(ranges, 0), count)
        size = ops.maximum(slice_bound(column(ranges, 1), count) - first, zeros_like(first))
        sums = tree.sum_rows(tree.view(), first, size, ops.cast(self.state.head, ms.int64))
        tree.done(sums)
        return sums


@ms.jit_class
class CountInRange:
    """``(range [2] int64) -> float64 []``: counts the rows of positive weight in a slice of logical rows. Cost O(C)."""

    def __init__(self, state: State) -> None:
        self.state, self.weights = state, Stored(state.weights)
        self.slots = Tensor(np.arange(state.capacity), ms.int64)

    def __call__(self, rows):
        """Return the number of rows of the range with a positive weight."""
        count = ops.cast(self.state.count, ms.int64)
        first = slice_bound(item(rows, 0), count)
        size = slice_bound(item(rows, 1), count) - first
        row = ops.floor_mod(self.slots - ops.cast(self.state.head, ms.int64) - first, self.state.capacity)
        leaves = self.weights.at(self.slots)
        found = ops.logical_and(row < size, leaves > 0)
        found = ops.reduce_sum(ops.cast(found, ms.float64))
        self.weights.done(found)
        return found


@ms.jit_class
class CompositeSummary:
    """``() -> [3] float64``: total, smallest positive weight (infinite if none), number of positive weights."""

    def __init__(self, state: Access) -> None:
        self.state = state

    def __call__(self):
        """Return the three numbers."""
        tree = self.state.tree
        view = tree.view()
        summary = stack((tree.total(view), tree.minimum(view), tree.positive(view)))
        tree.done(summary)
        return summary
