"""Rollouts of on-policy examples, and generalized advantages.

Reference:
    Schulman et al. 2016, High-Dimensional Continuous Control Using Generalized Advantage Estimation,
    https://arxiv.org/abs/1506.02438
"""

from typing import Any

import gymnasium as gym
import numpy as np
from mindspore import Tensor, nn

from mindspore_replay import columns_of, host


def make_rollout(envs: gym.vector.VectorEnv, config: dict[str, Any]) -> host.ReplayBuffer:
    """Make a buffer that holds `rollout` steps of all environments, for a `Collector` to fill."""
    columns = columns_of(envs, further={"truncated": ((), "bool"), "log_probability": ((), "float32")})
    return host.ReplayBuffer(sample_size=1, capacity=config["rollout"] * envs.num_envs, **columns)


def with_advantages(rollout: host.ReplayBuffer, critic: nn.Cell, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return what is learned from a rollout of ``T`` steps of ``E`` environments. Shapes ``[T, E, ...]``.

    Beside observation, action and log_probability, these are the generalized advantages, normalized, and the values
    wanted of the critic. Rewards are scaled by 1 - gamma, so that value errors do not dominate the policy.
    """
    rows, shape, gamma = rollout.rows(as_dict=True), (config["rollout"], -1), config["gamma"]
    value, next_value = (
        critic(Tensor(rows[name])).asnumpy().reshape(shape) for name in ("observation", "next_observation")
    )
    steps = {name: column.reshape(*shape, *column.shape[1:]) for name, column in rows.items()}
    # Only a terminated episode has no future: a truncated one is bootstrapped from its final observation.
    advantage = (1 - gamma) * steps["reward"] + gamma * np.where(steps["terminated"], 0, next_value) - value
    done = steps["terminated"] | steps["truncated"]
    for t in range(len(advantage) - 2, -1, -1):
        advantage[t] += gamma * config["gae_lambda"] * np.where(done[t], 0, advantage[t + 1])
    return {
        **{name: steps[name] for name in ("observation", "action", "log_probability")},
        "advantage": (advantage - advantage.mean()) / (advantage.std() + 1e-8),
        "wanted": advantage + value,
    }
