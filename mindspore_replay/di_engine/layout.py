"""Rows of DI-engine's buffers, and the columns that rows which are dicts become."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..store.inputs import as_array
from ..store.schema import is_tensor

#: The end of an error's text.
HINT = "Nothing was stored. Rows that differ from the first need a buffer with objects=True."


@dataclass(slots=True)
class BufferedData:
    """A row.

    Args:
        data (Any): The row itself.
        index (str): Its name in the buffer, which no other row ever gets.
        meta (dict): What is known of it.
    """

    data: Any
    index: str
    meta: dict[str, Any]


def copied(value: Any) -> Any:
    """Return a copy of a row, or of rows; of tensors of another library by their own `clone`."""
    if isinstance(value, BufferedData):
        return BufferedData(copied(value.data), value.index, copied(value.meta))
    if type(value) is dict:
        return {key: copied(one) for key, one in value.items()}
    if type(value) is list:
        return [copied(one) for one in value]
    clone = getattr(value, "clone", None)
    return clone() if callable(clone) else copy.deepcopy(value)


def _typed(value: object) -> tuple[str, np.ndarray] | None:
    """Return the kind and the array of a value, or ``None`` if it cannot be in a column."""
    if isinstance(value, (bool, int, float)):
        kind, array = "number", np.array(value, np.float32 if type(value) is float else None)
    elif is_tensor(value) or isinstance(value, (np.ndarray, np.generic)):
        kind, array = "Tensor" if is_tensor(value) else "array", as_array(value)
    else:
        return None
    return (kind, array) if array.dtype.kind in "biuf" and array.itemsize <= 8 and array.size else None


def _tensor(array: np.ndarray) -> object:
    from mindspore import Tensor

    return Tensor(array)


def _leaves(row: Mapping[Any, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _filled(row: Mapping[Any, object], values: Iterator[object]) -> dict[Any, object]:
    """Return a dict nested like a row, with other values."""
    nested = {key: value for key, value in row.items() if isinstance(value, Mapping) and value}
    return {key: _filled(nested[key], values) if key in nested else next(values) for key in row}


class RowLayout:
    """Columns of rows that are dicts, also nested ones, of arrays, Tensors and numbers."""

    def __init__(self, row: Mapping[Any, object], leaves: Mapping[str, tuple[str, np.ndarray]]) -> None:
        self._kinds = [kind for kind, _ in leaves.values()]
        self._shapes = {name: array.shape for name, (_, array) in leaves.items()}
        self._types = [array.dtype for _, array in leaves.values()]
        self._like = None if row.keys() == leaves.keys() else _filled(row, iter(leaves))

    @classmethod
    def of(cls, row: object) -> "RowLayout | None":
        """Return the columns of a row, or ``None`` if it must be kept as an object."""
        values = list(_leaves(row)) if isinstance(row, Mapping) else []
        leaves = {name: typed for name, value in values if (typed := _typed(value)) is not None}
        return cls(row, leaves) if isinstance(row, Mapping) and leaves and len(leaves) == len(values) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowLayout) and vars(self) == vars(other)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a buffer that describe the columns."""
        return {"names": list(self._shapes), "shapes": list(self._shapes.values()), "types": self._types}

    def fields(self, owner: str, rows: Sequence[object]) -> dict[str, Any]:
        """Return the columns of rows, as `insert` takes them; a ValueError if keys or shapes are others."""
        flat: list[Any] = [dict(_leaves(row)) if self._like and isinstance(row, Mapping) else row for row in rows]
        for row in flat:
            found = row
            if isinstance(row, Mapping):
                listed = {name: np.shape(value) for name, value in row.items() if isinstance(value, (list, tuple))}
                found = {name: getattr(value, "shape", ()) for name, value in row.items()} | listed
            if found != self._shapes:
                raise ValueError(
                    f"For '{owner}', a row must be a dict with the shapes {self._shapes} of the first, but got "
                    f"{found!r}. {HINT}"
                )
        return flat[0] if len(flat) == 1 else {name: [row[name] for row in flat] for name in self._shapes}

    def rows(self, fields: Sequence[Any]) -> list[dict[Any, Any]]:
        """Return the rows of columns, each a dict like the first row."""
        values = [
            array.tolist() if kind == "number" else map(_tensor, array) if kind == "Tensor" else array
            for kind, array in zip(self._kinds, map(as_array, fields))
        ]
        if self._like:
            return [_filled(self._like, iter(row)) for row in zip(*values)]
        return [dict(zip(self._shapes, row)) for row in zip(*values)]
