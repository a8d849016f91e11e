"""Columns of environments, from their spaces."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..store.base.column import Column

#: The keys of a space for goals that `HindsightRelabel` reads.
_GOALS = {"achieved_goal", "desired_goal"}


def columns_of(
    envs: object,
    action_space: object = None,
    *,
    next_observation: bool = True,
    further: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
    as_columns: bool = False,
) -> dict[str, Any]:
    """Return names, shapes and types of the columns for transitions of an environment.

    The columns are those of the observation and action, ``reward``, those of the next observation, and ``terminated``.
    Each leaf of a nested Dict or Tuple space is a column with a dotted name: ``observation.camera.left``,
    ``observation.joints.0``, ``next_observation.joints.0``, ``action.steering``. `insert` accepts, and
    ``sample(as_dict=True)`` returns, rows nested like the spaces. `VectorRows` fills all columns.

    Dtypes are those of the spaces, but Discrete and MultiDiscrete become int32 if their values fit, and float64 becomes
    float32 with a warning.

    Args:
        envs (Union[gymnasium.Env, gymnasium.vector.VectorEnv, gymnasium.spaces.Space]): The environment or vector of
            environments, or the observation space of one environment.
        action_space (Union[gymnasium.spaces.Space, None]): The action space, if `envs` is a space. Default: ``None``.
        next_observation (bool): Whether each row stores its next observation. If not, it is read from the next row,
            which halves the memory and requires a buffer that stores episodes. The column ``achieved_goal`` of a
            goal-based Dict space is then the goal after the action, for `HindsightRelabel`. Default: ``True``.
        further (Union[Mapping, None]): More columns by name, each a shape and a dtype: ``truncated``, or columns of the
            policy, such as ``{"log_prob": ((), "float32")}``. Default: ``None``.
        as_columns (bool): Whether to return a dict of `Column` by name, to add options to. Default: ``False``.

    Returns:
        dict: ``names``, ``shapes`` and ``types``, for a constructor or a configuration; with `as_columns` the value of
        the argument ``columns``.

    Raises:
        TypeError: If `envs` is neither an environment nor a space, `action_space` is missing, or a space has no fixed
            shape, such as Text, Graph, Sequence and OneOf.
        ValueError: If two columns have the same name.

    Examples:
        >>> import gymnasium as gym
        >>> from mindspore_replay import Column, ReplayBuffer, columns_of
        >>> columns = columns_of(gym.make("CartPole-v1"))
        >>> print(columns["names"])
        ['observation', 'action', 'reward', 'next_observation', 'terminated']
        >>> print(columns["types"])
        ['float32', 'int32', 'float32', 'float32', 'bool']
        >>> buffer = ReplayBuffer(sample_size=32, capacity=1000, **columns)
        >>> columns = columns_of(gym.make("CartPole-v1"), as_columns=True)
        >>> print(columns["action"])
        Column(shape=(), dtype='int32')
        >>> buffer = ReplayBuffer(32, 1000, columns={**columns, "advantage": Column((), "float32", late=True)})
    """
    observation, action = _spaces(envs, action_space)
    before, acted = _columns("observation", observation), _columns("action", action)
    columns = {**before, **acted, "reward": ((), "float32")}
    if next_observation:
        columns |= {f"next_{name}": column for name, column in before.items()}
    elif isinstance(observation, Mapping) and observation.keys() >= _GOALS:
        columns["achieved_goal"] = before["observation.achieved_goal"]
    columns["terminated"] = ((), "bool")
    narrowed = [name for name, (_, dtype) in columns.items() if dtype == "float64"]
    if narrowed:
        warnings.warn(
            f"For 'columns_of', the spaces of {narrowed} are float64, and the columns float32: to keep all digits, set "
            "the entries of 'types' to 'float64'.",
            stacklevel=2,
        )
    if twice := sorted(columns.keys() & (further or {}).keys()):
        raise ValueError(f"For 'columns_of', 'further' must have other names than the spaces, but got {twice}.")
    columns |= further or {}
    shapes, types = zip(*columns.values())
    types = tuple("float32" if dtype == "float64" else dtype for dtype in types)
    if as_columns:
        return dict(zip(columns, map(Column, shapes, types)))
    return {"names": list(columns), "shapes": list(shapes), "types": list(types)}


def _spaces(envs: object, action_space: object) -> tuple[object, object]:
    """Return the observation space and the action space of one environment."""
    for prefix in ("single_", ""):
        if hasattr(envs, f"{prefix}observation_space"):
            return getattr(envs, f"{prefix}observation_space"), getattr(envs, f"{prefix}action_space")
    if not hasattr(envs, "sample"):
        raise TypeError(
            "For 'columns_of', 'envs' must be a gymnasium environment or the observation space of one, but got "
            f"{envs!r}."
        )
    if action_space is None:
        raise TypeError("For 'columns_of', 'action_space' must be given with an observation space, but got None.")
    return envs, action_space


def leaves(call: str, name: str, space: object) -> Iterator[tuple[str, Any]]:
    """Iterate over the spaces of arrays in a space, with dotted names. Raise a TypeError that names `call`."""
    inner = getattr(space, "spaces", None)
    if isinstance(space, (Mapping, Sequence)) and inner is not None:  # not OneOf, whose values are pairs
        for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
            yield from leaves(call, f"{name}.{key}", part)
    elif getattr(space, "shape", None) is None:
        raise TypeError(
            f"For '{call}', {name!r} must be of a space whose values are arrays of one shape, which are Box, Discrete, "
            f"MultiBinary and MultiDiscrete, or of Dict or Tuple of those, but got {space!r}."
        )
    else:
        yield name, space


def _columns(name: str, space: object) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and the dtype of the column for each space of arrays in a space."""
    columns: dict[str, tuple[tuple[int, ...], str]] = {}
    for column, leaf in leaves("columns_of", name, space):
        if column in columns:
            raise ValueError(
                f"For 'columns_of', each space must have a name of its own, but got two with the name {column!r}: "
                "rename the key with a dot."
            )
        columns[column] = tuple(map(int, leaf.shape)), _dtype(leaf)
    return columns


def _dtype(space: Any) -> str:
    """Return the dtype of a column for a space of arrays."""
    sizes = getattr(space, "n" if space.shape == () else "nvec", None)
    if sizes is not None:  # Discrete or MultiDiscrete
        limits, first = np.iinfo(np.int32), np.asarray(getattr(space, "start"))  # noqa: B009
        if limits.min <= np.min(first) and np.max(first + sizes - 1) <= limits.max:
            return "int32"
    return str(np.dtype(space.dtype))
