"""torchrl: its collector of several processes, which gives batches as they are ready, into a buffer of this process."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torchrl.collectors import MultiAsyncCollector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymEnv, SerialEnv
from torchrl.modules import MLP, QValueActor

from .collect import ENVIRONMENT, ENVS, HIDDEN, STEPS
from .team import CAPACITY, Held, serve


def environment() -> GymEnv:
    """Make an environment."""
    return GymEnv(ENVIRONMENT, categorical_action_encoding=True)


def environments() -> SerialEnv:
    """Make the environments of one actor."""
    return SerialEnv(ENVS, environment)


class Collectors:
    """Collectors, one for each number of actors, and the buffer of their rows."""

    def __init__(self) -> None:
        self.buffer = ReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=64)
        self._running: dict[int, tuple[Any, Iterator[Any]]] = {}

    def _begin(self, actors: int) -> Iterator[Any]:
        self.close()
        network = MLP(in_features=4, out_features=2, num_cells=[HIDDEN, HIDDEN], activation_class=torch.nn.ReLU)
        policy = QValueActor(network, in_keys=["observation"], spec=environment().action_spec)
        collector = MultiAsyncCollector(
            [environments] * actors, policy, frames_per_batch=STEPS * ENVS, total_frames=-1, num_threads=1
        )
        self._running[actors] = collector, iter(collector)
        return self._running[actors][1]

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let so many actors collect at the same time; return their rows together, and the seconds."""
        batches = self._running[writers][1] if writers in self._running else self._begin(writers)
        self.buffer.extend(next(batches).reshape(-1))  # the actors have begun
        begin, rows = time.monotonic(), 0
        while (taken := time.monotonic() - begin) < seconds:
            batch = next(batches).reshape(-1)
            self.buffer.extend(batch)
            rows += len(batch)
        return [(rows, taken)]

    def close(self) -> None:
        """End all."""
        for collector, _ in self._running.values():
            collector.shutdown()
        self._running.clear()


@contextlib.contextmanager
def hold() -> Iterator[Held]:
    """Make the buffer."""
    torch.set_num_threads(1)
    collectors = Collectors()
    yield collectors, lambda: len(collectors.buffer)


if __name__ == "__main__":
    serve(["torchrl", "tensordict", "torch", "gymnasium", "numpy"], hold)
