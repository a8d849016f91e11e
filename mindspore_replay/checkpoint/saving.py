"""Saves buffers and other parts of a run to files."""

import contextlib
import itertools
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .._version import __version__
from ..store.folder.files import unchanged_if_refused
from ..store.kernels.locks import hold_calls, hold_folders, is_in_folder
from ..store.kernels.state import is_by_slot, updated_slots
from .file_format import FORMAT, UPDATED, VERSION, Entry, checksum, header_bytes, lay_out
from .files import (
    WriteAll,
    check_names_free,
    numbered_path,
    progress_bar,
    read_header_at,
    real_path,
    remove_increments,
    remove_temporaries,
    replacing,
    staged_path,
)
from .parts import CHUNK, Part, Slots, bytes_of, cursors_of


class _View:
    """The memory of a part's state. Its constructor waits for graphs: make it before taking locks that they wait for.

    Attributes:
        arrays (dict[str, numpy.ndarray]): Its arrays by name, or copies of those that are not in host memory.
        dtypes (dict[str, str]): Names of their dtypes in files.
        loads (int): How often they were loaded.
        updates (numpy.ndarray): The numbers of updates, none for a part without rows.
        number (int): Updates before the state is read.
    """

    def __init__(self, part: Part) -> None:
        held = part.state()
        self.arrays = {key: one.asnumpy() for key, one in held.items()}
        self.dtypes = {key: one.dtype for key, one in held.items()}
        self.loads = sum(one.loads for one in held.values())
        self.updates = part.updates()
        self.number = int(self.updates[0])


class _Array(NamedTuple):
    """An array to write.

    Args:
        array (numpy.ndarray): The memory of the state, or a copy where `slots` is ``None``.
        dtype (str): Name of its dtype in files.
        slots (Union[tuple[Slots, ...], None]): Rows of it to write, or ``None`` for the whole array.
    """

    array: np.ndarray
    dtype: str
    slots: tuple[Slots, ...] | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the data to write."""
        return self.array.shape if self.slots is None else (sum(map(len, self.slots)), *self.array.shape[1:])

    def chunks(self) -> Iterator[Any]:
        """Return the data to write as bytes, in pieces."""
        if self.slots is not None:
            return itertools.chain.from_iterable(slots.chunks(self.array) for slots in self.slots)
        memory = bytes_of(self.array)
        return (memory[i : i + CHUNK] for i in range(0, memory.size, CHUNK))


class _Contents:
    """Contents of a file to write. The buffers' locks must be held.

    Args:
        parts (Sequence[Part]): The buffers.
        views (Sequence[_View]): The memory of their states.
        last (Union[_Written, None]): The file before, if columns of rows that were inserted or updated since are to be
            written alone.

    Attributes:
        since (list[int]): For each part, the serial number of the first row whose columns are written.
        inserted (list[int]): For each part, the number of rows inserted.
    """

    def __init__(self, parts: Sequence[Part], views: Sequence[_View], last: "_Written | None") -> None:
        nothing = [0] * len(parts)
        self.since = last.inserted if last else nothing
        self._parts, self._views = parts, views
        self._saved: dict[str, _Array] = {}
        self.inserted: list[int] = []
        self._oldest: list[int] = []
        for part, view, first, number in zip(parts, views, self.since, last.updates if last else nothing):
            self._add(part, view, first, number)
        self.entries: dict[str, Entry] = lay_out(
            {name: (saved.dtype, saved.shape) for name, saved in self._saved.items()}
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(entry.nbytes for entry in self.entries.values())

    def _add(self, part: Part, view: _View, since: int, updates: int) -> None:
        stored: tuple[Slots, ...] = ()
        new = stored
        if part.is_buffer:
            stored, new = self._rows(part, view, since, updates)
        else:
            self.inserted.append(0)
            self._oldest.append(0)
        for key, array in view.arrays.items():
            name, dtype = part.prefix + key, view.dtypes[key]
            if key == "weights":
                leaves = array[: part.owner.capacity]  # inner nodes follow from them
                self._saved[name] = _Array(leaves, dtype, stored)
            elif part.is_buffer and is_by_slot(key):
                self._saved[name] = _Array(array, dtype, new if "." in key else stored)
            else:
                self._saved[name] = _Array(array.copy(), dtype, None)

    def _rows(self, part: Part, view: _View, since: int, updates: int) -> tuple[tuple[Slots], tuple[Slots, ...]]:
        """Return the slots of all rows, and of those whose columns are written: updated rows, then new ones."""
        cursors, capacity = cursors_of(view.arrays), part.owner.capacity
        stored = Slots(capacity, cursors.head, cursors.count)
        slots = updated_slots(view.updates, updates, capacity)
        if "row_serials" in view.arrays:  # a reservoir, whose rows have no order
            serials = view.arrays["row_serials"][: cursors.count]
            oldest = int(serials.min(initial=cursors.inserted))
            new = Slots(capacity, 0, 0, np.flatnonzero(serials >= since)) if oldest < since else stored
            slots = slots[slots < cursors.count]
            updated = serials[slots]
        else:
            oldest = cursors.oldest
            old = min(max(since - oldest, 0), cursors.count)
            new = stored.part(old, cursors.count - old)
            rows = np.sort((slots - cursors.head) % capacity)
            slots, updated = (rows + cursors.head) % capacity, rows + oldest
        self.inserted.append(cursors.inserted)
        self._oldest.append(oldest)
        kept = updated < min(since, cursors.inserted)
        if not kept.any():
            return (stored,), (new,)
        self._saved[part.prefix + UPDATED] = _Array(updated[kept], "int64", None)
        return (stored,), (Slots(capacity, 0, 0, slots[kept]), new)

    def has_older_rows(self) -> bool:
        """Return True if any buffer still stores a row whose columns are in an earlier file."""
        return any(oldest < serial for oldest, serial in zip(self._oldest, self.since))

    def chunks(self, name: str) -> Iterator[Any]:
        """Return the bytes of an array, in pieces."""
        return self._saved[name].chunks()

    def check_unchanged(self, checksums: dict[str, int]) -> None:
        """Raise a RuntimeError if anything changed since the views were made and read with these checksums.

        Columns are not read again: a new row always has a new serial number, and updates are counted. Nothing can
        change a buffer in a folder.
        """
        for part, view in zip(self._parts, self._views):
            if part.is_buffer and is_in_folder(part.owner):
                continue
            for key, held in part.state().items():
                name = part.prefix + key
                if part.is_buffer and "." in key:  # columns; and a limiter, which counts calls that wait for the lock
                    continue
                array = held.asnumpy()
                now = self._saved[name]._replace(array=array[: part.owner.capacity] if key == "weights" else array)
                self._check(name, checksum(now.chunks()) == checksums[name])
            self._check(part.prefix + "updates", int(part.updates()[0]) == view.number)

    def _check(self, name: str, same: bool) -> None:
        if not same:
            raise RuntimeError(
                f"For 'save', 'buffer' must not change while it is written, but {name!r} changed: a compiled graph is "
                "running. Save between its calls."
            )


@dataclass
class _Written:
    """Record, kept by buffers, of the last file written and of the file with all rows before it."""

    path: Path
    id: str
    number: int
    description: str
    inserted: list[int]  # of each part, when the last file was written
    updates: list[int]  # likewise
    loads: list[int]  # how often the arrays of each part were loaded
    nbytes: int  # of the file with all rows
    more_bytes: int  # of the incremental files
    crc32: str = ""

    @classmethod
    def after(
        cls, last: "_Written | None", path: Path, description: str, contents: _Contents, views: Sequence[_View]
    ) -> "_Written":
        """Return the record of a file with all rows, or of an incremental one after the last."""
        state = contents.inserted, [view.number for view in views], [view.loads for view in views]
        if last is None:
            return cls(path, secrets.token_hex(16), 0, description, *state, contents.nbytes, 0)
        more_bytes = last.more_bytes + contents.nbytes
        return cls(path, last.id, last.number + 1, description, *state, last.nbytes, more_bytes)

    def metadata(self, last: "_Written | None", since: Sequence[int]) -> dict[str, str]:
        """Return the header's metadata."""
        return {
            "format": FORMAT,
            "format_version": str(VERSION),
            "library_version": __version__,
            "id": self.id,
            "number": str(self.number),
            "previous": last.crc32 if last else "",
            "description": self.description,
            "since": json.dumps(since),
        }


def save_parts(
    parts: Sequence[Part],
    path: str | os.PathLike[str],
    description: Mapping[str, Any],
    *,
    incremental: bool,
    progress: bool = False,
    note: object = None,
    staged: bool = False,
) -> None:
    """Write parts, their description and a note to a file, as `save` does.

    If it is `staged`, older files stay as they are until `publish`.
    """
    file = real_path(path)
    with unchanged_if_refused(file, "save"):
        check_names_free(file)
        remove_temporaries(file)
    buffers = [part.owner for part in parts if part.is_buffer]
    with hold_calls(buffers):
        views = [_View(part) for part in parts]
        with contextlib.ExitStack() as stack:
            with hold_folders(buffers):
                text = json.dumps(description, allow_nan=False)
                last = _last_written(parts, views, file, text) if incremental else None
                contents = _Contents(parts, views, last)
                if last and (last.more_bytes + contents.nbytes > last.nbytes or not contents.has_older_rows()):
                    last, contents = None, _Contents(parts, views, None)
                written = _Written.after(last, file, text, contents, views)
                metadata = written.metadata(last, contents.since)
                metadata |= {} if note is None else {"note": json.dumps(note)}
                target = staged_path(file) if staged else numbered_path(file, written.number)
                target_file = stack.enter_context(replacing(target, "save"))
                checksums = _write_arrays(target_file, metadata, contents, progress)
            contents.check_unchanged(checksums)  # now that graphs go on: reading the state again may wait for them
            header, written.crc32 = header_bytes(metadata, contents.entries, checksums)
            target_file.seek(0)
            WriteAll(target_file, lambda _: None)(header)
        for i, part in enumerate(parts):
            part.saved.last_saved = written, i
    if last is None and not staged:
        remove_increments(file, written.id)


def _last_written(parts: Sequence[Part], views: Sequence[_View], path: Path, description: str) -> _Written | None:
    """Return the record of these buffers' last file, if that is unchanged and no state was loaded since."""
    last, _ = getattr(parts[0].saved, "last_saved", None) or (None, 0)
    if last is None or any(getattr(part.saved, "last_saved", None) != (last, i) for i, part in enumerate(parts)):
        return None
    if (last.path, last.description, last.loads) != (path, description, [view.loads for view in views]):
        return None
    first, newest = (read_header_at(numbered_path(path, n)) for n in (0, last.number))
    whole = first and newest and first.number == 0 and first.id == last.id and newest.crc32 == last.crc32
    return last if whole else None


def _write_arrays(file: BinaryIO, metadata: dict[str, str], contents: _Contents, progress: bool) -> dict[str, int]:
    """Write arrays behind room for their header, and return their checksums."""
    checksums: dict[str, int] = {}
    with progress_bar("save", contents.nbytes, progress) as done:
        WriteAll(file, lambda _: None)(header_bytes(metadata, contents.entries, checksums)[0])
        write = WriteAll(file, done)
        for name in contents.entries:
            write.crc32 = 0
            for chunk in contents.chunks(name):
                write(chunk)
            checksums[name] = write.crc32
    return checksums
