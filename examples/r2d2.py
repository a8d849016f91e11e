"""R2D2 on CartPole without velocities: Q-learning with an LSTM, from prioritized sequences.

    python examples/r2d2.py                     # two to five minutes of processor time
    python examples/r2d2.py --seed 1
    python examples/r2d2.py --refresh           # learning writes newer LSTM states over the stored ones
    python examples/r2d2.py --memoryless        # the same, but the LSTM forgets everything before each step
    python examples/r2d2.py --resume --steps 200000
    python examples/plot_curves.py runs/r2d2_cartpole_*seed[0-4] --together --out r2d2_cartpole.png

The agent sees the positions of cart and pole and its last action, but no velocities: it must remember. The buffer
samples sequences of one episode. The LSTM starts from the state stored with a sequence's first row; the first steps,
the burn-in, only bring that state up to date; a mask marks the boundary of an episode within a sequence. One call of a
compiled graph samples sequences, computes the loss of double Q-learning with their importance weights, updates the
network and its target, and writes the sequences' new priorities. Acting carries the LSTM's state along.

A row holds the state that the actor had before it saw the row's observation, so the state is as old as the row. With
``--refresh`` the same graph overwrites it with the state it reaches along the sampled sequences, in each row where
another sequence can begin, every ``stride`` rows; with ``pad_end`` no other stored state is ever read.

With ``--memoryless`` everything is the same but for the LSTM, which begins each step with a state of zeros.

The loop, options, evaluations and files are those of ``dqn.py``; files go to ``runs/r2d2_cartpole_seed<seed>/``.

Reference:
    Kapturowski et al. 2019, Recurrent Experience Replay in Distributed Reinforcement Learning,
    https://openreview.net/forum?id=r1lyTjAqYX. Omitted: actors apart from the learner, and value rescaling. Its stored
    states are not refreshed.
"""

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from dqn import Learner, Scale, train
from dqn_prioritized import DuelingHead
from mindspore import Tensor, nn, ops
from run import Run, command_line, make_envs

from mindspore_replay import Collector, columns_of, create_buffer, sequence_priorities


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
    """A dense layer, an LSTM, and a dueling head: a value for each action.

    Axes: ``B`` sequences, ``T`` steps, ``F`` inputs, ``H`` units, ``A`` actions.
    """

    def __init__(self, scale: list[float], hidden: int, outputs: int, memoryless: bool) -> None:
        super().__init__()
        self.encoder = nn.SequentialCell(Scale(scale), nn.Dense(len(scale), hidden), nn.ReLU())
        # Without a bias, a zero state stays zero while the inputs are zero.
        self.lstm = nn.LSTM(hidden, hidden, has_bias=False, batch_first=True)
        self.head = nn.SequentialCell(nn.Dense(hidden, hidden), nn.ReLU(), DuelingHead(hidden, outputs))
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
    """Acts epsilon-greedily in environments that are stepped together, and carries the LSTM's state along.

    Args:
        policy (Policy): Chooses the actions.
        number (int): Number of environments.
        epsilon (Callable): Returns the probability of a random action.
        rng (Generator): Source of random actions.
    """

    def __init__(
        self, policy: Policy, number: int, epsilon: Callable[[], float] = lambda: 0.0, rng: Any = None
    ) -> None:
        self.policy, self.epsilon, self.rng = policy, epsilon, rng or np.random.default_rng(0)
        self.state = np.zeros((2, number, policy.network.hidden), np.float32)

    def begin(self, which: np.ndarray) -> None:
        """Clear the state of the environments whose episodes begin."""
        self.state[:, which] = 0

    def __call__(self, observation: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return actions ``[E]``, and the state before them as columns."""
        h, c = self.state
        action, *state = self.policy(Tensor(observation), Tensor(h[None]), Tensor(c[None]))
        self.state = np.concatenate([part.asnumpy() for part in state])
        is_random = self.rng.random(len(observation)) < self.epsilon()
        action = np.where(is_random, self.rng.integers(2, size=len(observation)), action.asnumpy())
        return action, {"h": h, "c": c}


class RecurrentLearner(Learner):
    """Networks, optimizer and buffer. One call learns from a batch of sequences.

    Axes: ``B`` sequences, ``T`` steps, ``L`` steps after the burn-in, ``K`` steps except the first where another
    sequence can begin, ``H`` units.
    """

    def __init__(self, network: nn.Cell, target: nn.Cell, buffer: nn.Cell, config: dict[str, Any]) -> None:
        settings = config["learner"]
        super().__init__(network, target, buffer, settings)
        self.gamma = config["gamma"]
        self.loss_and_gradients = ms.value_and_grad(self.sequence_loss, None, self.weights, has_aux=True)
        self.eta, self.n_step, self.reward_scale = (settings[key] for key in ("eta", "n_step", "reward_scale"))
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
        # Scaled rewards keep values small, which the LSTM's outputs, between -1 and 1, can add up to.
        learned, reward = batch["mask"][:, self.burn_in :], self.reward_scale * batch["reward"][:, self.burn_in :]
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


def main() -> None:
    parser = command_line(__doc__, "r2d2_cartpole")
    parser.add_argument(
        "--refresh",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="write states that the network computes while it learns over the stored ones",
    )
    parser.add_argument("--memoryless", action="store_true", help="clear the LSTM's state before each step")
    options = parser.parse_args()
    options.name += "_refresh" * options.refresh + "_memoryless" * options.memoryless
    run = Run(options)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain
    run.config |= {"memoryless": options.memoryless, "refresh": options.refresh}
    gym.register("CartPolePositions-v1", entry_point=PositionsOnly, disable_env_checker=True)
    config, settings, plan, seed = run.config, run.config["learner"], run.config["exploration"], options.seed
    rng = np.random.default_rng(seed)
    envs = make_envs(config, config["num_envs"])
    size = settings["observation_scale"], settings["hidden"], int(envs.single_action_space.n)
    network, target = (RecurrentNetwork(*size, options.memoryless) for _ in range(2))
    state = (settings["hidden"],), "float32"  # the LSTM's, before the step
    columns = columns_of(envs, further={"h": state, "c": state})
    own = {"num_envs": envs.num_envs, "seed": seed, "backend": options.backend}
    learner = RecurrentLearner(network, target, create_buffer({**config["replay_buffer"], **columns, **own}), config)
    policy = Policy(network)

    def epsilon() -> float:
        return float(np.interp(collector.steps, (0, plan["steps"]), (plan["start"], plan["end"])))

    collector = Collector(envs, learner.buffer, Actor(policy, envs.num_envs, epsilon, rng), seed=seed)
    train(run, collector, learner, Actor(policy, config["evaluation"]["episodes"]), rng=rng)


if __name__ == "__main__":
    main()
