"""Buffers whose rows hold goals, and the goals that a sample may have."""

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops
from model import Model

from mindspore_replay import HindsightRelabel, ReplayBuffer

_buffers: dict[Any, Any] = {}

GOALS = ["achieved_goal", "desired_goal", "reward"]


def reward_fn(achieved: Any, goal: Any) -> Any:
    """Return a reward that identifies its two goals, by the sums of the columns."""
    return ops.reduce_sum(achieved, -1) * 1000.0 + ops.reduce_sum(goal, -1)


def goal_buffer(
    strategy: str,
    ratio: float,
    draws: int = 16,
    capacity: int = 24,
    num_envs: int = 1,
    views: Sequence[Any] = (),
    cls: Any = ReplayBuffer,
    backend: str = "native",
    made_for: str = "",
    **options: Any,
) -> Any:
    """Return a buffer for rows whose achieved goal is the row's number from 1 on, and whose own goal is negative.

    Equal arguments share one buffer.
    """
    sizes, made = (draws, capacity, num_envs), repr([vars(view) for view in views])
    key = "goals", strategy, ratio, sizes, made, cls, backend, made_for, repr(options)
    if key not in _buffers:
        buffer = cls(
            draws,
            capacity,
            [(2,), (2,), (), ()],
            [ms.float32] * 3 + [ms.bool_],
            names=[*GOALS, "terminated"],
            views=[HindsightRelabel(strategy, ratio, reward_fn), *views],
            num_envs=num_envs,
            seed=5,
            backend=backend,
            **options,
        )
        _buffers[key] = buffer, buffer.state_dict()
    buffer, empty = _buffers[key]
    buffer.load_state_dict(empty)
    return buffer


def achieved_goals(numbers: np.ndarray) -> np.ndarray:
    return np.stack([numbers - 0.25, numbers * 0 + 0.25], 1)


def insert_goals(buffer: Any, twin: Model, flags: Sequence[int]) -> None:
    """Insert rows with flags: 0 none, 1 an end, which has terminated, 2 final."""
    numbers = np.arange(twin.inserted + 1, twin.inserted + 1 + len(flags), dtype=np.float32)
    ends, finals = ([flag == value for flag in flags] for value in (1, 2))
    columns = [achieved_goals(numbers), np.stack([-numbers, numbers * 0], 1), numbers + 0.5, np.array(ends)]
    buffer.insert(columns, end=ends, final=finals)
    twin.insert([(int(number),) for number in numbers], ends=ends, finals=finals)


def goal_shares(twin: Model, handle: int, strategy: str, ratio: float) -> dict[int | None, float]:
    """Return the probability that each row gives its goal to a row; `None` is no other goal."""
    start, rows = twin.record_of(handle), twin.records
    same = [row for row in rows if row.episode == start.episode and not row.final]
    sources = {
        "future": [row for row in same if row.step >= start.step],
        "final": same[-1:],
        "episode": same,
        "random": rows,
    }[strategy]
    shares: dict[int | None, float] = {
        row.serial: ratio / len(sources) for row in sources if not (row.deleted or row.final)
    }
    kept = 1 - sum(shares.values())
    return shares | ({None: kept} if kept > 1e-9 else {})
