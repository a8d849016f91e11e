"""Prefetch: the same batches as without it, drawn in a thread."""

import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from checks import assert_rows
from mindspore import Tensor, ops

from mindspore_replay import (
    EpisodeReplayBuffer,
    FrameStack,
    HindsightRelabel,
    MixedReplay,
    NStep,
    Prefetch,
    PrioritizedReplayBuffer,
    RateLimiter,
    ReplayBuffer,
    ReplayQueue,
)
from mindspore_replay.training.prefetch import PrefetchStatistics, _Drawn

NAMES, TYPES = ["observation", "reward", "terminated"], ["float32", "float32", "bool"]
SHAPES: list[tuple[int, ...]] = [(5,), (), ()]


def rows(first: int, n: int) -> list[np.ndarray]:
    numbers = np.arange(first, first + n, dtype=np.float32)
    return [np.repeat(numbers[:, None], 5, axis=1), numbers, np.zeros(n, bool)]


def filled(cls: Any, *arguments: Any, n: int = 30, **options: Any) -> Any:
    buffer = cls(4, 40, SHAPES, TYPES, *arguments, names=NAMES, seed=7, **options)
    has_episodes = "views" in options or cls is EpisodeReplayBuffer
    return buffer.insert(rows(0, n), **({"end": np.arange(n) % 6 == 5} if has_episodes else {}))


def mixed() -> MixedReplay:
    return MixedReplay([(filled(PrioritizedReplayBuffer), 0.5), (filled(ReplayBuffer), 0.5)], 4)


MAKERS: dict[str, Any] = {
    "uniform": lambda: filled(ReplayBuffer),
    "composite": lambda: filled(ReplayBuffer, backend="composite"),
    "limited": lambda: filled(ReplayBuffer, max_use=50, max_staleness=3),
    "prioritized": lambda: filled(PrioritizedReplayBuffer, beta_steps=10),
    "episode": lambda: filled(EpisodeReplayBuffer, max_episode_length=6),
    "views": lambda: filled(PrioritizedReplayBuffer, views=[FrameStack(2), NStep(2, 0.9)]),
    "mixed": mixed,
}


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_the_same_batches_as_without(kind: str):
    buffer = MAKERS[kind]()
    state = buffer.state_dict()
    expected = [[part.asnumpy() for part in buffer.sample()] for _ in range(8)]
    for depth in 1, 3:
        buffer.load_state_dict(state)
        with Prefetch(buffer, depth) as batches:
            for batch, rows_then in zip(batches, expected, strict=False):
                assert_rows(batch, rows_then)
            assert batches.statistics().batches == 9  # `zip` took one more


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("uniform", {"sample_range": (-8, None)}),
        ("limited", {"with_indices": True, "as_dict": True}),
        ("prioritized", {"beta": 0.5, "as_dict": True}),
        ("mixed", {"with_indices": True, "as_dict": True}),
    ],
)
def test_arguments_go_to_sample(kind: str, arguments: dict[str, Any]):
    buffer = MAKERS[kind]()
    state = buffer.state_dict()
    plain = [buffer.sample(**arguments) for _ in range(4)]
    buffer.load_state_dict(state)
    with Prefetch(buffer, **arguments) as batches:
        for expected in plain:
            got = batches.sample()
            if "as_dict" in arguments:
                assert list(got) == list(expected)
                got, expected = got.values(), expected.values()
            assert_rows(got, [part.asnumpy() for part in expected])


class Counting(ReplayBuffer):
    """Numbers its samples, records the thread of each, and fails on request."""

    def prepare(self) -> "Counting":
        self.drawn = 0
        self.threads: list[threading.Thread] = []
        self.errors: dict[int, Exception] = {}
        self.arrived = threading.Condition()
        return self

    def sample(self, *_args: Any, **_kwargs: Any) -> Any:
        with self.arrived:
            self.drawn += 1
            self.threads.append(threading.current_thread())
            self.arrived.notify_all()
            if self.drawn in self.errors:
                raise self.errors[self.drawn]
            return self.drawn

    def await_drawn(self, n: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.drawn >= n, timeout=60)


def counting() -> Counting:
    return Counting(1, 4, [()], ["int32"]).prepare()


def settled(batches: Prefetch) -> None:
    """Wait until the thread has drawn all that it may draw ahead."""
    drawing = batches._drawing
    while drawing._has_work():
        drawing._signals.wait(drawing._signals.seen(), 0.01)


def test_it_draws_depth_batches_ahead_and_no_more():
    buffer = counting()
    with Prefetch(buffer, 3) as batches:
        for delivered, ahead in ((1, 3), (2, 3), (3, 3)):
            assert batches.sample() == delivered
            settled(batches)
            assert buffer.drawn == delivered + ahead
    here = threading.current_thread()
    assert [thread is here for thread in buffer.threads] == [True, False, False, False, False, False]
    assert len(set(buffer.threads[1:])) == 1


def closeness(achieved: Any, goal: Any) -> Any:
    return ops.sub(achieved, goal)


def hindsight() -> ReplayBuffer:
    names = ["achieved_goal", "desired_goal", "reward"]
    views = [HindsightRelabel("future", 0.5, closeness)]
    buffer = ReplayBuffer(4, 40, [(), (), ()], ["float32"] * 3, names=names, views=views, seed=0)
    return buffer.insert([np.arange(30, dtype=np.float32)] * 3, end=np.arange(30) % 6 == 5)


@pytest.mark.parametrize("kind", ["mixed with hindsight", "composite", "hindsight"])
def test_samples_that_run_graphs_are_not_drawn_ahead(kind: str):
    makers = {**MAKERS, "hindsight": hindsight, "mixed with hindsight": lambda: MixedReplay([(hindsight(), 1)], 4)}
    with Prefetch(makers[kind](), 3) as batches:
        assert batches.depth == 0
        batches.sample()
        assert batches._drawing._thread is None
        assert batches.statistics().hidden == 0
    with Prefetch(filled(ReplayBuffer), 3) as batches:
        assert batches.depth == 3


def test_an_error_comes_out_in_its_place_with_its_traceback():
    buffer = counting()
    buffer.errors[4] = KeyError("broken")
    with Prefetch(buffer, 3) as batches:
        assert [batches.sample() for _ in range(3)] == [1, 2, 3]
        with pytest.raises(KeyError, match="broken") as caught:
            batches.sample()
        assert buffer.drawn == 4  # none after it
        assert "raise self.errors[self.drawn]" in "".join(traceback.format_tb(caught.tb))
        assert [batches.sample() for _ in range(4)] == [5, 6, 7, 8]  # restarted
        assert batches.statistics().batches == 7


def test_a_runtime_error_of_drawing_ahead_is_tried_again():
    buffer = counting()
    buffer.errors.update({3: RuntimeError("too few, ahead"), 8: RuntimeError("ahead"), 9: RuntimeError("really")})
    with Prefetch(buffer, 2) as batches:
        assert [batches.sample() for _ in range(3)] == [1, 2, 4]
        assert [batches.sample() for _ in range(3)] == [5, 6, 7]
        with pytest.raises(RuntimeError, match="really"):
            batches.sample()
        assert batches.sample() == 10


def test_too_few_rows_then_enough():
    buffer = ReplayBuffer(4, 10, SHAPES, TYPES, names=NAMES, seed=0, max_use=1, replace=False)
    with Prefetch(buffer) as batches:
        for _ in range(3):
            with pytest.raises(
                RuntimeError,
                match=r"^For 'ReplayBuffer', a sample needs sample_size=4 eligible rows, but got 0 in the range to "
                r"draw from, of 0 stored\. Wait until can_sample\(\) is true\.$",
            ):
                batches.sample()
        buffer.insert(rows(0, 9))
        batches.sample()
        batches.sample()
        settled(batches)  # one row is left, and the thread has hit that
        with pytest.raises(RuntimeError, match="got 1 in the range"):
            batches.sample()
        buffer.insert(rows(10, 8))
        numbers = [int(n) for _ in range(2) for n in batches.sample()[1].asnumpy()]
        assert set(numbers) <= {8, *range(10, 18)}
        assert len(set(numbers)) == 8


def test_handles_that_died_between_drawing_and_delivery():
    buffer = filled(PrioritizedReplayBuffer, n=40)
    with Prefetch(buffer, 1) as batches:
        batches.sample()
        batches.sample()
        settled(batches)
        buffer.insert(rows(100, 40), priority=1.0)  # evicts all rows of the next batch
        indices, _, observation, *_ = batches.sample()
        assert (indices.asnumpy() < 40).all()
        np.testing.assert_array_equal(observation.asnumpy()[:, 0], indices.asnumpy())
        assert int(buffer.update_priorities(indices, np.full(4, 9.0))) == 4
    buffer.check_valid()
    assert (buffer.info(np.arange(40, 80))[0].asnumpy() == 1).all()


def test_a_saved_state_goes_on_behind_what_was_drawn():
    buffer, plain = filled(ReplayBuffer), filled(ReplayBuffer)
    with Prefetch(buffer, 2) as batches:
        for _ in range(3):
            batches.sample()
        settled(batches)
        state = buffer.state_dict()
    loaded = filled(ReplayBuffer)
    loaded.load_state_dict(state)
    for _ in range(3 + 2):
        plain.sample()
    assert_rows(loaded.sample(), [part.asnumpy() for part in plain.sample()])


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_close_ends_the_thread(samples: int):
    buffer = counting()
    batches = Prefetch(buffer, 2)
    for _ in range(samples):
        batches.sample()
    batches.close()
    batches.close()
    assert not any(thread.name.startswith("Prefetch") for thread in threading.enumerate())
    with pytest.raises(
        RuntimeError, match=r"^For 'Prefetch', 'sample' needs an open Prefetch, but this one was closed\.$"
    ):
        batches.sample()


def test_an_error_in_the_block_ends_the_thread():
    buffer = counting()

    def broken() -> None:
        with Prefetch(buffer) as batches:
            batches.sample()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert not any(thread.name.startswith("Prefetch") for thread in threading.enumerate())


def test_statistics(monkeypatch: pytest.MonkeyPatch):
    buffer = counting()
    with Prefetch(buffer) as batches:
        assert batches.statistics() == PrefetchStatistics(0, 0.0, 0.0, 0.0, 0.0)
        batches.sample()
        first = batches.statistics()
        assert first.hidden == 0 == first.share  # the caller waited for all of it
        assert 0 < first.sampling <= first.waited
        monkeypatch.setattr(batches._drawing, "oldest", lambda: _Drawn(None, 3600.0))
        batches.sample()
        second = batches.statistics()
    assert second.batches == 2
    assert second.sampling == first.sampling + 3600
    assert 0 < second.hidden <= 3600 < second.hidden + second.waited + 1e-6
    assert second.share == second.hidden / second.sampling


class Learner(Kept):
    """Changes priorities in a graph, after work that overlaps with the thread."""

    @ms.jit
    def step(self, indices, observation):
        error = observation
        for _ in range(4):
            error = ops.tanh(ops.matmul(ops.matmul(error, ops.transpose(error, (1, 0))), observation))
        return self.buffer.update_priorities(indices, ops.abs(error[:, 0]))


def test_no_row_is_torn_beside_a_learner_and_an_actor():
    buffer = PrioritizedReplayBuffer(16, 64, [(200,), ()], ["float32", "float32"], names=["wide", "number"], seed=0)
    buffer.insert([np.zeros((64, 200), np.float32), np.zeros(64, np.float32)])
    learner, stop, errors = Learner(buffer), threading.Event(), []
    invalid = learner.step(buffer.sample()[0], Tensor(np.zeros((16, 200), np.float32)))

    def act() -> None:
        number = 0
        try:
            while not stop.wait(1e-4):
                number += 1
                buffer.insert([np.full(200, number, np.float32), np.float32(number)])
        except BaseException as error:
            errors.append(error)

    actor = threading.Thread(target=act)
    actor.start()
    try:
        with Prefetch(buffer, 3) as batches:
            for _ in range(40):
                indices, _, wide, number = (part.asnumpy() for part in batches.sample())
                np.testing.assert_array_equal(wide, np.repeat(number[:, None], 200, axis=1))
                assert (number == np.maximum(indices - 63, 0)).all()  # the row of that handle
                invalid = learner.step(Tensor(indices), Tensor(wide * 1e-3))
    finally:
        stop.set()
        actor.join(60)
    assert not actor.is_alive()
    assert not errors
    assert 0 <= int(invalid) <= 16
    buffer.check_valid()


def waiting(limiter: Any) -> bool:
    """Return True if a sample waits for a limiter."""
    return bool(limiter.limits.awaited("sample"))


def queue(**options: Any) -> ReplayQueue:
    return ReplayQueue(2, 10, [()], ["int32"], timeout=None, seed=0, **options)


def limited_mixture() -> MixedReplay:
    """No sample is allowed, of the second source."""
    mixture = mixed()
    mixture.sources[1].limiter = RateLimiter(2, 100, 8)
    return mixture


#: Buffers from which a sample waits without end.
WAITING: dict[str, Any] = {
    "limited": lambda folder: limited(None, samples=0),
    "composite": lambda folder: limited(None, samples=0, backend="composite"),
    "folder": lambda folder: limited(None, samples=0, storage=folder),
    "queue": lambda folder: queue(),
    "queue in a folder": lambda folder: queue(storage=folder),
    "mixed": lambda folder: limited_mixture(),
}


@pytest.mark.parametrize("kind", sorted(WAITING))
def test_close_ends_the_waits_of_all_threads(kind: str, tmp_path: Path):
    buffer = WAITING[kind](tmp_path / "buffer")
    first, second = Prefetch(buffer), Prefetch(buffer)
    ended: list[str] = []

    def learn(batches: Prefetch) -> None:
        with pytest.raises(RuntimeError, match=r"^For 'Prefetch', .* this one was closed\.$") as caught:
            batches.sample()
        ended.append(str(caught.value))

    learners = [threading.Thread(target=learn, args=[batches]) for batches in (first, first, second)]
    for learner in learners:
        learner.start()
    limiter = buffer.sources[1].limiter if kind == "mixed" else buffer.limiter
    while len(limiter.limits.awaited("sample")) < 2:  # the third waits for its turn
        pass
    assert first.statistics().batches == 0  # nothing waits for the learner
    closers = [threading.Thread(target=batches.close) for batches in (first, first, second)]
    for closer in closers:
        closer.start()
    for thread in (*closers, *learners):
        thread.join(60)
    assert len(ended) == 3
    assert not waiting(limiter)


def test_close_while_the_thread_waits_and_a_learner_waits_for_it():
    buffer = limited(None)
    batches = Prefetch(buffer)
    batches.sample()
    batches.sample()

    def learn() -> None:
        with pytest.raises(RuntimeError, match="this one was closed"):
            batches.sample()

    learner = threading.Thread(target=learn)
    learner.start()
    while not waiting(buffer.limiter):
        pass
    batches.close()
    learner.join(60)
    assert not learner.is_alive()
    assert buffer.limiter.sampled == 8
    buffer.insert(rows(20, 2))
    buffer.sample()  # nobody else waits for the rows


def test_one_that_is_dropped_ends_its_thread():
    buffer = queue().insert([[1, 2, 3]])
    batches = Prefetch(buffer)
    batches.sample()
    while not waiting(buffer.limiter):
        pass
    thread = batches._drawing._thread
    del batches
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()


_ENDS_WITHOUT_CLOSE = """
import threading
import numpy as np
from mindspore_replay import Prefetch, RateLimiter, ReplayBuffer, ReplayQueue

queue = ReplayQueue(2, 10, [()], ["int32"], timeout=None).insert([[1, 2, 3]])
buffer = ReplayBuffer(3, 50, [()], ["int32"])
buffer.limiter = RateLimiter(samples_per_insert=1, min_size=3, error_buffer=6)
buffer.insert([np.arange(6, dtype=np.int32)])
limited, queued = Prefetch(buffer, depth=4), Prefetch(queue)
ready = Prefetch(ReplayBuffer(1, 2, [()], ["int32"]).insert([1]))
print(limited.sample()[0].shape, queued.sample()[0].shape, ready.sample()[0].shape, flush=True)


def learn(batches):
    try:
        while True:
            batches.sample()
    except RuntimeError as error:
        print(f"{error}\\n", end="", flush=True)  # in one piece


waiting = Prefetch(ReplayQueue(2, 10, [()], ["int32"], timeout=None))  # no batch is drawn yet
for batches in (limited, queued, waiting):
    threading.Thread(target=learn, args=[batches]).start()
raise SystemExit("the main thread dies")
"""


def test_a_program_that_ends_without_close():
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_WITHOUT_CLOSE], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "the main thread dies\n")
    closed = "For 'Prefetch', 'sample' needs an open Prefetch, but this one was closed."
    assert ended.stdout.splitlines() == ["(3,) (2,) (1,)", *[closed] * 3]


def limited(timeout: float | None, samples: int = 2, **options: Any) -> ReplayBuffer:
    """Two samples are allowed, or none."""
    buffer = filled(ReplayBuffer, n=10, **options)
    buffer.limiter = RateLimiter(2, 10 if samples else 100, 8, timeout=timeout)
    buffer.limiter.disable()
    buffer.insert(rows(10, 10))
    buffer.limiter.enable()
    return buffer


def test_a_limiter_counts_what_is_drawn_and_close_ends_waiting_for_it():
    buffer = limited(None)
    with Prefetch(buffer, depth=3) as batches:
        batches.sample()
        batches.sample()
        while not waiting(buffer.limiter):  # for insertions, with the third batch
            pass
        assert buffer.limiter.sampled == 8
        buffer.insert(rows(20, 2))
        batches.sample()
        assert buffer.limiter.sampled == 12
    assert int(buffer.random_state.asnumpy()[1]) == 12


def test_a_limiter_whose_time_is_over():
    buffer = limited(0.05)
    with Prefetch(buffer, depth=1) as batches:
        batches.sample()
        batches.sample()
        with pytest.raises(TimeoutError, match=r"4 rows could not be sampled within 0\.05 s"):
            batches.sample()
        buffer.insert(rows(20, 2))
        batches.sample()
