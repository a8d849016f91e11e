"""Samples of groups: rows with equal values in a column."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..base.checks import check_bool, check_size
from ..base.naming import sample_names
from ..base.nested import Names
from ..base.types import Outputs
from ..kernels.library import TOO_FEW_ROWS, KernelError
from ..rows.calls import Calls
from ..spec.spec import BufferSpec


class Groups(NamedTuple):
    """Checked arguments of `sample_groups`, for `Calls`.

    Args:
        column (int): The column that defines the groups.
        ordered (bool): Whether rows of a group are consecutive.
        groups (int): Number of groups.
        size_in_group (int): Most rows of a group.
    """

    column: int
    ordered: bool
    groups: int
    size_in_group: int


def as_groups(spec: BufferSpec, key: object, groups: object, size_in_group: object, ordered: object) -> Groups:
    """Return checked arguments. Raise a TypeError or ValueError if one is invalid."""
    name, columns = spec.cls_name, spec.columns
    if columns.given_names is None:
        raise TypeError(f"For '{name}', 'sample_groups' needs a buffer made with 'names'.")
    if key not in columns.names:
        raise ValueError(f"For '{name}', 'key' must be one of the columns {list(columns.names)}, but got {key!r}.")
    column = columns.names.index(key)
    if columns.numpy_types[column].kind not in "iu" or columns.shapes[column] != ():
        raise ValueError(
            f"For '{name}', the column 'key' must hold ints and have shape (), but {key!r} is "
            f"{columns.numpy_types[column].name} of shape {columns.shapes[column]}."
        )
    return Groups(
        column,
        check_bool(name, "ordered", ordered),
        check_size(name, "groups", groups, spec.capacity),
        check_size(name, "size_in_group", size_in_group, spec.capacity),
    )


def names_of_groups(spec: BufferSpec) -> Names:
    """Return the names of the parts of a sample of groups. Raise a ValueError if two are the same."""
    return sample_names(spec.cls_name, True, ("mask", *spec.names_of_lengths), spec.columns.names)


def sampled_groups(calls: Calls, spec: BufferSpec, wanted: Groups, array: Callable[[str], np.ndarray]) -> Outputs:
    """Draw groups. The caller must hold the lock.

    Args:
        calls (Calls): What the rows can be asked for.
        spec (BufferSpec): What the buffer is.
        wanted (Groups): Which groups to draw.
        array (Callable): Returns an array of the state by name.

    Returns:
        tuple: A mask of the rows that exist, and the rows.

    Raises:
        RuntimeError: If there are fewer groups.
    """
    try:
        return calls.sample_groups(*wanted)
    except KernelError as error:
        if error.status == TOO_FEW_ROWS:
            _need_groups(calls.count(), spec, wanted, array)
        raise


def _need_groups(stored: int, spec: BufferSpec, wanted: Groups, array: Callable[[str], np.ndarray]) -> None:
    key = spec.columns.names[wanted.column]
    slots = (int(array("head")) + np.arange(stored)) % spec.capacity
    first = np.arange(slots.size) - array("steps")[slots] * spec.num_envs
    drawable = (first >= 0) & (array("weights")[slots[np.maximum(first, 0)]] > 0)
    found = np.unique(array(f"column.{key}")[slots[drawable]]).size
    if found < wanted.groups:
        raise RuntimeError(
            f"For '{spec.cls_name}', 'groups' must be at most the number of groups by {key!r} in finished episodes, "
            f"{found}, but got {wanted.groups}."
        )
