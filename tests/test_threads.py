"""Threads that share a buffer: actors insert while a learner samples, and every row stays whole."""

import threading
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from checks import cursors
from mindspore import Tensor

from mindspore_replay import ReplayBuffer

WIDTH = 200


def row(actor: int, step: int) -> list[np.ndarray]:
    """The same number in every field."""
    number = actor * 100_000 + step
    return [np.full(WIDTH, number, np.float32), np.array(number, np.int32)]


def assert_whole(batch: Any) -> None:
    wide, number = (part.asnumpy() for part in batch)
    np.testing.assert_array_equal(wide, np.repeat(number[:, None], WIDTH, axis=1))


def run(*workers: Callable[[], None]) -> None:
    """Runs all to the end; the first error of any is raised here."""
    errors: list[BaseException] = []

    def guarded(worker: Callable[[], None]) -> None:
        try:
            worker()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize(("backend", "steps"), [("native", 3000), ("composite", 150)])
def test_two_actors_and_a_learner(backend: str, steps: int):
    buffer = ReplayBuffer(16, 64, [(WIDTH,), ()], ["float32", "int32"], seed=0, backend=backend)
    for _ in range(16):
        buffer.insert(row(0, 0))
    buffer.insert([np.stack([part] * 2) for part in row(0, 0)])
    assert_whole(buffer.sample())  # the graphs are compiled

    def act(actor: int) -> None:
        for step in range(steps):
            if step % 10:
                buffer.insert(row(actor, step))
            else:
                buffer.insert([np.stack([part] * 2) for part in row(actor, step)])

    def learn() -> None:
        for _ in range(steps):
            assert_whole(buffer.sample())

    run(lambda: act(1), lambda: act(2), learn)
    inserted = 18 + 2 * (steps + steps // 10)
    assert cursors(buffer) == (inserted % 64, 64, inserted, 0)
    assert buffer.random_state.asnumpy()[1] == 16 * (steps + 1)
    buffer.check_valid()
    assert_whole(buffer.get_item(range(64)))


class Learner(Kept):
    """Samples in a compiled function."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    @ms.jit
    def sample(self, unused):
        return self.buffer.sample()


def test_actors_from_python_beside_a_learner_in_a_graph():
    buffer = ReplayBuffer(16, 64, [(WIDTH,), ()], ["float32", "int32"], seed=0, backend="native")
    buffer.insert([np.stack([part] * 64) for part in row(0, 0)])
    learner = Learner(buffer)
    unused = Tensor(0.0)
    assert_whole(learner.sample(unused))

    def act(actor: int) -> None:
        for step in range(2000):
            buffer.insert(row(actor, step))

    def learn() -> None:
        for _ in range(500):
            assert_whole(learner.sample(unused))

    run(lambda: act(1), lambda: act(2), learn)
    assert cursors(buffer) == (4064 % 64, 64, 4064, 0)
    assert_whole(buffer.get_item(range(64)))
    buffer.check_valid()


def test_the_check_rejects_a_torn_row():
    wide, number = row(1, 5)
    wide[WIDTH // 2 :] += 1
    with pytest.raises(AssertionError):
        assert_whole([Tensor(wide[None]), Tensor(number[None])])
