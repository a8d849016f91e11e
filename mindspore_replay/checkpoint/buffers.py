"""Saves buffers to files, and loads them from files."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from mindspore import Parameter, nn

from ..buffers.base import Buffer
from ..buffers.mixed import MixedReplay
from ..buffers.parameters import is_on_host, overwrite, times_loaded
from ..columns import numpy_type, type_name
from ..ops.eager import wait_for_work
from ..store.checks import check_bool, check_size
from .description import build, describe
from .file_format import check_description, summary
from .loading import load_parts
from .parts import Part, Plain
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


class Held(NamedTuple):
    """A Parameter as an array of a state, with the methods of `Plain`."""

    parameter: Parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the Parameter."""
        return tuple(self.parameter.shape)

    @property
    def dtype(self) -> str:
        """Name of its dtype in files."""
        return type_name(self.parameter.dtype)

    @property
    def numpy_type(self) -> np.dtype[Any]:
        """NumPy dtype of `asnumpy`."""
        return numpy_type(self.parameter.dtype)

    @property
    def loads(self) -> int:
        """Calls of ``set_data``."""
        return times_loaded(self.parameter)

    @property
    def in_memory(self) -> bool:
        """True if `asnumpy` is the memory of the Parameter itself."""
        return is_on_host(self.parameter)

    def asnumpy(self) -> np.ndarray:
        """Return the value, after work in flight is done."""
        wait_for_work()
        return self.parameter.asnumpy()

    def overwrite(self, array: np.ndarray | np.generic) -> None:
        """Overwrite the Parameter with values of the same shape and dtype, after work in flight is done."""
        wait_for_work()
        overwrite(self.parameter, array)


class CellPart(Part):
    """A Cell whose own state is saved: a buffer, a `MixedReplay` without its sources, or the weights of a network."""

    def state(self) -> dict[str, Any]:
        """Return the Parameters of the state, and compressed columns, by name."""
        parameters = {key: Held(parameter) for key, parameter in self.owner.state_parameters().items()}
        if not isinstance(self.owner, Buffer):
            return parameters
        names = zip(self.owner.columns.compressed, self.owner.compressed.items())
        columns = {key: Plain(column, self.owner.columns.stored_dtypes[i]) for i, (key, column) in names}
        return parameters | columns

    def updates(self) -> np.ndarray:
        """Return the numbers of updates; a part without rows has none."""
        return self.owner.updates.asnumpy() if self.is_buffer else super().updates()


def parts_of(function: str, buffers: Any) -> list[CellPart]:
    """Return the parts of a buffer, a `MixedReplay`, or a dict or list of them."""
    cells = list(_cells(function, buffers))
    if len({id(cell) for cell in cells}) < len(cells):
        raise ValueError(f"For '{function}', 'buffer' must hold each buffer once, but one comes twice.")
    if cells == [buffers] and isinstance(buffers, Buffer):
        return [CellPart("", buffers, True)]
    return [CellPart(f"{i}.", cell, isinstance(cell, Buffer)) for i, cell in enumerate(cells)]


def _cells(function: str, buffers: Any) -> Iterator[Any]:
    if isinstance(buffers, Buffer):
        yield buffers
    elif isinstance(buffers, MixedReplay):
        yield buffers
        yield from buffers.sources
    elif isinstance(buffers, (Mapping, nn.CellList)) and len(buffers) > 0:
        for name in buffers if isinstance(buffers, Mapping) else ():
            if not isinstance(name, str):
                raise TypeError(f"For '{function}', the keys of 'buffer' must be strings, but got {name!r}.")
        for part in buffers.values() if isinstance(buffers, Mapping) else buffers:
            yield from _cells(function, part)
    else:
        raise TypeError(
            f"For '{function}', 'buffer' must be a buffer, a MixedReplay, or a dict or CellList of them, but got "
            f"{type(buffers).__name__}."
        )
