"""Only the newest `window` rows are drawn, and the window changes. Also `rows()`: all rows, oldest first."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from mindspore import Tensor, nn

from mindspore_replay import ElasticReplayBuffer, ReplayBuffer


def make(window: int | None = 4, **options: Any) -> ElasticReplayBuffer:
    return ElasticReplayBuffer(
        sample_size=3, capacity=8, shapes=[()], types=[ms.int64], window=window, seed=3, **options
    )


class Step(Kept):
    """Sets the window, then samples."""

    def __init__(self, buffer: ElasticReplayBuffer) -> None:
        self.buffer = buffer

    @ms.jit
    def __call__(self, window):
        self.buffer.set_window(window)
        return self.buffer.sample()[0], self.buffer.can_sample()


def test_can_sample_counts_the_window():
    buffer = make(weighted=True).insert([np.arange(8)])
    assert buffer.can_sample()
    buffer.delete([6, 7])  # of the window of four, two are left; of the buffer, six
    assert not buffer.can_sample()
    assert set(buffer.sample()[0].asnumpy().tolist()) <= {4, 5}
    assert not buffer.set_window(2).can_sample()
    with pytest.raises(RuntimeError, match="at least 1 eligible row, but got 0"):
        buffer.sample()
    assert buffer.set_window(5).can_sample()
    assert set(buffer.sample()[0].asnumpy().tolist()) <= {3, 4, 5}


class Constant(nn.Cell):
    """Sets a window that is constant in the graph."""

    def __init__(self, buffer: ElasticReplayBuffer, window: Any) -> None:
        super().__init__()
        self.buffer = buffer
        self.given = window

    def construct(self):
        self.buffer.set_window(self.given)
        return self.buffer.can_sample()


def test_a_window_that_is_a_constant_of_a_graph():
    buffer = make(weighted=True)
    buffer.insert([np.arange(8)])
    buffer.delete([6, 7])
    assert not ms.jit(Constant(buffer, 4).construct)()
    assert buffer.window.asnumpy().tolist() == [4]
    assert ms.jit(Constant(buffer, 5).construct)()
    assert buffer.window.asnumpy().tolist() == [5]
    with pytest.raises(ValueError, match=r"'window' must be in \[1, 8\], but got 9"):
        ms.jit(Constant(buffer, 9).construct)()
    with pytest.raises(RuntimeError):
        Step(buffer)(Tensor(9, ms.int64))[0].asnumpy()
    assert buffer.window.asnumpy().tolist() == [5]


def test_a_checkpoint_keeps_the_window():
    one, other = make(window=6), make()
    one.insert([np.arange(9)])
    other.load_state_dict(one.state_dict())
    assert other.window.asnumpy().tolist() == [6]
    assert one.sample()[0].asnumpy().tolist() == other.sample()[0].asnumpy().tolist()
    assert int(one.reset().size()) == 0
    assert one.window.asnumpy().tolist() == [6]


def test_a_window_smaller_than_a_sample():
    """With replacement it is enough, and `can_sample` waits until it is full."""
    buffer = make().set_window(2)
    assert not buffer.insert([np.arange(1)]).can_sample()
    assert buffer.sample()[0].asnumpy().tolist() == [0, 0, 0]
    assert buffer.insert([np.arange(1, 9)]).can_sample()
    assert ms.jit(Constant(buffer, 2).construct)()
    assert set(np.concatenate([buffer.sample()[0].asnumpy() for _ in range(9)]).tolist()) == {7, 8}


class Learner(Kept):
    """Reads all rows in time order and resets the buffer."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    @ms.jit
    def __call__(self):
        rows = self.buffer.rows()
        self.buffer.reset()
        return rows


def test_fill_learn_reset():
    buffer = ReplayBuffer(1, 6, [(2,), ()], [ms.float32, "bool"])
    learn = Learner(buffer)
    for n in (6, 6, 8, 6):  # the third time the ring is overfull, and its oldest row is not in slot 0
        steps = np.arange(n)
        for step in steps:
            buffer.insert([np.array([step, -step], np.float32), bool(step % 2)])
        assert buffer.full()
        numbers, odd = learn()
        steps = steps[-6:]
        np.testing.assert_array_equal(numbers.asnumpy(), np.stack([steps, -steps], 1).astype(np.float32))
        np.testing.assert_array_equal(odd.asnumpy(), steps % 2 == 1)
        assert int(buffer.size()) == 0
