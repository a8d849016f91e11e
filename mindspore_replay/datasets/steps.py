"""Steps of episodes: the form that all datasets are converted to on their way into buffers.

Files hold rows. A row may be only the observation after an episode, and the next observation may be that of the next
row. `steps_of` converts rows to steps, one row behind the row that it reads, so that no file has to fit into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]

#: Largest chunk to read or insert, in rows and bytes; at least one row.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 2**24


#: The dtype of bfloat16 in datasets: NumPy has none, and npz files hold two bytes without a type.
BFLOAT16 = np.dtype("V2")

#: Keys of the flags of rows for `steps_of`; no column has such a name.
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
        following (dict): The next observations, by the name of the observation, undefined where `known` is False.
        known (numpy.ndarray): Whether the next observation is known, bool ``[n]``. False only at the end of an episode.
        end (numpy.ndarray): Whether a step is the last of its episode, bool ``[n]``.
        final (Union[numpy.ndarray, None]): For rows stored by a buffer: whether a row contains only the observation
            after an episode, bool ``[n]``. Default: ``None``, for steps.
    """

    columns: Arrays
    following: Arrays
    known: np.ndarray
    end: np.ndarray
    final: np.ndarray | None = None

    def flag(self, name: str) -> np.ndarray:
        """Return the column ``"terminated"`` or ``"truncated"`` as bools, all ``False`` if there is none."""
        return flag_of(self.columns, name, len(self.end))

    def take(self, rows: np.ndarray) -> "Steps":
        """Return the steps at these positions."""
        columns = {name: array[rows] for name, array in self.columns.items()}
        following = {name: array[rows] for name, array in self.following.items()}
        return Steps(columns, following, self.known[rows], self.end[rows])


def flag_of(columns: Mapping[str, np.ndarray], name: str, length: int) -> np.ndarray:
    """Return a column of flags as bools. Shape ``[n]``."""
    if name not in columns:
        return np.zeros(length, np.bool_)
    flags = columns[name].astype(np.bool_)
    return flags.any(tuple(range(1, flags.ndim)))


def numbers_of(array: np.ndarray) -> np.ndarray:
    """Return an array that NumPy computes with: float32 for bfloat16."""
    if array.dtype != BFLOAT16:
        return array
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def ends_said(end: np.ndarray, final: np.ndarray, ended: bool) -> np.ndarray:
    """Return the flags `end` of an insertion that makes rows with these flags again, bool ``[n]``.

    A final row that goes on with an episode is no end of its own. `ended` says whether the row before them was an end.
    """
    return end & ~(final & ~np.append(ended, end[:-1]))


def chunk_rows(row_bytes: int) -> int:
    """Return how many rows of this size to read or insert at once."""
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row_bytes)))


def steps_of(chunks: Iterable[Arrays], observations: Sequence[str]) -> Iterator[Steps]:
    """Convert consecutive rows to steps. The last row ends its episode.

    Rows contain their next observation if there is a column ``next_`` for each of `observations`. Then an episode also
    ends where the next observation is not the observation of the next row. Otherwise it is read from the next row. A
    `FINAL` row contains only an observation. If its flags are set, its next observation is unknown.

    Args:
        chunks (Iterable[dict]): Columns, with `END` and `FINAL` if these are known. Otherwise episodes end where rows
            are terminated or truncated.
        observations (Sequence[str]): The columns that are observations.
    """
    held: Arrays | None = None
    for chunk in chunks:
        rows = chunk if held is None else {name: np.concatenate((held[name], chunk[name])) for name in chunk}
        yield _steps(rows, observations, last=False)
        held = {name: array[-1:].copy() for name, array in rows.items()}
    if held is not None:
        yield _steps(held, observations, last=True)


def _steps(rows: Arrays, observations: Sequence[str], last: bool) -> Steps:
    """Convert all rows but the last, which only provides the next observation. With `last` convert it too."""
    length = len(next(iter(rows.values())))
    done = flag_of(rows, "terminated", length) | flag_of(rows, "truncated", length)
    final = rows.get(FINAL, np.zeros(length, np.bool_))
    end = rows.get(END, done) | last  # the last call gets a single row
    whole = is_whole(rows, observations)
    if whole:
        following, filler, known = {name: rows[f"next_{name}"] for name in observations}, final, np.ones(length, bool)
        for name, array in following.items():
            end[:-1] |= _differ(array[:-1], rows[name][1:])
    else:
        following = {name: np.concatenate((rows[name][1:], rows[name][:1])) for name in observations}
        filler, known = final & ~done, ~end
    end[:-1] |= filler[1:]
    kept = np.flatnonzero(~filler[: length if last else length - 1])
    held_back = {END, FINAL, *(f"next_{name}" for name in observations if whole)}
    return Steps({k: v for k, v in rows.items() if k not in held_back}, following, known, end).take(kept)


def is_whole(names: Iterable[str], observations: Sequence[str]) -> bool:
    """Return True if rows contain their next observation."""
    names = set(names)
    return bool(observations) and all(f"next_{name}" in names for name in observations)


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return which rows of two arrays differ. NaN equals NaN. Shape ``[n]``, bool."""
    a, b = numbers_of(a), numbers_of(b)
    same = (a == b) | ((a != a) & (b != b))
    return ~same.all(tuple(range(1, same.ndim)))


def only(steps: Iterable[Steps], chosen: np.ndarray | None) -> Iterator[Steps]:
    """Return the steps of the episodes for which `chosen` is true."""
    episode = 0
    for chunk in steps:
        if chosen is None:
            yield chunk
            continue
        ended = np.cumsum(chunk.end)
        rows = np.flatnonzero(chosen[episode + ended - chunk.end])
        episode += int(ended[-1]) if len(ended) else 0
        yield chunk.take(rows)


def episodes_of(steps: Iterable[Steps]) -> Iterator[Steps]:
    """Return the same steps, one episode at a time."""
    chunks: list[Steps] = []
    for chunk in steps:
        begin = 0
        for stop in np.flatnonzero(chunk.end) + 1:
            yield _joined([*chunks, chunk.take(np.arange(begin, stop))])
            chunks, begin = [], int(stop)
        if begin < len(chunk.end):
            chunks.append(chunk.take(np.arange(begin, len(chunk.end))))


def _joined(chunks: Sequence[Steps]) -> Steps:
    columns = {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in chunks[0].columns}
    following = {name: np.concatenate([chunk.following[name] for chunk in chunks]) for name in chunks[0].following}
    return Steps(columns, following, *(np.concatenate([getattr(p, k) for p in chunks]) for k in ("known", "end")))


class Summary:
    """Accumulates an `EpisodeTable`, and whether the observation after each episode is known."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._open = (0, 0.0)  # steps and reward of the open episode

    def add(self, steps: Steps) -> None:
        """Add consecutive steps, which need no observations."""
        stops = np.flatnonzero(steps.end) + 1
        rewards = numbers_of(steps.columns.get("reward", np.zeros(len(steps.end)))).astype(np.float64)
        rewards = rewards.sum(tuple(range(1, rewards.ndim)))
        begins = np.concatenate(([0], stops))
        length, total = np.diff(begins), np.array([rewards[a:b].sum() for a, b in zip(begins, stops)], np.float64)
        rest = len(rewards) - int(begins[-1]), float(rewards[begins[-1] :].sum())
        if len(stops):
            length[0] += self._open[0]
            total[0] += self._open[1]
            self._open = 0, 0.0
        self._open = self._open[0] + rest[0], self._open[1] + rest[1]
        last = stops - 1
        self._parts.append(
            (length, total, steps.flag("terminated")[last], steps.flag("truncated")[last], steps.known[last])
        )

    def result(self) -> tuple[EpisodeTable, np.ndarray]:
        """Return the table, and whether the observation after each episode is known."""
        types = np.int64, np.float64, np.bool_, np.bool_, np.bool_
        columns = zip(*self._parts) if self._parts else ([] for _ in types)
        *table, known = (np.concatenate([np.zeros(0, t), *chunks]).astype(t) for t, chunks in zip(types, columns))
        return EpisodeTable(*table), known
