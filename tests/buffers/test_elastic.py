"""Only the newest `window` rows are drawn, and the window changes. `test_twin.py` has random operations."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from checks import assert_frequencies
from mindspore import Tensor, nn

from mindspore_replay import ElasticReplayBuffer, NStep, Priorities


def make(window: int | None = 4, **options: Any) -> ElasticReplayBuffer:
    return ElasticReplayBuffer(3, 8, [()], [ms.int64], window=window, seed=3, **options)


class Step(Kept):
    """Sets the window, then samples."""

    @ms.jit
    def __call__(self, window):
        self.buffer.set_window(window)
        return self.buffer.sample()[0], self.buffer.can_sample()


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


def test_a_window_smaller_than_a_sample():
    """With replacement it is enough, and `can_sample` waits until it is full."""
    buffer = make().set_window(2)
    assert not buffer.insert([np.arange(1)]).can_sample()
    assert buffer.sample()[0].asnumpy().tolist() == [0, 0, 0]
    assert buffer.insert([np.arange(1, 9)]).can_sample()
    assert ms.jit(Constant(buffer, 2).construct)()
    assert set(np.concatenate([buffer.sample()[0].asnumpy() for _ in range(9)]).tolist()) == {7, 8}


def test_rows_before_the_window_may_weigh_anything():
    """No sum of theirs is subtracted, which would round the weight of the window away."""
    priorities = Priorities(alpha=1.0, epsilon=0.0, normalize="buffer")
    buffer = ElasticReplayBuffer(3, 40, [()], [ms.int64], window=4, priorities=priorities, seed=3)
    buffer.insert([np.arange(24)], priority=np.float32([1e30] * 20 + [1e-6] * 4))
    drawn = [row for _ in range(40) for row in buffer.sample()[2].asnumpy().tolist()]
    assert_frequencies([row // 2 for row in drawn], {10: 0.5, 11: 0.5})


def test_with_a_view():
    """Steps that begin in the window are drawn; the newest has no next observation yet."""
    names, types = ["observation", "reward", "terminated"], [ms.int64, ms.float32, ms.bool_]
    options: dict[str, Any] = {"names": names, "views": [NStep(3, 0.5)], "priorities": Priorities(), "seed": 0}
    buffer = ElasticReplayBuffer(2, 20, [()] * 3, types, window=6, **options)
    for step in range(30):
        buffer.insert([step, 1.0, False], priority=step % 5 + 1.0)
    batches = [buffer.sample(as_dict=True) for _ in range(30)]
    assert {step for batch in batches for step in batch["observation"].asnumpy().tolist()} == {24, 25, 26, 27, 28}
    assert list(batches[0])[:2] == ["indices", "weights"]
