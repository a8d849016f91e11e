"""Which rows changed after a flush, and which the disk has no more as they were at it, by a checksum of each row."""

import ctypes
from collections.abc import Mapping

import numpy as np

from ..base.late import pending
from ..base.ring import stored_slots
from ..base.structs import COUNTS
from ..base.types import Arrays
from ..kernels import library, state
from ..kernels.memory import address
from ..spec.episodes import DELETED, removed
from ..spec.epochs import SIZE
from ..spec.options import Options
from .flushed import Record


class _RowPart(ctypes.Structure):
    """A part of each row, as in csrc/log.h."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("items", ctypes.c_int64),
        ("references", ctypes.c_void_p),
    )


class RowChecksums:
    """Computes a checksum of each row.

    Args:
        options (Options): How rows are stored.
        arrays (Mapping[str, numpy.ndarray]): The arrays of the buffer.
    """

    def __init__(self, options: Options, arrays: Arrays) -> None:
        self._options, self._arrays = options, arrays
        parts = [_RowPart(a.ctypes.data, a.nbytes // len(a)) for a in _columns(arrays)]
        for group in options.length_groups:
            references = arrays[f"column.{group.name}"].ctypes.data
            items = [arrays[f"items.{name}"] for name in group.names]
            parts += [_RowPart(a.ctypes.data, a.nbytes // len(a), len(a), references) for a in items]
        self._parts = (_RowPart * len(parts))(*parts)

    def of(self, slots: np.ndarray) -> np.ndarray:
        """Return the checksums of the rows in these slots. Shape ``[n]``, uint32."""
        sums = np.empty(len(slots), np.uint32)
        self._compute(slots, sums, by_slot=False)
        return sums

    def _compute(self, slots: np.ndarray, sums: np.ndarray, by_slot: bool) -> None:
        parts, n = ctypes.c_int64(len(self._parts)), ctypes.c_int64(len(slots))
        library.loaded().replay_checksums(self._parts, parts, address(slots), n, address(sums), int(by_slot))

    def changed(self, since: Record) -> np.ndarray:
        """Return the slots in which rows were inserted or updated after a flush. Some may be listed twice."""
        arrays, capacity = self._arrays, self._options.capacity
        if self._options.reservoir:
            new = np.flatnonzero(arrays["row_serials"][: int(arrays["count"])] >= since.inserted)
        else:
            new = stored_slots(arrays, capacity, int(arrays["serials"][0]) - since.inserted)
        if int(arrays["updates"][0]) == since.updates:
            return new
        return np.append(new, state.updated_slots(arrays["updates"], since.updates, capacity))

    def note(self, slots: np.ndarray) -> None:
        """Compute the checksums of the rows in these slots anew."""
        self._compute(slots, self._arrays["checksums"], by_slot=True)


def _columns(arrays: Arrays) -> list[np.ndarray]:
    return [arrays[name] for name in state.names_of_columns(arrays)]


def torn_rows(options: Options, arrays: Arrays, since: Record) -> np.ndarray:
    """Return the slots of rows that are not as they were at a flush, without rows that were changed."""
    sums = RowChecksums(options, arrays)
    slots = np.setdiff1d(stored_slots(arrays, options.capacity), sums.changed(since))
    return slots[sums.of(slots) != arrays["checksums"][slots]]


def remove_torn(options: Options, arrays: Arrays, torn: np.ndarray) -> int:
    """Mark rows as deleted. What follows from that is still to be computed. Return how many rows are to be evicted.

    Rows of a buffer without weights cannot be deleted. In a ring the oldest rows replace them, and are evicted. In a
    reservoir, where each slot has a row, copies of other rows do.
    """
    if "use_counts" in arrays:
        lost = torn[~removed(arrays, torn)]
        uses = arrays["use_counts"][lost]
        arrays["use_counts"][lost] = np.where(pending(uses), ~0, np.minimum(uses, ~uses))
        arrays["counts"][COUNTS.index("deleted")] += len(lost)
        if "flags" in arrays:
            arrays["flags"][lost] |= DELETED
        for group in options.length_groups:
            _empty_deleted(options, arrays, torn, arrays[f"column.{group.name}"])
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
    state.note_update(arrays["updates"], places)
    if "epoch" in arrays and places.size:
        arrays["epoch"][SIZE] = 0  # a row that moved has another place in the order
    return 0 if options.reservoir and whole.size else len(torn)


def _empty_deleted(options: Options, arrays: Arrays, torn: np.ndarray, references: np.ndarray) -> None:
    """Set deleted rows, whose offsets and lengths are unknown, to no items, so that others keep their order."""
    slots = stored_slots(arrays, options.capacity)
    deleted = np.isin(slots, torn)
    ends = np.where(deleted, 0, references[slots].sum(1))
    first = references[slots[~deleted][:1], 0].sum()
    references[slots[deleted], 0] = np.maximum(np.maximum.accumulate(ends), first)[deleted]
    references[slots[deleted], 1] = 0


def described(arrays: Mapping[str, np.ndarray], options: Options, slots: np.ndarray) -> str:
    """Return which torn rows in these slots are lost, for a message; those deleted before are not."""
    slots = slots[~removed(arrays, slots)] if "use_counts" in arrays else slots
    if not slots.size:
        return ""
    inserted, head, count = int(arrays["serials"][0]), int(arrays["head"]), int(arrays["count"])
    in_ring = inserted - count + (slots - head) % options.capacity
    serials = np.sort(arrays["row_serials"][slots] if options.reservoir else in_ring).tolist()
    shown = ", ".join(map(str, serials[:5])) + (f", ..., {serials[-1]}" if len(serials) > 5 else "")
    return f"{len(serials)} rows that did not fit their checksums were removed, those with the handles {shown}"
