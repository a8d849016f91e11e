"""Double Q-learning on CartPole in one file: vector environments, prioritized 3-step replay, evaluations.

    python examples/trainer.py          # seconds on two CPU cores
    python examples/trainer.py --seed 1

`columns_of` makes the buffer's columns, and `Collector` steps the environments and inserts their rows. One call of a
compiled graph samples a batch, learns from it, and writes the new priorities.
"""

import argparse

import gymnasium as gym
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_replay import Collector, NStep, PrioritizedReplayBuffer, columns_of


class Network(nn.Cell):
    """The value of each action. The pole's angle, in radians, is much smaller than the other inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Tensor([1, 1, 10, 1], ms.float32)
        self.layers = nn.SequentialCell(nn.Dense(4, 64), nn.ReLU(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 2))

    def construct(self, observation: Tensor) -> Tensor:
        return self.layers(observation * self.scale)


class Learner(nn.Cell):
    """One call learns from a batch."""

    def __init__(self, buffer: PrioritizedReplayBuffer, network: nn.Cell, target: nn.Cell) -> None:
        super().__init__()
        self.buffer, self.network, self.target = buffer, network, target
        self.weights, self.target_weights = network.trainable_params(), target.trainable_params()
        for weight, target_weight in zip(self.weights, self.target_weights):
            target_weight.set_data(Tensor(weight.asnumpy().copy()))  # load_param_into_net would share the memory
        self.optimizer = nn.Adam(self.weights, nn.PolynomialDecayLR(0.002, 0.0002, 10_000, power=1.0))
        self.gradients = ms.value_and_grad(self.loss, None, self.weights, has_aux=True)

    def loss(self, batch: dict[str, Tensor], wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted squared error, and the sizes of the errors."""
        values = self.network(batch["observation"])
        error = wanted - ops.gather_elements(values, 1, ops.expand_dims(batch["action"], 1))[:, 0]
        return 0.5 * ops.mean(batch["weights"] * error * error), ops.abs(error)

    def construct(self) -> Tensor:
        batch = self.buffer.sample(as_dict=True)
        following = batch["next_observation"]
        action = ops.expand_dims(ops.argmax(self.network(following), 1), 1)
        value = ops.gather_elements(self.target(following), 1, action)[:, 0]
        # The discount is 0 if a step terminated the episode; before a truncation the return has fewer steps.
        (loss, error), gradients = self.gradients(batch, batch["reward"] + batch["discount"] * value)
        self.optimizer(gradients)
        self.buffer.update_priorities(batch["indices"], error)
        for weight, target_weight in zip(self.weights, self.target_weights):
            ops.assign(target_weight, target_weight + 0.02 * (weight - target_weight))
        return loss


def main() -> None:
    """Train, and print the returns of evaluations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60_000, help="most environment steps")
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(arguments.seed)
    random = np.random.default_rng(arguments.seed)
    envs, others = (gym.make_vec("CartPole-v1", n, vectorization_mode="sync") for n in (4, 20))
    buffer = PrioritizedReplayBuffer(
        64, 50_000, **columns_of(envs), num_envs=4, views=[NStep(n=3, gamma=0.99)], seed=arguments.seed, alpha=0.4
    )
    network = Network()
    learner = Learner(buffer, network, target=Network())

    def greedy(observation: np.ndarray) -> np.ndarray:
        return network(Tensor(observation)).asnumpy().argmax(1)

    def explore(observation: np.ndarray) -> np.ndarray:
        epsilon = max(0.04, 1 - collector.steps / 8000)
        is_random = random.random(len(observation)) < epsilon
        return np.where(is_random, envs.action_space.sample(), greedy(observation))

    collector = Collector(envs, buffer, explore, random_steps=1000, seed=arguments.seed)
    evaluation = Collector(others, None, greedy, seed=1_000_000)
    best, evaluate_at = 0.0, 2000
    while best < 475 and collector.steps < arguments.steps:
        collector.collect(steps=1)
        if collector.steps > 1000:
            learner()
        if collector.steps >= evaluate_at:
            evaluate_at += 2000
            best = float(np.mean([episode.total_reward for episode in evaluation.collect(episodes=20)]))
            print(f"{collector.steps} steps: mean return {best:.1f} of 20 greedy episodes")


if __name__ == "__main__":
    main()
