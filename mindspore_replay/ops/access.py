"""What all composite operators share: rows by handle, arrays by slot, the weights, and the counters of events.

A handle is the serial number of a row. It is invalid if its row is no longer stored, or was removed: deleted, used up
or stale. Axes: ``C`` capacity.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns
from ..store.base.late import MOST_LATE, PENDING
from ..store.kernels.state import COUNTS
from .in_place import Stored, stored
from .primitives import int64, item, zeros_like
from .random import bits_at, mix_bits, unit_interval
from .ring import Gather
from .state import State
from .sum_tree import CompositeTree, index_type, last_of_each

#: Places of the events that `Access.count_events` counts.
DRAWN, USED_UP, STALE, DELETED_ROWS, INVALID = range(len(COUNTS))


@ms.jit_class
class Access:
    """The state of a ring: its Parameters by name, the arrays of row states as `Stored`, the weights as `tree`.

    Handles are int64, slots int32 or int64. Each method costs O(1) a row, and `remove` O(log C).

    Args:
        state (State): The Parameters.
        columns (Columns): The columns.
    """

    def __init__(self, state: State, columns: Columns) -> None:
        self.state = state
        self.columns, self.capacity = state.columns, state.capacity
        self.head, self.count, self.serials = state.head, state.count, state.serials
        self.random_state, self.beta, self.window = state.random_state, state.beta, state.window
        self.weights = state.weights
        self.max_priority, self.initial_priority = state.max_priority, state.initial_priority
        self.clock, self.counts, self.has_late, self.new_uses = (
            state.clock,
            state.counts,
            state.has_late,
            state.new_uses,
        )
        self.epoch, self.epochs = state.epoch, state.epochs
        self.updates = Stored(state.updates)
        self.priorities, self.use_counts = stored(state.priorities), stored(state.use_counts)
        self.insertion_clocks, self.row_serials = stored(state.insertion_clocks), stored(state.row_serials)
        self.steps, self.flags = stored(state.steps), stored(state.flags)
        self.index = index_type(state.capacity)
        self.tree = None if state.weights is None else CompositeTree(state.weights, state.capacity)
        self.contents = tuple(map(Stored, state.columns))
        self.gather = Gather(columns)
        if state.row_rule is not None:
            self.alpha, self.epsilon = state.row_rule[0], state.row_rule[1]
        self.end_of_pending = Tensor(PENDING + (1 << MOST_LATE), ms.int32)
        self.units = tuple(Tensor(unit) for unit in np.eye(len(COUNTS), dtype=np.int64))

    # Rows by handle.

    def next(self):
        """Return the handle of the next row to be inserted."""
        return item(self.serials, 0)

    def oldest(self):
        """Return the handle of the oldest row."""
        return item(self.serials, 0) - ops.cast(self.count, ms.int64)

    def handles(self, slots):
        """Return the handles of the rows in slots, ``[n]``."""
        row = ops.floor_mod(slots - self.head, self.capacity)
        return ops.cast(row, ms.int64) + self.oldest()

    def slots(self, handles):
        """Return slots, all in ``[0, C)``, and whether they contain the rows of these handles."""
        stored = ops.logical_and(handles >= self.oldest(), handles < self.next())
        slots = ops.floor_mod(handles - item(self.serials, 1), self.capacity)
        return ops.cast(slots, self.index), stored

    def rows_at(self, slots):
        """Return copies of the rows in these slots, of the columns' own types."""
        return self.gather(self.columns, slots)

    # Weights and use counts. A removed row has the complement of its use count, a pending row `PENDING` or more: one
    # that is not drawn until its late columns are written.

    def weight_of(self, priority):
        """Return ``(priority + epsilon)^alpha``, float64.

        Rounded to float32, so that power functions that differ in the last bits return the same weight.
        """
        weight = ops.pow(ops.cast(priority, ms.float64) + self.epsilon, self.alpha)
        return ops.cast(ops.cast(weight, ms.float32), ms.float64)

    def pending(self, uses):
        """Return which rows with these use counts are pending."""
        return uses < self.end_of_pending

    def kept(self, uses):
        """Return which rows with these use counts are not removed."""
        return ops.logical_or(uses >= 0, self.pending(uses)) if self.has_late else uses >= 0

    def removed(self, uses):
        """Return the use counts of these rows after their removal."""
        after = -1 - uses
        return ops.select(self.pending(uses), zeros_like(uses) - 1, after) if self.has_late else after

    def deliveries(self, uses):
        """Return how often rows with these use counts were delivered."""
        uses = ops.select(self.pending(uses), zeros_like(uses), uses) if self.has_late else uses
        return ops.select(uses < 0, -1 - uses, uses)

    def remove(self, slots, chosen):
        """Remove the chosen rows and set their weights to zero, and return their number, int32 ``[]``."""
        slots = ops.cast(slots, self.index)
        _, exists, counted = last_of_each(slots, chosen)
        self.use_counts.replace(slots, exists, self.removed(self.use_counts.at(slots)))
        self.tree.put(slots, exists, self.tree.none, counted)
        return ops.reduce_sum(ops.cast(counted, ms.int32))

    # Counters.

    def count_events(self, events):
        """Add to the counters, for each pair of a counter's place and a number."""
        total = self.counts
        for place, number in events:
            total = total + self.units[place] * ops.cast(number, ms.int64)
        ops.assign(self.counts, total)

    def named(self, handles, chosen):
        """Count the chosen handles but for -1, which names no row, int32 ``[]``."""
        return ops.reduce_sum(ops.cast(ops.logical_and(chosen, handles >= 0), ms.int32))


@ms.jit_class
class ReservoirAccess(Access):
    """The state of a reservoir. The slot of a row depends on its serial number, as csrc/core/reservoir.h has it."""

    def places(self, serial):
        """Return the slots drawn for rows with these serial numbers, int32 ``[n]``, and whether they are kept."""
        earlier = serial - item(self.serials, 1)
        # Samples use the key's own sequence.
        unit = unit_interval(bits_at(mix_bits(item(self.random_state, 0)), serial))
        place = ops.cast(ops.ceil(unit * ops.cast(earlier + int64(1), ms.float64)), ms.int64) - int64(1)
        slots = ops.select(earlier < self.capacity, earlier, place)
        kept = slots < self.capacity
        return ops.cast(ops.select(kept, slots, zeros_like(slots)), ms.int32), kept

    def handles(self, slots):
        """Return the handles of the rows in slots, ``[n]``."""
        handles = self.row_serials.at(slots)
        self.row_serials.done(handles)
        return handles

    def slots(self, handles):
        """Return slots, all in ``[0, C)``, and whether they contain the rows of these handles."""
        first = item(self.serials, 1)
        known = ops.logical_and(handles >= first, handles < self.next())
        slots, kept = self.places(ops.select(known, handles, zeros_like(handles) + first))
        stored = ops.logical_and(ops.logical_and(known, kept), self.row_serials.at(slots) == handles)
        self.row_serials.done(stored)
        return slots, stored


def access(state: State, columns: Columns) -> Access:
    """Return the access of composite operators to a state."""
    return (Access if state.row_serials is None else ReservoirAccess)(state, columns)
