"""Use limits, staleness and deletion, alone and together, on uniform and prioritized buffers.

In {native, composite} x {eager, compiled}, unless the tested behaviour is the same for all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import assert_rows
from drivers import CAPACITY, LIMITED, NATIVE, PLACES, SHAPES, TYPES, Combination, make_driver
from model import stack

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer
from mindspore_replay.store.base.late import MOST_USES

Make = Callable[..., Any]

KINDS: dict[str, dict[str, Any]] = {"uniform": {}, "prioritized": {"cls": PrioritizedReplayBuffer}}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


#: For tests that take `limited`.
everywhere = pytest.mark.parametrize(
    ("combination", "kind"), PLACES, ids=[f"{place}-{kind}" for place, kind in PLACES], indirect=True
)


@pytest.fixture
def limited(make: Make, kind: str) -> Any:
    """Make a buffer of six rows and samples of two; a row has six deliveries at most and is stale after five steps."""
    return make(2, CAPACITY, SHAPES, TYPES, **LIMITED[kind])


@pytest.fixture
def build(kind: str) -> Callable[..., Any]:
    """Make a native driver from Python: this spends no time on graphs.

    The twins' tests hold the rest to the same state.
    """

    def get(draws: int, capacity: int, **options: Any) -> Any:
        return make_driver(NATIVE, draws, capacity, SHAPES, TYPES, seed=0, **KINDS[kind], **options)

    return get


def rows(*serials: int) -> tuple[np.ndarray, ...]:
    """Return rows with these numbers in every field."""
    return stack([(np.array([n, -n], np.float32), np.array(n, np.int32)) for n in serials])


def insert_pairs(driver: Any, first: int, last: int) -> None:
    """Insert rows `first` to `last`, two at a time."""
    for serial in range(first, last, 2):
        driver.insert(rows(serial, serial + 1))


def drawn(driver: Any) -> list[int]:
    """Return the handles of a sample; check that handles and rows belong together."""
    handles, *batch = driver.draw()
    assert_rows(batch, rows(*handles.tolist()))
    return handles.tolist()


def eligible(driver: Any) -> list[int]:
    """Return the handles of the rows with positive weight, from the state alone."""
    driver.buffer.check_valid()
    state = driver.buffer.state_dict()
    head, count, inserted = int(state["head"]), int(state["count"]), int(state["serials"][0])
    slots = [(head + row) % driver.buffer.capacity for row in range(count)]
    return [inserted - count + row for row, slot in enumerate(slots) if state["weights"][slot] > 0]


def uses(driver: Any, handles: list[int]) -> list[int]:
    """Return use counts, read four at a time: a graph is compiled for each number."""
    counts: list[int] = []
    for first in range(0, len(handles), 4):
        some = handles[first : first + 4]
        counts += [fact[1] for fact in driver.info(some + [-1] * (4 - len(some)))][: len(some)]
    return counts


def empty_out(driver: Any) -> list[int]:
    """Return the handles drawn until no row is left."""
    seen: list[int] = []
    while driver.status()[2]:
        seen += drawn(driver)
    return seen


# Single limits.


@pytest.mark.slow
def test_each_row_is_delivered_as_often_as_max_use_says(build: Callable[..., Any]):
    for max_use in (1, 2, 5):
        driver = build(1, 6, max_use=max_use)
        insert_pairs(driver, 0, 4)
        assert sorted(empty_out(driver)) == sorted([0, 1, 2, 3] * max_use)
        assert uses(driver, [0, 1, 2, 3]) == [max_use] * 4
        assert (eligible(driver), driver.status()) == ([], (4, False, False))


def test_a_batch_may_exceed_max_use_and_the_row_goes_after_it(build: Callable[..., Any]):
    """A row drawn twice in a batch counts twice."""
    driver = build(2, 6, max_use=3)
    insert_pairs(driver, 0, 2)
    counts = {0: 0, 1: 0}
    while driver.status()[2]:
        for handle in drawn(driver):
            counts[handle] += 1
        assert uses(driver, [0, 1]) == [counts[0], counts[1]]
        assert eligible(driver) == [handle for handle in (0, 1) if counts[handle] < 3]
    assert 3 <= max(counts.values()) <= 4


def test_staleness_alone(build: Callable[..., Any]):
    """A row is stale when the clock is more than max_staleness past its insertion."""
    driver = build(2, 6, max_staleness=2)
    insert_pairs(driver, 0, 2)
    driver.advance()
    insert_pairs(driver, 2, 4)
    driver.advance(1)
    assert eligible(driver) == [0, 1, 2, 3]
    assert [fact[2] for fact in driver.info([0, 1, 2, 3])] == [2, 2, 1, 1]
    driver.advance(0)
    assert eligible(driver) == [0, 1, 2, 3]
    driver.advance()
    assert eligible(driver) == [2, 3]
    assert set(drawn(driver) + drawn(driver)) <= {2, 3}
    driver.advance(100)
    assert (eligible(driver), driver.status()) == ([], (4, False, False))
    assert [fact[2] for fact in driver.info([0, 3])] == [103, 102]
    insert_pairs(driver, 4, 6)
    assert eligible(driver) == [4, 5]


def test_with_a_staleness_of_zero_rows_live_for_one_step(build: Callable[..., Any]):
    driver = build(2, 6, max_staleness=0)
    insert_pairs(driver, 0, 2)
    assert eligible(driver) == [0, 1]
    driver.advance()
    assert eligible(driver) == []
    insert_pairs(driver, 2, 8)
    assert eligible(driver) == [2, 3, 4, 5, 6, 7]


def test_without_a_limit_the_clock_removes_nothing(build: Callable[..., Any]):
    driver = build(2, 6, max_use=50)
    insert_pairs(driver, 0, 4)
    driver.advance(1000)
    assert (eligible(driver), driver.info([3])[0][1:]) == ([0, 1, 2, 3], (0, 1000))


@everywhere
def test_deletion_alone(combination: Combination, limited: Any):
    """A row counts once; invalid handles are skipped; `size` and `get_item` still see the row."""
    insert_pairs(limited, 0, 6)
    assert limited.delete([1, 4, 1, 4]) == 2
    assert limited.delete([1, 4, 6, -1]) == 0
    assert (eligible(limited), limited.status()) == ([0, 2, 3, 5], (6, True, True))
    assert {handle for _ in range(4) for handle in drawn(limited)} <= {0, 2, 3, 5}
    if combination.call == "eager":  # a call from Python in any combination
        assert_rows(limited.buffer.get_item([1, 4]), rows(1, 4))
    assert limited.delete([0, 2, 3, 3]) == 3
    assert limited.status() == (6, True, False)


def test_any_number_of_rows_go_stale_at_once(backend: str):
    """Some of them were deleted before, and the ring wraps: all stale rows are removed, and no others.

    The rows come from a native buffer, so that a composite one compiles only the graphs of the clock.
    """
    capacity = 130
    native, driver = (
        make_driver(Combination(name, "eager"), 1, capacity, SHAPES, TYPES, seed=0, max_staleness=3)
        for name in ("native", backend)
    )
    start = 0
    for stale in (1, 63, 64, 65, 128, capacity):
        for serial in range(start, start + capacity):
            if serial == start + stale:
                assert native.delete([start, start + stale // 2]) == min(stale, 2)
                native.advance(2)
            native.insert([part[0] for part in rows(serial)])
        driver.buffer.load_state_dict(native.buffer.state_dict())
        driver.advance(2 if stale < capacity else 4)
        assert eligible(driver) == list(range(start + stale, start + capacity))
        driver.advance(2)
        assert eligible(driver) == []
        start += capacity
        native.buffer.load_state_dict(driver.buffer.state_dict())


def test_priorities_are_written_for_their_rows_alone(make: Make):
    """Updates of rows that were deleted, used up, stale, evicted or never inserted are skipped and counted."""
    driver = make(2, CAPACITY, SHAPES, TYPES, **LIMITED["prioritized"])
    insert_pairs(driver, 0, 2)
    driver.advance(3)
    insert_pairs(driver, 2, 6)
    assert driver.delete([3, 3, 3, 3]) == 1
    driver.advance(3)  # rows 0 and 1 are stale
    assert eligible(driver) == [2, 4, 5]
    assert driver.update([0, 1, 3, 6], [50.0] * 4) == 4
    assert driver.update([4, 3, 1, 4], [2.0, 50.0, 50.0, 3.0]) == 2
    assert [fact[0] for fact in driver.info([0, 1, 2, 3])] == [1, 1, 1, 1]
    assert [fact[0] for fact in driver.info([4, 5, 6, -1])] == [3, 1, 0, 0]
    assert eligible(driver) == [2, 4, 5]
    insert_pairs(driver, 6, 8)  # evicts rows 0 and 1, with the largest priority that a valid row was given
    assert driver.update([0, 1, 0, 1], [50.0] * 4) == 4
    assert [fact[0] for fact in driver.info([6, 7, 4, 5])] == [3, 3, 3, 1]


# Errors.


def assert_refused(driver: Any, call: Callable[[], Any], error: type[Exception], message: str) -> None:
    before = driver.buffer.state_dict()
    with pytest.raises(error, match=message):
        call()
    after = driver.buffer.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    driver.buffer.check_valid()


def test_too_few_eligible_rows(build: Callable[..., Any], kind: str):
    driver = build(2, 6, max_use=3)
    insert_pairs(driver, 0, 6)
    assert driver.delete([0, 1, 2, 3, 4]) == 5
    assert driver.status() == (6, True, False)
    assert driver.draw()[0].tolist() == [5, 5]  # with replacement one row is enough
    driver.delete([5])
    text = r"needs at least 1 eligible row, but got 0 .*of 6 stored\. Wait until can_sample\(\) is true\."
    assert_refused(driver, driver.draw, RuntimeError, text)
    if kind == "uniform":
        insert_pairs(driver, 6, 8)
        assert_refused(driver, lambda: driver.sample_handles((0, 4)), RuntimeError, text)
        assert set(driver.sample_handles((3, 6))[0].tolist()) <= {6, 7}


def test_a_plain_buffer_keeps_no_weights():
    buffer = ReplayBuffer(2, 6, SHAPES, TYPES, seed=0)
    state = set(buffer.state_dict())
    assert state == {"version", "capacity", "column.0", "column.1", "head", "count", "serials", "random_state"}
    for options in ({"weighted": True}, {"max_use": 1}, {"max_staleness": 0}):
        weighted = ReplayBuffer(2, 6, SHAPES, TYPES, seed=0, **options)
        more = {"weights", "priorities", "max_priority", "use_counts", "insertion_clocks", "clock", "counts"}
        assert set(weighted.state_dict()) == state | more
        assert weighted.nbytes > buffer.nbytes


def test_use_counts_end_at_the_largest(backend: str):
    buffer = ReplayBuffer(4, 4, shapes=[()], types=["int32"], weighted=True, seed=0, backend=backend)
    buffer.insert([[1, 2, 3, 4]])
    buffer.use_counts.asnumpy()[...] = MOST_USES - 1
    drawn = np.concatenate([buffer.sample()[0].asnumpy() - 1 for _ in range(3)])
    times = np.bincount(drawn, minlength=4)
    assert times.max() > 1
    assert (buffer.info(range(4))[1].asnumpy() == MOST_USES - (times == 0)).all()
    assert MOST_USES == 2**31 - 1 - 2**16
