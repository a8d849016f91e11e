"""Checks the declaration of columns whose rows differ in length."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .checks import check_choice, check_size
from .kinds import Kind, LengthOptions, least_items
from .schema import Schema

#: Most items of an arena.
_MOST_ITEMS = 2**40


def kinds_of(schema: Schema, given: LengthOptions, without: Mapping[str, object], rows: int) -> tuple[Kind, ...]:
    """Return the kinds of lengths of a schema. Raise a TypeError or ValueError if an argument does not fit.

    Args:
        schema (Schema): The columns.
        given (LengthOptions): The arguments.
        without (Mapping[str, object]): What such columns cannot be used with, by name, if it is there.
        rows (int): Rows that must fit wherever they begin.
    """
    name, shapes, names, late = schema.cls_name, schema.given_shapes, schema.names, schema.late
    ragged = [i for i, shape in enumerate(shapes) if shape[:1] == (None,)]
    if not ragged:
        if given != LengthOptions():
            raise ValueError(
                f"For '{name}', 'max_length', 'items', 'share_lengths', 'sample_length' and 'cut' need a column whose "
                f"shape begins with None, but got {shapes}."
            )
        return ()
    if refused := [what for what, is_there in without.items() if is_there]:
        raise ValueError(
            f"For '{name}', columns whose shape begins with None cannot be used with {refused[0]}: pad the rows to "
            "one length, and declare that."
        )
    if given.max_length is None or given.items is None:
        raise ValueError(
            f"For '{name}', columns whose shape begins with None need 'max_length', the items of the longest row, and "
            f"'items', the items to reserve memory for, but got max_length={given.max_length} and items={given.items}."
        )
    groups = [schema.some("share_lengths", group) for group in schema.sequence("share_lengths", given.share_lengths)]
    shared = [i for group in groups for i in group]
    if len(set(shared)) < len(shared) or not set(shared) <= set(ragged):
        raise ValueError(
            f"For '{name}', 'share_lengths' must hold each column once, and only those whose shape begins with None, "
            f"but got {given.share_lengths!r}."
        )
    check_choice(name, "cut", given.cut, "first", "random")
    kinds = []
    for group in sorted([*groups, *((i,) for i in ragged if i not in shared)]):
        first = [i for i in group if i not in late]
        if not first:
            raise ValueError(
                f"For '{name}', a late column whose rows differ in length must share the lengths of one that is not "
                f"late, but {names[group[0]]!r} does not: name both in 'share_lengths'."
            )
        longest = check_size(name, "max_length", of_kind(name, names, "max_length", given.max_length, group))
        items = check_size(name, "items", of_kind(name, names, "items", given.items, group), _MOST_ITEMS, longest)
        items = max(items, least_items(rows, longest)) if items >= rows * longest else items
        sampled = of_kind(name, names, "sample_length", given.sample_length, group)
        sampled = longest if sampled is None else check_size(name, "sample_length", sampled, longest)
        labels = tuple(names[i] for i in group)
        sizes = longest, items, sampled, given.cut == "random"
        kinds.append(Kind(names[first[0]], first[0], group, labels, *sizes))
    return tuple(kinds)


def of_kind(name: str, names: Sequence[str], argument: str, value: Any, group: Sequence[int]) -> Any:
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
