"""Rows of episodes, found in files, datasets and buffers, and laid out anew for others.

Rows have their next observation, or the next row has it, and a row may be only the observation after an episode. A
`Recording` finds the steps and their episodes by the flags of all rows, and reads the rest in pieces.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..store.base.schema import Schema
from ..store.kernels import library
from ..store.spec import episodes
from ..store.spec.spec import BufferSpec

Arrays = dict[str, np.ndarray]

#: Shape of one row, and dtype.
Field = tuple[tuple[int, ...], np.dtype]

#: Largest chunk to read or insert, in rows and bytes; at least one row.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 2**20

#: Rows between those to read that are read too; with more of them there are two reads.
_GAP = 1024

#: The dtype of bfloat16 in datasets: NumPy has none, and npz files hold two bytes without a type.
BFLOAT16 = np.dtype("V2")

#: Keys of the flags of rows for a `Recording`; no column has such a name.
END, FINAL = "(end)", "(final)"
_FLAGS = {END: episodes.END, FINAL: episodes.FINAL}

ENDS = "terminated", "truncated"


class EpisodeTable(NamedTuple):
    """One entry per episode of a dataset, in its order: the input of a function given as `episodes`.

    Attributes:
        length (numpy.ndarray): Steps. Shape ``[n]``, int64.
        total_reward (numpy.ndarray): Sum of the rewards, undiscounted. Shape ``[n]``, float64.
        terminated (numpy.ndarray): Whether the last step terminated. Shape ``[n]``, bool.
        truncated (numpy.ndarray): Whether the last step was truncated. Shape ``[n]``, bool.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from mindspore_replay.datasets import from_npz
        >>> columns = {"observation": np.zeros((3, 2), np.float32), "action": np.zeros(3, np.int32)}
        >>> columns |= {"reward": np.array([1, 1, 5], np.float32), "terminated": np.array([False, True, True])}
        >>> columns |= {"truncated": np.zeros(3, bool)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/episodes.npz", **columns)
        ...     buffer = from_npz(f"{folder}/episodes.npz", episodes=lambda table: table.total_reward > 2)
        >>> print(buffer.size())
        1
    """

    length: np.ndarray
    total_reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


#: Which episodes to insert; ``None`` for all.
Episodes = slice | Sequence[int] | np.ndarray | Callable[[EpisodeTable], slice | Sequence[int] | np.ndarray] | None


class Layout(NamedTuple):
    """Rows to read from a `Recording`, and the flags to insert them with, each ``[n]``."""

    source: np.ndarray  # the row of the recording that each is, int64, rising
    has_next: np.ndarray  # whether its next observation is that of the next row, bool, as are the others
    after: np.ndarray  # whether it is only the observation after an episode
    end: np.ndarray
    final: np.ndarray


def as_flag(column: np.ndarray) -> np.ndarray:
    """Return a column of flags, which may have axes of length 1, as bools. Shape ``[n]``."""
    return column.astype(np.bool_).any(tuple(range(1, column.ndim)))


def numbers_of(array: np.ndarray) -> np.ndarray:
    """Return an array that NumPy computes with: float32 for bfloat16."""
    if array.dtype != BFLOAT16:
        return array
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def ends_said(end: np.ndarray, final: np.ndarray) -> np.ndarray:
    """Return the flags `end` of an insertion that makes all rows with these flags again, bool ``[n]``.

    A final row that goes on with an episode is no end of its own.
    """
    return end & ~(final & ~np.append(True, end[:-1]))


def chunk_rows(fields: Iterable[Field]) -> int:
    """Return how many rows of these columns to read or insert at once."""
    row_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in fields)
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row_bytes)))


def chunks(number: int, rows: int) -> Iterator[slice]:
    """Return slices of so many rows each, which together are the first `number`."""
    return (slice(begin, min(begin + rows, number)) for begin in range(0, number, rows))


def column_fields(columns: Schema) -> dict[str, Field]:
    """Return the columns of a buffer by name, as datasets have them: where rows differ in length, their items."""
    in_groups = {name for group in columns.length_groups for name in group.names}
    types = (BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in columns.dtypes)
    shapes = (shape[name in in_groups :] for name, shape in zip(columns.names, columns.shapes))
    return dict(zip(columns.names, zip(shapes, types)))


class Recording:
    """Rows in time order, and the steps and episodes in them. The last row ends its episode.

    Rows contain their next observation if there is a column ``next_`` for each observation. Then an episode also ends
    where the next observation is not the observation of the next row. Otherwise it is read from the next row. A `FINAL`
    row contains only an observation. If its flags are set, its next observation is unknown.

    `read` returns consecutive rows of a column, given its name and a slice, which may reach too far. `fields` are the
    columns, with `END` and `FINAL` if these are known: otherwise episodes end where rows are terminated or truncated,
    and in any case at the rows `last`. `lengths`, the rows of each episode if its last row is only an observation, lets
    it read rows of one episode at a time, and no flags. `as_stored` takes rows and flags as they are. Messages name the
    function `call` and `label`.

    Attributes:
        observations (list[str]): ``observation``, or all of ``observation.*``; none if rows are taken `as_stored`.
        fields, transitions (dict[str, Field]): Columns of steps, and of transitions: the same, with next observations.
        length (numpy.ndarray): Steps of each episode. Shape ``[episodes]``, int64.
        rows (numpy.ndarray): The row of each step. Shape ``[n]``, int64.
        end (numpy.ndarray): Whether a step is the last of its episode, bool ``[n]``.
        has_next, lost (numpy.ndarray): Whether the observation after it is known; or needed but unknown, bool ``[n]``.
    """

    def __init__(
        self,
        call: str,
        label: str,
        number: int,
        fields: Mapping[str, Field],
        read: Callable[[str, slice], np.ndarray],
        *,
        last: np.ndarray | int = -1,
        lengths: np.ndarray | None = None,
        as_stored: bool = False,
    ) -> None:
        self.call, self.label, self.as_stored = call, label, as_stored
        self._columns, self._read = fields, read
        self.observations = [name for name in fields if name.split(".")[0] == "observation" and not as_stored]
        following = {f"next_{name}": fields[name] for name in self.observations}
        self.whole = bool(following) and following.keys() <= fields.keys()
        self.transitions = {name: field for name, field in fields.items() if name not in (END, FINAL)}
        self.fields = {name: field for name, field in self.transitions.items() if name not in following}
        if not self.whole:  # next observations come after the reward
            names = list(self.fields)
            at = names.index("reward") + 1 if "reward" in names else len(names)
            self.transitions = {
                name: (following | self.fields)[name] for name in (*names[:at], *following, *names[at:])
            }
        no = np.zeros(number, np.bool_)
        self._starts: np.ndarray = np.cumsum([] if lengths is None else lengths)
        if lengths is None:
            flags = {name: as_flag(read(name, slice(0, number))) for name in (*ENDS, END, FINAL) if name in fields}
        else:
            flags = dict.fromkeys((END, FINAL), np.isin(np.arange(1, number + 1), self._starts))
        terminated, truncated, final = (flags.get(name, no) for name in (*ENDS, FINAL))
        done = terminated | truncated
        self._flags, end = (ends_said(flags.get(END, no), final), final), flags.get(END, done).copy()
        end[last] = True
        has_next, filler = (np.ones_like(end), final) if self.whole else (~end, final & ~done)
        if self.whole:
            self._end_where_observations_differ(end)
        end[:-1] |= filler[1:]
        self.rows = np.flatnonzero(~filler)
        self.end, self.has_next, self.terminated = (one[self.rows] for one in (end, has_next, terminated))
        self.lost = ~self.has_next & ~self.terminated
        self.length = np.diff(np.flatnonzero(self.end) + 1, prepend=0)

    def _end_where_observations_differ(self, end: np.ndarray) -> None:
        for name in self.observations:
            for part in chunks(len(end) - 1, chunk_rows([self._columns[name]])):
                after = numbers_of(self._read(name, slice(part.start + 1, part.stop + 1)))
                said = numbers_of(self._read(f"next_{name}", part))
                same = (said == after) | ((said != said) & (after != after))  # NaN is NaN
                end[part] |= ~same.all(tuple(range(1, same.ndim)))

    def table(self) -> EpisodeTable:
        """Return the table of the episodes."""
        layout, last = self.layout(np.ones_like(self.end), False, False), np.flatnonzero(self.end)
        read: Arrays = {name: np.zeros(len(self.end)) for name in ("reward", *ENDS)}
        for part in chunks(len(self.end), chunk_rows(self._columns.values())):
            for name, values in self.read(layout, part, read.keys() & self.fields.keys()).items():
                read[name][part] = numbers_of(values).reshape(len(values), -1).sum(axis=1, dtype=np.float64)
        total = np.add.reduceat(read["reward"], last + 1 - self.length)
        return EpisodeTable(self.length, total, *(read[name][last] > 0 for name in ENDS))

    def layout(self, chosen: np.ndarray, whole: bool, single: bool) -> Layout:
        """Return the `chosen` steps, bool ``[n]``, as rows, or all rows `as_stored`.

        If next observations are needed, of a `whole` row, and one is unknown, the step before ends its episode. If
        `single`, the observation after an episode, if it is known, is a row of its own.
        """
        if self.as_stored:
            no = np.zeros_like(self._flags[0])
            return Layout(np.arange(len(no)), no, no, *self._flags)
        end = self.end
        if whole:
            end, chosen = end | np.append(self.lost[1:], False), chosen & ~self.lost
        picked = np.flatnonzero(chosen)
        source, end, has_next = self.rows[picked], end[picked], self.has_next[picked]
        after, final = np.zeros((2, len(picked)), np.bool_)
        if single:
            last = np.flatnonzero(end & has_next)
            after, final = np.insert(after, last + 1, True), end & ~has_next & ~self.terminated[picked]
            source = np.insert(source, last + 1, source[last] + (not self.whole))
            end, final = np.insert(end & ~has_next, last + 1, False), np.insert(final, last + 1, True)
            has_next = np.insert(has_next, last + 1, False)
        return Layout(source, has_next, after, end, final)

    def read(self, layout: Layout, part: slice, names: Collection[str]) -> Arrays:
        """Return columns of steps or transitions, in some rows of a layout."""
        source = layout.source[part]
        apart = (np.diff(source) > _GAP) | (np.diff(self._starts.searchsorted(source, "right")) > 0)
        bounds = [part.start, *(np.flatnonzero(apart) + part.start + 1).tolist(), part.stop]
        runs = [Layout(*(array[slice(*run)] for array in layout)) for run in itertools.pairwise(bounds)]
        arrays = [self._read_run(run, names) for run in runs]
        return {name: np.concatenate([one[name] for one in arrays]) for name in names}

    def _read_run(self, layout: Layout, names: Collection[str]) -> Arrays:
        source, after, arrays = layout.source, layout.after, {}

        def take(name: str, rows: np.ndarray) -> np.ndarray:
            found = self._read(name, slice(int(source[0]), int(source[-1]) + 2))  # with the observation after the last
            return found[np.minimum(rows - source[0], len(found) - 1)]

        for name in names:
            of = name.removeprefix("next_")
            if name != of in self.observations and not self.whole:
                arrays[name] = take(of, source + layout.has_next)
                continue
            arrays[name] = take(name, source)
            if of not in self.observations:
                arrays[name][after] = np.zeros((), arrays[name].dtype)
            elif self.whole and name == of and after.any():
                arrays[name][after] = take(f"next_{name}", source[after])
        return arrays


class StoredRows:
    """The rows of a buffer, also those that were removed, one environment after the other, each oldest row first.

    `state` is the buffer's `snapshot`. `slots` are those of the rows in this order, and `last` the positions of the
    newest row of each environment.
    """

    def __init__(self, spec: BufferSpec, state: Mapping[str, Any]) -> None:
        count = int(state["count"])
        slots = (int(state["head"]) + np.arange(count)) % spec.capacity
        if "row_serials" in state:  # a reservoir's rows have no order
            slots = np.argsort(state["row_serials"][:count])
        environments = [slots[i :: spec.num_envs] for i in range(min(spec.num_envs, count))]
        self.slots = np.concatenate([*environments, slots[:0]])
        self.last = np.cumsum([len(one) for one in environments], dtype=np.int64) - 1
        self._fields, self._flags = column_fields(spec.columns), state["flags"] if spec.has_episodes else None
        self._arrays = {name: state[f"column.{name}"] for name in self._fields}
        self._leaders = {name: group.name for group in spec.columns.length_groups for name in group.names}
        self._lengths = {group.name_of_lengths: group.name for group in spec.columns.length_groups}
        self._items = {name: library.calls.Items((state[f"items.{name}"],)) for name in self._leaders}

    def end_episodes(self, flags: int) -> None:
        """End open episodes, by these flags, so that those of one environment do not go on in the rows of the next."""
        assert self._flags is not None
        self._flags, newest = self._flags.copy(), self.slots[self.last]
        self._flags[newest] |= np.where(self._flags[newest] & episodes.END, 0, flags).astype(np.uint8)

    def items(self, name: str) -> int:
        """Return the number of items of all rows in a column whose rows differ in length, of rows in another."""
        if name not in self._leaders:
            return len(self.slots)
        return int(self._arrays[self._leaders[name]][self.slots, 1].sum())

    def read(self, name: str, rows: slice) -> np.ndarray:
        """Return a copy of some rows of a column; or flags, by `END` or `FINAL`; or lengths of rows, int32."""
        slots = self.slots[rows]
        if name in _FLAGS:
            assert self._flags is not None
            return (self._flags[slots] & _FLAGS[name]) > 0
        array: np.ndarray = self._arrays[self._lengths.get(name) or self._leaders.get(name, name)][slots]
        if name in self._lengths:
            return array[:, 1].astype(np.int32)
        if name in self._leaders:  # the items, one row behind the other
            array = self._items[name].packed(array)[1][0].copy()
        return array.view(self._fields[name][1])

    def recording(self, names: Mapping[str, str]) -> Recording:
        """Return the rows with columns under new names. `names` maps these to the buffer's."""
        fields: dict[str, Field] = {name: self._fields[column] for name, column in names.items()}
        if self._flags is not None:
            fields |= dict.fromkeys(_FLAGS, ((), np.dtype(np.bool_)))
        read = lambda name, rows: self.read(names.get(name, name), rows)  # noqa: E731
        return Recording("to_minari", "the buffer", len(self.slots), fields, read, last=self.last)
