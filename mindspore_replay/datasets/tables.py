"""Reads files with one array for each column, as npz and HDF5 files are."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .filling import Source, unmarked, with_next
from .steps import END, FINAL, EpisodeTable, Field, Recording, Steps, chunk_rows, chunks, ends_said, is_whole

#: D4RL's keys, with their columns.
D4RL = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "next_observations": "next_observation",
    "terminals": "terminated",
    "timeouts": "truncated",
}

#: Most bytes that a byte of a file can stand for, if it is compressed by deflate.
_MOST_EXPANDED = 1032


def check_expanded(what: str, label: str, nbytes: int, size: int) -> None:
    """Raise a ValueError for a file whose arrays would be larger than its bytes allow."""
    if nbytes > _MOST_EXPANDED * size:
        raise ValueError(
            f"For '{what}', {label} must hold its arrays, but it has {size} bytes, and they would have {nbytes}."
        )


def read_native(array: Any, rows: slice) -> np.ndarray:
    """Return rows of an array in a file, in the byte order of this machine."""
    values: np.ndarray = np.asarray(array[rows])
    return values.astype(values.dtype.newbyteorder("="), copy=False)


class TableSource(Source):
    """A file as a `Source`. Its columns have equal lengths.

    Args:
        what (str): Function to name in errors.
        label (str): Name of the file, for errors.
        arrays (Mapping[str, Any]): Its arrays by key, of NumPy or h5py.
        names (Mapping[str, str]): The key of each column, with `END` and `FINAL` where the file has them.
        by_episode (bool): Whether to find the episodes. Otherwise rows are taken as they are. Default: ``False``.
        always (Sequence[str]): Flags that become columns even if the file lacks them. Default: ``()``.
        reading (Callable): Returns a block to read in, with errors of its own. Default: ``nullcontext``.
    """

    def __init__(
        self,
        what: str,
        label: str,
        arrays: Mapping[str, Any],
        names: Mapping[str, str],
        by_episode: bool = False,
        always: Sequence[str] = (),
        reading: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._what, self.label, self._names, self._reading = what, label, dict(names), reading
        self._arrays = {name: arrays[key] for name, key in names.items()}
        self._flags = {END, FINAL, *always}
        self.observations = tuple(n for n in names if by_episode and n.split(".")[0] == "observation")
        self._by_episode = by_episode
        self._check()
        self._rows: dict[str, Field] = {
            name: (tuple(array.shape[1:]), array.dtype.newbyteorder("=")) for name, array in self._arrays.items()
        }
        fields = {name: field for name, field in self._rows.items() if name not in (END, FINAL)}
        fields |= {name: ((), np.dtype(np.bool_)) for name in always}
        following, whole = {f"next_{name}" for name in self.observations}, is_whole(names, self.observations)
        self.fields = {name: field for name, field in fields.items() if name not in following}
        self.transitions = fields if whole else with_next(self.fields, self.observations)
        if by_episode and not whole and not {END, "truncated"} & names.keys():
            key = self._names.get("truncated", "timeouts" if always else "truncated")
            raise unmarked(what, label, f"{key!r} or next observations", list(names.values()))

    def _check(self) -> None:
        """Raise an error for arrays that cannot be columns."""
        arrays = {self._names[name]: array for name, array in self._arrays.items()}
        if odd := [f"{key!r} is {array.dtype}" for key, array in arrays.items() if array.dtype.kind not in "biufV"]:
            raise TypeError(f"For '{self._what}', {self.label} must hold arrays of numbers, but {', '.join(odd)}.")
        lengths = {key: array.shape[0] if array.shape else None for key, array in arrays.items()}
        if len(set(lengths.values())) != 1 or None in lengths.values():
            raise ValueError(
                f"For '{self._what}', {self.label} must hold arrays of one length, a row of each step, but got "
                f"{lengths}."
            )
        self.size = next(iter(lengths.values())) or 0
        if not self.size:
            raise ValueError(f"For '{self._what}', {self.label} must hold a row, but got none.")
        shapes = {self._names[name]: self._arrays[name].shape for name in self._flags & self._arrays.keys()}
        if wrong := {key: shape for key, shape in shapes.items() if shape != (self.size,)}:
            raise ValueError(
                f"For '{self._what}', flags of {self.label} must have shape ({self.size},), but got {wrong}."
            )

    def _read(self, name: str, rows: slice) -> np.ndarray:
        """Return rows of a column as stored, and of flags as bools."""
        with self._reading():
            array = read_native(self._arrays[name], rows)
        flag = array.astype(np.bool_) if name in self._flags else array
        if array.dtype != flag.dtype and not np.array_equal(flag, array):
            raise ValueError(
                f"For '{self._what}', {self._names[name]!r} of {self.label} must hold bools or 0 and 1, but got "
                f"{array[flag != array][0]}."
            )
        return flag

    @functools.cached_property
    def _recording(self) -> Recording:
        return Recording(self.size, self._rows, self._read, self.observations)

    @property
    def table(self) -> EpisodeTable:
        """The episodes."""
        return self._recording.table

    def lengths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the lengths of the episodes. For rows as they are, one entry with all of them, which are not read."""
        if not self._by_episode:
            return np.array([self.size]), np.zeros(1, np.bool_), np.zeros(1, np.bool_)
        one, last = self._recording, self._recording.stops - 1
        return np.diff(one.stops, prepend=0), one.known[last], ~(one.known | one.terminated)[last]

    def steps(self, chosen: np.ndarray | None, drops: bool) -> Iterator[Steps]:
        """Return the steps of the chosen episodes, or ``None`` for all."""
        if self._by_episode:
            for steps in self._recording.pieces(chosen, drops):
                lacking = {name: steps.flag(name) for name in self.fields if name not in steps.columns}
                yield steps._replace(columns={**steps.columns, **lacking})
            return
        every, no = slice(0, self.size), np.zeros(self.size, np.bool_)
        end, final = (self._read(flag, every) if flag in self._rows else no for flag in (END, FINAL))
        end = ends_said(end, final)
        for rows in chunks(self.size, chunk_rows(self._rows.values())):
            columns = {name: self._read(name, rows) for name in self.fields}
            yield Steps(columns, {}, no[rows], end[rows], final[rows])


def d4rl_source(
    what: str,
    label: str,
    arrays: Mapping[str, Any],
    reading: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> TableSource:
    """Make the source of a file with D4RL's keys."""
    split = [(key, *key.partition("/")[::2]) for key in arrays]
    names = {  # each array in a group is a column
        column + "." * bool(rest) + rest.replace("/", "."): key
        for first, column in D4RL.items()
        for key, start, rest in split
        if start == first
    }
    present = {name.split(".")[0] for name in names}
    missing = [key for key in ("observations", "actions", "rewards", "terminals") if D4RL[key] not in present]
    if missing:
        raise ValueError(
            f"For '{what}', {label} must have D4RL's keys, but lacks {missing}; it has {list(arrays)[:20]}."
        )
    return TableSource(what, label, arrays, names, True, ("terminated", "truncated"), reading)
