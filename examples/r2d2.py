"""R2D2 on CartPole without velocities: Q-learning with an LSTM, from prioritized sequences.

    python examples/r2d2.py                     # about five minutes on two CPU cores
    python examples/r2d2.py --seed 1
    python examples/r2d2.py --memoryless        # the same, but the LSTM forgets everything before each step
    python examples/r2d2.py --resume --steps 200000
    python examples/plot_curves.py runs/r2d2_cartpole_*seed* --out r2d2_cartpole.png

The agent sees where the cart and the pole are and what it did last, but not how fast they move: it must remember. The
buffer gives sequences of one episode. Their first steps, the burn-in, only prepare the LSTM's state, which is zero
before; where an episode begins or ends within a sequence, a mask says so. One call of a compiled graph samples
sequences, computes the loss of double Q-learning with their importance weights, updates the network and its target, and
gives the sequences their new priorities. Rows are stored by eager calls, and acting carries the LSTM's state along.

Options, environments, evaluations and files are those of ``dqn.py``. It prints the mean return of
100 greedy episodes with the best network, and writes the learning curve, history and checkpoints to
``runs/r2d2_cartpole_seed<seed>/``.

Reference:
    Kapturowski et al. 2019, Recurrent Experience Replay in Distributed Reinforcement Learning,
    https://openreview.net/forum?id=r1lyTjAqYX. Not taken over: its actors apart from the learner, stored LSTM states,
    and rescaled values.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from device import add_device_option, use_device
from dqn import ROOT, Learner, Run, Scale, conclude
from mindspore import Tensor, nn, ops

from mindspore_replay import create_buffer, load_config, sequence_priorities
from mindspore_replay.vector import VectorRows


class PositionsOnly(gym.Wrapper):
    """CartPole, seen as the cart's position, the pole's angle, and the last action: -1 or 1, and 0 at first."""

    def __init__(self, **options: Any) -> None:
        super().__init__(gym.make("CartPole-v1", **options))
        space = self.env.observation_space
        low, high = np.append(space.low[::2], np.float32(-1)), np.append(space.high[::2], np.float32(1))
        self.observation_space = gym.spaces.Box(low, high)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        return np.append(observation[::2], np.float32(0)), info

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return np.append(observation[::2], np.float32(2 * action - 1)), *rest


gym.register("CartPolePositions-v1", entry_point=PositionsOnly, disable_env_checker=True)


class RecurrentNetwork(nn.Cell):
    """A dense layer, an LSTM, and a value for each action.

    Axes: ``B`` sequences, ``T`` steps, ``F`` inputs, ``H`` units, ``A`` actions.
    """

    def __init__(self, scale: list[float], hidden: int, outputs: int, memoryless: bool) -> None:
        super().__init__()
        self.encoder = nn.SequentialCell(Scale(scale), nn.Dense(len(scale), hidden), nn.ReLU())
        # Without a bias, a state of zeros stays as it is while the inputs are zeros.
        self.lstm = nn.LSTM(hidden, hidden, has_bias=False, batch_first=True)
        self.head = nn.Dense(hidden, outputs)
        self.hidden = hidden
        self.memoryless = memoryless

    def construct(self, observation: Tensor, mask: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values ``[B, T, A]``, and the state of the LSTM after the last step. States are ``[1, B, H]``."""
        inputs = self.encoder(observation) * ops.expand_dims(mask, 2).astype(ms.float32)
        if self.memoryless:  # each step is a sequence of its own
            steps = ops.reshape(inputs, (-1, 1, self.hidden))
            nothing = ops.zeros((1, steps.shape[0], self.hidden), ms.float32)
            outputs, _ = self.lstm(steps, (nothing, nothing))
            outputs = ops.reshape(outputs, inputs.shape)
        else:
            outputs, (h, c) = self.lstm(inputs, (h, c))
        return self.head(outputs), h, c


class Policy(nn.Cell):
    """The actions of the largest value for the next observations ``[E, F]``, and the new state of the LSTM."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # the learner names the network's Parameters
        self.network = network

    def construct(self, observation: Tensor, keep: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        there = ops.ones((observation.shape[0], 1), ms.bool_)
        values, h, c = self.network(ops.expand_dims(observation, 1), there, h * keep, c * keep)
        return ops.argmax(values[:, 0], 1), h, c


class Actor:
    """Acts greedily in environments that are stepped together, and holds the LSTM's state from one step to the next."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.state: list[Tensor] = []
        self.keep = np.ones(0, np.float32)

    def __call__(self, observation: Tensor) -> Tensor:
        """Actions ``[E]``. At the first call all episodes begin."""
        if not self.state:
            self.state = [Tensor(np.zeros((1, len(observation), self.policy.network.hidden), np.float32))] * 2
            self.keep = np.ones((1, len(observation), 1), np.float32)
        action, *self.state = self.policy(observation, Tensor(self.keep), *self.state)
        self.keep = np.ones_like(self.keep)
        return action

    def forget(self, done: np.ndarray) -> None:
        """Clears the state of the environments whose episodes are over."""
        self.keep[0, done] = 0


class RecurrentLearner(Learner):
    """Networks, optimizer and buffer. One call learns from a batch of sequences.

    Axes: ``B`` sequences, ``T`` steps, ``L`` steps after the burn-in.
    """

    def __init__(self, network: nn.Cell, target: nn.Cell, buffer: nn.Cell, config: dict[str, Any]) -> None:
        settings = config["learner"]
        plan = settings["learning_rate"]
        rate = nn.PolynomialDecayLR(plan["start"], plan["end"], plan["steps"], power=1.0)
        super().__init__(network, target, buffer, config["gamma"], settings["tau"], rate)
        self.loss_and_gradients = ms.value_and_grad(self.sequence_loss, None, self.weights, has_aux=True)
        self.eta, self.n_step = settings["eta"], settings["n_step"]
        self.burn_in = buffer.burn_in
        sequences, inputs = buffer.sample_size, len(settings["observation_scale"])
        # The compiled methods need zeros of these shapes.
        self.empty_state = Tensor(np.zeros((1, sequences, settings["hidden"]), np.float32))
        self.no_step = Tensor(np.zeros((sequences, 1), np.bool_))
        self.no_observation = Tensor(np.zeros((sequences, 1, inputs), np.float32))

    def construct(self) -> Tensor:
        indices, weights, mask, observation, action, reward, next_observation, terminated = self.buffer.sample()
        seen, there = self.all_observations(observation, next_observation, mask)
        learned, action, reward = mask[:, self.burn_in :], action[:, self.burn_in :], reward[:, self.burn_in :]
        # Only a terminated episode has no future: a truncated one would have gone on from its final observation.
        discount = self.gamma * (1.0 - terminated[:, self.burn_in :].astype(ms.float32))
        (loss, errors), gradients = self.loss_and_gradients(seen, there, action, reward, discount, learned, weights)
        self.improve(gradients)
        self.buffer.update_priorities(indices, sequence_priorities(errors, learned, self.eta))
        return loss

    def all_observations(self, observation: Tensor, next_observation: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the ``T`` steps and the one after the last, ``[B, T + 1, F]``, and which of them there are."""
        here, before = ops.concat((mask, self.no_step), 1), ops.concat((self.no_step, mask), 1)
        observation = ops.concat((observation, self.no_observation), 1)
        following = ops.concat((self.no_observation, next_observation), 1)
        return ops.where(ops.expand_dims(here, 2), observation, following), ops.logical_or(here, before)

    def sequence_loss(
        self, seen: Tensor, there: Tensor, action: Tensor, reward: Tensor, discount: Tensor, learned: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Mean Huber loss, each sequence with its importance weight, and the temporal difference errors ``[B, L]``."""
        values = self.values(self.network, seen, there)
        # Double Q-learning: the network chooses the next action, the target says what it is worth.
        best = ops.argmax(values[:, 1:], 2)
        next_value = values_of(self.values(self.target, seen, there)[:, 1:], best)
        wanted = ops.stop_gradient(self.returns(reward, discount, next_value, learned))
        value = values_of(values[:, :-1], action)
        losses = ops.huber_loss(value, wanted, reduction="none") * learned.astype(ms.float32)
        return ops.mean(weights * ops.mean(losses, 1)), wanted - value

    def returns(self, reward: Tensor, discount: Tensor, next_value: Tensor, learned: Tensor) -> Tensor:
        """Returns of `n_step` steps, of fewer where the sequence ends before. All arguments are ``[B, L]``."""
        followed = ops.concat((learned[:, 1:], self.no_step), 1)
        wanted = reward + discount * next_value
        for _ in range(self.n_step - 1):
            later = ops.concat((wanted[:, 1:], next_value[:, -1:]), 1)
            wanted = reward + discount * ops.where(followed, later, next_value)
        return wanted

    def values(self, network: nn.Cell, seen: Tensor, there: Tensor) -> Tensor:
        """Values of the actions at the ``L`` steps and after them, ``[B, L + 1, A]``."""
        h, c = self.empty_state, self.empty_state
        if self.burn_in > 0:  # prepares the state, and nothing is learned from it
            _, h, c = network(seen[:, : self.burn_in], there[:, : self.burn_in], h, c)
            h, c = ops.stop_gradient(h), ops.stop_gradient(c)
        return network(seen[:, self.burn_in :], there[:, self.burn_in :], h, c)[0]


def values_of(values: Tensor, action: Tensor) -> Tensor:
    """The value of one action at each step of ``[B, L, A]``. Shape ``[B, L]``."""
    return ops.gather_elements(values, 2, ops.expand_dims(action, 2))[:, :, 0]


class RecurrentRun(Run):
    """A `Run` of the recurrent learner. Rows know the end of their episode, and actions need a memory."""

    def make_cells(self, seed: int, backend: str) -> None:
        settings = self.config["learner"]
        size = settings["observation_scale"], settings["hidden"], int(self.envs.single_action_space.n)
        network, target = (RecurrentNetwork(*size, self.config["memoryless"]) for _ in range(2))
        own = {"num_envs": self.config["num_envs"], "seed": seed, "backend": backend}
        buffer = create_buffer({**self.config["replay_buffer"], **own})
        self.learner = RecurrentLearner(network, target, buffer, self.config)
        self.rows = VectorRows(buffer, self.envs.metadata["autoreset_mode"])
        self.one_step = Policy(network)
        self.actor = self.policy

    @property
    def policy(self) -> Actor:
        """An actor that has seen nothing yet; evaluations take one."""
        return Actor(self.one_step)

    def act(self) -> np.ndarray:
        """Epsilon-greedy actions, one for each environment."""
        actions = self.actor(Tensor(self.observation)).asnumpy()  # needed in any case: the LSTM sees each observation
        guesses = self.rng.integers(self.envs.single_action_space.n, size=len(actions))
        return np.where(self.rng.random(len(actions)) < self.epsilon(), guesses, actions)

    def advance(self, returns: np.ndarray) -> list[np.ndarray]:
        """Steps the environments, at first until there is enough to learn from. What they give is stored here."""
        self.play(returns)
        while self.step <= self.config["learner"]["learning_starts"] or not bool(self.learner.buffer.can_sample()):
            self.play(returns)
        return []  # the learner's call has no arguments

    def play(self, returns: np.ndarray) -> None:
        """Steps the environments and stores their rows, with the end of episodes; `returns` adds up rewards."""
        actions = self.act()
        result = self.envs.step(actions)
        rows, flags = self.rows.step(self.observation, actions, *result)
        self.learner.buffer.insert(rows, **flags)
        self.observation, done = result[0], flags["end"]
        self.step += len(actions)
        returns += result[1]
        self.history["episodes"] += [(self.step, float(value)) for value in returns[done]]
        returns[done] = 0
        self.actor.forget(done)

    def load(self) -> None:
        """Goes on from the checkpoint in the run's folder. Episodes that had not ended then are cut off."""
        super().load()
        buffer = self.learner.buffer
        # Their newest rows are deleted, so that no sequence reaches from them into the new episodes.
        buffer.delete(int(buffer.serials[0]) - 1 - np.arange(self.config["num_envs"]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "r2d2_cartpole.yaml")
    parser.add_argument("--steps", type=int, help="environment steps; default: from the configuration")
    parser.add_argument("--seed", type=int, default=0)
    add_device_option(parser)
    parser.add_argument("--memoryless", action="store_true", help="clear the LSTM's state before each step")
    parser.add_argument("--num-envs", type=int, help="default: from the configuration")
    parser.add_argument("--backend", choices=["auto", "native", "composite"], default="auto", help="of the buffer")
    parser.add_argument("--out", type=Path, help="default: runs/r2d2_cartpole[_memoryless]_seed<seed>")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder of the run")
    return parser.parse_args()


def main() -> None:
    begin = time.perf_counter()
    arguments = parse_arguments()
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain
    config = {**load_config(arguments.config), "memoryless": arguments.memoryless}
    given = {"steps": arguments.steps, "num_envs": arguments.num_envs}
    config.update({key: value for key, value in given.items() if value is not None})
    name = "r2d2_cartpole_memoryless" if arguments.memoryless else "r2d2_cartpole"
    folder = arguments.out or Path("runs") / f"{name}_seed{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    run = RecurrentRun(config, arguments.seed, arguments.backend, folder)
    if arguments.resume:
        run.load()
    run.train()
    conclude(run, run.finish(), time.perf_counter() - begin)


if __name__ == "__main__":
    main()
