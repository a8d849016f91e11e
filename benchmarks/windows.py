"""What samples of windows cost: sequences against a plain gather of as many rows, frame stacks against memcpy.

    python benchmarks/windows.py [--rounds 31] [--json FILE]

Compiled figures are differences and rounds are interleaved, as `operators.py` says. The gather takes other rows at each
repetition, as a sample does, so that neither finds its rows in a cache; memcpy goes through the frames in the same way.
"""

import statistics
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from measuring import MICRO, arguments, measure, once, show
from mindspore import Tensor, nn

from mindspore_replay import EpisodeReplayBuffer, FrameStack, ReplayBuffer, SequenceReplayBuffer
from mindspore_replay.ops import native
from mindspore_replay.ops.ring import row_shapes

REPEAT = 20
SEQUENCES, STEPS, WIDTH = 256, 80, 17
FRAMES, STACK, SIDE = 1 << 16, 4, 84
EPISODE = 500  # steps of an episode

#: The ratios that the project promises.
LIMITS = {
    "sample of 256 sequences of 80 / plain gather": 1.5,
    "sample of 32 stacks of 4 + 1 frames / memcpy": 1.3,
}


def filled(buffer: Any, rows: int, chunk: int = 1 << 16) -> Any:
    """The buffer after insertions of zeros, in episodes of equal length."""
    ends = np.arange(rows) % EPISODE == EPISODE - 1
    for begin in range(0, rows, chunk):
        n = min(chunk, rows - begin)
        columns = zip(buffer.shapes, buffer.columns.numpy_types, strict=True)
        buffer.insert([np.zeros((n, *shape), dtype) for shape, dtype in columns], end=ends[begin : begin + n])
    return buffer


class Body(nn.Cell):
    """A compiled body that repeats an operator of the buffer, or nothing."""

    def __init__(self, buffer: Any, operator: str) -> None:
        super().__init__()
        self.buffer = buffer
        self.operator = operator
        rows = tuple(np.zeros(shape, dtype) for shape, dtype in zip(buffer.shapes, buffer.columns.numpy_types))
        self.row = tuple(Tensor(row) for row in rows)

    def construct(self, x):
        for _ in range(REPEAT):
            x = x + 1
            if self.operator == "sample":
                self.buffer.sample()
            elif self.operator == "insert":
                self.buffer.insert(self.row)
        return x


class Gather(nn.Cell):
    """A compiled body that gathers as many rows as a sample of sequences, others at each repetition."""

    def __init__(self, buffer: SequenceReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer
        self.gather = native.custom("replay_gather_rows", row_shapes(len(buffer.types)), tuple(buffer.types))
        starts = np.random.default_rng(0).integers(0, buffer.capacity - STEPS, (REPEAT, SEQUENCES, 1))
        self.slots = tuple(Tensor(slots.reshape(-1)) for slots in starts + np.arange(STEPS))

    def construct(self, x):
        for i in range(REPEAT):
            x = x + 1
            self.gather(*self.buffer.buffer, self.slots[i])
        return x


def compiled(body: nn.Cell, calls: int = 2) -> Callable[[], float]:
    """Times some calls of a body; seconds a repetition."""
    start = Tensor(0, ms.int32)
    return lambda: once(lambda: body(start).asnumpy(), calls) / REPEAT


class Copies:
    """Copies as many bytes as a sample of stacks has, by memcpy, from another place to another each time, as a graph
    that repeats a sample does."""

    def __init__(self, buffer: ReplayBuffer, frames: int) -> None:
        self.source = buffer.buffer[0].asnumpy().reshape(-1)
        self.targets = np.zeros((REPEAT, frames * SIDE * SIDE), np.uint8)
        self.begin = self.turn = 0

    def __call__(self) -> None:
        target = self.targets[self.turn]
        self.turn = (self.turn + 1) % REPEAT
        self.begin = (self.begin + 7919 * SIDE * SIDE) % (self.source.size - target.size)
        np.copyto(target, self.source[self.begin : self.begin + target.size])


def sequences(capacity: int, **options: Any) -> SequenceReplayBuffer:
    buffer = SequenceReplayBuffer(
        sample_size=SEQUENCES,
        capacity=capacity,
        shapes=[(WIDTH,)],
        types=["float32"],
        sequence_length=STEPS,
        seed=0,
        **options,
    )
    return filled(buffer, capacity)


def cases() -> dict[str, Callable[[], float]]:
    """What is timed in every round, each giving seconds an operation."""
    timers = {}
    million = sequences(1 << 20)
    timers["gather"] = compiled(Gather(million))
    for operator in ("nothing", "sample", "insert"):
        timers[f"sequences {operator}"] = compiled(Body(million, operator))
    timers["sequences eager"] = lambda: once(million.sample, 20)
    for capacity in (10_000, 10_000_000):
        small = SequenceReplayBuffer(
            sample_size=32, capacity=capacity, shapes=[(4,)], types=["float32"], sequence_length=STEPS, seed=0
        )
        filled(small, capacity)
        for operator in ("nothing", "sample"):
            timers[f"sequences {operator} {capacity}"] = compiled(Body(small, operator))
    by_priority = sequences(1 << 20, prioritized=True, burn_in=40, stride=40, pad_end=True)
    timers["by priority"] = compiled(Body(by_priority, "sample"))
    episodes = EpisodeReplayBuffer(
        sample_size=32, capacity=1 << 20, shapes=[(WIDTH,)], types=["float32"], max_episode_length=EPISODE, seed=0
    )
    filled(episodes, 1 << 20)
    timers["episodes"] = compiled(Body(episodes, "sample"))
    shapes, types, names = [(SIDE, SIDE), (), ()], ["uint8", "int32", "float32"], ["observation", "action", "reward"]
    atari = ReplayBuffer(
        sample_size=32, capacity=FRAMES, shapes=shapes, types=types, names=names, views=[FrameStack(STACK)], seed=0
    )
    filled(atari, FRAMES, 1 << 12)
    for operator in ("nothing", "sample", "insert"):
        timers[f"atari {operator}"] = compiled(Body(atari, operator))
    copies = Copies(atari, 32 * 2 * STACK)
    timers["memcpy"] = lambda: once(copies, 20)
    return timers


def figures(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """What is reported, by round."""

    def less(name: str, nothing: str) -> list[float]:
        return [(a - b) * MICRO for a, b in zip(times[name], times[nothing], strict=True)]

    def ratio(above: list[float], below: list[float]) -> list[float]:
        return [statistics.median(above) / statistics.median(below)]

    sample, gather = less("sequences sample", "sequences nothing"), less("gather", "sequences nothing")
    stacks, memcpy = less("atari sample", "atari nothing"), [seconds * MICRO for seconds in times["memcpy"]]
    small, large = (less(f"sequences sample {c}", f"sequences nothing {c}") for c in (10_000, 10_000_000))
    return {
        "sample of 256 sequences of 80 / plain gather": ratio(sample, gather),
        "sample of 256 sequences of 80, compiled": sample,
        "plain gather of 256 x 80 rows, compiled": gather,
        "sample of 256 sequences of 80, eager": [seconds * MICRO for seconds in times["sequences eager"]],
        "insert into sequences, compiled": less("sequences insert", "sequences nothing"),
        "sample of 256 prioritized 40 + 80, compiled": less("by priority", "sequences nothing"),
        "sample of 32 episodes of 500, compiled": less("episodes", "sequences nothing"),
        "sample of 32 sequences of 80 x 4, capacity 1e4": small,
        "sample of 32 sequences of 80 x 4, capacity 1e7": large,
        "sample of 32 stacks of 4 + 1 frames / memcpy": ratio(stacks, memcpy),
        "sample of 32 stacks of 4 + 1 frames, compiled": stacks,
        "memcpy of the same bytes": memcpy,
        "insert a frame, compiled": less("atari insert", "atari nothing"),
    }


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    show(figures(measure(cases(), options.rounds)), LIMITS, options.json)


if __name__ == "__main__":
    main()
