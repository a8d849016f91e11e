"""Room for new rows where those that can still be drawn are not evicted."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.episodes import WindowRule
from .access import Access
from .primitives import int64, item


@ms.jit_class
class Room:
    """``() -> int64 []``: rows that can be inserted without evicting one that can still be drawn.

    Weights must be 0 and 1. Cost O(log C), with late columns O(C).
    """

    def __init__(self, state: Access, rule: WindowRule | None) -> None:
        self.state = state
        # The newest rows may become starts, and a start needs its past.
        self.open = 0 if rule is None else (rule.future - 1) * rule.streams
        self.past = 0 if rule is None else rule.past * rule.streams
        self.first = Tensor([1.0], ms.float64)
        self.rows = Tensor(np.arange(state.capacity), ms.int64)

    def __call__(self):
        """Return the number of rows."""
        tree = self.state.tree
        view = tree.view()
        head, count = ops.cast(self.state.head, ms.int64), ops.cast(self.state.count, ms.int64)
        some = tree.positive(view) > 0
        target = tree.rotate(view, ops.reshape(head, (1,)), self.first)
        slot = item(ops.cast(tree.descend(view, target, some, None), ms.int64), 0)
        unneeded = ops.select(some, ops.floor_mod(slot - head, self.state.capacity), count)
        if self.state.has_late:
            unneeded = ops.minimum(unneeded, self.first_pending(head, count) - self.open)
        unneeded = ops.maximum(ops.minimum(unneeded, count - self.open) - self.past, int64(0))
        return self.state.capacity - count + unneeded

    def first_pending(self, head, count):
        """Return the logical position of the first pending row, or a number beyond all rows if there is none."""
        capacity = self.state.capacity
        uses = self.state.use_counts.at(ops.floor_mod(head + self.rows, capacity))
        waits = ops.logical_and(self.state.pending(uses), self.rows < count)
        return ops.reduce_min(ops.select(waits, self.rows, self.rows * 0 + 2 * capacity))
