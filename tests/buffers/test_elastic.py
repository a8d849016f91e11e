"""Only the newest `window` rows are drawn, and the window changes. Also `rows()`: all rows, oldest first."""

from collections.abc import Callable
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


def calls(call: str, buffer: ElasticReplayBuffer) -> Callable[[int], tuple[list[int], bool]]:
    """Return the calls that set the window and draw a sample."""
    if call == "eager":

        def step(window: int) -> Any:
            assert buffer.set_window(window) is buffer
            return buffer.sample()[0], buffer.can_sample()
    else:
        compiled = Step(buffer)

        def step(window: int) -> Any:
            return compiled(Tensor(window, ms.int64))

    def draw(window: int) -> tuple[list[int], bool]:
        drawn, can_sample = step(window)
        return drawn.asnumpy().tolist(), bool(can_sample)

    return draw


@pytest.mark.parametrize(("call", "weighted"), [("eager", False), ("eager", True), ("compiled", True)])
def test_what_is_drawn(call: str, weighted: bool):
    buffer = make(weighted=weighted)
    draws_as_from_a_range(buffer, calls(call, buffer))


def draws_as_from_a_range(buffer: ElasticReplayBuffer, step: Callable[[int], tuple[list[int], bool]]) -> None:
    """Check that rows come from the window and equal the draws of `ReplayBuffer` from that range."""
    plain = ReplayBuffer(sample_size=3, capacity=8, shapes=[()], types=[ms.int64], seed=3, weighted=buffer.weighted)
    for window, first in ((4, 0), (8, 13), (3, 26), (5, 39)):
        plain.insert([np.arange(first, first + 13)])
        buffer.insert([np.arange(first, first + 13)])
        for _ in range(5):
            drawn, can_sample = step(window)
            assert can_sample
            assert drawn == plain.sample((-window, None))[0].asnumpy().tolist()
            assert set(drawn) <= set(range(first + 13 - window, first + 13))
        buffer.check_valid()
        assert buffer.window.asnumpy().tolist() == [window]


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


@pytest.mark.parametrize(("backend", "compiled"), [("native", False), ("native", True), ("composite", True)], ids=str)
def test_fill_learn_reset(backend: str, compiled: bool):
    columns: dict[str, Any] = {"shapes": [(2,), ()], "types": [ms.float32, "bool"]}
    native, buffer = (ReplayBuffer(1, 6, **columns, backend=each) for each in ("native", backend))

    def from_python() -> Any:
        rows = buffer.rows()
        buffer.reset()
        return rows

    learn = Learner(buffer) if compiled else from_python
    for n in (6, 6, 8, 6):  # the third time the ring is overfull, and its oldest row is not in slot 0
        steps = np.arange(n)
        for step in steps:
            native.insert([np.array([step, -step], np.float32), bool(step % 2)])
        buffer.load_state_dict(native.state_dict())  # no graph is compiled for the insertions
        assert buffer.full()
        numbers, odd = learn()
        steps = steps[-6:]
        np.testing.assert_array_equal(numbers.asnumpy(), np.stack([steps, -steps], 1).astype(np.float32))
        np.testing.assert_array_equal(odd.asnumpy(), steps % 2 == 1)
        assert int(buffer.size()) == 0
        native.reset()
