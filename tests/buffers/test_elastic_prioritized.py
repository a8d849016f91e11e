"""Only the newest `window` rows are drawn, by priority."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from checks import assert_frequencies, assert_weights
from drivers import Combination
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mindspore import Tensor
from reference import ReferenceBuffer

from mindspore_replay import ElasticReplayBuffer, NStep, PrioritizedReplayBuffer
from mindspore_replay.store.store import Store

#: Weights are priorities, and sums of whole numbers are exact.
EXACT: dict[str, Any] = {"alpha": 1.0, "epsilon": 0.0}
DRAWS, CAPACITY = 3, 40


def make(backend: str, window: int | None = None, draws: int = DRAWS, **options: Any) -> ElasticReplayBuffer:
    return ElasticReplayBuffer(
        draws, CAPACITY, [()], [ms.int64], window, prioritized=True, backend=backend, **({"seed": 3} | EXACT | options)
    )


_shared: dict[str, tuple[Any, dict[str, np.ndarray]]] = {}


def shared(backend: str, **options: Any) -> ElasticReplayBuffer:
    """Return an empty buffer whose window is its capacity; equal arguments give the same one, with its graphs."""
    key = f"{backend} {options}"
    if key not in _shared:
        buffer = make(backend, **options)
        _shared[key] = buffer, buffer.state_dict()
    buffer, empty = _shared[key]
    buffer.load_state_dict(empty)
    return buffer


BY_WINDOW = {"beta": 0.5, "normalize": "buffer"}
#: Of the composite buffer that tests share.
BY_BUFFER: dict[str, Any] = {"normalize": "buffer", "beta_steps": 7}


def filled_by_window(backend: str, window: int, priorities: np.ndarray, **options: Any) -> ElasticReplayBuffer:
    """Return a buffer of rows with these priorities, inserted by the native backend, which compiles no graph."""
    native, buffer = shared("native", **options), shared(backend, **options)
    native.insert([np.arange(len(priorities))], priority=priorities.astype(np.float32))
    native.set_window(window)
    buffer.load_state_dict(native.state_dict())
    return buffer


class Calls(Kept):
    """The methods inside compiled functions."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    @ms.jit
    def sample(self, window):
        self.buffer.set_window(window)
        return self.buffer.sample()

    @ms.jit
    def can_sample(self):
        return self.buffer.can_sample()


class Pair:
    """A buffer and its twin; every operation goes to both."""

    def __init__(self, buffer: Any, calls: Calls | None = None, **options: Any) -> None:
        self.buffer, self.calls = buffer, calls
        self.twin = ReferenceBuffer(
            DRAWS, CAPACITY, window=CAPACITY, prioritized=True, **({"seed": 3} | EXACT | options)
        )

    def insert(self, n: int, priorities: list[int]) -> None:
        given = np.array([priorities[i % len(priorities)] for i in range(n)], np.float32)
        rows = np.arange(self.twin.inserted, self.twin.inserted + n)
        self.buffer.insert([rows], priority=given)
        self.twin.insert([(row,) for row in rows], given)

    def window(self, size: int) -> None:
        self.twin.window = size
        self.buffer.set_window(size)

    def delete(self, behind: list[int]) -> None:
        handles = [self.twin.inserted - 1 - distance for distance in behind]
        assert int(self.buffer.delete(handles)) == self.twin.delete(handles)

    def update(self, behind: list[int], priorities: list[int]) -> None:
        handles = [self.twin.inserted - 1 - distance for distance in behind]
        values = [float(priorities[i % len(priorities)]) for i in range(len(handles))]
        assert int(self.buffer.update_priorities(handles, values)) == self.twin.update(handles, values)

    def sample(self) -> None:
        can_sample = self.twin.can_sample()
        assert bool(self.buffer.can_sample()) == can_sample
        if self.calls is not None:
            assert bool(self.calls.can_sample()) == can_sample
        if not can_sample:
            if self.calls is None:
                with pytest.raises(
                    RuntimeError, match=f"but got {len(self.twin.eligible())} in the range to draw from"
                ):
                    self.buffer.sample()
            return
        compiled = None if self.calls is None else self.calls.sample(Tensor(self.twin.window, ms.int64))
        handles, weights, rows = (part.asnumpy() for part in compiled or self.buffer.sample())
        expected = self.twin.sample()
        assert (handles.tolist(), rows.tolist()) == (expected[0], [row[0] for row in expected[2]])
        assert weights.tolist() == np.array(expected[1], np.float32).tolist()


PRIORITIES = st.lists(st.sampled_from([0, 0, 1, 2, 7, 1000]), min_size=3, max_size=9)
BEHIND = st.lists(st.integers(-2, CAPACITY + 3), min_size=4, max_size=4)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.sampled_from([1, 4, 16]), PRIORITIES),
        st.tuples(st.just("insert"), st.sampled_from([1, 4, 16]), PRIORITIES),
        st.tuples(st.just("window"), st.integers(DRAWS, CAPACITY)),
        st.tuples(st.just("delete"), BEHIND),
        st.tuples(st.just("update"), BEHIND, PRIORITIES),
        *[st.tuples(st.just("sample"))] * 4,
    ),
    min_size=20,
    max_size=30,
)
QUIET = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck), max_examples=15
)


def run(pair: Pair, operations: list[tuple[Any, ...]]) -> None:
    for name, *arguments in operations:
        getattr(pair, name)(*arguments)
        assert_weights(pair.buffer, pair.twin)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by the window's weights": BY_BUFFER,
    "used up": {"max_use": 2, "normalize": "buffer"},
}


@pytest.mark.parametrize("options", ARGUMENTS.values(), ids=ARGUMENTS)
@settings(QUIET)
@given(operations=OPERATIONS)
def test_random_operations(options: dict[str, Any], operations: list[tuple[Any, ...]]):
    run(Pair(make("native", **options), **options), operations)


@settings(QUIET, max_examples=2)
@given(operations=OPERATIONS)
def test_random_operations_composite(operations: list[tuple[Any, ...]]):
    """Insertions of 16 rows alone: a graph is compiled for each number of rows."""
    operations = [(name, 16, *rest[1:]) if name == "insert" else (name, *rest) for name, *rest in operations]
    run(Pair(shared("composite", **BY_BUFFER), **BY_BUFFER), operations)


_calls: dict[str, Calls] = {}


def test_each_combination(combination: Combination):
    buffer = shared(combination.backend, **BY_BUFFER)
    calls = None if combination.call == "eager" else _calls.setdefault(combination.backend, Calls(buffer))
    pair = Pair(buffer, calls, **BY_BUFFER)
    for i, window in enumerate([5, 40, 17, 3, 30, 8, 21, 40]):
        pair.insert(16, np.roll([i, 3, 0, 1000, 1], i).tolist())  # another priority for the newest row each time
        pair.window(window)
        pair.sample()
        pair.delete([1, 4, 50, i])
        pair.sample()
        assert_weights(pair.buffer, pair.twin)


def test_a_window_of_all_rows_draws_as_a_prioritized_buffer():
    """Bit for bit, also before the ring is full."""
    options = EXACT | {"alpha": 0.6, "seed": 5, "normalize": "buffer"}
    plain = PrioritizedReplayBuffer(4, CAPACITY, [()], [ms.int64], backend="native", **options)
    elastic = make("native", draws=4, **options)
    for i in range(6):
        for each in (plain, elastic):
            each.insert([np.arange(13)], priority=np.linspace(i, 9, 13, dtype=np.float32))
        for ours, theirs in zip(elastic.sample(), plain.sample(), strict=True):
            assert ours.asnumpy().tolist() == theirs.asnumpy().tolist()


# Frequencies and importance weights of rows.

WINDOW = 7
#: Of the rows; the smallest one is not in the window.
WEIGHTS = np.array([2.0**i for i in range(6, -4, -1)] + [3.0, 1.0, 2.0, 0.0, 5.0, 4.0, 8.0])


def shares(first: int) -> dict[int, float]:
    """Return the probability of each row from row `first` on."""
    weights = WEIGHTS[first:]
    return {first + i: w / weights.sum() for i, w in enumerate(weights.tolist()) if w > 0}


def assert_importance(found: dict[int, float], probabilities: dict[int, float], beta: float) -> None:
    """Check importance weights: (N * P(i))^-beta over the largest, with N and P of the rows drawn from."""
    n = len(probabilities)
    raw = {row: (n * p) ** -beta for row, p in probabilities.items()}
    expected = {row: weight / max(raw.values()) for row, weight in raw.items()}
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[row] for row in expected], list(expected.values()), rtol=1e-6)


def wrong_draws(name: str, n: int) -> list[int]:
    """Return draws of a wrong sampler."""
    rng, rows = np.random.default_rng(0), np.arange(len(WEIGHTS))
    first = len(WEIGHTS) - WINDOW
    whole = rng.choice(rows, n, p=WEIGHTS / WEIGHTS.sum())
    if name == "ignores the window":
        return whole.tolist()
    if name == "the total of the whole tree":  # points beyond the window's weight end at its last row
        return np.where(whole < first, rows[-1], whole).tolist()
    if name == "ignores weights":
        return rng.choice(rows[first:], n).tolist()
    raise ValueError(name)


def test_frequencies_and_importance():
    beta, first = BY_WINDOW["beta"], len(WEIGHTS) - WINDOW
    buffer = filled_by_window("native", WINDOW, WEIGHTS, **BY_WINDOW)
    drawn, weights = [], {}
    for _ in range(2500):
        handles, importance, rows = (part.asnumpy().tolist() for part in buffer.sample())
        assert handles == rows
        drawn += rows
        weights.update(zip(rows, importance))
    assert_frequencies(drawn, shares(first))
    assert_importance(weights, shares(first), beta)
    with pytest.raises(AssertionError):  # as if normalized by the smallest weight of the whole tree
        assert_importance(weights, shares(0), beta)
    for name in ("ignores the window", "the total of the whole tree", "ignores weights"):
        with pytest.raises(AssertionError):
            assert_frequencies(wrong_draws(name, len(drawn)), shares(first))


def test_the_same_rows_come_from_both_backends():
    """Bit for bit, so the frequencies above hold for the composite backend too."""
    native, composite = make("native", **BY_BUFFER), filled_by_window("composite", WINDOW, WEIGHTS, **BY_BUFFER)
    native.load_state_dict(composite.state_dict())
    for _ in range(40):
        for ours, theirs in zip(composite.sample(), native.sample(), strict=True):
            assert ours.asnumpy().tolist() == theirs.asnumpy().tolist()
    assert composite.random_state.asnumpy().tolist() == native.random_state.asnumpy().tolist()


def test_rows_before_the_window_may_weigh_anything(backend: str):
    """No sum of theirs is subtracted, which would round the weight of the window away."""
    buffer = filled_by_window(backend, 4, np.array([1e30] * 20 + [1e-6] * 4), **BY_BUFFER)
    drawn = [row for _ in range(40) for row in buffer.sample()[2].asnumpy().tolist()]
    assert_frequencies([row // 2 for row in drawn], {10: 0.5, 11: 0.5})


# The rest.


def test_can_sample_counts_rows_of_positive_weight_in_the_window():
    buffer = filled_by_window("native", 4, np.array([1, 1, 1, 1, 1, 5, 0, 1]), **BY_BUFFER)
    assert buffer.can_sample()
    assert buffer.eligible() == 3
    buffer.delete([7])
    assert not buffer.can_sample()
    with pytest.raises(RuntimeError, match="sample_size=3 eligible rows, but got 2"):
        buffer.sample()
    assert buffer.set_window(5).can_sample()
    assert {row for _ in range(20) for row in buffer.sample()[2].asnumpy().tolist()} == {3, 4, 5}


def test_a_store_draws_as_the_buffer():
    """Without MindSpore in between."""
    buffer = make("native", 6)
    store = Store(buffer.columns, buffer.options)
    for i in range(9):
        given = np.arange(i, i + 7, dtype=np.int64), np.arange(1, 8, dtype=np.float32)
        buffer.insert([given[0]], priority=given[1])
        store.insert([given[0]], given[1])
        for ours, theirs in zip(buffer.sample(beta=0.7), store.sample(beta=0.7), strict=True):
            assert ours.asnumpy().tolist() == theirs.tolist()
        assert store.eligible() == buffer.eligible() == 6


def test_with_a_view():
    """From the composite backend the same rows come as from the native one, bit for bit."""
    names, types = ["observation", "reward", "terminated"], [ms.int64, ms.float32, ms.bool_]
    options: dict[str, Any] = {"prioritized": True, "names": names, "views": [NStep(3, 0.5)], "seed": 0}

    native, composite = (
        ElasticReplayBuffer(2, 20, [()] * 3, types, 6, backend=backend, **options)
        for backend in ("native", "composite")
    )
    for step in range(30):
        native.insert([step, 1.0, False], priority=step % 5 + 1.0)
    composite.load_state_dict(native.state_dict())
    drawn = set()
    for _ in range(30):
        batch, other = native.sample(as_dict=True), composite.sample(as_dict=True)
        assert list(batch) == list(other)
        for ours, theirs in zip(batch.values(), other.values()):
            assert ours.asnumpy().tolist() == theirs.asnumpy().tolist()
        drawn |= set(batch["observation"].asnumpy().tolist())
    assert drawn == {24, 25, 26, 27, 28}
    assert list(batch)[:2] == ["indices", "weights"]


def test_a_checkpoint_keeps_window_and_beta():
    one, other = make("native", 6, beta_steps=9), make("native", beta_steps=9)
    one.insert([np.arange(9)], priority=np.arange(9, dtype=np.float32))
    one.sample()
    other.load_state_dict(one.state_dict())
    assert other.window.asnumpy().tolist() == [6]
    for ours, theirs in zip(one.sample(), other.sample(), strict=True):
        assert ours.asnumpy().tolist() == theirs.asnumpy().tolist()


WRONG: list[tuple[type[Exception], dict[str, Any], str]] = [
    (TypeError, {"prioritized": 1}, "'prioritized' must be a bool"),
    (ValueError, {"prioritized": True, "replace": False}, "'replace' must be True, but got False"),
    (ValueError, {"prioritized": True, "alpha": 1.5}, r"'alpha' must be in \[0, 1\], but got 1\.5"),
    (ValueError, {"prioritized": True, "window": 50}, r"'window' must be in \[3, 40\], but got 50"),
]


@pytest.mark.parametrize(("error", "options", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_arguments_that_do_not_fit(error: type[Exception], options: dict[str, Any], message: str):
    with pytest.raises(error, match=f"^For 'ElasticReplayBuffer', {message}"):
        ElasticReplayBuffer(DRAWS, CAPACITY, [()], [ms.int64], **options)
