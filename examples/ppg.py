"""Phasic policy gradient on CartPole: two buffers that drop a row after a number of uses.

    python examples/ppg.py                      # half a minute on two CPU cores
    python examples/ppg.py --seed 1
    python examples/plot_curves.py runs/ppg_cartpole_seed* --out ppg_cartpole.png

Rollouts are cut into segments of some steps, and each segment is a row of both buffers. The policy buffer keeps 100
rows and delivers each ten times (``max_use``); the value buffer keeps 1000 and delivers each at most a hundred times,
here about 25. So a *policy phase* needs no count of epochs and no clearing: it lasts until the policy buffer has no
sample left, one loop in one compiled graph. It improves the policy by the clipped objective of PPO, and a value network
from the newest rows of the value buffer. After some rollouts, an *auxiliary phase* draws from the whole value buffer: a
second output of the policy network learns the values too, while a penalty on the divergence from the policy before that
phase preserves the actions. CartPole is so easy that the agent does no worse without auxiliary phases.

Options, environments, evaluations and files are those of ``dqn.py``; files go to ``runs/ppg_cartpole_seed<seed>/``. The
script exits with an error unless the mean return of 100 greedy episodes reaches ``solved_at`` of the configuration.

References:
    Cobbe et al. 2021, Phasic Policy Gradient, https://arxiv.org/abs/2009.04416
    Schulman et al. 2016, High-Dimensional Continuous Control Using Generalized Advantage Estimation,
    https://arxiv.org/abs/1506.02438
    Sizes and use counts of the buffers: DI-engine's guide to multiple buffers, https://di-engine-docs.readthedocs.io
"""

from typing import Any

import mindspore as ms
import numpy as np
from dqn import main, make_network, value_of
from mindspore import Tensor, nn, ops
from rollouts import RolloutRun

from mindspore_replay import create_buffer


class Logits(nn.Cell):
    """The policy network's outputs except the last, which is its value: logits of the actions ``[E, A]``."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # the learner names the network's Parameters
        self.network = network

    def construct(self, observation: Tensor) -> Tensor:
        return self.network(observation)[:, :-1]


class Policy(Logits):
    """The most probable actions ``[E]``."""

    def construct(self, observation: Tensor) -> Tensor:
        return ops.argmax(self.network(observation)[:, :-1], 1)


class Learner(nn.Cell):
    """Networks, optimizers and both buffers. One call is a whole policy phase, or a whole auxiliary phase.

    Axes: ``B`` rows of a sample times steps of a segment, ``A`` actions.

    Args:
        network (nn.Cell): The policy: logits of the actions, and a value as an additional output.
        former (nn.Cell): The same structure, for the policy before an auxiliary phase.
        critic (nn.Cell): The value network.
        buffers (dict): ``"policy"``, with columns observation, action, log_probability, advantage, and ``"value"``,
            with columns observation, wanted.
        settings (dict): ``learner`` of the configuration.
    """

    def __init__(
        self, network: nn.Cell, former: nn.Cell, critic: nn.Cell, buffers: dict[str, nn.Cell], settings: dict[str, Any]
    ) -> None:
        super().__init__()
        self.network, self.former, self.critic = network, former, critic
        self.buffer, self.value_buffer = buffers["policy"], buffers["value"]
        self.weights, self.former_weights = network.trainable_params(), former.trainable_params()
        for weight in self.former_weights:
            weight.requires_grad = False
        critic_weights = critic.trainable_params()
        self.optimizer = nn.Adam(self.weights, settings["learning_rate"])
        self.critic_optimizer = nn.Adam(critic_weights, settings["learning_rate"])
        self.policy_gradients = ms.value_and_grad(self.policy_loss, None, self.weights)
        self.auxiliary_gradients = ms.value_and_grad(self.auxiliary_loss, None, self.weights)
        self.critic_gradients = ms.value_and_grad(self.critic_loss, None, critic_weights)
        self.clip, self.entropy, self.clone = settings["clip"], settings["entropy"], settings["clone"]
        self.newest = (-settings["value_rows"], None)
        self.auxiliary_steps = settings["auxiliary_steps"]
        self.inputs = len(settings["observation_scale"])
        self.zero, self.first = Tensor(0.0, ms.float32), Tensor(0, ms.int32)

    def construct(self, auxiliary: bool = False) -> Tensor:
        """Run a phase and return the last loss of the policy network."""
        return self.auxiliary_phase() if auxiliary else self.policy_phase()

    def policy_phase(self) -> Tensor:
        """Learn from each row of the policy buffer until it is used up."""
        loss = self.zero
        while ops.logical_and(self.buffer.can_sample(), self.value_buffer.can_sample()):
            batch = self.buffer.sample(as_dict=True)
            loss, gradients = self.policy_gradients(
                self.flat(batch["observation"]),
                ops.reshape(batch["action"], (-1,)),
                ops.reshape(batch["log_probability"], (-1,)),
                ops.reshape(batch["advantage"], (-1,)),
            )
            self.optimizer(gradients)
            batch = self.value_buffer.sample(self.newest, as_dict=True)
            self.improve_critic(self.flat(batch["observation"]), ops.reshape(batch["wanted"], (-1,)))
        return loss

    def auxiliary_phase(self) -> Tensor:
        """Learn values from the whole value buffer, in both networks."""
        for weight, former_weight in zip(self.weights, self.former_weights):
            ops.assign(former_weight, weight)
        loss, step = self.zero, self.first
        while ops.logical_and(step < self.auxiliary_steps, self.value_buffer.can_sample()):
            batch = self.value_buffer.sample(as_dict=True)
            observation, wanted = self.flat(batch["observation"]), ops.reshape(batch["wanted"], (-1,))
            loss, gradients = self.auxiliary_gradients(observation, wanted, self.former(observation)[:, :-1])
            self.optimizer(gradients)
            self.improve_critic(observation, wanted)
            step = step + 1
        return loss

    def flat(self, observation: Tensor) -> Tensor:
        """Return the steps of all segments, one after the other. Shape ``[B, 4]``."""
        return ops.reshape(observation, (-1, self.inputs))

    def policy_loss(self, observation: Tensor, action: Tensor, log_probability: Tensor, advantage: Tensor) -> Tensor:
        """Return PPO's clipped objective and the entropy, both negated."""
        log_probabilities = ops.log_softmax(self.network(observation)[:, :-1], 1)
        ratio = ops.exp(value_of(log_probabilities, action) - log_probability)
        clipped = ops.clamp(ratio, 1.0 - self.clip, 1.0 + self.clip)
        gain = ops.minimum(ratio * advantage, clipped * advantage)
        entropy = -ops.reduce_sum(ops.exp(log_probabilities) * log_probabilities, 1)
        return -ops.mean(gain + self.entropy * entropy)

    def auxiliary_loss(self, observation: Tensor, wanted: Tensor, former_logits: Tensor) -> Tensor:
        """Return half the mean squared value error of the policy network, and the divergence from former actions."""
        outputs = self.network(observation)
        log_probabilities, former = ops.log_softmax(outputs[:, :-1], 1), ops.log_softmax(former_logits, 1)
        divergence = ops.reduce_sum(ops.exp(former) * (former - log_probabilities), 1)
        return ops.mean(0.5 * ops.square(outputs[:, -1] - wanted) + self.clone * divergence)

    def critic_loss(self, observation: Tensor, wanted: Tensor) -> Tensor:
        """Return half the mean squared error of the value network."""
        return 0.5 * ops.mean(ops.square(self.critic(observation)[:, 0] - wanted))

    def improve_critic(self, observation: Tensor, wanted: Tensor) -> None:
        self.critic_optimizer(self.critic_gradients(observation, wanted)[1])


class PpgRun(RolloutRun):
    """A `RolloutRun` whose rollouts are each followed by a policy phase."""

    def make_cells(self, seed: int, backend: str) -> None:
        settings, actions = self.config["learner"], int(self.envs.single_action_space.n)
        size = settings["observation_scale"], settings["hidden"]
        network, former, critic = (make_network(*size, outputs) for outputs in (actions + 1, actions + 1, 1))
        buffers = create_buffer({**self.config["replay_buffer"], "seed": seed, "backend": backend})
        self.learner = Learner(network, former, critic, buffers, settings)
        self.policy, self.logits, self.critic = Policy(network), Logits(network), critic

    def advance(self, returns: np.ndarray) -> list[np.ndarray]:
        """Fill both buffers with a rollout, after an auxiliary phase if it is due; adds the rewards to `returns`."""
        rollouts = self.step // (self.config["rollout"] * len(self.observation))
        if rollouts and rollouts % self.config["learner"]["auxiliary_every"] == 0:
            self.learner(True)
        observation, action, log_probability, advantage, wanted = map(self.segments, self.roll_out(returns))
        self.learner.buffer.insert([observation, action, log_probability, advantage])
        self.learner.value_buffer.insert([observation, wanted])
        return []  # the learner's call has no arguments

    def choose(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logits = self.logits(Tensor(self.observation)).asnumpy()
        log_probabilities = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        action = (logits + self.rng.gumbel(size=logits.shape)).argmax(1).astype(np.int32)
        return action, log_probabilities[np.arange(len(action)), action], action

    def segments(self, steps: np.ndarray) -> np.ndarray:
        """Reshape a rollout ``[T, E, *F]`` to the buffers' rows, ``[E * T / S, S, *F]`` with ``S`` steps each."""
        return steps.swapaxes(0, 1).reshape(-1, self.config["segment"], *steps.shape[2:])


if __name__ == "__main__":
    main(PpgRun, __doc__, "ppg_cartpole")
