"""The handler of a signal may raise wherever Python runs it: nothing stays locked, and counts are those of the rows."""

import contextlib
import dis
import gc
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from interrupts import Interrupt, everywhere

import mindspore_replay as device
from mindspore_replay import Prefetch, attach, host
from mindspore_replay.store.kernels import locks

PLACES = {"arrays": (host, False), "arrays in a folder": (host, True), "a Cell": (device, False)}
ROWS = [np.arange(3), np.zeros((3, 8), np.int64)]

needs_tables = pytest.mark.skipif(
    not hasattr(dis, "_parse_exception_table"), reason="needs the handlers of Python 3.11's code"
)


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> Iterator[None]:
    """Let the collector look at what the tests make alone."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def answer(call: Callable[[], Any]) -> Any:
    """Return what a call returns in another thread, which an interrupted one must not lock out."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(60)
    assert found, "another thread waits for ever, or failed"
    return found[0]


def make(package: Any, folder: Path | None, **options: Any) -> Any:
    shapes, types = [(), (8,)], ["int64", "int64"]
    buffer = package.PrioritizedReplayBuffer(4, 100, shapes, types, seed=0, storage=folder, **options)
    buffer.limiter = package.RateLimiter(samples_per_insert=1, min_size=1, error_buffer=1e9)
    return buffer.insert(ROWS).insert(ROWS)


def numbers(buffer: Any) -> dict[str, np.ndarray]:
    return {key: np.asarray(value) for key, value in buffer.state_dict().items()}


def check(buffer: Any) -> None:
    """Check that other threads can use a buffer, and that its limiter counts its rows."""
    answer(buffer.size)
    answer(buffer.check_valid)
    limiter, state = buffer.limiter, answer(lambda: numbers(buffer))
    assert (limiter.inserted, limiter.sampled) == (state["serials"][0], state["counts"][0])
    assert not limiter.limits.in_progress.any()
    assert not limiter.limits.awaited("insert") + limiter.limits.awaited("sample")
    assert limiter.take("insert", 1) is not None
    assert limiter.take("sample", 1) is not None


def calls(buffer: Any, folder: Path | None) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "insert", lambda: buffer.insert(ROWS)
    yield "insert what has to be converted", lambda: buffer.insert([1, [0] * 8], with_indices=True)
    yield "sample", buffer.sample
    yield "update priorities", lambda: buffer.update_priorities([0, 1], [1.0, 2.0])
    yield "update", lambda: buffer.update([0], [[1], [[0] * 8]])
    yield "read", lambda: buffer.get_item([0, 1])
    yield "delete", lambda: buffer.delete([0])
    yield "ask", buffer.can_sample
    yield "advance", buffer.advance
    yield "state", buffer.state_dict
    if folder is not None:
        other = attach(folder)
        yield "flush", lambda: (buffer.insert(ROWS), buffer.flush())
        yield "insert when attached", lambda: other.insert(ROWS)
        yield "sample when attached", other.sample
        yield "attach", lambda: attach(folder).close()


@needs_tables
@pytest.mark.parametrize("place", PLACES)
def test_a_call_may_be_interrupted_anywhere(place: str, tmp_path: Path):
    package, in_folder = PLACES[place]
    folder = tmp_path / "rows" if in_folder else None
    buffer, kept = make(package, folder), list[Interrupt]()
    for what, call in calls(buffer, folder):
        before = len(kept)
        for error in everywhere(call, 60):
            kept.append(error)  # as an interactive Python keeps the last one, and with it all frames
            check(buffer)
        assert len(kept) > before, what
    buffer.close()
    if folder is not None:
        package.PrioritizedReplayBuffer.open(folder).close()


def files() -> int:
    """Return the number of open files, after what nothing refers to is gone."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@needs_tables
@pytest.mark.parametrize("what", ["make", "open", "attach", "close", "detach"])
def test_a_folder_may_be_made_opened_and_closed_after_any_interrupt(what: str, tmp_path: Path):
    rows, numbers, opened = tmp_path / "rows", count(), list[Any]()
    make(host, rows).close()
    learner = host.PrioritizedReplayBuffer.open(rows) if what in ("attach", "detach") else None

    def prepare() -> None:
        opened.append(attach(rows) if what == "detach" else host.PrioritizedReplayBuffer.open(rows))

    def use() -> None:
        if what == "make":
            make(host, tmp_path / str(next(numbers))).close()
        elif what == "open":
            host.PrioritizedReplayBuffer.open(rows).close()
        elif what == "attach":
            attach(rows).close()
        else:
            opened[-1].close()

    if what in ("close", "detach"):
        for _ in everywhere(use, 50, prepare):
            opened.pop().close()  # a second time
    else:
        use()
        before = files()
        for error in everywhere(use, 50, files):  # what was opened goes with the frames that hold it
            del error
        assert files() == before
    if learner is not None:
        learner.insert(ROWS).close()
    host.PrioritizedReplayBuffer.open(rows).close()


@needs_tables
def test_a_queue_and_a_mixture_may_be_interrupted_anywhere():
    queue = host.ReplayQueue(1, 100, [()], ["int64"], timeout=1).insert([np.arange(100)])
    for _ in everywhere(queue.sample, 60):
        answer(queue.can_sample)
        assert not queue.limiter.limits.in_progress.any()
        assert not queue.limiter.limits.awaited("sample")
    sources = [make(host, None) for _ in range(2)]
    mixture = host.MixedReplay([(source, 0.5) for source in sources], 8)
    for _ in everywhere(mixture.sample, 60):
        for source in sources:
            check(source)


@needs_tables
def test_prefetch_goes_on_after_any_interrupt():
    buffer = make(device, None)
    with Prefetch(buffer) as batches:
        for _ in everywhere(batches.sample, 60):
            answer(batches.statistics)
            assert len(batches.sample()) == 4


def test_a_handler_that_flushes_says_that_a_flush_is_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    buffer, found = make(host, tmp_path / "rows"), []
    folder = buffer._front.shared.folder
    write = folder._write

    def interrupted(*given: Any) -> None:
        with pytest.raises(RuntimeError, match="the handler of a signal that interrupted that called it"):
            folder.flush()
        found.append(write(*given))

    monkeypatch.setattr(folder, "_write", interrupted)
    buffer.flush()
    assert found == [None]


def test_what_an_interrupted_flush_left_out_is_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    buffer = make(host, tmp_path / "rows")
    buffer.flush()
    folder = buffer._front.shared.folder
    with monkeypatch.context() as patch:
        patch.setattr(folder._flushed, "append", Mock(side_effect=Interrupt))
        with pytest.raises(Interrupt):
            buffer.insert(ROWS).flush()
    buffer.insert(ROWS)
    buffer.flush()
    expected = numbers(buffer)
    read = folder._flushed.read()
    assert read.inserted == expected["serials"][0] == 12


def test_a_lock_that_fails_leaves_none_held():
    lock, log = threading.Lock(), list[str]()

    def fail() -> None:
        raise ValueError("no")

    for parts in ((lock, locks.Block(fail, lambda _: log.append("ended"))), (lock, locks.first(fail))):
        with pytest.raises(ValueError, match="no"), locks.Locks(*parts):
            pass
        assert not lock.locked()
    assert log == ["ended"]


def test_the_end_of_a_block_that_is_interrupted_is_done_again():
    log = list[bool]()

    def end(succeeded: bool) -> None:
        log.append(succeeded)
        if len(log) < 3:
            raise Interrupt

    with pytest.raises(Interrupt), locks.Block(lambda: None, end):
        pass
    assert log == [True, True, True]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
@pytest.mark.parametrize("place", PLACES)
def test_signals_at_random_moments(place: str, tmp_path: Path):
    package, in_folder = PLACES[place]
    buffer, chance = make(package, tmp_path / "rows" if in_folder else None), random.Random(0)

    def handler(*_: object) -> None:
        raise TimeoutError("of the handler")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(200):
            with contextlib.suppress(TimeoutError):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 1e-3))
                for _ in range(1000):  # Python may drop what a handler raises, as in the collector of garbage
                    buffer.update_priorities(buffer.insert(ROWS).sample()[0], 1.0)
                    if in_folder:
                        buffer.flush()
    finally:
        signal.signal(signal.SIGALRM, before)
    check(buffer)
    buffer.close()
