"""Times the operators of buffers in compiled graphs, against their limits.

    python benchmarks/operators.py [--rounds 31] [--only REGEX] [--json FILE]

Figures are differences: a compiled body that repeats the operator less the same body without it, so that neither the
call of the graph nor the loop is counted. Rounds are interleaved, and medians are printed with quartiles. Half of the
rounds warm up: during its first fifty calls MindSpore tries different numbers of threads for a graph. The floor is an
operator that does nothing, with the arguments of an insertion, compiled for this by $CXX or g++. Samples of windows
stand beside a gather of as many rows, and memcpy of the bytes of stacks, at other places in each repetition.
"""

import atexit
import functools
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from measuring import MICRO, Case, Figure, arguments, less, measure_figures, micro, once, ratio, show
from mindspore import Tensor, nn, ops

from mindspore_replay import (
    FrameStack,
    Prefetch,
    Priorities,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)

SHAPES, TYPES = [(4,), (), (), (4,)], ["float32", "int32", "float32", "float32"]
ROW = [np.full(4, 0.5, np.float32), np.array(1, np.int32), np.array(1.0, np.float32), np.full(4, 0.25, np.float32)]
BATCH, REPEAT = 64, 50
NETWORKS = 4  # of each kind: the location of a graph's memory changes its time by some percent
SIZES = {"2^14": 1 << 14, "2^17": 1 << 17, "2^20": 1 << 20, "2^24": 1 << 24}
SEQUENCES, STEPS, EPISODE = 256, 80, 500
FRAMES, STACKED, SIDE = 1 << 16, 32 * 2 * 4, 84  # STACKED: frames of a sample of 32 stacks of 4, and of the next ones

WIDE: dict[str, Any] = {"shapes": [(17,), (6,), (1,)], "types": ["float32"] * 3, "seed": 0}
RECURRENT: dict[str, Any] = {"types": ["float32"], "sequence_length": STEPS, "seed": 0}
ATARI: dict[str, Any] = {"shapes": [(SIDE, SIDE), (), ()], "types": ["uint8", "int32", "float32"], "seed": 0}
KINDS: dict[str, Callable[[int], Any]] = {
    "uniform": lambda n: ReplayBuffer(BATCH, n, SHAPES, TYPES, seed=0),
    "prioritized": lambda n: PrioritizedReplayBuffer(256, n, **WIDE),
    "composite": lambda n: PrioritizedReplayBuffer(256, n, **WIDE, backend="composite"),
    "sequences": lambda n: SequenceReplayBuffer(SEQUENCES, n, shapes=[(17,)], **RECURRENT),
    "by priority": lambda n: SequenceReplayBuffer(
        SEQUENCES, n, shapes=[(17,)], **RECURRENT, priorities=Priorities(), burn_in=40, stride=40, pad_end=True
    ),
    "narrow": lambda n: SequenceReplayBuffer(32, n, shapes=[(4,)], **RECURRENT),
    "frames": lambda n: ReplayBuffer(32, n, **ATARI, names=["observation", "action", "reward"], views=[FrameStack(4)]),
}

#: The limits that the project promises, in microseconds or as a ratio.
LIMITS = {
    "compiled insert, 1 row": 5.0,
    "compiled sample, 64 rows": 15.0,
    "compiled insert, 1 row / the floor": 1.5,
    "compiled sample, 64 rows / the floor": 2.5,
    "DQN step: insert + sample + update / update": 1.05,
    "capacity 1e7 / 1e4: compiled insert": 1.5,
    "capacity 1e7 / 1e4: compiled sample": 1.5,
    "prioritized sample + update, compiled, 2^20": 100.0,
    "insert with priority, compiled, 2^20": 10.0,
    "prioritized sample + update, composite, 2^20": 50_000.0,
    "sample of 256 sequences of 80 / plain gather": 1.5,
    "sample of 32 stacks of 4 + 1 frames / memcpy": 1.3,
}


def zeros(buffer: Any, n: int) -> list[np.ndarray]:
    columns = zip(buffer.shapes, buffer.columns.numpy_types, strict=True)
    return [np.zeros((n, *shape), dtype) for shape, dtype in columns]


@functools.cache
def full(kind: str, capacity: int) -> Any:
    """Return a buffer of which every row is written: by priority with random ones, and windows in episodes."""
    buffer, random = KINDS[kind](capacity), np.random.default_rng(0)
    for begin in range(0, capacity, 1 << 14):
        n = min(1 << 14, capacity - begin)
        more = {} if kind == "uniform" else {"end": (begin + np.arange(n)) % EPISODE == EPISODE - 1}
        if kind in ("prioritized", "composite"):
            more = {"priority": random.random(n)}
        buffer.insert(zeros(buffer, n), **more)
    return buffer


@functools.cache
def empty_library() -> str:
    """Compile a kernel that does nothing, and return its name for `ops.Custom`."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    source, library = Path(folder.name) / "empty.cc", Path(folder.name) / "empty.so"
    source.write_text(
        "#include <cstdint>\n"
        'extern "C" int Empty(int, void **, int *, int64_t **, const char **, void *, void *) { return 0; }\n'
    )
    subprocess.run([os.environ.get("CXX", "g++"), "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return f"{library}:Empty"


@ms.jit_class
class Empty:
    """The operator that does nothing, on the state of a buffer."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.state = (*buffer.buffer, buffer.head, buffer.count)
        self.kernel = ops.Custom(empty_library(), lambda *_: (1,), lambda *_: ms.int32, func_type="aot")
        self.kernel.add_prim_attr("side_effect_mem", True)

    def __call__(self, *rows):
        return self.kernel(*self.state, *rows)


class Repeat(nn.Cell):
    """A compiled body that repeats an operator of the buffer, or nothing, `REPEAT` times."""

    def __init__(self, buffer: Any, operator: str) -> None:
        super().__init__()
        self.buffer, self.operator = buffer, operator
        self.row = tuple(Tensor(rows[0]) for rows in zeros(buffer, 1))
        self.priority = Tensor(0.5, ms.float32)
        self.empty = Empty(buffer) if operator == "empty" else None
        starts = np.random.default_rng(0).integers(0, 1 << 19, (REPEAT if operator == "gather" else 0, SEQUENCES, 1))
        self.slots = tuple(Tensor(slots.reshape(-1)) for slots in starts + np.arange(STEPS))

    def step(self, turn) -> None:
        """Run the operator once. New priorities depend on the sample, as a learner's do."""
        if self.operator == "empty":
            self.empty(*self.row)
        elif self.operator == "insert":
            self.buffer.insert(self.row)
        elif self.operator == "insert with priority":
            self.buffer.insert(self.row, priority=self.priority)
        elif self.operator == "sample":
            self.buffer.sample()
        elif self.operator == "gather":
            self.buffer.get_item(self.slots[turn])
        elif self.operator == "sample + update":
            indices, weights = self.buffer.sample()[:2]
            self.buffer.update_priorities(indices, weights)

    def construct(self, x):
        for turn in range(REPEAT):
            x = x + 1
            self.step(turn)
        return x


class WhileRepeat(Repeat):
    """The same in a ``while`` loop, where MindSpore passes every Parameter of the body on in each iteration."""

    def construct(self, x):
        while x < REPEAT:
            x = x + 1
            self.step(0)
        return x


class Update(nn.Cell):
    """A DQN update, on a batch from the buffer, after an insertion into it if a row is given; or on a given batch."""

    def __init__(self, buffer: ReplayBuffer | None) -> None:
        super().__init__()
        self.buffer = buffer
        self.network, self.target = (nn.SequentialCell(nn.Dense(4, 128), nn.ReLU(), nn.Dense(128, 2)) for _ in range(2))
        self.optimizer = nn.Adam(self.network.trainable_params(), 1e-3)
        self.step = ops.value_and_grad(self.loss, None, self.optimizer.parameters)

    def loss(self, observation, action, reward, next_observation):
        value = ops.gather_elements(self.network(observation), 1, ops.expand_dims(action, 1))[:, 0]
        target = reward + 0.99 * self.target(next_observation).max(1)
        return ops.mean(ops.square(value - ops.stop_gradient(target)))

    def construct(self, *batch):
        if self.buffer is not None:
            if batch:
                self.buffer.insert(batch)
            batch = self.buffer.sample()
        loss, gradients = self.step(*batch)
        self.optimizer(gradients)
        return loss


def dqn_steps() -> dict[str, Callable[[], Callable[[], Any]]]:
    """Return makers of a DQN's step: its row is stored, or its batch drawn, in one way or another."""

    def alone() -> Callable[[], Any]:
        network, batch = Update(None), [Tensor(np.stack([value] * BATCH)) for value in ROW]
        return lambda: network(*batch)

    def in_graph(make: Callable[[np.ndarray], Tensor] | None) -> Callable[[], Any]:
        network, row = Update(full.__wrapped__("uniform", 100_000)), [Tensor(value) for value in ROW]
        return lambda: network(*(map(make, ROW) if make else row))

    def inserted_first() -> Callable[[], Any]:
        network = Update(full.__wrapped__("uniform", 100_000))

        def step() -> Tensor:
            network.buffer.insert(ROW)
            return network()

        return step

    def drawn(ahead: bool) -> Callable[[], Any]:
        network, source = Update(None), full.__wrapped__("uniform", 100_000)
        if ahead:
            source = Prefetch(source, 2)
            atexit.register(source.close)
        return lambda: network(*source.sample())

    return {
        "alone": alone,
        "with buffer": lambda: in_graph(None),
        "row in the graph": lambda: in_graph(Tensor),
        "row from Python": inserted_first,
        "batch sampled by a call": lambda: drawn(False),
        "batch from Prefetch": lambda: drawn(True),
    }


def memcpy() -> Callable[[], float]:
    """Time a copy of the bytes of a sample of stacks."""
    source = full("frames", FRAMES).buffer[0].asnumpy().reshape(-1)
    targets, turn = np.zeros((20, STACKED * SIDE * SIDE), np.uint8), 0

    def copy() -> None:
        nonlocal turn
        target, turn = targets[turn % 20], turn + 1
        begin = turn * 7919 * SIDE * SIDE % (source.size - target.size)
        np.copyto(target, source[begin : begin + target.size])

    return lambda: once(copy, 20)


def compiled(kind: str, capacity: int, operator: str, body: type[Repeat] = Repeat, calls: int = 2) -> Case:
    """Time some calls of a body, in seconds per repetition."""

    def case() -> Callable[[], float]:
        graph, start = body(full(kind, capacity), operator), Tensor(0, ms.int32)
        return lambda: once(lambda: graph(start).asnumpy(), calls) / REPEAT

    return case


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {"memcpy": memcpy}
    for capacity in (10_000, 100_000, 1_000_000, 10_000_000):
        for operator in ("nothing", "insert", "sample", "empty"):
            found[f"uniform {capacity} {operator}"] = compiled("uniform", capacity, operator, calls=10)
            found[f"while {capacity} {operator}"] = compiled("uniform", capacity, operator, WhileRepeat, 4)
    others = {kind: SIZES.values() for kind in ("prioritized", "composite")}
    windows = {"sequences": [1 << 20], "by priority": [1 << 20], "narrow": [10_000, 10_000_000], "frames": [FRAMES]}
    for kind, capacities in {**others, **windows}.items():
        weighted = ("insert with priority", "sample + update") if kind in others else ()
        for operator in ("nothing", *(weighted or ("insert", "sample", "gather"))):
            for capacity in capacities:
                found[f"{kind} {capacity} {operator}"] = compiled(kind, capacity, operator)
    for i in range(NETWORKS):  # in another order in each second turn
        for name, make in list(dqn_steps().items())[:: 1 if i % 2 else -1]:
            found[f"step {name} {i}"] = functools.partial(dqn_step, make)
    return found


def dqn_step(make: Callable[[], Callable[[], Any]]) -> Callable[[], float]:
    step = make()
    return lambda: once(lambda: step().asnumpy(), 25)


def difference(kind: str, capacity: int, operator: str) -> Figure:
    """Return the microseconds of an operator in a compiled loop."""
    return less(f"{kind} {capacity} {operator}", f"{kind} {capacity} nothing")


def steps(name: str) -> Figure:
    """Return the microseconds of a DQN's step, over all networks."""
    return lambda times: [t * MICRO for i in range(NETWORKS) for t in times[f"step {name} {i}"]]


def uniform_figures() -> dict[str, Figure]:
    insert, sample, floor = (difference("uniform", 100_000, name) for name in ("insert", "sample", "empty"))
    in_graph, called = steps("row in the graph"), steps("batch sampled by a call")
    figures = {
        "compiled insert, 1 row": insert,
        "compiled sample, 64 rows": sample,
        "the floor: an operator that does nothing": floor,
        "compiled insert, 1 row / the floor": ratio(insert, floor),
        "compiled sample, 64 rows / the floor": ratio(sample, floor),
        "DQN step: insert + sample + update / update": ratio(steps("with buffer"), steps("alone")),
        "DQN update alone": steps("alone"),
        "DQN step, its row inserted in the graph": in_graph,
        "DQN step, its row inserted from Python": steps("row from Python"),
        "DQN step, its row inserted from Python / in the graph": ratio(steps("row from Python"), in_graph),
        "DQN step, its batch sampled by a call": called,
        "DQN step, its batch from Prefetch / by a call": ratio(steps("batch from Prefetch"), called),
        "DQN step, its batch from the graph / by a call": ratio(steps("with buffer"), called),
        "insert, 1 row, in a while loop": difference("while", 100_000, "insert"),
        "sample, 64 rows, in a while loop": difference("while", 100_000, "sample"),
    }
    for operator in ("insert", "sample"):
        small, large = (difference("uniform", capacity, operator) for capacity in (10_000, 10_000_000))
        figures[f"capacity 1e7 / 1e4: compiled {operator}"] = ratio(large, small)
        for capacity in (10_000, 1_000_000, 10_000_000):
            figures[f"compiled {operator}, capacity {capacity:.0e}"] = difference("uniform", capacity, operator)
    return figures


def prioritized_figures() -> dict[str, Figure]:
    both, composite = "sample + update", difference("composite", SIZES["2^20"], "sample + update")
    figures = {"prioritized sample + update, composite, 2^20": composite}
    for size, capacity in SIZES.items():
        figures[f"prioritized sample + update, compiled, {size}"] = difference("prioritized", capacity, both)
        figures[f"insert with priority, compiled, {size}"] = difference("prioritized", capacity, "insert with priority")
    return figures


def window_figures() -> dict[str, Figure]:
    sample, gather, insert = (difference("sequences", 1 << 20, name) for name in ("sample", "gather", "insert"))
    stacks = difference("frames", FRAMES, "sample")
    return {
        "sample of 256 sequences of 80 / plain gather": ratio(sample, gather),
        "sample of 256 sequences of 80, compiled": sample,
        "plain gather of 256 x 80 rows, compiled": gather,
        "insert into sequences, compiled": insert,
        "sample of 256 prioritized 40 + 80, compiled": difference("by priority", 1 << 20, "sample"),
        "sample of 32 sequences of 80 x 4, capacity 1e4": difference("narrow", 10_000, "sample"),
        "sample of 32 sequences of 80 x 4, capacity 1e7": difference("narrow", 10_000_000, "sample"),
        "sample of 32 stacks of 4 + 1 frames / memcpy": ratio(stacks, micro("memcpy")),
        "sample of 32 stacks of 4 + 1 frames, compiled": stacks,
        "memcpy of the same bytes": micro("memcpy"),
        "insert a frame, compiled": difference("frames", FRAMES, "insert"),
    }


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    report: dict[str, list[float]] = {}
    for figures in (uniform_figures, prioritized_figures, window_figures):
        report |= measure_figures(cases(), figures(), options.only, options.rounds)
        full.cache_clear()
    show(report, LIMITS, options.json)


if __name__ == "__main__":
    main()
