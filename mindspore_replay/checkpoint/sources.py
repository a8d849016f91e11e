"""Open files: one with all rows, and the incremental files after it."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from isal import isal_zlib
from numpy.typing import DTypeLike

from ..store.base.checks import check_no_pipe
from .file_format import Header, damaged, read_header
from .files import incremental_paths, read_header_at, real_path, staged_path
from .parts import Slots, bytes_of

#: Bytes that a thread reads at once: few enough to stay in its cache for the checksum; and as many as a huge
#: page has, which the system clears twice if two threads are the first to write to it.
_PIECE = 1 << 21

_THREADS = min(4, os.cpu_count() or 1)


class Source:
    """An open file, whose arrays are read and compared with their checksums.

    Args:
        file (BinaryIO): The file, unbuffered.
        path (str): Its name, for errors.
        header (Header): Its header.
        readers (Executor): Threads that read.
    """

    def __init__(self, file: BinaryIO, path: str, header: Header, readers: Executor) -> None:
        self.path = path
        self.header = header
        self.progress: Callable[[int], Any] = lambda done: None
        self._file = file
        self._readers = readers
        self._crc32 = 0  # of what has been read of an array
        self._at = 0  # position in the file of what is read next
        self._pieces: list[tuple[int, Future[int]]] = []  # bytes and checksum of each piece that is being read
        self._scratch = threading.local()

    def is_still(self, path: Path) -> bool:
        """Return True if `path` still names the open file."""
        return os.path.samestat(os.fstat(self._file.fileno()), path.stat())

    def array(self, name: str, dtype: DTypeLike = None) -> np.ndarray:
        """Return an array, in new memory. `dtype` is that of its bits if NumPy does not know the file's."""
        entry = self.header.entries[name]
        array = np.empty(entry.shape, dtype or entry.dtype)
        self._begin(name)
        self._read(bytes_of(array))
        self._end(name)
        return array

    def fill(self, name: str, array: np.ndarray, places: Iterable[tuple[int, Slots]]) -> None:
        """Read rows into slots. Each place is the first row in the file and the slots for it and the rows after it."""
        entry = self.header.entries[name]
        row_bytes = entry.nbytes // max(1, entry.shape[0])
        self._begin(name)
        at = 0
        for start, slots in places:
            self._skip((start - at) * row_bytes)
            slots.fill(array, self._read, self._wait)
            at = start + len(slots)
        self._skip(entry.nbytes - at * row_bytes)
        self._end(name)

    def check(self, name: str) -> None:
        """Raise a ValueError if an array does not match its checksum."""
        self._begin(name)
        self._skip(self.header.entries[name].nbytes)
        self._end(name)

    def _begin(self, name: str) -> None:
        self._at = self.header.size + self.header.entries[name].start
        self._crc32 = 0

    def _end(self, name: str) -> None:
        self._wait()
        if self._crc32 != self.header.checksums[name]:
            raise damaged(self.path, f"holds data that do not fit their checksum, in {name!r}: they were altered")

    def _wait(self) -> None:
        """Wait until all pieces are read. After an error too, no piece is being read any more."""
        pieces, self._pieces = self._pieces, []
        try:
            for nbytes, piece in pieces:
                self._crc32 = isal_zlib.crc32_combine(self._crc32, piece.result(), nbytes)
                self.progress(nbytes)
        except BaseException:
            for _, piece in pieces:
                piece.cancel()
            wait([piece for _, piece in pieces])
            raise

    def _read(self, memory: np.ndarray) -> None:
        """Begin to read the next bytes into memory."""
        address, begin = memory.ctypes.data, 0
        while begin < memory.size:
            end = begin + _PIECE - (address + begin) % _PIECE
            piece = memory[begin:end]
            self._submit(piece.size, self._read_piece, piece)
            begin = end

    def _skip(self, nbytes: int) -> None:
        for i in range(0, nbytes, _PIECE):
            size = min(_PIECE, nbytes - i)
            self._submit(size, self._skip_piece, size)

    def _submit(self, nbytes: int, read: Callable[[Any, int], int], what: Any) -> None:
        self._pieces.append((nbytes, self._readers.submit(read, what, self._at)))
        self._at += nbytes

    def _read_piece(self, memory: np.ndarray, at: int) -> int:
        done = 0
        while done < memory.size:
            got = os.preadv(self._file.fileno(), [memory.data[done:]], at + done)
            if not got:
                raise damaged(self.path, "ended while it was read")
            done += got
        return isal_zlib.crc32(memory)

    def _skip_piece(self, nbytes: int, at: int) -> int:
        if not hasattr(self._scratch, "memory"):
            self._scratch.memory = np.empty(_PIECE, np.uint8)
        return self._read_piece(self._scratch.memory[:nbytes], at)


def open_sources(path: str | os.PathLike[str], stack: contextlib.ExitStack, staged: bool = False) -> list[Source]:
    """Open the file with all rows and its incremental files, in order. Raise a ValueError if one is missing or damaged.

    With `staged`, a staged incremental file is the last.
    """
    readers = stack.enter_context(ThreadPoolExecutor(_THREADS))
    while True:
        sources = _open_all(path, stack, readers, staged)
        if sources[0].is_still(real_path(path)):
            return sources  # else the file was replaced while it was opened; open again


def _open_all(
    path: str | os.PathLike[str], stack: contextlib.ExitStack, readers: Executor, staged: bool
) -> list[Source]:
    first, others = _open(real_path(path), os.fspath(path), stack, readers), incremental_paths(real_path(path))
    if staged and (header := read_header_at(staged_path(real_path(path)))) is not None:
        others[header.number] = staged_path(real_path(path))
    if first.header.number:
        raise damaged(path, f"is incremental file {first.header.number} of another: load that")
    sources = [first]
    for number, other in others.items():
        try:
            source = _open(other, f"{os.fspath(path)}.{number}", stack, readers)
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


def _open(path: Path, name: str, stack: contextlib.ExitStack, readers: Executor) -> Source:
    check_no_pipe("load", path)
    file = cast(BinaryIO, stack.enter_context(path.open("rb", buffering=0)))
    return Source(file, name, read_header(file, name), readers)
