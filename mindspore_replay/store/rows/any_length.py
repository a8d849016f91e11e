"""A store with columns whose rows differ in length.

For the kernels, such a column is one of references: offset and length of a row, whose items are in an arena. Draws,
limits, priorities and windows are those of any other column. Columns that share their lengths share references: in
place of the others kernels store a zero byte a row, so that these too can be late. A new row evicts the oldest ones
whose items it needs.

Axes: ``B`` rows, ``L`` items of a padded row, ``N`` items of all rows, ``*F`` an item's shape.
"""

import contextlib
import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.checks import check_size
from ..base.late import pending
from ..base.length_groups import LONGEST, LengthGroup, Packing
from ..base.nested import at
from ..base.random import random_bits
from ..base.ring import stored_slots
from ..base.schema import Schema, is_tensor
from ..base.structs import COUNTS
from ..base.types import Arrays, Experience, Outputs, Values
from ..kernels import library, state
from ..kernels.call import NO_TENSORS, Tensors
from ..kernels.locks import Held
from ..spec.episodes import removed
from ..spec.options import Options
from ..spec.plan import HANDLE, WEIGHT
from ..spec.spec import BufferSpec
from .any_length_insertion import RaggedInsertion
from .compressed import CompressedStore
from .inputs import as_handles, as_positions, as_values
from .items import Items, as_items, check_items, reference_of
from .store import Store

if TYPE_CHECKING:
    from ..folder.folder import Folder


def make_store(spec: BufferSpec, tensors: Tensors = NO_TENSORS, folder: "Folder | None" = None) -> Store:
    """Make the store of a buffer."""
    if spec.columns.compressed:
        return CompressedStore(spec.columns, spec.options, tensors=tensors)
    cls = RaggedStore if spec.columns.length_groups else Store
    return cls(spec.columns, spec.options, tensors=tensors, folder=folder)


class RaggedStore(Store):
    """A store with columns whose rows differ in length.

    Args:
        rows_schema (Schema): The columns of the rows. ``schema`` has those that kernels store.
        options, arrays, tensors, folder: As for `Store`.
    """

    def __init__(
        self,
        rows_schema: Schema,
        options: Options,
        arrays: Arrays | None = None,
        tensors: Tensors = NO_TENSORS,
        folder: "Folder | None" = None,
    ) -> None:
        self.group_of = rows_schema.group_of
        super().__init__(rows_schema.references, options, arrays, tensors._replace(share=None), folder)
        self._rows_schema, self._share_rows = rows_schema, tensors.share
        arenas = {i: self.arrays[f"items.{rows_schema.names[i]}"] for i in self.group_of}
        arenas = {i: arena.view(rows_schema.numpy_types[i]) for i, arena in arenas.items()}  # of bools, not of bytes
        self._items = {
            group: library.calls.Items(tuple(map(arenas.__getitem__, group.columns))) for group in options.length_groups
        }
        self._first_column, self._has_windows = options.plan.bookkeeping, options.plan.reaches_out
        self._sampled = [output.column for output in options.plan.outputs[self._first_column :]]
        self._sized: dict[int, Store] = {}

    def resized(self, options: Options) -> "RaggedStore":
        """Return a store on the same arrays that draws by other options."""
        arrays, tensors = {**self.arrays, "updates": self.updates}, self._tensors._replace(share=self._share_rows)
        resized = RaggedStore(self._rows_schema, options, arrays, tensors)
        resized.folder = self.folder
        return resized

    def exclusive(self) -> Held:
        """Return a block in which no graph and no other process intervenes between kernels and copies of items.

        It must not touch Tensors: their arrays wait for graphs, which wait for this block.
        """
        alone = self.folder is None and self._tensors.cls is None
        return contextlib.nullcontext() if alone else self.kernels_kept_out()

    # The arenas.

    def references(self, group: LengthGroup) -> np.ndarray:
        """Return the offsets and lengths by slot. Shape ``[C, 2]``, int64."""
        return self.arrays[f"column.{group.name}"]

    def full(self) -> bool:
        """Return True if there is no room for another row, or not for the items of a longest one."""
        return super().full() or self.room_for_longest() < 1

    def room_for_longest(self) -> int:
        """Return the number of the longest rows whose items fit."""
        return self._between(lambda: state.room_for_longest(self.options, self.arrays))

    def room_in_items(self) -> str:
        """Return how many items the next row may have, for a message."""
        return self._between(lambda: state.room_in_items(self.options, self.arrays))

    def place(self, i: int, references: np.ndarray, items: np.ndarray) -> None:
        """Store the items of rows of a column, whose references are these, ``[B, 2]``."""
        group = self.group_of[i]
        self._items[group].place(group.columns.index(i), references, np.ascontiguousarray(items))

    # Rows in and out.

    @functools.cached_property
    def insertion(self) -> RaggedInsertion:
        """The object that checks and stores rows for `insert`."""
        exclusion, tensors = weakref.WeakMethod(self.kernels_kept_out), self._tensors._replace(share=self._share_rows)
        return RaggedInsertion(self._rows_schema, self.options, self._state, tensors, exclusion)

    @functools.cached_property
    def try_sample(self) -> Any:
        """Leave all samples to `sample`, whose caller must hold the lock until the rows are copied."""
        return lambda _: -1

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> Outputs:
        """Draw a batch, as `Store.sample` does: lengths, int32, before the columns."""
        return self.sample_as(bounds, beta, Packing())

    def sample_as(self, bounds: tuple[int, int] | None, beta: float | None, pack: Packing) -> Outputs:
        """Draw a batch with rows in some form.

        Args:
            bounds (Union[tuple[int, int], None]): As for `Store.sample`.
            beta (Union[float, None]): As for `Store.sample`.
            pack (Packing): The form. Offsets are int32 ``[B + 1]``.
        """
        if pack.packed and self._has_windows:
            name = self.options.cls_name
            raise ValueError(f"For '{name}', 'sample_packed' needs samples of single rows, but got windows of steps.")
        with self.exclusive():
            if pack.max_items is not None:
                sampled = self._drawn_within(pack.max_items, bounds, beta)
            else:
                sampled = super().sample(bounds, beta)
            batch = self._with_items(sampled, self._first_column, self._sampled, pack)
        return self._shared(batch)

    def read(self, index: Values) -> Outputs:
        """Return the lengths and the rows at logical positions, padded to the longest of them."""
        positions = as_positions(self.options.cls_name, index)
        with self.exclusive():
            rows = self._with_items(super().read(positions), 0, range(len(self.schema)), LONGEST)
        return self._shared(rows)

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> Outputs:
        """Draw groups by a column of ints, as `Store.sample_groups` does. The lengths follow the mask."""
        with self.exclusive():
            batch = super().sample_groups(column, ordered, groups, size)
            batch = self._with_items(batch, 1, range(len(self.schema)), Packing())
        return self._shared(batch)

    def _with_items(self, batch: Sequence[Any], first: int, columns: Sequence[int], pack: Packing) -> Outputs:
        """Return drawn arrays with lengths or offsets, and rows in place of references, from the array `first` on."""
        lengths: list[np.ndarray] = []
        rows = dict(zip(columns, batch[first:]))
        for group, items in self._items.items():
            references = rows[group.column]
            if pack.packed:
                of_group, arrays = items.packed(references)
            elif pack.longest:
                of_group, arrays = items.padded(references, -1)
            else:
                of_group, arrays = items.padded(self._cut(group, references), group.sampled)
            lengths.append(of_group)
            rows.update(zip(group.columns, arrays))
        return *batch[:first], *lengths, *rows.values()

    def _shared(self, arrays: Outputs) -> Outputs:
        share: Any = self._share_rows
        return arrays if share is None else tuple(map(share, arrays))

    def _cut(self, group: LengthGroup, rows: np.ndarray) -> np.ndarray:
        """Return references of rows; if longer ones are cut at random, of a part of them."""
        if not group.takes_bits:
            return rows
        more = np.maximum(rows[..., 1] - group.sampled, 0)
        bits = self._random_bits(more.size).reshape(more.shape)
        offsets = rows[..., 0] + (bits % (more + 1).astype(np.uint64)).astype(np.int64)
        return np.stack([offsets, rows[..., 1] - more], -1)

    def _random_bits(self, n: int) -> np.ndarray:
        """Take n random numbers that no draw of rows takes, 64 bits each. Shape ``[n]``, uint64."""
        state = self.arrays["random_state"]
        key, counter = state.tolist()
        state[1] = counter + n
        return random_bits(~key, counter + np.arange(n))

    # Batches with a bound on their items.

    def _drawn_within(self, max_items: int, bounds: tuple[int, int] | None, beta: float | None) -> Sequence[Any]:
        """Draw the rows before the first one that does not fit, each once.

        Rows drawn by priority are put in a random order before, since they come in that of their slots, a stratum each.
        """
        options, plan = self.options, self.options.plan
        check_size(options.cls_name, "max_items", max_items, 2**31 - 1, max(g.longest for g in options.length_groups))
        if plan.draw == "epochs" or (plan.max_use is not None and not plan.in_order):
            raise ValueError(
                f"For '{options.cls_name}', 'max_items' needs rows that can be drawn again, or a queue: here a row "
                "that does not fit would be lost."
            )
        if plan.in_order:
            slots = stored_slots(self.arrays, options.capacity)
            slots = slots[self.arrays["weights"][slots] > 0]
            slots = (slots if plan.draw == "oldest_first" else slots[::-1])[: plan.n]
            fitting = self._fitting(slots, max_items)
            if len(slots) < plan.n or fitting == plan.n or bounds is not None:
                return super().sample(bounds, beta)
            if fitting not in self._sized:
                self._sized[fitting] = self.resized(options._replace(plan=plan._replace(n=fitting)))
            return Store.sample(self._sized[fitting], bounds, beta)
        by_priority, places = plan.draw == "priority", {output.kind: i for i, output in enumerate(plan.outputs)}
        if by_priority and beta is None:
            beta = float(self.arrays["beta"][0])  # which the draw moves
        sampled: Sequence[Any] = super().sample(bounds, beta)
        slots = self._slots(sampled[places[HANDLE]])
        order = np.argsort(self._random_bits(plan.n)) if by_priority else np.arange(plan.n)
        _, first = np.unique(slots[order], return_index=True)
        chosen = order[np.sort(first)]
        chosen = chosen[: self._fitting(slots[chosen], max_items)]
        rest = np.setdiff1d(np.arange(plan.n), chosen)
        np.subtract.at(self.arrays["use_counts"], slots[rest], 1)  # they are not delivered
        self.arrays["counts"][COUNTS.index("drawn")] -= len(rest)
        batch = [np.ascontiguousarray(array[chosen]) for array in sampled]
        if by_priority and not plan.by_buffer:  # the largest importance weight is that of a row that stays
            leaves = self.arrays["weights"][slots[chosen]]
            batch[places[WEIGHT]] = ((leaves.min() / leaves) ** beta).astype(np.float32)
        return batch

    def _fitting(self, slots: np.ndarray, max_items: int) -> int:
        """Return how many of the first rows have at most so many items of each kind together."""
        sums = [self.references(group)[slots, 1].cumsum() for group in self.options.length_groups]
        return int(min(np.searchsorted(each, max_items, "right") for each in sums))

    # The state of rows.

    def _slots(self, handles: np.ndarray) -> np.ndarray:
        """Return the slots of rows, or -1 for those that are not stored. Shape ``[n]``, int64."""
        count, head = self._count.item(), self.arrays["head"].item()
        rows = handles - (self.arrays["serials"][0] - count)
        return np.where((rows >= 0) & (rows < count), (head + rows) % self.options.capacity, -1)

    def update(self, handles: Values, values: Experience) -> np.ndarray:
        """Write columns of stored rows, as `Store.update` does. Rows keep their lengths.

        Raises:
            TypeError, ValueError: If an argument does not fit, or a row has another length. Nothing is written then.
            RuntimeError: If a row in a folder has its items already: a process that dies would leave a part of them.
        """
        where, by_column = self._given(handles, values)
        with self.exclusive():
            converted, writes = self._converted(where, by_column, isinstance(values, Mapping))
            for write in writes:
                self.place(*write)
            return self._write(*converted)

    def check_update(self, handles: Values, values: Experience) -> None:
        """Raise the errors of `update`, and write nothing."""
        where, by_column = self._given(handles, values)
        with self.exclusive():
            self._converted(where, by_column, isinstance(values, Mapping))

    def _given(self, handles: Values, values: Experience) -> tuple[np.ndarray, dict[int, Any]]:
        """Return handles and, for each column given, its rows: `Items`, or an array. No Tensor: see `held`."""
        schema = self._rows_schema
        by_column: dict[int, Any] = {}
        for i, path in schema.chosen(values).items():
            value = at(values, path)
            by_column[i] = as_items(schema, i, value) if i in self.group_of else schema.fitted(i, value)
            if is_tensor(by_column[i]):
                by_column[i] = schema.as_array(i, by_column[i])
        check_items(schema, "values", by_column)
        return as_handles(self.options.cls_name, handles), by_column

    def _converted(self, where: np.ndarray, by_column: Mapping[int, Any], by_name: bool) -> tuple[Any, list[Any]]:
        """Return the arguments of the kernel of `update`, and those of `place`, for each column whose rows differ."""
        schema, stored, writes = self._rows_schema, dict(by_column), []
        slots = self._slots(where.reshape(-1))
        slots = np.where(removed(self.arrays, slots), -1, slots)
        last = np.zeros(len(slots), bool)  # of several rows for one slot, the last counts
        last[len(slots) - 1 - np.unique(slots[::-1], return_index=True)[1]] = True
        last &= slots >= 0
        for i in by_column.keys() & self.group_of.keys():
            items, group = by_column[i], self.group_of[i]
            references = np.where(slots[:, None] >= 0, self.references(group)[slots], 0)
            self._check_rows(i, where, slots, items, references)
            of_leader = references.reshape(*where.shape, 2)
            stored[i] = of_leader if i == group.column else reference_of(schema, i, items)
            rows = items.rows[np.repeat(last, items.of_rows)]
            writes.append((i, np.ascontiguousarray(references[last]), rows))
        values: Any = {schema.names[i]: value for i, value in stored.items()} if by_name else list(stored.values())
        return as_values(self.schema, self.options, where, values), writes

    def _check_rows(self, i: int, where: np.ndarray, slots: np.ndarray, items: Items, references: np.ndarray) -> None:
        """Raise an error unless rows of a column have the lengths of the valid rows, and may be written there."""
        name, column, lengths = self.options.cls_name, self._rows_schema.names[i], items.of_rows
        if (items.lengths is None) != (where.ndim == 0) or len(lengths) != len(slots):
            expected = "one row" if where.ndim == 0 else f"a list of {len(slots)}"
            got = "one row" if items.lengths is None else f"a list of {len(lengths)}"
            raise ValueError(
                f"For '{name}', 'values' must hold a row of each column for each of 'indices', of column {column!r} "
                f"{expected}, but got {got}."
            )
        if (wrong := np.flatnonzero((slots >= 0) & (lengths != references[:, 1]))).size:
            raise ValueError(
                f"For '{name}', rows keep their lengths, but got {lengths[wrong[0]]} items of column {column!r} for "
                f"the row {where.reshape(-1)[wrong[0]]}, which has {references[wrong[0], 1]}. Insert another row."
            )
        uses = self.arrays["use_counts"][slots[slots >= 0]]
        if self.folder is not None and not (pending(uses) & ((uses & self.options.late_bits([i])) > 0)).all():
            raise RuntimeError(
                f"For '{name}', items of column {column!r} in a folder are written once, by 'insert', or by 'update' "
                "if the column is late: otherwise a killed process could leave a part of them. Insert another row."
            )
