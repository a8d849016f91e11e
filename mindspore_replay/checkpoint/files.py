"""Files that are written atomically, and read by several threads; and progress bars."""

import contextlib
import itertools
import math
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import DTypeLike

from ..store.base.checks import check_bool, check_no_pipe
from ..store.base.optional import optional
from ..store.folder.files import sync, unchanged_if_refused
from .file_format import Header, damaged, read_header

#: Bytes to copy and write at once: few enough to be in a core's cache when they are written.
_WRITTEN = 1 << 18
#: Bytes that a thread reads at once: few enough to stay in its cache for the checksum; and as many as a huge
#: page has, which the system clears twice if two threads are the first to write to it.
_READ = 1 << 21

_THREADS = min(4, os.cpu_count() or 1)


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
    """Remove temporary files that killed processes left beside this file."""
    ours = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.tmp")
    for entry in path.parent.glob("*.tmp"):
        if ours.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def write_all(file: BinaryIO, chunks: Iterable[Any], progress: Callable[[int], object] = lambda done: None) -> int:
    """Write chunks of bytes to a file, call `progress` with the bytes of each piece, and return the CRC-32 of all.

    A graph may change a chunk meanwhile: each piece is copied first, so that the checksum is that of the file. The
    system begins to write each chunk to the disk at once, so that `fsync` finds little left to do.
    """
    copy, crc32 = np.empty(_WRITTEN, np.uint8), 0
    for chunk in chunks:
        view, start = memoryview(chunk), file.tell()
        for i in range(0, len(view), _WRITTEN):
            piece = copy[: min(_WRITTEN, len(view) - i)]
            piece[:] = view[i : i + _WRITTEN]
            crc32 = isal_zlib.crc32(piece, crc32)
            file.write(piece.data)
            progress(len(piece))
        if hasattr(os, "posix_fadvise"):  # Linux; changed pages are written, and stay in memory
            os.posix_fadvise(file.fileno(), start, len(view), os.POSIX_FADV_DONTNEED)
    return crc32


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Return the memory of a contiguous array, as bytes."""
    return array.reshape(-1).view(np.uint8)


class Slots(NamedTuple):
    """Slots of a ring with rows, from the oldest row to the newest."""

    capacity: int
    first: int
    rows: int

    def pieces(self, array: Any, nbytes: int = 1 << 23) -> Iterator[slice]:
        """Return the slots in pieces of adjacent ones, whose rows in this array have so many bytes at most."""
        step = max(1, nbytes // max(1, math.prod(array.shape[1:]) * array.dtype.itemsize))
        before_end = min(self.rows, self.capacity - self.first)
        for first, count in ((self.first, before_end), (0, self.rows - before_end)):
            yield from (slice(first + i, first + min(i + step, count)) for i in range(0, count, step))


class Source:
    """An open file, whose arrays are read and compared with their checksums.

    Args:
        file (io.FileIO): The file.
        path (str): Its name, for errors.
        header (Header): Its header.
        readers (Executor): Threads that read.
    """

    def __init__(self, file: FileIO, path: str, header: Header, readers: Executor) -> None:
        self.path, self.header = path, header
        self.progress: Callable[[int], Any] = lambda done: None
        self._file, self._readers, self._scratch = file, readers, threading.local()

    def array(self, name: str, dtype: DTypeLike = None) -> np.ndarray:
        """Return an array, in new memory. `dtype` is that of its bits if NumPy does not know the file's."""
        entry = self.header.entries[name]
        array = np.empty(entry.shape, dtype or entry.dtype)
        self._read(name, 0, [bytes_of(array)])
        return array

    def fill(self, name: str, array: Any, slots: Slots) -> None:
        """Read the newest rows into the slots of an array, which may be a `CompressedColumn`."""
        entry = self.header.entries[name]
        older = entry.nbytes // max(1, entry.shape[0]) * (entry.shape[0] - slots.rows)
        self._read(name, older, _memory(array, slots))

    def check(self, name: str) -> None:
        """Raise a ValueError if an array does not match its checksum."""
        self._read(name, self.header.entries[name].nbytes)

    def _read(self, name: str, skipped: int, memories: Iterable[np.ndarray] = ()) -> None:
        """Read an array into memories, each complete before the next is asked for, behind bytes that nobody wants.

        After an error too, nothing is being read any more.
        """
        at, crc32 = self.header.size + self.header.entries[name].start, 0
        for memory in itertools.chain([None] if skipped else [], memories):
            size, offset = (skipped, 0) if memory is None else (memory.size, memory.ctypes.data % _READ)
            bounds = list(itertools.pairwise([0, *range(_READ - offset, size, _READ), size]))
            parts = [(None if memory is None else memory[a:b], at + a, b - a) for a, b in bounds]
            pieces = [self._readers.submit(self._read_piece, *part) for part in parts]
            try:
                for piece, (a, b) in zip(pieces, bounds):
                    crc32 = isal_zlib.crc32_combine(crc32, piece.result(), b - a)
                    self.progress(b - a)
            finally:
                for piece in pieces:
                    piece.cancel()
                wait(pieces)
            at += size
        if crc32 != self.header.checksums[name]:
            raise damaged(self.path, f"holds data that do not fit their checksum, in {name!r}: they were altered")

    def _read_piece(self, memory: np.ndarray | None, at: int, size: int) -> int:
        """Read bytes, into the thread's own memory if there is none for them, and return their checksum."""
        if memory is None:
            if not hasattr(self._scratch, "memory"):
                self._scratch.memory = np.empty(_READ, np.uint8)
            memory = self._scratch.memory[:size]
        done = 0
        while done < size:
            got = os.preadv(self._file.fileno(), [memory.data[done:]], at + done)
            if not got:
                raise damaged(self.path, "ended while it was read")
            done += got
        return isal_zlib.crc32(memory)


def _memory(array: Any, slots: Slots) -> Iterator[np.ndarray]:
    """Return memory for the rows in slots of an array."""
    if isinstance(array, np.ndarray):
        yield from (bytes_of(array[piece]) for piece in slots.pieces(array, array.nbytes))
    else:
        for piece in slots.pieces(array):
            rows = np.empty((piece.stop - piece.start, *array.shape[1:]), array.dtype)
            yield bytes_of(rows)
            array[piece] = rows


@contextlib.contextmanager
def open_source(path: str | os.PathLike[str]) -> Iterator[Source]:
    """Open a file. Raise a ValueError if it is damaged or of another kind."""
    check_no_pipe("load", path)
    with ThreadPoolExecutor(_THREADS) as readers, open(real_path(path), "rb", buffering=0) as file:
        yield Source(file, os.fspath(path), read_header(file, path), readers)


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
