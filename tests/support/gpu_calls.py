"""Calls whose graphs hold our operators only, on many kinds of buffer, on a device; prints the results.

    python tests/support/gpu_calls.py {CPU,GPU}

The device must not matter: a test compares the output.
"""

import sys
from typing import Any

import mindspore as ms
import numpy as np

ms.set_device(sys.argv[1])

import emulated_gpu  # noqa: E402, F401  (takes the emulated kernels)

from mindspore_replay import (  # noqa: E402
    EpisodeReplayBuffer,
    FrameStack,
    NStep,
    Priorities,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.ops import native  # noqa: E402

SCHEMA: dict[str, Any] = {
    "shapes": [(3,), (2, 2), (), (), (), ()],
    "types": [ms.float32, ms.uint8, ms.float32, ms.bool_, ms.float32, ms.int16],
    "names": ["observation", "frame", "reward", "terminated", "gamma", "task"],
    "seed": 7,
}


def rows(n: int, start: int) -> list[np.ndarray]:
    t = np.arange(start, start + n)
    observation = np.stack([t, 2 * t, 3 * t], 1).astype(np.float32)
    frame = (t[:, None, None] + np.arange(4).reshape(2, 2)).astype(np.uint8)
    gamma, task = (0.5 + t % 3 / 4).astype(np.float32), (7 * t % 4 - 1).astype(np.int16)
    return [observation, frame, t.astype(np.float32), t % 5 == 4, gamma, task]


def told(what: str, value: Any) -> None:
    parts = value if isinstance(value, tuple) else (value,)
    print(what, [p.asnumpy().tolist() if isinstance(p, ms.Tensor) else p for p in parts])


def drive(name: str, buffer: Any, ends: bool) -> None:
    """Fill the buffer beyond its end, draw, and change row state."""
    for i in range(5):
        batch = rows(9, 9 * i)
        buffer.insert(batch, end=batch[3]) if ends else buffer.insert(batch)
        told(f"{name}: size", buffer.size())
    told(f"{name}: rows", buffer.get_item([0, 5, -1]))
    draw = buffer._front.calls.sample  # without the look at the rows before it, which uses MindSpore's operators
    if buffer.prioritized:
        drawn = [draw() for _ in range(3)]
        told(f"{name}: invalid", buffer.update_priorities(drawn[0][0], np.linspace(0.1, 2, 8, dtype=np.float32)))
        drawn += [draw(beta=0.5)]
    else:
        drawn = [draw() for _ in range(3)] + [draw((3, -2))]
    for batch in drawn:
        told(f"{name}: sample", batch)
    if buffer.weighted:
        told(f"{name}: deleted", buffer.delete(np.array([40, 41, 3])))
        buffer.advance(2)
        told(f"{name}: info", buffer.info(np.array([44, 40, 30, 2])))


class Learner(ms.nn.Cell):
    """Inserts and draws in one graph."""

    def __init__(self, cls: Any, **options: Any) -> None:
        super().__init__()
        self.replay = cls(sample_size=4, capacity=16, **SCHEMA, **options)

    def construct(self, *row: Any) -> Any:
        self.replay.insert(row)
        return self.replay.sample(with_indices=True)


class Tasks(ms.nn.Cell):
    """Draws groups twice in one graph."""

    def __init__(self, replay: EpisodeReplayBuffer) -> None:
        super().__init__()
        self.replay = replay

    def construct(self) -> Any:
        return self.replay.sample_groups("task", 2, 3) + self.replay.sample_groups("task", 2, 3, ordered=False)


drive("uniform", ReplayBuffer(8, 32, **SCHEMA), False)
drive("distinct, ordered", ReplayBuffer(8, 32, replace=False, ordered=True, **SCHEMA), False)
drive("limits", ReplayBuffer(8, 32, max_use=2, max_staleness=3, **SCHEMA), False)
drive("prioritized", PrioritizedReplayBuffer(8, 32, **SCHEMA), False)
drive("sequences", SequenceReplayBuffer(8, 32, sequence_length=4, burn_in=1, **SCHEMA), True)
drive("prioritized sequences", SequenceReplayBuffer(8, 32, sequence_length=4, priorities=Priorities(), **SCHEMA), True)
drive("3-step returns", ReplayBuffer(8, 32, views=[NStep(3, 0.9)], **SCHEMA), True)
stacks = [FrameStack(3, observation="frame", padding="first"), NStep(3, 0.9, discount="gamma")]
drive("stacks and discounts", ReplayBuffer(8, 32, views=stacks, **SCHEMA), True)
episodes = EpisodeReplayBuffer(2, 32, max_episode_length=8, **SCHEMA)
drive("episodes", episodes, True)
for groups, size in ((1, 3), (2, 5), (4, 20)):
    for ordered in (True, False):
        told("groups", episodes.sample_groups("task", groups, size, ordered=ordered))
try:
    episodes.sample_groups("task", 5, 1)
except RuntimeError as error:
    print("groups:", error)

ms.set_context(mode=ms.GRAPH_MODE)
learner = Learner(PrioritizedReplayBuffer)
for i in range(4):
    told("learner", learner(*map(ms.Tensor, rows(6, 6 * i))))
tasks = Tasks(episodes)
for _ in range(2):
    told("tasks", tasks())
if native.on_cpu():
    print("failed True True")
else:  # the next call reports a failure in a graph, and the graph still works
    few = Learner(ReplayBuffer, replace=False, weighted=True)
    few(*map(ms.Tensor, rows(3, 0)))
    try:
        few.replay.size()
        heard = False
    except RuntimeError as error:
        heard = "'replay_sample' failed in a graph that ran before this call" in str(error)
    again = few(*map(ms.Tensor, rows(3, 3)))[0].asnumpy()
    print("failed", heard, bool(np.all((again >= 0) & (again < 6))))
