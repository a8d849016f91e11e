"""tianshou: its `ReplayBuffer`, which holds NumPy arrays in a `Batch`."""

from typing import Any

import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

from ..answering import Peer, Work, answer
from ..cases import (
    ALPHA,
    BETA,
    GAMMA,
    N_STEP,
    SEQUENCE,
    STACK,
    Case,
    Schema,
    batch_of,
    chunks_of,
    in_turn,
    priorities_of,
    single_rows,
)

#: The library's names of columns.
KEYS = {
    "observation": "obs",
    "action": "act",
    "reward": "rew",
    "next_observation": "obs_next",
    "terminated": "terminated",
}


def one_row(row: dict[str, Any]) -> Batch:
    """Return a row in the form that `add` takes."""
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

    def _filled(self, case: Case) -> ReplayBuffer:
        chunks = list(chunks_of(case.schema, case.capacity))
        return buffer_of({name: np.concatenate([rows[name] for rows in chunks]) for name in case.schema})

    def insert(self, case: Case) -> Work:
        """`add` of one row, `update` with a buffer of many."""
        buffer = self._filled(case)
        if case.batch == 1:
            return Work(in_turn(lambda row: buffer.add(one_row(row)), case.single_rows()))
        rows = batch_of(case.schema, case.batch)
        return Work(
            lambda: buffer.update(buffer_of(rows)), note="many rows go in from another buffer, which is made of them"
        )

    def sample(self, case: Case) -> Work:
        """A batch."""
        buffer = self._filled(case)
        return Work(lambda: buffer.sample(case.batch))

    sample_arrays = sample

    def _prioritized(self, case: Case) -> PrioritizedReplayBuffer:
        buffer = PrioritizedReplayBuffer(case.capacity, ALPHA, BETA)
        buffer.update(self._filled(case))
        buffer.update_weight(np.arange(case.capacity), priorities_of(case.capacity))
        return buffer

    def prioritized_insert(self, case: Case) -> Work:
        """A row, then its priority."""
        buffer = self._prioritized(case)
        rows = single_rows(case.schema)
        priorities = np.split(priorities_of(len(rows)), len(rows))

        def insert(item: tuple[dict[str, Any], np.ndarray]) -> None:
            slot = buffer.add(one_row(item[0]))[0]
            buffer.update_weight(slot, item[1])

        return Work(in_turn(insert, list(zip(rows, priorities, strict=True))))

    def prioritized_sample(self, case: Case) -> Work:
        """A batch with weights and slots."""
        buffer = self._prioritized(case)
        return Work(lambda: buffer.sample(case.batch))

    def prioritized_update(self, case: Case) -> Work:
        """A batch, then new priorities for it."""
        buffer = self._prioritized(case)
        priorities = priorities_of(case.batch)
        return Work(lambda: buffer.update_weight(buffer.sample(case.batch)[1], priorities))

    def _frames(self, case: Case) -> ReplayBuffer:
        buffer = ReplayBuffer(case.capacity, stack_num=STACK, ignore_obs_next=True)
        one_by_one(buffer, case.schema)
        return buffer

    def frames_bytes(self, case: Case) -> Work:
        """Bytes of its arrays by row."""
        buffer = self._frames(case)
        keys = ("obs", "act", "rew", "terminated", "truncated", "done")
        return Work(lambda: sum(getattr(buffer, key).nbytes for key in keys) / case.capacity)

    def frames_sample(self, case: Case) -> Work:
        """A batch with stacks."""
        buffer = self._frames(case)
        return Work(lambda: buffer.sample(case.batch))

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

        return Work(sample, note="put together from its `next`, as its own returns are")

    def n_step(self, case: Case) -> Work:
        """An insertion and a batch."""
        buffer = self._filled(case)
        insert = in_turn(lambda row: buffer.add(one_row(row)), single_rows(case.schema))

        def sample() -> Batch:
            batch, slots = buffer.sample(case.batch)

            def after(buffer: ReplayBuffer, slots: np.ndarray) -> torch.Tensor:
                batch.obs_next = buffer[slots].obs_next
                return torch.zeros(len(slots), 1)

            return Algorithm.compute_nstep_return(batch, buffer, slots, after, GAMMA, N_STEP)

        return Work(lambda: (insert(), sample()), note="returns are made when they are sampled")

    def save(self, case: Case) -> Work:
        """An HDF5 file."""
        buffer = self._filled(case)
        path = str(self.folder / "buffer.hdf5")
        return Work(lambda: buffer.save_hdf5(path), note="over the file before")

    def load(self, case: Case) -> Work:
        """Load the file as a new buffer."""
        path = str(self.folder / "buffer.hdf5")
        self._filled(case).save_hdf5(path)
        return Work(lambda: ReplayBuffer.load_hdf5(path))


if __name__ == "__main__":
    answer(Tianshou())
