"""Rows of DI-engine's buffers, and the columns that rows which are dicts become."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..store.base.schema import is_tensor
from ..store.rows.inputs import as_array


@dataclass(slots=True)
class BufferedData:
    """A row, its index, which no other row of the buffer ever gets, and what is known of it."""

    data: Any
    index: str
    meta: dict[str, Any]


class AssertedValueError(ValueError, AssertionError):
    """A ValueError where DI-engine raises an AssertionError, which its programs catch."""


def copied(value: Any) -> Any:
    """Return a copy of a row, or of rows, and of the dicts, lists, arrays and tensors in it. Objects stay the same."""
    if isinstance(value, BufferedData):
        return BufferedData(copied(value.data), value.index, copied(value.meta))
    if type(value) is dict:
        return {key: copied(one) for key, one in value.items()}
    if type(value) is list:
        return [copied(one) for one in value]
    if not hasattr(type(value), "__array__"):
        return value
    return value.clone() if hasattr(value, "clone") else value.copy()


def beside(row: Any, array: np.ndarray) -> Any:
    """Return an array as a row would have it: as PyTorch's tensor if one is among the row's values."""
    torch = sys.modules.get("torch")
    return torch.from_numpy(array) if torch and any(isinstance(one, torch.Tensor) for one in _values(row)) else array


def _values(row: Any) -> Iterator[object]:
    for value in (row[key] for key in row.keys()) if hasattr(row, "keys") else ():  # noqa: SIM118
        yield from _values(value) if hasattr(value, "keys") else (value,)


def _typed(value: object) -> tuple[str, np.ndarray] | None:
    """Return the tag and the array of a value, or ``None`` if it cannot be in a column."""
    if isinstance(value, (bool, int, float)):
        tag, array = "number", np.array(value, np.float32 if type(value) is float else None)
    elif is_tensor(value) or isinstance(value, (np.ndarray, np.generic)):
        tag, array = "Tensor" if is_tensor(value) else "array", as_array(value)
    else:
        return None
    return (tag, array) if array.dtype.kind in "biuf" and array.itemsize <= 8 and array.size else None


def _tensors(array: np.ndarray) -> Iterator[object]:
    from mindspore import Tensor

    return map(Tensor, array)


def _leaves(row: Mapping[Any, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _filled(row: Mapping[Any, object], values: Iterator[object]) -> dict[Any, object]:
    """Return a dict nested like a row, with other values."""
    return {
        key: _filled(value, values) if isinstance(value, Mapping) and value else next(values)
        for key, value in row.items()
    }


@dataclass(frozen=True)
class RowLayout:
    """Columns of rows that are dicts, also nested ones, of arrays, Tensors and numbers."""

    tags: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    types: list[np.dtype]
    #: A row with the columns' names as its values; ``None`` if those are its keys.
    nested: dict[Any, object] | None

    @classmethod
    def of(cls, row: object) -> "RowLayout | None":
        """Return the columns of a row, or ``None`` if it must be kept as an object."""
        values = list(_leaves(row)) if isinstance(row, Mapping) else []
        typed = {name: found for name, value in values if (found := _typed(value))}
        if not isinstance(row, Mapping) or not typed or len(typed) < len(values):
            return None
        tags, arrays = zip(*typed.values())
        nested = None if row.keys() == typed.keys() else _filled(row, iter(typed))
        return cls(tags, {name: array.shape for name, array in zip(typed, arrays)}, [a.dtype for a in arrays], nested)

    def fields(self, owner: str, rows: Sequence[object]) -> dict[str, Any]:
        """Return the columns of rows for `insert`. Raise a ValueError if keys or shapes differ."""
        flat: list[Any] = [dict(_leaves(row)) if self.nested and isinstance(row, Mapping) else row for row in rows]
        for row in flat:
            found = None
            if isinstance(row, Mapping):
                listed = {key: np.shape(value) for key, value in row.items() if isinstance(value, (list, tuple))}
                found = {key: getattr(value, "shape", ()) for key, value in row.items()} | listed
            if found != self.shapes:
                raise ValueError(
                    f"For '{owner}', a row must be a dict with the shapes {self.shapes} of the first, but got "
                    f"{found or row!r}."
                )
        return flat[0] if len(flat) == 1 else {name: [row[name] for row in flat] for name in self.shapes}

    def rows(self, fields: Sequence[Any]) -> list[dict[Any, Any]]:
        """Return the rows of columns, each a dict like the first row."""
        arrays = zip(self.tags, map(as_array, fields))
        columns = ({"number": np.ndarray.tolist, "Tensor": _tensors}.get(tag, iter)(array) for tag, array in arrays)
        rows = zip(*columns)
        if self.nested:
            return [_filled(self.nested, iter(row)) for row in rows]
        return [dict(zip(self.shapes, row)) for row in rows]
