"""Times the parts of a call: from Python into a native kernel, and of a compiled function with a buffer in it.

    python benchmarks/calls.py [--rounds 31] [--only REGEX] [--json FILE]

Rows are CartPole's transitions; the prioritized buffer has 2^20 of them. The parts of a call from Python are timed one
by one; the rest of the call is the Python around them. Kernels are timed with the arguments of their last call, over
and over, so the data they touch is in the cache. Rounds are interleaved; medians come with quartiles.
"""

import re
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from measuring import MICRO, arguments, measure, once, show
from mindspore import Tensor, nn, ops

from mindspore_replay import Column, MixedReplay, PrioritizedReplayBuffer, ReplayBuffer
from mindspore_replay.mindspore_api import share
from mindspore_replay.ops.eager import wait_for_work
from mindspore_replay.store.base.random import ALL_ROWS
from mindspore_replay.store.kernels.call import Call, fixed
from mindspore_replay.store.kernels.library import calls as module
from mindspore_replay.store.rows.store import Store

SHAPES, TYPES = [(4,), (), (), (4,), ()], ["float32", "int32", "float32", "float32", "bool"]
BATCH, PRIORITIZED_BATCH = 64, 256
CAPACITY, PRIORITIZED_CAPACITY = 50_000, 1 << 20


def rows(n: int) -> list[np.ndarray]:
    return [np.ones((n, *shape), dtype) for shape, dtype in zip(SHAPES, TYPES)]


def kernel(store: Store, operator: str, **given: Any) -> Callable[[], int]:
    """Return a kernel on the state of a store, with these arrays, or lists of them, as its other arguments."""
    arguments = {name: [fixed(a) for a in x] if isinstance(x, list) else fixed(x) for name, x in given.items()}
    return Call(operator, store.options.groups, store._state | arguments).direct.run


def sampling(buffer: Any) -> dict[str, Callable[[], Any]]:
    """The parts of a sample: its arrays, the kernel, and Tensors."""
    store, columns, plan = buffer._front.calls, buffer.columns, buffer.options.plan
    specs = [(shape, columns.numpy_type(dtype)) for shape, dtype in plan.specs(columns)]
    made = [module.Output(shape, dtype) for shape, dtype in specs]
    arrays = [make() for make in made]
    beta = {"given_beta": store.arrays["beta"]} if buffer.prioritized else {}
    draw = kernel(store, "sample", plan=plan.options(), sample_range=np.array(ALL_ROWS), outputs=arrays, **beta)
    return {
        f"- {len(made)} arrays": lambda: [make() for make in made],
        "- kernel": draw,
        f"- {len(made)} Tensors": lambda: tuple(map(share, arrays)),
        "into NumPy arrays": Store(columns, buffer.options, store.arrays | {"updates": store.updates}).sample,
    }


def plain() -> dict[str, Callable[[], Any]]:
    """Insert one row and 64 rows; sample."""
    buffer = ReplayBuffer(sample_size=BATCH, capacity=CAPACITY, shapes=SHAPES, types=TYPES, seed=0, backend="native")
    buffer.insert(rows(CAPACITY))
    now, first = buffer._front.calls.try_insert, np.zeros(1, np.int64)
    row = [np.ones(4, np.float32), 1, 1.0, np.ones(4, np.float32), False]
    batch = rows(BATCH)

    def lock() -> None:
        with buffer.lock:
            pass

    return {
        "insert 1 row": lambda: buffer.insert(row),
        "- lock, take the row, kernel": lambda: now(row, None, False, False),
        "- kernel": kernel(buffer._front.calls, "insert", rows=rows(1), first=first),
        "- lock": lock,
        "- wait for work in flight, if there may be any": wait_for_work,
        "insert 64 rows": lambda: buffer.insert(batch),
        "- lock, take the rows, kernel": lambda: now(batch, None, False, False),
        "sample 64 rows": buffer.sample,
        **{f"sample 64 rows: {name}": part for name, part in sampling(buffer).items()},
    }


def prioritized() -> dict[str, Callable[[], Any]]:
    buffer = PrioritizedReplayBuffer(
        sample_size=PRIORITIZED_BATCH,
        capacity=PRIORITIZED_CAPACITY,
        shapes=SHAPES,
        types=TYPES,
        seed=0,
        backend="native",
    )
    rng = np.random.default_rng(0)
    buffer.insert(rows(PRIORITIZED_CAPACITY), priority=rng.random(PRIORITIZED_CAPACITY, np.float32))
    priorities = rng.random(PRIORITIZED_BATCH, np.float32)
    indices = buffer.sample()[0]
    buffer.update_priorities(indices, priorities)
    return {
        "sample 256 rows by priority": buffer.sample,
        **{f"sample 256 rows: {name}": part for name, part in sampling(buffer).items()},
        "update 256 priorities": lambda: buffer.update_priorities(indices, priorities),
        "update 256 priorities: - kernel": kernel(
            buffer._front.calls,
            "update_priorities",
            handles=indices.asnumpy(),
            priority=priorities,
            invalid=np.zeros(1, np.int32),
        ),
        "sample 256 rows, update their priorities": lambda: buffer.update_priorities(buffer.sample()[0], priorities),
    }


def beside() -> dict[str, Callable[[], Any]]:
    """Calls beside the most usual ones, which are to cost little more."""
    columns: dict[str, Any] = {"shapes": SHAPES, "types": TYPES, "names": list("oarnd"), "seed": 0}
    uniform, by_priority = ReplayBuffer(BATCH, CAPACITY, **columns), PrioritizedReplayBuffer(BATCH, CAPACITY, **columns)
    late = PrioritizedReplayBuffer(
        BATCH,
        CAPACITY,
        columns={name: Column(shape, dtype, late=name == "r") for name, shape, dtype in zip("oarnd", SHAPES, TYPES)},
        seed=0,
    )
    items = Column((None,), "int32", longest=8, items=8 * CAPACITY)
    lengths = ReplayBuffer(BATCH, CAPACITY, columns=[items, Column((), "float32")], seed=0)
    second = ReplayBuffer(BATCH, CAPACITY, **columns)
    for buffer in (uniform, second):
        buffer.insert(rows(CAPACITY))
    row: dict[str, Any] = {"o": np.ones(4, np.float32), "a": 1, "n": np.ones(4, np.float32), "d": False}
    one = np.arange(5, dtype=np.int32)
    several = [[one] * 4, np.zeros(4, np.float32)]
    many = ReplayBuffer(BATCH, CAPACITY, [()] * 64, ["float32"] * 64, seed=0)
    many.insert([np.ones(CAPACITY, np.float32)] * 64)
    arrays, places = [column.asnumpy() for column in many.buffer], np.random.default_rng(0)
    return {
        "sample 64 rows of 64 columns": many.sample,
        "- by NumPy": lambda: [array[at] for at in [places.integers(0, CAPACITY, BATCH)] for array in arrays],
        "insert 1 row, with late columns": lambda: late.insert(row),
        "insert 1 row, and return its handle": lambda: by_priority.insert(row | {"r": 1.0}, with_indices=True),
        "insert 1 row of any length": lambda: lengths.insert([one, 0.5]),
        "insert 4 rows of any length": lambda: lengths.insert(several),
        "size": uniform.size,
        "can_sample": uniform.can_sample,
        "sample 64 rows of the newest 100": lambda: uniform.sample((-100, None)),
        "sample 64 rows as a dict": lambda: uniform.sample(as_dict=True),
        "sample 64 rows of two buffers": MixedReplay([(uniform, 0.5), (second, 0.5)], BATCH).sample,
    }


class Step(nn.Cell):
    """A compiled function that does little but store the row, or draw a batch that its result depends on."""

    def __init__(self, inserts: bool = False, samples: bool = False) -> None:
        super().__init__()
        self.buffer = ReplayBuffer(
            sample_size=BATCH, capacity=CAPACITY, shapes=SHAPES, types=TYPES, seed=0, backend="native"
        )
        self.buffer.insert(rows(BATCH))
        self.inserts, self.samples = inserts, samples

    def construct(self, x, *row):
        if self.inserts:
            self.buffer.insert(row)
        return x + (self.buffer.sample()[2][0] if self.samples else 1)


class Learner(nn.Cell):
    """A learner of two layers, without a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.SequentialCell(nn.Dense(4, 64), nn.ReLU(), nn.Dense(64, 2))
        self.optimizer = nn.Adam(self.network.trainable_params())
        self.gradients = ms.value_and_grad(self.loss, None, self.optimizer.parameters)
        self.observation = Tensor(np.ones((BATCH, 4), np.float32))

    def loss(self):
        return ops.mean(ops.square(self.network(self.observation)))

    def construct(self):
        loss, gradients = self.gradients()
        return ops.depend(loss, self.optimizer(gradients))


def learning() -> dict[str, Callable[[], Any]]:
    cell, function = Learner(), ms.jit(Learner().construct)
    return {
        "a learner, called as a Cell": lambda: cell().asnumpy(),
        "- its construct under ms.jit": lambda: function().asnumpy(),
    }


def compiled() -> dict[str, Callable[[], Any]]:
    x, row = Tensor(np.zeros(4, np.float32)), [Tensor(column[0]) for column in rows(1)]
    steps = {"a compiled function of 1 input": (Step(), []), "- of 6 inputs": (Step(), row)}
    steps |= {
        "- that inserts": (Step(inserts=True), row),
        "- that samples": (Step(samples=True), row),
        "- that does both": (Step(inserts=True, samples=True), row),
    }
    return {name: lambda step=step, row=row: step(x, *row).asnumpy() for name, (step, row) in steps.items()}


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    calls = plain() | prioritized() | beside() | compiled() | learning()
    calls = {name: call for name, call in calls.items() if re.search(options.only, name)}
    timers = {name: lambda call=call: once(call, 100) * MICRO for name, call in calls.items()}
    show(measure(timers, options.rounds), {}, options.json)


if __name__ == "__main__":
    main()
