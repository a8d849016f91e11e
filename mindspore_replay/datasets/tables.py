"""Datasets from files with one array for each column, as npz and HDF5 files are; makes buffers from HDF5 files."""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from ..store.base.checks import check_no_pipe
from ..store.base.optional import optional
from .filling import fill
from .steps import END, Episodes, Recording

if TYPE_CHECKING:
    import h5py

#: D4RL's keys, with their columns.
D4RL = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "next_observations": "next_observation",
    "terminals": "terminated",
    "timeouts": "truncated",
}

#: Bytes of each array to keep unpacked, since a packed chunk may have more rows than are read at once.
_CACHED = 2**25

#: Most bytes that a byte of a file can stand for, if it is compressed by deflate.
_MOST_EXPANDED = 1032

#: Returns rows of an array.
Read = Callable[[Any, slice], np.ndarray]


def check_expanded(call: str, label: str, nbytes: int) -> None:
    """Raise a ValueError for a file whose arrays would be larger than its bytes allow."""
    if nbytes > _MOST_EXPANDED * (size := os.stat(label).st_size):
        raise ValueError(
            f"For '{call}', {label} must hold its arrays, but it has {size} bytes, and they would have {nbytes}."
        )


def read_native(array: Any, rows: slice) -> np.ndarray:
    """Return rows of an array in a file, in the byte order of this machine, and copied if they are not aligned."""
    values: np.ndarray = np.require(array[rows], requirements="A")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def as_bools(call: str, label: str, key: str, array: np.ndarray) -> np.ndarray:
    """Return flags as bools. Raise a ValueError if they are not bools or 0 and 1."""
    flags = array.astype(np.bool_)
    if not np.array_equal(flags, array):
        raise ValueError(
            f"For '{call}', {key!r} of {label} must hold bools or 0 and 1, but got {array[flags != array][0]}."
        )
    return flags


def unmarked(call: str, label: str, marks: str, names: Sequence[str]) -> ValueError:
    """Return the error for rows of which nobody knows where episodes were cut off."""
    return ValueError(
        f"For '{call}', {label} must mark where episodes end without termination, by {marks}, but it has {names}."
    )


def recording_of(
    call: str,
    label: str,
    arrays: Mapping[str, Any],
    names: Mapping[str, str],
    flags: Sequence[str],
    read: Read = read_native,
    as_stored: bool = False,
) -> Recording:
    """Find the episodes in the rows of a file, whose arrays are of NumPy or h5py.

    `names` has the column of each key, with `END` and `FINAL` where the file has them, and `flags` the columns that are
    flags: those that the file lacks are never set.
    """
    arrays = {key: arrays[key] for key in names}
    if odd := [f"{key!r} is {array.dtype}" for key, array in arrays.items() if array.dtype.kind not in "biufV"]:
        raise TypeError(f"For '{call}', {label} must hold arrays of numbers, but {', '.join(odd)}.")
    lengths = {key: array.shape[0] if array.shape else None for key, array in arrays.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise ValueError(
            f"For '{call}', {label} must hold arrays of one length, a row of each step, but got {lengths}."
        )
    size = int(next(iter(lengths.values())) or 0)
    if not size:
        raise ValueError(f"For '{call}', {label} must hold a row, but got none.")
    marks = {key: arrays[key] for key, name in names.items() if name in flags}
    if wrong := {key: array.shape for key, array in marks.items() if array.shape != (size,)}:
        raise ValueError(f"For '{call}', flags of {label} must have shape ({size},), but got {wrong}.")
    columns = {names[key]: array for key, array in arrays.items()}
    columns |= {name: np.zeros(size, np.bool_) for name in flags if name not in columns}
    columns |= {names[key]: as_bools(call, label, key, read(array, slice(size))) for key, array in marks.items()}
    fields = {name: (tuple(array.shape[1:]), array.dtype.newbyteorder("=")) for name, array in columns.items()}
    found = Recording(call, label, size, fields, lambda name, rows: read(columns[name], rows), as_stored=as_stored)
    if not (as_stored or found.whole or {END, "truncated"} & set(names.values())):
        flag = "timeouts" if "truncated" in flags else "truncated"
        raise unmarked(call, label, f"'{flag}' or next observations", list(names))
    return found


def d4rl_recording(call: str, label: str, arrays: Mapping[str, Any], read: Read = read_native) -> Recording:
    """Find the episodes in a file with D4RL's keys. Each array in a group is a column."""
    keys = [(key, first) for first in D4RL for key in arrays if key.split("/")[0] == first]
    names = {key: key.replace(first, D4RL[first], 1).replace("/", ".") for key, first in keys}
    present = {first for _, first in keys}
    if missing := [key for key in ("observations", "actions", "rewards", "terminals") if key not in present]:
        raise ValueError(
            f"For '{call}', {label} must have D4RL's keys, but lacks {missing}; it has {list(arrays)[:20]}."
        )
    return recording_of(call, label, arrays, names, ("terminated", "truncated"), read)


def from_hdf5(
    path: str | PathLike[str],
    *,
    buffer: Any = None,
    episodes: Episodes = None,
    sample_size: int | None = None,
    capacity: int | None = None,
    buffer_cls: type | str | None = None,
    types: Mapping[str, object] | None = None,
    progress: bool = False,
    **arguments: object,
) -> Any:
    """Make a buffer from an HDF5 file with D4RL's keys.

    The keys are ``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts`` and ``next_observations``.
    Others, such as ``infos``, are ignored. Each array of a group becomes a column. Columns are named and laid out as by
    `from_minari`.

    The file must have ``next_observations`` or ``timeouts``. Without ``next_observations``, next observations come from
    the next row, so an episode's last step has none. If that step terminated, its own observation is stored instead,
    since no target uses it. If it was truncated, it is dropped, as by D4RL's ``qlearning_dataset``, or becomes a
    `final` row in a buffer that stores episodes. A warning counts these steps. With ``next_observations``, an episode
    also ends where the next observation is not the next row's observation.

    The file is read in pieces.

    Args:
        path (Union[str, Path]): The file.
        buffer (Union[ReplayBuffer, None]): As for `from_minari`. Default: ``None``.
        episodes (Union[slice, Sequence, Callable, None]): As for `from_minari`. Default: ``None``.
        sample_size (Union[int, None]): As for `from_minari`. Default: ``None``.
        capacity (Union[int, None]): As for `from_minari`. Default: ``None``.
        buffer_cls (Union[type, str, None]): As for `from_minari`. Default: ``None``.
        types (Union[dict, None]): As for `from_minari`. Default: ``None``.
        progress (bool): Whether to show a progress bar. Default: ``False``.
        arguments: More arguments of the class, such as `views`, `seed` or `sequence_length`.

    Returns:
        ReplayBuffer: The buffer.

    Raises:
        ImportError: If h5py is not installed.
        OSError: If there is no such file, or it is not an HDF5 file.
        TypeError: If an argument is of another type, or arrays are not numeric.
        ValueError: If keys are missing, arrays differ in length, or values do not fit a column.
        IndexError: If there is no such episode.

        After an error in the middle of a file, the rows before it are in the buffer.

    Examples:
        >>> import os, tempfile
        >>> import h5py, numpy as np
        >>> from mindspore_replay.datasets import from_hdf5
        >>> path = os.path.join(tempfile.mkdtemp(), "steps.hdf5")
        >>> with h5py.File(path, "w") as file:
        ...     file["observations"], file["actions"] = np.arange(6.0), np.zeros((6, 2), np.float32)
        ...     file["rewards"], file["terminals"] = np.arange(6.0), np.arange(6) == 2
        ...     file["timeouts"] = np.arange(6) == 5
        >>> buffer = from_hdf5(path, types={"reward": "float32"})  # without the last step: what came next is not there
        >>> print(*buffer.rows())
        [0. 1. 2. 3. 4.] [[0. 0.]
         [0. 0.]
         [0. 0.]
         [0. 0.]
         [0. 0.]] [0. 1. 2. 3. 4.] [1. 2. 2. 4. 5.] [False False  True False False] [False False False False False]
    """
    label = fspath(path)
    check_no_pipe("from_hdf5", label)
    arguments.update(sample_size=sample_size, capacity=capacity, buffer_cls=buffer_cls)
    with optional("h5py", "from_hdf5", "datasets").File(path, "r", rdcc_nbytes=_CACHED) as file:
        explained = _explained(label)
        found = d4rl_recording("from_hdf5", label, explained(_arrays_of)(file, label), explained(read_native))
        return fill(found, buffer, episodes, types, progress, arguments)


@contextlib.contextmanager
def _explained(label: str) -> Iterator[None]:
    """Raise a ValueError if h5py finds in the block that the file is damaged."""
    try:
        yield
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"For 'from_hdf5', {label} is damaged: {error.args[0]}.") from error


def _arrays_of(file: "h5py.File", label: str) -> "dict[str, h5py.Dataset | None]":
    """Return the arrays with D4RL's keys. Of other keys only the names are needed, for errors."""
    arrays: dict[str, h5py.Dataset | None] = {}
    for key in file:
        if key not in D4RL:
            arrays[key] = None
            continue
        if hasattr(file.get(key, getlink=True), "path"):
            raise ValueError(f"For 'from_hdf5', {label} must hold its arrays, but {key!r} is a link.")
        items = {key: file[key]}
        if hasattr(file[key], "visititems"):
            file[key].visititems(lambda name, item, key=key, items=items: items.update({f"{key}/{name}": item}))
        arrays |= {name: item for name, item in items.items() if hasattr(item, "external")}
    here = {key: array for key, array in arrays.items() if array is not None}
    for key, array in here.items():
        if array.external or array.is_virtual:
            raise ValueError(f"For 'from_hdf5', {label} must hold its arrays, but {key!r} is in another file.")
    check_expanded("from_hdf5", label, sum(math.prod(one.shape or ()) * one.dtype.itemsize for one in here.values()))
    return arrays
