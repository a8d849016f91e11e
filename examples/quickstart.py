"""DQN on CartPole: one compiled call samples by priority, learns, sets priorities."""

import gymnasium as gym
import mindspore as ms
import numpy as np
from matplotlib import pyplot as plt
from mindspore import Tensor, nn, ops
from tqdm import trange

from mindspore_replay import Collector, NStep, PrioritizedReplayBuffer, columns_of


def network() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(4, 64), nn.ReLU(), nn.Dense(64, 2))


class Learner(nn.Cell):
    def __init__(self, buffer: PrioritizedReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer
        self.network, self.target = network(), network()
        self.weights = self.network.trainable_params()
        self.target_weights = self.target.trainable_params()
        self.optimizer = nn.Adam(self.weights, learning_rate=0.005)
        self.gradients = ms.value_and_grad(self.loss, None, self.weights, has_aux=True)

    def loss(self, batch: dict[str, Tensor], wanted: Tensor) -> tuple[Tensor, Tensor]:
        values, action = self.network(batch["observation"]), batch["action"]
        error = wanted - ops.gather_elements(values, 1, action.expand_dims(1))[:, 0]
        return ops.mean(batch["weights"] * error * error), ops.abs(error)

    def construct(self) -> Tensor:
        batch = self.buffer.sample(as_dict=True)
        future = self.target(batch["next_observation"]).max(axis=1)
        wanted = batch["reward"] + batch["discount"] * future
        (loss, error), gradients = self.gradients(batch, wanted)
        self.optimizer(gradients)
        self.buffer.update_priorities(batch["indices"], error)
        for weight, target in zip(self.weights, self.target_weights):
            ops.assign(target, target + 0.02 * (weight - target))
        return loss


def policy(observation: np.ndarray) -> np.ndarray:
    greedy = learner.network(Tensor(observation)).asnumpy().argmax(axis=1)
    return np.where(random.random(4) < 0.1, random.integers(2, size=4), greedy)


ms.set_context(mode=ms.GRAPH_MODE)  # a Cell's call is one graph; else: a minute more
ms.set_seed(0)
random, envs = np.random.default_rng(0), gym.make_vec("CartPole-v1", num_envs=4)
columns, views = columns_of(envs), [NStep(n=3, gamma=0.99)]
buffer = PrioritizedReplayBuffer(64, 10_000, **columns, num_envs=4, views=views, seed=0)
learner = Learner(buffer)
collector = Collector(envs, buffer, policy, random_steps=800, seed=0)
at_random = np.mean([episode.length for episode in collector.collect(steps=200)])
lengths: list[int] = []
for _ in trange(1000):
    lengths += [episode.length for episode in collector.collect(steps=1)]  # by Python
    learner()  # the graph samples, learns, and writes priorities
stands = np.mean(lengths[-10:]) > 3 * at_random
print("the pole stands 3 times as long as at random:", stands)
plt.plot(lengths)
plt.gca().set(xlabel="episode", ylabel="steps that the pole stands")
plt.savefig("quickstart.png")
print("drawn: quickstart.png; if something is missing: mindspore-replay doctor")
