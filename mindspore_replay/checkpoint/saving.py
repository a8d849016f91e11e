"""Saves buffers to files."""

import contextlib
import json
import os
import secrets
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..buffers.base import hold_locks
from ..buffers.parameters import times_loaded
from ..store.checks import check_bool
from .contents import Contents
from .description import Part, describe, parts_of
from .file_format import FORMAT, VERSION, header_bytes
from .files import (
    WriteAll,
    check_names_free,
    incremental_path,
    read_header_at,
    real_path,
    remove_increments,
    remove_temporaries,
    replacing,
)
from .progress import progress_bar


@dataclass(frozen=True)
class _Written:
    """Record, kept by buffers, of the last file written and of the file with all rows before it."""

    path: Path
    id: str
    number: int
    crc32: str
    description: str
    inserted: list[int]  # of each part, when the last file was written
    loads: list[int]  # how often the Parameters of each part were loaded
    nbytes: int  # of the file with all rows
    more_bytes: int  # of the incremental files


def save(buffer: Any, path: str | os.PathLike[str], *, incremental: bool = False, progress: bool = False) -> None:
    """Write a buffer to a file, from which `load` makes it again: rows, priorities, counters and random state.

    The new file replaces the old one once it is complete and on the disk, so the process may be killed at any time.
    Columns are written without a copy. Calls from Python on the buffer wait until it is written; compiled graphs do
    not, so save between their calls.

    Args:
        buffer (Union[Cell, dict, CellList]): A buffer, a `MixedReplay`, or a dict or ``CellList`` of them as
            `create_buffer` makes.
        path (Union[str, PathLike]): The file. Its format is safetensors; ``docs/checkpoints.md`` describes it.
        incremental (bool): Whether to write only rows inserted since the last save of this buffer to this path, to a
            file of its own: ``<path>.1``, ``<path>.2`` and so on. All rows are written if there was no such save, the
            buffer was loaded since, or the incremental files together would become larger than the file with all rows.
            Rows that you changed directly, through ``.buffer``, are not noticed. Default: ``False``.
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


def save_parts(
    parts: Sequence[Part],
    path: str | os.PathLike[str],
    description: Any,
    *,
    incremental: bool,
    progress: bool = False,
) -> None:
    """Write parts and their description to a file, as `save` does."""
    file = real_path(path)
    description = json.dumps(description, allow_nan=False)
    check_names_free(file)
    remove_temporaries(file)
    with locked(parts):
        last = _last_written(parts, file, description) if incremental else None
        contents = Contents(parts, last.inserted if last else [0] * len(parts))
        if last and (last.more_bytes + contents.nbytes > last.nbytes or not contents.has_rows_before(last.inserted)):
            last, contents = None, Contents(parts, [0] * len(parts))
        written = _written(parts, contents, file, description, last, progress)
        for i, part in enumerate(parts):
            part.cell.last_saved = written, i
    if last is None:
        remove_increments(file, written.id)


def locked(parts: Sequence[Part]) -> contextlib.ExitStack:
    """Hold the locks of all buffers among the parts."""
    return hold_locks(part.cell for part in parts if part.is_buffer)


def _loads(parts: Sequence[Part]) -> list[int]:
    return [sum(map(times_loaded, part.state().values())) for part in parts]


def _last_written(parts: Sequence[Part], path: Path, description: str) -> _Written | None:
    """Return the record of these buffers' last file, if that is unchanged and only rows were inserted since."""
    last, _ = getattr(parts[0].cell, "last_saved", None) or (None, 0)
    if last is None or any(getattr(part.cell, "last_saved", None) != (last, i) for i, part in enumerate(parts)):
        return None
    if (last.path, last.description, last.loads) != (path, description, _loads(parts)):
        return None
    first, newest = (read_header_at(incremental_path(path, n) if n else path) for n in (0, last.number))
    whole = first and newest and first.number == 0 and first.id == last.id and newest.crc32 == last.crc32
    return last if whole else None


def _written(
    parts: Sequence[Part], contents: Contents, path: Path, description: str, last: _Written | None, progress: bool
) -> _Written:
    """Write a file with all rows, or an incremental one after the last."""
    number = last.number + 1 if last else 0
    identity = last.id if last else secrets.token_hex(16)
    metadata = {
        "format": FORMAT,
        "format_version": str(VERSION),
        "library_version": __version__,
        "id": identity,
        "number": str(number),
        "previous": last.crc32 if last else "",
        "description": description,
        "since": json.dumps(contents.since),
    }
    crc32 = _write(incremental_path(path, number) if number else path, metadata, contents, progress)
    return _Written(
        path=path,
        id=identity,
        number=number,
        crc32=crc32,
        description=description,
        inserted=contents.inserted,
        loads=_loads(parts),
        nbytes=last.nbytes if last else contents.nbytes,
        more_bytes=last.more_bytes + contents.nbytes if last else 0,
    )


def _write(path: Path, metadata: dict[str, str], contents: Contents, progress: bool) -> str:
    """Write a file, and return the checksum of its header."""
    checksums: dict[str, int] = {}
    with (
        progress_bar("save", contents.nbytes, progress) as done,
        replacing(path, "save") as file,
        ThreadPoolExecutor(1) as summing,
    ):
        write_header, write = WriteAll(file, lambda _: None), WriteAll(file, done)
        write_header(header_bytes(metadata, contents.entries, checksums)[0])
        for name in contents.entries:
            crc = 0
            for chunk in contents.chunks(name):
                summed = summing.submit(zlib.crc32, chunk, crc)  # computed while the chunk is written
                write(chunk)
                crc = summed.result()
            checksums[name] = crc
        contents.check_unchanged(checksums)
        header, crc32 = header_bytes(metadata, contents.entries, checksums)
        file.seek(0)
        write_header(header)
    return crc32
