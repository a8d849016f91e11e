"""Atomic writes of files, and the names of incremental files."""

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from isal import isal_zlib

from ..store.base.checks import check_bool, check_no_pipe
from ..store.base.optional import optional
from ..store.folder.files import sync, unchanged_if_refused
from .file_format import Header, is_ours, read_header

#: Bytes to copy and write at once: few enough to be in a core's cache when they are written.
_PIECE = 1 << 18


def real_path(path: str | os.PathLike[str]) -> Path:
    """Resolve links, so that a save replaces the file and not a link to it."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def replacing(path: Path, function: str) -> Iterator[BinaryIO]:
    """Open a temporary file, which replaces `path` after the block, when it is complete and on the disk."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    with unchanged_if_refused(path, function):
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    sync(path.parent)


def remove_temporaries(path: Path) -> None:
    """Remove temporary files that killed processes left beside this file, its incremental files or its staged one."""
    ours = re.compile(re.escape(path.name) + r"(\.[1-9][0-9]*|\.next)?\.[0-9a-f]{16}\.tmp")
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path.parent):
            if ours.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)


def numbered_path(path: Path, number: int) -> Path:
    """Return the path of the incremental file with this number, or of the file with all rows, which has number 0."""
    return path.with_name(f"{path.name}.{number}") if number else path


def staged_path(path: Path) -> Path:
    """Return the path for the newest of these files until `publish` renames it."""
    return path.with_name(f"{path.name}.next")


def publish(path: Path) -> None:
    """Give the staged file its name: that of `path`, which it replaces, or of the next incremental file."""
    check_no_pipe("load", staged_path(path))
    with open(staged_path(path), "rb") as file:
        number = read_header(file, staged_path(path)).number
    os.replace(staged_path(path), numbered_path(path, number))
    sync(path.parent)


def incremental_paths(path: Path) -> dict[int, Path]:
    """Return the files that have names of incremental ones, by number, in order."""
    name = re.compile(re.escape(path.name) + r"\.([1-9][0-9]*)")
    found = [(match, entry) for entry in os.scandir(path.parent) if (match := name.fullmatch(entry.name))]
    return dict(sorted((int(match[1]), Path(entry.path)) for match, entry in found))


def read_header_at(path: Path) -> Header | None:
    """Return the header of a file, or ``None`` if the file does not exist or is damaged."""
    try:
        check_no_pipe("load", path)
        with open(path, "rb") as file:
            return read_header(file, path)
    except (OSError, ValueError):
        return None


def check_names_free(path: Path) -> None:
    """Raise a FileExistsError if unrelated files have the names of incremental ones."""
    for other in incremental_paths(path).values() if path.parent.is_dir() else ():
        if not _is_ours(other):
            raise FileExistsError(
                f"For 'save', 'path' must have no other file {other} beside it, since incremental saves use that "
                "name. Move it away, or save to another path."
            )


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return is_ours(file)


def remove_increments(path: Path, but_of: str) -> None:
    """Remove incremental files that belong to another file than the one with this id. Files with all rows stay."""
    for other in incremental_paths(path).values():
        header = read_header_at(other)
        if header is None or (header.number > 0 and header.id != but_of):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(other)


class WriteAll:
    """Writes whole chunks to a file, computes their checksum, and reports how many bytes it wrote.

    A graph may change a chunk meanwhile: each piece is copied first, so that the checksum is that of the file. The
    system begins to write each chunk to the disk at once, so that `fsync` finds little left to do.

    Args:
        file (BinaryIO): The file.
        progress (Callable): Called with the number of bytes of each piece.

    Attributes:
        crc32 (int): CRC-32 of what was written since it was set to 0.
    """

    def __init__(self, file: BinaryIO, progress: Callable[[int], Any]) -> None:
        self._file = file
        self._progress = progress
        self._copy = np.empty(_PIECE, np.uint8)
        self.crc32 = 0

    def __call__(self, chunk: Any) -> None:
        """Write a chunk, and report its bytes."""
        view = memoryview(chunk)
        start, length = self._file.tell(), len(view)
        for i in range(0, length, _PIECE):
            piece = self._copy[: min(_PIECE, length - i)]
            piece[:] = view[i : i + _PIECE]
            self.crc32 = isal_zlib.crc32(piece, self.crc32)
            self._file.write(piece.data)
            self._progress(len(piece))
        if hasattr(os, "posix_fadvise"):  # Linux; changed pages are written, and stay in memory
            os.posix_fadvise(self._file.fileno(), start, length, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def progress_bar(
    function: str, total: int, progress: bool, unit: str = "B", extra: str = "examples"
) -> Iterator[Callable[[int], object]]:
    """Show a progress bar during the block, if wanted. The block gets a function to call with the units of a step."""
    if not check_bool(function, "progress", progress):
        yield lambda done: None
        return
    with optional("tqdm", function, extra).tqdm(total=total, unit=unit, unit_scale=True, desc=function) as bar:
        yield bar.update
