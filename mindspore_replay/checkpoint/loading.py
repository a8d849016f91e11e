"""Loads files into buffers, whose capacity may be another than the saved one, and into other parts of a run."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..store.base.kinds import Kind
from ..store.kernels.locks import Locks, hold_calls, hold_folders
from ..store.kernels.state import check_cursors, check_references, eligible
from ..store.kernels.tree import build_weights
from ..store.spec.epochs import POSITION, SIZE
from .file_format import UPDATED, damaged, descriptions, is_value, summary
from .files import progress_bar
from .parts import Cursors, Part, Slots, cursors_of
from .sources import Source

_LAST_SERIAL = 1 << 62

#: Rows of a file, each by the number of the first, and their slots.
_Places = list[tuple[int, Slots]]


@contextlib.contextmanager
def _explained(source: Source) -> Iterator[None]:
    """Add the name of the file to the error for an invalid state."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"For 'load', {source.path} contains an impossible state. {error}") from error


class Restored:
    """The state of one part as it is in files, to be checked, fitted to the part's capacity, and written into it.

    Args:
        sources (Sequence[Source]): The files, that with all rows first.
        part (Part): The part.
        index (int): Its number.
        saved_capacity (int): Its capacity when it was saved.
        new (bool): Whether it was made by this load, so that its memory may be written before the checks are done.
    """

    def __init__(self, sources: Sequence[Source], part: Part, index: int, saved_capacity: int, new: bool) -> None:
        self.part = part
        self._sources = sources
        self._index = index
        self._saved_capacity = saved_capacity
        self._parameters = part.state()
        self._new = new
        self._is_reservoir = "row_serials" in self._parameters
        self._columns = [key for key in self._parameters if key.startswith("column.")]
        #: The columns that say where the items of rows are. They are read with the state.
        self._references = {f"column.{kind.name}": kind for kind in part.owner.options.kinds} if part.is_buffer else {}
        self._contents = [key for key in self._columns if key not in self._references]
        # Arrays of which a file has one entry for each stored row; of the tree of weights it has the leaves alone.
        of_rows = part.row_keys() | {"weights"}
        self._of_rows = [key for key in self._parameters if key in of_rows]
        self._row_state: dict[str, np.ndarray] = {}
        #: The memory of Parameters that are in host memory, once `find_memory` ran.
        self._in_memory: dict[str, np.ndarray] = {}
        #: For each file, where the rows of its columns go.
        self._places: list[_Places] = [[] for _ in sources]

    def names(self) -> list[str]:
        """Return the names of its arrays in a file."""
        return [self.part.prefix + key for key in (*self._parameters, UPDATED)]

    def column_bytes(self) -> int:
        """Return the bytes of the columns that `check_columns` reads, in all files."""
        names = [self.part.prefix + key for key in self._contents]
        return sum(source.header.entries[name].nbytes for source in self._sources for name in names)

    def differences(self, source: Source) -> list[str]:
        """List the missing arrays of a file, and those of another shape or dtype."""
        wrong = []
        for key, parameter in self._parameters.items():
            entry = source.header.entries.get(self.part.prefix + key)
            shape: tuple[object, ...] = parameter.shape
            got: tuple[object, ...] = entry.shape if entry else ()
            if key in self._of_rows:
                shape = ("rows", *(() if key == "weights" else shape[1:]))
                got = ("rows", *got[1:]) if got else got
            if key.startswith("items."):
                shape, got = ("items", *shape[1:]), ("items", *got[1:]) if got else got
            dtype = parameter.dtype
            if entry is None:
                wrong.append(f"{self.part.prefix + key!r}: expected {dtype} {list(shape)}, but got nothing")
            elif (entry.dtype, got) != (dtype, shape):
                wrong.append(
                    f"{self.part.prefix + key!r}: expected {dtype} {list(shape)}, but got {entry.dtype} {list(got)}"
                )
        return wrong

    def read_row_state(self) -> None:
        """Read all arrays but the columns, find the slots of their rows, and check the result."""
        cursors = []
        for source in self._sources:
            for key, parameter in self._parameters.items():
                if key not in self._of_rows:
                    self._row_state[key] = source.array(self.part.prefix + key, parameter.numpy_type)
            if self.part.is_buffer:
                cursors.append(cursors_of(self._row_state))
        if self.part.is_buffer:
            self._read_rows_of_state(cursors)
        with _explained(self._sources[-1]), np.errstate(all="ignore"):
            self.part.saved.check_state(self._row_state)

    def check_columns(self) -> None:
        """Raise a ValueError if columns do not match their checksums."""
        for source in self._sources:
            for key in self._contents:
                source.check(self.part.prefix + key)

    def find_memory(self) -> None:
        """Find the memory to write to. This waits for graphs: call it before taking locks that they wait for."""
        self._in_memory = {key: one.asnumpy() for key, one in self._parameters.items() if one.in_memory}

    def begin(self) -> None:
        """Declare that the rows are about to be replaced. The buffer's lock must be held."""
        if self.part.is_buffer:
            self._row_state = dict(self.part.owner.state.begin_replacing(self._row_state))

    def read_columns(self) -> None:
        """Read the columns into their Parameters, whose previous rows are lost."""
        self.part.saved.last_saved = None
        for key in self._contents:
            parameter, array = self._parameters[key], self._in_memory.get(key)
            if array is None:
                array = np.zeros(parameter.shape, parameter.numpy_type)
            for source, places in zip(self._sources, self._places):
                source.fill(self.part.prefix + key, array, places)
            if key not in self._in_memory:
                parameter.overwrite(array)

    def overwrite_marks(self) -> None:
        """Write the state that was read to all Parameters but the other columns."""
        for key, array in self._row_state.items():
            if key in self._in_memory:
                self._in_memory[key][...] = array
            else:
                self._parameters[key].overwrite(array)

    # Rows.

    def _read_rows_of_state(self, cursors: list[Cursors]) -> None:
        *earlier, last = self._sources
        capacity, saved = self.part.owner.capacity, cursors[-1]
        self._check_rows(cursors)
        references = {key: self._read_references(key, cursors) for key in self._references}
        fitting = (self._fitting(kind, references[key]) for key, kind in self._references.items())
        now = self._moved(saved, min([saved.count, capacity, *fitting]))
        slots = Slots(capacity, now.head, now.count)
        for key in (key for key in self._of_rows if key not in self._columns):
            self._row_state[key] = self._memory(key)
            last.fill(self.part.prefix + key, self._row_state[key], [(saved.count - now.count, slots)])
            for source in earlier:
                source.check(self.part.prefix + key)
        for key, kind in self._references.items():
            self._row_state[key] = self._memory(key)
            kept = references[key][saved.count - now.count :]
            self._row_state[key][(now.head + np.arange(now.count)) % capacity] = self._replaced(kind, kept)
        self._places = self._placed(cursors, now, slots)
        if now != saved or capacity != self._saved_capacity:
            self._fit(now)
        if "weights" in self._row_state:
            self._row_state["weights"] = build_weights(self._row_state["weights"][:capacity])

    def _placed(self, cursors: list[Cursors], now: Cursors, slots: Slots) -> list[_Places]:
        """Return for each file where the rows of its columns go. Raise a ValueError if it has other rows."""
        found, placed = [], 0
        for source, those in zip(self._sources, cursors):
            updated = self._updated(source)
            older, places, rows = (
                self._places_in_reservoir(source, those, updated)
                if self._is_reservoir
                else self._places_in_ring(source, those, updated, now, slots)
            )
            found.append(older + [(len(updated) + start, part) for start, part in places])
            self._check_row_counts(source, self._columns, len(updated) + rows)
            placed += sum(len(part) for _, part in places)
        if not self._is_reservoir and placed != now.count:
            raise damaged(
                self._sources[-1].path, f"needs {now.count} rows, of which the files before it hold all but {placed}"
            )
        return found

    # Rows that differ in length.

    def _read_references(self, key: str, cursors: list[Cursors]) -> np.ndarray:
        """Return where the items of all rows of the files are, the oldest first. Shape ``[n, 2]``, int64."""
        saved, kind = cursors[-1], self._references[key]
        slots = Slots(max(saved.count, 1), 0, saved.count)
        references = np.zeros((slots.capacity, 2), np.int64)
        places = self._placed(cursors, Cursors(0, saved.count, saved.inserted, saved.base), slots)
        for source, those in zip(self._sources, places):
            source.fill(self.part.prefix + key, references, those)
        path, size = self._sources[-1].path, self._saved_items(kind)
        if len({len(self._row_state[f"items.{name}"]) for name in kind.names}) > 1 or size < 1:
            raise damaged(path, f"has different numbers of items in the columns {list(kind.names)}, or none")
        with _explained(self._sources[-1]), np.errstate(all="ignore"):
            as_saved = kind._replace(items=size, longest=size)
            check_references(self.part.owner.options.cls_name, as_saved, references[: saved.count])
        return references[: saved.count]

    def _saved_items(self, kind: Kind) -> int:
        """Return the items that the files had memory for."""
        return len(self._row_state[f"items.{kind.name}"])

    def _fitting(self, kind: Kind, references: np.ndarray) -> int:
        """Return how many of the newest rows there is memory for."""
        if self._saved_items(kind) == kind.items:
            return len(references)
        return int(np.searchsorted(references[::-1, 1].cumsum(), kind.items, "right"))

    def _replaced(self, kind: Kind, references: np.ndarray) -> np.ndarray:
        """Return where the items of rows are in this memory, and if it is of another size, bring them there."""
        offsets, lengths = references.T
        if (longest := int(lengths.max(initial=0))) > kind.longest:
            raise ValueError(
                f"For 'load', 'max_length' of column {kind.name!r} must be at least {longest}, the items of the "
                f"longest row in {self._sources[-1].path}, but got {kind.longest}."
            )
        size, begins = self._saved_items(kind), lengths.cumsum() - lengths
        if size == kind.items:
            return references
        items = np.repeat(offsets % size - begins, lengths) + np.arange(lengths.sum())
        for name in kind.names:
            saved = self._row_state[f"items.{name}"]
            self._row_state[f"items.{name}"] = np.zeros((kind.items, *saved.shape[1:]), saved.dtype)
            self._row_state[f"items.{name}"][: len(items)] = saved[items]
        return np.stack([begins, lengths], -1)

    # Rows of any kind.

    def _memory(self, key: str) -> np.ndarray:
        """Return zeros to read rows into: the Parameter's own memory, if it is not in use yet."""
        parameter = self._parameters[key]
        if self._new and parameter.in_memory and key != "weights":
            return parameter.asnumpy()
        shape = (self.part.owner.capacity,) if key == "weights" else parameter.shape
        return np.zeros(shape, parameter.numpy_type)

    def _check_rows(self, cursors: list[Cursors]) -> None:
        """Raise a ValueError if rows do not match the cursors, or files do not continue each other."""
        before = 0
        for source, those in zip(self._sources, cursors):
            if not 0 <= those.count <= min(self._saved_capacity, those.inserted) or those.inserted > _LAST_SERIAL:
                raise damaged(
                    source.path, f"has {those.count} rows of {those.inserted} in a capacity of {self._saved_capacity}"
                )
            if not self._is_reservoir:
                with _explained(source):
                    check_cursors(self.part.owner.options.cls_name, self._saved_capacity, those.state())
            if self._since(source) != before:
                raise damaged(source.path, f"has rows from {self._since(source)} on, not from {before} on")
            self._check_row_counts(source, [key for key in self._of_rows if key not in self._columns], those.count)
            before = those.inserted

    def _check_row_counts(self, source: Source, keys: Sequence[str], rows: int) -> None:
        for name in (self.part.prefix + key for key in keys):
            if source.header.entries[name].shape[0] != rows:
                raise damaged(source.path, f"has {source.header.entries[name].shape[0]} rows of {name!r}, not {rows}")

    def _since(self, source: Source) -> int:
        return source.header.since[self._index]

    def _updated(self, source: Source) -> np.ndarray:
        """Return the serial numbers of updated rows, which precede the new rows in a file's columns."""
        name = self.part.prefix + UPDATED
        entry = source.header.entries.get(name)
        if entry is None:
            return np.zeros(0, np.int64)
        if entry.dtype != "int64" or len(entry.shape) != 1:
            raise damaged(source.path, f"has {name!r} of {entry.dtype} {list(entry.shape)}, not of int64 ['rows']")
        return source.array(name)

    def _not_older(self, source: Source) -> ValueError:
        return damaged(source.path, f"has {self.part.prefix + UPDATED!r} that are not the numbers of its older rows")

    def _moved(self, saved: Cursors, count: int) -> Cursors:
        """Return the cursors for so many of the newest rows in this capacity. Older rows count as overwritten."""
        capacity = self.part.owner.capacity
        if (capacity, count) == (self._saved_capacity, saved.count):
            return saved
        if self._is_reservoir:
            raise ValueError(
                f"For 'load', 'capacity' must be {self._saved_capacity}, that of the reservoir in "
                f"{self._sources[0].path}, since it is a sample of this size, but got {capacity}."
            )
        # In a larger capacity, rows already overwritten would leave a gap, so slots are renumbered.
        base = saved.base if capacity <= self._saved_capacity else saved.oldest
        return Cursors((saved.inserted - base - count) % capacity, count, saved.inserted, base)

    def _places_in_ring(
        self, source: Source, those: Cursors, updated: np.ndarray, now: Cursors, slots: Slots
    ) -> tuple[_Places, _Places, int]:
        """Return places for a file's updated rows and new rows, if they are still stored, and how many are new."""
        since = self._since(source)
        first = max(since, those.oldest)
        kept_from = max(first, now.oldest)
        kept = min(those.inserted, now.inserted) - kept_from
        places = [(kept_from - first, slots.part(kept_from - now.oldest, kept))] if kept > 0 else []
        if updated.size and (np.diff(updated, prepend=those.oldest - 1, append=min(since, those.inserted)) <= 0).any():
            raise self._not_older(source)
        gone = int(np.searchsorted(updated, now.oldest))
        left = (updated[gone:] - now.oldest + now.head) % slots.capacity
        older = [(gone, Slots(slots.capacity, 0, 0, left))] if left.size else []
        return older, places, max(0, those.inserted - first)

    def _places_in_reservoir(self, source: Source, those: Cursors, updated: np.ndarray) -> tuple[_Places, _Places, int]:
        """Return places for a file's updated rows and new rows, and how many are new."""
        capacity, since = self.part.owner.capacity, self._since(source)
        serials = source.array(f"{self.part.prefix}row_serials")
        slots = Slots(capacity, 0, 0, np.flatnonzero(serials >= since))
        if len(slots) == those.count:
            slots = Slots(capacity, 0, those.count)
        changed = np.flatnonzero((serials < since) & np.isin(serials, updated))
        if not np.array_equal(serials[changed], updated):
            raise self._not_older(source)
        older = [(0, Slots(capacity, 0, 0, changed))] if changed.size else []
        return older, [(0, slots)], len(slots)

    def _fit(self, now: Cursors) -> None:
        """Adapt the state that depends on the capacity, or on rows that are left out."""
        row_state, buffer = self._row_state, self.part.owner
        row_state |= now.state()
        if "clock" in row_state:
            row_state["clock"][1] = max(row_state["clock"][1], now.oldest)
        if "window" in row_state:
            all_rows = row_state["window"][0] == self._saved_capacity
            row_state["window"][0] = buffer.capacity if all_rows else min(row_state["window"][0], buffer.capacity)
        if "epoch" in row_state and not 0 < row_state["epoch"][SIZE] <= buffer.capacity:
            row_state["epoch"][[SIZE, POSITION]] = 0  # it is over
        if "weights" in row_state:  # a row whose window is incomplete has weight 0
            row_state["weights"] = np.where(eligible(buffer.options, row_state), row_state["weights"], 0.0)


def load_parts(
    sources: Sequence[Source],
    parts: Sequence[Part],
    description: Mapping[str, Any],
    *,
    new: bool = False,
    progress: bool = False,
) -> None:
    """Read files into buffers, described by parts.

    Raises:
        ValueError: If the files are of other buffers, or a state in them is invalid. Nothing is changed then.
    """
    saved = sources[-1].header.description
    if summary(description) != summary(saved):
        raise ValueError(
            f"For 'load', 'buffer' must be what was saved in {sources[-1].path}, {summary(saved)}, but got "
            f"{summary(description)}."
        )
    pairs = zip(parts, descriptions(saved))
    states = [Restored(sources, part, i, node.get("capacity", 0), new) for i, (part, node) in enumerate(pairs)]
    of_all = not any(map(is_value, sources[-1].header.entries))  # else the file also holds networks and other parts
    load_checked(sources, states, new, of_all, progress)


def load_checked(
    sources: Sequence[Source], states: Sequence[Restored], new: bool, of_all: bool = True, progress: bool = False
) -> None:
    """Read files into the parts with these states. Everything is checked before any part changes.

    They are the first parts of the files, or, with `of_all`, all of them but plain values.
    """
    _check_arrays(sources, states, of_all)
    total = sum(source.header.nbytes for source in sources)
    if not new:
        total += sum(state.column_bytes() for state in states)
    alone = Locks(*(state.part.owner.state.sole_use({}) for state in states if state.part.is_buffer))
    with progress_bar("load", total, progress) as done, alone:
        for source in sources:
            source.progress = done
        for state in states:
            state.read_row_state()
        for state in states:
            if not new:
                state.check_columns()
        _overwrite(states, new)


def _check_arrays(sources: Sequence[Source], states: Sequence[Restored], of_all: bool) -> None:
    """Raise a ValueError if a file lacks arrays of the parts, or, with `of_all`, has others."""
    names = {name for state in states for name in state.names()}
    for source in sources:
        wrong = [text for state in states for text in state.differences(source)]
        values = set(filter(is_value, source.header.entries))
        unknown = sorted(source.header.entries.keys() - names - values) if of_all else []
        if unknown:
            wrong.append(f"unknown arrays {unknown}")
        parts = len(source.header.since) - bool(values)
        if wrong or parts < len(states) or (of_all and parts != len(states)):
            start = f"For 'load', {source.path} must contain the columns and the state of the buffer."
            if of_all and values:
                start = f"For 'TrainingCheckpoint', {source.path} must hold these parts alone, under these names."
            raise ValueError(f"{start} {'; '.join(wrong)}.")


def _overwrite(states: Sequence[Restored], new: bool) -> None:
    """Read the columns, then give the buffers their state."""
    of_buffers = [state for state in states if state.part.is_buffer]
    owners = [state.part.owner for state in of_buffers]
    with hold_calls(owners):
        for state in of_buffers:
            state.find_memory()
        try:
            with hold_folders(owners):
                _write(of_buffers)
            _write([state for state in states if not state.part.is_buffer])
        except BaseException:
            # The checks passed, so the disk failed, and old rows are mixed with new ones.
            if not new:
                for owner in owners:
                    owner.reset()
            raise


def _write(states: Sequence[Restored]) -> None:
    for state in states:
        state.begin()
        state.read_columns()
    for state in states:
        state.overwrite_marks()
