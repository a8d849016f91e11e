"""ReplayQueue: each row or sequence is delivered once, in order, over threads, processes and restarts.

Random operations beside a slow twin are in `test_twin.py`.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faces import Compiled
from flat import flat
from mindspore import Tensor

from mindspore_replay import FrameStack, MixedReplay, NStep, Prefetch, ReplayBuffer, ReplayQueue, attach

SCHEMA: dict[str, Any] = {"shapes": [(), (2,)], "types": ["int64", "float32"], "names": ["number", "pair"]}


def rows(first: int, n: int) -> list[np.ndarray]:
    numbers = np.arange(first, first + n)
    return [numbers, np.stack([numbers, -numbers], 1).astype(np.float32)]


def make(sample_size: int = 2, capacity: int = 8, **options: Any) -> ReplayQueue:
    return ReplayQueue(sample_size, capacity, **flat(**SCHEMA, **options))


def filled(n: int, **options: Any) -> ReplayQueue:
    return make(**options).insert(rows(0, n))


def numbers(batch: Any) -> list[int]:
    """Return the numbers of the rows of a batch; check that their columns belong together."""
    batch = list(batch.values()) if isinstance(batch, dict) else batch
    number, pair = (np.asarray(part.asnumpy() if isinstance(part, Tensor) else part) for part in batch[-2:])
    assert (pair == np.stack([number, -number], -1)).all()
    return number.tolist()


# Room, and waits.


def test_calls_wait_for_rows_and_room():
    queue = make(timeout=30.0)
    found: list[int] = []
    consumer = threading.Thread(
        target=lambda: found.extend(number for _ in range(20) for number in numbers(queue.sample()))
    )
    consumer.start()
    for first in range(0, 40, 4):
        queue.insert(rows(first, 4))
    consumer.join()
    assert found == list(range(40))


def test_a_wait_that_is_too_long_is_an_error():
    queue = make(timeout=0.01)
    with pytest.raises(TimeoutError, match=r"'ReplayQueue', 2 rows could not be sampled within 0.01 s: 0 are stored"):
        queue.sample()
    queue.insert(rows(0, 8))
    with pytest.raises(
        TimeoutError, match=r"1 row could not be inserted within 0.01 s: 8 are stored .* room for 0 rows"
    ):
        queue.insert(rows(8, 1))
    with pytest.raises(ValueError, match=r"at most capacity=8 rows, since none may be evicted, but got 9"):
        queue.insert(rows(8, 9))


def error_of(use: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises((RuntimeError, TimeoutError, ValueError)) as caught:
        use()
    return caught.type, str(caught.value)


@pytest.mark.cpu_only("rows in a folder are in host memory")
@pytest.mark.parametrize(("timeout", "error"), [(0, RuntimeError), (0.01, TimeoutError)])
def test_learner_and_attached_raise_the_same_errors(timeout: float, error: type, tmp_path: Path):
    late: dict[str, Any] = {"late": ["pair"], "timeout": timeout}
    queue, pending = make(storage=tmp_path / "rows", timeout=timeout), make(storage=tmp_path / "late", **late)
    attached, attached_late = (attach(tmp_path / name, timeout=timeout) for name in ("rows", "late"))

    def check(expected: type, use: Callable[[Any], Any], *fronts: Any) -> str:
        (kind, message), other = (error_of(lambda front=front: use(front)) for front in fronts)
        assert (kind, message) == other
        assert kind is expected
        return message

    check(error, lambda front: front.sample(), queue, attached)
    check(ValueError if timeout else error, lambda front: front.insert(rows(0, 9)), queue, attached)
    queue.insert(rows(0, 7))
    check(error, lambda front: front.insert(rows(7, 2)), queue, attached)
    check(error, lambda front: front.insert(rows(7, 2), with_indices=True), queue, attached)
    assert (len(queue), numbers(attached.sample())) == (7, [0, 1])
    pending.insert([rows(0, 8)[0]])
    check(error, lambda front: front.sample(), pending, attached_late)
    message = check(error, lambda front: front.insert([rows(8, 1)[0]]), pending, attached_late)
    assert "8 rows are pending" in message
    assert np.array_equal(queue.limiter.limits.in_progress, [0, 0, 0, 0])
    assert queue.can_sample()
    assert attached.can_sample()


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_row_that_stays_pending_is_named(timeout: float):
    """The handle is that of the oldest pending row, after the ring has wrapped; either way out makes room."""
    queue = make(late=["pair"], timeout=timeout)
    for first in (0, 6):
        handles = queue.insert([rows(first, 6)[0]], with_indices=True)
        queue.update(handles, {"pair": rows(first, 6)[1]})
        assert [numbers(queue.sample())[0] for _ in range(3)] == [first, first + 2, first + 4]
    handles = queue.insert([rows(12, 8)[0]], with_indices=True)
    done = [1, 2, 4, 5, 6]
    queue.update(handles[done], {"pair": rows(12, 8)[1][done]})
    assert [numbers(queue.sample()) for _ in range(2)] == [[13, 14], [16, 17]]
    ways_out = (
        r" 3 rows are pending, without late columns, and can neither be sampled nor evicted; the oldest has the handle "
        r"12\. Write its columns with update\(12, \.\.\.\), or remove it with delete\(12\)\.$"
    )
    kind = TimeoutError if timeout else RuntimeError
    with pytest.raises(kind, match=ways_out) as caught:
        queue.sample()
    assert "First insert rows" not in str(caught.value)  # there is no room for them
    with pytest.raises(kind, match=ways_out):
        queue.insert([rows(20, 1)[0]])
    assert int(queue.delete([12])) == 1
    queue.insert([rows(20, 3)[0]])
    with pytest.raises(kind, match=r" 5 rows are pending, .* the oldest has the handle 15\. "):
        queue.insert([rows(23, 1)[0]])
    queue.update([15], {"pair": rows(15, 1)[1]})
    assert numbers(queue.sample()) == [15, 18]
    queue.insert([rows(23, 1)[0]])


def test_pending_rows_that_may_be_evicted_are_told_as_such():
    queue = make(late=["pair"], when_full="evict")
    queue.insert([rows(0, 1)[0]])
    with pytest.raises(RuntimeError, match=r" 1 row is pending, without late columns, and can not be sampled; the old"):
        queue.sample()
    weighted = ReplayBuffer(2, 8, **flat(**SCHEMA, late=["pair"]))
    weighted.insert([rows(0, 4)[0]])
    with pytest.raises(RuntimeError, match=r"got 0 in the range to draw from, of 4 stored\. .* 4 rows are pending,"):
        weighted.sample()


def test_graphs_wait_in_a_block_of_the_limiter():
    queue = make(timeout=30.0)
    calls = Compiled(queue)
    producer = threading.Thread(target=lambda: [queue.insert(rows(first, 2)) for first in range(0, 24, 2)])
    producer.start()
    found = []
    for _ in range(12):
        with queue.limiter.sampling(2):
            found += numbers(calls.sample())
    producer.join()
    assert found == list(range(24))


def test_a_blocked_call_lets_others_use_the_lock():
    queue = make(timeout=30.0)

    def wait() -> None:
        with queue.lock:
            assert numbers(queue.sample()) == [0, 1]

    waiting = threading.Thread(target=wait)
    waiting.start()
    queue.insert(rows(0, 2))
    waiting.join(timeout=30)
    assert not waiting.is_alive()


# Several consumers, processes, and restarts.


def assert_once(deliveries: Sequence[Sequence[int]], total: int, order: str = "fifo") -> None:
    """Check that consumers received each number once, each in order."""
    assert sorted(number for one in deliveries for number in one) == list(range(total))
    if order == "fifo":
        assert all(list(one) == sorted(one) for one in deliveries)


@pytest.mark.parametrize("wrong", [[[0, 1, 3], [2, 2]], [[0, 1], [3]], [[1, 0], [2, 3]]])
def test_wrong_deliveries_are_rejected(wrong: list[list[int]]):
    with pytest.raises(AssertionError):
        assert_once(wrong, 4)


@pytest.mark.parametrize("when_compiled", [False, True])
def test_threads_share_the_rows(when_compiled: bool):
    total, queue = 600, make(timeout=60.0, capacity=16)
    calls = [Compiled(queue) for _ in range(3)]
    found: list[list[int]] = [[], [], []]
    if when_compiled:  # compile before the threads begin
        queue.insert(rows(0, 6))
        for call in calls:
            call.sample()
        queue.reset()
    next_number, lock, running = iter(range(0, total, 3)), threading.Lock(), threading.Lock()

    def produce() -> None:
        while True:
            with lock:  # numbers in the order of their insertions
                first = next(next_number, None)
                if first is None:
                    return
                queue.insert(rows(first, 3))

    def consume(i: int) -> None:
        for _ in range(total // 6):
            if when_compiled:
                # One thread at a time runs graphs, as docs/threads.md says.
                with queue.limiter.sampling(2), running:
                    found[i] += numbers(calls[i].sample())
            else:
                found[i] += numbers(queue.sample())

    threads = [threading.Thread(target=produce) for _ in range(2)]
    threads += [threading.Thread(target=consume, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_once(found, total)
    queue.check_valid()


CONSUMER = """
import sys
from mindspore_replay import attach

queue = attach(sys.argv[1], timeout=60)
while True:
    try:
        batch = queue.sample()
    except RuntimeError:
        break
    print(*batch[0], flush=True)
assert "mindspore" not in sys.modules
"""
PRODUCER = """
import sys
import numpy as np
from mindspore_replay import attach

queue = attach(sys.argv[1], timeout=60)
for number in range(int(sys.argv[2]), 200, 2):
    queue.insert([number, np.float32([number, -number])])
"""


@pytest.mark.cpu_only("rows in a folder are in host memory")
def test_processes_share_the_rows(tmp_path: Path):
    queue = make(storage=tmp_path / "rows", timeout=60.0, capacity=16)
    command = [sys.executable, "-c"]
    consumers = [
        subprocess.Popen([*command, CONSUMER, tmp_path / "rows"], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    producers = [subprocess.Popen([*command, PRODUCER, tmp_path / "rows", str(i)]) for i in range(2)]
    assert [producer.wait(timeout=120) for producer in producers] == [0, 0]
    mine: list[int] = []
    while bool(queue.can_sample()):
        mine += numbers(queue.sample())
    while queue.eligible():  # an odd row can be left to no consumer
        pytest.fail("a row is left")
    queue.close()
    found = [[int(number) for number in consumer.communicate(timeout=120)[0].split()] for consumer in consumers]
    assert [consumer.returncode for consumer in consumers] == [0, 0]
    assert sorted(number for one in [mine, *found] for number in one) == list(range(200))
    assert sum(map(len, found)) >= 200 - 16  # more than the queue holds


# With other parts.


def test_views_see_the_rows_that_are_stored():
    names, types = ["observation", "reward", "terminated"], ["float32", "float32", "bool"]
    queue = ReplayQueue(2, 8, [()] * 3, types, names=names, views=[NStep(2, 0.5)])
    for step in range(6):
        queue.insert([float(step), 1.0, step == 5], end=step == 5)
    batch = queue.sample(as_dict=True)
    assert batch["observation"].asnumpy().tolist() == [0, 1]
    assert batch["reward"].asnumpy().tolist() == [1.5, 1.5]
    stacks = ReplayQueue(1, 8, [(), ()], ["float32", "float32"], names=["observation", "reward"], views=[FrameStack(2)])
    for step in range(4):
        stacks.insert([float(step + 1), 0.0], end=step == 3)
    assert [stacks.sample()[0].asnumpy().tolist() for _ in range(3)] == [[[0, 1]], [[1, 2]], [[2, 3]]]


def test_prefetch_draws_in_order():
    queue = filled(8, timeout=30.0)
    with Prefetch(queue, depth=2) as prefetch:
        found = [numbers(next(prefetch)) for _ in range(4)]
        queue.insert(rows(8, 4))
        found += [numbers(next(prefetch)) for _ in range(2)]
    assert [number for batch in found for number in batch] == list(range(12))


def test_without_a_wait_prefetch_and_a_mixture_fail_as_the_queue_does():
    queue = filled(2)
    with Prefetch(queue, depth=2) as prefetch:
        assert numbers(next(prefetch)) == [0, 1]
        with pytest.raises(RuntimeError, match="eligible rows, but got 0"):
            next(prefetch)
        queue.insert(rows(2, 2))
        assert numbers(next(prefetch)) == [2, 3]
    queue.insert(rows(4, 1))
    uniform = ReplayBuffer(2, 8, **flat(**SCHEMA)).insert(rows(100, 8))
    mixture = MixedReplay([(uniform, 0.5), (queue, 0.5)], sample_size=4)
    with pytest.raises(RuntimeError, match="sample_size=2 eligible rows of source 1, but got 1"):
        mixture.sample()
    queue.insert(rows(5, 1))
    assert [number for number in numbers(mixture.sample()) if number < 100] == [4, 5]
