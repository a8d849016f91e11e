"""DQN on CartPole in MindSpore: with the buffer in the graph, or fed by a ring of NumPy arrays."""

from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_replay import ReplayBuffer

from ..answering import Work
from ..cases import CARTPOLE
from ..cases import DQN as SETTINGS


def make_network() -> nn.SequentialCell:
    """Observations ``[B, 4]`` in, values ``[B, 2]`` out."""
    layers: list[nn.Cell] = []
    inputs = 4
    for units in SETTINGS["hidden"]:
        layers += [nn.Dense(inputs, units), nn.ReLU()]
        inputs = units
    return nn.SequentialCell(*layers, nn.Dense(inputs, 2))


class Learner(nn.Cell):
    """Network, target and optimizer. One call learns from a batch and chooses the next action."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()
        self.target = make_network()
        self.weights = self.network.trainable_params()
        self.target_weights = self.target.trainable_params()
        for weight in self.target_weights:
            weight.requires_grad = False
        self.copy_target()
        self.optimizer = nn.Adam(self.weights, SETTINGS["learning_rate"])
        self.gradients = ms.value_and_grad(self.loss, None, self.weights)
        self.half_square = ops.L2Loss()
        self.gamma = SETTINGS["gamma"]
        self.max_grad_norm = SETTINGS["max_grad_norm"]
        #: `construct` compiled, without the Python around a Cell's call.
        self.graph = ms.jit(self.construct)

    def loss(self, observation, action, wanted):
        """Return Huber's loss."""
        value = ops.gather_elements(self.network(observation), 1, ops.expand_dims(action, 1))[:, 0]
        return ops.smooth_l1_loss(value, wanted, reduction="mean")

    def learn(self, observation, action, reward, next_observation, terminated):
        """One update."""
        goes_on = 1.0 - terminated.astype(ms.float32)
        wanted = reward + self.gamma * goes_on * self.target(next_observation).max(1)
        loss, gradients = self.gradients(observation, action, wanted)
        self.optimizer(self.clipped(gradients))
        return loss

    def clipped(self, gradients):
        """Clip gradients to a joint norm of at most `max_grad_norm`."""
        norm = ops.sqrt(2.0 * ops.addn([self.half_square(gradient) for gradient in gradients]))
        scale = ops.minimum(self.max_grad_norm / (norm + 1e-6), 1.0)
        return tuple([gradient * scale for gradient in gradients])

    def choose(self, observation):
        """Return the greedy action for one observation ``[4]``."""
        return ops.argmax(self.network(ops.expand_dims(observation, 0)), 1)[0]

    def construct(self, now, *batch):
        self.learn(*batch)
        return self.choose(now)

    def copy_target(self) -> None:
        """Copy the network to the target."""
        for weight, target in zip(self.weights, self.target_weights):
            target.set_data(Tensor(weight.asnumpy().copy()))


class LearnerWithBuffer(Learner):
    """The same with its buffer: one call also stores a transition and draws the batch."""

    def __init__(self) -> None:
        super().__init__()
        shapes, types = zip(*CARTPOLE.values())
        self.buffer = ReplayBuffer(
            sample_size=SETTINGS["batch_size"], capacity=SETTINGS["capacity"], shapes=shapes, types=types, seed=0
        )

    def construct(self, now, *row):
        self.buffer.insert(row)
        self.learn(*self.buffer.sample())
        return self.choose(now)

    def store(self, row: list[Any]) -> None:
        """Store a row of the random steps at the start."""
        self.buffer.insert(row)

    def step(self, now: np.ndarray, row: list[Any]) -> int:
        """Store, learn and choose an action."""
        tensors = [Tensor.from_numpy(np.asarray(value)) for value in row]
        return int(self.graph(Tensor.from_numpy(now), *tensors).asnumpy())


class DQN:
    """A run: environment, exploration and learner.

    Args:
        learner (Learner): The learner, with `store` and `step`.
    """

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.env = gym.make("CartPole-v1")
        self.observation, _ = self.env.reset(seed=0)
        self.rng = np.random.default_rng(0)
        self.steps = 0
        self.action = 0
        for _ in range(SETTINGS["learning_starts"]):
            learner.store(self.act(int(self.rng.integers(2))))

    def act(self, action: int) -> list[np.ndarray]:
        """Step the environment and return the transition."""
        before = self.observation
        after, reward, terminated, truncated, _ = self.env.step(action)
        self.observation = self.env.reset()[0] if terminated or truncated else after
        return [before, np.int32(action), np.float32(reward), after, np.bool_(terminated)]

    def step(self) -> None:
        """One step of the environment, and one update."""
        action = int(self.rng.integers(2)) if self.rng.random() < SETTINGS["epsilon"] else self.action
        row = self.act(action)
        self.action = self.learner.step(self.observation, row)
        self.steps += 1
        if self.steps % SETTINGS["target_every"] == 0:
            self.learner.copy_target()

    def work(self) -> Work:
        """Return work with several steps per call."""
        each = SETTINGS["steps_a_call"]

        def steps() -> None:
            for _ in range(each):
                self.step()

        return Work(steps, each=each)
