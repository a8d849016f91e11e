"""Makes buffers from HDF5 files with D4RL's keys."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from ..store.base.checks import check_no_pipe
from ..store.base.optional import optional
from .filling import fill
from .steps import Episodes
from .tables import D4RL, check_expanded, d4rl_source

if TYPE_CHECKING:
    import h5py


#: Bytes of each array to keep unpacked, since a packed chunk may have more rows than are read at once.
_CACHED = 2**25


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
    reading = lambda: _whole(label)  # noqa: E731
    with optional("h5py", "from_hdf5", "datasets").File(path, "r", rdcc_nbytes=_CACHED) as file:
        with reading():
            arrays = _arrays_of(file, label)
        source = d4rl_source("from_hdf5", label, arrays, reading)
        return fill("from_hdf5", source, buffer, episodes, types, progress, arguments)


@contextlib.contextmanager
def _whole(label: str) -> Iterator[None]:
    """Raise a ValueError if h5py finds in the block that the file is damaged."""
    try:
        yield
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"For 'from_hdf5', {label} is damaged: {error.args[0]}.") from error


def _arrays_of(file: "h5py.File", label: str) -> "dict[str, h5py.Dataset | None]":
    """Return the arrays with D4RL's keys. Of other keys only the names are needed, for errors."""
    arrays: dict[str, h5py.Dataset | None] = {}

    def add(key: str, item: "h5py.Dataset | h5py.Group") -> None:
        if hasattr(item, "external"):
            if item.external or item.is_virtual:
                raise ValueError(f"For 'from_hdf5', {label} must hold its arrays, but {key!r} is in another file.")
            arrays[key] = item

    for key in file:
        if key not in D4RL:
            arrays[key] = None
        elif hasattr(file.get(key, getlink=True), "path"):
            raise ValueError(f"For 'from_hdf5', {label} must hold its arrays, but {key!r} is a link.")
        elif hasattr(item := file[key], "visititems"):
            item.visititems(lambda name, dataset, key=key: add(f"{key}/{name}", dataset))
        else:
            add(key, item)
    nbytes = sum(math.prod(one.shape or ()) * one.dtype.itemsize for one in arrays.values() if one is not None)
    check_expanded("from_hdf5", label, nbytes, os.stat(label).st_size)
    return arrays
