"""Random bits and uniform draws: kernels and composite operators against the twin, to the last bit; frequencies."""

import itertools
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_frequencies, uniform
from mindspore import Parameter, Tensor
from randomness import below, draw_rows, initial_key, random_bits, signed

from mindspore_replay.ops import composite, random
from mindspore_replay.store.base.random import ALL_ROWS, initial_state
from mindspore_replay.store.base.schema import Schema
from mindspore_replay.store.rows.store import Store
from mindspore_replay.store.spec.options import Options
from mindspore_replay.store.spec.plan import HANDLE, Output, SamplePlan

INT64 = range(-(2**63), 2**63)


def kernel_draw(plan: SamplePlan, capacity: int, state: Any, head: int, count: int, bounds: Any) -> tuple[Any, Any]:
    """Return the slots that a kernel draws, and the random state after them."""
    store = Store(Schema("Store", [()], ["uint8"]), Options(capacity, plan))
    for name, value in {"random_state": state, "head": head, "count": count, "serials": [head + count, 0]}.items():
        store.arrays[name][...] = value
    (handles,) = store.sample(tuple(bounds))
    return (handles % capacity).tolist(), store.arrays["random_state"].tolist()


def composite_draw(plan: SamplePlan, capacity: int, state: Any, head: int, count: int, bounds: Any) -> tuple[Any, Any]:
    """Return the slots that composite operators draw, and the random state after them."""
    after = Parameter(Tensor(state, ms.int64), requires_grad=False)
    cursors = (Tensor(cursor, ms.int32) for cursor in (head, count))
    slots, _ = composite.DrawUniform(plan, capacity)(after, *cursors, Tensor(bounds, ms.int64))
    return slots.asnumpy().tolist(), after.asnumpy().tolist()


def plan_of(n: int, replace: bool, ordered: bool) -> SamplePlan:
    return SamplePlan(n, "uniform", (Output(HANDLE),), replace=replace, ordered=ordered)


# Hand-worked: the published outputs of SplitMix64 for seed 0.
SPLITMIX_0 = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]


def test_the_twin_gives_the_published_numbers():
    assert [random_bits(0, counter) for counter in range(4)] == SPLITMIX_0
    assert initial_key(0) == SPLITMIX_0[0]


def test_initial_state():
    assert initial_state(0).tolist() == [signed(0xE220A8397B1DCDAF), 0]
    assert initial_state(2**64 - 1).tolist() == [signed(initial_key(2**64 - 1)), 0]
    assert initial_state(1).tolist() != initial_state(2).tolist()


def test_random_bits_equal_the_twin():
    generator = np.random.default_rng(1)
    for key in [0, 1, -1, INT64[0], INT64[-1], *generator.integers(INT64[0], INT64[-1], 5).tolist()]:
        for counter in (0, 1, 2**31 - 3, 2**32 - 3, 2**40, 2**62):
            bits, state = random.random_bits(Tensor([key, counter], ms.int64), 7)
            expected = [random_bits(key % 2**64, counter + i) for i in range(7)]
            assert bits.asnumpy().astype(np.uint64).tolist() == expected
            assert state.asnumpy().tolist() == [key, counter + 7]


def test_below_equals_the_exact_product():
    edges = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    bits = edges + np.random.default_rng(2).integers(0, 2**64 - 1, 200, np.uint64).tolist()
    for n in (1, 2, 3, 1000, 2**30 + 1, 2**31 - 1):
        got = random.below(Tensor(np.array(bits, np.uint64).astype(np.int64)), Tensor(n, ms.int64)).asnumpy().tolist()
        assert got == [below(b, n) for b in bits]
        assert all(0 <= row < n for row in got)


def test_the_twin_shuffles():
    """The draw that stores only the cells that moved equals the textbook shuffle of a whole list."""
    for size, counter in itertools.product((1, 2, 5, 9), range(20)):
        cells = list(range(size))
        for i in range(size):
            j = i + below(random_bits(42, counter + i), size - i)
            cells[i], cells[j] = cells[j], cells[i]
        assert draw_rows(42, counter, range(size), size, replace=False) == cells


def test_a_draw_by_hand():
    """Bits 0xE220..., 0x6E78..., 0x06C4..., 0xF88B... are 0.883, 0.431, 0.026, 0.971 of 2^64."""
    assert kernel_draw(plan_of(4, True, True), 10, [0, 0], 0, 10, ALL_ROWS)[0] == [8, 4, 0, 9]
    # [0 1 2 3], swap 0 with 0 + int(0.883 * 4) = 3: [3 1 2 0]; 1 with 1 + int(0.431 * 3) = 2: [3 2 1 0];
    # 2 with 2 + int(0.026 * 2) = 2; 3 with 3.
    assert kernel_draw(plan_of(4, False, True), 4, [0, 0], 0, 4, ALL_ROWS)[0] == [3, 2, 1, 0]


FLAGS = list(itertools.product((True, False), repeat=2))
#: Kernels on small rings are beside the slow twins of buffers.
DRAWS = [(kernel_draw, 64, 2**31 - 1, *flags) for flags in FLAGS] + [(composite_draw, 6, 40, *flags) for flags in FLAGS]
DRAWS += [(composite_draw, *sizes, False, True) for sizes in ((1, 1), (33, 40), (7, 2**31 - 1))]


@pytest.mark.parametrize(("draw", "draws", "capacity", "replace", "ordered"), DRAWS)
def test_draws_equal_the_twin(draw: Any, draws: int, capacity: int, replace: bool, ordered: bool):
    plan = plan_of(draws, replace, ordered)
    generator = np.random.default_rng(3)
    for case in range(25 if draw is kernel_draw else 9):  # operators one by one take long
        count = capacity if case < 5 else int(generator.integers(draws, capacity + 1))
        head = int(generator.integers(capacity)) if case else capacity - 1
        start = None if case % 3 == 0 else int(generator.integers(-count - 3, count - draws + 1))
        stop = None if case % 2 == 0 else (start or 0) + draws + case
        if start is not None and start < 0 <= (stop or -1):
            stop = None
        if len(range(count)[start:stop]) < draws:
            start, stop = None, None
        key, counter = int(generator.integers(INT64[0], INT64[-1])), int(generator.integers(2**40))
        bounds = [ALL_ROWS[0] if start is None else start, ALL_ROWS[1] if stop is None else stop]
        slots, after = draw(plan, capacity, [key, counter], head, count, bounds)
        rows = range(count)[start:stop]
        drawn = draw_rows(key % 2**64, counter, rows, draws, replace)
        whole_ring = not ordered and len(rows) == capacity
        assert slots == (drawn if whole_ring else [(head + row) % capacity for row in drawn])
        assert after == [key, counter + draws]


def test_the_check_of_frequencies_rejects_a_wrong_sampler():
    generator = np.random.default_rng(5)
    right = generator.integers(6, size=4000).tolist()
    assert_frequencies(right, uniform(range(6)))
    with pytest.raises(AssertionError, match="expected"):
        assert_frequencies([row if row != 5 or i % 3 else 0 for i, row in enumerate(right)], uniform(range(6)))
    with pytest.raises(AssertionError, match="probability zero"):
        assert_frequencies([*right, 6], uniform(range(6)))
    with pytest.raises(AssertionError, match="too few"):
        assert_frequencies(right[:100], uniform(range(6)))
    neighbours = [
        (a, a) if i % 9 == 0 else (a, b) for i, (a, b) in enumerate(zip(right[::2], right[1::2], strict=True))
    ]
    with pytest.raises(AssertionError, match="expected"):
        assert_frequencies(neighbours, uniform(itertools.product(range(6), repeat=2)))
