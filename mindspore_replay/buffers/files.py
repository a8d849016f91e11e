"""Makes the buffers that files hold."""

import os
from collections.abc import Sequence
from typing import Any

from mindspore import nn

from ..checkpoint.buffers import Maker, load_buffers
from ..store.recipe.registry import find


def load(
    path: str | os.PathLike[str],
    *,
    buffer: Any = None,
    capacity: int | None = None,
    backend: str = "auto",
    progress: bool = False,
) -> Any:
    """Make the buffer that `save` wrote. It draws the same samples as the saved buffer would have.

    With another capacity it holds the newest rows that fit, with their handles, priorities and other state; the rest
    count as overwritten. It then draws other samples, since rows lie in other slots.

    Args:
        path (Union[str, PathLike]): The file. Incremental files beside it are read too. From a file of a
            `TrainingCheckpoint`, the buffers are loaded, as a dict.
        buffer (Union[Cell, dict, CellList, None]): Takes over the file's state instead of a new buffer: of the same
            class, with the same columns, and made with the same arguments where those matter to its rows. A buffer with
            `HindsightRelabel`, or of a class of your own, can only be loaded this way. In a folder rows that replace
            others get new serial numbers. Default: ``None``.
        capacity (Union[int, None]): Capacity of the new buffer. A `buffer` may have another capacity too, unless it is
            a reservoir, whose rows are a sample of its size. Default: ``None``, for that of the saved buffer.
        backend (str): Backend of a new buffer. Default: ``"auto"``.
        progress (bool): Whether to show a progress bar; needs tqdm. Default: ``False``.

    Returns:
        Union[Cell, dict, CellList]: What was saved, or `buffer`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated, altered or of another kind, or an incremental file is missing; if
            `buffer` or `capacity` do not fit. Then `buffer` is unchanged.
        TypeError: If an argument is of another type.
        RuntimeError: If the backend is not available, or `buffer` is in a folder that somebody is attached to.
        ImportError: If `progress` is asked for and tqdm is not installed.

    Examples:
        >>> import tempfile
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReplayBuffer, load, save
        >>> buffer = ReplayBuffer(sample_size=3, capacity=100, shapes=[()], types=[ms.int32], seed=0)
        >>> buffer = buffer.insert([np.arange(50, dtype=np.int32)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(buffer, f"{folder}/buffer.safetensors")
        ...     newest = load(f"{folder}/buffer.safetensors", capacity=5)
        >>> print(newest.size(), *newest.rows())
        5 [45 46 47 48 49]
    """
    return load_buffers(Maker(find, _list_of, {"backend": backend}), path, buffer, capacity, progress)


def _list_of(buffers: Sequence[nn.Cell], name: str) -> nn.CellList:
    """Return the list of this name in a dict, whose Cells have no prefix from it, as `create_buffer` does."""
    made = nn.CellList(buffers)
    if name:
        made.update_parameters_name(f"{name}.")
    return made
