"""Steps of episodes: the form that all datasets are converted to on their way into buffers.

Files and buffers hold rows. A row may be only the observation after an episode, and the next observation may be that of
the next row. A `Recording` finds the steps and their episodes by the flags of all rows, and reads the rest in pieces.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]

#: Shape of one row, and dtype.
Field = tuple[tuple[int, ...], np.dtype]

#: Largest chunk to read or insert, in rows and bytes; at least one row.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 2**20

#: The dtype of bfloat16 in datasets: NumPy has none, and npz files hold two bytes without a type.
BFLOAT16 = np.dtype("V2")

#: Keys of the flags of rows for a `Recording`; no column has such a name.
END, FINAL = "(end)", "(final)"


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


class Steps(NamedTuple):
    """Consecutive steps of one or several episodes.

    Args:
        columns (dict): Arrays ``[n, *F]`` by name.
        following (dict): The next observations, by the name of the observation; where `has_next` is False, any.
        has_next (numpy.ndarray): Whether the next observation is known, bool ``[n]``. False only at ends of episodes.
        end (numpy.ndarray): Whether a step is the last of its episode, bool ``[n]``.
        final (Union[numpy.ndarray, None]): For rows stored by a buffer: whether a row contains only the observation
            after an episode, bool ``[n]``. Default: ``None``, for steps.
    """

    columns: Arrays
    following: Arrays
    has_next: np.ndarray
    end: np.ndarray
    final: np.ndarray | None = None

    def flag(self, name: str) -> np.ndarray:
        """Return the column ``"terminated"`` or ``"truncated"`` as bools, all ``False`` if there is none."""
        return as_flag(self.columns[name]) if name in self.columns else np.zeros(len(self.end), np.bool_)


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


def is_whole(names: Collection[str], observations: Sequence[str]) -> bool:
    """Return True if rows contain their next observation."""
    return bool(observations) and all(f"next_{name}" in names for name in observations)


class Recording:
    """Rows in time order, and the steps and episodes in them. The last row ends its episode.

    Rows contain their next observation if there is a column ``next_`` for each of `observations`. Then an episode also
    ends where the next observation is not the observation of the next row. Otherwise it is read from the next row. A
    `FINAL` row contains only an observation. If its flags are set, its next observation is unknown.

    Args:
        number (int): Rows.
        fields (Mapping[str, Field]): Columns, with `END` and `FINAL` if these are known. Otherwise episodes end where
            rows are terminated or truncated.
        read (Callable): Returns consecutive rows of a column, given its name and a slice.
        observations (Sequence[str]): The columns that are observations.

    Attributes:
        rows (numpy.ndarray): The row of each step. Shape ``[n]``, int64.
        end (numpy.ndarray): Whether a step is the last of its episode, bool ``[n]``.
        has_next (numpy.ndarray): Whether the observation after it is known, bool ``[n]``.
        terminated (numpy.ndarray): bool ``[n]``.
        stops (numpy.ndarray): For each episode, the number of the first step behind it. Shape ``[episodes]``, int64.
    """

    def __init__(
        self,
        number: int,
        fields: Mapping[str, Field],
        read: Callable[[str, slice], np.ndarray],
        observations: Sequence[str],
    ) -> None:
        self._number, self._fields, self._read, self._observations = number, fields, read, observations
        self._whole = is_whole(fields, observations)
        terminated = self._flag("terminated")
        done = terminated | self._flag("truncated")
        final, end = self._flag(FINAL), self._flag(END) if END in fields else done.copy()
        end[-1:] = True
        has_next, filler = (np.ones(number, np.bool_), final) if self._whole else (~end, final & ~done)
        if self._whole:
            self._end_where_observations_differ(end)
        end[:-1] |= filler[1:]
        self.rows = np.flatnonzero(~filler)
        self.end, self.has_next, self.terminated = (flags[self.rows] for flags in (end, has_next, terminated))
        self.stops = np.flatnonzero(self.end) + 1

    def _flag(self, name: str) -> np.ndarray:
        whole = slice(0, self._number)
        return as_flag(self._read(name, whole)) if name in self._fields else np.zeros(self._number, np.bool_)

    def _end_where_observations_differ(self, end: np.ndarray) -> None:
        for name in self._observations:
            for part in chunks(self._number - 1, chunk_rows([self._fields[name]])):
                after = numbers_of(self._read(name, slice(part.start + 1, part.stop + 1)))
                said = numbers_of(self._read(f"next_{name}", part))
                same = (said == after) | ((said != said) & (after != after))  # NaN is NaN
                end[part] |= ~same.all(tuple(range(1, same.ndim)))

    @functools.cached_property
    def table(self) -> EpisodeTable:
        """The episodes."""
        rewards = np.zeros(len(self.rows))
        if "reward" in self._fields and len(self.rows):
            rewards = numbers_of(self._read("reward", slice(0, self._number)))[self.rows].astype(np.float64)
            rewards = rewards.sum(tuple(range(1, rewards.ndim)))
        begins = np.append(0, self.stops[:-1])[: len(self.stops)]
        total = np.add.reduceat(rewards, begins)
        last = self.stops - 1
        truncated = self._flag("truncated")[self.rows]
        return EpisodeTable(self.stops - begins, total, self.terminated[last], truncated[last])

    def pieces(self, chosen: np.ndarray | None, drops: bool) -> Iterator[Steps]:
        """Return the steps of the episodes for which `chosen` is true, or ``None`` for all.

        With `drops`, without those whose next observation is needed but unknown; the step before ends its episode.
        """
        end, wanted = self.end, np.ones(len(self.rows), np.bool_)
        if chosen is not None:
            wanted = np.repeat(chosen, np.diff(self.stops, prepend=0))
        if drops:
            lost = ~self.has_next & ~self.terminated
            end, wanted = end | np.append(lost[1:], False), wanted & ~lost
        picked = np.flatnonzero(wanted)
        for part in chunks(len(picked), chunk_rows(self._fields.values())):
            yield self.steps(picked[part], end)

    def steps(self, numbers: np.ndarray, end: np.ndarray | None = None) -> Steps:
        """Return the steps of these numbers, which rise, with their ends or others."""
        rows, following, columns = self.rows[numbers], {}, {}
        first, after = int(rows[0]), np.minimum(rows + 1, self._number - 1)
        for name in self._fields.keys() - {END, FINAL}:
            of_next = name in self._observations and not self._whole
            values = self._read(name, slice(first, int((after if of_next else rows)[-1]) + 1))
            columns[name] = values[rows - first]
            if of_next:
                following[name] = values[after - first]
        for name in self._observations if self._whole else ():
            following[name] = columns.pop(f"next_{name}")
        return Steps(columns, following, self.has_next[numbers], (self.end if end is None else end)[numbers])
