"""The plainest buffer: NumPy arrays and an index, without input checks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..answering import Peer, Work, answer
from ..cases import EPISODE, GAMMA, GOALS, N_STEP, REACHED, SEQUENCE, STACK, Case, Schema, chunks_of


class Ring:
    """A ring of rows."""

    def __init__(self, schema: Schema, capacity: int) -> None:
        self.columns = {name: np.zeros((capacity, *shape), dtype) for name, (shape, dtype) in schema.items()}
        self.capacity = capacity
        self.next = 0
        self.size = 0
        self.rng = np.random.default_rng(0)

    def insert(self, row: Mapping[str, Any]) -> None:
        for name, column in self.columns.items():
            column[self.next] = row[name]
        self._advance(1)

    def insert_batch(self, rows: Mapping[str, np.ndarray]) -> None:
        n = len(next(iter(rows.values())))
        first = min(n, self.capacity - self.next)
        for name, column in self.columns.items():
            column[self.next : self.next + first] = rows[name][:first]
            column[: n - first] = rows[name][first:]
        self._advance(n)

    def _advance(self, n: int) -> None:
        self.next = (self.next + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, n: int) -> dict[str, np.ndarray]:
        """Return copies of `n` rows, each row equally likely."""
        slots = self.rng.integers(self.size, size=n)
        return {name: column[slots] for name, column in self.columns.items()}

    def sample_stacks(self, n: int) -> dict[str, np.ndarray]:
        """Return `n` rows whose observation and next observation are stacks of frames, assembled from single ones."""
        # A row whose stack is stored, and its next frame.
        slots = (self.next + STACK - 1 + self.rng.integers(self.size - STACK, size=n)) % self.capacity
        frames = self.columns["observation"]
        ends = self.columns["terminated"]
        steps = np.arange(1 - STACK, 1)
        ended = ends[(slots[:, None] + steps[:-1]) % self.capacity]
        # Frames before the episode's first repeat the first.
        first = np.where(ended, steps[1:], 1 - STACK).max(1, keepdims=True)
        back = (slots[:, None] + np.maximum(steps, first)) % self.capacity
        following = np.concatenate([back[:, 1:], (slots[:, None] + 1) % self.capacity], 1)
        batch = {name: column[slots] for name, column in self.columns.items() if name != "observation"}
        return {"observation": frames[back], "next_observation": frames[following], **batch}

    def sample_sequences(self, n: int, steps: int) -> dict[str, np.ndarray]:
        """Return `n` runs of consecutive steps; one that crosses the end of an episode is masked after it."""
        start = (self.next + self.rng.integers(self.size - steps + 1, size=n)) % self.capacity
        slots = (start[:, None] + np.arange(steps)) % self.capacity
        batch = {name: column[slots] for name, column in self.columns.items()}
        ended = np.cumsum(batch["terminated"], 1) - batch["terminated"]
        return {"mask": ended == 0, **batch}

    def sample_n_step(self, n: int) -> dict[str, np.ndarray]:
        """Return `n` rows with the discounted return of the next steps and the observation after them."""
        start = (self.next + self.rng.integers(self.size - N_STEP + 1, size=n)) % self.capacity
        slots = (start[:, None] + np.arange(N_STEP)) % self.capacity
        ended = self.columns["terminated"][slots]
        alive = np.cumsum(ended, 1) - ended == 0
        returns = (self.columns["reward"][slots] * alive * GAMMA ** np.arange(N_STEP)).sum(1, dtype=np.float32)
        last = slots[np.arange(n), alive.sum(1) - 1]
        first = {name: self.columns[name][start] for name in ("observation", "action")}
        then = {name: self.columns[name][last] for name in ("next_observation", "terminated")}
        return {**first, "reward": returns, **then}

    def sample_hindsight(self, n: int) -> dict[str, np.ndarray]:
        """Return `n` rows, most of them with a goal that is achieved later in the same episode."""
        back = self.rng.integers(self.size, size=n)  # from the newest row
        slots = (self.next - 1 - back) % self.capacity
        batch = {name: column[slots] for name, column in self.columns.items()}
        # All episodes have the same length, and the newest row is the last of one.
        later = (slots + self.rng.integers(back % EPISODE + 1)) % self.capacity
        other = (self.rng.random(n) < GOALS / (GOALS + 1))[:, None]
        goals = np.where(other, self.columns["next_achieved_goal"][later], batch["desired_goal"])
        distance = np.linalg.norm(batch["next_achieved_goal"] - goals, axis=-1)
        return {**batch, "desired_goal": goals, "reward": (distance < REACHED).astype(np.float32) - 1}


class NumPyRing(Peer):
    """Measures `Ring`."""

    notes: Mapping[str, str] = {"hindsight": "knows that all episodes have the same length"}
    sample_arrays = Peer.sample

    def filled(self, case: Case) -> Ring:
        ring = Ring(case.schema, case.capacity)
        for rows in chunks_of(case.schema, case.capacity):
            ring.insert_batch(rows)
        return ring

    frames = with_returns = filled

    def adding(self, ring: Ring, case: Case) -> Callable[[Any], None]:
        return ring.insert

    def extending(self, ring: Ring, rows: Mapping[str, np.ndarray]) -> Callable[[], None]:
        return lambda: ring.insert_batch(rows)

    def drawing(self, ring: Ring, case: Case) -> Callable[[], Any]:
        method = {"frames_sample": ring.sample_stacks, "n_step": ring.sample_n_step, "hindsight": ring.sample_hindsight}
        draw = method.get(case.work, ring.sample)
        return lambda: draw(case.batch)

    hindsight = Peer.sample

    def bytes_of(self, ring: Ring) -> int:
        return sum(column.nbytes for column in ring.columns.values())

    def sequences(self, case: Case) -> Work:
        ring = self.filled(case)
        return Work(lambda: ring.sample_sequences(case.batch, SEQUENCE))

    def saving(self, ring: Ring, path: Path) -> Callable[[], None]:
        return lambda: np.savez(path.with_suffix(".npz"), **ring.columns)

    def loading(self, ring: Ring, path: Path) -> Callable[[], None]:
        def load() -> None:
            with np.load(path.with_suffix(".npz")) as file:
                for name, column in ring.columns.items():
                    column[...] = file[name]

        return load


if __name__ == "__main__":
    answer(NumPyRing())
