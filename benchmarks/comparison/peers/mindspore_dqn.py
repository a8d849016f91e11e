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
    """Network, target and optimizer. One call learns from a batch."""

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
        self.gradients = ms.grad(self.loss, None, self.weights)
        self.half_square = ops.L2Loss()
        self.gamma = SETTINGS["gamma"]
        self.max_grad_norm = SETTINGS["max_grad_norm"]
        #: `construct` compiled, without the Python around a Cell's call.
        self.graph = ms.jit(self.construct)
        #: The memory of the weights, which the optimizer changes in place.
        self.arrays = [weight.asnumpy() for weight in self.weights]

    def loss(self, observation, action, wanted):
        """Return Huber's loss."""
        value = ops.gather_elements(self.network(observation), 1, ops.expand_dims(action, 1))
        return ops.smooth_l1_loss(ops.reshape(value, (-1,)), wanted, reduction="mean")

    def learn(self, observation, action, reward, next_observation, terminated):
        """Update once, and return something that is ready when the update is."""
        future = self.gamma * ops.amax(self.target(next_observation), 1)
        wanted = ops.select(terminated, reward, reward + future)
        self.optimizer(self.clipped(self.gradients(observation, action, wanted)))
        return self.weights[-1] + 0.0

    def clipped(self, gradients):
        """Clip gradients to a joint norm of at most `max_grad_norm`."""
        norm = ops.sqrt(2.0 * ops.addn([self.half_square(gradient) for gradient in gradients]))
        scale = ops.minimum(self.max_grad_norm / (norm + 1e-6), 1.0)
        return tuple([gradient * scale for gradient in gradients])

    def construct(self, *batch):
        return self.learn(*batch)

    def choose(self, observation: np.ndarray) -> int:
        """Return the greedy action for one observation ``[4]``, by NumPy on the memory of the weights."""
        values = observation
        for i in range(0, len(self.arrays), 2):
            values = self.arrays[i] @ (np.maximum(values, 0) if i else values) + self.arrays[i + 1]
        return int(values.argmax())

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
        self.several = ms.jit(self.learn_several)

    def construct(self, *row):
        self.buffer.insert(row)
        return self.learn(*self.buffer.sample())

    def learn_several(self):
        """Update `updates_a_call` times."""
        done = self.weights[-1]
        for _ in range(SETTINGS["updates_a_call"]):
            done = self.learn(*self.buffer.sample())
        return done

    def store(self, row: list[Any]) -> None:
        """Store a row."""
        self.buffer.insert(row)

    def step(self, row: list[Any]) -> None:
        """Store a row and learn."""
        self.graph(*[Tensor.from_numpy(np.asarray(value)) for value in row]).asnumpy()

    def burst(self, updates: int) -> None:
        """Learn several times."""
        for _ in range(updates // SETTINGS["updates_a_call"]):
            done = self.several()
        done.asnumpy()


class DQN:
    """A run: environment, exploration and learner.

    Args:
        learner (Learner): The learner, with `store`, `step` and, for bursts, `burst`.
    """

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.env = gym.make("CartPole-v1")
        self.observation, _ = self.env.reset(seed=0)
        self.rng = np.random.default_rng(0)
        self.steps = 0
        for _ in range(SETTINGS["learning_starts"]):
            learner.store(self.act(int(self.rng.integers(2))))

    def act(self, action: int) -> list[np.ndarray]:
        """Step the environment and return the transition."""
        before = self.observation
        after, reward, terminated, truncated, _ = self.env.step(action)
        self.observation = self.env.reset()[0] if terminated or truncated else after
        return [before, np.int32(action), np.float32(reward), after, np.bool_(terminated)]

    def explore(self) -> list[np.ndarray]:
        """Step the environment, epsilon-greedily, and return the transition."""
        self.steps += 1
        if self.steps % SETTINGS["target_every"] == 0:
            self.learner.copy_target()
        explores = self.rng.random() < SETTINGS["epsilon"]
        return self.act(int(self.rng.integers(2)) if explores else self.learner.choose(self.observation))

    def work(self) -> Work:
        """Return work with several steps of the environment per call, each followed by one update."""
        each = SETTINGS["steps_a_call"]

        def steps() -> None:
            for _ in range(each):
                self.learner.step(self.explore())

        return Work(steps, each=each)

    def bursts(self) -> Work:
        """Return work in which many updates follow many steps of the environment."""
        each = SETTINGS["burst_steps"]

        def steps() -> None:
            for _ in range(each):
                self.learner.store(self.explore())
            self.learner.burst(SETTINGS["burst_updates"])

        return Work(steps, each=each)
