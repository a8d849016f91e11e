"""Which rows of a buffer with weights are eligible, and how deliveries are counted. Each costs O(log C) a row.

Axes: ``C`` capacity.
"""

import mindspore as ms
from mindspore import Tensor, ops

from ..store.base.late import MOST_USES
from .access import DRAWN, USED_UP, Access
from .primitives import zeros_like
from .sum_tree import last_of_each


@ms.jit_class
class Deliver:
    """``(slots [n], ok [] or [n])``: counts deliveries and removes rows after `max_use` of them, unless not `ok`."""

    def __init__(self, state: Access, max_use: int | None) -> None:
        self.state = state
        self.max_use, self.most = max_use, Tensor(MOST_USES, ms.int32)

    def __call__(self, slots, ok):
        """Count deliveries, and remove rows that are used up."""
        use_counts = self.state.use_counts
        deliveries = ops.broadcast_to(ops.cast(ok, ms.int32), slots.shape)
        ops.scatter_add(use_counts.parameter, slots, deliveries)
        uses = use_counts.at(slots)
        events = ((DRAWN, ops.reduce_sum(ops.cast(deliveries, ms.int64))),)
        if self.max_use is None:
            ops.scatter_update(use_counts.parameter, ops.cast(slots, ms.int32), ops.minimum(uses, self.most))
        else:
            used_up = self.state.remove(slots, ops.logical_and(ok, uses >= self.max_use))
            events = (*events, (USED_UP, used_up))
        self.state.count_events(events)


@ms.jit_class
class Rows:
    """Eligibility if samples are single rows: rows that are stored and were not removed.

    `Windows` in `starts.py` has the same methods.
    """

    def __init__(self, state: Access) -> None:
        self.state = state

    def live(self, handles, slots, stored):
        """Return which handles are of eligible rows. `slots` and `stored` are those of the handles."""
        return ops.logical_and(stored, self.state.use_counts.at(slots) >= 0)

    def remove(self, handles, slots, wanted):
        """Remove rows. Returns their number, and which handles were of rows stored before."""
        stored = self.stored(slots, wanted)
        return self.state.remove(slots, stored), stored

    def stored(self, slots, wanted):
        """Return which of the wanted rows are not removed."""
        return ops.logical_and(wanted, self.state.kept(self.state.use_counts.at(slots)))

    def before_insertion(self, rows, slots, n, ends, ok):
        """Write the steps of n new rows in their episodes. The newest land in these slots, unless not `ok`.

        Returns whether they may be inserted, and their steps.
        """
        return ok, None

    def first_weights(self, priority):
        """Return the weights of new rows."""
        weights = self.state.weight_of(priority)
        return zeros_like(weights) if self.state.has_late else weights

    def first_uses(self, slots):
        """Return the use counts of new rows in these slots, which `before_insertion` has prepared."""
        return ops.broadcast_to(self.state.new_uses, slots.shape)

    def release(self, handles, slots, done):
        """Make rows eligible whose late columns have been written."""
        uses = self.state.use_counts.at(slots)
        self.state.use_counts.replace(slots, done, zeros_like(uses))
        weight = self.state.weight_of(self.state.priorities.at(slots))
        _, _, counted = last_of_each(slots, done)
        self.state.tree.put(slots, done, weight, counted)

    def after_insertion(self, steps):
        """Update the weights after new rows are stored."""
        return steps
