"""Checks the declaration of columns whose rows differ in length."""

from collections.abc import Mapping, Sequence
from typing import Any

from .checks import check_choice, check_size
from .kinds import Kind, LengthOptions
from .schema import Schema

#: Most items of an arena.
_MOST_ITEMS = 2**40


def kinds_of(schema: Schema, given: LengthOptions) -> tuple[Kind, ...]:
    """Return the kinds of lengths of a schema; raise a TypeError or ValueError if an argument does not fit."""
    name, shapes, names, late = schema.cls_name, schema.given_shapes, schema.names, schema.late
    ragged = [i for i, shape in enumerate(shapes) if shape[:1] == (None,)]
    if not ragged:
        if given != LengthOptions():
            raise ValueError(
                f"For '{name}', 'max_length', 'items', 'share_lengths', 'sample_length' and 'cut' need a column whose "
                f"shape begins with None, but got {shapes}."
            )
        return ()
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
        sampled = of_kind(name, names, "sample_length", given.sample_length, group)
        sampled = longest if sampled is None else check_size(name, "sample_length", sampled, longest)
        labels = tuple(names[i] for i in group)
        sizes = longest, items, sampled, given.cut == "random"
        kinds.append(Kind(names[first[0]], first[0], group, labels, *sizes))
    return tuple(kinds)


def of_kind(name: str, names: Sequence[str], argument: str, value: Any, group: Sequence[int]) -> Any:
    """Return an argument for columns that share their lengths; a dict has it by the name of one of them."""
    if not isinstance(value, Mapping):
        return value
    found = {value[names[i]] for i in group if names[i] in value}
    if len(found) != 1:
        raise ValueError(
            f"For '{name}', '{argument}' must hold one number for the columns "
            f"{[names[i] for i in group]}, but got {value!r}."
        )
    return found.pop()
