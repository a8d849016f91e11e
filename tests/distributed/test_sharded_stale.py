"""Draws by old totals: shards in this process whose rows change without the learner's knowledge."""

from typing import Any

import numpy as np
import pytest
from clusters import assert_distribution
from local_ray import LocalRay

from mindspore_replay import RateLimiter
from mindspore_replay.distributed import ShardedReplay
from mindspore_replay.distributed.front import ShardCalls

pytestmark = pytest.mark.cpu_only("shards lie in the memory of processes of their own")

ROWS, BATCH = 6, 6
#: Priorities of the rows of both shards, at the learner's last report and at the draw.
BEFORE = np.array([[1, 2, 1, 0, 0, 0], [4, 1, 1, 2, 2, 2]], np.float32)
AFTER = np.array([[1, 2, 6, 9, 3, 3], [1, 1, 0.5, 2, 0, 2]], np.float32)


class Setting:
    """A learner and two shards. Rows hold their numbers, from 0 in one shard and from `ROWS` in the other."""

    def __init__(self, ray: LocalRay, kind: str = "prioritized", by_buffer: bool = True, **more: Any) -> None:
        config = {"type": kind, "capacity": 2 * ROWS, "data_shape": [[]], "data_type": ["int32"], "seed": 0, **more}
        if kind == "prioritized":
            config |= {"alpha": 1.0, "epsilon": 0.0, "normalize": "buffer" if by_buffer else "batch"}
        replay = ShardedReplay({**config, "sample_size": BATCH if more.get("replace", True) else 4}, num_shards=2)
        self.exchange, self.calls, self.asked = replay._exchange, replay._front.calls, ray.sent
        self.stores = [link.actor._shard.rows for link in self.exchange.all]

    def fill(self, *rows: int, first: int = 0) -> None:
        """Insert a number of rows into each shard, numbered from `first`."""
        for i, (store, n) in enumerate(zip(self.stores, rows)):
            if n:
                store.insert([np.arange(first, first + n, dtype=np.int32) + ROWS * i])

    def set(self, priorities: np.ndarray) -> None:
        for store, given in zip(self.stores, priorities):
            store.update_priorities(np.arange(ROWS), given)

    def draw(self) -> list[np.ndarray]:
        """Draw a batch; `asked` then holds the calls that it made."""
        self.asked.clear()
        return [part.asnumpy() for part in self.calls.draw(1.0)]


def check_estimates(ray: LocalRay, trials: int = 1500) -> None:
    """Check that the summed weights of a row have the same mean for every row, within five sigma."""
    setting = Setting(ray)
    setting.fill(ROWS, ROWS)
    sums = np.zeros((trials, 2 * ROWS))
    for trial in range(trials):
        setting.set(BEFORE)
        setting.exchange.reports()
        setting.set(AFTER)
        _, weights, numbers = setting.draw()
        assert setting.asked == ["draw", "draw"]
        np.add.at(sums[trial], numbers, weights)
    live = AFTER.ravel() > 0
    assert not sums[:, ~live].any()
    assert (sums[:, live] > 0).sum(0).min() >= 25
    differences = sums[:, live] - sums[:, live].mean(1, keepdims=True)
    errors = differences.std(0) / np.sqrt(trials)
    assert (abs(differences.mean(0)) < 5 * errors).all(), differences.mean(0) / errors


def test_weighted_estimates_are_unbiased_though_totals_are_old(ray: LocalRay):
    check_estimates(ray)


def test_weights_that_take_old_totals_for_new_ones_are_found(ray: LocalRay, monkeypatch: pytest.MonkeyPatch):
    right = ShardCalls._pieces
    monkeypatch.setattr(ShardCalls, "_pieces", lambda *them: [piece._replace(factor=1.0) for piece in right(*them)])
    with pytest.raises(AssertionError):
        check_estimates(ray)


@pytest.mark.parametrize("by_buffer", [False, True])
def test_weights_are_those_of_the_probabilities_of_the_draws(ray: LocalRay, by_buffer: bool):
    setting = Setting(ray, by_buffer=by_buffer)
    setting.fill(ROWS, ROWS)
    setting.set(BEFORE)
    setting.exchange.reports()
    setting.set(AFTER)
    shares = BEFORE.sum(1) / BEFORE.sum()
    p = (shares[:, None] * AFTER / AFTER.sum(1, keepdims=True)).ravel()
    _, weights, numbers = setting.draw()
    smallest = p[p > 0].min() if by_buffer else p[numbers].min()
    np.testing.assert_allclose(weights, smallest / p[numbers], rtol=1e-6)
    counts = np.bincount(numbers // ROWS, minlength=2)
    assert abs(counts - BATCH * shares).max() <= 1  # in proportion to the old totals
    setting.draw()
    after = np.bincount(setting.draw()[2] // ROWS, minlength=2)
    assert abs(after - BATCH * AFTER.sum(1) / AFTER.sum()).max() <= 1  # in proportion to the totals in the answers


def test_rows_of_a_shard_that_was_empty_are_not_missed(ray: LocalRay):
    setting = Setting(ray)
    setting.fill(0, ROWS)
    setting.exchange.reports()
    setting.fill(ROWS, 0)
    numbers = setting.draw()[2]
    assert setting.asked == ["draw"] * 4
    assert abs(np.bincount(numbers // ROWS) - BATCH / 2).max() == 0
    setting.draw()
    assert setting.asked == ["draw"] * 2


def test_what_a_shard_that_became_empty_does_not_give_the_other_gives(ray: LocalRay):
    setting = Setting(ray)
    setting.fill(ROWS, ROWS)
    setting.stores[1].update_priorities([0], 9.0)
    setting.exchange.reports()
    left = np.array([1, 1, 0.5, 2, 2, 2], np.float32)
    setting.set(np.stack([left * 0, left]))
    _, weights, numbers = setting.draw()
    assert numbers.min() >= ROWS
    np.testing.assert_allclose(weights, 0.5 / left[numbers - ROWS])
    setting.set(AFTER * 0)
    with pytest.raises(RuntimeError, match=r"but got 0 .* of 12 stored in the 2 shards that answer"):
        setting.draw()


@pytest.mark.parametrize("kind", [{}, {"weighted": True}, {"replace": False}], ids=str)
def test_uniform_batches_are_drawn_by_new_totals(ray: LocalRay, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """No weight can correct a uniform draw, so a batch drawn by outdated totals is drawn again."""

    def check() -> None:
        setting, numbers = Setting(ray, "uniform", **kind), []
        for _ in range(250):
            for store in setting.stores:
                store.reset()
            setting.fill(1, ROWS)
            for _ in range(2):
                setting.exchange.reports()
                setting.draw()
            setting.fill(ROWS - 1, 0, first=1)
            batch = setting.draw()[-1]
            assert setting.calls.plan.replace or len(set(batch.tolist())) == len(batch)
            numbers.append(batch)
        assert_distribution(np.concatenate(numbers), dict.fromkeys(range(2 * ROWS), 1.0))

    check()
    monkeypatch.setattr(ShardCalls, "_misses_rows", lambda *_: False)
    with pytest.raises(AssertionError):
        check()


def test_round_trips_of_uniform_batches(ray: LocalRay):
    setting = Setting(ray, "uniform")
    setting.fill(5, 5)
    trips = []
    for step in range(6):
        if step == 3:
            setting.fill(1, 0, first=5)
        setting.draw()
        trips.append(setting.asked[::2])
    # The first two draws find that the totals no longer change. The fourth finds new totals, the fifth the same again.
    twice = ["report", "draw"]
    assert trips == [twice, twice, ["draw"], ["draw", "draw"], twice, ["draw"]]


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_rows_that_use_removes_are_not_drawn_in_vain(ray: LocalRay, kind: str):
    setting = Setting(ray, kind, max_use=1)
    setting.fill(3, 0)
    setting.exchange.reports()
    setting.calls.plan = setting.calls.plan._replace(n=4)
    setting.fill(1, ROWS, first=3)
    numbers = [setting.draw()[-1] for _ in range(2)]
    seen = np.concatenate(numbers).tolist()
    assert len(set(seen)) + sum(report.eligible for report in setting.exchange.latest().values()) == 10


def test_grants_are_taken_back_for_a_writer_that_waits(ray: LocalRay):
    setting = Setting(ray)
    exchange, (first, second) = setting.exchange, setting.exchange.all
    exchange.limiter = RateLimiter(1.0, 10, 20.0)
    exchange.reports()
    assert [first.allowed, second.allowed] == [15, 15]
    early, late = second.actor._shard.report(), second.actor._shard.report()
    assert all(exchange.note(second, told) for told in (late, early))
    assert second.report is late
    first.actor._shard._wanted = 30
    ray.sent.clear()
    exchange.reports()
    assert ray.sent == ["report"] * 2 + ["take_back"] * 2 + ["grant"]
    assert [first.allowed, second.allowed] == [30, 0] == [link.actor._shard._allowed for link in (first, second)]
    first.actor._shard.take_back()  # late, so that the learner asks whether the shard is there
    exchange._ping(first)
    assert (first in exchange.alive(), first.allowed) == (True, 0)
    second.actor._shard._wanted = 1
    exchange.reports()
    assert ([first.allowed, second.allowed], exchange.blocked()) == ([0, 1], {0})  # in turn, the rest for the first
