"""tianshou: its `ReplayBuffer`, which holds NumPy arrays in a `Batch`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

from ..answering import Peer, Work, answer
from ..cases import ALPHA, BETA, GAMMA, N_STEP, SEQUENCE, STACK, Case, Schema, chunks_of, priorities_of

#: The library's names of columns.
KEYS = {
    "observation": "obs",
    "action": "act",
    "reward": "rew",
    "next_observation": "obs_next",
    "terminated": "terminated",
}


def one_row(row: dict[str, Any]) -> Batch:
    return Batch(truncated=False, **{KEYS[name]: value for name, value in row.items()})


def buffer_of(rows: dict[str, np.ndarray]) -> ReplayBuffer:
    """Return rows as a buffer of their own, without a copy; buffers take many rows at once from another buffer."""
    never = np.zeros(len(rows["reward"]), bool)
    columns = {KEYS[name]: column for name, column in rows.items()}
    ends = columns.setdefault("terminated", never)
    return ReplayBuffer.from_data(truncated=never, done=ends, **columns)


def one_by_one(buffer: ReplayBuffer, schema: Schema) -> None:
    """Fill a buffer without next observations, which cannot be made of whole columns."""
    for rows in chunks_of(schema, buffer.maxsize):
        columns = {name: list(column) for name, column in rows.items()}
        for values in zip(*columns.values(), strict=True):
            buffer.add(one_row(dict(zip(columns, values, strict=True))))


class Tianshou(Peer):
    """Measures tianshou."""

    packages = ("tianshou", "torch")
    notes: Mapping[str, str] = {
        **dict.fromkeys(("insert_64", "insert_million"), "many rows go in from another buffer, which is made of them"),
        "sequences": "put together from its `next`, as its own returns are",
        "n_step": "returns are made when they are sampled",
        "save": "over the file before",
    }
    sample_arrays = Peer.sample

    def filled(self, case: Case) -> ReplayBuffer:
        chunks = list(chunks_of(case.schema, case.capacity))
        return buffer_of({name: np.concatenate([rows[name] for rows in chunks]) for name in case.schema})

    with_returns = filled

    def adding(self, buffer: ReplayBuffer, case: Case) -> Callable[[Any], Any]:
        return lambda row: buffer.add(one_row(row))

    def extending(self, buffer: ReplayBuffer, rows: dict[str, np.ndarray]) -> Callable[[], Any]:
        return lambda: buffer.update(buffer_of(rows))

    def drawing(self, buffer: ReplayBuffer, case: Case) -> Callable[[], Any]:
        if case.work != "n_step":
            return lambda: buffer.sample(case.batch)

        def sample() -> Batch:
            batch, slots = buffer.sample(case.batch)

            def after(buffer: ReplayBuffer, slots: np.ndarray) -> torch.Tensor:
                batch.obs_next = buffer[slots].obs_next
                return torch.zeros(len(slots), 1)

            return Algorithm.compute_nstep_return(batch, buffer, slots, after, GAMMA, N_STEP)

        return sample

    def prioritized(self, case: Case) -> PrioritizedReplayBuffer:
        buffer = PrioritizedReplayBuffer(case.capacity, ALPHA, BETA)
        buffer.update(self.filled(case))
        buffer.update_weight(np.arange(case.capacity), priorities_of(case.capacity))
        return buffer

    def adding_by_priority(self, buffer: PrioritizedReplayBuffer, case: Case) -> Callable[[Any], None]:
        def insert(pair: tuple[dict[str, Any], float]) -> None:
            slot = buffer.add(one_row(pair[0]))[0]
            buffer.update_weight(slot, np.array([pair[1]], np.float32))

        return insert

    def updating(self, buffer: PrioritizedReplayBuffer, case: Case, priorities: np.ndarray) -> Callable[[], Any]:
        return lambda: buffer.update_weight(buffer.sample(case.batch)[1], priorities)

    def frames(self, case: Case) -> ReplayBuffer:
        buffer = ReplayBuffer(case.capacity, stack_num=STACK, ignore_obs_next=True)
        one_by_one(buffer, case.schema)
        return buffer

    def bytes_of(self, buffer: ReplayBuffer) -> int:
        return sum(getattr(buffer, key).nbytes for key in ("obs", "act", "rew", "terminated", "truncated", "done"))

    def sequences(self, case: Case) -> Work:
        """A batch of sequences; one that ends early repeats its last step behind a mask."""
        buffer = ReplayBuffer(case.capacity, ignore_obs_next=True)
        one_by_one(buffer, case.schema)
        keys = [KEYS[name] for name in case.schema]

        def sample() -> tuple[dict[str, np.ndarray], np.ndarray]:
            steps = [buffer.sample_indices(case.batch)]
            for _ in range(SEQUENCE - 1):
                steps.append(buffer.next(steps[-1]))
            slots = np.stack(steps, 1)
            mask = np.ones(slots.shape, bool)
            np.not_equal(slots[:, 1:], slots[:, :-1], out=mask[:, 1:])
            return {key: buffer.get(slots, key) for key in keys}, mask

        return Work(sample)

    def saving(self, buffer: ReplayBuffer, path: Path) -> Callable[[], Any]:
        return lambda: buffer.save_hdf5(str(path))

    def loading(self, buffer: ReplayBuffer, path: Path) -> Callable[[], Any]:
        return lambda: ReplayBuffer.load_hdf5(str(path))


if __name__ == "__main__":
    answer(Tianshou())
