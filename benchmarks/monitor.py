"""Times a `ReplayMonitor` against a DQN's step: the time of a reading, spread over the steps between two of them."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
from measuring import MICRO, arguments, measure, once, show
from mindspore import Tensor
from operators import BATCH, ROW, Update

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer, ReplayMonitor
from mindspore_replay.training import JSONLinesSink, TensorBoardSink

#: Rows of the buffer, and steps between two readings of it.
CASES = {"1e4 rows": (10_000, 1000), "1e5 rows": (100_000, 2000), "1e6 rows": (1_000_000, 10_000)}


def filled(buffer_cls: type, capacity: int) -> ReplayBuffer:
    """Return a full buffer of CartPole's columns."""
    shapes, types = [value.shape for value in ROW], [value.dtype.name for value in ROW]
    buffer = buffer_cls(sample_size=BATCH, capacity=capacity, shapes=shapes, types=types, seed=0)
    return buffer.insert([np.broadcast_to(value, (capacity, *value.shape)).copy() for value in ROW])


def timers(folder: Path) -> dict[str, Callable[[], float]]:
    """Return the timers of a round, each in seconds."""
    learner = Update(filled(ReplayBuffer, 100_000))
    row = [Tensor(value) for value in ROW]
    found: dict[str, Callable[[], float]] = {"DQN step": lambda: once(lambda: learner(*row).asnumpy(), 25)}
    for name, (capacity, _) in CASES.items():
        buffer = filled(PrioritizedReplayBuffer, capacity)
        buffer.update_priorities(np.arange(capacity), np.random.default_rng(0).exponential(1.0, capacity))
        sinks = [TensorBoardSink(folder / name), JSONLinesSink(folder / f"{name}.jsonl")]
        monitor = ReplayMonitor(buffer, sinks, 2**31 - 1)
        found[f"reading, {name}"] = lambda monitor=monitor: once(monitor.write, 1)
        found[f"step without a reading, {name}"] = lambda monitor=monitor: once(monitor.step, 1000)
    return found


def main() -> None:
    options = arguments(__doc__).parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    with tempfile.TemporaryDirectory() as folder:
        times = measure(timers(Path(folder)), options.rounds)
    report = {name: [seconds * MICRO for seconds in values] for name, values in times.items()}
    limits = {}
    for name, (_, every) in CASES.items():
        figure = f"monitor / DQN step, {name}, every {every}"
        parts = zip(times[f"reading, {name}"], times[f"step without a reading, {name}"], times["DQN step"], strict=True)
        report[figure] = [(reading / every + step) / dqn for reading, step, dqn in parts]
        limits[figure] = 0.01
    show(report, limits, options.json)


if __name__ == "__main__":
    main()
