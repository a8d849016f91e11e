"""`statistics_of`: hand-worked numbers, and after random operations against `info` of each row."""

import itertools
from typing import Any

import numpy as np
import pytest
from flat import flat

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer, ReservoirReplayBuffer, SequenceReplayBuffer
from mindspore_replay.training.statistics import Histogram, statistics_of


def rows(n: int) -> list[np.ndarray]:
    return [np.zeros(n, np.float32)]


#: Rows of any length, of which the oldest are evicted before the ring is full.
LENGTHS: dict[str, Any] = {"shapes": [(None,)], "types": ["float32"], "max_length": 5, "items": 90}
FIXED: dict[str, Any] = {"shapes": [()], "types": ["float32"]}


def test_a_plain_buffer_by_hand():
    buffer = ReplayBuffer(3, 4, [()], ["float32"], seed=0)
    values, histograms = statistics_of(buffer.state_dict())
    assert values == {"rows": 0, "capacity": 4, "inserted": 0, "sampled": 0, "overwritten": 0}
    assert histograms == {}
    buffer.insert(rows(3)).insert(rows(3)).sample()
    values, histograms = statistics_of(buffer.state_dict())
    assert values == {
        "rows": 4,
        "capacity": 4,
        "inserted": 6,
        "sampled": 3,
        "overwritten": 2,
        "age_mean": 1.5,
        "age_max": 3,
    }
    assert (histograms["age"].edges.tolist(), histograms["age"].counts.tolist()) == ([0, 1, 2, 3, 4], [1] * 4)
    buffer.reset()
    buffer.insert(rows(1))
    values, _ = statistics_of(buffer.state_dict())
    assert (values["inserted"], values["overwritten"], values["sampled"]) == (7, 0, 3)


def test_priorities_by_hand():
    buffer = PrioritizedReplayBuffer(4, 8, [()], ["float32"], seed=0, beta=0.25, max_use=100)
    buffer.insert(rows(4), priority=[0.5, 1, 2, 8])
    buffer.advance(3)
    buffer.insert(rows(1), priority=3)
    buffer.delete([3, 99])
    buffer.update_priorities([0, 3], [0.75, 5])
    values, histograms = statistics_of(buffer.state_dict())
    assert values == {
        "rows": 5, "capacity": 8, "inserted": 5, "sampled": 0, "overwritten": 0, "eligible": 4, "used_up": 0,
        "stale": 0, "deleted": 1, "invalid_handles": 2, "use_count_mean": 0, "use_count_max": 0, "staleness_mean": 2.25,
        "staleness_max": 3, "age_mean": 2.25, "age_max": 4, "beta": 0.25, "priority_mean": 1.6875, "priority_min": 0.75,
        "priority_max": 3,
    }  # fmt: skip
    edges, counts = histograms["priority"]
    assert edges.tolist() == [0.75, 0.875, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5]
    assert counts.tolist() == [1, 0, 1, 0, 0, 0, 1, 0, 1]


def test_uses_of_removed_rows_count():
    buffer = ReplayBuffer(2, 4, [()], ["float32"], seed=0, replace=False, max_use=2)
    buffer.insert(rows(2))
    for _ in range(2):
        buffer.sample()
    values, histograms = statistics_of(buffer.state_dict())
    assert (values["use_count_mean"], values["use_count_max"], values["used_up"], values["eligible"]) == (2, 2, 2, 0)
    assert "staleness_mean" not in values
    assert histograms == {}


def test_ages_in_a_reservoir():
    buffer = ReservoirReplayBuffer(2, 5, [()], ["float32"], seed=0)
    buffer.insert(rows(40)).sample()
    values, histograms = statistics_of(buffer.state_dict())
    ages = 39 - buffer.row_serials.asnumpy()
    assert (values["age_mean"], values["age_max"], values["overwritten"]) == (ages.mean(), ages.max(), 35)
    assert values["sampled"] == 2
    assert histograms["age"].counts.sum() == 5


def test_sequences_count_as_samples():
    buffer = SequenceReplayBuffer(3, 20, [()], ["float32"], sequence_length=4, seed=0)
    buffer.insert(rows(10))
    buffer.sample()
    values, _ = statistics_of(buffer.state_dict())
    assert (values["sampled"], values["eligible"]) == (3, 7)


def operate(buffer: Any, rng: np.random.Generator) -> None:
    """Apply one random operation."""
    inserted = int(buffer.serials.asnumpy()[0])
    handles = rng.integers(max(inserted - 60, -3), inserted + 3, 5)
    kind = rng.integers(6)
    if kind < 2:
        n = int(rng.integers(1, 9))
        lists = [[np.zeros(rng.integers(6), np.float32) for _ in range(n)]] if buffer.columns.length_groups else rows(n)
        buffer.insert(lists, priority=rng.exponential(10.0, n).astype(np.float32))
    elif kind == 2 and buffer.can_sample():
        buffer.sample()
    elif kind == 3 and rng.random() < 0.3:
        buffer.delete(handles)
    elif kind == 4:
        buffer.advance(int(rng.integers(3)))
    else:
        buffer.update_priorities(handles, rng.exponential(3.0, 5).astype(np.float32))


def in_bins(histogram: Histogram, values: np.ndarray) -> list[int]:
    edges = histogram.edges
    return [int(((values >= low) & (values < high)).sum()) for low, high in itertools.pairwise(edges)]


@pytest.mark.parametrize("columns", [FIXED, pytest.param(LENGTHS, marks=pytest.mark.cpu_only("needs its kernels"))])
def test_against_what_is_known_of_each_row(columns: dict[str, Any]):
    rng = np.random.default_rng(0)
    buffer = PrioritizedReplayBuffer(4, 50, **flat(**columns, seed=0, max_use=2, max_staleness=4))
    evicts_early = False
    for _ in range(400):
        operate(buffer, rng)
        values, histograms = statistics_of(buffer.state_dict())
        inserted, size = int(buffer.serials.asnumpy()[0]), int(buffer.size())
        evicts_early |= size < min(inserted, 50)
        if size == 0:
            continue
        handles = np.arange(inserted - size, inserted)
        priority, uses, staleness = (part.asnumpy() for part in buffer.info(handles))
        slots = handles % 50
        live = buffer.weights.asnumpy()[slots] > 0
        assert (values["use_count_max"], values["eligible"]) == (uses.max(), live.sum())
        np.testing.assert_allclose(values["use_count_mean"], uses.mean())
        if not live.any():
            continue
        assert (values["staleness_max"], values["age_max"]) == (staleness[live].max(), inserted - 1 - handles[live][0])
        np.testing.assert_allclose(values["staleness_mean"], staleness[live].mean())
        np.testing.assert_allclose(values["age_mean"], (inserted - 1 - handles[live]).mean())
        np.testing.assert_allclose(values["priority_mean"], priority[live].mean(dtype=np.float64))
        assert (values["priority_min"], values["priority_max"]) == (priority[live].min(), priority[live].max())
        assert histograms["priority"].counts.tolist() == in_bins(histograms["priority"], priority[live])
        assert histograms["age"].counts.tolist() == in_bins(histograms["age"], inserted - 1 - handles[live])
        assert histograms["staleness"].counts.tolist() == in_bins(histograms["staleness"], staleness[live])
        assert all(histogram.counts.sum() == live.sum() for histogram in histograms.values())
    removed = values["used_up"], values["stale"], values["deleted"], values["invalid_handles"]
    assert min(removed) > 10
    assert evicts_early == (columns is LENGTHS)


@pytest.mark.parametrize(
    "priorities", [[0.0], [-0.0, 0.0, 1.0], [3.3e38, 1.0], [1e-30, 1e30], [3.0] * 40, [1.5e-45, 1.0]]
)
def test_priorities_of_all_magnitudes(priorities: list[float]):
    """At most 161 bins; priorities too small for a bin of their own are in the first."""
    buffer = PrioritizedReplayBuffer(1, 50, [()], ["float32"], seed=0)
    buffer.insert(rows(len(priorities)), priority=priorities)
    histogram = statistics_of(buffer.state_dict()).histograms["priority"]
    assert histogram.counts.size <= 161
    assert (np.diff(histogram.edges) > 0).all()
    assert histogram.counts.tolist() == in_bins(histogram, np.float32(priorities).astype(np.float64))
