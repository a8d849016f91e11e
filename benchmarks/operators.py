"""Times each operator of a buffer, against its limits.

    python benchmarks/operators.py [--rounds 31] [--only REGEX] [--json FILE]

Compiled figures are differences: a compiled body that repeats the operator less the same body without it, so that
neither the call of the graph nor the loop is counted. Rounds are interleaved, and medians are printed with quartiles.
Half of the rounds warm up: during its first fifty calls MindSpore tries different numbers of threads for a graph. The
floor is an operator that does nothing, with the arguments of an insertion, compiled for this by $CXX or g++.
"""

import atexit
import functools
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
from measuring import MICRO, Case, Figure, arguments, less, measure_figures, micro, once, only_argument, ratio, show
from mindspore import Tensor, nn, ops

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

SHAPES = [(4,), (), (), (4,)]
TYPES = ["float32", "int32", "float32", "float32"]
ROW = [np.full(4, 0.5, np.float32), np.array(1, np.int32), np.array(1.0, np.float32), np.full(4, 0.25, np.float32)]
BATCH = 64
REPEAT = 50
NETWORKS = 4  # of each kind: the location of a graph's memory changes its time by some percent

WIDE = (17, 6, 1, 17)  # widths of the columns of a million rows, float32
WIDTHS = [(17,), (6,), (1,)]  # the columns of the prioritized buffers, float32
DRAWS = 256
SIZES = {"2^14": 1 << 14, "2^17": 1 << 17, "2^20": 1 << 20, "2^24": 1 << 24}

#: The limits that the project promises, in microseconds or as a ratio.
LIMITS = {
    "compiled insert, 1 row": 5.0,
    "compiled sample, 64 rows": 15.0,
    "compiled insert, 1 row / the floor": 1.5,
    "compiled sample, 64 rows / the floor": 2.5,
    "from Python: insert of one row": 6.0,
    "from Python: sample of 64": 15.0,
    "DQN step: insert + sample + update / update": 1.05,
    "capacity 1e7 / 1e4: compiled insert": 1.5,
    "capacity 1e7 / 1e4: compiled sample": 1.5,
    "prioritized sample + update of 256, compiled": 100.0,
    "from Python: sample + update of 256 by priority": 130.0,
    "insert 1 row with priority, compiled": 10.0,
    "prioritized sample + update of 256, composite": 50_000.0,
}


@functools.cache
def filled(capacity: int) -> ReplayBuffer:
    """Return a buffer with every row written, so that its memory is allocated."""
    buffer = ReplayBuffer(sample_size=BATCH, capacity=capacity, shapes=SHAPES, types=TYPES, seed=0)
    chunk = min(capacity, 1_000_000)
    rows = [np.zeros((chunk, *shape), dtype) for shape, dtype in zip(SHAPES, TYPES, strict=True)]
    for _ in range(capacity // chunk):
        buffer.insert(rows)
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

    def __init__(self, buffer: ReplayBuffer, operator: str) -> None:
        super().__init__()
        self.buffer = buffer
        self.operator = operator
        self.row = tuple(Tensor(value) for value in ROW)
        self.empty = Empty(buffer) if operator == "empty" else None

    def step(self) -> None:
        """Run the operator once."""
        if self.operator == "empty":
            self.empty(*self.row)
        elif self.operator == "insert":
            self.buffer.insert(self.row)
        elif self.operator == "sample":
            self.buffer.sample()

    def construct(self, x):
        for _ in range(REPEAT):
            x = x + 1
            self.step()
        return x


class WhileRepeat(Repeat):
    """The same in a ``while`` loop, where MindSpore passes every Parameter of the body on in each iteration."""

    def construct(self, x):
        while x < REPEAT:
            x = x + 1
            self.step()
        return x


@functools.cache
def filled_by_priority(capacity: int, backend: str) -> PrioritizedReplayBuffer:
    """Return a full prioritized buffer with random priorities."""
    types = ["float32"] * len(WIDTHS)
    buffer = PrioritizedReplayBuffer(
        sample_size=DRAWS, capacity=capacity, shapes=WIDTHS, types=types, seed=0, backend=backend
    )
    chunk = min(capacity, 1 << 20)
    rows = [np.zeros((chunk, *shape), np.float32) for shape in WIDTHS]
    for i in range(capacity // chunk):
        buffer.insert(rows, priority=np.random.default_rng(i).random(chunk))
    return buffer


class RepeatByPriority(Repeat):
    """The same for a prioritized buffer."""

    def __init__(self, buffer: PrioritizedReplayBuffer, operator: str) -> None:
        super().__init__(buffer, operator)
        self.row = tuple(Tensor(np.full(shape, 0.5, np.float32)) for shape in WIDTHS)
        self.priority = Tensor(0.5, ms.float32)

    def step(self) -> None:
        """Run the operator once. The new priorities depend on the sample, as a learner's do."""
        if self.operator == "insert":
            self.buffer.insert(self.row, priority=self.priority)
        elif self.operator == "sample + update":
            indices, weights = self.buffer.sample()[:2]
            self.buffer.update_priorities(indices, weights)


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


def compiled(body: Repeat, calls: int) -> Callable[[], float]:
    """Time some calls of a body, in seconds per repetition."""
    start = Tensor(0, ms.int32)
    return lambda: once(lambda: body(start).asnumpy(), calls) / REPEAT


def by_priority(operator: str, size: str, backend: str = "native") -> Case:
    """Return an operator of a prioritized buffer, or nothing, in a compiled loop."""
    return lambda: compiled(RepeatByPriority(filled_by_priority(SIZES[size], backend), operator), 2)


def prioritized_from_python() -> Callable[[], float]:
    """Sample, and update the priorities of the sample."""
    buffer = filled_by_priority(SIZES["2^20"], "native")
    priorities = np.random.default_rng(0).random(DRAWS).astype(np.float32)
    return lambda: once(lambda: buffer.update_priorities(buffer.sample()[0], priorities), 200)


def prioritized_cases() -> dict[str, Case]:
    """Return the cases of prioritized buffers."""
    cases: dict[str, Case] = {
        f"by priority {operator} {size}": by_priority(operator, size)
        for size in SIZES
        for operator in ("nothing", "insert", "sample + update")
    }
    cases["from Python, by priority"] = prioritized_from_python
    for operator in ("nothing", "sample + update"):
        cases[f"composite {operator} 2^20"] = by_priority(operator, "2^20", "composite")
    return cases


def loop(kind: type[Repeat], operator: str, capacity: int, calls: int) -> Case:
    """Return an operator of a uniform buffer, or nothing, in a compiled loop."""
    return lambda: compiled(kind(filled(capacity), operator), calls)


def from_python(operator: str, capacity: int) -> Case:
    """Return a call of a uniform buffer."""

    def case() -> Callable[[], float]:
        buffer = filled(capacity)
        if operator == "insert":
            return lambda: once(lambda: buffer.insert(ROW), 500)
        return lambda: once(buffer.sample, 250)

    return case


def update(with_buffer: bool) -> Callable[[], float]:
    """Return a DQN update, from a buffer of its own or on a given batch."""
    if with_buffer:
        network, inputs = Update(filled.__wrapped__(100_000)), [Tensor(value) for value in ROW]
    else:
        network, inputs = Update(None), [Tensor(np.stack([value] * BATCH)) for value in ROW]
    return lambda: once(lambda: network(*inputs).asnumpy(), 25)


def update_with_row(from_python: bool) -> Callable[[], float]:
    """Return a DQN step from a row as an environment returns it: stored from Python, or by the graph that learns."""
    network = Update(filled.__wrapped__(100_000))

    def step() -> None:
        if from_python:
            network.buffer.insert(ROW)
            network().asnumpy()
        else:
            network(*map(Tensor, ROW)).asnumpy()

    return lambda: once(step, 25)


@functools.cache
def wide_rows() -> list[np.ndarray]:
    """Return a million rows."""
    return [np.random.rand(1_000_000, width).astype(np.float32) for width in WIDE]


def insert_a_million() -> Callable[[], float]:
    """Time an insertion that replaces all rows."""
    million = ReplayBuffer(
        sample_size=BATCH, capacity=1_000_000, shapes=[(width,) for width in WIDE], types=["float32"] * 4
    )
    return lambda: once(lambda: million.insert(wide_rows()), 1)


def copy_a_million() -> Callable[[], float]:
    """Time memcpy of the same bytes."""
    copies = [array.copy() for array in wide_rows()]
    return lambda: once(lambda: [np.copyto(a, b) for a, b in zip(copies, wide_rows(), strict=True)], 1)


def uniform_cases() -> dict[str, Case]:
    """Return the cases of uniform buffers."""
    cases: dict[str, Case] = {}
    for capacity in (10_000, 100_000, 1_000_000, 10_000_000):
        for operator in ("nothing", "insert", "sample"):
            cases[f"loop {operator} {capacity}"] = loop(Repeat, operator, capacity, 10)
            cases[f"while {operator} {capacity}"] = loop(WhileRepeat, operator, capacity, 4)
        for operator in ("insert", "sample"):
            cases[f"from Python: {operator} {capacity}"] = from_python(operator, capacity)
    cases["loop empty 100000"] = loop(Repeat, "empty", 100_000, 10)
    for i in range(NETWORKS):
        for with_buffer in (False, True) if i % 2 else (True, False):
            cases[f"update {with_buffer} {i}"] = functools.partial(update, with_buffer)
            cases[f"row from Python {with_buffer} {i}"] = functools.partial(update_with_row, with_buffer)
    cases["insert of 1e6 rows"] = insert_a_million
    cases["memcpy of 1e6 rows"] = copy_a_million
    return cases


def difference(operator: str, capacity: int | str, kind: str = "loop") -> Figure:
    """Return the microseconds of an operator in a compiled loop."""
    return less(f"{kind} {operator} {capacity}", f"{kind} nothing {capacity}")


def over_the_floor(operator: str) -> Figure:
    """Return how many times as long as the empty operator an operator takes in a compiled loop."""
    return ratio(difference(operator, 100_000), difference("empty", 100_000))


def updates(with_buffer: bool, kind: str = "update") -> Figure:
    """Return the microseconds of a DQN update, over all networks."""
    return lambda times: [t * MICRO for i in range(NETWORKS) for t in times[f"{kind} {with_buffer} {i}"]]


def prioritized_figures() -> dict[str, Figure]:
    """Return the figures of prioritized buffers."""
    kind, both = "by priority", "sample + update"
    figures = {
        "prioritized sample + update of 256, compiled": difference(both, "2^20", kind),
        "from Python: sample + update of 256 by priority": micro("from Python, by priority"),
        "insert 1 row with priority, compiled": difference("insert", "2^20", kind),
        "prioritized sample + update of 256, composite": difference(both, "2^20", "composite"),
    }
    for size in SIZES:
        figures[f"prioritized sample + update, compiled, {size}"] = difference(both, size, kind)
        figures[f"insert with priority, compiled, {size}"] = difference("insert", size, kind)
    return figures


def uniform_figures() -> dict[str, Figure]:
    """Return the figures of uniform buffers."""
    figures = {
        "compiled insert, 1 row": difference("insert", 100_000),
        "compiled sample, 64 rows": difference("sample", 100_000),
        "the floor: an operator that does nothing": difference("empty", 100_000),
        "compiled insert, 1 row / the floor": over_the_floor("insert"),
        "compiled sample, 64 rows / the floor": over_the_floor("sample"),
        "from Python: insert of one row": micro("from Python: insert 100000"),
        "from Python: sample of 64": micro("from Python: sample 100000"),
        "DQN step: insert + sample + update / update": ratio(updates(True), updates(False)),
        "DQN update alone": updates(False),
        "DQN step, its row inserted in the graph": updates(False, "row from Python"),
        "DQN step, its row inserted from Python": updates(True, "row from Python"),
        "DQN step, its row inserted from Python / in the graph": ratio(
            updates(True, "row from Python"), updates(False, "row from Python")
        ),
        "insert, 1 row, in a while loop": difference("insert", 100_000, "while"),
        "sample, 64 rows, in a while loop": difference("sample", 100_000, "while"),
    }
    for operator in ("insert", "sample"):
        small, large = (difference(operator, capacity) for capacity in (10_000, 10_000_000))
        figures[f"capacity 1e7 / 1e4: compiled {operator}"] = ratio(large, small)
        for capacity in (10_000, 1_000_000, 10_000_000):
            figures[f"compiled {operator}, capacity {capacity:.0e}"] = difference(operator, capacity)
            figures[f"from Python: {operator}, capacity {capacity:.0e}"] = micro(f"from Python: {operator} {capacity}")
    million = micro("insert of 1e6 rows")
    figures["from Python: insert of 1e6 rows / memcpy"] = ratio(million, micro("memcpy of 1e6 rows"))
    figures["from Python: insert of 1e6 rows, 17+6+1+17 float32"] = million
    return figures


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    only_argument(parser)
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    report = measure_figures(uniform_cases(), uniform_figures(), options.only, options.rounds)
    filled.cache_clear()
    wide_rows.cache_clear()
    report |= measure_figures(prioritized_cases(), prioritized_figures(), options.only, options.rounds)
    show(report, LIMITS, options.json)


if __name__ == "__main__":
    main()
