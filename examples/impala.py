"""IMPALA on CartPole: actors in processes of their own, a queue, and V-trace.

    python examples/impala.py
    python examples/impala.py --seed 1 --actors 3
    python examples/plot_curves.py runs/impala_cartpole_seed* --out impala_cartpole.png

Actors (``impala_actor.py``) follow the newest policy that they have read, and insert unrolls into a `ReplayQueue` in
shared memory; a full queue lets them wait. The learner takes each unroll once, the oldest first. One call of a compiled
graph draws a batch, learns from it, and moves the learner's clock. By then the policy is newer than the one that acted:
V-trace corrects for that. Each unroll has the version of its policy, and its lag, the learning steps since that policy
was published, is drawn beside the learning curve.

Evaluations and files are those of ``dqn.py``, and processes and options those of ``actors.py``; files go to
``runs/impala_cartpole_seed<seed>/``. The script exits with an error unless the mean return of the final greedy episodes
reaches ``solved_at`` of the configuration. The schedule of the processes is random: two runs with one seed differ.

Reference:
    Espeholt et al. 2018, IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures,
    https://arxiv.org/abs/1802.01561
"""

import itertools
from typing import Any

import gymnasium as gym
import mindspore as ms
import numpy as np
from actor import ROWS
from actors import shared_folder, train
from dqn import make_network, value_of
from mindspore import Tensor, nn, ops
from ppo import Softmax
from run import Run, command_line, learning_rate

from mindspore_replay import create_buffer


class Learner(nn.Cell):
    """Policy, value network, optimizer and queue. One call learns from one batch of unrolls.

    Axes: ``B`` unrolls of a batch, ``T`` steps of an unroll.

    Args:
        network (nn.Cell): The policy.
        critic (nn.Cell): The value network.
        buffer (ReplayQueue): Columns observation, action, reward, next_observation, terminated, done, log_probability,
            version of the policy, each ``[T, ...]``.
        gamma (float): Discount.
        settings (dict): ``learner`` of the configuration.
    """

    def __init__(
        self, network: nn.Cell, critic: nn.Cell, buffer: nn.Cell, gamma: float, settings: dict[str, Any]
    ) -> None:
        super().__init__()
        self.network, self.critic, self.buffer, self.gamma = network, critic, buffer, gamma
        self.weights = network.trainable_params()  # which actors need
        weights = [*self.weights, *critic.trainable_params()]
        self.optimizer = nn.Adam(weights, learning_rate(settings["learning_rate"]))
        self.gradients = ms.value_and_grad(self.loss, None, weights)
        self.largest_weight, self.entropy, self.value_weight, self.largest_norm = (
            settings[key] for key in ("largest_weight", "entropy", "value_weight", "largest_gradient")
        )
        self.inputs = len(settings["observation_scale"])

    def construct(self) -> tuple[Tensor, Tensor]:
        """Return the loss ``[]``, and the version of the policy of each unroll, ``[B]``."""
        batch = self.buffer.sample(as_dict=True)
        loss, gradients = self.gradients(batch)
        self.optimizer(ops.clip_by_global_norm(gradients, self.largest_norm))
        self.buffer.advance()
        return loss, batch["version"][:, 0]

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the loss of policy and values, less the entropy."""
        action, flat = batch["action"], ops.reshape(batch["observation"], (-1, self.inputs))
        logs = self.network(flat)
        chosen = ops.reshape(value_of(logs, ops.reshape(action, (-1,))), action.shape)
        value = ops.reshape(self.critic(flat), action.shape)
        next_value = ops.reshape(self.critic(ops.reshape(batch["next_observation"], (-1, self.inputs))), action.shape)
        weight = ops.minimum(ops.exp(chosen - batch["log_probability"]), self.largest_weight)
        wanted, advantage = self.v_trace(
            ops.stop_gradient(weight),
            ops.stop_gradient(value),
            ops.stop_gradient(next_value),
            batch["reward"],
            batch["terminated"],
            batch["done"],
        )
        entropy = -ops.reduce_sum(ops.exp(logs) * logs, 1)
        policy_loss = -ops.mean(advantage * chosen) - self.entropy * ops.mean(entropy)
        return policy_loss + self.value_weight * ops.mean(ops.square(value - wanted))

    def v_trace(
        self, weight: Tensor, value: Tensor, next_value: Tensor, reward: Tensor, terminated: Tensor, done: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the targets of the values, and the advantages of the actions, both ``[B, T]``.

        `weight` is the clipped ratio of the probabilities of policy and actor. Rewards are scaled by 1 - gamma, so that
        value errors do not dominate the policy.
        """
        # Only a terminated episode has no future: a truncated one is bootstrapped from its final observation.
        next_value = ops.select(terminated, ops.zeros_like(next_value), next_value)
        reward = (1 - self.gamma) * reward
        error = weight * (reward + self.gamma * next_value - value)
        goes_on = self.gamma * weight * ops.cast(ops.logical_not(done), ms.float32)
        correction = ops.zeros_like(error[:, 0])
        corrections = ()
        for i in range(error.shape[1]):
            t = error.shape[1] - 1 - i
            correction = error[:, t] + goes_on[:, t] * correction
            corrections = (correction, *corrections)
        wanted = value + ops.stack(corrections, 1)
        after = ops.concat((wanted[:, 1:], next_value[:, -1:]), 1)
        after = ops.select(done, next_value, after)
        return wanted, weight * (reward + self.gamma * after - value)


class ImpalaRun(Run):
    """A `Run` that records the mean lag of the unrolls up to each evaluation."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lags: list[float] = []
        self.history["lags"] = []

    def evaluate(self, *args: Any) -> None:
        if self.lags:
            self.history["lags"].append((self.step, float(np.mean(self.lags))))
            self.lags.clear()
        super().evaluate(*args)


def main() -> None:
    run = ImpalaRun(command_line(__doc__, "impala_cartpole", ["actors"]).parse_args(), must_solve=True)
    ms.runtime.dispatch_threads_num(1)  # the graph is a chain, and all processes share the cores
    config, settings, steps = run.config, run.config["learner"], run.config["actors"]["gather"]
    size, inputs = (settings["observation_scale"], settings["hidden"]), len(settings["observation_scale"])
    policy = Softmax(*size, gym.spaces.Discrete(2))
    shapes = {"observation": [inputs], "next_observation": [inputs]}
    with shared_folder() as shared:
        rows = {**config["replay_buffer"], "storage": shared / ROWS}
        queue = create_buffer({**rows, "data_shape": [[steps, *shapes.get(name, [])] for name in rows["names"]]})
        learner = Learner(policy, make_network(*size, 1), queue, config["gamma"], settings)

        learned = itertools.count()

        def learn() -> Tensor:
            loss, versions = learner()
            run.lags += (next(learned) - versions.asnumpy()).tolist()
            return loss

        train(run, learner, policy.greedy, shared, learn, "impala_actor.py", steps)


if __name__ == "__main__":
    main()
