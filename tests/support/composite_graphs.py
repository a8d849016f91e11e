"""Compiles all composite operators as on a device without `ops.Assert`, or those of the kinds of buffers named."""

import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer
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
#: All dtypes that the composite backend stores.
EVERY = [name for name in TYPES if name != "bfloat16"]

N = 24
INDEX, BETA, STEPS = Tensor([0, -1]), Tensor(0.5, ms.float32), Tensor(1)
PRIORITY = Tensor(np.ones(N, np.float32))
ROWS = (
    Tensor(np.ones((N, 2), np.float32)),
    Tensor(np.arange(N, dtype=np.int32) % 3),
    PRIORITY,
    Tensor(np.zeros(N, np.bool_)),
)
TYPED = tuple(Tensor(np.ones((N, 2), np.dtype(name))) for name in EVERY)


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
    buffer = PrioritizedReplayBuffer(2, 300, **COLUMNS, **options)

    def body():
        buffer.insert(ROWS, priority=PRIORITY)
        batch = buffer.sample(beta=BETA)
        invalid = buffer.update_priorities(batch[0], batch[1]), buffer.update(batch[0], {"terminated": batch[5]})
        removed = buffer.delete(batch[0])
        buffer.advance(STEPS)
        enough, info = buffer.can_sample(), buffer.info(batch[0])
        buffer.reset()
        return batch, invalid, removed, info, enough

    return body


def largest_held() -> Callable[..., Any]:
    buffer = PrioritizedReplayBuffer(2, 30, **COLUMNS, default_priority="largest_held")

    def body():
        buffer.insert(ROWS)
        return buffer.sample()

    return body


MADE = uniform, weighted, prioritized, largest_held

if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    chosen = [make for make in MADE if make.__name__ in sys.argv[1:] or len(sys.argv) == 1]
    with mock.patch.object(checks, "ASSERTING", ()):
        for make in chosen:
            ms.jit(make())()
