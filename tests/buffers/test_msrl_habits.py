"""Habits of trainers written for MindSpore RL: keyword arguments, bound methods, loops in `jit` methods."""

import functools
from typing import Any

import mindspore as ms
import numpy as np
from bodies import Kept
from checks import cursors
from mindspore import Tensor, nn, ops

from mindspore_replay.buffers.making import get_buffer_cls


@functools.cache
def _made(backend: str, number: int, capacity: int, shapes: tuple[tuple[int, ...], ...]) -> Any:
    config = {"type": "uniform", "params": {"capacity": capacity, "sample_size": 2}}
    types = [ms.float32, ms.int32][: len(shapes)]
    buffer = get_buffer_cls(config)(**config["params"], shapes=shapes, types=types, backend=backend)
    return buffer, buffer.state_dict()


def make_buffer(backend: str = "native", number: int = 0, capacity: int = 5, shapes: Any = ((1, 4), (1,))) -> Any:
    """Make a buffer from a MindSpore RL configuration. Tests share buffers, emptied."""
    buffer, empty = _made(backend, number, capacity, shapes)
    buffer.load_state_dict(empty)
    return buffer


class Trainer(Kept):
    """An episode loop with everything in one compiled method."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.replay_buffer_insert = buffer.insert
        self.replay_buffer_sample = buffer.sample
        self.less = ops.Less()
        self.zero = Tensor(0, ms.int32)
        self.one = Tensor(1, ms.int32)
        self.false = Tensor(False, ms.bool_)

    @ms.jit
    def train_one_episode(self, state, action, length):
        """Insert in each step, and sample if there are enough rows; return the numbers drawn and the rows stored."""
        done = self.false
        total = self.zero
        steps = self.zero
        while self.less(steps, length):
            self.replay_buffer_insert([state, action])
            if self.buffer.count >= 2:
                _, drawn = self.replay_buffer_sample()
                total = total + ops.cast(drawn.sum(), ms.int32)
            steps = steps + self.one
        return done, total, self.buffer.count


STATE, ACTION = Tensor(np.full((1, 4), 10, np.float32)), Tensor([3], ms.int32)


def test_an_episode_in_a_loop(backend: str):
    buffer = make_buffer(backend)
    trainer = Trainer(buffer)
    done, total, count = trainer.train_one_episode(STATE, ACTION, Tensor(4, ms.int32))
    assert (bool(done), int(total), int(count)) == (False, 3 * 2 * 3, 4)
    done, total, count = trainer.train_one_episode(STATE, ACTION, Tensor(4, ms.int32))
    assert (int(total), int(count)) == (4 * 2 * 3, 5)
    assert cursors(buffer) == (3, 5, 8, 0)


def test_get_item_with_a_tensor_and_insert_of_what_it_gave():
    buffer, other = make_buffer(), make_buffer(number=1)
    for number in range(7):
        buffer.insert([STATE, Tensor([number], ms.int32)])
    row = buffer.get_item(Tensor(-2, ms.int64))
    assert [(a.shape, a.dtype) for a in row] == [((1, 4), ms.float32), ((1,), ms.int32)]
    assert row[1].asnumpy().tolist() == [5]
    other.insert(row)
    other.insert(buffer.get_item(Tensor([0, 1], ms.int64)))
    other.insert(buffer.sample())
    buffer.insert(buffer.get_item(0))
    assert [int(other.get_item(i)[1]) for i in range(3)] == [5, 2, 3]
    assert other.size() == 5
    assert int(buffer.get_item(-1)[1]) == 2


class Copies(nn.Cell):
    """Reads a row from one buffer and inserts it into another, in a graph."""

    def __init__(self, source: Any, target: Any) -> None:
        super().__init__()
        self.source, self.target = source, target

    @ms.jit
    def construct(self, index):
        row = self.source.get_item(index)
        self.target.insert(row)
        self.target.insert(self.source.get_item(-1))
        return self.target.get_item(0)[1], self.target.get_item(-1)[1]


def test_insert_of_what_get_item_gave_in_a_graph():
    source, target = make_buffer(), make_buffer(number=1)
    for number in range(7):
        source.insert([STATE, Tensor([number], ms.int32)])
    assert [part.asnumpy().tolist() for part in Copies(source, target)(Tensor(1, ms.int64))] == [[3], [6]]
