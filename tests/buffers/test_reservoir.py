"""Algorithm R: each row of the stream is equally likely to be kept, for any batch sizes, also after a resume.

`test_twin.py` compares the state of the rows with a slow twin.
"""

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_frequencies, uniform
from model import Model
from scipy.stats import chi2

from mindspore_replay import ReservoirReplayBuffer

#: Capacity of the reservoir, length of the stream, number of streams, and whether a buffer resumes in each.
CASES = {"10, resumed": (10, 400, 300, True), "1000": (1000, 40_000, 12, False)}


def make(backend: str, capacity: int = 5, sample_size: int = 3, **options: Any) -> ReservoirReplayBuffer:
    names = ["observation", "step", "even"]
    types = [ms.float32, ms.int64, "bool"]
    options = {"names": names, "seed": 7, **options}
    return ReservoirReplayBuffer(sample_size, capacity, [(2,), (), ()], types, backend=backend, **options)


def rows(first: int, n: int) -> list[np.ndarray]:
    """Return rows of a stream from `first` on."""
    steps = np.arange(first, first + n)
    return [np.stack([steps, -steps], 1).astype(np.float32), steps, steps % 2 == 0]


def batches(length: int) -> Iterator[tuple[int, int]]:
    """Yield the begins and sizes of batches of many sizes."""
    first = 0
    for n in [1, 1, 3, 64, 2, 7] * length:
        yield first, min(n, length - first)
        first += n
        if first >= length:
            return


def kept(capacity: int, length: int, times: int, resume: bool) -> np.ndarray:
    """Return the positions in the stream of the rows kept, for each stream. Shape ``[times, capacity]``."""
    buffer = ReservoirReplayBuffer(1, capacity, [()], [ms.int64], seed=1, backend="native")
    found = []
    for _ in range(times):
        for first, n in batches(length):
            buffer.insert([np.arange(first, first + n)])
            if resume and first <= length // 2 < first + n:
                state = buffer.state_dict()
                buffer = ReservoirReplayBuffer(1, capacity, [()], [ms.int64], seed=2, backend="native")
                buffer.load_state_dict(state)
        assert buffer.full()
        found.append(buffer.rows()[0].asnumpy())
        buffer.reset()
    return np.array(found)


def kept_of_accepted(capacity: int, length: int, times: int) -> np.ndarray:
    """Simulate a wrong reservoir: a row's place is drawn among the rows accepted before it, not among all."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(times):
        slots, accepted = np.arange(capacity), capacity
        for step in range(capacity, length):
            place = generator.integers(accepted + 1)
            if place < capacity:
                slots[place] = step
                accepted += 1
        found.append(slots)
    return np.array(found)


def assert_quarters(positions: np.ndarray, length: int) -> None:
    """Check by chi-square that each quarter of the stream has its share of the rows kept."""
    counts = np.histogram(positions, bins=4, range=(0, length))[0]
    expected = positions.size / 4
    # Rows are kept without replacement, so counts vary less than those of independent draws.
    correction = (length - 1) / (length - positions.shape[1])
    statistic = ((counts - expected) ** 2 / expected).sum() * correction
    assert statistic < chi2.ppf(0.9999, 3), counts


@pytest.mark.parametrize(("capacity", "length", "times", "resume"), CASES.values(), ids=CASES)
def test_quarters_of_the_stream(capacity: int, length: int, times: int, resume: bool):
    assert_quarters(kept(capacity, length, times, resume), length)


@pytest.mark.parametrize(("capacity", "length", "times"), [(10, 400, 300), (1000, 40_000, 1)], ids=CASES)
def test_a_reservoir_that_counts_only_accepted_rows_is_rejected(capacity: int, length: int, times: int):
    with pytest.raises(AssertionError):
        assert_quarters(kept_of_accepted(capacity, length, times), length)


def test_each_row_of_the_stream():
    """Includes the boundary cases: the last row that fills, the first that replaces."""
    assert_frequencies(kept(4, 9, 3000, False).ravel().tolist(), uniform(range(9)))


def test_each_slot_takes_each_later_row():
    slots = kept(4, 9, 3000, False)
    for slot in range(4):
        early = {step: 0.0 for step in range(4)} | {slot: 4 / 9}
        assert_frequencies(
            slots[:, slot].tolist(), {k: v for k, v in early.items() if v} | dict.fromkeys(range(4, 9), 1 / 9)
        )


def test_a_long_stream():
    """Serial numbers beyond 32 bits: places are drawn among all rows of the stream."""
    buffer = make("native")
    state = make("native").insert(rows(0, 5)).state_dict()
    state["serials"] = np.array([2**40, 0])
    buffer.load_state_dict(state)
    twin = Model("ReservoirReplayBuffer", 3, 5, seed=7)
    twin.inserted = 2**40
    places = [twin.place(2**40 + i) for i in range(100)]
    assert min(places) > 10**6  # so no row is kept
    assert max(places) > 2**39
    buffer.insert(rows(5, 100))
    assert buffer.rows()[1].asnumpy().tolist() == list(range(5))
    assert buffer.serials.asnumpy().tolist() == [2**40 + 100, 0]
