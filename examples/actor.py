"""An actor of ``actors.py``: steps environments and inserts their transitions, without MindSpore.

    python examples/actor.py FOLDER NUMBER          # started by actors.py

It evaluates the network with NumPy, and reads newer weights from the folder of the rows.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from mindspore_replay import Collector, SharedWeights, attach, columns_of, host

#: Files in the folder of the actors.
ROWS, SETTINGS = "rows", "settings.json"


class Actor:
    """Environments, a policy in NumPy, and the rows of the last steps. A subclass acts, and makes the learner's rows.

    Args:
        config (dict): Configuration of the run.
        number (int): Number of the actor.
        seed (Sequence[int]): Seed of its environments and random actions.
    """

    #: Columns beside those of the environments.
    further: Mapping[str, tuple[tuple[int, ...], str]] | None = None

    def __init__(self, config: dict[str, Any], number: int, seed: list[int]) -> None:
        plan = config["actors"]
        self.gamma, self.steps = config["gamma"], plan["gather"]
        if "epsilon" in plan:
            self.epsilon = plan["epsilon"] ** (1 + plan["alpha"] * number / max(plan["number"] - 1, 1))
        self.scale = np.array(config["learner"]["observation_scale"], np.float32)
        self.network: list[np.ndarray] = []
        self.version: int | None = None
        self.rng = np.random.default_rng([*seed, number])
        mode = gym.vector.AutoresetMode.SAME_STEP
        envs = gym.make_vec(
            config["environment"], config["num_envs"], vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
        )
        columns = columns_of(envs, further=self.further)
        self.rows = host.ReplayBuffer(sample_size=1, capacity=self.steps * envs.num_envs, **columns)
        self.collector = Collector(envs, self.rows, self.act, seed=int(self.rng.integers(1_000_000)))

    def act(self, observation: np.ndarray) -> Any:
        """Return actions, and the further columns."""
        raise NotImplementedError

    def insert(self, buffer: Any, rows: dict[str, np.ndarray]) -> None:
        """Insert what is learned from the last ``T`` steps of ``E`` environments; `rows` are ``[T * E, ...]``."""
        raise NotImplementedError

    def gather(self, buffer: Any) -> list[float]:
        """Step the environments and insert their rows; return the returns of the episodes that ended."""
        episodes = self.collector.collect(steps=self.steps)
        self.insert(buffer, self.rows.rows(as_dict=True))
        return [episode.total_reward for episode in episodes]


class Explorer(Actor):
    """An `Actor` that is epsilon-greedy, the first one most; its rows are transitions with first priorities."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        values = self.values(observation)
        guesses = self.rng.integers(values.shape[1], size=len(values))
        return np.where(self.rng.random(len(values)) < self.epsilon, guesses, values.argmax(1))

    def insert(self, buffer: Any, rows: dict[str, np.ndarray]) -> None:
        discount = np.where(rows.pop("terminated"), 0, self.gamma)
        value = self.values(rows["observation"])[np.arange(len(discount)), rows["action"]]
        wanted = rows["reward"] + discount * self.values(rows["next_observation"]).max(1)
        buffer.insert({**rows, "discount": discount}, priority=np.abs(wanted - value))

    def values(self, observation: np.ndarray) -> np.ndarray:
        """Evaluate the network of a `DuelingHead`. Shape ``[B, actions]``."""
        x = observation * self.scale
        *hidden, value_weight, value_bias, advantage_weight, advantage_bias = self.network
        for weight, bias in zip(hidden[::2], hidden[1::2]):
            x = np.maximum(x @ weight.T + bias, 0)
        advantage = x @ advantage_weight.T + advantage_bias
        return x @ value_weight.T + value_bias + advantage - advantage.mean(1, keepdims=True)


def main(actor_class: type[Actor]) -> None:
    """Act as the command line says, until the learner closes the buffer. Prints the return of each episode."""
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    settings = json.loads((folder / SETTINGS).read_text())
    actor = actor_class(settings["config"], number, [settings["seed"]])
    buffer = attach(folder / ROWS)
    weights = SharedWeights(buffer)
    assert "mindspore" not in sys.modules
    newest = weights.read(timeout=60)
    try:
        while True:
            if newest is not None:
                actor.network, actor.version = list(newest.values()), weights.version
            for value in actor.gather(buffer):
                print(value, flush=True)
            newest = weights.read()
    except RuntimeError as error:
        if not buffer.closed:  # the learner died
            sys.exit(str(error))


if __name__ == "__main__":
    main(Explorer)
