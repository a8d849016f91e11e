"""The tree of weights: set, descend, sums of ranges and summary, against linear scans and trees built from scratch.

Kernels set and sum; tests/csrc and the draws of buffers test their search for the slots of points.
"""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from randomness import draw_slot

from mindspore_replay.buffers.parameters import overwrite, parameter_on
from mindspore_replay.columns import Columns
from mindspore_replay.ops.composite import Tree, last_of_each
from mindspore_replay.ops.eager import wait_for_work
from mindspore_replay.ops.operator import operator
from mindspore_replay.ops.state import State
from mindspore_replay.store.base.schema import Schema
from mindspore_replay.store.kernels.state import make
from mindspore_replay.store.kernels.tree import FANOUT, build_weights, initial_weights, levels
from mindspore_replay.store.rows.store import Store
from mindspore_replay.store.spec.options import Options
from mindspore_replay.store.spec.plan import WINDOW, Output, SamplePlan

#: Those of composite operators, each with graphs of its own: from one node to five levels, with full and partial nodes.
COMPOSITE = [1, 7, 1000, 2**20]
TINY = 1e-300  # MindSpore takes still smaller numbers for 0
N = 24  # slots set and targets looked up by a call


def options_of(capacity: int) -> Options:
    """Priorities are weights."""
    return Options(capacity, SamplePlan(1, "rank", (Output(WINDOW, 0),)), weighting=(1.0, 0.0), beta=0.4)


class Held(nn.Cell):
    """A tree whose weights composite operators set and find, and kernels sum."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        columns, options = Columns("Tree", [()], ["uint8"]), options_of(capacity)
        parameters = {name: parameter_on(name, array) for name, array in make(columns, options).items()}
        self.weights, self.head, self.count = (parameters[name] for name in ("weights", "head", "count"))
        self.serials, self.clock = parameters["serials"], parameters["clock"]
        state = State([parameters["column.0"]], parameters, options)
        self.sums, self.summary = (operator(name, state, options.groups, columns) for name in ("sums", "summary"))
        self.tree_of_weights, self.none = Tree(self.weights, capacity), Tensor(np.zeros(capacity, bool))
        self.ok, self.any = Tensor(True), Tensor(np.ones(N, bool))

    def set(self, slots, values):
        """Set weights; the last of duplicates counts."""
        last, exists, _ = last_of_each(slots, self.any)
        self.tree_of_weights.replace(slots, exists, ops.gather(values, last, 0))
        self.tree_of_weights.refresh(self.none)

    def find(self, targets):
        """Return the slots on which targets fall, each in ``(0, total]``."""
        slots = ops.cast(self.tree_of_weights.descend(self.tree_of_weights.view(), targets, self.ok), ms.int64)
        self.tree_of_weights.done(slots)
        return slots

    @ms.jit
    def write(self, slots, values):
        self.set(slots, values)
        return self.summary()

    @ms.jit
    def read(self, targets, ranges):
        return self.find(targets), self.sums(ranges)

    @ms.jit
    def write_twice(self, slots, first, second):
        before = self.summary()
        self.set(slots, first)
        between = self.summary()
        found = self.find(between[:1] * 0.5)
        self.set(slots, second)
        return before, between, found, self.summary()

    def put(self, leaves: np.ndarray) -> None:
        wait_for_work()
        overwrite(self.weights, build_weights(leaves))

    def tree(self) -> np.ndarray:
        wait_for_work()
        return self.weights.asnumpy().copy()

    def leaves(self) -> np.ndarray:
        return self.tree()[: self.capacity]

    def update(self, slots: Any, values: Any) -> np.ndarray:
        """Set N weights; return the total, the smallest positive weight and the number of positive weights."""
        return self.write(Tensor(np.asarray(slots, np.int64)), Tensor(np.asarray(values, np.float64))).asnumpy()

    def look(self, targets: Any, head: int = 0, count: int | None = None, ranges: Any = ()) -> tuple[Any, Any]:
        """Return the slots of up to N targets, and the sums of up to N ranges."""
        targets = np.asarray(targets, np.float64)
        filled = np.concatenate([targets, np.full(N - len(targets), TINY)])
        slices = np.zeros((N, 2), np.int64)
        slices[: len(ranges)] = np.reshape(ranges, (-1, 2))
        wait_for_work()
        count = self.capacity if count is None else count
        for parameter, value in zip(
            (self.head, self.count, self.serials, self.clock), (head, count, [head + count, 0], [0, head, 0])
        ):
            overwrite(parameter, np.array(value))
        slots, sums = self.read(Tensor(filled), Tensor(slices))
        return slots.asnumpy()[: len(targets)].tolist(), sums.asnumpy()[: len(ranges)].tolist()


_held: dict[int, Held] = {}


def hold(capacity: int) -> Held:
    """Return an empty tree. Trees of one capacity share one, and its compiled graphs."""
    if capacity not in _held:
        _held[capacity] = Held(capacity)
    held = _held[capacity]
    held.put(np.zeros(capacity))
    return held


def sparse_integers(capacity: int, generator: np.random.Generator) -> np.ndarray:
    """Return weights from 0 to 9, a third of them 0 and at least one positive: all their sums are exact."""
    leaves = generator.integers(1, 10, capacity) * (generator.random(capacity) < 2 / 3)
    leaves[generator.integers(capacity)] = 3
    return leaves.astype(np.float64)


def assert_tree(held: Held, leaves: np.ndarray, summary: np.ndarray | None = None) -> None:
    """Check that the tree equals that of these leaves, to the last bit, and that its summary is right."""
    np.testing.assert_array_equal(held.leaves(), leaves)
    assert held.tree().tobytes() == build_weights(leaves).tobytes()
    if summary is not None:
        positive = leaves[leaves > 0]
        assert summary[0] == pytest.approx(leaves.sum(), rel=1e-12)
        assert summary[1:].tolist() == [positive.min(initial=np.inf), len(positive)]


def test_a_tree_by_hand():
    held = hold(7)
    assert held.update([1, 3, 4, 4, *[3] * (N - 4)], [2, 7, 9, 4, *[3] * (N - 4)]).tolist() == [9, 2, 3]
    assert held.leaves().tolist() == [0, 2, 0, 3, 4, 0, 0]
    slots, sums = held.look([TINY, 1.5, 2, 2.5, 5, 5.5, 9], 3, 7, [(0, 7), (0, 2), (1, 3), (-2, 9), (2, 1)])
    assert slots == [1, 1, 1, 3, 3, 4, 4]
    assert sums == [9, 7, 4, 2, 0]  # from slot 3 on the weights are 3 4 0 0 0 2 0
    assert held.update(np.arange(N) % 7, np.zeros(N)).tolist() == [0, np.inf, 0]
    assert held.tree().tobytes() == initial_weights(7).tobytes()


def test_the_layout_by_hand():
    """Rows of 16: two for 20 leaves; their sums; the sum of those, the root; the minima likewise; then the count."""
    leaves = np.zeros(20)
    leaves[[0, 2, 17, 19]] = [1, 2, 0.5, 4]
    tree = build_weights(leaves)
    assert tree[:20].tolist() == leaves.tolist()
    assert not tree[20:32].any()
    rows = tree.reshape(-1, 16).tolist()
    nothing, infinite = [0.0] * 16, [np.inf] * 16
    assert rows[2:4] == [[3, 4.5, *nothing[2:]], [7.5, *nothing[1:]]]
    assert rows[4:] == [[1, 0.5, *infinite[2:]], [0.5, *infinite[2:], 4]]
    assert initial_weights(20).tobytes() == build_weights(np.zeros(20)).tobytes()


def test_a_sum_is_sequential():
    """A pairwise sum, NumPy's method for long arrays, is another number."""
    leaves = np.array([1.0, *[2.0**-53] * 15])
    assert build_weights(leaves)[16] == 1.0
    assert build_weights(leaves[::-1].copy())[16] == sum(leaves[::-1].tolist()) > 1.0


@pytest.mark.parametrize("capacity", COMPOSITE)
def test_set_with_duplicates(capacity: int):
    """The last of several values for one slot counts, even if it is zero."""
    held, generator = hold(capacity), np.random.default_rng(capacity)
    leaves = np.zeros(capacity)
    for step in range(12):
        slots = generator.integers(0, min(capacity, 40), N) if step % 2 else generator.integers(0, capacity, N)
        values = np.where(generator.random(N) < 0.3, 0.0, generator.random(N) * 10.0 ** generator.integers(-9, 9))
        for slot, value in zip(slots.tolist(), values.tolist(), strict=True):
            leaves[slot] = value
        assert_tree(held, leaves, held.update(slots, values))


@pytest.mark.parametrize("capacity", COMPOSITE)
def test_descend_equals_a_scan(capacity: int):
    """Exact weights: the slot equals that of a linear scan, for random targets, and on and beside every boundary."""
    held, generator = hold(capacity), np.random.default_rng(capacity)
    for _ in range(3):
        leaves = sparse_integers(capacity, generator)
        held.put(leaves)
        cumulative = np.cumsum(leaves)
        total = float(cumulative[-1])
        borders = generator.choice(cumulative, N // 3)
        targets = np.concatenate([borders, np.nextafter(borders, np.inf), generator.random(N // 3 - 2) * total])
        targets = np.concatenate([[TINY, total], targets[(targets > 0) & (targets <= total)]])
        slots, _ = held.look(targets)
        assert slots == np.searchsorted(cumulative, targets).tolist()
        if capacity <= 1000:
            assert slots == [draw_slot(leaves.tolist(), float(target)) for target in targets]
        assert leaves[slots].all()


def test_reads_between_writes_in_one_graph():
    """Each sees all earlier writes, to the last bit. Thirds and tenths are no float32."""
    held, slots = hold(65), np.arange(N) + 30
    leaves = np.full(65, 0.1)
    held.put(leaves)
    values = [(np.arange(N) + 1) / 3, (np.arange(N) + 1) / 7]
    before, between, found, after = held.write_twice(Tensor(slots), *(Tensor(value) for value in values))
    for summary, written in ((before, np.full(N, 0.1)), (between, values[0]), (after, values[1])):
        leaves[slots] = written
        root = levels(65)[-1]
        expected = build_weights(leaves)[[root.sums, root.minima, -1]]
        assert summary.asnumpy().tolist() == expected.tolist()
        if summary is between:
            assert found.asnumpy().tolist() == [draw_slot(leaves.tolist(), float(expected[0]) * 0.5)]
    assert_tree(held, leaves)


def adversarial_leaves(capacity: int) -> list[np.ndarray]:
    """Return weights whose sums round: tenths, a huge one before or after small ones, and lone ones at either end."""
    tenths = np.full(capacity, 0.1)
    tenths[1::3] = 0
    huge = np.full(capacity, 1e-9)
    huge[0] = 1e9
    huge[capacity // 2 + 1 :: 2] = 0
    first, last = np.zeros(capacity), np.zeros(capacity)
    first[0] = last[-1] = 1e-300
    shrinking = 10.0 ** -(np.arange(capacity) % 300)
    return [tenths, huge, huge[::-1].copy(), first, last, shrinking]


def descend(tree: np.ndarray, capacity: int, target: float) -> int:
    """Return the slot at a point of the total, found node by node from the root."""
    node = 0
    for level in reversed(levels(capacity)):
        prefix = np.cumsum(tree[level.children :][FANOUT * node : FANOUT * (node + 1)])
        target = min(target, prefix[-1])
        child = int(np.searchsorted(prefix, target))
        target -= prefix[child - 1] if child else 0.0
        node = FANOUT * node + child
    return node


@pytest.mark.parametrize("capacity", COMPOSITE)
def test_no_target_falls_on_a_weight_of_zero(capacity: int):
    """However the sums are rounded; and each target goes the way of the tree's nodes."""
    held = hold(capacity)
    for leaves in adversarial_leaves(capacity):
        held.put(leaves)
        total = total_of(held)
        prefix = np.cumsum(leaves)
        picked = prefix[np.linspace(0, capacity - 1, N // 3).astype(int)]
        targets = np.array([TINY, total, *picked, *np.nextafter(picked, 0), *np.nextafter(picked, np.inf)])
        targets = targets[(targets >= TINY) & (targets <= total)][:N]
        slots, _ = held.look(targets)
        assert slots == [descend(held.tree(), capacity, target) for target in targets]
        assert (leaves[slots] > 0).all()


def total_of(held: Held) -> float:
    """Return the total weight, by a call that changes nothing."""
    slots = np.zeros(N, np.int64)
    return float(held.update(slots, np.full(N, held.leaves()[0]))[0])


@pytest.mark.parametrize("capacity", [7, 65])
def test_sums_of_ranges_equal_slices(capacity: int):
    """Ranges are Python slices of the rows from the head on, around the ring's end too."""
    held, generator = hold(capacity), np.random.default_rng(capacity)
    for case in range(6):
        count = capacity if case < 3 else int(generator.integers(0, capacity + 1))
        head = int(generator.integers(capacity)) if case else capacity - 1
        leaves = sparse_integers(capacity, generator)
        held.put(leaves)
        rows = np.roll(leaves, -head)[:count]
        reach = capacity + 2
        ranges = generator.integers(-reach, reach, (N, 2))
        ranges[:4] = [[0, reach], [-(2**62), 2**62], [0, 0], [-1, reach]]
        _, sums = held.look([], head, count, ranges)
        assert sums == [float(rows[start:stop].sum()) for start, stop in ranges.tolist()]


class Updates:
    """A full ring without MindSpore; a kernel sets the weights of its rows. Handles are slots."""

    def __init__(self, capacity: int) -> None:
        self.store = Store(Schema("Store", [()], ["uint8"]), options_of(capacity))
        self.store.insert([np.zeros(capacity, np.uint8)], priority=0.0)
        self.tree = self.store.arrays["weights"]

    def set(self, slots: Any, values: Any) -> None:
        invalid = self.store.update_priorities(np.asarray(slots, np.int64), np.asarray(values, np.float32))
        assert int(invalid) == 0


@pytest.mark.cpu_only("calls kernels directly")
def test_a_million_updates_leave_no_trace():
    """The tree equals that of its leaves, to the last bit; a total updated by differences does not."""
    capacity, n, generator = 1000, 2000, np.random.default_rng(1)
    updates, leaves, moved = Updates(capacity), np.zeros(capacity), 0.0
    for step in range(500):
        slots = generator.integers(0, capacity, n)
        values = generator.random(n) * (10.0 ** (step % 13 - 6)) * (generator.random(n) > 0.1)
        values = values.astype(np.float32)
        before = leaves.copy()
        leaves[slots] = values
        moved += float((leaves - before).sum())
        updates.set(slots, values)
    assert updates.tree.tobytes() == build_weights(leaves).tobytes()
    assert moved != pytest.approx(leaves.sum(), rel=1e-15)
