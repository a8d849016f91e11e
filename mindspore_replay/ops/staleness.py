"""Removal of stale rows: rows older than a limit, by the learner's clock."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.base.checks import LAST_CLOCK
from .access import STALE, Access
from .primitives import item, stack, zeros_like
from .rows import Rows
from .starts import Windows


@ms.jit_class
class RemoveStale:
    """``() -> clock``, int64 ``[3]``: removes stale rows, and returns the clock with the oldest row that is not stale.

    It looks at rows from the oldest that was not stale before, a few at a time, to the first that is not stale now and
    has no older row behind it.
    """

    AT_ONCE = 64

    def __init__(self, state: Access, rows: Rows | Windows, max_staleness: int) -> None:
        self.state, self.rows, self.max_staleness = state, rows, max_staleness
        self.offsets = Tensor(np.arange(self.AT_ONCE), ms.int64)
        self.unknown = Tensor(LAST_CLOCK, ms.int64)

    def __call__(self, clock):
        """Remove rows that are stale by the clock."""
        serial, fresh = item(clock, 1), self.unknown
        while ops.logical_or(fresh == self.unknown, serial < item(clock, 2)):
            fresh = ops.minimum(fresh, self.remove(serial, item(clock, 0)))
            serial = serial + self.AT_ONCE
        return stack((item(clock, 0), fresh, item(clock, 2)))

    def remove(self, serial, now):
        """Remove the stale rows among some, and return the first row that stays or is not stored, unknown if none."""
        handles = serial + self.offsets
        slots, stored = self.state.slots(handles)
        age = now - self.state.insertion_clocks.at(slots)
        stale = ops.logical_and(stored, age > self.max_staleness)
        removed, _ = self.rows.remove(handles, slots, stale)
        self.state.count_events(((STALE, removed),))
        return ops.reduce_min(ops.select(stale, zeros_like(handles) + self.unknown, handles))
