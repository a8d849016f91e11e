"""What survives a loss of power: the state at the last flush, in two files, and rows that changed before it.

The system writes pages of mapped files to the disk when it likes. So after a loss of power the columns hold pages of
different times, and the file ``state`` is worth nothing. The files ``flushed.0`` and ``flushed.1`` hold a record, an
image of the state, and room for a log. One of them is the base: the disk has its image, of which the record has the
checksum. The image of the other is as the state was at the last flush, in memory, so that the next one finds what
changed.

A flush of little appends an entry to the log of the base: a record, and the bytes that changed in the state and in
rows. It waits for the disk once. A flush for which the log has no room writes the columns to the disk, and makes the
other file the base.
"""

import ctypes
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..base.types import Arrays
from ..kernels import library
from ..kernels.memory import address
from ..kernels.state import names_of_columns
from ..spec.options import Options
from . import files as folder_files
from .layout import COLUMNS, FILES, OF_INSERTION, PAGE, STATE, Place, flushed_bytes

_NEVER, _MOST = -1, 2**62


class Record(NamedTuple):
    """A flush, as in csrc/log.h.

    Args:
        number (int): Its number, or -1 if there was none.
        closed (int): 1 if the buffer was closed, and the rows are not changed before the next flush.
        inserted (int): Rows inserted so far.
        updates (int): Updates of rows so far.
        size (int): Bytes of the pieces in its entry, or 0 if it made a base.
        check (int): Checksum of the pieces, or of the image.
    """

    number: int = _NEVER
    closed: int = 0
    inserted: int = 0
    updates: int = 0
    size: int = 0
    check: int = 0


#: Bytes of a record with its own checksum.
_HEAD = 8 * (len(Record._fields) + 1)


class _Memory(ctypes.Structure):
    """The memory that entries are about, as in csrc/log.h."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("state_bytes", ctypes.c_int64),
        ("columns", ctypes.c_void_p),
        ("columns_bytes", ctypes.c_int64),
    )


def _sum_of(memory: np.ndarray) -> int:
    call = library.loaded().replay_checksum
    call.restype = ctypes.c_int64
    found: int = call(address(memory), ctypes.c_int64(memory.nbytes))
    return found


def write_record(record: Record, file: np.ndarray) -> None:
    """Write a record and its checksum to memory."""
    file[:_HEAD].view(np.int64)[:] = [*record, _sum_of(np.array(record))]


def _read_record(memory: np.ndarray) -> Record:
    """Return the record in memory, or one without number if it is not whole."""
    if memory.size < _HEAD:
        return Record()
    *numbers, check = memory[:_HEAD].view(np.int64).tolist()
    return Record._make(numbers) if 0 <= numbers[0] < _MOST and check == _sum_of(np.array(numbers)) else Record()


def _fits(record: Record, memory: np.ndarray) -> bool:
    """Return True if the image of a base, or the pieces of an entry, are those of the record."""
    return record.check == _sum_of(memory)


def _follows(record: Record, last: Record) -> bool:
    """Return True if an entry is that of the flush after another one: behind the last one, older entries are left."""
    return record.number == last.number + 1


class Flushed:
    """The two files.

    Args:
        options (Options): How rows are stored.
        places (Mapping[str, Place]): Where the arrays lie in their files.
        arrays (Mapping[str, numpy.ndarray]): The arrays.
        memory (Mapping[str, numpy.ndarray]): The memory of each file, uint8.
        written (Sequence[File]): The two files.
    """

    def __init__(
        self,
        options: Options,
        places: Mapping[str, Place],
        arrays: Arrays,
        memory: Mapping[str, np.ndarray],
        written: "Sequence[library.calls.File]",
    ) -> None:
        self._size = size = flushed_bytes(places)
        self._options, self._places, self._arrays, self._written = options, places, arrays, written
        self._files = [memory[name] for name in FILES]
        self._images = [file[PAGE : PAGE + size] for file in self._files]
        self._logs = [file[PAGE + size :] for file in self._files]
        self._state, columns = memory[STATE], memory[COLUMNS]
        self._memory = _Memory(self._state.ctypes.data, size, columns.ctypes.data, columns.nbytes)
        of_rows = [places[name] for name in names_of_columns(places)]
        inserted = [places[name] for name in OF_INSERTION if name in places]
        self._unknown = min(at.start for at in inserted)
        by_row = [(at.start, at.row_bytes) for at in inserted] + [(size + at.start, at.row_bytes) for at in of_rows]
        self._row_bytes = sum(at.row_bytes for at in of_rows)
        self._by_row = (ctypes.c_int64 * (2 * len(by_row)))(*itertools.chain(*by_row)), ctypes.c_int64(len(by_row))
        self._entry = np.empty(self._logs[0].size, np.uint8)
        self._head, self._entry_at = self._entry[:_HEAD].view(np.int64), address(self._entry)
        self._addresses = [address(image) for image in self._images]
        self._base, self._end = 1, self._entry.size  # no room: what the log of a base that is opened has is not known
        self._pieces: list[np.ndarray] = []
        self._number = _NEVER  # of the last flush that was begun

    def next_number(self) -> int:
        """Return the number of a new flush, after that of each flush of which the disk may have a part."""
        self._number += 1
        return self._number

    def forget_log(self) -> None:
        """Let the next flush make a base: the last one was interrupted."""
        self._end = self._entry.size

    def read(self) -> Record:
        """Return the last flush of which everything is there. Cost O(state)."""
        found = [_read_record(file) for file in self._files]
        for i in sorted((0, 1), key=lambda i: -found[i].number):
            if found[i].number >= 0 and _fits(found[i], self._images[i]):
                self._base, self._pieces = i, []
                last = self._last_in_log(found[i])
                self._number = last.number
                return last
        return Record()

    def _last_in_log(self, last: Record) -> Record:
        """Return the last flush of the base, and keep the pieces of those in its log."""
        rest = self._logs[self._base]
        while _follows(record := _read_record(rest), last):
            pieces, rest = np.split(rest[_HEAD:], [max(record.size, 0)])
            if not (_fits(record, pieces) and self._replay(pieces, copy=False)):
                break
            self._pieces.append(pieces)
            last = record
        return last

    def _replay(self, pieces: np.ndarray, copy: bool) -> bool:
        """Copy pieces to where they belong, or only check that there are such places."""
        size = ctypes.c_int64(pieces.size)
        return bool(library.loaded().replay_pieces(ctypes.byref(self._memory), address(pieces), size, int(copy)))

    def restore(self) -> None:
        """Let the state, and the rows in the log, be those of the last flush, which `read` has found."""
        self._state[: self._size] = self._images[self._base]
        for pieces in self._pieces:
            self._replay(pieces, copy=True)

    def sync(self) -> None:
        """Write to the disk what `read` has found."""
        folder_files.sync_open(self._written[self._base])

    def take(self, record: Record, slots: np.ndarray) -> np.ndarray | None:
        """Copy what changed since the last flush. The caller holds the buffer.

        Args:
            record (Record): The flush, without size and check.
            slots (numpy.ndarray): Slots in which rows changed since then, int64.

        Returns:
            Union[numpy.ndarray, None]: The entry for the log, or ``None`` if there is no room.
        """
        room, n = self._entry.size - self._end, len(slots)
        is_small = _HEAD + n * self._row_bytes <= room
        more = np.concatenate(self._items(slots)) if self._options.length_groups and is_small else None
        self._head[: len(record)] = record
        size = library.loaded().replay_take_changes(
            ctypes.byref(self._memory),
            self._addresses[1 - self._base],
            ctypes.c_int64(self._unknown if is_small else self._size),
            *self._by_row,
            address(slots),
            ctypes.c_int64(n if is_small else 0),
            None if more is None else address(more),
            ctypes.c_int64(0 if more is None else len(more)),
            self._entry_at,
            ctypes.c_int64(room if is_small else 0),
        )
        return self._entry[:size] if size else None

    def _items(self, slots: np.ndarray) -> list[np.ndarray]:
        """Return begin and bytes of the items of the rows in these slots, for each column."""
        found = []
        for group in self._options.length_groups:
            offsets, lengths = self._arrays[f"column.{group.name}"][slots].T
            inside = (offsets >= 0) & (lengths >= 0) & (offsets % group.items + lengths <= group.items)
            for at in (self._places[f"items.{name}"] for name in group.names):
                begins = self._size + at.start + offsets % group.items * at.row_bytes
                found.append(np.stack([begins, lengths * at.row_bytes], -1)[inside])
        return found

    def append(self, entry: np.ndarray) -> None:
        """Write an entry to the log, and wait for the disk."""
        file = self._written[self._base]
        self._write(file, entry, self._end)
        folder_files.sync_open(file)
        self._end += entry.size

    def make_logs(self) -> None:
        """Write the empty logs of a new folder: a file system notes the first write to space that is only reserved.

        A flush would wait for these notes too.
        """
        for file in self._written:
            self._write(file, np.zeros(self._entry.size, np.uint8), 0)

    def _write(self, file: "library.calls.File", memory: np.ndarray, begin: int) -> None:
        done, first = 0, PAGE + self._size + begin
        while done < memory.size:
            done += os.pwrite(file.fileno(), memory[done:].data, first + done)

    def begin(self, record: Record) -> None:
        """Make the other file the base, and wait for the disk, which has the columns already."""
        old, new = self._base, 1 - self._base
        write_record(record._replace(check=_sum_of(self._images[new])), self._files[new])
        folder_files.sync_open(self._written[new])
        images = self._addresses[new], self._addresses[old]
        self._base, self._end = new, 0  # before the old one changes: one of the two is always whole
        library.loaded().replay_copy_differences(*images, ctypes.c_int64(self._size))
