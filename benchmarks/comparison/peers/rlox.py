"""rlox: buffers in Rust, which hold float32 and return NumPy arrays."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import rlox

from ..answering import Peer, Work, answer
from ..cases import ALPHA, BETA, GOALS, REACHED, SEQUENCE, Case, batch_of, chunks_of, priorities_of, single_rows

FLOAT32 = "NumPy arrays; actions and rewards are float32"
#: The part of the rows of files that it keeps in memory.
HOT = 1 / 10


def _floats(column: np.ndarray) -> np.ndarray:
    """Return rows as float32 ``[n, k]``; of bytes four are one float32, since it stores nothing else."""
    flat = np.ascontiguousarray(column).reshape(len(column), -1)
    return flat.view(np.float32) if flat.dtype == np.uint8 else flat.astype(np.float32, copy=False)


def _sizes(case: Case) -> tuple[int, int]:
    rows = batch_of(case.schema, 1)
    return _floats(rows["observation"]).shape[1], _floats(rows["action"]).shape[1]


def _ended(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the ends of episodes as it takes them, uint8 ``[n]``."""
    n = len(rows["action"])
    return rows["terminated"].view(np.uint8) if "terminated" in rows else np.zeros(n, np.uint8)


def _batch(rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    pairs = [_floats(rows[name]).reshape(-1) for name in ("observation", "next_observation", "action")]
    ended = _ended(rows)
    return *pairs, rows["reward"].reshape(-1), ended, np.zeros_like(ended)


def _values(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of `push`, which takes an action only as an array."""
    action = np.array([row["action"]], np.float32)
    return row["observation"], action, row["reward"], row["terminated"], False, row["next_observation"]


class Rlox(Peer):
    """Measures rlox."""

    packages = ("rlox",)
    lacks: Mapping[str, str] = {"n_step": "no n-step returns"}
    notes: Mapping[str, str] = {
        **dict.fromkeys(("insert", "sample", "sample_arrays", "files_insert"), FLOAT32),
        **dict.fromkeys(("prioritized_insert", "prioritized_sample", "prioritized_update"), FLOAT32),
        **dict.fromkeys(("atari_32", "atari_256"), "four bytes of a frame are stored as one float32"),
        "files_sample": f"{FLOAT32}; a tenth of the rows is in memory",
        "sequences": f"{FLOAT32}; no sequence crosses the end of an episode; with next observations",
        "hindsight": "goals are parts of the observation",
    }
    sample_arrays = Peer.sample

    def __init__(self) -> None:
        super().__init__()
        self._seeds = itertools.count()

    def filled(self, case: Case) -> rlox.ReplayBuffer:
        buffer = rlox.ReplayBuffer(case.capacity, *_sizes(case))
        for rows in chunks_of(case.schema, case.capacity):
            buffer.push_batch(*_batch(rows))
        return buffer

    def in_files(self, case: Case) -> rlox.MmapReplayBuffer:
        hot, path = int(case.capacity * HOT), str(self.folder / "rows")
        buffer = rlox.MmapReplayBuffer(hot, case.capacity, *_sizes(case), path)
        for rows in chunks_of(case.schema, case.capacity):
            *columns, ended, truncated = _batch(rows)
            buffer.push_batch(*columns, ended.astype(np.float32), truncated.astype(np.float32))
        return buffer

    def adding(self, buffer: Any, case: Case) -> Callable[[Any], None]:
        return lambda row: buffer.push(*_values(row))

    def extending(self, buffer: Any, rows: Mapping[str, np.ndarray]) -> Callable[[], None]:
        return lambda: buffer.push_batch(*_batch(rows))

    def drawing(self, buffer: Any, case: Case) -> Callable[[], Any]:
        if not case.name.startswith("atari"):
            return lambda: buffer.sample(case.batch, next(self._seeds))

        def sample() -> tuple[Any, ...]:
            batch = buffer.sample(case.batch, next(self._seeds))
            return batch["obs"].view(np.uint8), batch["next_obs"].view(np.uint8)

        return sample

    def prioritized(self, case: Case) -> rlox.PrioritizedReplayBuffer:
        buffer = rlox.PrioritizedReplayBuffer(case.capacity, *_sizes(case), ALPHA, BETA)
        rows = itertools.cycle(single_rows(case.schema))
        for priority in priorities_of(case.capacity).tolist():
            buffer.push(*_values(next(rows)), priority)
        return buffer

    def adding_by_priority(self, buffer: Any, case: Case) -> Callable[[Any], None]:
        return lambda pair: buffer.push(*_values(pair[0]), pair[1])

    def updating(self, buffer: Any, case: Case, priorities: np.ndarray) -> Callable[[], None]:
        def both() -> None:
            batch = buffer.sample(case.batch, next(self._seeds))
            buffer.update_priorities(batch["indices"], priorities.astype(np.float64))

        return both

    def sequences(self, case: Case) -> Work:
        buffer = rlox.SequenceReplayBuffer(case.capacity, *_sizes(case))
        for rows in chunks_of(case.schema, case.capacity):
            actions = _floats(rows["action"])
            others = rows["reward"].tolist(), rows["terminated"].tolist()
            for observation, action, reward, ended in zip(rows["observation"], actions, *others):
                buffer.push(observation, observation, action, reward, ended, False)
        return Work(lambda: buffer.sample_sequences(case.batch, SEQUENCE, next(self._seeds)))

    def hindsight(self, case: Case) -> Work:
        parts = ("observation", "achieved_goal", "desired_goal")
        a, b, c = (case.schema[name][0][0] for name in parts)
        places = (b, a, a + b)  # length and beginnings of the achieved and of the desired goal
        actions = case.schema["action"][0][0]
        buffer = rlox.HERBuffer(case.capacity, a + b + c, actions, *places, "future", GOALS, REACHED)
        for rows in chunks_of(case.schema, case.capacity):
            now = np.concatenate([rows[name] for name in parts], 1)
            then = np.concatenate([rows["next_observation"], rows["next_achieved_goal"], rows["desired_goal"]], 1)
            for i, ended in enumerate(rows["terminated"].tolist()):
                buffer.push(now[i], then[i], rows["action"][i], float(rows["reward"][i]), ended, False)
        return Work(lambda: buffer.sample(case.batch, GOALS / (GOALS + 1), next(self._seeds)))


if __name__ == "__main__":
    answer(Rlox())
