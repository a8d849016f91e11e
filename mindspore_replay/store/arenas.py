"""A store whose rows refer to items in arenas, which it evicts, places and counts.

Axes: ``B`` rows, ``N`` items of all rows, ``*F`` an item's shape.
"""

import contextlib
import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import library, state
from .call import Array, Call
from .checks import no_room
from .inputs import NewRows, as_array
from .kinds import Kind
from .store import Store


class ArenaStore(Store):
    """A store with arenas. A subclass declares the columns that have one.

    Attributes:
        kind_of (dict[int, Kind]): The kinds of the columns whose rows differ in length, by index.
    """

    kind_of: dict[int, Kind]
    _arenas: dict[int, np.ndarray]

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Return a block in which no other process intervenes between kernels and copies of items."""
        return contextlib.nullcontext() if self.folder is None else self.kernels_kept_out()

    # The arenas.

    def references(self, kind: Kind) -> np.ndarray:
        """Return the offsets and lengths by slot. Shape ``[C, 2]``, int64."""
        return self.arrays[f"column.{kind.name}"]

    def count_now(self) -> int:
        """Return the number of rows stored. The caller keeps others out."""
        return self._count.item()

    def tail(self, kind: Kind) -> int:
        """Return the offset after the newest row."""
        count = self.count_now()
        newest = (self.arrays["head"].item() + count - 1) % self.options.capacity
        return int(self.references(kind)[newest].sum()) if count else 0

    def rows_before(self, kind: Kind, limit: int) -> int:
        """Return the number of the oldest rows with items before an offset. Cost O(this number)."""
        references, head, rows = self.references(kind), self.arrays["head"].item(), 0
        while rows < self.count_now() and references[(head + rows) % self.options.capacity, 0] < limit:
            rows += 1
        return rows

    def unneeded(self) -> int:
        """Return the number of the oldest rows that can be evicted from a buffer that keeps those to be drawn."""
        return state.room(self.options, self.arrays) - self.options.capacity + self.count_now()

    def fits(self, rows: int, in_progress: int) -> bool:
        """Return True if there is room for the items of new rows, and for those of other insertions in progress."""
        lengths = getattr(rows, "lengths", {})
        return self._between(lambda: self._fits(lengths, rows, in_progress))

    def _fits(self, lengths: Mapping[int, np.ndarray], rows: int, in_progress: int) -> bool:
        for kind in self.options.kinds:
            own = lengths.get(kind.column, np.full(rows, kind.longest))
            all_lengths = np.append(own, np.full(in_progress, kind.longest))
            if all_lengths.sum() > kind.items:
                return False
            _, tail = kind.placed(self.tail(kind), all_lengths)
            if self.rows_before(kind, tail - kind.items) > self.unneeded():
                return False
        return True

    @functools.cached_property
    def _evict(self) -> Call:
        rows = [Array((1, *shape), dtype) for shape, dtype in zip(self.schema.shapes, self.schema.dtypes)]
        arguments = {**self._state, "rows": rows, "written": Array((2,), "int64")}
        return Call("update", self.options.groups, arguments)

    def evict(self, rows: int) -> None:
        """Evict the oldest rows. The caller keeps others out."""
        if rows > 0:
            status = self._handle.replay_evict(ctypes.c_int64(rows), *self._evict.raw())
            if status != library.OK:
                raise library.KernelError("replay_evict", status)

    def place(self, i: int, references: np.ndarray, items: np.ndarray) -> None:
        """Store the items of rows of a column, whose references are these, ``[B, 2]``."""
        library.calls.place_items(self._arenas[i], references, np.ascontiguousarray(items))

    def insert_items(
        self,
        fields: list[Any],
        lengths: Sequence[np.ndarray],
        items: Mapping[int, np.ndarray],
        store: Callable[[list[Any]], bool],
    ) -> bool:
        """Let `store` store rows, evict the oldest whose items they overwrite, and store items; others are kept out.

        Args:
            fields (list): The fields as kernels store them; references are set here.
            lengths (Sequence[numpy.ndarray]): The lengths of the rows for each kind, int64 ``[n]``.
            items (Mapping[int, numpy.ndarray]): The items by column.
            store (Callable): Returns False if it has stored nothing.

        Returns:
            bool: What `store` returned.
        """
        evicted, placed, rows = 0, {}, len(lengths[0])
        for kind, of_kind in zip(self.options.kinds, lengths):
            offsets, tail = kind.placed(self.tail(kind), of_kind)
            evicted = max(evicted, self.rows_before(kind, tail - kind.items))
            placed[kind] = references = np.empty((rows, 2), np.int64)
            references[:, 0], references[:, 1] = offsets, of_kind
            fields[kind.column] = references.reshape(np.shape(fields[kind.column]))
        if evicted and self.options.never_evicts_valid and evicted > self.unneeded():
            name, capacity = self.options.cls_name, self.options.capacity
            raise no_room(name, rows, self.room(), capacity, self.pending_note(), of_items=True)
        stored = self.count_now() + rows
        if not store(fields):
            return False
        self.evict(evicted - (stored - self.count_now()))
        for i, of_column in items.items():
            self.place(i, placed[self.kind_of[i]], of_column)
        return True


def as_room(new: NewRows, kinds: Sequence[Kind]) -> int:
    """Return the number of new rows, with their lengths for `RaggedStore.fits`."""
    rows = _Rows(new.batch.rows)
    rows.lengths = {kind.column: as_array(new.fields[kind.column]).reshape(-1, 2)[:, 1] for kind in kinds}
    return rows


class _Rows(int):
    """A number of rows, with their lengths."""

    lengths: Mapping[int, np.ndarray]
