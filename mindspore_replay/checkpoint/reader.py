"""Loads buffers from files."""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from ..buffers.mixed import MixedReplay
from ..ops.eager import wait_for_work
from ..store.checks import check_bool, check_size
from .description import build, check_description, describe, descriptions, parts_of, same_kind, summary
from .progress import progress_bar
from .restored import Restored
from .saving import locked
from .sources import Source, open_sources
from .values import is_value


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
            `HindsightRelabel`, or of a class of your own, can only be loaded this way. Default: ``None``.
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
        RuntimeError: If the backend is not available.
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
        else:
            _check_kind(sources[-1], buffer)
        nodes = descriptions(sources[-1].header.description)
        parts = zip(parts_of("load", buffer), nodes)
        states = [Restored(sources, part, i, node.get("capacity", 0), new) for i, (part, node) in enumerate(parts)]
        of_all = not any(map(is_value, sources[-1].header.entries))  # else the file also holds networks and other parts
        take_over(sources, states, new, of_all, progress)
    return buffer


def take_over(
    sources: Sequence[Source], states: Sequence[Any], new: bool, of_all: bool = True, progress: bool = False
) -> None:
    """Read files into the parts with these states. Everything is checked before any part changes.

    They are the first parts of the files, or, with `of_all`, all of them.
    """
    _check_arrays(sources, states, of_all)
    total = sum(source.header.nbytes for source in sources)
    if not new:
        total += sum(state.column_bytes() for state in states)
    with progress_bar("load", total, progress) as done:
        for source in sources:
            source.progress = done
        for state in states:
            state.read_row_state()
        for state in states:
            if not new:
                state.check_columns()
        _overwrite(states, new)


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


def _check_kind(source: Source, buffer: Any) -> None:
    parts_of("load", buffer)
    given, saved = describe(buffer), source.header.description
    if not same_kind(given, saved):
        raise ValueError(
            f"For 'load', 'buffer' must be what was saved in {source.path}, {summary(saved)}, but got {summary(given)}."
        )


def _check_arrays(sources: Sequence[Source], states: Sequence[Any], of_all: bool) -> None:
    """Raise a ValueError if a file lacks arrays of the parts, or, with `of_all`, has others."""
    names = {name for state in states for name in state.names()}
    for source in sources:
        wrong = [text for state in states for text in state.differences(source)]
        unknown = sorted(source.header.entries.keys() - names) if of_all else []
        if unknown:
            wrong.append(f"unknown arrays {unknown}")
        parts = len(source.header.since)
        if wrong or parts < len(states) or (of_all and parts != len(states)):
            raise ValueError(
                f"For 'load', {source.path} must hold the columns and all else of the buffer. {'; '.join(wrong)}."
            )


def _overwrite(states: Sequence[Any], new: bool) -> None:
    """Read the columns, then give the buffers their state."""
    with locked([state.part for state in states]):
        wait_for_work()
        try:
            for state in states:
                state.read_columns()
            for state in states:
                state.overwrite_marks()
        except BaseException:
            # The checks passed, so this is a read error of the disk: rows are now mixed.
            for state in states:
                if not new and state.part.is_buffer:
                    state.part.cell.reset()
            raise
