"""R2D2 on CartPole without velocities: Q-learning with an LSTM, from prioritized sequences.

    python examples/r2d2.py                     # about five minutes on two CPU cores
    python examples/r2d2.py --seed 1
    python examples/r2d2.py --refresh           # learning writes newer LSTM states over the stored ones
    python examples/r2d2.py --memoryless        # the same, but the LSTM forgets everything before each step
    python examples/r2d2.py --resume --steps 200000
    python examples/plot_curves.py runs/r2d2_cartpole_*seed[0-2] --together --out r2d2_cartpole.png

The agent sees the positions of cart and pole and its last action, but no velocities: it must remember. The buffer
samples sequences of one episode. The LSTM starts from the state stored with a sequence's first row; the first steps,
the burn-in, only bring that state up to date; a mask marks the boundary of an episode within a sequence. One call of a
compiled graph samples sequences, computes the loss of double Q-learning with their importance weights, updates the
network and its target, and writes the sequences' new priorities. Rows are stored by eager calls, and acting carries the
LSTM's state along.

A row holds the state that the actor had before it saw the row's observation, so the state is as old as the row. With
``--refresh`` the same graph overwrites it with the state it reaches along the sampled sequences, in each row where
another sequence can begin, every ``stride`` rows; with ``pad_end`` no other stored state is ever read.

Options, environments, evaluations and files are those of ``dqn.py``. It prints the mean return of 100 greedy episodes
with the best network, and writes the learning curve, history and checkpoints to ``runs/r2d2_cartpole_seed<seed>/``.

Reference:
    Kapturowski et al. 2019, Recurrent Experience Replay in Distributed Reinforcement Learning,
    https://openreview.net/forum?id=r1lyTjAqYX. Omitted: actors apart from the learner, and value rescaling. Its stored
    states are not refreshed.
"""

import argparse
import itertools
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
from mindspore_replay.training.vector import VectorRows


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


class RecurrentNetwork(nn.Cell):
    """A dense layer, an LSTM, and a value for each action.

    Axes: ``B`` sequences, ``T`` steps, ``F`` inputs, ``H`` units, ``A`` actions.
    """

    def __init__(self, scale: list[float], hidden: int, outputs: int, memoryless: bool) -> None:
        super().__init__()
        self.encoder = nn.SequentialCell(Scale(scale), nn.Dense(len(scale), hidden), nn.ReLU())
        # Without a bias, a zero state stays zero while the inputs are zero.
        self.lstm = nn.LSTM(hidden, hidden, has_bias=False, batch_first=True)
        self.head = nn.Dense(hidden, outputs)
        self.hidden = hidden
        self.memoryless = memoryless

    def construct(self, observation: Tensor, mask: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values ``[B, T, A]``, and the state of the LSTM after the last step. States are ``[1, B, H]``."""
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
    """The actions with the largest value for the next observations ``[E, F]``, and the new state of the LSTM."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # the learner names the network's Parameters
        self.network = network

    def construct(self, observation: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        there = ops.ones((observation.shape[0], 1), ms.bool_)
        values, h, c = self.network(ops.expand_dims(observation, 1), there, h, c)
        return ops.argmax(values[:, 0], 1), h, c


class Actor:
    """Acts greedily in environments that are stepped together, and carries the LSTM's state from step to step.

    Attributes:
        before (list[np.ndarray]): The state with which the last call began, h and c. Shape ``[E, H]``.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.before: list[np.ndarray] = []
        self.state: list[np.ndarray] = []

    def __call__(self, observation: Tensor) -> Tensor:
        """Return actions ``[E]``. At the first call all episodes begin."""
        if not self.state:
            self.state = [np.zeros((len(observation), self.policy.network.hidden), np.float32) for _ in range(2)]
        self.before = self.state
        action, *state = self.policy(observation, *(Tensor(part[None]) for part in self.before))
        self.state = [part.asnumpy()[0].copy() for part in state]
        return action

    def forget(self, done: np.ndarray) -> None:
        """Clear the state of the environments whose episodes are over."""
        for part in self.state:
            part[done] = 0


class RecurrentLearner(Learner):
    """Networks, optimizer and buffer. One call learns from a batch of sequences.

    Axes: ``B`` sequences, ``T`` steps, ``L`` steps after the burn-in, ``K`` steps except the first where another
    sequence can begin, ``H`` units.
    """

    def __init__(self, network: nn.Cell, target: nn.Cell, buffer: nn.Cell, config: dict[str, Any]) -> None:
        settings = config["learner"]
        plan = settings["learning_rate"]
        rate = nn.PolynomialDecayLR(plan["start"], plan["end"], plan["steps"], power=1.0)
        super().__init__(network, target, buffer, config["gamma"], settings["tau"], rate)
        self.loss_and_gradients = ms.value_and_grad(self.sequence_loss, None, self.weights, has_aux=True)
        self.eta, self.n_step = settings["eta"], settings["n_step"]
        self.burn_in, self.stride, self.hidden = buffer.burn_in, buffer.stride, settings["hidden"]
        steps = self.burn_in + buffer.sequence_length
        # Sequences begin `stride` steps apart: those within this one begin at its steps 1, 2, ... times `stride`.
        firsts = range(self.stride, steps, self.stride)
        self.refresh = config["refresh"] and len(firsts) > 0
        self.ahead = Tensor((np.array(firsts) - self.burn_in) * buffer.num_envs, ms.int64)
        cuts = sorted({0, self.burn_in, *firsts, steps + 1})
        self.sections = tuple(itertools.pairwise(cuts))
        sequences, inputs = buffer.sample_size, len(settings["observation_scale"])
        # The compiled methods need zeros of these shapes.
        self.no_step = Tensor(np.zeros((sequences, 1), np.bool_))
        self.no_observation = Tensor(np.zeros((sequences, 1, inputs), np.float32))

    def construct(self) -> Tensor:
        batch = self.buffer.sample(as_dict=True)
        seen, there = self.all_observations(batch["observation"], batch["next_observation"], batch["mask"])
        learned, reward = batch["mask"][:, self.burn_in :], batch["reward"][:, self.burn_in :]
        # Only a terminated episode has no future: a truncated one is bootstrapped from its final observation.
        discount = self.gamma * (1.0 - batch["terminated"][:, self.burn_in :].astype(ms.float32))
        # If an episode begins within the burn-in, the first row is masked: it and its state are zeros.
        h, c = ops.expand_dims(batch["h"][:, 0], 0), ops.expand_dims(batch["c"][:, 0], 0)
        results, gradients = self.loss_and_gradients(
            seen, there, h, c, batch["action"][:, self.burn_in :], reward, discount, learned, batch["weights"]
        )
        self.improve(gradients)
        self.buffer.update_priorities(batch["indices"], sequence_priorities(results[1], learned, self.eta))
        if self.refresh:
            self.store_states(batch["indices"], batch["mask"], *results[2:])
        return results[0]

    def store_states(self, indices: Tensor, mask: Tensor, h: Tensor, c: Tensor) -> Tensor:
        """Write states ``[B, K, H]`` over those of the rows where other sequences begin, if they are stored.

        The handle of a sample is that of the first step after the burn-in; consecutive rows of one environment have
        handles `num_envs` apart.
        """
        handles = ops.expand_dims(indices, 1) + self.ahead
        handles = ops.select(mask[:, self.stride :: self.stride], handles, ops.full_like(handles, -1))
        h, c = ops.reshape(h, (-1, self.hidden)), ops.reshape(c, (-1, self.hidden))
        return self.buffer.update(ops.reshape(handles, (-1,)), {"h": h, "c": c})

    def all_observations(self, observation: Tensor, next_observation: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the observations of the ``T`` steps and the one after the last, ``[B, T + 1, F]``, and their mask."""
        here, before = ops.concat((mask, self.no_step), 1), ops.concat((self.no_step, mask), 1)
        observation = ops.concat((observation, self.no_observation), 1)
        following = ops.concat((self.no_observation, next_observation), 1)
        return ops.where(ops.expand_dims(here, 2), observation, following), ops.logical_or(here, before)

    def sequence_loss(
        self,
        seen: Tensor,
        there: Tensor,
        h: Tensor,
        c: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        learned: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the mean weighted Huber loss, temporal difference errors ``[B, L]``, and states.

        Each sequence counts in the loss with its importance weight. The states, ``[B, K, H]``, are those before the
        steps where other sequences begin.
        """
        values, new_h, new_c = self.unroll(self.network, seen, there, h, c)
        # Double Q-learning: the network chooses the next action, the target values it.
        best = ops.argmax(values[:, 1:], 2)
        next_value = values_of(self.unroll(self.target, seen, there, h, c)[0][:, 1:], best)
        wanted = ops.stop_gradient(self.returns(reward, discount, next_value, learned))
        value = values_of(values[:, :-1], action)
        losses = ops.huber_loss(value, wanted, reduction="none") * learned.astype(ms.float32)
        return ops.mean(weights * ops.mean(losses, 1)), wanted - value, new_h, new_c

    def returns(self, reward: Tensor, discount: Tensor, next_value: Tensor, learned: Tensor) -> Tensor:
        """Return the returns of `n_step` steps, of fewer if the sequence ends before. All arguments are ``[B, L]``."""
        followed = ops.concat((learned[:, 1:], self.no_step), 1)
        wanted = reward + discount * next_value
        for _ in range(self.n_step - 1):
            later = ops.concat((wanted[:, 1:], next_value[:, -1:]), 1)
            wanted = reward + discount * ops.where(followed, later, next_value)
        return wanted

    def unroll(self, network: nn.Cell, seen: Tensor, there: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """Return action values at the ``L`` steps and after them, ``[B, L + 1, A]``, and states ``[B, K, H]``."""
        values, all_h, all_c = (), (), ()
        for first, last in self.sections:
            if first > 0 and first % self.stride == 0:
                all_h, all_c = (*all_h, h[0]), (*all_c, c[0])
            value, h, c = network(seen[:, first:last], there[:, first:last], h, c)
            if last <= self.burn_in:  # prepares the state without learning
                h, c = ops.stop_gradient(h), ops.stop_gradient(c)
            else:
                values = (*values, value)
        if not self.refresh:
            return ops.concat(values, 1), h, c
        return ops.concat(values, 1), ops.stack(all_h, 1), ops.stack(all_c, 1)


def values_of(values: Tensor, action: Tensor) -> Tensor:
    """Return the value of one action at each step of ``[B, L, A]``. Shape ``[B, L]``."""
    return ops.gather_elements(values, 2, ops.expand_dims(action, 2))[:, :, 0]


class RecurrentRun(Run):
    """A `Run` of the recurrent learner. Rows know the end of their episode, and acting needs the LSTM's state."""

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
        """Make an actor with a cleared state; each evaluation uses one."""
        return Actor(self.one_step)

    def act(self) -> np.ndarray:
        """Choose epsilon-greedy actions, one per environment."""
        actions = self.actor(Tensor(self.observation)).asnumpy()  # always needed: the LSTM must see each observation
        guesses = self.rng.integers(self.envs.single_action_space.n, size=len(actions))
        return np.where(self.rng.random(len(actions)) < self.epsilon(), guesses, actions)

    def advance(self, returns: np.ndarray) -> list[np.ndarray]:
        """Step the environments, at first until there is enough to learn from. The rows are stored here."""
        self.play(returns)
        while self.step <= self.config["learner"]["learning_starts"] or not bool(self.learner.buffer.can_sample()):
            self.play(returns)
        return []  # the learner's call has no arguments

    def play(self, returns: np.ndarray) -> None:
        """Step the environments and store their rows, with the ends of episodes; adds the rewards to `returns`."""
        actions = self.act()
        result = self.envs.step(actions)
        h, c = self.actor.before
        rows, flags = self.rows.step(self.observation, actions, *result, h=h, c=c)
        self.learner.buffer.insert(rows, **flags)
        self.observation, done = result[0], flags["end"]
        self.step += len(actions)
        returns += result[1]
        self.history["episodes"] += [(self.step, float(value)) for value in returns[done]]
        returns[done] = 0
        self.actor.forget(done)

    def load(self) -> None:
        """Continue from the checkpoint in the run's folder. The episodes that were running are cut off."""
        super().load()
        buffer = self.learner.buffer
        # Their newest rows are deleted, so that no sequence extends from them into the new episodes.
        buffer.delete(int(buffer.serials[0]) - 1 - np.arange(self.config["num_envs"]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "r2d2_cartpole.yaml")
    parser.add_argument("--steps", type=int, help="environment steps; default: from the configuration")
    parser.add_argument("--seed", type=int, default=0)
    add_device_option(parser)
    parser.add_argument(
        "--refresh",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="write states that the network computes while it learns over the stored ones",
    )
    parser.add_argument("--memoryless", action="store_true", help="clear the LSTM's state before each step")
    parser.add_argument("--num-envs", type=int, help="default: from the configuration")
    parser.add_argument("--backend", choices=["auto", "native", "composite"], default="auto", help="of the buffer")
    parser.add_argument("--out", type=Path, help="default: runs/r2d2_cartpole[_refresh][_memoryless]_seed<seed>")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder of the run")
    return parser.parse_args()


def main() -> None:
    begin = time.perf_counter()
    arguments = parse_arguments()
    ms.set_context(mode=ms.GRAPH_MODE)
    use_device(arguments.device)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain
    config = {**load_config(arguments.config), "memoryless": arguments.memoryless, "refresh": arguments.refresh}
    given = {"steps": arguments.steps, "num_envs": arguments.num_envs}
    config.update({key: value for key, value in given.items() if value is not None})
    name = "r2d2_cartpole" + "_refresh" * arguments.refresh + "_memoryless" * arguments.memoryless
    folder = arguments.out or Path("runs") / f"{name}_seed{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    gym.register("CartPolePositions-v1", entry_point=PositionsOnly, disable_env_checker=True)
    run = RecurrentRun(config, arguments.seed, arguments.backend, folder)
    if arguments.resume:
        run.load()
    run.train()
    conclude(run, run.finish(), time.perf_counter() - begin)


if __name__ == "__main__":
    main()
