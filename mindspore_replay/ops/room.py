"""Room for new rows where those that can still be drawn are not evicted, and the turn of rows in a queue."""

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.base.kinds import least_items
from ..store.spec.episodes import WindowRule
from ..store.spec.options import Options
from .access import Access
from .in_place import Stored
from .primitives import column, gather, int64, item, stack
from .state import State


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


@ms.jit_class
class IsFull:
    """``() -> bool []``: whether there is no room for another row, or not for the items of a longest one."""

    def __init__(self, state: State, room: Callable[[], Tensor] | None, options: Options) -> None:
        self.state, self.room = state, room
        self.references = tuple(Stored(state.columns[kind.column]) for kind in options.kinds)
        self.sizes = tuple((kind.items, kind.longest) for kind in options.kinds)

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
    """``() -> int64 []``: samples that a queue can deliver now, as `store.state.deliverable` counts them. Cost O(C)."""

    def __init__(self, state: Access, options: Options) -> None:
        self.state, self.rows = state, Tensor(np.arange(state.capacity), ms.int64)
        self.references = tuple(state.contents[kind.column] for kind in options.kinds)
        two = 2 * options.plan.n
        #: Places beside those of two samples, in rows and in items of each kind, of which a row needs so many.
        self.places = 0 if options.rule is not None else state.capacity - two
        self.sizes = tuple((kind.items - least_items(two, kind.longest), kind.longest) for kind in options.kinds)

    def __call__(self):
        """Return the number of samples."""
        head, count = ops.cast(self.state.head, ms.int64), ops.cast(self.state.count, ms.int64)
        slots, stored = ops.floor_mod(head + self.rows, self.state.capacity), self.rows < count
        waiting = ops.logical_and(stored, self.state.pending(self.state.use_counts.at(slots)))
        valid = ops.logical_and(stored, gather(self.state.tree.view(), slots, 0) > 0)
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
        self.state.use_counts.done(deliverable)
        return deliverable
