"""Whether there is room for another row, and the turn of rows in a queue with late columns. Axes: ``C`` capacity."""

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.base.late import MOST_LATE, PENDING
from ..store.base.length_groups import least_items
from ..store.spec.options import Options
from .in_place import Stored
from .primitives import column, gather, int64, item, stack
from .state import State


@ms.jit_class
class IsFull:
    """``() -> bool []``: whether there is no room for another row, or not for the items of a longest one.

    Args:
        state (State): The Parameters.
        room (Union[Callable, None]): Returns the rows that fit without evicting one that is kept; ``None`` if none are.
        options (Options): Options of the buffer.
    """

    def __init__(self, state: State, room: Callable[[], Tensor] | None, options: Options) -> None:
        self.state, self.room = state, room
        self.references = tuple(Stored(state.columns[group.column]) for group in options.length_groups)
        self.sizes = tuple((group.items, group.longest) for group in options.length_groups)

    def __call__(self):
        """Return whether it is full."""
        capacity = self.state.capacity
        head, count = ops.cast(self.state.head, ms.int64), ops.cast(self.state.count, ms.int64)
        needed = count
        if self.room is not None:
            needed = capacity - ops.cast(ops.reshape(self.room(), ()), ms.int64)
        full = needed >= capacity
        for i in range(len(self.sizes)):
            items, longest = self.sizes[i]
            slots = ops.floor_mod(stack((head + count - 1, head + count - needed)), capacity)
            references = ops.reshape(self.references[i].at(slots), (-1,))
            tail, first = item(references, 0) + item(references, 1), item(references, 2)
            place = ops.floor_mod(tail, items)
            end = longest + ops.select(place + longest > items, tail - place + items, tail)
            full = ops.logical_or(full, ops.logical_and(needed > 0, end - first > items))
            self.references[i].done(full)
        return full


@ms.jit_class
class Deliverable:
    """``() -> int64 []``: samples that a queue can deliver now, as `state.deliverable` counts them. Cost O(C)."""

    def __init__(self, state: State, options: Options) -> None:
        self.state, self.rows = state, Tensor(np.arange(state.capacity), ms.int64)
        self.weights, self.use_counts = Stored(state.weights), Stored(state.use_counts)
        self.references = tuple(Stored(state.columns[group.column]) for group in options.length_groups)
        self.end_of_pending = Tensor(PENDING + (1 << MOST_LATE), ms.int32)
        two = 2 * options.plan.n
        #: Places beside those of two samples, in rows and in items of each group, of which a row needs so many.
        self.places = 0 if options.rule is not None else state.capacity - two
        self.sizes = tuple((g.items - least_items(two, g.longest), g.longest) for g in options.length_groups)

    def __call__(self):
        """Return the number of samples."""
        head, count = ops.cast(self.state.head, ms.int64), ops.cast(self.state.count, ms.int64)
        slots, stored = ops.floor_mod(head + self.rows, self.state.capacity), self.rows < count
        waiting = ops.logical_and(stored, self.use_counts.at(slots) < self.end_of_pending)
        valid = ops.logical_and(stored, gather(self.weights.view(), slots, 0) > 0)
        behind = self.rows >= ops.reduce_min(ops.select(waiting, self.rows, count + self.rows * 0))
        taken = ops.logical_and(stored, ops.logical_and(behind, ops.logical_not(ops.logical_or(valid, waiting))))
        taken = ops.cast(taken, ms.int64)
        places = self.places - ops.reduce_sum(taken) if self.places > 0 else int64(0)
        for i in range(len(self.sizes)):
            items, longest = self.sizes[i]
            used = ops.reduce_sum(column(self.references[i].at(slots), 1) * taken)
            places = ops.minimum(places, ops.floor_divide(items - used, longest))
        passing = ops.reduce_sum(ops.cast(ops.logical_and(valid, behind), ms.int64))
        before = ops.reduce_sum(ops.cast(valid, ms.int64)) - passing
        deliverable = before + ops.maximum(ops.minimum(passing, places), int64(0))
        self.use_counts.done(deliverable)
        return deliverable
