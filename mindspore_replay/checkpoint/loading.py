"""Loads files into buffers, whose capacity may be another than the saved one, and into other parts of a run."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..store.base.length_groups import LengthGroup
from ..store.kernels.locks import Locks, hold_calls, hold_folders
from ..store.kernels.state import check_cursors, check_references, eligible
from ..store.kernels.tree import build_weights
from ..store.spec.epochs import POSITION, SIZE
from .file_format import check_description, damaged, is_value, named_descriptions, summary
from .files import Slots, Source, progress_bar
from .saving import Part

_LAST_SERIAL = 1 << 62


class Restored:
    """The state of one part as it is in a file, to be checked, fitted to the part's capacity, and written into it.

    Args:
        source (Source): The file.
        part (Part): The part.
        saved_capacity (int): Its capacity when it was saved.
        new (bool): Whether it was made by this load, so that its memory may be written before the checks are done.

    Attributes:
        columns (list[str]): Names in the file of the columns but those that say where the items of rows are.
        names (list[str]): Names of all its arrays.
    """

    def __init__(self, source: Source, part: Part, saved_capacity: int, new: bool) -> None:
        self.part, self._source, self._saved_capacity, self._new = part, source, saved_capacity, new
        self._parameters = part.arrays()
        self._references = (
            {f"column.{group.name}": group for group in part.owner.options.length_groups} if part.is_buffer else {}
        )
        self._by_row = list(filter(part.is_by_row, self._parameters))
        self._columns = [key for key in self._by_row if key.startswith("column.") and key not in self._references]
        self.columns, self.names = ([part.prefix + key for key in keys] for keys in (self._columns, self._parameters))
        self._row_state: dict[str, np.ndarray] = {}
        #: The memory of Parameters that are in host memory, once `find_memory` ran.
        self._in_memory: dict[str, np.ndarray] = {}
        self._slots = Slots(1, 0, 0)

    def differences(self) -> list[str]:
        """List the arrays that the file lacks, and those of another shape or dtype."""
        wrong = []
        for key, parameter in self._parameters.items():
            entry = self._source.header.entries.get(self.part.prefix + key)
            shape: list[object] = [*parameter.shape]
            got: list[object] = [*entry.shape] if entry else []
            if axis := "rows" if key in self._by_row else "items" if key.startswith("items.") else "":
                shape, got = [axis, *(shape[1:] if key != "weights" else ())], [axis, *got[1:]] if got else got
            if entry is None or (entry.dtype, got) != (parameter.dtype, shape):
                other = f"{entry.dtype} {got}" if entry else "nothing"
                wrong.append(f"{self.part.prefix + key!r}: expected {parameter.dtype} {shape}, but got {other}")
        return wrong

    def read_row_state(self) -> None:
        """Read all arrays but the columns, find the slots of their rows, and check the result."""
        for key, parameter in self._parameters.items():
            if key not in self._by_row:
                self._row_state[key] = self._source.array(self.part.prefix + key, parameter.numpy_type)
        try:
            with np.errstate(all="ignore"):
                if self.part.is_buffer:
                    self._read_rows_of_state()
                getattr(self.part.owner, "state", self.part.owner).check_state(self._row_state)
        except ValueError as error:
            if str(error).startswith("For 'load'"):
                raise
            raise ValueError(f"For 'load', {self._source.path} contains an impossible state. {error}") from error

    def find_memory(self) -> None:
        """Find the memory to write to. This waits for graphs: call it before taking locks that they wait for."""
        self._in_memory = {key: one.asnumpy() for key, one in self._parameters.items() if one.in_memory}

    def write_columns(self) -> None:
        """Read the columns into their Parameters, whose previous rows are lost. The buffer's lock must be held."""
        self._row_state = dict(self.part.owner.state.begin_replacing(self._row_state))
        for key in self._columns:
            parameter, array = self._parameters[key], self._in_memory.get(key)
            array = self._zeros(key) if array is None else array
            self._source.fill(self.part.prefix + key, array, self._slots)
            if key not in self._in_memory:
                parameter.overwrite(array)

    def write_row_state(self) -> None:
        """Write the state that was read to all Parameters but the columns."""
        for key, array in self._row_state.items():
            if key in self._in_memory:
                self._in_memory[key][...] = array
            else:
                self._parameters[key].overwrite(array)

    # Rows.

    def _read_rows_of_state(self) -> None:
        state, capacity, saved = self._row_state, self.part.owner.capacity, int(self._row_state["count"])
        self._check_rows(saved, int(state["serials"][0]))
        references, count = {}, min(saved, capacity)
        for key, group in self._references.items():
            references[key], fitting = self._read_references(key, group)
            count = min(count, fitting)
        if fits := (count, capacity) != (saved, self._saved_capacity):
            self._move(count)
        self._slots = Slots(capacity, int(state["head"]), count)
        for key in (key for key in self._by_row if key not in self._columns):
            in_use = not self._new or not self._parameters[key].in_memory or key == "weights"
            array = state[key] = self._zeros(key) if in_use else self._parameters[key].asnumpy()
            if key in references:
                slots = (self._slots.first + np.arange(count)) % capacity
                array[slots] = self._replaced(self._references[key], references[key][saved - count :])
            else:
                self._source.fill(self.part.prefix + key, array, self._slots)
        if fits:
            self._fit()
        if "weights" in state:
            state["weights"] = build_weights(state["weights"][:capacity])

    def _zeros(self, key: str) -> np.ndarray:
        """Return memory for rows."""
        parameter = self._parameters[key]
        return np.zeros((self.part.owner.capacity, *parameter.shape[1:]), parameter.numpy_type)

    def _check_rows(self, count: int, inserted: int) -> None:
        """Raise a ValueError if rows do not match the cursors."""
        path = self._source.path
        if not 0 <= count <= min(self._saved_capacity, inserted) or inserted > _LAST_SERIAL:
            raise damaged(path, f"has {count} rows of {inserted} in a capacity of {self._saved_capacity}")
        if "row_serials" not in self._parameters:
            check_cursors(self.part.owner.options.cls_name, self._saved_capacity, self._row_state)
        for name in (self.part.prefix + key for key in self._by_row):
            if (rows := self._source.header.entries[name].shape[0]) != count:
                raise damaged(path, f"has {rows} rows of {name!r}, not {count}")

    def _move(self, count: int) -> None:
        """Set the cursors for so many of the newest rows in this capacity. Older rows count as overwritten."""
        capacity, serials = self.part.owner.capacity, self._row_state["serials"]
        if "row_serials" in self._parameters:
            raise ValueError(
                f"For 'load', 'capacity' must be {self._saved_capacity}, that of the reservoir in "
                f"{self._source.path}, since it is a sample of this size, but got {capacity}."
            )
        if capacity > self._saved_capacity:  # rows already overwritten would leave a gap, so slots are renumbered
            serials[1] = serials[0] - self._row_state["count"]
        self._row_state["head"][...] = (serials[0] - serials[1] - count) % capacity
        self._row_state["count"][...] = count

    def _fit(self) -> None:
        """Adapt the state that depends on the capacity, or on rows that are left out."""
        row_state, buffer = self._row_state, self.part.owner
        if "clock" in row_state:
            row_state["clock"][1] = max(row_state["clock"][1], row_state["serials"][0] - row_state["count"])
        if "window" in row_state:
            all_rows = row_state["window"][0] == self._saved_capacity
            row_state["window"][0] = buffer.capacity if all_rows else min(row_state["window"][0], buffer.capacity)
        if "epoch" in row_state and not 0 < row_state["epoch"][SIZE] <= buffer.capacity:
            row_state["epoch"][[SIZE, POSITION]] = 0  # it is over
        if "weights" in row_state:  # a row whose window is incomplete has weight 0
            row_state["weights"] = np.where(eligible(buffer.options, row_state), row_state["weights"], 0.0)

    # Rows that differ in length.

    def _read_references(self, key: str, group: LengthGroup) -> tuple[np.ndarray, int]:
        """Return where the items of all rows of the file are, the oldest first; and how many rows there is memory for.

        Shape ``[n, 2]``, int64.
        """
        references = self._source.array(self.part.prefix + key)
        size, *others = {len(self._row_state[f"items.{name}"]) for name in group.names}
        if others or not size:
            defect = f"has different numbers of items in the columns {list(group.names)}, or none"
            raise damaged(self._source.path, defect)
        as_saved = group._replace(items=size, longest=size)
        check_references(self.part.owner.options.cls_name, as_saved, references)
        newest = references[::-1, 1].cumsum()
        return references, len(newest) if size == group.items else int(np.searchsorted(newest, group.items, "right"))

    def _replaced(self, group: LengthGroup, references: np.ndarray) -> np.ndarray:
        """Return where the items of rows are in this memory, and if it is of another size, bring them there."""
        (offsets, lengths), size = references.T, len(self._row_state[f"items.{group.name}"])
        if (longest := int(lengths.max(initial=0))) > group.longest:
            raise ValueError(
                f"For 'load', 'longest' of column {group.name!r} must be at least {longest}, the items of the "
                f"longest row in {self._source.path}, but got {group.longest}."
            )
        if size == group.items:
            return references
        begins = lengths.cumsum() - lengths
        items = np.repeat(offsets % size - begins, lengths) + np.arange(lengths.sum())
        for name in group.names:
            saved = self._row_state[f"items.{name}"]
            self._row_state[f"items.{name}"] = np.zeros((group.items, *saved.shape[1:]), saved.dtype)
            self._row_state[f"items.{name}"][: len(items)] = saved[items]
        return np.stack([begins, lengths], -1)


def check_same(source: Source, description: Mapping[str, Any]) -> None:
    """Raise a ValueError if a file is of other buffers than those described, or of none."""
    check_description(source.path, source.header.description)
    if (passed := summary(description)) != (saved := summary(source.header.description)):
        raise ValueError(f"For 'load', 'buffer' must be what was saved in {source.path}, {saved}, but got {passed}.")


def load_parts(
    source: Source, parts: Sequence[Part], *, new: bool = False, of_all: bool | None = None, progress: bool = False
) -> None:
    """Read a file into parts, whose buffers are those that it describes. Everything is checked before any part changes.

    The parts are the first of the file, or, with `of_all`, all of them but plain values. Its default is ``False`` if
    there are such values, since the file then holds networks and other parts too.
    """
    nodes = [node for _, node in named_descriptions(source.header.description) if "folder" not in node]
    capacities = itertools.chain((node.get("capacity", 0) for node in nodes), itertools.repeat(0))
    states = [Restored(source, part, capacity, new) for part, capacity in zip(parts, capacities)]
    _check_arrays(source, states, of_all)
    columns = [] if new else [name for state in states for name in state.columns]
    total = source.header.nbytes + sum(source.header.entries[name].nbytes for name in columns)
    alone = Locks(*(part.owner.state.sole_use({}) for part in parts if part.is_buffer))
    with progress_bar("load", total, progress) as source.progress, alone:
        for state in states:
            state.read_row_state()
        for name in columns:
            source.check(name)
        _overwrite(states, new)


def _check_arrays(source: Source, states: Sequence[Restored], of_all: bool | None) -> None:
    """Raise a ValueError if a file lacks arrays of the parts, or, with `of_all`, has others."""
    wrong = [text for state in states for text in state.differences()]
    values = set(filter(is_value, source.header.entries))
    unknown = source.header.entries.keys() - values.union(*(state.names for state in states))
    if unknown and (of_all or not values):
        wrong.append(f"unknown arrays {sorted(unknown)}")
    if wrong:
        start = f"For 'load', {source.path} must contain the columns and the state of the buffer."
        if of_all:
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
                for state in of_buffers:
                    state.write_columns()
                for state in of_buffers:
                    state.write_row_state()
            for state in states:
                if not state.part.is_buffer:
                    state.write_row_state()
        except BaseException:
            # The checks passed, so the disk failed, and old rows are mixed with new ones.
            if not new:
                for owner in owners:
                    owner.reset()
            raise
