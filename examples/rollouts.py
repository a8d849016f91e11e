"""Rollouts of on-policy examples: steps of vector environments, and generalized advantages.

Reference:
    Schulman et al. 2016, High-Dimensional Continuous Control Using Generalized Advantage Estimation,
    https://arxiv.org/abs/1506.02438
"""

import numpy as np
from dqn import Run
from mindspore import Tensor, nn


class RolloutRun(Run):
    """A `Run` whose steps are rollouts of ``T`` = `rollout` steps of ``E`` environments. A subclass chooses actions."""

    must_solve = True
    critic: nn.Cell

    def choose(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return actions for the current observations, their log probabilities, and what the environments take."""
        raise NotImplementedError

    def roll_out(self, returns: np.ndarray) -> list[np.ndarray]:
        """Return a rollout ``[T, E, ...]``: observations, actions, their log probabilities, advantages, and targets.

        Adds the rewards to `returns`.
        """
        steps = [self.play(returns) for _ in range(self.config["rollout"])]
        observation, action, log_probability, *outcome = (np.stack(column) for column in zip(*steps))
        advantage, wanted = self.advantages(observation, *outcome)
        normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        return [observation, action, log_probability, normal, wanted]

    def play(self, returns: np.ndarray) -> tuple[np.ndarray, ...]:
        """Step the environments: observation, action, its log probability, reward, next observation, the two ends."""
        action, log_probability, given = self.choose()
        before = self.observation
        self.observation, reward, terminated, truncated, infos = self.envs.step(given)
        done = terminated | truncated
        next_observation = self.observation.copy()
        for i in np.flatnonzero(done):  # `self.observation` is already the first of the next episode
            next_observation[i] = infos["final_obs"][i]
        self.step += len(action)
        returns += reward
        self.history["episodes"] += [(self.step, float(value)) for value in returns[done]]
        returns[done] = 0
        return before, action, log_probability, reward.astype(np.float32), next_observation, terminated, done

    def advantages(
        self,
        observation: np.ndarray,
        reward: np.ndarray,
        next_observation: np.ndarray,
        terminated: np.ndarray,
        done: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return generalized advantages, and the targets of the value network. All are ``[T, E, ...]``.

        Rewards are scaled by 1 - gamma, so that value errors do not dominate the policy.
        """
        gamma, decay = self.config["gamma"], self.config["gae_lambda"]
        value, next_value = (self.values(seen) for seen in (observation, next_observation))
        # Only a terminated episode has no future: a truncated one is bootstrapped from its final observation.
        advantage = (1 - gamma) * reward + gamma * np.where(terminated, 0, next_value) - value
        for t in range(len(advantage) - 2, -1, -1):
            advantage[t] += gamma * decay * np.where(done[t], 0, advantage[t + 1])
        return advantage, advantage + value

    def values(self, observation: np.ndarray) -> np.ndarray:
        """Return the value network's output for observations ``[T, E, F]``. Shape ``[T, E]``."""
        flat = observation.reshape(-1, observation.shape[-1])
        return self.critic(Tensor(flat)).asnumpy().reshape(observation.shape[:-1])
