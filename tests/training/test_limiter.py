"""`RateLimiter`: hand-worked cases, its own rules on random operations, threads, checkpoints, errors."""

import contextlib
import copy
import functools
import logging
import math
import threading
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workers import run

import mindspore_replay
from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    MixedReplay,
    PrioritizedReplayBuffer,
    RateLimiter,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    attach,
    host,
)
from mindspore_replay.store.waits import waiting


def counted(limiter: RateLimiter) -> list[int]:
    return limiter.counts.tolist()


def rule_of(limiter: RateLimiter) -> list[float]:
    return limiter.rule.tolist()


def insert(limiter: RateLimiter, rows: int = 1) -> None:
    with limiter.inserting(rows, timeout=0):
        pass


def sample(limiter: RateLimiter, rows: int = 1) -> None:
    with limiter.sampling(rows, timeout=0):
        pass


def test_by_hand():
    """Two samples per insertion; three rows first; samples and insertions at most 4 samples ahead of each other."""
    limiter = RateLimiter(2, 3, 4)
    assert not limiter.can_sample()
    insert(limiter, 2)
    assert (limiter.can_sample(), limiter.can_insert(5)) == (False, True)
    insert(limiter)
    assert (limiter.can_sample(4), limiter.can_sample(5)) == (True, False)
    insert(limiter, 2)  # 4 samples ahead
    assert (limiter.can_insert(), limiter.can_sample(4)) == (False, True)
    sample(limiter, 4)
    assert (limiter.can_insert(2), limiter.can_sample(4), limiter.can_sample(5)) == (True, True, False)
    sample(limiter, 4)  # 4 samples behind
    assert (limiter.can_sample(), limiter.can_insert(3)) == (False, True)
    assert (limiter.inserted, limiter.sampled, counted(limiter)) == (5, 8, [5, 8, 2, 8])


operations = st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=60)


@given(
    operations=operations,
    low=st.sampled_from([0, 0.25, 1, 3]),
    more=st.sampled_from([0, 1, math.inf]),
    min_size=st.integers(1, 9),
)
@settings(max_examples=150, deadline=None)
def test_the_rule_holds_whatever_comes(operations: Any, low: float, more: float, min_size: int):
    """Neither side is ever ahead by more than the error buffer, and one side can always continue."""
    error = max(1.0, (low * 6 + 6) / 2)
    if low + more == 0:
        return
    limiter = RateLimiter((low, low + more), min_size, error)
    inserted = sampled = 0
    for inserts, rows in operations:
        may = limiter.can_insert(rows) if inserts else limiter.can_sample(rows)
        beyond = max(inserted + rows - max(inserted, min_size), 0)
        ratio_of = max(inserted - min_size, 0)
        if inserts:
            expected = inserted < min_size or low * (ratio_of + beyond) - sampled <= error
        else:
            expected = inserted >= min_size and (math.isinf(more) or sampled + rows - (low + more) * ratio_of <= error)
        assert may == expected
        assert limiter.can_insert(6) or limiter.can_sample(6)
        if may:
            insert(limiter, rows) if inserts else sample(limiter, rows)
            inserted, sampled = inserted + rows * inserts, sampled + rows * (not inserts)
        else:
            with pytest.raises(TimeoutError):
                insert(limiter, rows) if inserts else sample(limiter, rows)
    assert (limiter.inserted, limiter.sampled) == (inserted, sampled)


def test_what_fails_does_not_count():
    limiter = RateLimiter(2, 1, 4)
    insert(limiter)
    before = counted(limiter)
    for block in (limiter.inserting, limiter.sampling):
        with pytest.raises(KeyError), block(2):
            raise KeyError
    assert counted(limiter) == before


def test_disabled_it_counts_and_limits_nothing():
    limiter = RateLimiter(1, 2, 3)
    limiter.disable()
    assert not limiter.enabled
    assert limiter.can_sample(100)
    insert(limiter, 50)
    sample(limiter, 20)
    limiter.enable()
    assert limiter.enabled
    assert counted(limiter) == [50, 20, 0, 0]
    assert (limiter.can_insert(3), limiter.can_insert(4)) == (True, False)  # as if nothing had happened


def test_a_change_counts_from_now_on():
    limiter = RateLimiter(1, 2, 8)
    insert(limiter, 6)
    sample(limiter, 9)
    limiter.change(samples_per_insert=4)
    assert counted(limiter) == [6, 9, 0, 0]
    assert rule_of(limiter) == [4, 4, 2, 8, 1]
    assert (limiter.can_insert(2), limiter.can_sample(8), limiter.can_sample(9)) == (True, True, False)
    limiter.change(min_size=20)
    assert not limiter.can_sample()
    limiter.change(error_buffer=30)
    assert rule_of(limiter) == [4, 4, 20, 30, 1]


def test_changes_and_disabling_wake_who_waits():
    for release in (lambda limiter: limiter.change(error_buffer=50), RateLimiter.disable):
        limiter = RateLimiter(1, 1, 2)
        insert(limiter)
        insert(limiter, 2)
        begun = threading.Event()

        def wait(limiter: RateLimiter = limiter, begun: threading.Event = begun) -> None:
            begun.set()
            with limiter.inserting(timeout=60):
                pass

        run(wait, lambda begun=begun, release=release, limiter=limiter: (begun.wait(60), release(limiter)))
        assert limiter.inserted == 4


# Buffers.


def test_threads_keep_the_ratio():
    """Four actors and two learners at full speed: the ratio holds at each moment, and in the end exactly."""
    buffer = ReplayBuffer(4, 64, [()], ["int32"], seed=0)
    buffer.limiter = limiter = RateLimiter(8, 16, 20, timeout=60)
    rows = 16 + 4 * 100
    seen = []

    def act() -> None:
        for _ in range(rows // 4):
            buffer.insert([1])
            seen.append(counted(limiter))

    def learn() -> None:
        for _ in range(8 * 400 // 8):
            buffer.sample()
            seen.append(counted(limiter))

    run(*[act] * 4, *[learn] * 2)
    assert counted(limiter) == [rows, 3200, 400, 3200]
    assert max(abs(8 * inserted - sampled) for _, _, inserted, sampled in seen) <= 20
    assert buffer.serials.asnumpy()[0] == rows
    assert buffer.random_state.asnumpy()[1] == 3200


SEVERAL = {
    ReplayBuffer: {},
    PrioritizedReplayBuffer: {},
    ElasticReplayBuffer: {"window": 4},
    ReservoirReplayBuffer: {},
    SequenceReplayBuffer: {"sequence_length": 1},
    EpisodeReplayBuffer: {"max_episode_length": 1},
}


@pytest.mark.parametrize("buffer_cls", SEVERAL)
def test_every_buffer_waits(buffer_cls: type):
    buffer = buffer_cls(
        sample_size=2, capacity=8, shapes=[(3,), ()], types=["float32", "int32"], seed=0, **SEVERAL[buffer_cls]
    )
    buffer.limiter = RateLimiter(1, 2, 2.5, timeout=0)
    ends = {"end": True} if buffer.has_episodes else {}
    buffer.insert([np.zeros(3, np.float32), 1], **ends)
    with pytest.raises(TimeoutError, match="2 rows could not be sampled"):
        buffer.sample()
    more = {"end": np.ones(3, bool)} if buffer.has_episodes else {}
    buffer.add([np.zeros((3, 3), np.float32), np.ones(3, np.int32)], **more)
    with pytest.raises(TimeoutError, match="1 row could not be inserted"):
        buffer.insert([np.zeros(3, np.float32), 1], **ends)
    buffer.sample()
    assert counted(buffer.limiter) == [4, 2, 2, 2]
    with pytest.raises((TypeError, ValueError)):
        buffer.insert([np.zeros(4, np.float32), 1], **ends)
    assert counted(buffer.limiter) == [4, 2, 2, 2]
    assert buffer.serials.asnumpy()[0] == 4


@pytest.mark.parametrize("buffer_cls", SEVERAL)
def test_a_single_loop_that_asks_never_waits(buffer_cls: type):
    """`can_sample` is false if `sample` would wait, even if there are rows, and true in a block that has waited."""
    buffer = buffer_cls(2, 8, [()], ["int32"], seed=0, **SEVERAL[buffer_cls])
    buffer.limiter = RateLimiter(1, 4, 2.5, timeout=0)
    ends = {"end": np.ones(1, bool)} if buffer.has_episodes else {}
    asked = []
    for _ in range(30):
        asked.append(bool(buffer.can_sample()))
        buffer.sample() if asked[-1] else buffer.insert([np.ones(1, np.int32)], **ends)
    assert asked[:11] == [False] * 4 + [True] + [False] * 2 + [True] + [False] * 2 + [True]
    assert counted(buffer.limiter)[:2] == [21, 18] == [30 - sum(asked), 2 * sum(asked)]
    buffer.limiter.disable()
    assert bool(buffer.can_sample())
    buffer.limiter.enable()
    while not bool(buffer.can_sample()):
        buffer.insert([np.ones(1, np.int32)], **ends)
    with buffer.limiter.sampling(2):
        assert not buffer.limiter.can_sample(2)
        assert bool(buffer.can_sample())
        buffer.sample()


def test_a_sample_that_fails_does_not_count():
    buffer = ReplayBuffer(5, 8, [()], ["float32"], weighted=True, seed=0)
    buffer.limiter = RateLimiter((0, 1), 2, 10)
    buffer.insert([np.zeros(3, np.float32)]).delete([0, 1, 2])
    with pytest.raises(RuntimeError, match="at least 1 eligible row"):
        buffer.sample()
    assert counted(buffer.limiter) == [3, 0, 1, 0]


def test_the_counters_are_in_checkpoints(tmp_path: Path):
    def make() -> ReplayBuffer:
        buffer = ReplayBuffer(2, 8, [()], ["float32"], seed=0)
        buffer.limiter = RateLimiter(1, 2, 2)
        return buffer

    saved = make()
    saved.insert([np.zeros(4, np.float32)]).sample()
    saved.limiter.change(error_buffer=7)
    saved.sample()
    expected = counted(saved.limiter), rule_of(saved.limiter)
    other = make()
    other.load_state_dict(saved.state_dict())
    assert (counted(other.limiter), rule_of(other.limiter)) == expected
    ms.save_checkpoint(saved, str(tmp_path / "buffer.ckpt"))
    third = make()
    assert ms.load_param_into_net(third, ms.load_checkpoint(str(tmp_path / "buffer.ckpt"))) == ([], [])
    assert (counted(third.limiter), rule_of(third.limiter)) == expected
    third.check_valid()


PLACES = [("native", False), ("native", True), ("composite", False), ("host", False), ("host", True)]


@pytest.mark.parametrize(("face", "in_folder"), PLACES)
def test_rows_that_are_there_count_for_the_smallest_size(face: str, in_folder: bool, tmp_path: Path):
    place: dict[str, Any] = {"storage": tmp_path / "rows"} if in_folder else {}
    of, backend = (host, "native") if face == "host" else (mindspore_replay, face)
    buffer = of.ReplayBuffer(4, 30, [()], ["int32"], seed=0, backend=backend, **place)
    insert_into = attach(tmp_path / "rows", timeout=0).insert if in_folder else buffer.insert
    insert_into([list(range(7))])
    buffer.limiter = limiter = of.RateLimiter(2, 10, 8, timeout=0)
    assert (bool(buffer.can_sample()), limiter.inserted) == (False, 7)
    insert_into([list(range(4))])  # three of these for `min_size`, one for the ratio
    for _ in range(2):
        assert bool(buffer.can_sample())
        assert limiter.arrays()["counts"].tolist() == [11, 0, 1, 0]
        buffer.limiter = limiter  # the same rows do not count again
    assert copy.deepcopy(buffer).limiter.arrays()["counts"].tolist() == [11, 0, 1, 0]
    buffer.limiter = of.RateLimiter(2, 10, 8, timeout=0)
    if in_folder:
        attach(tmp_path / "rows", timeout=0).sample()
        buffer.close()
        buffer = type(buffer).open(tmp_path / "rows")
    else:
        buffer.sample()
    assert buffer.limiter.arrays()["counts"].tolist() == [11, 4, 0, 4]
    buffer.reset()
    assert (buffer.limiter.inserted, bool(buffer.limiter.can_sample())) == (0, False)
    buffer.close()


def test_a_mixture_waits_for_the_limiters_of_its_sources():
    buffer, other = (ReplayBuffer(2, 8, [()], ["float32"], seed=0) for _ in range(2))
    for one in (buffer, other):
        one.insert([np.zeros(4, np.float32)])
    buffer.limiter = RateLimiter((0, 1), 2, 3, timeout=0)
    buffer.insert([np.zeros(2, np.float32)])
    mixed = MixedReplay([(buffer, 0.75), (other, 0.25)], 4)
    assert bool(mixed.can_sample())
    mixed.sample()
    assert not bool(mixed.can_sample())
    with pytest.raises(TimeoutError, match="3 rows could not be sampled"):
        mixed.sample()
    assert counted(buffer.limiter) == [6, 3, 2, 3]


def test_the_smallest_error_buffer_never_blocks_both():
    """Ratios without an exact float: sums are rounded, and yet one side can always continue."""
    for low, n, batch in [(1 / 0.09, 1, 4), (1 / 3, 7, 5), (0.1, 3, 2), (1 / 0.7, 2, 9)]:
        limiter = RateLimiter(low, n, (low * n + batch) / 2)
        for _ in range(3000):
            if limiter.can_sample(batch):
                sample(limiter, batch)
            else:
                insert(limiter, n)
        np.testing.assert_allclose(limiter.sampled / limiter.inserted, low, rtol=0.1)


def test_a_row_counts_for_samples_when_it_is_there():
    limiter = RateLimiter(1, 1, 2)
    with limiter.inserting():
        assert limiter.can_insert(2)
        assert not limiter.can_sample()
        with limiter.inserting():  # by the same thread: the buffer's own
            pass
    assert counted(limiter) == [1, 0, 0, 0]
    with limiter.sampling(2):
        assert not limiter.can_sample()
        assert limiter.sampled == 0
    assert (limiter.sampled, limiter.can_sample()) == (2, False)


def test_a_bracket_around_calls_from_python_counts_once():
    buffer = ReplayBuffer(2, 8, [()], ["float32"], seed=0)
    buffer.limiter = RateLimiter(1, 2, 2, timeout=0)
    buffer.insert([np.zeros(3, np.float32)])
    with buffer.limiter.inserting(1), buffer.limiter.sampling(2):
        buffer.insert([0.0]).sample()
    assert counted(buffer.limiter) == [4, 2, 2, 2]


def test_a_change_while_a_block_goes_on():
    limiter = RateLimiter(1, 1, 6)
    insert(limiter)
    block = limiter.inserting(5)
    block.__enter__()
    limiter.change(samples_per_insert=1)
    assert block.__exit__(KeyError, KeyError(), None) is False
    assert counted(limiter) == [1, 0, 0, 0]
    with limiter.inserting(2):
        limiter.change(samples_per_insert=1)
    assert counted(limiter) == [3, 0, 2, 0]


def test_a_loaded_state_lets_who_waits_go_on():
    buffer = ReplayBuffer(2, 8, [()], ["float32"], seed=0)
    buffer.limiter = RateLimiter(1, 2, 2, timeout=60)
    buffer.insert([np.zeros(2, np.float32)])
    state = buffer.state_dict()
    buffer.sample()
    run(buffer.sample, lambda: buffer.load_state_dict(state))
    assert buffer.limiter.sampled in (2, 4)


# Long waits.

LONG_SAMPLE = (
    "For 'RateLimiter', 4 rows could not be sampled for 10 s: 0 were inserted and 0 sampled, with "
    "samples_per_insert=2, min_size=3 and error_buffer=4. The wait ends when another thread or process inserts rows, "
    "or calls disable() or change(). In a single loop call the buffer's can_sample() before. A timeout makes a long "
    "wait an error."
)
LONG_INSERT = (
    "For 'RateLimiter', 1 row could not be inserted for 10 s: 5 were inserted and 0 sampled, with "
    "samples_per_insert=2, min_size=3 and error_buffer=4. The wait ends when another thread or process samples rows, "
    "or calls disable() or change(). In a single loop call limiter.can_insert() before. A timeout makes a long wait "
    "an error."
)


@pytest.mark.parametrize(
    ("first", "call", "rows", "expected"),
    [(0, RateLimiter.sampling, 4, LONG_SAMPLE), (5, RateLimiter.inserting, 1, LONG_INSERT)],
)
def test_a_long_wait_is_logged_once(
    first: int, call: Any, rows: int, expected: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """By a clock that advances when the thread waits; after 25 s the limiter is disabled."""
    limiter = RateLimiter(2, 3, 4)
    if first:
        insert(limiter, first)
    now, seen = [0.0], []

    def sleep(seconds: float) -> None:
        seen.append((now[0], len(caplog.records)))
        now[0] += seconds
        if now[0] > 25:
            limiter.disable()

    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(limiter.limits, "sleep", sleep)
    with caplog.at_level(logging.WARNING, "mindspore_replay.limiter"), call(limiter, rows):
        pass
    assert [record.message for record in caplog.records] == [expected]
    assert seen[-1][0] == 25
    assert all(records == (seconds >= 10) for seconds, records in seen)


def test_its_counts_and_settings_are_printed():
    limiter = RateLimiter((1, math.inf), 3, 4.5, timeout=2)
    insert(limiter, 5)
    assert repr(limiter) == (
        "RateLimiter(samples_per_insert=(1, inf), min_size=3, error_buffer=4.5, timeout=2.0, enabled=True, inserted=5, "
        "sampled=0)"
    )
    limiter.disable()
    assert str(limiter).endswith("enabled=False, inserted=5, sampled=0)")


# Errors.


def test_the_text_of_a_timeout():
    limiter = RateLimiter(2, 3, 4)
    with pytest.raises(TimeoutError) as raised:
        sample(limiter, 4)
    assert str(raised.value) == (
        "For 'RateLimiter', 4 rows could not be sampled within 0 s: 0 were inserted and 0 sampled, with "
        "samples_per_insert=2, min_size=3 and error_buffer=4. First insert rows, or call its disable() while you "
        "fill the buffer."
    )
    insert(limiter, 5)
    with pytest.raises(TimeoutError, match="1 row could not be inserted within 0 s: 5 were inserted and 0 sampled"):
        insert(limiter)


def test_what_could_wait_without_end_is_an_error():
    limiter = RateLimiter(2, 3, 4)
    limiter.disable()
    insert(limiter, 3)
    limiter.enable()
    sample(limiter, 4)
    message = (
        r"'error_buffer' must be at least 5 for insertions of 3 and samples of 4 rows with samples_per_insert=2, but "
        r"got 4: insertions and samples could wait for each other forever\."
    )
    with pytest.raises(ValueError, match=message):
        insert(limiter, 3)
    assert counted(limiter) == [3, 4, 0, 4]
    insert(limiter)  # the invalid size is not kept


@pytest.mark.parametrize("first", ["insert", "sample"])
@pytest.mark.parametrize("of", [mindspore_replay, host])
@pytest.mark.parametrize("num_envs", [4, 1])
def test_the_first_error_of_sizes_asks_for_enough(of: Any, first: str, num_envs: int):
    """Insertions of 4 and samples of 32: (1 * 4 + 32) / 2 = 18, whichever comes first; none of one row comes."""

    def run(error_buffer: float) -> None:
        buffer = of.ReplayBuffer(32, 400, [()], ["int32"], num_envs=num_envs)
        buffer.limiter = of.RateLimiter(1, 40, error_buffer, timeout=0)
        for _ in range(10):
            buffer.insert([list(range(4))])
        insert_rows = functools.partial(buffer.insert, [list(range(4))])
        for call in (insert_rows, buffer.sample) if first == "insert" else (buffer.sample, insert_rows):
            with contextlib.suppress(TimeoutError):
                call()

    with pytest.raises(ValueError, match=r"must be at least 18 for insertions of 4 and samples of 32 rows"):
        run(2)
    run(18)


def test_sizes_do_not_matter_where_one_side_never_waits():
    for ratio in ((0, 1), (1, math.inf)):
        limiter = RateLimiter(ratio, 1, 1)
        limiter.disable()
        insert(limiter)
        limiter.enable()
        with contextlib.suppress(TimeoutError):
            insert(limiter, 50)
        with contextlib.suppress(TimeoutError):
            sample(limiter, 50)
        assert counted(limiter)[:2] == ([51, 50] if ratio[0] == 0 else [1, 50])


def test_a_limiter_counts_the_rows_of_one_buffer():
    one, other = (host.ReplayBuffer(2, 8, [()], ["float32"]) for _ in range(2))
    one.limiter = limiter = RateLimiter(1, 2, 2, timeout=0)
    one.insert([np.zeros(3, np.float32)])
    with pytest.raises(ValueError, match="'limiter' must be one that no other buffer has"):
        other.limiter = limiter
    one.limiter = limiter
    one.limiter = None
    one.insert([np.zeros(100, np.float32)])
    assert limiter.inserted == 3
    other.limiter = limiter
    other.insert([np.zeros(1, np.float32)])
    assert (limiter.inserted, other.limiter.sampled) == (4, 0)


def test_what_is_no_state_of_a_limiter():
    buffer = ReplayBuffer(2, 8, [()], ["float32"], seed=0)
    buffer.limiter = RateLimiter(1, 2, 2, timeout=math.inf)
    assert buffer.limiter.timeout is None
    buffer.limiter.limits.counts[0] = -1
    with pytest.raises(ValueError, match="must be those of a limiter"):
        buffer.check_valid()
