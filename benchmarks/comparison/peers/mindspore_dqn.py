"""DQN on CartPole in MindSpore: with the buffer in the graph, or fed by a ring of NumPy arrays."""

import os
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_replay import ReplayBuffer

from ..answering import Work
from ..cases import CARTPOLE
from ..cases import DQN as SETTINGS


def run_operators_on_one_core() -> None:
    """Let MindSpore run operators in one thread, on one core with the thread that hands them out."""
    ms.set_context(mode=ms.GRAPH_MODE, runtime_num_threads=1)
    core = min(os.sched_getaffinity(0))
    # The dict has places in the list of cores.
    ms.runtime.set_cpu_affinity(True, [f"{core}-{core}"], {"runtime": [0], "pynative": [0]})


def make_network() -> nn.SequentialCell:
    """Observations ``[B, 4]`` in, values ``[B, 2]`` out."""
    layers: list[nn.Cell] = []
    inputs = 4
    for units in SETTINGS["hidden"]:
        layers += [nn.Dense(inputs, units), nn.ReLU()]
        inputs = units
    return nn.SequentialCell(*layers, nn.Dense(inputs, 2))


def share_memory(weights: list[Parameter], name: str) -> Parameter:
    """Return one vector of all weights, which from now on are parts of its memory."""
    memory = np.concatenate([weight.asnumpy().ravel() for weight in weights])
    begin = 0
    for weight in weights:
        part = memory[begin : begin + weight.size].reshape(weight.shape)
        weight.set_data(Tensor.from_numpy(part))
        begin += weight.size
    vector = Parameter(Tensor(memory), name=name)
    vector.set_data(Tensor.from_numpy(memory))
    return vector


class Learner(nn.Cell):
    """Network, target and optimizer. One call learns from a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()
        self.target = make_network()
        self.weights = self.network.trainable_params()
        #: All weights in one vector: one operator clips them and one changes them.
        self.vector = share_memory(self.weights, "weights")
        self.target_vector = share_memory(self.target.trainable_params(), "target_weights")
        self.copy_target()
        self.optimizer = nn.Adam([self.vector], SETTINGS["learning_rate"])
        self.gradients = ms.grad(self.loss, None, self.weights)
        self.half_square = ops.L2Loss()
        self.gamma = SETTINGS["gamma"]
        self.max_grad_norm = SETTINGS["max_grad_norm"]
        #: `construct` compiled, without the Python around a Cell's call.
        self.graph = ms.jit(self.construct)
        #: The memory of the weights, which the optimizer changes in place.
        self.arrays = [weight.asnumpy() for weight in self.weights]

    def loss(self, observation, action, wanted):
        value = ops.gather_elements(self.network(observation), 1, ops.expand_dims(action, 1))
        return ops.smooth_l1_loss(ops.reshape(value, (-1,)), wanted, reduction="mean")

    def wanted(self, reward, next_observation, terminated):
        """Return the values that the network is to learn."""
        future = self.gamma * ops.amax(self.target(next_observation), 1)
        return ops.select(terminated, reward, reward + future)

    def update(self, observation, action, wanted):
        """Update once, and return the weights afterwards, which are ready when the update is."""
        gradients = self.gradients(observation, action, wanted)
        gradient = ops.concat([ops.reshape(each, (-1,)) for each in gradients])
        norm = ops.sqrt(2.0 * self.half_square(gradient))
        self.optimizer((gradient * ops.minimum(self.max_grad_norm / (norm + 1e-6), 1.0),))
        return self.vector + 0.0

    def construct(self, observation, action, reward, next_observation, terminated):
        return self.update(observation, action, self.wanted(reward, next_observation, terminated))

    def choose(self, observation: np.ndarray) -> int:
        """Return the greedy action for one observation ``[4]``, by NumPy on the memory of the weights."""
        values = observation
        for i in range(0, len(self.arrays), 2):
            values = self.arrays[i] @ (np.maximum(values, 0) if i else values) + self.arrays[i + 1]
        return int(values.argmax())

    def copy_target(self) -> None:
        self.target_vector.asnumpy()[:] = self.vector.asnumpy()


class LearnerWithBuffer(Learner):
    """The same with its buffer: one call also draws the batch."""

    def __init__(self) -> None:
        super().__init__()
        shapes, types = zip(*CARTPOLE.values())
        batch, self.updates = SETTINGS["batch_size"], SETTINGS["updates_a_call"]
        self.buffer = ReplayBuffer(sample_size=batch, capacity=SETTINGS["capacity"], shapes=shapes, types=types, seed=0)
        #: On the same rows. Uniform draws are independent, so they may be drawn at once.
        self.batches = self.buffer.with_sample_size(batch * self.updates)
        self.store = self.buffer.insert
        self.graph = ms.jit(self.learn)
        self.several = ms.jit(self.learn_several)

    def learn(self):
        return self.construct(*self.buffer.sample())

    def learn_several(self):
        observation, action, reward, next_observation, terminated = self.batches.sample()
        wanted = self.wanted(reward, next_observation, terminated)
        done = self.vector
        for batch in zip(*[ops.chunk(each, self.updates) for each in (observation, action, wanted)]):
            # The vector and the weights are one memory, of which the compiler knows nothing.
            done = self.update(*ops.depend(batch, done))
        return done

    def step(self, row: list[Any]) -> None:
        self.store(row)
        self.graph().asnumpy()

    def burst(self, updates: int) -> None:
        for _ in range(updates // self.updates):
            done = self.several()
        done.asnumpy()


class DQN:
    """A run: environment, exploration and learner."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.env = gym.make("CartPole-v1")
        self.observation, _ = self.env.reset(seed=0)
        self.rng = np.random.default_rng(0)
        self.steps = 0
        for _ in range(SETTINGS["learning_starts"]):
            learner.store(self.act(int(self.rng.integers(2))))

    def act(self, action: int) -> list[np.ndarray]:
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
