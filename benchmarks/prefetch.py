"""Times a learner's steps with `Prefetch`, which draws batches ahead in a thread, against batches drawn by a call.

    python benchmarks/prefetch.py [--rounds 31] [--json FILE]

Two learners, each a compiled step that trains a linear network on a batch of 256: Atari's pairs of observations, 2 x
(84, 84, 4) uint8, 14 MB, and CartPole's four columns. Three ways to get the batch: `sample` called from Python,
`Prefetch`, and `sample` within the learner's graph. Rounds are interleaved; medians are printed with quartiles, for
ratios those of the rounds' ratios. No rows are inserted meanwhile.
"""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from measuring import MICRO, arguments, measure, once, show
from mindspore import nn, ops

from mindspore_replay import Prefetch, ReplayBuffer

BATCH, DEPTH = 256, 2
CASES: dict[str, dict[str, Any]] = {
    "Atari": {"shape": (84, 84, 4), "dtype": "uint8", "capacity": 4096, "steps": 2},
    "CartPole": {"shape": (4,), "dtype": "float32", "capacity": 1 << 16, "steps": 20},
}
WAYS = ("call", "prefetch", "graph")


def filled(shape: tuple[int, ...], dtype: str, capacity: int) -> ReplayBuffer:
    buffer = ReplayBuffer(
        sample_size=BATCH,
        capacity=capacity,
        shapes=[shape, (), (), shape],
        types=[dtype, "int32", "float32", dtype],
        seed=0,
    )
    for _ in range(capacity // BATCH):
        columns = zip(buffer.shapes, buffer.columns.numpy_types, strict=True)
        buffer.insert([np.ones((BATCH, *row), kind) for row, kind in columns])
    return buffer


class Learner(nn.Cell):
    """A step of Q-learning with a linear network, light enough that the time of the batch matters.

    Args:
        buffer (ReplayBuffer): The buffer to sample from.
        in_graph (bool): True if the step itself samples.
    """

    def __init__(self, buffer: ReplayBuffer, in_graph: bool) -> None:
        super().__init__()
        self.buffer = buffer
        self.in_graph = in_graph
        width = int(np.prod(buffer.shapes[0]))
        self.network = nn.Dense(width, 4, weight_init="zeros")
        weights = list(self.network.trainable_params())
        self.optimizer = nn.SGD(weights, 1e-6)
        self.update = ops.value_and_grad(self.loss, None, weights)

    def loss(self, observation, action, reward, following):
        q = ops.gather_elements(self.network(observation), 1, ops.reshape(action, (-1, 1)))
        target = reward + 0.99 * ops.reduce_max(ops.stop_gradient(self.network(following)), 1)
        return ops.reduce_mean(ops.square(target - ops.reshape(q, (-1,))))

    def construct(self, *batch):
        if self.in_graph:
            batch = self.buffer.sample()
        observation, action, reward, following = batch
        flat = tuple(ops.reshape(ops.cast(x, ms.float32), (BATCH, -1)) for x in (observation, following))
        loss, gradients = self.update(flat[0], action, reward, flat[1])
        self.optimizer(gradients)
        return loss


class Timer:
    """Times some steps with one way to get batches, and the share of drawing that is hidden."""

    def __init__(self, buffer: ReplayBuffer, way: str, steps: int) -> None:
        self.learner = Learner(buffer, way == "graph")
        self.way, self.steps, self.buffer = way, steps, buffer
        self.batches = Prefetch(buffer, DEPTH) if way == "prefetch" else None
        self.hidden: list[float] = []

    def step(self) -> None:
        batch = () if self.way == "graph" else (self.batches or self.buffer).sample()
        self.learner(*batch).asnumpy()

    def __call__(self) -> float:
        seconds = once(self.step, self.steps)
        if self.batches is not None:
            self.hidden.append(self.batches.statistics().share)
        return seconds


def cases() -> tuple[dict[str, Callable[[], float]], dict[str, Timer]]:
    """Return the timers, each in seconds per step, and those among them that draw ahead."""
    timers: dict[str, Callable[[], float]] = {}
    ahead = {}
    for name, case in CASES.items():
        buffer = filled(case["shape"], case["dtype"], case["capacity"])
        for way in WAYS:
            timers[f"{name} {way}"] = timer = Timer(buffer, way, case["steps"])
            if timer.batches is not None:
                ahead[name] = timer
        batch = buffer.sample()
        learner = Learner(buffer, False)
        timers[f"{name} ready"] = lambda learner=learner, batch=batch, n=case["steps"]: once(
            lambda: learner(*batch).asnumpy(), n
        )
    return timers, ahead


def figures(times: dict[str, list[float]], ahead: dict[str, Timer]) -> dict[str, list[float]]:
    """Return the reported figures, by round."""
    report: dict[str, list[float]] = {}
    for name, timer in ahead.items():
        for way in ("ready", *WAYS):
            report[f"{name}: step, {WORDS[way]}"] = [seconds * MICRO for seconds in times[f"{name} {way}"]]
        for way in ("prefetch", "graph"):
            pairs = zip(times[f"{name} {way}"], times[f"{name} call"], strict=True)
            report[f"{name}: step, {WORDS[way]} / called"] = [a / b for a, b in pairs]
        report[f"{name}: share hidden / drawing, by statistics()"] = timer.hidden[-1:]
    return report


WORDS = {"ready": "batch ready", "call": "sample called", "prefetch": "Prefetch", "graph": "sample in the graph"}


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    timers, ahead = cases()
    times = measure(timers, options.rounds)
    for timer in ahead.values():
        timer.batches.close()
    show(figures(times, ahead), {}, options.json)


if __name__ == "__main__":
    main()
