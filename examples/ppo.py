"""PPO on CartPole and on Pendulum: epochs over a rollout, in one graph.

    python examples/ppo.py                      # CartPole: half a minute on two CPU cores
    python examples/ppo.py --seed 1
    python examples/ppo.py --config configs/ppo_pendulum.yaml --out runs/ppo_pendulum_seed0   # two minutes
    python examples/plot_curves.py runs/ppo_cartpole_seed* --out ppo_cartpole.png

A rollout of all environments fills an `EpochReplayBuffer`. One call of a compiled graph then takes all minibatches of
all epochs: each step of the rollout is learned from once an epoch, in a new order each time. The policy is a softmax
over actions, or a normal distribution whose deviation does not depend on the observation; it improves by PPO's clipped
objective, and a second network learns the values.

The loop, options, evaluations and files are those of ``dqn.py``; files go to ``runs/ppo_cartpole_seed<seed>/``. The
script exits with an error unless the mean return of the final greedy episodes reaches ``solved_at`` of the
configuration.

References:
    Schulman et al. 2017, Proximal Policy Optimization Algorithms, https://arxiv.org/abs/1707.06347
    Pendulum's settings follow Raffin 2020, RL Baselines3 Zoo, https://github.com/DLR-RM/rl-baselines3-zoo
"""

from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from dqn import make_network, train, value_of
from mindspore import Parameter, Tensor, nn, ops
from rollouts import make_rollout, with_advantages
from run import Run, command_line, learning_rate, make_envs

from mindspore_replay import Collector, create_buffer

LOG_ROOT = float(0.5 * np.log(2 * np.pi))


class Softmax(nn.Cell):
    """A policy over actions by number: a softmax of the network's outputs.

    Axes: ``B`` observations, ``A`` actions.
    """

    def __init__(self, scale: list[float], hidden: list[int], space: gym.spaces.Discrete) -> None:
        super().__init__()
        self.network = make_network(scale, hidden, int(space.n))

    def construct(self, observation: Tensor) -> Tensor:
        """Return the logarithms of the probabilities. Shape ``[B, A]``."""
        return ops.log_softmax(self.network(observation), 1)

    def log_density(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return the logarithm of the probability of actions ``[B]``. Shape ``[B]``."""
        return value_of(self.construct(observation), action)

    def draw(self, observation: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return actions, and the logarithms of their probabilities as a column."""
        logs = self(Tensor(observation)).asnumpy()
        action = (logs + rng.gumbel(size=logs.shape)).argmax(1)
        return action, {"log_probability": logs[np.arange(len(action)), action]}

    def greedy(self, observation: np.ndarray) -> np.ndarray:
        """Return the most probable actions."""
        return self(Tensor(observation)).asnumpy().argmax(1)


class Normal(nn.Cell):
    """A policy over vectors: a normal distribution around the network's outputs, in units of the largest action.

    Axes: ``B`` observations, ``A`` numbers of an action.
    """

    def __init__(self, scale: list[float], hidden: list[int], space: gym.spaces.Box) -> None:
        super().__init__()
        self.network = make_network(scale, hidden, space.shape[0])
        self.log_deviation = Parameter(Tensor(np.full(space.shape, -0.5), ms.float32), name="log_deviation")

    def construct(self, observation: Tensor) -> Tensor:
        """Return the means. Shape ``[B, A]``."""
        return self.network(observation)

    def log_density(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return the logarithm of the density of actions ``[B, A]``. Shape ``[B]``."""
        distance = (action - self.network(observation)) / ops.exp(self.log_deviation)
        return ops.reduce_sum(-0.5 * ops.square(distance) - self.log_deviation - LOG_ROOT, 1)

    def draw(self, observation: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return actions, and the logarithms of their densities as a column."""
        mean, log_deviation = self(Tensor(observation)).asnumpy(), self.log_deviation.asnumpy()
        noise = rng.standard_normal(mean.shape, np.float32)
        action = mean + np.exp(log_deviation) * noise
        return action, {"log_probability": (-0.5 * noise**2 - log_deviation - LOG_ROOT).sum(1)}

    def greedy(self, observation: np.ndarray) -> np.ndarray:
        """Return the means, as far as they are actions."""
        return np.clip(self(Tensor(observation)).asnumpy(), -1, 1)


class Learner(nn.Cell):
    """Policy, value network, optimizer and buffer. One call is all minibatches of all epochs over a rollout.

    Args:
        network (nn.Cell): The policy.
        critic (nn.Cell): The value network.
        buffer (EpochReplayBuffer): Columns observation, action, log_probability, advantage, wanted.
        settings (dict): ``learner`` of the configuration.
    """

    def __init__(self, network: nn.Cell, critic: nn.Cell, buffer: nn.Cell, settings: dict[str, Any]) -> None:
        super().__init__()
        self.network, self.critic, self.buffer = network, critic, buffer
        weights = [*network.trainable_params(), *critic.trainable_params()]
        self.optimizer = nn.Adam(weights, learning_rate(settings["learning_rate"]))
        self.gradients = ms.value_and_grad(self.loss, None, weights)
        self.clip, self.value_weight, self.largest_norm = (
            settings[key] for key in ("clip", "value_weight", "largest_gradient")
        )
        self.batches = settings["epochs"] * (buffer.capacity // buffer.sample_size)
        self.first, self.zero = Tensor(0, ms.int32), Tensor(0.0, ms.float32)

    def construct(self) -> Tensor:
        """Return the last loss."""
        self.buffer.begin_epoch()
        step, loss = self.first, self.zero
        while step < self.batches:
            loss, gradients = self.gradients(self.buffer.sample(as_dict=True))
            self.optimizer(ops.clip_by_global_norm(gradients, self.largest_norm))
            step = step + 1
        return loss

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """Return PPO's clipped objective, negated, and the mean squared error of the values."""
        ratio = ops.exp(self.network.log_density(batch["observation"], batch["action"]) - batch["log_probability"])
        clipped = ops.clamp(ratio, 1.0 - self.clip, 1.0 + self.clip)
        gain = ops.minimum(ratio * batch["advantage"], clipped * batch["advantage"])
        error = ops.square(self.critic(batch["observation"])[:, 0] - batch["wanted"])
        return ops.mean(self.value_weight * error - gain)


def main() -> None:
    run = Run(command_line(__doc__, "ppo_cartpole").parse_args(), must_solve=True)
    config, settings, seed = run.config, run.config["learner"], run.options.seed
    rng = np.random.default_rng(seed)
    envs = make_envs(config, config["num_envs"])
    space, size = envs.single_action_space, (settings["observation_scale"], settings["hidden"])
    policy, critic = (Normal if space.shape else Softmax)(*size, space), make_network(*size, 1)
    if space.shape:  # a normal distribution has no limits
        envs = gym.wrappers.vector.ClipAction(envs)
    own = {"capacity": config["rollout"] * envs.num_envs, "seed": seed, "backend": run.options.backend}
    buffer = create_buffer({**config["replay_buffer"], **own})
    learner = Learner(policy, critic, buffer, settings)

    def learn() -> Tensor:
        rows = with_advantages(collector.buffer, critic, config)
        buffer.insert({name: steps.reshape(-1, *steps.shape[2:]) for name, steps in rows.items()})
        return learner()

    collector = Collector(
        envs, make_rollout(envs, config), lambda observation: policy.draw(observation, rng), seed=seed
    )
    train(run, collector, learner, policy.greedy, learn, rng=rng)


if __name__ == "__main__":
    main()
