"""Buffers of every class for the tests of checkpoints."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flat import flat
from mindspore import nn

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    FrameStack,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.store.kernels.state import BY_SLOT

NAMES, SHAPES, TYPES = ["observation", "reward", "terminated"], [(40,), (), ()], ["float32", "float32", "bool"]
SCHEMA: dict[str, Any] = {"shapes": SHAPES, "types": TYPES, "names": NAMES}
LONGEST = 5  # steps of an episode

RINGS: dict[str, Callable[..., Any]] = {
    "uniform": lambda capacity=24, **other: ReplayBuffer(3, capacity, **SCHEMA, **other),
    "limits": lambda capacity=24, **other: ReplayBuffer(
        3, capacity, **SCHEMA, max_use=9, max_staleness=6, replace=False, ordered=True, **other
    ),
    "prioritized": lambda capacity=24, **other: PrioritizedReplayBuffer(
        3, capacity, **SCHEMA, alpha=0.7, beta_steps=50, normalize="buffer", **other
    ),
    "views": lambda capacity=24, **other: PrioritizedReplayBuffer(
        3, capacity, **SCHEMA, views=[FrameStack(3), NStep(2, 0.9)], max_staleness=9, **other
    ),
    "sequence": lambda capacity=24, **other: SequenceReplayBuffer(
        3, capacity, **flat(sequence_length=3, burn_in=1, stride=2, prioritized=True, **SCHEMA, **other)
    ),
    "environments": lambda capacity=24, **other: SequenceReplayBuffer(
        3, capacity, sequence_length=2, burn_in=2, pad_end=True, num_envs=2, **SCHEMA, **other
    ),
    "episode": lambda capacity=24, **other: EpisodeReplayBuffer(
        1, capacity, max_episode_length=LONGEST, **SCHEMA, **other
    ),
    "elastic": lambda capacity=24, **other: ElasticReplayBuffer(3, capacity, window=7, **SCHEMA, **other),
}
RESERVOIRS: dict[str, Callable[..., Any]] = {
    "reservoir": lambda capacity=24, **other: ReservoirReplayBuffer(3, capacity, **SCHEMA, **other),
    "reservoir with weights": lambda capacity=24, **other: ReservoirReplayBuffer(
        3, capacity, max_use=30, **SCHEMA, **other
    ),
}
BUFFERS = RINGS | RESERVOIRS


def rows(first: int, count: int) -> list[np.ndarray]:
    """Return rows with their serial numbers."""
    n = np.arange(first, first + count)
    return [(n[:, None] - np.arange(40)).astype(np.float32), n.astype(np.float32), n % 11 == 3]


def insert(buffer: Any, count: int) -> None:
    """Insert rows with the next serial numbers, in episodes whose ends follow from those."""
    first = int(buffer.serials.asnumpy()[0])
    count *= buffer.num_envs
    steps = np.arange(first, first + count) // buffer.num_envs
    flags = {"end": (steps % LONGEST == LONGEST - 1) | (steps % 7 == 3)} if buffer.has_episodes else {}
    buffer.insert(rows(first, count), **flags)


def filled(make: Callable[..., Any], count: int = 31, seed: int = 0, **other: Any) -> Any:
    """Return a wrapped buffer that has been drawn from."""
    buffer = make(seed=seed, **other)
    for _ in range(count):
        insert(buffer, 1)
    if buffer.weighted:
        buffer.delete([int(buffer.serials.asnumpy()[0]) - 2])
    if buffer.can_sample():
        buffer.sample()
    return buffer


def draws(buffer: Any) -> list[list[Any]]:
    return [[column.asnumpy().tolist() for column in buffer.sample()] for _ in range(3)]


def assert_same_state(got: Any, expected: Any, apart_from: tuple[str, ...] = ()) -> None:
    """Check that all state is equal, except in slots where no row is stored."""
    first, second = got.state_dict(), expected.state_dict()
    assert first.keys() == second.keys()
    stored = (int(second["head"]) + np.arange(int(second["count"]))) % int(second["capacity"])
    for key, array in second.items():
        if key in apart_from:
            continue
        rows = stored if key.startswith("column.") or key in BY_SLOT[1:] else ...
        assert first[key].dtype == array.dtype, key
        np.testing.assert_array_equal(first[key][rows], array[rows], err_msg=key)


def containers() -> dict[str, Any]:
    """Return containers of several buffers."""
    agent, expert = filled(RINGS["prioritized"]), filled(RINGS["uniform"], seed=1)
    several = nn.CellList([filled(RINGS["uniform"], seed=seed) for seed in (2, 3)])
    return {
        "mixed": MixedReplay([(agent, 0.75), (expert, 0.25)], 8),
        "dict": {"agent": agent, "expert": expert},
        "list": several,
        "dict of lists": {"agent": agent, "several": several},
    }
