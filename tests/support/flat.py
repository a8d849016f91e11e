"""Arguments of a buffer from one flat dict, such as the slow twin takes and tests merge."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from mindspore_replay import Column, Priorities

PRIORITIES = {field.name for field in fields(Priorities)}


def flat(
    shapes: Any,
    types: Any,
    names: Any = None,
    *,
    late: Iterable[Any] = (),
    compress: Iterable[Any] = (),
    max_length: Any = None,
    items: Any = None,
    share_lengths: Sequence[Sequence[Any]] = (),
    sample_length: Any = None,
    cut: str = "first",
    prioritized: bool | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Return the arguments with options at their columns, and `prioritized` with what belongs to it as `Priorities`.

    Sizes of rows of any length may be dicts by the name of the first column of each kind of lengths.
    """
    if prioritized is not None:
        factors = {key: others.pop(key) for key in PRIORITIES & others.keys()}
        others["priorities"] = Priorities(**factors) if prioritized else None
    if not (late or compress or share_lengths) and (max_length, items, sample_length, cut) == (
        None,
        None,
        None,
        "first",
    ):
        return {"shapes": shapes, "types": types, **({} if names is None else {"names": names}), **others}
    labels: Sequence[Any] = range(len(shapes)) if names is None else names
    columns: dict[Any, Column] = {}
    for label, shape, dtype in zip(labels, shapes, types):
        options: dict[str, Any] = {"late": label in late, "compress": label in compress}
        leader = next((group[0] for group in share_lengths if label in group), label)
        if leader != label:
            options["lengths_of"] = leader
        elif shape and shape[0] is None:
            of_rows = {"longest": max_length, "items": items, "sample_length": sample_length}
            given = {key: v[label] if isinstance(v, dict) else v for key, v in of_rows.items()}
            options |= {**given, "cut": cut}
        columns[label] = Column(shape, dtype, **options)
    return {"columns": list(columns.values()) if names is None else columns, **others}
