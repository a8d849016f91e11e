"""State of each row of a buffer with weights, and its changes.

Rows are identified by handles. A handle is invalid if its row is no longer stored, or was removed: deleted, used up or
stale. These are parts of the operators in `insert.py`, `sample.py` and `updates.py`; each costs O(log C) a row. Axes:
``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.late import MOST_LATE, MOST_USES, PENDING
from ..store.state import COUNTS
from .in_place import InPlace
from .primitives import gather, item, zeros_like
from .state import State
from .sum_tree import CompositeTree, LastOfEach, index_type


@ms.jit_class
class WeightOf:
    """``(priority float32) -> float64``: ``(priority + epsilon)^alpha``.

    Rounded to float32, so that power functions that differ in the last bits give the same weight.
    """

    def __init__(self, factors: Tensor) -> None:
        self.alpha, self.epsilon = factors[0], factors[1]

    def __call__(self, priority):
        """Convert priorities to weights."""
        weight = ops.pow(ops.cast(priority, ms.float64) + self.epsilon, self.alpha)
        return ops.cast(ops.cast(weight, ms.float32), ms.float64)


@ms.jit_class
class Uses:
    """Reads use counts, int32 ``[n]``: a removed row has the complement of its count, a pending row `PENDING` or more.

    A row is pending, and not drawn, until its late columns are written.
    """

    def __init__(self, state: State) -> None:
        self.has_late = state.has_late
        self.end_of_pending = Tensor(PENDING + (1 << MOST_LATE), ms.int32)

    def stored(self, uses):
        """Return which rows are not removed."""
        return ops.logical_or(uses >= 0, self.pending(uses)) if self.has_late else uses >= 0

    def pending(self, uses):
        """Return which rows are pending."""
        return uses < self.end_of_pending

    def removed(self, uses):
        """Return the use counts of these rows after their removal."""
        after = -1 - uses
        return ops.select(self.pending(uses), zeros_like(uses) - 1, after) if self.has_late else after

    def deliveries(self, uses):
        """Return how often rows were delivered."""
        uses = ops.select(self.pending(uses), zeros_like(uses), uses) if self.has_late else uses
        return ops.select(uses < 0, -1 - uses, uses)


@ms.jit_class
class Handles:
    """Converts between slots of a ring and handles, which are serial numbers of rows.

    Handles are int64, slots int32 or int64.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.index = index_type(state.capacity)

    def next(self):
        """Return the handle of the next row to be inserted."""
        return item(self.state.serials, 0)

    def oldest(self):
        """Return the handle of the oldest row."""
        return item(self.state.serials, 0) - ops.cast(self.state.count, ms.int64)

    def of(self, slots):
        """Return the handles of the rows in slots, ``[n]``."""
        row = ops.floor_mod(slots - self.state.head, self.state.capacity)
        return ops.cast(row, ms.int64) + self.oldest()

    def slots(self, handles):
        """Return slots, all in ``[0, C)``, and whether they hold the rows of these handles."""
        stored = ops.logical_and(handles >= self.oldest(), handles < self.next())
        slots = ops.floor_mod(handles - item(self.state.serials, 1), self.state.capacity)
        return ops.cast(slots, self.index), stored


@ms.jit_class
class Removal:
    """``(slots [n], removed [n] bool) -> rows removed``, int32 ``[]``: removes rows, and sets their weights to zero.

    The use count of a removed row is stored as its bitwise complement.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.tree = CompositeTree(state.capacity)
        self.last_of_each = LastOfEach()
        self.zero = Tensor(0.0, ms.float64)
        self.view, self.uses = InPlace((), np.int32), Uses(state)

    def __call__(self, slots, removed):
        """Remove rows, and return their number."""
        slots = ops.cast(slots, self.tree.index)
        _, exists, counted = self.last_of_each(slots, removed)
        uses = gather(self.view(self.state.use_counts), slots, 0)
        tree = self.tree.view(self.state.weights)
        old = gather(tree, slots, 0)
        ops.scatter_update(self.state.use_counts, slots, ops.select(exists, self.uses.removed(uses), uses))
        self.tree.write(self.state.weights, tree, slots, ops.masked_fill(old, exists, self.zero), counted, slots)
        return ops.reduce_sum(ops.cast(counted, ms.int32))


@ms.jit_class
class Count:
    """Adds to the counters of rows; each argument is int or int64 ``[]``."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.units = tuple(Tensor(unit) for unit in np.eye(len(COUNTS), dtype=np.int64))

    def __call__(self, drawn=0, used_up=0, stale=0, deleted=0, invalid=0):
        """Add to the counters."""
        happened = (drawn, used_up, stale, deleted, invalid)  # in the order of COUNTS
        total = self.state.counts
        for i in range(len(self.units)):
            if isinstance(happened[i], Tensor):
                total = total + self.units[i] * ops.cast(happened[i], ms.int64)
        ops.assign(self.state.counts, total)


@ms.jit_class
class Named:
    """``(handles [n], chosen [n] bool) -> int32 []``: counts the chosen handles but for -1, which names no row."""

    def __call__(self, handles, chosen):
        """Return the number of handles."""
        return ops.reduce_sum(ops.cast(ops.logical_and(chosen, handles >= 0), ms.int32))


@ms.jit_class
class Deliver:
    """``(slots [n], ok [] or [n])``: counts deliveries and removes rows after `max_use` of them, unless not `ok`."""

    def __init__(self, state: State, max_use: int | None) -> None:
        self.state = state
        self.max_use, self.most = max_use, Tensor(MOST_USES, ms.int32)
        self.removal = Removal(state)
        self.count = Count(state)

    def __call__(self, slots, ok):
        """Count deliveries, and remove rows that are used up."""
        deliveries = ops.broadcast_to(ops.cast(ok, ms.int32), slots.shape)
        use_counts = ops.scatter_add(self.state.use_counts, slots, deliveries)
        used_up, uses = 0, gather(use_counts, slots, 0)
        if self.max_use is None:
            ops.scatter_update(self.state.use_counts, ops.cast(slots, ms.int32), ops.minimum(uses, self.most))
        else:
            used_up = self.removal(slots, ops.logical_and(ok, uses >= self.max_use))
        self.count(drawn=ops.reduce_sum(ops.cast(deliveries, ms.int64)), used_up=used_up)


@ms.jit_class
class Rows:
    """Eligibility if samples are single rows: rows that are stored and were not removed.

    `Windows` in `starts.py` has the same methods.
    """

    def __init__(self, state: State, factors: Tensor) -> None:
        self.state = state
        self.tree, self.last_of_each = CompositeTree(state.capacity), LastOfEach()
        self.priorities = InPlace((), np.float32)
        self.weight_of = WeightOf(factors)
        self.removal = Removal(state)
        self.view, self.uses = InPlace((), np.int32), Uses(state)

    def live(self, handles, slots, stored):
        """Return which handles are of eligible rows; `slots` and `stored` are those of the handles."""
        return ops.logical_and(stored, gather(self.view(self.state.use_counts), slots, 0) >= 0)

    def remove(self, handles, slots, wanted):
        """Remove rows. Returns their number, and which handles were of rows stored before."""
        stored = self.stored(slots, wanted)
        return self.removal(slots, stored), stored

    def stored(self, slots, wanted):
        """Return which of the wanted rows are not removed."""
        return ops.logical_and(wanted, self.uses.stored(gather(self.view(self.state.use_counts), slots, 0)))

    def before_insertion(self, rows, slots, n, ends, ok):
        """Write the steps of n new rows in their episodes; the newest land in these slots, unless not `ok`.

        Returns whether they may be inserted, and their steps.
        """
        return ok, None

    def first_weights(self, priority):
        """Return the weights of new rows."""
        weights = self.weight_of(priority)
        return zeros_like(weights) if self.state.has_late else weights

    def first_uses(self, slots):
        """Return the use counts of new rows in these slots, which `before_insertion` has prepared."""
        return ops.broadcast_to(self.state.new_uses, slots.shape)

    def release(self, handles, slots, done):
        """Make rows eligible whose late columns have been written."""
        uses = gather(self.view(self.state.use_counts), slots, 0)
        ops.scatter_update(self.state.use_counts, slots, ops.select(done, zeros_like(uses), uses))
        tree = self.tree.view(self.state.weights)
        weight = self.weight_of(gather(self.priorities(self.state.priorities), slots, 0))
        weight = ops.select(done, weight, gather(tree, slots, 0))
        _, _, counted = self.last_of_each(slots, done)
        self.tree.write(self.state.weights, tree, slots, weight, counted, slots)

    def after_insertion(self, steps):
        """Update the weights after new rows are stored."""
        return steps
