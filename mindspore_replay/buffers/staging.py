"""Rows from Python on their way to a kernel: checked, and in memory whose address is known."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..columns import Columns
from ..ops import native

# What takes the plain Python number of a scalar column, by NumPy's kind and size.
_CELLS: dict[str, Any] = {
    "b1": ctypes.c_bool, "i1": ctypes.c_int8, "i2": ctypes.c_int16, "i4": ctypes.c_int32, "i8": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u2": ctypes.c_uint16, "u4": ctypes.c_uint32, "u8": ctypes.c_uint64, "f4": ctypes.c_float,
    "f8": ctypes.c_double,
}  # fmt: skip
_NUMBERS = {"b": bool, "i": int, "u": int, "f": float}


class _Place(NamedTuple):
    """Where one row of a column is staged."""

    staged: np.ndarray
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    #: The type of Python's numbers that go into `cell`; neither is there for other columns.
    number: type | None
    cell: Any


class Staging:
    """Takes rows from Python. What is plainly right is taken at once; anything else goes through `Columns`.

    Not safe for threads: the caller holds the lock of the buffer that owns this object.

    Args:
        columns (Columns): Their schema.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._places = [self._place(shape, dtype) for shape, dtype in zip(columns.shapes, columns.numpy_types)]
        #: Addresses of the places of one row.
        self.addresses = [place.staged.ctypes.data for place in self._places]
        self._at_once = native.extension and native.extension.Row(
            np.ndarray,
            tuple(
                (address, place.dtype.kind, place.dtype.itemsize, place.shape)
                for address, place in zip(self.addresses, self._places)
            ),
        )

    @staticmethod
    def _place(shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Place:
        staged = np.zeros(shape, dtype)
        kind = f"{dtype.kind}{dtype.itemsize}"
        if shape or kind not in _CELLS:
            return _Place(staged, dtype, shape, None, None)
        return _Place(staged, dtype, shape, _NUMBERS[dtype.kind], _CELLS[kind].from_buffer(staged))

    def row(self, exp: Sequence[Any]) -> bool:
        """Copies one row to its places if each field is plainly right; ``False`` asks for a closer look."""
        if self._at_once and self._at_once(exp):
            return True
        for value, (staged, dtype, shape, number, cell) in zip(exp, self._places):
            kind = type(value)
            if kind is number:
                if kind is int and not 0 <= value < 128:  # what every dtype of ints can hold
                    return False
                cell.value = value
            else:
                if kind is np.ndarray:
                    if value.dtype != dtype or value.shape != shape:
                        return False
                elif shape or not _is_plain(value, dtype.kind):
                    return False
                staged[...] = value
        return True

    def batch(self, exp: Sequence[Any], num_envs: int) -> int:
        """How many rows a batch has whose memory a kernel may read as it is; 0 asks for a closer look."""
        rows = self._at_once.batch(exp) if self._at_once else self._rows_of(exp)
        return 0 if rows % num_envs else rows

    def _rows_of(self, exp: Sequence[Any]) -> int:
        """As ``_calls.Row.batch``."""
        lead = exp[0].shape[:1] if type(exp[0]) is np.ndarray else ()
        for value, place in zip(exp, self._places):
            if type(value) is not np.ndarray or value.dtype != place.dtype or value.shape != lead + place.shape:
                return 0
            if not value.flags.c_contiguous:
                return 0
        return lead[0] if lead else 0

    def checked(self, exp: Sequence[Any], num_envs: int) -> tuple[list[np.ndarray], int]:
        """Rows in any form as arrays, and how many they are. A single row without a leading axis goes to its places.

        Raises:
            TypeError, ValueError: As `Columns.check`.
        """
        arrays = [self._columns.to_array(i, value) for i, value in enumerate(exp)]
        batch = self._columns.check([array.shape for array in arrays], [array.dtype.name for array in arrays], num_envs)
        if batch.single:
            for place, array in zip(self._places, arrays):
                place.staged[...] = array
            return [], 1
        return [np.ascontiguousarray(array) for array in arrays], batch.rows


def _is_plain(value: Any, kind: str) -> bool:
    """Whether a scalar may be cast to any dtype of this kind: of the same kind and small, or a small int."""
    if isinstance(value, (bool, np.bool_)):
        return kind == "b"
    if isinstance(value, (int, np.integer)):
        return kind in "iuf" and bool(0 <= value < 128)
    return isinstance(value, (float, np.floating)) and kind == "f" and bool(-60_000 < value < 60_000)
