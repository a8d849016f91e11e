"""A store whose rows refer to items in arenas, which it places and counts.

Axes: ``B`` rows, ``N`` items of all rows, ``*F`` an item's shape.
"""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np

from ..base.length_groups import LengthGroup
from ..kernels import library, state
from .inputs import NewRows, as_array
from .store import Store


class ArenaStore(Store):
    """A store with arenas. A subclass declares the columns that have one.

    Attributes:
        group_of (dict[int, LengthGroup]): The kinds of the columns whose rows differ in length, by index.
    """

    group_of: dict[int, LengthGroup]
    _items: "dict[LengthGroup, library.calls.Items]"

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Return a block in which no graph and no other process intervenes between kernels and copies of items.

        It must not touch Tensors: their arrays wait for graphs, which wait for this block.
        """
        alone = self.folder is None and self._tensors.cls is None
        return contextlib.nullcontext() if alone else self.kernels_kept_out()

    # The arenas.

    def references(self, group: LengthGroup) -> np.ndarray:
        """Return the offsets and lengths by slot. Shape ``[C, 2]``, int64."""
        return self.arrays[f"column.{group.name}"]

    def count_now(self) -> int:
        """Return the number of rows stored. The caller keeps others out."""
        return self._count.item()

    def tail(self, group: LengthGroup) -> int:
        """Return the offset after the newest row."""
        count = self.count_now()
        newest = (self.arrays["head"].item() + count - 1) % self.options.capacity
        return int(self.references(group)[newest].sum()) if count else 0

    def rows_before(self, group: LengthGroup, limit: int) -> int:
        """Return the number of the oldest rows with items before an offset. Cost O(this number)."""
        references, head, rows = self.references(group), self.arrays["head"].item(), 0
        while rows < self.count_now() and references[(head + rows) % self.options.capacity, 0] < limit:
            rows += 1
        return rows

    def unneeded(self) -> int:
        """Return the number of the oldest rows that no sample needs, in a buffer that keeps those to be drawn."""
        if not self.options.never_evicts_valid:
            return 0
        return state.room(self.options, self.arrays) - self.options.capacity + self.count_now()

    def full(self) -> bool:
        """Return True if there is no room for another row, or not for the items of a longest one."""
        return super().full() or not self.fits(1, 0)

    def room_in_items(self) -> str:
        """Return how many items the next row may have, for a message."""
        return self._between(lambda: state.room_in_items(self.options, self.arrays))

    def fits(self, rows: int, in_progress: int) -> bool:
        """Return True if there is room for the items of new rows, and for those of other insertions in progress."""
        lengths = getattr(rows, "lengths", {})
        return self._between(lambda: self._fits(lengths, rows, in_progress))

    def _fits(self, lengths: Mapping[int, np.ndarray], rows: int, in_progress: int) -> bool:
        for group in self.options.length_groups:
            own = lengths.get(group.column, np.full(rows, group.longest))
            all_lengths = np.append(own, np.full(in_progress, group.longest))
            if all_lengths.sum() > group.items:
                return False
            tail = group.tail_after(self.tail(group), all_lengths)
            if self.rows_before(group, tail - group.items) > self.unneeded():
                return False
        return True

    def place(self, i: int, references: np.ndarray, items: np.ndarray) -> None:
        """Store the items of rows of a column, whose references are these, ``[B, 2]``."""
        group = self.group_of[i]
        self._items[group].place(group.columns.index(i), references, np.ascontiguousarray(items))


def as_room(new: NewRows, groups: Sequence[LengthGroup]) -> int:
    """Return the number of new rows, with their lengths for `RaggedStore.fits`."""
    rows = _Rows(new.batch.rows)
    rows.lengths = {group.column: as_array(new.fields[group.column]).reshape(-1, 2)[:, 1] for group in groups}
    return rows


class _Rows(int):
    """A number of rows, with their lengths."""

    lengths: Mapping[int, np.ndarray]
