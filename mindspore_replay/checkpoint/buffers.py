"""Saves buffers to files, and loads them from files."""

import contextlib
import os
from typing import Any

from ..buffers.mixed import MixedReplay
from ..store.checks import check_bool, check_size
from .cells import parts_of
from .description import build, describe
from .loading import load_parts
from .nodes import check_description, summary
from .saving import save_parts
from .sources import Source, open_sources


def save(buffer: Any, path: str | os.PathLike[str], *, incremental: bool = False, progress: bool = False) -> None:
    """Write a buffer to a file, from which `load` makes it again: rows, priorities, counters and random state.

    The new file replaces the old one once it is complete and on the disk, so the process may be killed at any time.
    Columns are written without a copy. Calls from Python on the buffer wait until it is written; compiled graphs do
    not, so save between their calls.

    Args:
        buffer (Union[Cell, dict, CellList]): A buffer, a `MixedReplay`, or a dict or ``CellList`` of them as
            `create_buffer` makes.
        path (Union[str, PathLike]): The file. Its format is safetensors; ``docs/checkpoints.md`` describes it.
        incremental (bool): Whether to write only rows inserted or updated since the last save of this buffer to this
            path, to a file of its own: ``<path>.1``, ``<path>.2`` and so on. All rows are written if there was no such
            save, the buffer was loaded since, or the incremental files together would become larger than the file with
            all rows. Rows that you changed directly, through ``.buffer``, are not noticed. Default: ``False``.
        progress (bool): Whether to show a progress bar; needs tqdm. Default: ``False``.

    Raises:
        TypeError: If `buffer` is no buffer, or an argument is of another type.
        ValueError: If `buffer` holds a buffer twice.
        RuntimeError: If the buffer changed while it was written.
        OSError: If the file cannot be written. After any error the old file is unchanged.
        ImportError: If `progress` is asked for and tqdm is not installed.

    Examples:
        >>> import tempfile
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReplayBuffer, load, save
        >>> buffer = ReplayBuffer(sample_size=3, capacity=100, shapes=[()], types=[ms.int32], seed=0)
        >>> buffer = buffer.insert([np.arange(50, dtype=np.int32)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(buffer, f"{folder}/buffer.safetensors")
        ...     again = load(f"{folder}/buffer.safetensors")
        >>> print(again.size(), *again.sample(), *buffer.sample())
        50 [32 35 19] [32 35 19]
    """
    check_bool("save", "incremental", incremental)
    check_bool("save", "progress", progress)
    save_parts(parts_of("save", buffer), path, describe(buffer), incremental=incremental, progress=progress)


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
    check_bool("load", "progress", progress)
    if capacity is not None:
        check_size("load", "capacity", capacity)
        if buffer is not None:
            raise ValueError(f"For 'load', 'capacity' must be None where 'buffer' is given, but got {capacity}.")
    with contextlib.ExitStack() as stack:
        sources = open_sources(path, stack)
        check_description(sources[0].path, sources[-1].header.description)
        new = buffer is None
        if new:
            buffer = _made(sources[-1], capacity, backend)
        load_parts(sources, parts_of("load", buffer), describe(buffer), new=new, progress=progress)
    return buffer


def _made(source: Source, capacity: int | None, backend: str) -> Any:
    """Return new buffers as the file describes them."""
    description = source.header.description
    if capacity is not None and ("class" not in description or description["class"] == MixedReplay.__name__):
        raise ValueError(
            f"For 'load', 'capacity' must be None for a file with several buffers, {summary(description)}, but got "
            f"{capacity}. Make them with the capacities you want and give them as 'buffer'."
        )
    try:
        return build(description, capacity, backend)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"For 'load', no buffer can be made from {source.path}: {error}") from error
