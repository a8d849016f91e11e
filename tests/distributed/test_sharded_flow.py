"""A limiter keeps samples and insertions of several processes in proportion. The tests count rows, not seconds."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from clusters import PATIENCE, Writing, config, fill, numbers_of, rows, wait_until

from mindspore_replay import Prefetch, RateLimiter
from mindspore_replay.distributed import ShardedReplay, ShardWriter
from mindspore_replay.distributed import writer as writer_module

pytestmark = pytest.mark.cpu_only("shards lie in the memory of processes of their own")


RATIO, MIN_SIZE, ERROR = 4.0, 40, 60.0


def limited(**more: Any) -> ShardedReplay:
    limiter = {"samples_per_insert": RATIO, "min_size": MIN_SIZE, "error_buffer": ERROR}
    return ShardedReplay(config(limiter=limiter, capacity=100_000), batch=5, **more)


def stored(replay: ShardedReplay) -> int:
    """Return the number of rows in the shards, by their own reports and not the learner's records."""
    reports = [link.actor.report.remote() for link in replay._exchange.all]
    return sum(report.rows for report in replay._ray.get(reports, timeout=PATIENCE))


def most(samples: int) -> float:
    """Return the largest number of rows allowed after this many samples."""
    return MIN_SIZE + (samples + ERROR) / RATIO


def test_writers_in_several_processes_wait_for_samples(cluster: Any):
    with limited() as replay:
        actor = cluster.remote(Writing)
        writing = [actor.remote(replay.writer(), 10_000 * i, 10_000 * (i + 1), 10**6) for i in range(3)]
        going = [one.run.remote(3600.0) for one in writing]
        wait_until(lambda: bool(replay.can_sample()))
        samples, inserted = 0, []
        for _ in range(150):
            # While all shards want rows, the grants decide their shares, not the speed of the processes.
            wait_until(lambda: all(report.wanted for report in replay._exchange.reports().values()))
            numbers_of(replay.sample())
            samples += 8
            rows_now = stored(replay)
            assert rows_now <= most(samples)
            inserted.append(rows_now)
            counts = replay.limiter.counts.copy()
            assert counts[1] == samples
            assert counts[0] <= rows_now
            assert samples - RATIO * (counts[0] - MIN_SIZE) <= ERROR
        # Writers wait only for samples: they insert all that is allowed, except for at most one batch each.
        wait_until(lambda: bool(replay.can_sample()) and stored(replay) > most(samples) - 3 * 5)
        time.sleep(0.3)
        assert stored(replay) <= most(samples)
        assert inserted[-1] > inserted[0] + 100
        shares = [report.rows for report in replay._exchange.reports().values()]
        assert min(shares) > 50, "a writer's shard was not granted its turn"
        replay.limiter.disable()
        before = stored(replay)
        replay.can_sample()
        wait_until(lambda: stored(replay) > before + 500)
        for one in writing:
            cluster.kill(one)
        del going


_threads: list[threading.Thread] = []


def write(writer: ShardWriter, last: int) -> None:
    """Let a thread insert rows by a copy of a writer, as another process has it, until the shards end."""
    writing = Writing(ShardWriter(*writer.__reduce__()[1]), 0, last, 10**6)

    def run() -> None:
        with contextlib.suppress(RuntimeError):
            writing.run(PATIENCE)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    _threads.append(thread)


@pytest.fixture(autouse=True)
def ended(ray: object) -> Iterator[None]:
    """Await the threads of `write` while there is the Ray that they use."""
    yield
    while _threads:
        _threads.pop().join(PATIENCE)


def test_a_limiter_that_grants_everyone_everything_is_found(monkeypatch: pytest.MonkeyPatch):
    """A wrong limiter exceeds the bound of the test above."""
    monkeypatch.setattr(RateLimiter, "allowance", lambda self, waiting=1: float("inf"))
    with limited() as replay:
        write(replay.writer(), 10_000)
        wait_until(lambda: stored(replay) > most(8))
        numbers_of(replay.sample())


def test_what_one_shard_does_not_use_the_other_gets():
    """One writer inserts all rows. Its shard is first granted half of the quota, and the first insertion needs more."""
    with limited() as replay:
        writer = replay.writer(0)
        writer.insert(rows(range(40)))
        samples = 0
        for step in range(60):
            writer.insert(rows(range(step, step + 2)))
            numbers_of(replay.sample())
            samples += 8
        assert writer.flush().inserted == 40 + 120
        assert stored(replay) == 160 <= most(samples)


def test_samples_wait_for_insertions():
    with limited() as replay:
        fill(replay, 0, range(40))
        for _ in range(int(ERROR / 8)):
            numbers_of(replay.sample())
        assert not bool(replay.can_sample())
        replay.limiter.timeout = 0.2
        with pytest.raises(TimeoutError, match=r"8 rows could not be sampled within 0\.2 s: 40 were inserted and 56 s"):
            replay.sample()
        replay.limiter.timeout = None
        got: list[np.ndarray] = []
        thread = threading.Thread(target=lambda: got.append(numbers_of(replay.sample())))
        thread.start()
        time.sleep(0.2)
        assert not got
        replay.writer(1).insert(rows(range(40, 45))).flush()
        thread.join(timeout=PATIENCE)
        assert len(got) == 1
        ahead = [Prefetch(replay, 2) for _ in range(2)]
        numbers_of(ahead[0].sample())
        ended: list[Prefetch] = []

        def learn(batches: Prefetch) -> None:
            with pytest.raises(RuntimeError, match="this one was closed"):
                deque(batches, maxlen=0)
            ended.append(batches)

        threads = [threading.Thread(target=learn, args=[batches]) for batches in ahead]
        for thread in threads:
            thread.start()
        time.sleep(0.2)  # all wait for insertions, the first in a thread of its own; closing ends each alone
        for batches, thread in zip(reversed(ahead), reversed(threads)):
            batches.close()
            thread.join(timeout=PATIENCE)
        assert ended == ahead[::-1]


def test_a_limiter_that_has_no_room_for_batches():
    narrow = {"samples_per_insert": 4.0, "min_size": 1, "error_buffer": 50.0}
    with pytest.raises(ValueError, match=r"'error_buffer' must be at least 132 for insertions of 64 and samples of 8"):
        ShardedReplay(config(limiter=narrow))
    with limited() as replay, pytest.raises(ValueError, match="'error_buffer' must be at least 14"):
        replay.limiter = RateLimiter(4.0, 1, 13.0)


def test_a_writer_does_not_wait_longer_than_the_limiter_says(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    limiter = {"samples_per_insert": 1.0, "min_size": 5, "error_buffer": 10}
    with ShardedReplay(config(limiter={**limiter, "timeout": 0.3}, capacity=1000), batch=5, in_flight=1) as replay:
        assert replay.writer(0)._timeout == 0.3
    with ShardedReplay(config(limiter=limiter, capacity=1000), batch=5, in_flight=1) as replay:
        writer = replay.writer(0)
        for i in range(3):
            writer.insert(rows(range(5 * i, 5 * i + 5))).flush()
        monkeypatch.setattr(writer_module, "PATIENCE", 0.1)
        writer.insert(rows(range(15, 20)))  # the limiter blocks it
        # Set a timeout like the limiter's only now: on a busy machine, allowed rows may take longer.
        writer._timeout = 0.3
        with pytest.raises(
            TimeoutError, match=r"5 rows could not be inserted within 0\.3 s; they are still in transit"
        ):
            writer.insert(rows(range(20, 25)))
        writer._timeout = None
        assert [record.message.split(":")[0] for record in caplog.records if "for 0.1 s" in record.message] == [
            "5 rows could not be inserted into shard 0 for 0.1 s"
        ]
        assert (writer.inserted, writer.collected) == (15, 0)  # the caller can insert the refused rows again
        numbers_of(replay.sample())
        assert writer.flush().inserted == 20


def test_a_single_loop_asks_before_it_inserts():
    with limited() as replay:
        inserted = sampled = 0
        for _ in range(300):
            if replay.limiter.can_sample(8) and bool(replay.can_sample()):
                numbers_of(replay.sample())
                sampled += 8
            else:
                replay.insert(rows([inserted]))
                inserted += 1
                replay.size()
        assert sampled > 500
        assert abs(RATIO * (inserted - MIN_SIZE) - sampled) <= ERROR + RATIO


def test_a_thread_that_waits_to_insert_does_not_keep_others_from_sampling():
    with limited() as replay:

        def insert() -> None:
            for i in range(66):
                replay.insert(rows(range(3 * i, 3 * i + 3)))

        thread = threading.Thread(target=insert)
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while thread.is_alive():
            numbers_of(replay.sample()) if bool(replay.can_sample()) else time.sleep(0.01)
            assert time.monotonic() < deadline, "nothing is inserted"
        thread.join()
        replay.can_sample()
        assert replay.limiter.inserted > 150


def test_a_limiter_that_comes_later():
    with ShardedReplay(config(capacity=10_000), batch=5) as replay:
        fill(replay, 0, range(200))
        replay.limiter = limiter = RateLimiter(1.0, 10, 20.0)
        assert bool(replay.can_sample())  # more than `min_size` rows are stored
        write(replay.writer(0), 100)
        # The ratio counts from the limiter's own beginning: it allows twenty rows more.
        wait_until(lambda: bool(replay.can_sample()) and limiter.inserted == 220)
        time.sleep(0.3)
        replay.can_sample()
        assert limiter.inserted == 220
        assert stored(replay) == 220
        limiter.change(error_buffer=1000.0)
        wait_until(lambda: bool(replay.can_sample()) and limiter.inserted == 300)
