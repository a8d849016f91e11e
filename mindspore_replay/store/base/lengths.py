"""Checks the declaration of columns whose rows differ in length."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .checks import check_choice, check_size
from .column import fields_of
from .length_groups import LengthGroup, least_items
from .schema import Schema

#: Most items of an arena.
_MOST_ITEMS = 2**40
#: Options of a column whose rows differ in length.
_OF_ROWS = ("longest", "items", "sample_length", "cut")


def length_groups_of(schema: Schema, without: Mapping[str, object], rows: int) -> tuple[LengthGroup, ...]:
    """Return the groups of columns by length. Raise a TypeError or ValueError if an option of a column does not fit.

    Args:
        schema (Schema): The columns.
        without (Mapping[str, object]): What such columns cannot be used with, by name, if it is there.
        rows (int): Rows that must fit wherever they begin.
    """
    name, names, columns = schema.cls_name, schema.names, schema.records
    differ = [i for i, column in enumerate(columns) if column.shape[:1] == (None,)]
    if not differ and not schema.has_options:
        return ()
    groups = {i: [i] for i in differ if columns[i].lengths_of is None}
    for i, column in enumerate(columns):
        options = [option for option in _OF_ROWS if option in fields_of(column)]
        if options and i not in groups:
            raise ValueError(
                f"For '{name}', {options} of column {names[i]!r} need a shape that begins with None, and no "
                f"'lengths_of', but got {column!r}."
            )
        if column.lengths_of is not None:
            owner = schema.index(f"columns.{names[i]}.lengths_of", column.lengths_of)
            if owner not in groups or i not in differ:
                raise ValueError(
                    f"For '{name}', 'lengths_of' must name a column whose shape begins with None, as its own does, and "
                    f"that has no 'lengths_of' itself, but got {column!r}."
                )
            groups[owner].append(i)
    if groups and (refused := [feature for feature, is_used in without.items() if is_used]):
        raise ValueError(
            f"For '{name}', columns whose shape begins with None cannot be used with {refused[0]}: pad the rows to "
            "one length, and declare that."
        )
    found = []
    for owner, members in groups.items():
        column, path = columns[owner], f"columns.{names[owner]}"
        if column.late:
            raise ValueError(
                f"For '{name}', the late column {names[owner]!r}, whose rows differ in length, needs 'lengths_of', the "
                "name of a column that is not late and whose rows are as long."
            )
        if column.longest is None or column.items is None:
            raise ValueError(
                f"For '{name}', column {names[owner]!r}, whose shape begins with None, needs 'longest', the items of "
                f"the longest row, and 'items', the items to reserve memory for, but got {column!r}."
            )
        longest = check_size(name, f"{path}.longest", column.longest)
        items = check_size(name, f"{path}.items", column.items, _MOST_ITEMS, longest)
        items = max(items, least_items(rows, longest)) if items >= rows * longest else items
        sampled = column.sample_length
        sampled = longest if sampled is None else check_size(name, f"{path}.sample_length", sampled, longest)
        check_choice(name, f"{path}.cut", column.cut, "first", "random")
        indices, at_random = tuple(sorted(members)), column.cut == "random"
        labels = tuple(names[i] for i in indices)
        found.append(LengthGroup(names[owner], owner, indices, labels, longest, items, sampled, at_random))
    return tuple(sorted(found, key=lambda group: group.columns))


def of_group(name: str, names: Sequence[str], argument: str, value: Any, group: Sequence[int]) -> Any:
    """Return an argument for columns that share their lengths. A dict has it by the name of one of them."""
    if not isinstance(value, Mapping):
        return value
    first, *others = [value[names[i]] for i in group if names[i] in value] or [None]
    if first is None or not all(np.array_equal(first, other) for other in others):
        raise ValueError(
            f"For '{name}', '{argument}' must hold one value for the columns {[names[i] for i in group]}, but got "
            f"{value!r}."
        )
    return first
