"""rlox: buffers in Rust, which hold float32 and return NumPy arrays."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import rlox

from ..answering import Peer, Work, answer
from ..cases import (
    ALPHA,
    BETA,
    GOALS,
    REACHED,
    SEQUENCE,
    Case,
    batch_of,
    chunks_of,
    in_turn,
    priorities_of,
    single_rows,
)

FLOAT32 = "NumPy arrays; actions and rewards are float32"
#: The part of the rows of files that it keeps in memory.
HOT = 1 / 10


def _floats(column: np.ndarray) -> np.ndarray:
    """Return rows as float32 ``[n, k]``; of bytes four are one float32, since it stores nothing else."""
    flat = np.ascontiguousarray(column).reshape(len(column), -1)
    return flat.view(np.float32) if flat.dtype == np.uint8 else flat.astype(np.float32, copy=False)


def _sizes(case: Case) -> tuple[int, int]:
    """Return the numbers of floats of an observation and an action."""
    rows = batch_of(case.schema, 1)
    return _floats(rows["observation"]).shape[1], _floats(rows["action"]).shape[1]


def _ended(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the ends of episodes as it takes them, uint8 ``[n]``."""
    n = len(rows["action"])
    return rows["terminated"].view(np.uint8) if "terminated" in rows else np.zeros(n, np.uint8)


def _batch(rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the arguments of `push_batch`."""
    pairs = [_floats(rows[name]).reshape(-1) for name in ("observation", "next_observation", "action")]
    ended = _ended(rows)
    return *pairs, rows["reward"].reshape(-1), ended, np.zeros_like(ended)


def _scalar_as_array(action: Any) -> np.ndarray:
    """Return an action as an environment with discrete ones has it in the only form that it takes."""
    return np.array([action], np.float32)


class Rlox(Peer):
    """Measures rlox."""

    packages = ("rlox",)
    lacks = (("n_step", "no n-step returns"),)

    def __init__(self) -> None:
        super().__init__()
        self._seeds = itertools.count()

    def _filled(self, case: Case) -> rlox.ReplayBuffer:
        buffer = rlox.ReplayBuffer(case.capacity, *_sizes(case))
        for rows in chunks_of(case.schema, case.capacity):
            buffer.push_batch(*_batch(rows))
        return buffer

    def _insertion(self, buffer: Any, case: Case) -> Work:
        if case.batch == 1:

            def push(row: dict[str, Any]) -> None:
                action = _scalar_as_array(row["action"])
                buffer.push(
                    row["observation"], action, row["reward"], row["terminated"], False, row["next_observation"]
                )

            return Work(in_turn(push, case.single_rows()), note=FLOAT32)
        rows = batch_of(case.schema, case.batch)
        return Work(lambda: buffer.push_batch(*_batch(rows)), note=FLOAT32)

    def insert(self, case: Case) -> Work:
        """One row or a batch."""
        return self._insertion(self._filled(case), case)

    def _sampling(self, buffer: Any, case: Case) -> Work:
        if case.schema["observation"][1] != "uint8":
            return Work(lambda: buffer.sample(case.batch, next(self._seeds)), note=FLOAT32)

        def sample() -> tuple[Any, ...]:
            batch = buffer.sample(case.batch, next(self._seeds))
            return batch["obs"].view(np.uint8), batch["next_obs"].view(np.uint8)

        return Work(sample, note="four bytes of a frame are stored as one float32")

    def sample(self, case: Case) -> Work:
        """A batch."""
        return self._sampling(self._filled(case), case)

    sample_arrays = sample

    def _in_files(self, case: Case) -> rlox.MmapReplayBuffer:
        buffer = rlox.MmapReplayBuffer(
            int(case.capacity * HOT), case.capacity, *_sizes(case), str(self.folder / "rows")
        )
        for rows in chunks_of(case.schema, case.capacity):
            *columns, ended, truncated = _batch(rows)
            buffer.push_batch(*columns, ended.astype(np.float32), truncated.astype(np.float32))
        return buffer

    def files_insert(self, case: Case) -> Work:
        """One row of a buffer in files."""
        return self._insertion(self._in_files(case), case)

    def files_sample(self, case: Case) -> Work:
        """A batch from files."""
        work = self._sampling(self._in_files(case), case)
        work.note = f"{FLOAT32}; a tenth of the rows is in memory"
        return work

    def _filled_by_priority(self, case: Case) -> tuple[rlox.PrioritizedReplayBuffer, Callable[[Any], None]]:
        buffer = rlox.PrioritizedReplayBuffer(case.capacity, *_sizes(case), ALPHA, BETA)

        def push(row: Mapping[str, Any], priority: float) -> None:
            buffer.push(
                row["observation"],
                _scalar_as_array(row["action"]),
                row["reward"],
                row["terminated"],
                False,
                row["next_observation"],
                priority,
            )

        rows = single_rows(case.schema)
        for i, priority in enumerate(priorities_of(case.capacity).tolist()):
            push(rows[i % len(rows)], priority)
        return buffer, lambda pair: push(*pair)

    def prioritized_insert(self, case: Case) -> Work:
        """One row with its priority."""
        _, push = self._filled_by_priority(case)
        return Work(in_turn(push, list(zip(single_rows(case.schema), priorities_of(1000).tolist()))), note=FLOAT32)

    def prioritized_sample(self, case: Case) -> Work:
        """A batch with handles and weights."""
        buffer, _ = self._filled_by_priority(case)
        return Work(lambda: buffer.sample(case.batch, next(self._seeds)), note=FLOAT32)

    def prioritized_update(self, case: Case) -> Work:
        """Sample a batch and update its priorities."""
        buffer, _ = self._filled_by_priority(case)
        new = [priorities_of(case.batch, seed) for seed in range(100)]

        def both(priorities: np.ndarray) -> None:
            batch = buffer.sample(case.batch, next(self._seeds))
            buffer.update_priorities(batch["indices"], priorities.astype(np.float64))

        return Work(in_turn(both, new), note=FLOAT32)

    def sequences(self, case: Case) -> Work:
        """A batch of sequences."""
        buffer = rlox.SequenceReplayBuffer(case.capacity, *_sizes(case))
        for rows in chunks_of(case.schema, case.capacity):
            for observation, action, reward, ended in zip(
                rows["observation"], _floats(rows["action"]), rows["reward"].tolist(), rows["terminated"].tolist()
            ):
                buffer.push(observation, observation, action, reward, ended, False)
        return Work(
            lambda: buffer.sample_sequences(case.batch, SEQUENCE, next(self._seeds)),
            note=f"{FLOAT32}; no sequence crosses the end of an episode; with next observations",
        )

    def hindsight(self, case: Case) -> Work:
        """A batch with other goals."""
        parts = ("observation", "achieved_goal", "desired_goal")
        widths = [case.schema[name][0][0] for name in parts]
        buffer = rlox.HERBuffer(
            case.capacity,
            sum(widths),
            case.schema["action"][0][0],
            widths[1],
            widths[0],
            sum(widths[:2]),
            "future",
            GOALS,
            REACHED,
        )
        for rows in chunks_of(case.schema, case.capacity):
            now = np.concatenate([rows[name] for name in parts], 1)
            then = np.concatenate([rows["next_observation"], rows["next_achieved_goal"], rows["desired_goal"]], 1)
            for i, ended in enumerate(rows["terminated"].tolist()):
                buffer.push(now[i], then[i], rows["action"][i], float(rows["reward"][i]), ended, False)
        ratio = GOALS / (GOALS + 1)
        return Work(
            lambda: buffer.sample(case.batch, ratio, next(self._seeds)), note="goals are parts of the observation"
        )


if __name__ == "__main__":
    answer(Rlox())
