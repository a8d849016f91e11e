"""Saves buffers and other parts of a run to files."""

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from isal import isal_zlib

from .._version import __version__
from ..store.folder.files import unchanged_if_refused
from ..store.kernels.locks import hold_calls, hold_folders, is_in_folder
from ..store.kernels.state import BY_SLOT
from .file_format import FORMAT, VERSION, header_bytes, lay_out
from .files import Slots, bytes_of, progress_bar, real_path, remove_temporaries, replacing, write_all


class Part(NamedTuple):
    """An object whose own state is saved.

    Args:
        prefix (str): Prefix of the names of its arrays.
        owner (Any): A buffer, a mixture, or another object with the methods of `BufferState` that files need.
        is_buffer (bool): Whether it has rows. Default: ``False``.
    """

    prefix: str
    owner: Any
    is_buffer: bool = False

    def arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the state by name, each a `Plain` or with its methods."""
        return getattr(self.owner, "state", self.owner).state_arrays()  # type: ignore[no-any-return]

    def is_by_row(self, key: str) -> bool:
        """Return True if a file has an entry of this array for each row; of the tree of weights it has the leaves."""
        return self.is_buffer and (key.startswith("column.") or key in BY_SLOT)

    def updates(self) -> int:
        """Return the number of updates of rows so far. A part without rows has none."""
        return int(np.asarray(self.owner.updates)[0]) if self.is_buffer else 0


class _Array(NamedTuple):
    """An array to write.

    Args:
        memory (Any): The memory of the state, or a copy: an array, or a `CompressedColumn`.
        dtype (str): Name of its dtype in files.
        shape (tuple[int, ...]): Shape of the data to write.
        slots (Slots): The rows of the memory to write.
    """

    memory: Any
    dtype: str
    shape: tuple[int, ...]
    slots: Slots

    def chunks(self) -> Iterator[Any]:
        """Return the data to write as bytes, in pieces. What is in memory is not copied."""
        return (bytes_of(self.memory[piece]) for piece in self.slots.pieces(self.memory))


class _View:
    """The memory of a part's state. Its constructor waits for graphs: make it before locks that they wait for."""

    def __init__(self, part: Part) -> None:
        self._part, self._updates = part, part.updates()
        self._held = {key: (one.asnumpy(), one.dtype) for key, one in part.arrays().items()}

    def arrays(self) -> dict[str, _Array]:
        """Return the arrays to write, by their names in the file. The buffer's locks must be held."""
        arrays = {}
        for key, (array, dtype) in self._held.items():
            if self._part.is_by_row(key):
                first, count = (int(self._held[key][0]) for key in ("head", "count"))
                slots = Slots(self._part.owner.capacity, first, count)
                arrays[self._part.prefix + key] = _Array(array, dtype, (count, *array.shape[1:]), slots)
            else:  # what a graph may change is copied, but for items, which only new rows have
                memory = bytes_of(array if key.startswith("items.") else array.copy())
                arrays[self._part.prefix + key] = _Array(memory, dtype, array.shape, Slots(memory.size, 0, memory.size))
        return arrays

    def check_unchanged(self, arrays: Mapping[str, _Array], checksums: Mapping[str, int]) -> None:
        """Raise a RuntimeError if anything changed since the view was made and read with these checksums.

        Columns are not read again: a new row always has a new serial number, and updates are counted. Nothing can
        change a buffer in a folder.
        """
        part = self._part
        if part.is_buffer and is_in_folder(part.owner):
            return
        changed = ["updates"] if part.updates() != self._updates else []
        for key, stored in part.arrays().items():
            # Not columns; nor a limiter, which counts calls that wait for the lock.
            if not (part.is_buffer and "." in key):
                name, array = part.prefix + key, stored.asnumpy()
                now = arrays[name]._replace(memory=array if part.is_by_row(key) else bytes_of(array))
                crc32 = functools.reduce(lambda crc32, chunk: isal_zlib.crc32(chunk, crc32), now.chunks(), 0)
                changed += [key] if crc32 != checksums[name] else []
        if changed:
            raise RuntimeError(
                f"For 'save', 'buffer' must not change while it is written, but {part.prefix + changed[-1]!r} changed: "
                "a compiled graph is running. Save between its calls."
            )


def save_parts(
    parts: Sequence[Part],
    path: str | os.PathLike[str],
    description: Mapping[str, Any],
    *,
    progress: bool = False,
    note: object = None,
) -> None:
    """Write parts, their description and a note to a file, as `save` does."""
    file = real_path(path)
    with unchanged_if_refused(file, "save"):
        remove_temporaries(file)
    buffers = [part.owner for part in parts if part.is_buffer]
    metadata = {
        "format": FORMAT,
        "format_version": str(VERSION),
        "library_version": __version__,
        "description": json.dumps(description, allow_nan=False),
        **({} if note is None else {"note": json.dumps(note)}),
    }
    with hold_calls(buffers):
        views = [_View(part) for part in parts]
        with replacing(file, "save") as target:
            with hold_folders(buffers):
                arrays = [view.arrays() for view in views]
                header, checksums = _write(target, metadata, arrays, progress)
            for view, own in zip(views, arrays):  # now that graphs go on: reading the state again may wait for them
                view.check_unchanged(own, checksums)
            target.seek(0)
            write_all(target, [header])


def _write(
    file: BinaryIO, metadata: Mapping[str, str], parts: Sequence[Mapping[str, _Array]], progress: bool
) -> tuple[bytes, dict[str, int]]:
    """Write arrays behind room for their header, and return the header and their checksums."""
    arrays = {name: array for part in parts for name, array in part.items()}
    entries = lay_out({name: (array.dtype, array.shape) for name, array in arrays.items()})
    checksums: dict[str, int] = {}
    with progress_bar("save", sum(entry.nbytes for entry in entries.values()), progress) as done:
        write_all(file, [header_bytes(metadata, entries, checksums)])
        for name in entries:
            checksums[name] = write_all(file, arrays[name].chunks(), done)
    return header_bytes(metadata, entries, checksums), checksums
