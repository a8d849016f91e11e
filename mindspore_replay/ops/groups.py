"""Groups of rows with equal values in a column. A draw costs O(C log C), since it sorts all rows.

Axes: ``C`` capacity, ``G`` groups, ``L`` rows of a group.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.kernels.library import FAILURES, TOO_FEW_ROWS
from ..store.spec.episodes import WindowRule
from .access import Access
from .checks import blank, check
from .primitives import concat, gather, item, range_of, searchsorted, zeros_like
from .random import below, random_bits, shuffle


@ms.jit_class
class CompositeSampleGroups:
    """``(key, ordered, groups, size) -> mask [G, L], rows``. Changes the random state.

    `key` is the number of the column that defines the groups. It and the other arguments are known at compile time.
    """

    def __init__(self, state: Access, columns: Columns, rule: WindowRule) -> None:
        self.state = state
        capacity = state.capacity
        self.capacity, self.streams = capacity, rule.streams
        self.rows = Tensor(np.arange(capacity), ms.int64)
        self.ones = tuple((1,) * len(shape) for shape in columns.shapes)
        self.first = Tensor([1], ms.int64)
        self.largest = Tensor(np.iinfo(np.int64).max, ms.int64)
        self.end = Tensor(capacity**2, ms.int64)
        self.zeros = tuple(Tensor(np.zeros((), dtype)) for dtype in columns.numpy_types)
        self.check, self.blank = check("sample_groups", FAILURES[TOO_FEW_ROWS]), blank()

    def slot_of(self, row):
        """Return the slots of logical rows."""
        return ops.floor_mod(row + ops.cast(self.state.head, ms.int64), self.capacity)

    def by_group(self, key):
        """Return rows in the order of their groups, as ``group * C + row``, with rows that cannot be drawn last."""
        rows = self.rows
        slots = self.slot_of(rows)
        first = rows - self.state.steps.at(slots) * self.streams
        weight = gather(self.state.tree.view(), self.slot_of(ops.maximum(first, 0)), 0)
        drawable = ops.logical_and(rows < ops.cast(self.state.count, ms.int64), ops.logical_and(first >= 0, weight > 0))
        values = ops.cast(self.state.rows_at(slots)[key], ms.int64)
        values = ops.select(drawable, values, self.largest)
        order = ops.sort(values)[0]
        new = concat((self.first, ops.cast(order[1:] != order[:-1], ms.int64)))
        group = gather(ops.cumsum(new, 0) - 1, searchsorted(order, values), 0)
        return ops.sort(ops.select(drawable, group * self.capacity + rows, self.end + rows))[0]

    def __call__(self, key, ordered, groups, size):
        """Draw groups and rows of them."""
        random_state = self.state.random_state
        order = self.by_group(key)
        drawable = searchsorted(order, ops.reshape(self.end, (1,)))
        last = gather(order, ops.maximum(drawable - 1, 0), 0)
        count = item(ops.select(drawable > 0, ops.floor_divide(last, self.capacity) + 1, drawable), 0)
        ok = count >= groups
        self.check(ok, (count,))
        bits, after = random_bits(random_state, groups)
        index = range_of(groups)
        ranks = shuffle(index, index + below(bits, ops.maximum(count - index, 1)))
        begins = searchsorted(order, ranks * self.capacity)
        lengths = searchsorted(order, (ranks + 1) * self.capacity) - begins
        kept = ops.minimum(lengths, size)
        column = range_of(size)
        if ordered:
            bits, after = random_bits(after, groups)
            skipped = below(bits, ops.maximum(lengths - kept, 0) + 1)
            chosen = ops.expand_dims(skipped, 1) + column
        else:
            bits, after = random_bits(after, groups * size)
            left = ops.maximum(ops.expand_dims(lengths, 1) - column, 1)
            first = ops.expand_dims(index * self.capacity, 1)
            cells = first + column
            steps = cells + below(ops.reshape(bits, (groups, size)), left)
            shuffled = shuffle(ops.reshape(cells, (-1,)), ops.reshape(steps, (-1,)))
            chosen = ops.reshape(shuffled, (groups, size)) - first
        mask = column < ops.expand_dims(kept, 1)
        places = ops.select(mask, ops.expand_dims(begins, 1) + chosen, zeros_like(chosen))
        rows = ops.floor_mod(gather(order, places, 0), self.capacity)
        batch = self.state.rows_at(self.slot_of(rows))
        outputs = (mask,)
        for i in range(len(self.ones)):
            inside = ops.reshape(mask, (groups, size, *self.ones[i]))
            outputs = (*outputs, ops.select(inside, batch[i], self.zeros[i]))
        ops.assign(random_state, ops.select(ok, after, random_state))  # a failed check does not stop what follows it
        return outputs if self.blank is None else self.blank(outputs, ok)
