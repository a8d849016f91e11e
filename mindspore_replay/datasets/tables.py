"""Reads files with one array for each column, as npz and HDF5 files are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from .filling import Field, Source, row_bytes, unmarked, with_next
from .steps import END, FINAL, Arrays, Steps, chunk_rows, ends_said, is_whole, only, steps_of

#: D4RL's keys, with their columns.
D4RL = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "next_observations": "next_observation",
    "terminals": "terminated",
    "timeouts": "truncated",
}
_ENDS = ("terminated", "truncated", END, FINAL)


#: Most bytes that a byte of a file can stand for, if it is compressed by deflate.
_MOST_EXPANDED = 1032


def check_expanded(what: str, label: str, nbytes: int, size: int) -> None:
    """Raise a ValueError for a file whose arrays would be larger than its bytes allow."""
    if nbytes > _MOST_EXPANDED * size:
        raise ValueError(
            f"For '{what}', {label} must hold its arrays, but it has {size} bytes, and they would have {nbytes}."
        )


class Table(Protocol):
    """An open file."""

    label: str
    #: Shape and dtype of each array, with its first axis.
    arrays: dict[str, Field]

    def chunks(self, keys: Sequence[str], rows: int) -> Iterator[Arrays]:
        """Return the arrays of these keys, `rows` rows of each at a time."""


class TableSource(Source):
    """A file as a `Source`. Its columns have equal lengths.

    Args:
        what (str): Function to name in errors.
        table (Table): The file.
        names (Mapping[str, str]): The key of each column, with `END` and `FINAL` where the file has them.
        by_episode (bool): Whether to find the episodes. Otherwise rows are taken as they are. Default: ``False``.
        always (Sequence[str]): Flags that become columns even if the file lacks them. Default: ``()``.
    """

    def __init__(
        self, what: str, table: Table, names: Mapping[str, str], by_episode: bool = False, always: Sequence[str] = ()
    ) -> None:
        self._what, self._table, self._names, self.label = what, table, dict(names), table.label
        self._flags = {END, FINAL, *always}
        observations = tuple(n for n in names if n == "observation" or n.startswith("observation."))
        self.observations = observations if by_episode else ()
        self._by_episode = by_episode
        self.whole = is_whole(names, self.observations)
        self._check()
        fields = {name: self._field(key) for name, key in names.items() if name not in (END, FINAL)}
        fields |= {name: ((), np.dtype(np.bool_)) for name in always}
        following = {f"next_{name}" for name in self.observations}
        self.fields = {name: field for name, field in fields.items() if name not in following}
        self.transitions = fields if self.whole else with_next(self.fields, self.observations)
        if by_episode and not self.whole and not {END, "truncated"} & names.keys():
            key = self._names.get("truncated", "timeouts" if always else "truncated")
            raise unmarked(what, self.label, f"{key!r} or next observations", list(names.values()))

    def _field(self, key: str) -> Field:
        shape, dtype = self._table.arrays[key]
        return shape[1:], dtype

    def _check(self) -> None:
        """Raise an error for arrays that cannot be columns."""
        arrays = {key: self._table.arrays[key] for key in self._names.values()}
        odd = [f"{key!r} is {dtype}" for key, (_, dtype) in arrays.items() if dtype.kind not in "biufV"]
        if odd:
            raise TypeError(f"For '{self._what}', {self.label} must hold arrays of numbers, but {', '.join(odd)}.")
        lengths = {key: shape[0] if shape else None for key, (shape, _) in arrays.items()}
        if len(set(lengths.values())) != 1 or None in lengths.values():
            raise ValueError(
                f"For '{self._what}', {self.label} must hold arrays of one length, a row of each step, but got "
                f"{lengths}."
            )
        self.size = next(iter(lengths.values())) or 0
        if not self.size:
            raise ValueError(f"For '{self._what}', {self.label} must hold a row, but got none.")
        flags = {key: arrays[key][0] for name, key in self._names.items() if name in self._flags}
        wrong = {key: shape for key, shape in flags.items() if shape != (self.size,)}
        if wrong:
            raise ValueError(
                f"For '{self._what}', flags of {self.label} must have shape ({self.size},), but got {wrong}."
            )

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Arrays]:
        """Return chunks of these columns, by default of all, as stored, and flags as bools."""
        names = self._names if columns is None else {n: self._names[n] for n in columns if n in self._names}
        size = chunk_rows(row_bytes(self._field(key) for key in names.values()))
        for arrays in self._table.chunks(list(names.values()), size):
            chunk = {name: arrays[key] for name, key in names.items()}
            yield {name: self._as_flag(name, array) if name in self._flags else array for name, array in chunk.items()}

    def _as_flag(self, name: str, array: np.ndarray) -> np.ndarray:
        flag = array.astype(np.bool_)
        if array.dtype != np.bool_ and not np.array_equal(flag, array):
            raise ValueError(
                f"For '{self._what}', {self._names[name]!r} of {self.label} must hold bools or 0 and 1, but got "
                f"{array[flag != array][0]}."
            )
        return flag

    def outline(self) -> Iterator[Steps]:
        """Return all steps, with the columns that a summary needs: whole ones also need observations, which differ."""
        following = [f"next_{name}" for name in self.observations]
        needed = ["reward", *_ENDS, *([*self.observations, *following] if self.whole else [])]
        columns = [name for name in needed if name in self._names] or list(self._names)[:1]
        return steps_of(self.rows(columns), self.observations if self.whole else ())

    def lengths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the lengths of the episodes. For rows as they are, one entry with all of them, which are not read."""
        nothing = np.zeros(1, np.bool_)
        return super().lengths() if self._by_episode else (np.array([self.size]), nothing, nothing)

    def steps(self, chosen: np.ndarray | None) -> Iterator[Steps]:
        """Return the steps of the chosen episodes, or ``None`` for all."""
        if not self._by_episode:
            ended = True
            for rows in self.rows():
                no = np.zeros(len(next(iter(rows.values()))), np.bool_)
                columns = {name: array for name, array in rows.items() if name in self.fields}
                end, final = rows.get(END, no), rows.get(FINAL, no)
                yield Steps(columns, {}, no, ends_said(end, final, ended), final)
                ended = bool(end[-1])
            return
        for steps in only(steps_of(self.rows(), self.observations), chosen):
            lacking = {name: steps.flag(name) for name in self.fields if name not in steps.columns}
            yield steps._replace(columns={**steps.columns, **lacking})


def d4rl_source(what: str, table: Table) -> TableSource:
    """Make the source of a file with D4RL's keys."""
    split = [(key, *key.partition("/")[::2]) for key in table.arrays]
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
            f"For '{what}', {table.label} must have D4RL's keys, but lacks {missing}; it has {list(table.arrays)[:20]}."
        )
    return TableSource(what, table, names, by_episode=True, always=("terminated", "truncated"))
