"""cpprb: buffers of NumPy arrays with segment trees in C++."""

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cpprb
import numpy as np

from ..answering import Peer, Work, answer
from ..cases import ALPHA, BETA, EPISODE, GAMMA, N_STEP, STACK, Case, Schema, chunks_of, priorities_of

SCALARS = "a column of scalars comes out as (batch, 1)"
COMPRESSED = "its file is always compressed"


def _named(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns in which the end has the name that the n-step buffer requires."""
    return {("done" if name == "terminated" else name): column for name, column in columns.items()}


def _env(schema: Schema) -> dict[str, dict[str, Any]]:
    """Return columns in the library's form; the shape of a scalar is its default, 1."""
    return {name: {"shape": shape or 1, "dtype": np.dtype(dtype)} for name, (shape, dtype) in _named(schema).items()}


def _episodes(case: Case) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows that fill a case, an episode at a time."""
    for rows in chunks_of(case.schema, case.capacity):
        for start in range(0, len(rows["terminated"]), EPISODE):
            yield {name: column[start : start + EPISODE] for name, column in _named(rows).items()}


def _with_stacks(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return an episode of single frames as an environment with stacks has it; the first frame follows the last."""
    frames = rows["observation"]
    frames = np.concatenate([frames[:1]] * (STACK - 1) + [frames, frames[:1]])
    stacks = np.lib.stride_tricks.sliding_window_view(frames, STACK, axis=0)
    return {**rows, "observation": stacks[:-1], "next_observation": stacks[1:]}


class Cpprb(Peer):
    """Measures cpprb."""

    packages = ("cpprb",)
    lacks: Mapping[str, str] = {"dqn": "it has buffers and no agents"}
    notes: Mapping[str, str] = {
        **dict.fromkeys(("sample", "sample_arrays", "prioritized_sample"), SCALARS),
        **dict.fromkeys(("save", "load"), COMPRESSED),
        "frames_bytes": "next_of and stack_compress; with the stacks it copies at episodes' ends",
        "frames_sample": "next_of and stack_compress",
        "n_step": "returns are summed at insertion",
    }
    sample_arrays = Peer.sample

    def filled(self, case: Case) -> cpprb.ReplayBuffer:
        buffer = cpprb.ReplayBuffer(case.capacity, _env(case.schema))
        for rows in chunks_of(case.schema, case.capacity):
            buffer.add(**_named(rows))
        return buffer

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        return _named(row)

    def adding(self, buffer: Any, case: Case) -> Callable[[Any], Any]:
        if case.work != "n_step":
            return lambda row: buffer.add(**row)

        def insert(row: Mapping[str, Any]) -> None:
            buffer.add(**row)
            if row["done"]:
                buffer.on_episode_end()

        return insert

    def extending(self, buffer: Any, rows: Mapping[str, np.ndarray]) -> Callable[[], Any]:
        rows = _named(rows)
        return lambda: buffer.add(**rows)

    def drawing(self, buffer: Any, case: Case) -> Callable[[], Any]:
        more = (BETA,) if case.work.startswith("prioritized") else ()
        return lambda: buffer.sample(case.batch, *more)

    def prioritized(self, case: Case) -> cpprb.PrioritizedReplayBuffer:
        buffer = cpprb.PrioritizedReplayBuffer(case.capacity, _env(case.schema), alpha=ALPHA)
        start, priorities = 0, priorities_of(case.capacity)
        for rows in chunks_of(case.schema, case.capacity):
            n = len(rows["terminated"])
            buffer.add(**_named(rows), priorities=priorities[start : start + n])
            start += n
        return buffer

    def adding_by_priority(self, buffer: Any, case: Case) -> Callable[[Any], Any]:
        return lambda pair: buffer.add(**pair[0], priorities=pair[1])

    def updating(self, buffer: Any, case: Case, priorities: np.ndarray) -> Callable[[], Any]:
        return lambda: buffer.update_priorities(buffer.sample(case.batch, BETA)["indexes"], priorities)

    def frames(self, case: Case) -> cpprb.ReplayBuffer:
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
        buffer = self.frames(case)
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return Work(lambda: held / buffer.get_stored_size())

    def with_returns(self, case: Case) -> cpprb.ReplayBuffer:
        n_step = {"size": N_STEP, "gamma": GAMMA, "rew": "reward", "next": "next_observation"}
        buffer = cpprb.ReplayBuffer(case.capacity, _env(case.schema), Nstep=n_step)
        for rows in _episodes(case):
            buffer.add(**rows)
            buffer.on_episode_end()
        return buffer

    def saving(self, buffer: Any, path: Path) -> Callable[[], Any]:
        return lambda: buffer.save_transitions(path.with_suffix(".npz"))

    def loading(self, buffer: Any, path: Path) -> Callable[[], Any]:
        return lambda: buffer.load_transitions(path.with_suffix(".npz"))


if __name__ == "__main__":
    answer(Cpprb())
