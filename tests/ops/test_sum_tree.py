"""The tree of weights: set, descend and sums of ranges, against linear scans and trees built from scratch.

Kernels set and sum; tests/csrc and the draws of buffers test their search for the slots of points.
"""

from typing import Any

import numpy as np
import pytest
from mindspore import Parameter, Tensor
from randomness import draw_slot

from mindspore_replay.ops.composite import Tree
from mindspore_replay.store.base.schema import Schema
from mindspore_replay.store.kernels.call import Call, fixed
from mindspore_replay.store.kernels.library import OK
from mindspore_replay.store.kernels.tree import FANOUT, build_weights, initial_weights, levels
from mindspore_replay.store.rows.store import Store
from mindspore_replay.store.spec.options import Options
from mindspore_replay.store.spec.plan import WINDOW, Output, SamplePlan

#: Those of composite operators: from one node to five levels, with full and partial nodes.
COMPOSITE = [1, 7, 1000, 2**20]
TINY = 1e-300  # MindSpore takes still smaller numbers for 0


def find(leaves: np.ndarray, targets: np.ndarray) -> list[int]:
    """Return the slots on which targets fall, each in ``(0, total]``, as composite operators find them."""
    weights = Parameter(Tensor(build_weights(leaves)), requires_grad=False)
    tree = Tree(weights, len(leaves))
    return tree.descend(tree.view(), Tensor(targets), Tensor(True)).asnumpy().tolist()  # type: ignore[no-any-return]


def options_of(capacity: int) -> Options:
    """Priorities are weights."""
    return Options(capacity, SamplePlan(1, "rank", (Output(WINDOW, 0),)), weighting=(1.0, 0.0), beta=0.4)


def sparse_integers(capacity: int, generator: np.random.Generator) -> np.ndarray:
    """Return weights from 0 to 9, a third of them 0 and at least one positive: all their sums are exact."""
    leaves = generator.integers(1, 10, capacity) * (generator.random(capacity) < 2 / 3)
    leaves[generator.integers(capacity)] = 3
    return leaves.astype(np.float64)


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
def test_descend_equals_a_scan(capacity: int):
    """Exact weights: the slot equals that of a linear scan, for random targets, and on and beside every boundary."""
    generator = np.random.default_rng(capacity)
    for _ in range(3):
        leaves = sparse_integers(capacity, generator)
        cumulative = np.cumsum(leaves)
        total = float(cumulative[-1])
        borders = generator.choice(cumulative, 8)
        targets = np.concatenate([borders, np.nextafter(borders, np.inf), generator.random(6) * total])
        targets = np.concatenate([[TINY, total], targets[(targets > 0) & (targets <= total)]])
        slots = find(leaves, targets)
        assert slots == np.searchsorted(cumulative, targets).tolist()
        if capacity <= 1000:
            assert slots == [draw_slot(leaves.tolist(), float(target)) for target in targets]
        assert leaves[slots].all()


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
    for leaves in adversarial_leaves(capacity):
        tree, prefix = build_weights(leaves), np.cumsum(leaves)
        total = float(tree[levels(capacity)[-1].sums])
        picked = prefix[np.linspace(0, capacity - 1, 8).astype(int)]
        targets = np.array([TINY, total, *picked, *np.nextafter(picked, 0), *np.nextafter(picked, np.inf)])
        targets = targets[(targets >= TINY) & (targets <= total)]
        slots = find(leaves, targets)
        assert slots == [descend(tree, capacity, target) for target in targets]
        assert (leaves[slots] > 0).all()


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
@pytest.mark.parametrize("capacity", [7, 65])
def test_sums_of_ranges_equal_slices(capacity: int):
    """Ranges are Python slices of the rows from the head on, around the ring's end too."""
    generator, reach = np.random.default_rng(capacity), capacity + 2
    for case in range(6):
        store = Updates(capacity).store
        count = capacity if case < 3 else int(generator.integers(0, capacity + 1))
        head = int(generator.integers(capacity)) if case else capacity - 1
        leaves = sparse_integers(capacity, generator)
        cursors = {"head": head, "count": count, "serials": [head + count, 0], "clock": [0, head, 0]}
        for name, value in {**cursors, "weights": build_weights(leaves)}.items():
            store.arrays[name][...] = value
        ranges, sums = generator.integers(-reach, reach, (24, 2)), np.zeros(24)
        ranges[:4] = [[0, reach], [-(2**62), 2**62], [0, 0], [-1, reach]]
        call = Call("sums", store.options.groups, {**store._state, "ranges": fixed(ranges), "sums": fixed(sums)})
        assert call.direct.run() == OK
        rows = np.roll(leaves, -head)[:count]
        assert sums.tolist() == [float(rows[start:stop].sum()) for start, stop in ranges.tolist()]


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
