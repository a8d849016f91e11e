"""Compiles all composite operators as on a device without `ops.Assert`, or those of the kinds of buffers named."""

import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpochReplayBuffer,
    FrameStack,
    HindsightRelabel,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.columns import TYPES
from mindspore_replay.ops import checks

NAMES = ["observation", "group", "reward", "terminated"]
COLUMNS: dict[str, Any] = {
    "shapes": [(2,), (), (), ()],
    "types": ["float32", "int32", "float32", "bool"],
    "names": NAMES,
    "seed": 0,
    "backend": "composite",
}
GOALS = COLUMNS | {
    "shapes": [(2,), (2,), (2,), (), ()],
    "types": [*["float32"] * 4, "bool"],
    "names": ["observation", "achieved_goal", "desired_goal", "reward", "terminated"],
}
#: All dtypes that the composite backend stores.
EVERY = [name for name in TYPES if name != "bfloat16"]

N = 24
INDEX, VERSION, BETA, STEPS = Tensor([0, -1]), Tensor(0), Tensor(0.5, ms.float32), Tensor(1)
WINDOW, RATIOS = Tensor(20), Tensor([1.0, 2.0])
ENDS = Tensor(np.arange(N) % 4 == 3)
PRIORITY = Tensor(np.ones(N, np.float32))
LARGE = Tensor(np.ones((N, 2), np.float32))
ROWS = (LARGE, Tensor(np.arange(N, dtype=np.int32) % 3), PRIORITY, Tensor(np.zeros(N, np.bool_)))
#: Without the last column.
EARLY = ROWS[:3]
TYPED = tuple(Tensor(np.ones((N, 2), np.dtype(name))) for name in EVERY)
GOAL_ROWS = (LARGE, LARGE, LARGE, PRIORITY, ROWS[3])


def reached(achieved, goal):
    return ops.cast(achieved[:, 0] == goal[:, 0], ms.float32)


def uniform() -> Callable[..., Any]:
    types: dict[str, Any] = {"shapes": [(2,)] * len(EVERY), "types": EVERY, "backend": "composite"}
    buffer = ReplayBuffer(2, 30, **types, replace=False, ordered=True, seed=0)

    def body():
        buffer.insert(TYPED)
        enough, full = buffer.can_sample(), buffer.full()
        newest, batch = buffer.sample((-10, None)), buffer.sample()
        rows = buffer.get_item(INDEX)
        buffer.reset()
        return newest, batch, rows, enough, full, buffer.size()

    return body


def weighted() -> Callable[..., Any]:
    buffer = ReplayBuffer(2, 30, **COLUMNS, weighted=True, replace=False)

    def body():
        handles = buffer.insert(ROWS, with_indices=True)
        batch = buffer.sample((-10, None), with_indices=True)
        invalid = buffer.update(batch[0], {"group": batch[2]})
        return handles, batch, invalid, buffer.delete(batch[0]), buffer.can_sample()

    return body


def prioritized() -> Callable[..., Any]:
    options: dict[str, Any] = {"max_use": 3, "max_staleness": 4, "beta_steps": 5, "normalize": "buffer"}
    buffer = PrioritizedReplayBuffer(2, 300, **COLUMNS, views=[NStep(2, 0.9), FrameStack(2)], **options)

    def body():
        buffer.insert(ROWS, priority=PRIORITY, end=ENDS)
        buffer.insert(ROWS, version=VERSION)
        batch = buffer.sample(beta=BETA)
        invalid = buffer.update_priorities(batch[0], batch[1]), buffer.update(batch[0], {"terminated": batch[5]})
        removed = buffer.delete(batch[0])
        buffer.advance(STEPS)
        enough, info = buffer.can_sample(), buffer.info(batch[0])
        buffer.reset()
        return batch, invalid, removed, info, enough

    return body


def rows_by_priority() -> Callable[..., Any]:
    buffer = PrioritizedReplayBuffer(2, 30, **COLUMNS, late=["terminated"], max_use=2)

    def body():
        buffer.insert(EARLY)
        batch = buffer.sample()
        invalid = buffer.update(batch[0], {"terminated": batch[5]})
        buffer.advance(STEPS)
        return batch, invalid, buffer.delete(batch[0])

    return body


def sequences() -> Callable[..., Any]:
    views = [NStep(2, 0.9), HindsightRelabel("episode", 0.8, reached)]
    options: dict[str, Any] = {"burn_in": 1, "pad_end": True, "prioritized": True, "views": views}
    buffer = SequenceReplayBuffer(2, 30, sequence_length=2, **GOALS, **options)

    def body():
        buffer.insert(GOAL_ROWS, end=ENDS, final=ENDS)
        batch = buffer.sample()
        return batch, buffer.end_episodes(), buffer.delete(batch[0])

    return body


def late_sequences() -> Callable[..., Any]:
    buffer = SequenceReplayBuffer(2, 30, sequence_length=2, stride=2, **COLUMNS, late=["terminated"])

    def body():
        handles = buffer.insert(EARLY, end=ENDS, with_indices=True)
        return buffer.update(handles, {"terminated": ENDS}), buffer.sample()

    return body


def goals() -> Callable[..., Any]:
    buffer = ReplayBuffer(2, 30, **GOALS, views=[HindsightRelabel("random", 0.8, reached)])

    def body():
        buffer.insert(GOAL_ROWS, end=ENDS)
        return buffer.sample()

    return body


def episodes() -> Callable[..., Any]:
    buffer = EpisodeReplayBuffer(2, 30, max_episode_length=4, **COLUMNS, max_use=9)

    def body():
        buffer.insert(ROWS, end=ENDS)
        batch = buffer.sample()
        return batch, buffer.sample_groups("group", 2, 3), buffer.sample_groups("group", 2, 3, ordered=False)

    return body


def reservoir() -> Callable[..., Any]:
    buffer = ReservoirReplayBuffer(2, 30, **COLUMNS, max_use=4)

    def body():
        buffer.insert(ROWS)
        buffer.insert(ROWS, version=VERSION)
        batch = buffer.sample(with_indices=True)
        return batch, buffer.info(batch[0]), buffer.update(batch[0], {"group": batch[2]}), buffer.delete(batch[0])

    return body


def elastic() -> Callable[..., Any]:
    buffer = ElasticReplayBuffer(2, 30, **COLUMNS, prioritized=True)

    def body():
        buffer.insert(ROWS)
        buffer.set_window(WINDOW)
        return buffer.sample(beta=BETA), buffer.can_sample()

    return body


def queue() -> Callable[..., Any]:
    buffer = ReplayQueue(2, 30, **COLUMNS, late=["terminated"])

    def body():
        handles = buffer.insert(EARLY, with_indices=True)
        invalid = buffer.update(handles, {"terminated": ENDS})
        return invalid, buffer.sample(with_indices=True)

    return body


def epochs() -> Callable[..., Any]:
    buffer = EpochReplayBuffer(2, 30, **COLUMNS, weighted=True)

    def body():
        buffer.insert(ROWS)
        return buffer.sample()

    return body


def mixture() -> Callable[..., Any]:
    sources = [(PrioritizedReplayBuffer(2, 30, **COLUMNS), 0.5), (ReplayBuffer(2, 30, **COLUMNS), 0.5)]
    mixed = MixedReplay(sources, 4, adjustable=True, seed=0)

    def body():
        mixed.set_ratios(RATIOS)
        batch = mixed.sample(with_indices=True)
        invalid = mixed.update_priorities(batch[0], batch[1], batch[2])
        return batch, invalid, mixed.update(batch[0], batch[1], {"group": batch[4]}), mixed.can_sample()

    return body


MADE = (
    uniform,
    weighted,
    prioritized,
    rows_by_priority,
    sequences,
    late_sequences,
    goals,
    episodes,
    reservoir,
    elastic,
    queue,
    epochs,
    mixture,
)

if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    chosen = [make for make in MADE if make.__name__ in sys.argv[1:] or len(sys.argv) == 1]
    with mock.patch.object(checks, "ASSERTING", ()):
        for make in chosen:
            ms.jit(make())()
