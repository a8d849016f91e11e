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

The loop, options, evaluations and files are those of ``dqn.py``; files go to ``runs/ppg_cartpole_seed<seed>/``. The
script exits with an error unless the mean return of 100 greedy episodes reaches ``solved_at`` of the configuration.

References:
    Cobbe et al. 2021, Phasic Policy Gradient, https://arxiv.org/abs/2009.04416
    Sizes and use counts of the buffers: DI-engine's guide to multiple buffers, https://di-engine-docs.readthedocs.io
"""

from typing import Any

import mindspore as ms
import numpy as np
from dqn import make_network, train, value_of
from mindspore import Tensor, nn, ops
from rollouts import make_rollout, with_advantages
from run import Run, command_line, make_envs

from mindspore_replay import Collector, create_buffer


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


def main() -> None:
    run = Run(command_line(__doc__, "ppg_cartpole").parse_args(), must_solve=True)
    config, settings, seed = run.config, run.config["learner"], run.options.seed
    rng = np.random.default_rng(seed)
    envs = make_envs(config, config["num_envs"])
    actions, size = int(envs.single_action_space.n), (settings["observation_scale"], settings["hidden"])
    network, former, critic = (make_network(*size, outputs) for outputs in (actions + 1, actions + 1, 1))
    buffers = create_buffer({**config["replay_buffer"], "seed": seed, "backend": run.options.backend})
    learner = Learner(network, former, critic, buffers, settings)

    def logits(observation: np.ndarray) -> np.ndarray:
        return network(Tensor(observation)).asnumpy()[:, :-1]

    def draw(observation: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        logs = logits(observation)
        logs -= np.log(np.exp(logs).sum(1, keepdims=True))
        action = (logs + rng.gumbel(size=logs.shape)).argmax(1)
        return action, {"log_probability": logs[np.arange(len(action)), action]}

    def learn() -> Tensor:
        rollout = with_advantages(collector.buffer, critic, config)
        # Rows of `segment` steps of one environment.
        rows = {name: x.swapaxes(0, 1).reshape(-1, config["segment"], *x.shape[2:]) for name, x in rollout.items()}
        for buffer in (learner.buffer, learner.value_buffer):
            buffer.insert({name: rows[name] for name in buffer.names})
        loss = learner()
        if collector.steps // collector.buffer.capacity % settings["auxiliary_every"] == 0:
            learner(True)
        return loss

    collector = Collector(envs, make_rollout(envs, config), draw, seed=seed)
    train(run, collector, learner, lambda observation: logits(observation).argmax(1), learn, rng=rng)


if __name__ == "__main__":
    main()
