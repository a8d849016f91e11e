"""Collects rows from environments."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..store.base.checks import check_size
from ..store.base.schema import is_tensor
from .vector import DISABLED, NEXT_STEP, VectorRows


class Episode(NamedTuple):
    """An episode that ended.

    Attributes:
        total_reward (float): Sum of its rewards, its return without discounts.
        length (int): Number of its steps.
        env (int): Number of its environment.
    """

    total_reward: float
    length: int
    env: int


class Collector:
    """Steps environments with a policy, and inserts rows and episode ends into a buffer.

    It supports the three autoreset modes, and a single environment, which it resets after each episode. Open episodes
    continue in the next `collect`. After an error or an interrupt, the buffer's open episodes end and new ones begin.
    They also end when a collector begins.

    Args:
        envs (Union[gymnasium.Env, gymnasium.vector.VectorEnv]): The environments.
        buffer (Union[ReplayBuffer, None]): A buffer with names that `VectorRows` can fill, such as those of
            `columns_of`, also attached, sharded, or a `ShardWriter`. ``None`` stores nothing, for evaluations.
        policy (Callable): Maps the observation of ``envs`` to the action for ``envs.step``, an array or Tensor, or to a
            pair of the action and a dict of further columns, such as ``{"log_prob": ...}``. If actions are such pairs
            themselves, return ``(action, {})``. Before first observations of episodes, its method ``begin``, if it has
            one, is called with a mask of their environments, bool ``[E]``: clear a recurrent state there.
        random_steps (int): Steps of random actions before the policy acts. Requires a policy without further columns.
            Others take random actions themselves. Default: ``0``.
        seed (Union[int, None]): Seed of the first reset and of random actions. Default: ``None``.
        callback (Union[Callable, None]): Called after each insertion with the rows, a dict by column, and the step's
            `info`. Default: ``None``.

    Attributes:
        steps (int): Steps of all environments so far, without the resets of the mode NEXT_STEP.
        version (Union[int, None]): The policy's version, which `insert` stores with each row. Default: ``None``.

    Raises:
        TypeError: If `policy` is not callable, or as for `VectorRows`.

    Examples:
        >>> import gymnasium as gym
        >>> from mindspore_replay import Collector, NStep, ReplayBuffer, columns_of
        >>> envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
        >>> buffer = ReplayBuffer(sample_size=32, capacity=1000, **columns_of(envs), num_envs=2, views=[NStep(1, 0.99)])
        >>> collector = Collector(envs, buffer, policy=lambda observation: (observation[:, 2] > 0).astype(int), seed=0)
        >>> episodes = collector.collect(episodes=3)
        >>> print(len(episodes) >= 3, sum(episode.length for episode in episodes) <= collector.steps)
        True True
    """

    def __init__(
        self,
        envs: Any,
        buffer: Any,
        policy: Callable[[Any], Any],
        *,
        random_steps: int = 0,
        seed: int | None = None,
        callback: Callable[[Mapping[str, np.ndarray], Mapping[str, Any]], object] | None = None,
    ) -> None:
        if not callable(policy):
            raise TypeError(f"For 'Collector', 'policy' must be a function of the observation, but got {policy!r}.")
        self.random_steps = check_size("Collector", "random_steps", random_steps, minimum=0)
        self.envs, self.policy, self.callback = envs, policy, callback
        self.buffer = buffer
        self.steps = 0
        self.version: int | None = None
        self._ended: list[Episode] = []
        self._seed = seed
        self._single = not hasattr(envs, "single_observation_space")
        mode = None if self._single else envs.metadata.get("autoreset_mode", NEXT_STEP)
        self._number = 1 if self._single else envs.num_envs
        self._mode = getattr(mode, "value", mode)
        self._rows = None if buffer is None else VectorRows(buffer, mode)
        self._begin()

    def _begin(self) -> None:
        """Begin new episodes at the next step."""
        self._observation: Any = None
        self._waiting: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]] | None = None
        self._returns, self._lengths = np.zeros(self._number), np.zeros(self._number, int)
        self._was_done, self._starts = np.zeros(self._number, bool), np.ones(self._number, bool)

    def collect(self, steps: int | None = None, *, episodes: int | None = None) -> list[Episode]:
        """Step the environments, and insert the rows.

        Args:
            steps (Union[int, None]): How many times to step all environments. Default: ``None``.
            episodes (Union[int, None]): Instead of `steps`: least number of episodes to end. Several may end in one
                step. Without a buffer, all environments are reset first, and exactly the episodes that began first are
                returned, so that short ones are not counted more often. Default: ``None``.

        Returns:
            list[Episode]: The episodes that ended, in order.

        Raises:
            TypeError: Unless exactly one of `steps` and `episodes` is an int, or as for `VectorRows.step`.
            ValueError: If it is not positive, if random actions lack columns, or as for the buffer's `insert`.
            TimeoutError: If too few rows are sampled within the limiter's timeout. The next `collect` inserts the rows,
                and also returns the episodes ended so far.

        Examples:
            >>> import gymnasium as gym
            >>> from mindspore_replay import Collector
            >>> env = gym.make("CartPole-v1")
            >>> evaluation = Collector(env, None, policy=lambda observation: 0, seed=0)
            >>> print([(episode.total_reward, episode.length) for episode in evaluation.collect(episodes=2)])
            [(9.0, 9), (10.0, 10)]
        """
        if (steps is None) == (episodes is None):
            raise TypeError(
                f"For 'Collector', 'collect' needs one of 'steps' and 'episodes', but got {steps!r} and {episodes!r}."
            )
        limit = None if steps is None else check_size("Collector", "steps", steps)
        wanted = None if episodes is None else check_size("Collector", "episodes", episodes)
        if self.buffer is None and wanted is not None:
            return self._evaluated(wanted)
        taken = 0
        try:
            while taken != limit and (wanted is None or len(self._ended) < wanted):
                self._step()
                taken += 1
        except BaseException:
            if self._observation is None:
                self._break_off()
            raise
        ended, self._ended = self._ended, []
        return ended

    def _evaluated(self, episodes: int) -> list[Episode]:
        """Return the episodes that begin first, in the order of their ends."""
        self._begin()
        self._ended = []
        found: list[Episode] = []
        numbers, following = list(range(self._number)), self._number
        while len(found) < episodes:
            self._step()
            for episode in self._ended:
                if numbers[episode.env] < episodes:
                    found.append(episode)
                numbers[episode.env], following = following, following + 1
            self._ended = []
        return found

    def _step(self) -> None:
        """Step all environments once.

        Until that is done there is no observation: whatever interrupts it, the next step begins new episodes.
        """
        if self._observation is None:
            self._reset_all()
        before, self._observation = self._observation, None
        if self._waiting is not None:
            self._insert(*self._waiting, before)
        if self._single and self._was_done[0]:
            before, _ = self.envs.reset()
        elif self._mode == DISABLED and self._was_done.any():
            before, _ = self.envs.reset(options={"reset_mask": self._was_done})
        action, columns = self._act(before)
        after, reward, terminated, truncated, info = self.envs.step(action)
        done = np.atleast_1d(np.logical_or(terminated, truncated))
        real = ~self._was_done if self._mode == NEXT_STEP else np.ones(self._number, bool)
        self._returns += np.where(real, reward, 0.0)
        self._lengths += real
        self.steps += int(real.sum())
        for i in np.flatnonzero(done):
            self._ended.append(Episode(float(self._returns[i]), int(self._lengths[i]), int(i)))
        self._returns[done] = self._lengths[done] = 0
        self._starts = self._was_done if self._mode == NEXT_STEP else done
        self._was_done = done
        if self._rows is not None:
            rows, flags = self._rows.step(before, action, after, reward, terminated, truncated, info, **columns)
            self._insert(rows, flags, info, after)
        self._observation = after

    def _reset_all(self) -> None:
        """End the open episodes of the buffer, and reset all environments, with a seed that depends on the steps."""
        self._break_off()
        seed = (
            None if self._seed is None else int(np.random.SeedSequence([self._seed, self.steps]).generate_state(1)[0])
        )
        observation, _ = self.envs.reset(seed=seed)
        if seed is not None:
            self.envs.action_space.seed(seed)
        if self._rows is not None:
            self._rows.reset()
            self._check_random(self._rows, observation)
        self._observation = observation

    def _check_random(self, rows: VectorRows, observation: Any) -> None:
        """Raise a ValueError if random actions lack columns."""
        if self.steps < self.random_steps and (columns := rows.further(observation)):
            raise ValueError(
                f"For 'Collector', 'random_steps' must be 0 if the policy fills further columns, as {columns} of the "
                f"buffer, but got {self.random_steps}: a random action has none. Take random actions in the policy, "
                "and return them with their columns."
            )

    def _act(self, observation: object) -> tuple[Any, Mapping[str, Any]]:
        """Return the action, and further columns."""
        if self._starts.any() and hasattr(self.policy, "begin"):
            self.policy.begin(self._starts)
        if self.steps < self.random_steps:
            return self.envs.action_space.sample(), {}
        action = self.policy(observation)
        if not (isinstance(action, tuple) and len(action) == 2 and isinstance(action[1], Mapping)):
            return _as_arrays(action), {}
        return _as_arrays(action[0]), {name: _as_arrays(column) for name, column in action[1].items()}

    def _insert(
        self, rows: Mapping[str, np.ndarray], flags: Mapping[str, np.ndarray], info: Mapping[str, Any], after: object
    ) -> None:
        """Insert the rows of a step, after which this is the observation."""
        self._waiting = None
        try:
            if len(next(iter(rows.values()))):
                version = {} if self.version is None else {"version": self.version}
                self.buffer.insert(rows, **flags, **version)
        except TimeoutError:  # nothing was stored: the next step inserts them
            self._waiting, self._observation = (rows, flags, info), after
            raise
        if self.callback is not None:
            self.callback(rows, info)

    def state_dict(self) -> dict[str, int]:
        """Return the number of steps, for a new collector to continue from.

        Environments are not saved: after `load_state_dict` they begin new episodes.
        """
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a state. The buffer's open episodes end, and the environments begin new ones.

        Args:
            state (Mapping): From `state_dict`.
        """
        self.steps = check_size("Collector", "state['steps']", state["steps"], minimum=0)
        self._break_off()

    def _break_off(self) -> None:
        """End the open episodes of the buffer, and begin new ones with the next step."""
        self._begin()
        if getattr(self.buffer, "has_episodes", False):
            self.buffer.end_episodes()


def _as_arrays(value: object) -> object:
    """Return arrays in place of Tensors, in nested dicts and tuples too."""
    if isinstance(value, Mapping):
        return {key: _as_arrays(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_as_arrays, value))
    return value.asnumpy() if is_tensor(value) else value
