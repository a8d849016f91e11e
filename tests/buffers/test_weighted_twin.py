"""Random operations on buffers with weights against their slow twins: all state is equal bit for bit after each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import assert_weights
from drivers import CAPACITY, LIMITED, MAX_STALENESS, NATIVE, PLACES, SHAPES, TYPES, Combination, shared_driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import ReferenceBuffer, draw_slot, stack

from mindspore_replay import ElasticReplayBuffer, PrioritizedReplayBuffer, ReservoirReplayBuffer

Make = Callable[..., Any]

HANDLES = 4  # of a call, some of them invalid
#: Capacity of elastic buffers, whose windows end within nodes of the tree.
LARGE = 40

PRIORITIZED = {"cls": PrioritizedReplayBuffer}
RESERVOIR: dict[str, Any] = {"cls": ReservoirReplayBuffer, "weighted": True}
ELASTIC: dict[str, Any] = {"cls": ElasticReplayBuffer, "prioritized": True, "alpha": 1.0, "epsilon": 0.0}
ELSEWHERE: dict[str, dict[str, Any]] = {
    "uniform, deletions alone": {"weighted": True},
    "uniform, used once": {"max_use": 1, "ordered": True},
    "uniform, used twice": {"max_use": 2, "max_staleness": 1},
    "uniform, distinct": {"max_staleness": 0, "replace": False},
    "uniform, distinct, ordered": {"replace": False, "ordered": True, "max_use": 3, "max_staleness": 9},
    "reservoir": RESERVOIR | {"replace": False},
    "reservoir, used once": RESERVOIR | {"max_use": 1},
    "reservoir, used often": RESERVOIR | {"max_use": 6},
    "prioritized": PRIORITIZED | {"alpha": 0.5, "epsilon": 0.0, "normalize": "buffer"},
    "prioritized, used once": PRIORITIZED | {"alpha": 1.0, "beta": 1.0, "max_use": 1},
    "prioritized, stale": PRIORITIZED | {"alpha": 0.0, "max_staleness": 2, "beta": 0.0, "beta_steps": 2},
    "prioritized, everything": PRIORITIZED
    | {"alpha": 0.7, "beta_steps": 3, "max_use": 3, "max_staleness": 4, "initial_priority": 0.1},
    "elastic, weighted": {"cls": ElasticReplayBuffer, "max_use": 6},
    "elastic, by priority": ELASTIC,
    "elastic, by the window's weights": ELASTIC
    | {"normalize": "buffer", "beta_steps": 7, "max_use": 2, "initial_priority": 1.5},
    "prioritized, by the rows held": PRIORITIZED
    | {"default_priority": "largest_held", "max_use": 3, "initial_priority": 0.25},
    "prioritized, by the buffer": PRIORITIZED | {"alpha": 0.7, "beta_steps": 3, "normalize": "buffer", "max_use": 2},
}

PRIORITY = st.sampled_from([0.0, 1e-6, 0.25, 0.1, 1.0, 2.0, 9.0, 1234.5])
#: Distance of a handle behind the newest row; negative for one not yet given.
BEHIND = st.lists(st.integers(-2, 12), min_size=HANDLES, max_size=HANDLES)
#: The learner's clock less the version that made a row.
LAGS = st.lists(st.integers(0, 4), min_size=3, max_size=3)
SOME = [
    st.tuples(st.just("insert"), st.just(2)),
    st.tuples(st.just("insert"), st.just(2), PRIORITY),
    st.tuples(st.just("insert"), st.just(3), st.lists(PRIORITY, min_size=3, max_size=3), LAGS),
    st.tuples(st.just("sample"), st.none()),
    st.tuples(st.just("sample"), st.none()),
    st.tuples(st.just("sample in"), st.tuples(st.integers(-8, 8), st.integers(-8, 8))),
    st.tuples(st.just("update"), BEHIND, st.lists(PRIORITY, min_size=HANDLES, max_size=HANDLES)),
    st.tuples(st.just("delete"), BEHIND),
    st.tuples(st.just("advance"), st.integers(0, 3)),
    st.tuples(st.just("info"), BEHIND),
    st.tuples(st.just("reset")),
]
#: Graphs are compiled for each number of rows, so these numbers are used only where nothing is compiled.
MORE = [
    st.tuples(st.just("insert"), st.sampled_from([None, 5, 6, 7])),
    st.tuples(st.just("insert"), st.just(None), PRIORITY),
    st.tuples(st.just("insert"), st.sampled_from([None, 7]), PRIORITY, st.integers(0, 3)),
    st.tuples(st.just("insert"), st.just(15), st.lists(PRIORITY, min_size=15, max_size=15)),
    *[st.tuples(st.just("window"), st.integers(2, LARGE))] * 2,
]
OPERATIONS, MORE_OPERATIONS = (st.lists(st.one_of(kinds), max_size=20) for kinds in (SOME, SOME + MORE))
SETTINGS = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def row(serial: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([serial, -serial], np.float32), np.array(serial, np.int32)


def make_twin(capacity: int, options: dict[str, Any]) -> ReferenceBuffer:
    rest, cls = {key: value for key, value in options.items() if key not in ("cls", "weighted")}, options.get("cls")
    kind = {"prioritized": cls is PrioritizedReplayBuffer, "reservoir": cls is ReservoirReplayBuffer}
    window = capacity if cls is ElasticReplayBuffer else None
    return ReferenceBuffer(2, capacity, **(kind | rest), window=window)


class Pair:
    """A buffer and its twin; every operation goes to both, and the results are compared."""

    def __init__(self, driver: Any, twin: ReferenceBuffer) -> None:
        self.driver, self.twin = driver, twin
        self.prioritized = twin.prioritized

    def handles(self, behind: list[int]) -> list[int]:
        return [self.twin.inserted - 1 - distance for distance in behind]

    def insert(self, n: int | None, priority: Any = None, lag: Any = None) -> None:
        batch = [row(self.twin.inserted + i) for i in range(n or 1)]
        given = {"priority": priority} if self.prioritized else {}
        if lag is not None:
            given["version"] = np.maximum(self.twin.now - np.array(lag), 0)
        self.driver.insert(batch[0] if n is None else stack(batch), **given)
        self.twin.insert(batch, **given)

    def sample(self, sample_range: Any) -> None:
        if not self.twin.can_draw(sample_range or (None, None)):
            rows = len(self.twin.eligible(sample_range or (None, None)))
            if not self.driver.compiled:
                with pytest.raises(RuntimeError, match=f"but got {rows} in the range to draw from"):
                    self.driver.sample_handles(sample_range) if sample_range else self.driver.sample()
            return
        if self.prioritized:
            handles, importance, rows = self.twin.sample()
            got_handles, got_importance, *got = self.driver.sample()
            assert (got_importance.dtype, got_importance.tolist()) == (np.float32, importance)
        else:
            handles, rows = self.twin.sample(sample_range or (None, None))
            got_handles, *got = self.driver.sample_handles(sample_range)
        assert (got_handles.dtype, got_handles.tolist()) == (np.int64, handles)
        assert [column.tolist() for column in got] == [column.tolist() for column in stack(rows)]

    def sample_in(self, sample_range: Any) -> None:
        if not (self.twin.prioritized or self.twin.reservoir or self.twin.window):
            self.sample(sample_range)

    def window(self, rows: int) -> None:
        if self.twin.window:
            self.twin.window = rows
            self.driver.buffer.set_window(rows)

    def update(self, behind: list[int], priorities: list[float]) -> None:
        if self.prioritized:
            handles = self.handles(behind)
            assert self.driver.update(handles, priorities) == self.twin.update(handles, priorities)

    def delete(self, behind: list[int]) -> None:
        handles = self.handles(behind)
        assert self.driver.delete(handles) == self.twin.delete(handles)

    def advance(self, steps: int) -> None:
        self.driver.advance(steps)
        self.twin.advance(steps)

    def info(self, behind: list[int]) -> None:
        handles = self.handles(behind)
        assert self.driver.info(handles) == self.twin.info(handles)

    def reset(self) -> None:
        self.driver.reset()
        self.twin.reset()


def run(driver: Any, options: dict[str, Any], operations: list[tuple[Any, ...]]) -> None:
    capacity = driver.buffer.capacity
    pair = Pair(driver, make_twin(capacity, options))
    for name, *arguments in operations:
        getattr(pair, name.replace(" ", "_"))(*arguments)
        assert_weights(driver.buffer, pair.twin)
        assert driver.status() == (pair.twin.size, pair.twin.size == capacity, pair.twin.can_sample())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("combination", "options"),
    [(place, LIMITED[kind]) for place, kind in PLACES],
    ids=[f"{place}-{kind}" for place, kind in PLACES],
    indirect=["combination"],
)
@SETTINGS
@given(operations=OPERATIONS)
def test_random_operations(
    make: Make, combination: Combination, options: dict[str, Any], operations: list[tuple[Any, ...]]
):
    if combination[:2] == ("pynative", "composite"):  # the same graphs as in GRAPH_MODE, which take long
        operations = operations[:3]
    run(make(2, CAPACITY, SHAPES, TYPES, **options), options, operations)


@pytest.mark.slow
@pytest.mark.parametrize("options", ELSEWHERE.values(), ids=ELSEWHERE)
@settings(SETTINGS, max_examples=14)
@given(operations=MORE_OPERATIONS)
def test_random_operations_with_other_arguments(options: dict[str, Any], operations: list[tuple[Any, ...]]):
    capacity = LARGE if options.get("cls") is ElasticReplayBuffer else CAPACITY
    run(shared_driver(NATIVE, 2, capacity, SHAPES, TYPES, **options), options, operations)


@pytest.mark.parametrize("options", LIMITED.values(), ids=LIMITED)
def test_a_stale_row_becomes_the_oldest(options: dict[str, Any]):
    """It lies behind a fresh one, which is evicted."""
    ages = [("advance", MAX_STALENESS), ("insert", 3, [1.0] * 3, [0, MAX_STALENESS, 0])]
    operations = [*ages, *[("insert", 2)] * 2, ("advance", 1), ("sample", None)]
    run(shared_driver(NATIVE, 2, CAPACITY, SHAPES, TYPES, **options), options, operations)


def test_the_uniform_twin_by_hand():
    twin = ReferenceBuffer(2, 3, max_use=2, max_staleness=1)
    twin.insert([10, 11, 12, 13])
    assert (twin.slots, twin.eligible(), twin.eligible((1, 3))) == ([13, 11, 12], [0, 1, 2], [2, 0])
    assert (twin.delete([0, 2, 2, 9]), twin.eligible()) == (1, [0, 1])
    twin.deliver([1, 1])
    assert (twin.eligible(), twin.can_sample()) == ([0], False)
    assert twin.info([1, 2, 3, 4, 0]) == [(1.0, 2, 0), (1.0, 0, 0), (1.0, 0, 0), (0.0, -1, -1), (0.0, -1, -1)]
    twin.advance(1)
    twin.insert([14])  # replaces row 11, serial 1
    assert twin.state()["use_counts"] == [0, 0, ~0]
    twin.advance(1)
    assert (twin.eligible(), twin.oldest_fresh(), twin.state()["clock"]) == ([1], 4, [2, 4, 0])
    assert twin.state()["use_counts"] == [~0, 0, ~0]


def test_the_prioritized_twin_by_hand():
    twin = ReferenceBuffer(2, 3, prioritized=True, alpha=0.5, beta=0.5, beta_steps=4, epsilon=0.0)
    twin.insert([10, 11, 12], [4.0, 16.0, 9.0])
    assert twin.state()["leaves"] == [2, 4, 3]
    assert (twin.update([0, 1, 0, 7], [1.0, 1.0, 16.0, 99.0]), twin.max_priority) == (1, 16)
    assert twin.state()["leaves"] == [4, 1, 3]
    assert [draw_slot([4, 1, 3], target) for target in (0.1, 4, 4.1, 5, 5.1, 8)] == [0, 0, 1, 1, 2, 2]
    # SplitMix64 for the key of seed 0 gives targets in (0, 4] and (4, 8]: row 0 first, then one of the others.
    handles, importance, _ = twin.sample()
    assert handles[0] == 0
    assert importance == [{1: 0.5, 2: float(np.float32(0.75**0.5))}[handles[1]], 1.0]
    assert (twin.beta, twin.counter) == (0.625, 2)
    twin.insert([13])
    assert twin.state()["leaves"] == [4, 1, 3]
    assert (twin.records[0].priority, twin.records[0].serial) == (16, 3)
