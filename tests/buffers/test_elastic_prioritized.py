"""Only the newest `window` rows are drawn, by priority. `test_twin.py` compares all operations with a twin."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_frequencies
from flat import flat

from mindspore_replay import ElasticReplayBuffer, NStep

#: Weights are priorities, and sums of whole numbers are exact.
EXACT: dict[str, Any] = {"alpha": 1.0, "epsilon": 0.0}
DRAWS, CAPACITY = 3, 40


def make(backend: str, window: int | None = None, draws: int = DRAWS, **options: Any) -> ElasticReplayBuffer:
    return ElasticReplayBuffer(
        draws,
        CAPACITY,
        **flat([()], [ms.int64], window=window, prioritized=True, backend=backend, **{"seed": 3} | EXACT | options),
    )


BY_WINDOW = {"beta": 0.5, "normalize": "buffer"}
#: Of the composite buffer that tests share.
BY_BUFFER: dict[str, Any] = {"normalize": "buffer", "beta_steps": 7}


def filled_by_window(backend: str, window: int, priorities: np.ndarray, **options: Any) -> ElasticReplayBuffer:
    """Return a buffer of rows with these priorities, inserted by the native backend, which compiles no graph."""
    native, buffer = make("native", **options), make(backend, **options)
    native.insert([np.arange(len(priorities))], priority=priorities.astype(np.float32))
    native.set_window(window)
    buffer.load_state_dict(native.state_dict())
    return buffer


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


def test_rows_before_the_window_may_weigh_anything():
    """No sum of theirs is subtracted, which would round the weight of the window away."""
    buffer = filled_by_window("native", 4, np.array([1e30] * 20 + [1e-6] * 4), **BY_BUFFER)
    drawn = [row for _ in range(40) for row in buffer.sample()[2].asnumpy().tolist()]
    assert_frequencies([row // 2 for row in drawn], {10: 0.5, 11: 0.5})


# The rest.


def test_with_a_view():
    """Steps that begin in the window are drawn; the newest has no next observation yet."""
    names, types = ["observation", "reward", "terminated"], [ms.int64, ms.float32, ms.bool_]
    buffer = ElasticReplayBuffer(
        2,
        20,
        **flat(
            [()] * 3, types, window=6, prioritized=True, names=names, views=[NStep(3, 0.5)], seed=0, backend="native"
        ),
    )
    for step in range(30):
        buffer.insert([step, 1.0, False], priority=step % 5 + 1.0)
    batches = [buffer.sample(as_dict=True) for _ in range(30)]
    assert {step for batch in batches for step in batch["observation"].asnumpy().tolist()} == {24, 25, 26, 27, 28}
    assert list(batches[0])[:2] == ["indices", "weights"]
