"""Writes parts to files."""

import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..store.locks import hold_calls, hold_folders
from .contents import Contents, View, view_of
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
from .parts import Part
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
    updates: list[int]  # likewise
    loads: list[int]  # how often the arrays of each part were loaded
    nbytes: int  # of the file with all rows
    more_bytes: int  # of the incremental files


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
    buffers = [part.owner for part in parts if part.is_buffer]
    with hold_calls(buffers):
        views = [view_of(part) for part in parts]
        with hold_folders(buffers) as held:
            last = _last_written(parts, views, file, description) if incremental else None
            nothing = [0] * len(parts)
            contents = Contents(parts, views, *((last.inserted, last.updates) if last else (nothing, nothing)))
            more_bytes = last.more_bytes + contents.nbytes if last else 0
            if last and (more_bytes > last.nbytes or not contents.has_rows_before(last.inserted)):
                last, contents = None, Contents(parts, views, nothing, nothing)

            def check(checksums: dict[str, int]) -> None:
                held.close()  # which waits for no graph any more
                contents.check_unchanged(checksums)

            written = _written(views, contents, file, description, last, progress, check)
        for i, part in enumerate(parts):
            part.owner.last_saved = written, i
    if last is None:
        remove_increments(file, written.id)


def _last_written(parts: Sequence[Part], views: Sequence[View], path: Path, description: str) -> _Written | None:
    """Return the record of these buffers' last file, if that is unchanged and no state was loaded since."""
    last, _ = getattr(parts[0].owner, "last_saved", None) or (None, 0)
    if last is None or any(getattr(part.owner, "last_saved", None) != (last, i) for i, part in enumerate(parts)):
        return None
    if (last.path, last.description, last.loads) != (path, description, [view.loads for view in views]):
        return None
    first, newest = (read_header_at(incremental_path(path, n) if n else path) for n in (0, last.number))
    whole = first and newest and first.number == 0 and first.id == last.id and newest.crc32 == last.crc32
    return last if whole else None


def _written(
    views: Sequence[View], contents: Contents, path: Path, description: str, last: _Written | None, progress: bool,
    check: Callable[[dict[str, int]], None],
) -> _Written:  # fmt: skip
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
    crc32 = _write(incremental_path(path, number) if number else path, metadata, contents, progress, check)
    return _Written(
        path=path,
        id=identity,
        number=number,
        crc32=crc32,
        description=description,
        inserted=contents.inserted,
        updates=[view.number for view in views],
        loads=[view.loads for view in views],
        nbytes=last.nbytes if last else contents.nbytes,
        more_bytes=last.more_bytes + contents.nbytes if last else 0,
    )


def _write(
    path: Path, metadata: dict[str, str], contents: Contents, progress: bool, check: Callable[[dict[str, int]], None]
) -> str:
    """Write a file, and return the checksum of its header."""
    checksums: dict[str, int] = {}
    with (
        progress_bar("save", contents.nbytes, progress) as done,
        replacing(path, "save") as file,
    ):
        write_header, write = WriteAll(file, lambda _: None), WriteAll(file, done)
        write_header(header_bytes(metadata, contents.entries, checksums)[0])
        for name in contents.entries:
            write.crc32 = 0
            for chunk in contents.chunks(name):
                write(chunk)
            checksums[name] = write.crc32
        check(checksums)
        header, crc32 = header_bytes(metadata, contents.entries, checksums)
        file.seek(0)
        write_header(header)
    return crc32
