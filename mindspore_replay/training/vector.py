"""Converts a step of a gymnasium environment to the rows and episode flags that a buffer stores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..store.base.casts import cast, holds
from ..store.base.nested import at, dotted, leaves, paths
from ..store.base.schema import type_name
from ..store.base.types import Nested

# Values of gymnasium.vector.AutoresetMode; gymnasium itself is not needed here.
NEXT_STEP, SAME_STEP, DISABLED = MODES = ("NextStep", "SameStep", "Disabled")


#: Name of the column of an observation that is no dict, and in the dotted names of those in a dict.
_OBSERVATION = "observation"


def _mode(mode: object) -> str | None:
    """Return the value of an autoreset mode: of an `AutoresetMode`, its value or its name, or ``None`` for no mode."""
    name = getattr(mode, "value", mode)
    if name is None:
        return None
    expected = f"For 'VectorRows', 'autoreset_mode' must be a gymnasium AutoresetMode or one of {', '.join(MODES)}"
    if not isinstance(name, str):
        raise TypeError(f"{expected}, but got {mode!r} ({type(mode).__name__}).")
    for value in MODES:
        if name.replace("_", "").lower() == value.lower():
            return value
    raise ValueError(f"{expected}, but got {mode!r}.")


def _final_value(final: Any, i: int, path: Sequence[Any]) -> Any:
    """Return what these keys lead to in the final observation of environment `i`.

    Environments return an array of observations, or one observation of arrays.
    """
    is_row = False
    for key in (*path, None):
        if not is_row and isinstance(final, (np.ndarray, list)):
            final, is_row = final[i], True
        if key is not None:
            final = final[key]
    return final


def _numpy_type(dtype: object) -> np.dtype:
    """Return the NumPy dtype of a column. Only bfloat16 needs MindSpore, so that others run without it."""
    if type_name(dtype) == "bfloat16":
        from ..columns import numpy_type

        return numpy_type(dtype)
    return np.dtype(type_name(dtype))


def _cast(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return cast(array, dtype.name, dtype, f"For 'VectorRows', column {name!r} is {dtype} and cannot hold")


class NamedColumns(Protocol):
    """A buffer to make rows for."""

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the columns."""

    @property
    def types(self) -> Sequence[object]:
        """Their dtypes."""

    @property
    def num_envs(self) -> int:
        """Environments that insert in step."""


class VectorRows:
    r"""Makes a buffer's rows and episode flags from the steps of a gymnasium environment or vector.

    An insertion requires one row per environment, but a step is not always a transition of each. The rows depend on the
    autoreset mode and on whether the buffer has a column ``next_observation``: see the table in `docs/vector.md`.

    A buffer that does not store episodes gets only real transitions, without flags. In the mode NEXT_STEP, resets are
    left out, so an insertion may contain fewer rows than environments, or none.

    Columns ``observation``, ``action``, ``reward``, ``next_observation``, ``terminated`` and ``truncated`` are filled
    by name. Each leaf of a nested observation or action fills the column of its dotted name, as in `columns_of`:
    ``observation.camera.left``, ``next_observation.camera.left``. If no column's name begins with ``observation.``,
    names begin with the observation's keys: ``camera.left``, ``next_camera.left``. Leaves without a column are ignored.
    The column of goals achieved for `HindsightRelabel`, such as ``achieved_goal`` without ``next_achieved_goal``, is
    filled with goals after the action. Late columns are omitted. Pass all other columns to `step` by keyword.

    In the mode NEXT_STEP it stores which environments were done in the previous step. An error changes nothing.

    Axes: ``E`` environments, ``*F`` a column's shape.

    Args:
        buffer (ReplayBuffer): The buffer, with names, also attached, sharded, or a `ShardWriter`. The number of
            environments is its `num_envs`. If that is 1 in a buffer that does not store episodes, that of the first
            step.
        autoreset_mode (Union[gymnasium.vector.AutoresetMode, str, None]): The mode of a vector environment, its value
            or its name: ``envs.metadata["autoreset_mode"]``. Default: ``None``, for a single environment, which you
            reset after each episode.

    Raises:
        TypeError: If `buffer` has no names, or `autoreset_mode` is neither a mode nor a str.
        ValueError: If there is no such mode.

    Examples:
        >>> import gymnasium as gym
        >>> from mindspore_replay import NStep, ReplayBuffer
        >>> from mindspore_replay import VectorRows
        >>> envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync", max_episode_steps=2)
        >>> names, shapes = ["observation", "action", "reward", "terminated"], [(4,), (), (), ()]
        >>> types, views = ["float32", "int32", "float32", "bool"], [NStep(1, 0.99)]
        >>> buffer = ReplayBuffer(
        ...     sample_size=32, capacity=1000, shapes=shapes, types=types, names=names, num_envs=2, views=views
        ... )
        >>> rows = VectorRows(buffer, envs.metadata["autoreset_mode"])
        >>> observation, info = envs.reset(seed=0)
        >>> for _ in range(3):  # two steps until the time limit, then one that resets
        ...     action = envs.action_space.sample()
        ...     result = envs.step(action)
        ...     exp, flags = rows.step(observation, action, *result)
        ...     buffer = buffer.insert(exp, **flags)
        ...     observation = result[0]
        ...     print(exp["reward"], flags["end"], flags["final"])
        [1. 1.] [False False] [False False]
        [1. 1.] [False False] [False False]
        [0. 0.] [False False] [ True  True]
    """

    def __init__(self, buffer: NamedColumns, autoreset_mode: object = None) -> None:
        names = getattr(buffer, "names", None)
        if names is None:
            raise TypeError(
                f"For 'VectorRows', 'buffer' must be made with 'names', but got a {type(buffer).__name__} without."
            )
        self.num_envs: int = buffer.num_envs
        self._has_episodes: bool = getattr(buffer, "has_episodes", True)
        self._any_number = not self._has_episodes and self.num_envs == 1
        self._achieved: str | None = getattr(buffer, "achieved_goal", None)
        self.autoreset_mode = _mode(autoreset_mode)
        late = buffer.spec.columns.late if hasattr(buffer, "spec") else ()
        present = [(name, dtype) for i, (name, dtype) in enumerate(zip(names, buffer.types)) if i not in late]
        self._types = {name: _numpy_type(dtype) for name, dtype in present}
        self._in_a_dict = any(name.startswith(f"{_OBSERVATION}.") for name in self._types)
        self.reset()

    def __repr__(self) -> str:
        mode, columns = self.autoreset_mode, list(self._types)
        return f"VectorRows(columns={columns}, num_envs={self.num_envs}, autoreset_mode={mode!r})"

    def reset(self) -> None:
        """Clear which environments were done. Call it after each ``envs.reset()`` of all environments.

        First end the episodes that such a reset cuts short: see `docs/vector.md`.

        Examples:
            >>> from mindspore_replay import ReplayBuffer, VectorRows
            >>> buffer = ReplayBuffer(1, 8, [()], ["float32"], names=["observation"], num_envs=2)
            >>> rows = VectorRows(buffer, "NEXT_STEP")
            >>> rows.reset()  # after envs.reset()
        """
        self._was_done = np.zeros(self.num_envs, np.bool_)

    def step(
        self,
        observation: Nested,
        action: Nested,
        next_observation: Nested,
        reward: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        info: Mapping[str, Any],
        **columns: Nested,
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the rows of one step: ``exp, flags = rows.step(observation, action, *envs.step(action))``.

        Values are cast to the columns' dtypes, as `insert` casts them.

        Args:
            observation (Union[array, dict, tuple]): The observation that the agent acted on. Arrays ``[E, *F]``. For a
                single environment omit the axis ``E`` throughout.
            action (Union[array, dict, tuple]): The argument of ``envs.step``. Arrays ``[E, *F]``.
            next_observation (Union[array, dict, tuple]): Result of ``envs.step``, as are the next four arguments.
            reward (array): Shape ``[E]``.
            terminated (array): Shape ``[E]``, bool.
            truncated (array): Shape ``[E]``, bool.
            info (dict): In the mode SAME_STEP, with final observations as ``"final_obs"``.
            columns (Union[array, dict, tuple]): The buffer's other columns. Arrays ``[E, *F]``.

        Returns:
            tuple[dict, dict]: Copies of the rows by column, and the flags ``end`` and ``final``, bool ``[E]``, for
            ``buffer.insert(exp, **flags)``. The flags are omitted if the buffer does not store episodes.

        Raises:
            TypeError: If values cannot be cast to their columns' dtypes, a flag is not bool, or `info` is not a dict.
            ValueError: If columns are missing or unknown, a leading axis is not ``E``, or the mode is wrong.

        Examples:
            >>> import numpy as np
            >>> from mindspore_replay import NStep, ReplayBuffer, VectorRows
            >>> names = ["observation", "action", "reward", "terminated"]
            >>> types, views = ["float32", "int32", "float32", "bool"], [NStep(1, 0.9)]
            >>> buffer = ReplayBuffer(2, 8, [()] * 4, types, names=names, num_envs=2, views=views)
            >>> rows, no = VectorRows(buffer, "NEXT_STEP"), np.zeros(2, bool)
            >>> now, action, following = np.array([1.0, 2.0]), np.array([0, 1]), np.array([2.0, 3.0])
            >>> exp, flags = rows.step(now, action, following, np.ones(2), terminated=no, truncated=no, info={})
            >>> print(exp["observation"], flags["end"], buffer.insert(exp, **flags).size())
            [1. 2.] [False False] 2
        """
        single = np.ndim(terminated) == 0
        if not single and self.autoreset_mode is None:
            raise TypeError(
                "For 'VectorRows', 'autoreset_mode' must be that of the vector environment, such as "
                "envs.metadata['autoreset_mode'], but got None."
            )
        if self._any_number:  # the buffer has none: that of the first step
            self.num_envs, self._any_number = np.size(terminated), False
            self.reset()
        ended = self._flag("terminated", terminated)
        done = ended | self._flag("truncated", truncated)
        self._check_mode(done, info)
        before, after = self._places(observation), self._places(next_observation)
        self._check_places(before, after, observation, next_observation)
        whole = any(f"next_{name}" in self._types for name in before)
        # For each column of an observation the keys that lead to its leaf, in the state before the action or after it.
        now = {name: path for name, path in before.items() if name != self._achieved}
        then = {f"next_{name}": path for name, path in after.items()}
        then |= {str(self._achieved): path for name, path in after.items() if self._is_achieved(name)}
        outcome = {"action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
        exp = self._rows(
            single,
            {name: at(observation, path) for name, path in now.items()},
            {name: at(next_observation, path) for name, path in then.items()},
            leaves(outcome, ()),
            leaves(columns, self._types),
        )
        if self.autoreset_mode == SAME_STEP:
            final = {name: path for name, path in then.items() if name in exp}
            for i in np.flatnonzero(done) if final else ():
                self._put_final(exp, i, info["final_obs"], final)
        flags = self._flags(ended, done, whole) if self._has_episodes else {}
        if not self._has_episodes and self.autoreset_mode == NEXT_STEP and self._was_done.any():
            exp = {name: rows[~self._was_done] for name, rows in exp.items()}
        self._was_done = done
        return exp, flags

    def further(self, observation: Nested) -> list[str]:
        """Return the columns that are passed to `step` by keyword, with observations of this form."""
        before = self._places(observation)
        filled = {*before, *(f"next_{name}" for name in before), "action", "reward", "terminated", "truncated"}
        return [name for name in self._types if name not in filled and not name.startswith("action.")]

    def _places(self, observation: Nested) -> dict[str, tuple[Any, ...]]:
        """Return the keys that lead to each leaf of an observation, by the name of the leaf's column."""
        if isinstance(observation, Mapping) and not self._in_a_dict:
            return {dotted(path): path for path in paths(observation, ())}
        return {dotted(path): path[1:] for path in paths({_OBSERVATION: observation}, ())}

    def _is_achieved(self, name: str) -> bool:
        """Return True for the leaf whose value after the action is in the column of the goals achieved."""
        return self._achieved is not None and name in (self._achieved, f"{_OBSERVATION}.{self._achieved}")

    def _flag(self, name: str, value: ArrayLike) -> np.ndarray:
        flag = np.atleast_1d(np.asarray(value))
        if flag.dtype != np.bool_:
            raise TypeError(f"For 'VectorRows', '{name}' must be bool, but got {flag.dtype}.")
        if flag.shape != (self.num_envs,):
            raise ValueError(
                f"For 'VectorRows', '{name}' must have shape ({self.num_envs},), a flag for each of the buffer's "
                f"num_envs, but got {flag.shape}."
            )
        return flag

    def _check_mode(self, done: np.ndarray, info: object) -> None:
        """Raise an error for a step that is impossible in this autoreset mode."""
        if not isinstance(info, Mapping):
            raise TypeError(f"For 'VectorRows', 'info' must be a dict, but got {type(info).__name__}.")
        final, has_final = info.get("final_obs"), info.get("_final_obs")
        if has_final is None and self.autoreset_mode == SAME_STEP and isinstance(final, np.ndarray):
            has_final = [row is not None for row in final]  # some environments give an array with None, and no mask
        has_final = np.zeros_like(done) if final is None or has_final is None else np.asarray(has_final, np.bool_)
        if self.autoreset_mode == SAME_STEP:
            wrong, reason = done & ~has_final, "are done without a final observation in info['final_obs']"
        elif self.autoreset_mode == NEXT_STEP and (done & self._was_done).any():
            wrong, reason = done & self._was_done, "are done in the step that should reset them (or call reset())"
        else:
            wrong, reason = done & has_final, "are done with a final observation in info['final_obs']"
        if wrong.any():
            raise ValueError(
                f"For 'VectorRows', 'autoreset_mode' must be that of the environments, but got "
                f"{self.autoreset_mode}, and environments {np.flatnonzero(wrong).tolist()} {reason}."
            )

    def _check_places(
        self, before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]], first: Nested, second: Nested
    ) -> None:
        if before.keys() != after.keys():
            raise ValueError(
                f"For 'VectorRows', 'observation' and 'next_observation' must have the same keys, but got "
                f"{sorted(before)} and {sorted(after)}."
            )
        if not before.keys() & self._types.keys():
            raise ValueError(
                f"For 'VectorRows', a column of the buffer must be one of the observation's keys {sorted(before)}, but "
                f"the columns are {list(self._types)}."
            )
        leaf = ((at(first, path), at(second, path)) for path in before.values())
        if any(one is other and isinstance(one, np.ndarray) for one, other in leaf):
            raise ValueError(
                "For 'VectorRows', 'observation' and 'next_observation' must be two arrays, but got the same one: "
                "environments made with copy=False write into it, so act on a copy."
            )

    def _rows(self, single: bool, *sources: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return a copy of each column, in its dtype. The last source contains the columns passed by keyword.

        The values of a `single` environment are without the axis of the environments.
        """
        counts = Counter(name for source in sources for name in source)
        missing = sorted(self._types.keys() - counts.keys())
        unknown = sorted(sources[-1].keys() - self._types.keys())
        twice = sorted(name for name in self._types if counts[name] > 1)
        if missing or unknown or twice:
            raise ValueError(
                f"For 'VectorRows', columns that step() does not fill must be given by keyword, and no others: missing "
                f"{missing}, unknown {unknown}, given twice {twice}."
            )
        values = {name: value for source in sources for name, value in source.items()}
        arrays = {name: np.asarray(values[name])[None] if single else np.asarray(values[name]) for name in self._types}
        wrong = [
            f"column {name!r}: expected {dtype}, but got {arrays[name].dtype}"
            for name, dtype in self._types.items()
            if arrays[name].dtype != dtype and not holds(dtype.name, arrays[name].dtype.name)
        ]
        if wrong:
            raise TypeError(f"For 'VectorRows', values must have dtypes that the columns hold. {'; '.join(wrong)}.")
        wrong = [
            f"column {name!r}: expected ({self.num_envs}, ...), but got {array.shape}"
            for name, array in arrays.items()
            if array.shape[:1] != (self.num_envs,)
        ]
        if wrong:
            raise ValueError(f"For 'VectorRows', each value must hold one row of each environment. {'; '.join(wrong)}.")
        return {name: _cast(name, arrays[name], dtype) for name, dtype in self._types.items()}

    def _put_final(
        self, exp: dict[str, np.ndarray], i: int, final: object, places: Mapping[str, Sequence[Any]]
    ) -> None:
        """Store the final observation of an environment as its next one, instead of that of its reset."""
        for name, path in places.items():
            rows = exp[name]
            try:
                value = np.asarray(_final_value(final, i, path))
            except (LookupError, TypeError):
                value = np.asarray(None)
            if value.shape != rows.shape[1:] or not holds(rows.dtype.name, value.dtype.name):
                raise ValueError(
                    f"For 'VectorRows', info['final_obs'][{i}] must have {name.removeprefix('next_')!r} of shape "
                    f"{rows.shape[1:]} and kind {rows.dtype}, but got shape {value.shape}, {value.dtype}."
                )
            rows[i] = _cast(name, value, rows.dtype)

    def _flags(self, terminated: np.ndarray, done: np.ndarray, whole: bool) -> dict[str, np.ndarray]:
        """Return the flags ``end`` and ``final``, in new arrays."""
        if self.autoreset_mode == NEXT_STEP:  # the row of the step that resets is no transition
            final = self._was_done.copy()
            return {"end": done | final if whole else np.zeros_like(done), "final": final}
        return {"end": done.copy(), "final": np.zeros_like(done) if whole else done & ~terminated}
