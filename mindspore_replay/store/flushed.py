"""What survives a loss of power: the state at the last flush, in one of two files, and a checksum of each row.

The system writes pages of mapped files to the disk when it likes. So after a loss of power the columns contain pages of
different times, and the file ``state`` is unusable. A flush writes the pages of the state that changed to the file
``flushed.0`` or ``flushed.1``, in turn; then the columns to the disk; then, to the same file, a record with a checksum
of the state. The file of the flush before stays whole all the while. The state contains a checksum of each row at the
flush: a row that fails it was changed later.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from . import library, state
from .epochs import SIZE
from .late import pending
from .options import Options
from .ring import stored_slots
from .types import Arrays

#: Bytes of a page of the state.
PAGE = 4096
#: The files, which begin with a page for the record.
FILES = ("flushed.0", "flushed.1")
#: Slots whose checksums are computed together.
_AT_ONCE = 1 << 16
_NEVER, _MOST, _DELETED = -1, 2**62, 4


class Record(NamedTuple):
    """A flush.

    Args:
        number (int): Its number; -1 if there was none.
        closed (int): 1 if the buffer was closed, and the rows are not changed before the next flush.
        inserted (int): Rows inserted so far.
        updates (int): Updates of rows so far.
        pages (int): Checksum of the pages of the state.
    """

    number: int = _NEVER
    closed: int = 0
    inserted: int = 0
    updates: int = 0
    pages: int = 0


def _checksums(rows: np.ndarray, slots: np.ndarray | None = None, sums: np.ndarray | None = None) -> np.ndarray:
    """Return a checksum of each row, or of those in the slots, uint64 ``[n]``, added to `sums` if these are passed."""
    n = len(rows) if slots is None else len(slots)
    sums = np.zeros(n, np.uint64) if sums is None else sums
    each = ctypes.c_int64(rows.nbytes // max(len(rows), 1))
    places = None if slots is None else ctypes.c_void_p(slots.ctypes.data)
    memory, result = (ctypes.c_void_p(array.ctypes.data) for array in (rows, sums))
    library.loaded().replay_checksums(memory, each, places, ctypes.c_int64(n), result)
    return sums


class Flushed:
    """The two files.

    Args:
        files (Sequence[numpy.ndarray]): The memory of each, uint8.
    """

    def __init__(self, files: Sequence[np.ndarray]) -> None:
        self._records = [file[:64].view(np.int64) for file in files]
        self._pages = [file[PAGE:].reshape(-1, PAGE) for file in files]
        self._sums: list[np.ndarray | None] = [None, None]

    def newest(self) -> tuple[Record, np.ndarray]:
        """Return the last flush of which everything is there, and the pages of its state. Cost O(state)."""
        found = [self._found(i) for i in (0, 1)]
        i = int(found[1].number > found[0].number)
        return found[i], self._pages[i]

    def _found(self, i: int) -> Record:
        *numbers, pages, check = self._records[i][: len(Record._fields) + 1].tolist()
        record = Record._make([*numbers, pages])
        whole = 0 <= record.number < _MOST and check == _sum_of(np.array(record)) and pages == _sum_of(self._sums_of(i))
        return record if whole else Record()

    def _sums_of(self, i: int) -> np.ndarray:
        """Return the checksums of a file's pages as they are in memory."""
        sums = self._sums[i]
        if sums is None:
            sums = self._sums[i] = _checksums(self._pages[i])
        return sums

    def write(self, number: int, pages: np.ndarray) -> int:
        """Copy the pages of the state that changed to the file of a flush, and return their checksum."""
        i = number % 2
        sums = self._sums_of(i)
        changed = np.flatnonzero(_checksums(pages) != sums)
        self._pages[i][changed] = pages[changed]
        sums[changed] = _checksums(self._pages[i], changed)  # processes that wait for the lock have changed it since
        return _sum_of(sums)

    def record(self, record: Record) -> None:
        """Write the record of a flush to its file."""
        numbers = np.array(record)
        self._records[record.number % 2][: len(record) + 1] = [*record, _sum_of(numbers)]


def _sum_of(numbers: np.ndarray) -> int:
    return int(_checksums(numbers[None]).view(np.int64)[0])


def _columns(arrays: Arrays) -> list[np.ndarray]:
    return [array for name, array in arrays.items() if name.startswith("column.")]


def _row_checksums(options: Options, arrays: Arrays, slots: np.ndarray) -> np.ndarray:
    """Return the checksums of the rows in these slots. Shape ``[n]``, uint32."""
    sums = np.zeros(len(slots), np.uint64)
    for column in _columns(arrays):
        _checksums(column, slots, sums)
    for kind in options.kinds:
        for name in kind.names:
            items, n = arrays[f"items.{name}"], ctypes.c_int64(len(slots))
            sizes = ctypes.c_int64(len(items)), ctypes.c_int64(items.nbytes // len(items))
            memory, *rest = (_address(a) for a in (items, arrays[f"column.{kind.name}"], slots, sums))
            library.loaded().replay_checksums_of_items(memory, *sizes, *rest[:2], n, rest[2])
    return (sums ^ sums >> np.uint64(32)).astype(np.uint32)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _chunks(slots: np.ndarray) -> list[np.ndarray]:
    return np.split(slots, range(_AT_ONCE, len(slots), _AT_ONCE))


def _changed(options: Options, arrays: Arrays, since: Record) -> np.ndarray:
    """Return the slots in which rows were inserted or updated after a flush; some may be listed twice."""
    if options.reservoir:
        new = np.flatnonzero(arrays["row_serials"][: int(arrays["count"])] >= since.inserted)
    else:
        new = stored_slots(arrays, options.capacity, int(arrays["serials"][0]) - since.inserted)
    return np.append(new, state.updated_slots(arrays["updates"], since.updates, options.capacity))


def note_changed_rows(options: Options, arrays: Arrays, since: Record) -> None:
    """Compute the checksums of the rows that changed after a flush."""
    for slots in _chunks(_changed(options, arrays, since)):
        arrays["checksums"][slots] = _row_checksums(options, arrays, slots)


def torn_rows(options: Options, arrays: Arrays, since: Record) -> np.ndarray:
    """Return the slots of rows that are not as they were at a flush, without rows that are deleted or were changed."""
    slots = np.setdiff1d(stored_slots(arrays, options.capacity), _changed(options, arrays, since))
    if "use_counts" in arrays:
        uses = arrays["use_counts"][slots]
        kept = (arrays["flags"][slots] & _DELETED == 0) if "flags" in arrays else uses >= 0
        slots = slots[kept | pending(uses)]
    wrong = [_row_checksums(options, arrays, part) != arrays["checksums"][part] for part in _chunks(slots)]
    return slots[np.concatenate(wrong)]


def remove_torn(options: Options, arrays: Arrays, torn: np.ndarray) -> int:
    """Mark rows as deleted; what follows from that is still to be computed. Return how many rows are to be evicted.

    Rows of a buffer without weights cannot be deleted. In a ring the oldest rows replace them, and are evicted. In a
    reservoir, where each slot has a row, copies of other rows do.
    """
    if "use_counts" in arrays:
        uses = arrays["use_counts"][torn]
        arrays["use_counts"][torn] = np.where(pending(uses), ~0, np.minimum(uses, ~uses))
        arrays["counts"][state.COUNTS.index("deleted")] += len(torn)
        if "flags" in arrays:
            arrays["flags"][torn] |= _DELETED
        for kind in options.kinds:
            _empty_deleted(options, arrays, arrays[f"column.{kind.name}"])
        return 0
    stored = stored_slots(arrays, options.capacity)
    whole = np.setdiff1d(stored, torn)
    if options.reservoir:
        sources, places = np.resize(whole, len(torn)) if whole.size else torn, torn
    else:
        sources = stored[: len(torn)][~np.isin(stored[: len(torn)], torn)]
        places = np.setdiff1d(torn, stored[: len(torn)])
    for column in (*_columns(arrays), arrays["checksums"]):
        column[places] = column[sources]
    if "epoch" in arrays and places.size:
        arrays["epoch"][SIZE] = 0  # a row that moved has another place in the order
    return 0 if options.reservoir and whole.size else len(torn)


def _empty_deleted(options: Options, arrays: Arrays, references: np.ndarray) -> None:
    """Set deleted rows, whose offsets and lengths are unknown, to no items, so that others keep their order."""
    slots = stored_slots(arrays, options.capacity)
    uses = arrays["use_counts"][slots]
    deleted = (uses < 0) & ~pending(uses)
    ends = np.where(deleted, 0, references[slots].sum(1))
    first = references[slots[~deleted][:1], 0].sum()
    references[slots[deleted], 0] = np.maximum(np.maximum.accumulate(ends), first)[deleted]
    references[slots[deleted], 1] = 0


def described(arrays: Mapping[str, np.ndarray], options: Options, slots: np.ndarray) -> str:
    """Return which rows are in these slots, for a message."""
    inserted, head, count = int(arrays["serials"][0]), int(arrays["head"]), int(arrays["count"])
    in_ring = inserted - count + (slots - head) % options.capacity
    serials = np.sort(arrays["row_serials"][slots] if options.reservoir else in_ring).tolist()
    shown = ", ".join(map(str, serials[:5])) + (f", ..., {serials[-1]}" if len(serials) > 5 else "")
    return f"{len(serials)} rows that did not fit their checksums were removed, those with the handles {shown}"
