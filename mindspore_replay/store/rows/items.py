"""Rows of columns that differ in length, as users pass them, and what kernels store of them.

Axes: ``B`` rows of a batch, ``n`` items of a row, ``N`` items of all rows, ``*F`` an item's shape.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.lengths import of_group
from ..base.schema import Misfit, Schema, is_tensor
from ..base.types import Experience, Values


class Items(NamedTuple):
    """Rows of one column: the items of all, ``[N, *F]``, and their lengths, int64 ``[B]``, or ``None`` for one row."""

    rows: np.ndarray
    lengths: np.ndarray | None

    @property
    def of_rows(self) -> np.ndarray:
        """The lengths, also of one row."""
        return np.array([len(self.rows)]) if self.lengths is None else self.lengths


def with_lengths(schema: Schema, exp: Experience, lengths: Values | Mapping[str, Values]) -> list[Any]:
    """Return the fields of a batch whose rows have these lengths: flat ``[N, *F]``, or padded ``[B, L, *F]``."""
    fields: list[Any] = list(schema.present_fields(exp))
    if not schema.length_groups:
        raise ValueError(f"For '{schema.cls_name}', 'lengths' needs a column whose shape begins with None.")
    for group in schema.length_groups:
        counts = of_group(schema.cls_name, schema.names, "lengths", lengths, group.columns)
        counts = counts.asnumpy() if is_tensor(counts) else np.asarray(counts)
        are_ints = counts.dtype.kind in "iu" and counts.ndim == 1  # in a graph their values are not known yet
        if not are_ints or (counts < 0).any():
            found = counts.tolist() if are_ints else f"{counts.dtype} of shape {list(counts.shape)}"
            raise ValueError(
                f"For '{schema.cls_name}', 'lengths' must be ints >= 0, one for each row, [B], but got {found}."
            )
        counts = counts.astype(np.int64)
        for i in set(group.columns) & set(schema.present):
            place = schema.present.index(i)
            field = schema.fitted(i, fields[place])
            if type(field) is Misfit:
                fields[place] = field
                continue
            array = schema.as_array(i, field)
            if array.ndim == len(schema.shapes[i]) + 1 and len(array) == len(counts):
                array = array[np.arange(array.shape[1]) < counts[:, None]]
            if array.ndim < 1 or len(array) != counts.sum():
                raise ValueError(
                    f"For '{schema.cls_name}', column {schema.names[i]!r} must hold the {counts.sum()} items of all "
                    f"rows, or padded rows, [{len(counts)}, L], but got {list(array.shape)}."
                )
            fields[place] = Items(array, counts)
    return fields


def check_padded(schema: Schema, exp: object) -> None:
    """Raise a ValueError unless the rows that differ in length are padded."""
    for i, field in zip(schema.present, schema.present_fields(exp)):
        if i in schema.group_of and _rank(field) != len(schema.shapes[i]) + 1:
            raise ValueError(
                f"For '{schema.cls_name}', rows with 'lengths' must be padded in a graph, [B, L, *F]. Column "
                f"{schema.names[i]!r}: got {list(getattr(field, 'shape', []))}."
            )


def as_items(schema: Schema, i: int, value: Any) -> Items | Misfit:
    """Return the rows of a column. Raise a ValueError if their shapes do not fit together."""
    if type(value) in (Items, Misfit):
        return value  # type: ignore[no-any-return]
    rank, no_items = len(schema.shapes[i]), np.zeros((0, *schema.shapes[i][1:]), schema.numpy_types[i])
    if isinstance(value, (list, tuple)):
        if not value:
            return Items(no_items, None)
        if _rank(value[0]) == rank:
            fields = [no_items if _is_empty(row) else schema.fitted(i, row) for row in value]
            if misfits := [field for field in fields if type(field) is Misfit]:
                return misfits[0]
            parts = [schema.as_array(i, field) for field in fields]
            if len(got := {f"{p.shape[1:] if p.ndim else 'no items'}" for p in parts}) > 1:
                raise ValueError(
                    f"For '{schema.cls_name}', the items of a column must have one shape. Column {schema.names[i]!r}: "
                    f"got {sorted(got)}."
                )
            return Items(np.concatenate(parts), np.fromiter(map(len, parts), np.int64, len(parts)))
    field = schema.fitted(i, value)
    if type(field) is Misfit:
        return field
    array = schema.as_array(i, field)
    if array.ndim == rank + 1:
        return Items(array.reshape(-1, *array.shape[2:]), np.full(len(array), array.shape[1]))
    return Items(array, None)


def _rank(value: Any) -> int:
    return len(value.shape) if hasattr(value, "shape") else np.ndim(value)


def _is_empty(row: Any) -> bool:
    """Return True if a row has no items, of which the dtype then says nothing."""
    return bool(row.shape[:1] == (0,)) if hasattr(row, "shape") else isinstance(row, (list, tuple)) and not row


def check_items(schema: Schema, argument: str, by_column: Mapping[int, Any]) -> None:
    """Raise a TypeError or ValueError unless columns can hold what was found of them, and items have their shapes."""
    schema.checked(argument, by_column, by_column.values())
    wrong = []
    for i, (rows, _) in ((i, items) for i, items in by_column.items() if type(items) is Items):
        if rows.shape[1:] != schema.shapes[i][1:] or not rows.ndim:
            expected = str(("n", *schema.shapes[i][1:])).replace("'", "")
            wrong.append(f"column {schema.names[i]!r}: expected {expected}, but got {rows.shape}")
    if wrong:
        raise ValueError(
            f"For '{schema.cls_name}', rows must hold any number of items of the column's shape. {'; '.join(wrong)}."
        )


def check_lengths(schema: Schema, by_column: Mapping[int, Items]) -> None:
    """Raise a ValueError unless new rows of these columns have lengths that may be stored."""
    name = schema.cls_name
    for group in schema.length_groups:
        own = [by_column[i] for i in group.columns if i in by_column]
        for one in own:
            if (longest := int(one.of_rows.max(initial=0))) > group.longest:
                raise ValueError(
                    f"For '{name}', no row of column {group.name!r} may be longer than longest={group.longest}, but "
                    f"got {longest} items. Nothing was stored."
                )
            if one is not own[0] and one.of_rows.tolist() != own[0].of_rows.tolist():
                raise ValueError(
                    f"For '{name}', the columns {list(group.names)} share their lengths, but got "
                    f"{own[0].of_rows.tolist()} and {one.of_rows.tolist()}."
                )
        if own and len(own[0].rows) > group.items:
            raise ValueError(
                f"For '{name}', the rows of one call may have items={group.items} items in column {group.name!r}, but "
                f"got {len(own[0].rows)}: insert them in several calls. Nothing was stored."
            )


def split(schema: Schema, exp: object) -> tuple[list[Any], dict[int, np.ndarray]]:
    """Return the fields of new rows as kernels store them, of which only lengths are set, and the items by column."""
    fields = list(schema.present_fields(exp))
    places = {i: place for place, i in enumerate(schema.present) if i in schema.group_of}
    by_column: dict[int, Any] = {i: as_items(schema, i, fields[place]) for i, place in places.items()}
    check_items(schema, "exp", by_column)
    check_lengths(schema, by_column)
    for i, place in places.items():
        fields[place] = reference_of(schema, i, by_column[i])
    return fields, {i: items.rows for i, items in by_column.items()}


def reference_of(schema: Schema, i: int, items: Items) -> np.ndarray:
    """Return what kernels store for rows of a column, without their places."""
    lengths = np.array(len(items.rows)) if items.lengths is None else items.lengths
    if i != schema.group_of[i].column:
        return np.zeros(lengths.shape, np.uint8)
    return np.stack([np.zeros_like(lengths), lengths], -1)
