"""The rule for values whose dtype is not that of their column, one for all ways to store rows.

- A column of floats holds bools, ints and floats. They are rounded as NumPy casts them: to the nearest, and to infinity
  what is too large.
- A column of ints holds bools, and the ints that fit.
- A column of bools holds the ints 0 and 1.

Nothing else is cast. A graph knows dtypes alone: in it ints must fit by their dtype, and none becomes a bool.
"""

import numbers
import re

import numpy as np

#: Dtypes of numbers by name, a kind in each group.
_DTYPES = re.compile(r"(bool)|(u?int\d+)|(b?float\d+)")
_BOOL, _INT, _FLOAT = 1, 2, 3


def _rank(dtype: str) -> int:
    """Return the kind of a dtype: one of more numbers is larger. 0 for no numbers that a column holds."""
    found = _DTYPES.fullmatch(dtype)
    return 0 if found is None else found.lastindex or 0


def holds(column: str, dtype: str, in_graph: bool = False) -> bool:
    """Return True if a column of a dtype may hold values of another one: if they fit, or `in_graph` always."""
    of_column, of_values = _rank(column), _rank(dtype)
    if (column, dtype) == ("bfloat16", "uint16"):  # an array of its bits, or of numbers?
        return False
    if in_graph and of_column == of_values == _INT:
        return np.can_cast(dtype, column)
    if in_graph and (column, dtype) == ("float16", "float64"):  # which MindSpore rounds twice
        return False
    return 0 < of_values <= of_column or (of_values == _INT and of_column == _BOOL and not in_graph)


def cast(array: np.ndarray, column: str, dtype: np.dtype, message: str) -> np.ndarray:
    """Return a copy for a column that `holds` the array's dtype.

    Args:
        array (numpy.ndarray): The values.
        column (str): Dtype of the column.
        dtype (numpy.dtype): NumPy's dtype for it; of bfloat16, any of two bytes.
        message (str): Begins the error for an int that does not fit, which ends with the int.

    Raises:
        ValueError: If an int does not fit.
    """
    if column == "bfloat16":
        return bits_of_bfloat16(array).view(dtype)
    with np.errstate(over="ignore"):
        copy = array.astype(dtype, order="C")
    if dtype.kind in "biu" and array.dtype != dtype and (changed := copy != array).any():
        raise ValueError(f"{message} {array[changed][0]}.")
    return copy


def bits_of_bfloat16(array: np.ndarray) -> np.ndarray:
    """Round numbers to bfloat16, to the nearest or the even one, and return their bits, uint16."""
    with np.errstate(over="ignore"):
        bits = array.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


def are_numbers(value: object) -> bool:
    """Return True for a number, and for a list or tuple, possibly nested, of numbers only."""
    if isinstance(value, (list, tuple)):
        return all(map(are_numbers, value))
    return isinstance(value, (numbers.Number, np.generic))
