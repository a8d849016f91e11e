"""Names of the parts of a sample."""

import functools
from collections.abc import Sequence
from typing import Any

from .nested import Names


@functools.lru_cache(maxsize=256)
def sample_names(
    cls_name: str,
    has_names: bool,
    bookkeeping: tuple[str, ...],
    columns: tuple[str, ...],
    with_indices: bool = True,
    *,
    optional: tuple[str, ...] = ("indices",),
) -> Names:
    """Return the names of a sample's parts, in their order: bookkeeping first, then columns.

    Args:
        cls_name (str): Class to name in errors.
        has_names (bool): Whether the buffer was made with names.
        bookkeeping (tuple[str, ...]): Parts before the columns, also those that a sample may be without.
        columns (tuple[str, ...]): The columns, as modified by views.
        with_indices (bool): Whether the sample has its optional parts. Default: ``True``.
        optional (tuple[str, ...]): Parts that are returned only with handles. Default: ``("indices",)``.

    Returns:
        Names: The names.

    Raises:
        TypeError: If the buffer was made without names.
        ValueError: If a column has the name of bookkeeping that the sample has.
    """
    if not has_names:
        raise TypeError(f"For '{cls_name}', 'as_dict' needs a buffer made with 'names'.")
    before = [name for name in bookkeeping if with_indices or name not in optional]
    taken = sorted(set(before) & {name.partition(".")[0] for name in columns})
    if taken:
        raise ValueError(
            f"For '{cls_name}', 'as_dict' needs columns with other names than {taken}, which are other fields of the "
            "sample: rename the columns, or leave 'as_dict' out."
        )
    return Names((*before, *columns))


def named(names: Names, batch: Sequence[Any]) -> dict[str, Any]:
    """Return a sample as a dict by the names of its parts. Dotted names make nested dicts and tuples."""
    if len(names.steps) == 1:
        return dict(zip(names, batch, strict=True))
    parts = [part for _, part in zip(names, batch, strict=True)]
    for keys, places in names.steps:
        values = [parts[i] for i in places]
        parts.append(tuple(values) if keys is None else dict(zip(keys, values)))
    return parts[-1]  # type: ignore[no-any-return]
