"""An actor of ``actors.py``: steps environments and inserts their transitions, without MindSpore.

    python examples/actor.py FOLDER NUMBER          # started by actors.py

It evaluates the network with NumPy, and reads newer weights from the folder of the rows.
"""

import json
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

from mindspore_replay import SharedWeights, attach

#: Files in the folder of the actors.
ROWS, SETTINGS = "rows", "settings.json"


def action_values(network: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Evaluate the network of a `DuelingHead` for observations that are already scaled. Shape ``[E, actions]``."""
    *hidden, value_weight, value_bias, advantage_weight, advantage_bias = network
    for weight, bias in zip(hidden[::2], hidden[1::2]):
        x = np.maximum(x @ weight.T + bias, 0)
    advantage = x @ advantage_weight.T + advantage_bias
    return x @ value_weight.T + value_bias + advantage - advantage.mean(1, keepdims=True)


class Actor:
    """Environments in a process of their own. A subclass chooses actions and makes rows of steps.

    Args:
        folder (Path): Folder with the rows, the weights and the settings.
        number (int): Number of the actor.
    """

    def __init__(self, folder: Path, number: int) -> None:
        settings = json.loads((folder / SETTINGS).read_text())
        self.config = config = settings["config"]
        self.scale = np.array(config["learner"]["observation_scale"], np.float32)
        self.gather = config["actors"]["gather"]
        self.buffer = attach(folder / ROWS)
        self.weights = SharedWeights(self.buffer)
        self.network = list(self.weights.read(timeout=60).values())
        self.rng = np.random.default_rng([settings["seed"], number])
        mode = gym.vector.AutoresetMode.SAME_STEP
        self.envs = gym.make_vec(
            config["environment"], config["num_envs"], vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
        )
        self.observation, _ = self.envs.reset(seed=int(self.rng.integers(1_000_000)))
        self.returns = np.zeros(config["num_envs"])

    def step(self) -> list[np.ndarray]:
        """Step each environment once; return columns ``[E, ...]``."""
        raise NotImplementedError

    def insert(self, steps: list[list[np.ndarray]]) -> None:
        """Insert consecutive steps."""
        raise NotImplementedError

    def run(self) -> None:
        """Act until the learner closes the buffer."""
        while True:
            weights = self.weights.read()
            if weights is not None:
                self.network = list(weights.values())
            self.insert([self.step() for _ in range(self.gather)])

    def play(self, actions: np.ndarray) -> list[np.ndarray]:
        """Take actions: observation, action, reward, next observation, whether it terminated, whether it ended.

        Print the return of each episode that ends.
        """
        observation, reward, terminated, truncated, infos = self.envs.step(actions)
        done = terminated | truncated
        next_observation = observation.copy()
        for i in np.flatnonzero(done):  # `observation` is already the first of the next episode
            next_observation[i] = infos["final_obs"][i]
        before, self.observation = self.observation, observation
        self.returns += reward
        for value in self.returns[done]:
            print(value, flush=True)
        self.returns[done] = 0
        return [before, actions, reward.astype(np.float32), next_observation, terminated, done]


class Explorer(Actor):
    """An `Actor` that is epsilon-greedy, the first one most; its rows are transitions with first priorities."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder, number)
        plan = self.config["actors"]
        self.epsilon = plan["epsilon"] ** (1 + plan["alpha"] * number / max(plan["number"] - 1, 1))

    def step(self) -> list[np.ndarray]:
        values = action_values(self.network, self.observation * self.scale)
        guesses = self.rng.integers(values.shape[1], size=len(values))
        actions = np.where(self.rng.random(len(values)) < self.epsilon, guesses, values.argmax(1)).astype(np.int32)
        *row, _ = self.play(actions)
        _, _, reward, next_observation, terminated = row
        next_value = action_values(self.network, next_observation * self.scale).max(1)
        wanted = reward + self.config["gamma"] * ~terminated * next_value
        return [*row, np.abs(wanted - values[np.arange(len(values)), actions]).astype(np.float32)]

    def insert(self, steps: list[list[np.ndarray]]) -> None:
        *rows, error = (np.concatenate(column) for column in zip(*steps))
        self.buffer.insert(rows, priority=error)


def main(actor_class: type[Actor]) -> None:
    """Run an actor as the command line says."""
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    actor = actor_class(folder, number)
    assert "mindspore" not in sys.modules
    try:
        actor.run()
    except RuntimeError as error:
        if not actor.buffer.closed:  # the learner died
            sys.exit(str(error))


if __name__ == "__main__":
    main(Explorer)
