"""Times samples of windows: sequences against a plain gather of as many rows, frame stacks against memcpy.

    python benchmarks/windows.py [--rounds 31] [--only REGEX] [--json FILE]

Compiled figures are differences and rounds are interleaved, as in `operators.py`. The gather takes other rows at each
repetition, as a sample does, so neither finds its rows in a cache; memcpy goes through the frames in the same way.
"""

import functools
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from measuring import Case, Figure, arguments, less, measure_figures, micro, once, only_argument, ratio, show
from mindspore import Tensor, nn

from mindspore_replay import EpisodeReplayBuffer, FrameStack, Priorities, ReplayBuffer, SequenceReplayBuffer

REPEAT = 20
SEQUENCES, STEPS, WIDTH = 256, 80, 17
FRAMES, STACK, SIDE = 1 << 16, 4, 84
EPISODE = 500  # steps of an episode

#: The ratios that the project promises.
LIMITS = {"sample of 256 sequences of 80 / plain gather": 1.5, "sample of 32 stacks of 4 + 1 frames / memcpy": 1.3}


def zeros(buffer: Any, n: int) -> list[np.ndarray]:
    """Return n rows of zeros."""
    return [np.zeros((n, *column.shape[1:]), ms.dtype_to_nptype(column.dtype)) for column in buffer.buffer]


def filled(buffer: Any, rows: int, chunk: int = 1 << 16) -> Any:
    """Insert zeros into the buffer, in episodes of equal length, and return it."""
    ends = np.arange(rows) % EPISODE == EPISODE - 1
    for begin in range(0, rows, chunk):
        n = min(chunk, rows - begin)
        buffer.insert(zeros(buffer, n), end=ends[begin : begin + n])
    return buffer


class Body(nn.Cell):
    """A compiled body that repeats an operator of the buffer, or nothing."""

    def __init__(self, buffer: Any, operator: str) -> None:
        super().__init__()
        self.buffer = buffer
        self.operator = operator
        self.row = tuple(Tensor(rows[0]) for rows in zeros(buffer, 1))

    def construct(self, x):
        for _ in range(REPEAT):
            x = x + 1
            if self.operator == "sample":
                self.buffer.sample()
            elif self.operator == "insert":
                self.buffer.insert(self.row)
        return x


class Gather(nn.Cell):
    """A compiled body that gathers as many rows as a sample of sequences, other rows at each repetition."""

    def __init__(self, buffer: SequenceReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer
        starts = np.random.default_rng(0).integers(0, buffer.capacity - STEPS, (REPEAT, SEQUENCES, 1))
        self.slots = tuple(Tensor(slots.reshape(-1)) for slots in starts + np.arange(STEPS))

    def construct(self, x):
        for i in range(REPEAT):
            x = x + 1
            self.buffer.get_item(self.slots[i])
        return x


def compiled(body: nn.Cell, calls: int = 2) -> Callable[[], float]:
    """Time some calls of a body, in seconds per repetition."""
    start = Tensor(0, ms.int32)
    return lambda: once(lambda: body(start).asnumpy(), calls) / REPEAT


class Copies:
    """Copies the bytes of a sample of stacks by memcpy, between other places each time, as in a graph."""

    def __init__(self, buffer: ReplayBuffer, frames: int) -> None:
        self.source = buffer.buffer[0].asnumpy().reshape(-1)
        self.targets = np.zeros((REPEAT, frames * SIDE * SIDE), np.uint8)
        self.begin = self.turn = 0

    def __call__(self) -> None:
        target = self.targets[self.turn]
        self.turn = (self.turn + 1) % REPEAT
        self.begin = (self.begin + 7919 * SIDE * SIDE) % (self.source.size - target.size)
        np.copyto(target, self.source[self.begin : self.begin + target.size])


@functools.cache
def sequences(**options: Any) -> SequenceReplayBuffer:
    """Return a full buffer of 2^20 steps."""
    buffer = SequenceReplayBuffer(
        sample_size=SEQUENCES,
        capacity=1 << 20,
        shapes=[(WIDTH,)],
        types=["float32"],
        sequence_length=STEPS,
        seed=0,
        **options,
    )
    return filled(buffer, 1 << 20)


@functools.cache
def narrow_sequences(capacity: int) -> SequenceReplayBuffer:
    """Return a full buffer of narrow steps."""
    buffer = SequenceReplayBuffer(
        sample_size=32, capacity=capacity, shapes=[(4,)], types=["float32"], sequence_length=STEPS, seed=0
    )
    return filled(buffer, capacity)


def episodes() -> EpisodeReplayBuffer:
    """Return a full buffer of episodes."""
    buffer = EpisodeReplayBuffer(
        sample_size=32, capacity=1 << 20, shapes=[(WIDTH,)], types=["float32"], max_episode_length=EPISODE, seed=0
    )
    return filled(buffer, 1 << 20)


@functools.cache
def atari() -> ReplayBuffer:
    """Return a full buffer of frames."""
    shapes, types, names = [(SIDE, SIDE), (), ()], ["uint8", "int32", "float32"], ["observation", "action", "reward"]
    buffer = ReplayBuffer(
        sample_size=32, capacity=FRAMES, shapes=shapes, types=types, names=names, views=[FrameStack(STACK)], seed=0
    )
    return filled(buffer, FRAMES, 1 << 12)


def memcpy() -> Callable[[], float]:
    """Time memcpy of a sample of stacks."""
    copies = Copies(atari(), 32 * 2 * STACK)
    return lambda: once(copies, 20)


def cases() -> dict[str, Case]:
    """Return the cases."""

    def body(make: Callable[[], Any], operator: str) -> Case:
        return lambda: compiled(Body(make(), operator))

    made: dict[str, Case] = {
        "gather": lambda: compiled(Gather(sequences())),
        "sequences from Python": lambda: functools.partial(once, sequences().sample, 20),
        "by priority": body(lambda: sequences(priorities=Priorities(), burn_in=40, stride=40, pad_end=True), "sample"),
        "episodes": body(episodes, "sample"),
        "memcpy": memcpy,
    }
    for operator in ("nothing", "sample", "insert"):
        made[f"sequences {operator}"] = body(sequences, operator)
        made[f"atari {operator}"] = body(atari, operator)
        for capacity in (10_000, 10_000_000):
            made[f"sequences {operator} {capacity}"] = body(functools.partial(narrow_sequences, capacity), operator)
    return made


def figures() -> dict[str, Figure]:
    """Return the figures."""
    sample, gather = less("sequences sample", "sequences nothing"), less("gather", "sequences nothing")
    stacks = less("atari sample", "atari nothing")
    small, large = (less(f"sequences sample {c}", f"sequences nothing {c}") for c in (10_000, 10_000_000))
    return {
        "sample of 256 sequences of 80 / plain gather": ratio(sample, gather),
        "sample of 256 sequences of 80, compiled": sample,
        "plain gather of 256 x 80 rows, compiled": gather,
        "from Python: sample of 256 sequences of 80": micro("sequences from Python"),
        "insert into sequences, compiled": less("sequences insert", "sequences nothing"),
        "sample of 256 prioritized 40 + 80, compiled": less("by priority", "sequences nothing"),
        "sample of 32 episodes of 500, compiled": less("episodes", "sequences nothing"),
        "sample of 32 sequences of 80 x 4, capacity 1e4": small,
        "sample of 32 sequences of 80 x 4, capacity 1e7": large,
        "sample of 32 stacks of 4 + 1 frames / memcpy": ratio(stacks, micro("memcpy")),
        "sample of 32 stacks of 4 + 1 frames, compiled": stacks,
        "memcpy of the same bytes": micro("memcpy"),
        "insert a frame, compiled": less("atari insert", "atari nothing"),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    only_argument(parser)
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    show(measure_figures(cases(), figures(), options.only, options.rounds), LIMITS, options.json)


if __name__ == "__main__":
    main()
