"""cpprb: buffers of NumPy arrays with segment trees in C++."""

import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import cpprb
import numpy as np

from ..answering import Peer, Work, answer
from ..cases import (
    ALPHA,
    BETA,
    EPISODE,
    GAMMA,
    N_STEP,
    STACK,
    Case,
    Schema,
    batch_of,
    chunks_of,
    in_turn,
    priorities_of,
    single_rows,
)

SCALARS = "a column of scalars comes out as (batch, 1)"


def _env(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return columns in the library's form; the shape of a scalar is its default, 1."""
    return {name: {"shape": shape or 1, "dtype": np.dtype(dtype)} for name, (shape, dtype) in schema.items()}


def _filled(buffer: cpprb.ReplayBuffer, case: Case) -> cpprb.ReplayBuffer:
    for rows in chunks_of(case.schema, case.capacity):
        buffer.add(**rows)
    return buffer


def _episodes(case: Case) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows that fill a case, an episode at a time."""
    for rows in chunks_of(case.schema, case.capacity):
        for start in range(0, len(rows["terminated"]), EPISODE):
            yield {name: column[start : start + EPISODE] for name, column in rows.items()}


def _with_done(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose end has the name that the n-step buffer requires."""
    return {("done" if name == "terminated" else name): value for name, value in row.items()}


def _with_stacks(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return an episode of single frames as an environment with stacks has it; the first frame follows the last."""
    frames = rows["observation"]
    frames = np.concatenate([frames[:1]] * (STACK - 1) + [frames, frames[:1]])
    stacks = np.lib.stride_tricks.sliding_window_view(frames, STACK, axis=0)
    return {**rows, "observation": stacks[:-1], "next_observation": stacks[1:]}


class Cpprb(Peer):
    """Measures cpprb."""

    packages = ("cpprb",)
    lacks = (("dqn", "it has buffers and no agents"),)

    def insert(self, case: Case) -> Work:
        """One row or a batch."""
        buffer = _filled(cpprb.ReplayBuffer(case.capacity, _env(case.schema)), case)
        if case.batch == 1:
            return Work(in_turn(lambda row: buffer.add(**row), case.single_rows()))
        rows = batch_of(case.schema, case.batch)
        return Work(lambda: buffer.add(**rows))

    def sample(self, case: Case) -> Work:
        """A batch."""
        buffer = _filled(cpprb.ReplayBuffer(case.capacity, _env(case.schema)), case)
        return Work(lambda: buffer.sample(case.batch), note=SCALARS)

    sample_arrays = sample

    def _prioritized(self, case: Case) -> cpprb.PrioritizedReplayBuffer:
        buffer = cpprb.PrioritizedReplayBuffer(case.capacity, _env(case.schema), alpha=ALPHA)
        start = 0
        priorities = priorities_of(case.capacity)
        for rows in chunks_of(case.schema, case.capacity):
            n = len(rows["terminated"])
            buffer.add(**rows, priorities=priorities[start : start + n])
            start += n
        return buffer

    def prioritized_insert(self, case: Case) -> Work:
        """One row and its priority."""
        buffer = self._prioritized(case)
        rows = single_rows(case.schema)
        priorities = [float(p) for p in priorities_of(len(rows))]
        items = [{**row, "priorities": p} for row, p in zip(rows, priorities)]
        return Work(in_turn(lambda item: buffer.add(**item), items))

    def prioritized_sample(self, case: Case) -> Work:
        """A batch with weights and indexes."""
        buffer = self._prioritized(case)
        return Work(lambda: buffer.sample(case.batch, BETA), note=SCALARS)

    def prioritized_update(self, case: Case) -> Work:
        """A batch and its new priorities."""
        buffer = self._prioritized(case)
        priorities = priorities_of(case.batch)
        return Work(lambda: buffer.update_priorities(buffer.sample(case.batch, BETA)["indexes"], priorities))

    def _frames(self, case: Case) -> cpprb.ReplayBuffer:
        schema = {**case.schema, "observation": ((*case.schema["observation"][0], STACK), "uint8")}
        # "next_observation" comes with next_of and is not a column of its own.
        buffer = cpprb.ReplayBuffer(case.capacity, _env(schema), next_of="observation", stack_compress="observation")
        for rows in _episodes(case):
            buffer.add(**_with_stacks(rows))
            buffer.on_episode_end()
        return buffer

    def frames_bytes(self, case: Case) -> Work:
        """Bytes of the buffer per row: its arrays, and the stacks that it copies at the ends of episodes."""
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        buffer = self._frames(case)
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        stored = buffer.get_stored_size()
        return Work(
            lambda: held / stored, note="next_of and stack_compress; with the stacks it copies at episodes' ends"
        )

    def frames_sample(self, case: Case) -> Work:
        """A batch with stacks."""
        buffer = self._frames(case)
        return Work(lambda: buffer.sample(case.batch), note="next_of and stack_compress")

    def n_step(self, case: Case) -> Work:
        """An insertion, which sums the rewards, and a batch."""
        schema = {("done" if name == "terminated" else name): column for name, column in case.schema.items()}
        n_step = {"size": N_STEP, "gamma": GAMMA, "rew": "reward", "next": "next_observation"}
        buffer = cpprb.ReplayBuffer(case.capacity, _env(schema), Nstep=n_step)
        for rows in _episodes(case):
            buffer.add(**_with_done(rows))
            buffer.on_episode_end()

        def insert(row: Mapping[str, Any]) -> None:
            buffer.add(**row)
            if row["done"]:
                buffer.on_episode_end()

        one = in_turn(insert, [_with_done(row) for row in single_rows(case.schema)])
        return Work(lambda: (one(), buffer.sample(case.batch)), note="returns are summed at insertion")

    def save(self, case: Case) -> Work:
        """Save to its own file of all transitions."""
        buffer = _filled(cpprb.ReplayBuffer(case.capacity, _env(case.schema)), case)
        path = self.folder / "transitions.npz"
        return Work(lambda: buffer.save_transitions(path), note="its file is always compressed")

    def load(self, case: Case) -> Work:
        """Load the file into the buffer."""
        buffer = _filled(cpprb.ReplayBuffer(case.capacity, _env(case.schema)), case)
        path = self.folder / "transitions.npz"
        buffer.save_transitions(path)
        return Work(lambda: buffer.load_transitions(path), note="its file is always compressed")


if __name__ == "__main__":
    answer(Cpprb())
