"""Open files: one with all rows, and the incremental files after it."""

import contextlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from isal import isal_zlib

from .file_format import Header, damaged, read_header
from .files import incremental_paths, real_path
from .rows import CHUNK, Slots, bytes_of


class Source:
    """An open file, whose arrays are read and compared with their checksums.

    Args:
        file (BinaryIO): The file, unbuffered.
        path (str): Its name, for errors.
        header (Header): Its header.
        summing (Executor): Computes checksums while the next bytes are read.
    """

    def __init__(self, file: BinaryIO, path: str, header: Header, summing: Executor) -> None:
        self.path = path
        self.header = header
        self.progress: Callable[[int], Any] = lambda done: None
        self._file = file
        self._summing = summing
        self._crc32 = 0
        self._summed: Future[int] | None = None  # the checksum up to the last chunk read

    def is_still(self, path: Path) -> bool:
        """Return True if `path` still names the open file."""
        return os.path.samestat(os.fstat(self._file.fileno()), path.stat())

    def array(self, name: str) -> np.ndarray:
        """Return an array, in new memory."""
        entry = self.header.entries[name]
        array = np.empty(entry.shape, entry.dtype)
        self._begin(name)
        self._read(bytes_of(array))
        self._end(name)
        return array

    def fill(self, name: str, array: np.ndarray, places: Iterable[tuple[int, Slots]]) -> None:
        """Read rows into slots; each place is the first row in the file and the slots for it and the rows after it."""
        entry = self.header.entries[name]
        row_bytes = entry.nbytes // max(1, entry.shape[0])
        self._begin(name)
        at = 0
        for start, slots in places:
            self._skip((start - at) * row_bytes)
            slots.fill(array, self._read)
            at = start + len(slots)
        self._skip(entry.nbytes - at * row_bytes)
        self._end(name)

    def check(self, name: str) -> None:
        """Raise a ValueError if an array does not match its checksum."""
        self._begin(name)
        self._skip(self.header.entries[name].nbytes)
        self._end(name)

    def _begin(self, name: str) -> None:
        self._file.seek(self.header.size + self.header.entries[name].start)
        self._wait()
        self._crc32 = 0

    def _wait(self) -> None:
        if self._summed is not None:
            self._crc32 = self._summed.result()
            self._summed = None

    def _end(self, name: str) -> None:
        self._wait()
        if self._crc32 != self.header.checksums[name]:
            raise damaged(self.path, f"holds data that do not fit their checksum, in {name!r}: they were altered")

    def _skip(self, nbytes: int) -> None:
        scratch = [np.empty(min(nbytes, CHUNK), np.uint8) for _ in range(2)]  # one is read while the other is summed
        while nbytes:
            piece = scratch[0][:nbytes]
            self._read(piece)
            nbytes -= piece.size
            scratch.reverse()

    def _read(self, memory: np.ndarray) -> None:
        at = 0
        while at < memory.size:
            got = cast(Any, self._file).readinto(memory[at : at + CHUNK])
            if not got:
                raise damaged(self.path, "ended while it was read")
            at += got
        self._wait()
        self._summed = self._summing.submit(isal_zlib.crc32, memory.data, self._crc32)
        self.progress(memory.size)


def open_sources(path: str | os.PathLike[str], stack: contextlib.ExitStack) -> list[Source]:
    """Open the file with all rows and its incremental files, in order; a ValueError if one is missing or damaged."""
    summing = stack.enter_context(ThreadPoolExecutor(1))
    while True:
        sources = _open_all(path, stack, summing)
        if sources[0].is_still(real_path(path)):
            return sources  # else the file was replaced while it was opened; open again


def _open_all(path: str | os.PathLike[str], stack: contextlib.ExitStack, summing: Executor) -> list[Source]:
    first = _open(real_path(path), os.fspath(path), stack, summing)
    if first.header.number:
        raise damaged(path, f"is incremental file {first.header.number} of another: load that")
    sources = [first]
    for number, other in incremental_paths(real_path(path)).items():
        try:
            source = _open(other, f"{os.fspath(path)}.{number}", stack, summing)
        except FileNotFoundError:  # removed since the folder was listed
            continue
        header = source.header
        if header.number == 0 or header.id != first.header.id:
            continue  # an unrelated file, or one left over from an older save
        if header.number != number:
            raise damaged(source.path, f"is incremental file {header.number}")
        missing = len(sources)
        if number != missing:
            raise damaged(path, f"lacks {os.fspath(path)}.{missing}, which comes before {source.path}")
        if header.previous != sources[-1].header.crc32:
            raise damaged(source.path, f"was not added to {sources[-1].path} as it is now")
        sources.append(source)
    return sources


def _open(path: Path, name: str, stack: contextlib.ExitStack, summing: Executor) -> Source:
    file = cast(BinaryIO, stack.enter_context(path.open("rb", buffering=0)))
    return Source(file, name, read_header(file, name), summing)
