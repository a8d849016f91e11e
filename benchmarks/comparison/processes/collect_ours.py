"""This project: attached actors without MindSpore, each with a `Collector` and the network in NumPy."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from mindspore_replay import Collector, attach, columns_of

from .collect import ENVIRONMENT, ENVS, STEPS, layers
from .team import CAPACITY, Held, Team, Work, serve


def make(folder: str) -> Work:
    """Attach."""
    (*hidden, (last, bias)) = layers()

    def policy(observation: np.ndarray) -> np.ndarray:
        for weight, offset in hidden:
            observation = np.maximum(observation @ weight + offset, 0)
        return (observation @ last + bias).argmax(1)

    envs = gym.make_vec(ENVIRONMENT, ENVS, vectorization_mode="sync")
    collector = Collector(envs, attach(folder), policy, seed=os.getpid())

    def work() -> int:
        before = collector.steps
        collector.collect(steps=STEPS)
        return collector.steps - before

    return work


@contextlib.contextmanager
def hold() -> Iterator[Held]:
    """Make the buffer."""
    from mindspore_replay import ReplayBuffer  # here since actors import this module

    columns = columns_of(gym.make_vec(ENVIRONMENT, ENVS, vectorization_mode="sync"))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as parent:
        folder = f"{parent}/rows"
        buffer = ReplayBuffer(64, CAPACITY, **columns, storage=folder)
        yield Team(make, folder), lambda: int(buffer.size())


if __name__ == "__main__":
    serve(["mindspore", "gymnasium", "numpy"], hold)
