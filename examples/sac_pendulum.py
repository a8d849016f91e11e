"""Soft actor-critic on Pendulum: continuous actions from a uniform replay buffer.

    python examples/sac_pendulum.py             # one to two minutes on two CPU cores
    python examples/sac_pendulum.py --seed 1 --num-envs 4
    python examples/sac_pendulum.py --resume --steps 20000
    python examples/plot_curves.py runs/sac_pendulum_seed* --out sac_pendulum.png

The actor draws an action from a normal distribution and squashes it by a hyperbolic tangent. Two critics learn the
value of actions, and the temperature, the value of entropy, is learned too. One call of a compiled graph samples a
batch, computes the gradients of critics, actor and temperature, and applies them.

A pendulum never falls: after 200 steps its episode is truncated, not terminated. The last transition of an episode is
therefore bootstrapped like all others, from the final observation.

The loop, options, evaluations and files are those of ``dqn.py``; files go to ``runs/sac_pendulum_seed<seed>/``. The
script exits with an error unless the mean return of 100 episodes without exploration reaches ``solved_at`` of the
configuration.

Reference:
    Haarnoja et al. 2018, Soft Actor-Critic Algorithms and Applications, https://arxiv.org/abs/1812.05905
"""

from typing import Any

import mindspore as ms
import numpy as np
from dqn import make_network, train
from mindspore import Parameter, Tensor, nn, ops
from run import Run, command_line, make_envs

from mindspore_replay import Collector, columns_of, create_buffer

#: Limits of the logarithm of the actor's standard deviation.
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class Actor(nn.Cell):
    """A normal distribution of actions for each observation, squashed to (-1, 1).

    Axes: ``B`` observations, ``F`` their length, ``A`` numbers of an action.
    """

    def __init__(self, scale: list[float], hidden: list[int], actions: int) -> None:
        super().__init__()
        self.outputs = make_network(scale, hidden, 2 * actions)
        self.actions = actions

    def construct(self, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions ``[B, A]`` from standard normal `noise`, and the logarithms of their densities ``[B]``."""
        outputs = self.outputs(observation)
        mean, spread = outputs[:, : self.actions], ops.tanh(outputs[:, self.actions :])
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (spread + 1.0)
        raw = mean + ops.exp(log_std) * noise
        log_density = -0.5 * noise * noise - log_std - 0.5 * float(np.log(2 * np.pi))
        # log(1 - tanh(raw)^2), in a form that never takes the logarithm of 0.
        log_slope = 2.0 * (float(np.log(2)) - raw - ops.softplus(-2.0 * raw))
        return ops.tanh(raw), ops.reduce_sum(log_density - log_slope, 1)


class Critics(nn.Cell):
    """Two networks' estimates of an action's value. Shape ``[B]`` each."""

    def __init__(self, scale: list[float], hidden: list[int]) -> None:
        super().__init__()
        self.first, self.second = make_network(scale, hidden, 1), make_network(scale, hidden, 1)

    def construct(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        inputs = ops.concat((observation, action), 1)
        return self.first(inputs)[:, 0], self.second(inputs)[:, 0]


class Learner(nn.Cell):
    """Actor, critics, their targets, temperature, optimizers and buffer. One call learns from a batch.

    Args:
        network (Actor): Draws actions.
        critics (Critics): Estimate the value of actions.
        targets (Critics): Their slowly following copies.
        buffer (ReplayBuffer): Columns observation, action, reward, next_observation, terminated.
        gamma (float): Discount of one step.
        settings (dict): ``learner`` of the configuration.
    """

    def __init__(
        self,
        network: Actor,
        critics: Critics,
        targets: Critics,
        buffer: nn.Cell,
        gamma: float,
        settings: dict[str, Any],
    ) -> None:
        super().__init__()
        self.network, self.critics, self.targets, self.buffer = network, critics, targets, buffer
        self.log_alpha = Parameter(Tensor([np.log(settings["alpha"])], ms.float32), name="log_alpha")
        self.weights, self.target_weights = critics.trainable_params(), targets.trainable_params()
        for weight, target_weight in zip(self.weights, self.target_weights):
            target_weight.set_data(Tensor(weight.asnumpy().copy()))
            target_weight.requires_grad = False
        actor_weights = network.trainable_params()
        self.actor_optimizer = nn.Adam(actor_weights, settings["learning_rate"])
        self.critic_optimizer = nn.Adam(self.weights, settings["learning_rate"])
        self.alpha_optimizer = nn.Adam([self.log_alpha], settings["alpha_learning_rate"])
        self.critic_gradients = ms.value_and_grad(self.critic_loss, None, self.weights)
        self.actor_gradients = ms.value_and_grad(self.actor_loss, None, actor_weights, has_aux=True)
        self.gamma, self.tau = gamma, settings["tau"]
        self.noise_shape = (2, buffer.sample_size, network.actions)
        self.least_entropy = -float(network.actions)  # the temperature rises below it and falls above

    def construct(self) -> Tensor:
        batch = self.buffer.sample(as_dict=True)
        noise, alpha = ops.standard_normal(self.noise_shape), ops.exp(self.log_alpha)
        wanted = self.wanted_value(batch["reward"], batch["next_observation"], batch["terminated"], noise[0], alpha)
        loss, critic_gradients = self.critic_gradients(batch["observation"], batch["action"], wanted)
        losses, actor_gradients = self.actor_gradients(batch["observation"], noise[1], alpha)
        # The gradient of alpha's loss with respect to the logarithm of alpha: the mean excess of entropy.
        alpha_gradient = ops.reshape(-ops.mean(losses[1]) - self.least_entropy, (1,))
        self.critic_optimizer(critic_gradients)
        self.actor_optimizer(actor_gradients)
        self.alpha_optimizer((alpha_gradient,))
        for weight, target_weight in zip(self.weights, self.target_weights):
            ops.assign(target_weight, target_weight + self.tau * (weight - target_weight))
        return loss

    def wanted_value(
        self, reward: Tensor, next_observation: Tensor, terminated: Tensor, noise: Tensor, alpha: Tensor
    ) -> Tensor:
        """Return the reward plus the discounted value and entropy of a new action (lower target). Shape ``[B]``."""
        next_action, log_density = self.network(next_observation, noise)
        first, second = self.targets(next_observation, next_action)
        # Only a terminated episode has no future, and here none terminates.
        goes_on = 1.0 - terminated.astype(ms.float32)
        return reward + self.gamma * goes_on * (ops.minimum(first, second) - alpha * log_density)

    def critic_loss(self, observation: Tensor, action: Tensor, wanted: Tensor) -> Tensor:
        """Return half the mean squared error, summed over both critics."""
        first, second = self.critics(observation, action)
        return 0.5 * ops.mean(ops.square(first - wanted) + ops.square(second - wanted))

    def actor_loss(self, observation: Tensor, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the negative value and entropy of new actions, and the logarithms of their densities ``[B]``."""
        action, log_density = self.network(observation, noise)
        first, second = self.critics(observation, action)
        return ops.mean(alpha * log_density - ops.minimum(first, second)), log_density


def main() -> None:
    run = Run(command_line(__doc__, "sac_pendulum").parse_args(), must_solve=True)
    config, settings, seed = run.config, run.config["learner"], run.options.seed
    rng = np.random.default_rng(seed)
    envs = make_envs(config, config["num_envs"])
    own = {"num_envs": envs.num_envs, "seed": seed, "backend": run.options.backend}
    buffer = create_buffer({**config["replay_buffer"], **columns_of(envs), **own})
    scale, hidden, actions = settings["observation_scale"], settings["hidden"], envs.single_action_space.shape[0]
    critics, targets = (Critics([*scale, *[1.0] * actions], hidden) for _ in range(2))
    actor = Actor(scale, hidden, actions)
    learner = Learner(actor, critics, targets, buffer, config["gamma"], settings)

    def greedy(observation: np.ndarray) -> Tensor:
        return actor(Tensor(observation), Tensor(np.zeros((len(observation), actions), np.float32)))[0]

    def explore(observation: np.ndarray) -> Tensor:
        noise = rng.standard_normal((len(observation), actions), np.float32)
        return actor(Tensor(observation), Tensor(noise))[0]

    collector = Collector(envs, buffer, explore, random_steps=settings["learning_starts"], seed=seed)
    train(run, collector, learner, greedy, rng=rng)


if __name__ == "__main__":
    main()
