"""What each operator of a buffer costs, against its limits.

    python benchmarks/operators.py [--rounds 31] [--only uniform|prioritized] [--json FILE]

Compiled figures are differences: a compiled body that repeats the operator less the same body without it, so that
neither the call of the graph nor the loop is counted. Rounds are interleaved, and medians are printed with quartiles.
Half of the rounds warm up: MindSpore tries out how many threads a graph is best run with for its first fifty calls.
"""

import statistics
from collections.abc import Callable

import mindspore as ms
import numpy as np
from measuring import MICRO, arguments, measure, once, show
from mindspore import Tensor, nn, ops

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

SHAPES = [(4,), (), (), (4,)]
TYPES = ["float32", "int32", "float32", "float32"]
ROW = [np.full(4, 0.5, np.float32), np.array(1, np.int32), np.array(1.0, np.float32), np.full(4, 0.25, np.float32)]
BATCH = 64
REPEAT = 50
NETWORKS = 4  # of each kind: where a graph's memory happens to lie changes its time by some percent

WIDTHS = [(17,), (6,), (1,)]  # the columns of the prioritized buffers, float32
DRAWS = 256
SIZES = {"2^14": 1 << 14, "2^17": 1 << 17, "2^20": 1 << 20, "2^24": 1 << 24}

#: The figures that the project promises, in microseconds or as a ratio.
LIMITS = {
    "compiled insert, 1 row": 5.0,
    "compiled sample, 64 rows": 15.0,
    "eager insert, 1 row, NumPy": 6.0,
    "eager sample, 64 rows": 15.0,
    "DQN step: insert + sample + update / update": 1.05,
    "capacity 1e7 / 1e4: compiled insert": 1.5,
    "capacity 1e7 / 1e4: compiled sample": 1.5,
    "prioritized sample + update of 256, compiled": 100.0,
    "prioritized sample + update of 256, eager": 130.0,
    "insert 1 row with priority, compiled": 10.0,
    "prioritized sample + update of 256, composite": 1500.0,
}


def filled(capacity: int) -> ReplayBuffer:
    """A buffer whose every row was written, so that its memory is really there."""
    buffer = ReplayBuffer(sample_size=BATCH, capacity=capacity, shapes=SHAPES, types=TYPES, seed=0)
    chunk = min(capacity, 1_000_000)
    rows = [np.zeros((chunk, *shape), dtype) for shape, dtype in zip(SHAPES, TYPES, strict=True)]
    for _ in range(capacity // chunk):
        buffer.insert(rows)
    return buffer


class Repeat(nn.Cell):
    """A compiled body that repeats an operator of the buffer, or nothing, `REPEAT` times."""

    def __init__(self, buffer: ReplayBuffer, operator: str) -> None:
        super().__init__()
        self.buffer = buffer
        self.operator = operator
        self.row = tuple(Tensor(value) for value in ROW)

    def step(self) -> None:
        """The operator, once."""
        if self.operator == "insert":
            self.buffer.insert(self.row)
        elif self.operator == "sample":
            self.buffer.sample()

    def construct(self, x):
        for _ in range(REPEAT):
            x = x + 1
            self.step()
        return x


class WhileRepeat(Repeat):
    """The same in a ``while`` loop, where MindSpore hands every Parameter of the body on in each turn."""

    def construct(self, x):
        while x < REPEAT:
            x = x + 1
            self.step()
        return x


def filled_by_priority(capacity: int, backend: str) -> PrioritizedReplayBuffer:
    """A full prioritized buffer with random priorities."""
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
        """The operator, once. The new priorities depend on the sample, as those of a learner do."""
        if self.operator == "insert":
            self.buffer.insert(self.row, priority=self.priority)
        elif self.operator == "sample + update":
            indices, weights, *_ = self.buffer.sample()
            self.buffer.update_priorities(indices, weights)


class Update(nn.Cell):
    """A DQN update, on a batch from the buffer after an insertion into it, or on a batch that is given."""

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

    def construct(self, observation, action, reward, next_observation):
        batch = (observation, action, reward, next_observation)
        if self.buffer is not None:
            self.buffer.insert(batch)
            batch = self.buffer.sample()
        loss, gradients = self.step(*batch)
        self.optimizer(gradients)
        return loss


def compiled(body: Repeat, calls: int) -> Callable[[], float]:
    """Times some calls of a body; seconds a repetition."""
    start = Tensor(0, ms.int32)
    return lambda: once(lambda: body(start).asnumpy(), calls) / REPEAT


def prioritized_cases() -> dict[str, Callable[[], float]]:
    """What is timed of prioritized buffers in every round, each giving seconds an operation."""
    timers = {}
    for name, capacity in SIZES.items():
        buffer = filled_by_priority(capacity, "native")
        for operator in ("nothing", "insert", "sample + update"):
            timers[f"by priority {operator} {name}"] = compiled(RepeatByPriority(buffer, operator), 2)
        priorities = np.random.default_rng(0).random(DRAWS).astype(np.float32)
        timers[f"eager sample + update {name}"] = lambda buffer=buffer, priorities=priorities: once(
            lambda: buffer.update_priorities(buffer.sample()[0], priorities), 200
        )
    buffer = filled_by_priority(SIZES["2^20"], "composite")
    for operator in ("nothing", "sample + update"):
        timers[f"composite {operator} 2^20"] = compiled(RepeatByPriority(buffer, operator), 2)
    return timers


def uniform_cases() -> dict[str, Callable[[], float]]:
    """What is timed of uniform buffers in every round, each giving seconds an operation."""
    timers = {}
    for capacity in (10_000, 100_000, 1_000_000, 10_000_000):
        buffer = filled(capacity)
        for operator in ("nothing", "insert", "sample"):
            timers[f"loop {operator} {capacity}"] = compiled(Repeat(buffer, operator), 10)
            if capacity == 100_000:
                timers[f"while {operator} {capacity}"] = compiled(WhileRepeat(buffer, operator), 4)
        timers[f"eager insert {capacity}"] = lambda buffer=buffer: once(lambda: buffer.insert(ROW), 500)
        timers[f"eager sample {capacity}"] = lambda buffer=buffer: once(buffer.sample, 250)
    row = [Tensor(value) for value in ROW]
    batch = [Tensor(np.stack([value] * BATCH)) for value in ROW]
    for i in range(NETWORKS):
        pair = ("alone", Update(None), batch), ("with buffer", Update(filled(100_000)), row)
        for kind, network, inputs in pair if i % 2 else reversed(pair):
            timers[f"update {kind} {i}"] = lambda net=network, args=inputs: once(lambda: net(*args).asnumpy(), 25)
    wide = [np.random.rand(1_000_000, width).astype(np.float32) for width in (17, 6, 1, 17)]
    million = ReplayBuffer(
        sample_size=BATCH, capacity=1_000_000, shapes=[(17,), (6,), (1,), (17,)], types=["float32"] * 4
    )
    timers["eager insert of 1e6 rows"] = lambda: once(lambda: million.insert(wide), 1)
    copies = [array.copy() for array in wide]
    timers["memcpy of 1e6 rows"] = lambda: once(lambda: [np.copyto(a, b) for a, b in zip(copies, wide, strict=True)], 1)
    return timers


def differences(times: dict[str, list[float]], operator: str, capacity: int | str, kind: str = "loop") -> list[float]:
    """Microseconds of an operator in a compiled loop, by round."""
    pairs = zip(times[f"{kind} {operator} {capacity}"], times[f"{kind} nothing {capacity}"], strict=True)
    return [(with_it - without) * MICRO for with_it, without in pairs]


def prioritized_figures(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """What is reported of prioritized buffers, by round."""
    kind, both = "by priority", "sample + update"
    report = {
        "prioritized sample + update of 256, compiled": differences(times, both, "2^20", kind),
        "prioritized sample + update of 256, eager": [t * MICRO for t in times["eager sample + update 2^20"]],
        "insert 1 row with priority, compiled": differences(times, "insert", "2^20", kind),
        "prioritized sample + update of 256, composite": differences(times, both, "2^20", "composite"),
    }
    for name in SIZES:
        report[f"prioritized sample + update, compiled, {name}"] = differences(times, both, name, kind)
        report[f"insert with priority, compiled, {name}"] = differences(times, "insert", name, kind)
    return report


def uniform_figures(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """What is reported of uniform buffers, by round."""
    micro = {name: [seconds * MICRO for seconds in values] for name, values in times.items()}

    def ratio(above: list[float], below: list[float]) -> list[float]:
        return [statistics.median(above) / statistics.median(below)]

    def updates(kind: str) -> list[float]:
        return [value for i in range(NETWORKS) for value in micro[f"update {kind} {i}"]]

    report = {
        "compiled insert, 1 row": differences(times, "insert", 100_000),
        "compiled sample, 64 rows": differences(times, "sample", 100_000),
        "eager insert, 1 row, NumPy": micro["eager insert 100000"],
        "eager sample, 64 rows": micro["eager sample 100000"],
        "DQN step: insert + sample + update / update": ratio(updates("with buffer"), updates("alone")),
        "DQN update alone": updates("alone"),
        "insert, 1 row, in a while loop": differences(times, "insert", 100_000, "while"),
        "sample, 64 rows, in a while loop": differences(times, "sample", 100_000, "while"),
    }
    for operator in ("insert", "sample"):
        small, large = (differences(times, operator, capacity) for capacity in (10_000, 10_000_000))
        report[f"capacity 1e7 / 1e4: compiled {operator}"] = ratio(large, small)
        for capacity in (10_000, 1_000_000, 10_000_000):
            report[f"compiled {operator}, capacity {capacity:.0e}"] = differences(times, operator, capacity)
            report[f"eager {operator}, capacity {capacity:.0e}"] = micro[f"eager {operator} {capacity}"]
    report["eager insert of 1e6 rows / memcpy"] = ratio(times["eager insert of 1e6 rows"], times["memcpy of 1e6 rows"])
    report["eager insert of 1e6 rows, 17+6+1+17 float32"] = micro["eager insert of 1e6 rows"]
    return report


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["uniform", "prioritized"], help="measure only one kind of buffer")
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    report = {}
    if options.only != "prioritized":
        report.update(uniform_figures(measure(uniform_cases(), options.rounds)))
    if options.only != "uniform":
        report.update(prioritized_figures(measure(prioritized_cases(), options.rounds)))
    show(report, LIMITS, options.json)


if __name__ == "__main__":
    main()
