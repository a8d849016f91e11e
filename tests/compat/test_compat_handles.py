"""The operators on a buffer identified by an integer, called as MindSpore RL calls them."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import ONCE, Body, compiled
from mindspore import Tensor, nn

from mindspore_replay.compat.handles import (
    PriorityReplayBufferCreate,
    PriorityReplayBufferDestroy,
    PriorityReplayBufferPush,
    PriorityReplayBufferSample,
    PriorityReplayBufferUpdate,
    ReservoirReplayBufferCreate,
    ReservoirReplayBufferDestroy,
    ReservoirReplayBufferPush,
    ReservoirReplayBufferSample,
)

SHAPES, TYPES = ((2,), (1,)), (ms.float32, ms.int32)


class Priority(nn.Cell):
    """Prioritized replay on the operators, as in MindSpore RL."""

    def __init__(
        self, backend: str, capacity: int = 4, sample_size: int = 2, alpha: float = 1.0, seed: int = 5
    ) -> None:
        super().__init__()
        handle = PriorityReplayBufferCreate(capacity, alpha, SHAPES, TYPES, 0, seed, backend=backend)().asnumpy().item()
        self.push_op = PriorityReplayBufferPush(handle).add_prim_attr("side_effect_io", True)
        self.sample_op = PriorityReplayBufferSample(handle, sample_size, SHAPES, TYPES)
        self.update_op = PriorityReplayBufferUpdate(handle).add_prim_attr("side_effect_io", True)
        self.destroy_op = PriorityReplayBufferDestroy(handle).add_prim_attr("side_effect_io", True)
        self.handle = handle

    def insert(self, *transition):
        return self.push_op(transition)

    def sample(self, beta):
        return self.sample_op(beta)

    def update_priorities(self, indices, priorities):
        return self.update_op(indices, priorities)

    def destroy(self):
        return self.destroy_op()


class Reservoir(nn.Cell):
    """A reservoir on the operators, as in MindSpore RL."""

    def __init__(self, backend: str, capacity: int = 4, sample_size: int = 3, seed: int = 5) -> None:
        super().__init__()
        handle = ReservoirReplayBufferCreate(capacity, SHAPES, TYPES, 0, seed, backend=backend)().asnumpy().item()
        self.push_op = ReservoirReplayBufferPush(handle).add_prim_attr("side_effect_io", True)
        self.sample_op = ReservoirReplayBufferSample(handle, sample_size, SHAPES, TYPES)
        self.destroy_op = ReservoirReplayBufferDestroy(handle).add_prim_attr("side_effect_io", True)

    def push(self, *transition):
        return self.push_op(transition)

    def sample(self):
        return self.sample_op()

    def destroy(self):
        return self.destroy_op()


class Everything(Body):
    """Pushes a row, lowers the priority of the rows it draws, and draws again."""

    def construct(self, state, action, beta, priorities):
        handle = self.buffer.insert(state, action)
        indices, weights, states, actions = self.buffer.sample(beta)
        self.buffer.update_priorities(indices, priorities)
        return handle, indices, weights, states, actions, self.buffer.sample(1.0)


def row_of(number: int) -> tuple[Tensor, Tensor]:
    return Tensor([number, number], ms.float32), Tensor([number], ms.int32)


def with_rows(backend: str, rows: int, **options: Any) -> Priority:
    """Return a buffer with some rows. A composite one takes over the state of a native one, which compiles no graph."""
    buffer = Priority("native", **options)
    for number in range(rows):
        buffer.insert(*row_of(number))
    if backend == "native":
        return buffer
    other = Priority(backend, **options)
    other.push_op.buffer.load_state_dict(buffer.push_op.buffer.state_dict())
    return other


def check_rows(indices: Tensor, states: Tensor, actions: Tensor) -> list[int]:
    """Return the rows' numbers, which are their handles in a buffer that was never emptied."""
    numbers = indices.asnumpy().tolist()
    assert actions.asnumpy().ravel().tolist() == numbers
    assert states.asnumpy().tolist() == [[n, n] for n in numbers]
    return numbers


def test_push_beyond_the_capacity():
    """The old kernel wrote a row past the end of its memory. The oldest row is evicted, and its handle is invalid."""
    buffer = Priority("native", sample_size=4)
    for number in range(4):
        assert buffer.insert(*row_of(number)).asnumpy().tolist() == [buffer.handle]
    indices, _, *rows = buffer.sample(1.0)
    assert check_rows(indices, *rows) == [0, 1, 2, 3]
    buffer.insert(*row_of(4))
    indices, weights, states, actions = buffer.sample(Tensor([1.0], ms.float32))
    assert sorted(check_rows(indices, states, actions)) == [1, 2, 3, 4]
    assert weights.asnumpy().tolist() == [1.0] * 4
    buffer.update_priorities(Tensor([0, 1], ms.int64), Tensor([9.0, 3.0], ms.float32))
    _, weights, _, actions = buffer.sample(1.0)
    by_row = dict(zip(actions.asnumpy().ravel().tolist(), weights.asnumpy().tolist()))
    assert by_row[1] == pytest.approx(1 / 3)  # row 4, in the slot of row 0, did not take its priority


@ONCE
def test_everything_in_one_graph(mode: str, backend: str):
    buffer = with_rows(backend, 7, capacity=8)
    step = compiled(Everything(buffer), mode)
    low = Tensor([1e-6, 1e-6], ms.float32)
    handle, indices, weights, states, actions, again = step(*row_of(7), Tensor(0.5, ms.float32), low)
    assert handle.asnumpy().tolist() == [buffer.handle]
    drawn = check_rows(indices, states, actions)
    assert weights.asnumpy().tolist() == [1.0, 1.0]
    assert not set(drawn) & set(check_rows(again[0], *again[2:]))


def test_python_graphs_and_backends_draw_alike():
    """The seed determines the draws, wherever the draw is called from."""
    buffers = [with_rows(backend, 3, seed=3) for backend in ("native", "native", "composite")]
    expected = [part.asnumpy().tolist() for part in buffers[0].sample(0.5)]
    for buffer in buffers[1:]:
        assert [part.asnumpy().tolist() for part in ms.jit(buffer.sample)(Tensor(0.5))] == expected


def test_a_buffer_has_the_arguments_of_its_operator():
    buffer = Priority("native", capacity=3, alpha=0.5).push_op.buffer
    assert (buffer.capacity, buffer.spec.options.weighting) == (3, (0.5, 1e-7))


def test_errors():
    buffer = Priority("native", sample_size=2)
    with pytest.raises(RuntimeError, match="a sample needs at least 1 eligible row, but got 0"):
        buffer.sample(1.0)
    buffer.insert(*row_of(0))
    with pytest.raises(ValueError, match=r"'beta' must be in \[0, 1\], but got 1.5"):
        buffer.sample(Tensor([1.5], ms.float32))
    with pytest.raises(ValueError, match="a priority must be finite and at least 0, but got -1"):
        buffer.update_priorities(Tensor([0], ms.int64), Tensor([-1.0], ms.float32))
    with pytest.raises(TypeError, match="column 1: expected int32, but got float32"):
        buffer.insert(row_of(0)[0], Tensor([0.0], ms.float32))
    with pytest.raises(ValueError, match="'shapes' and 'dtypes' must be those of the buffer"):
        PriorityReplayBufferSample(buffer.handle, 2, SHAPES, (ms.float32, ms.float32))
    with pytest.raises(ValueError, match="must be that of a ReservoirReplayBuffer"):
        ReservoirReplayBufferPush(buffer.handle)
    with pytest.raises(ValueError, match="'seed1' must be in"):
        PriorityReplayBufferCreate(4, 1.0, SHAPES, TYPES, 0, -1)


def test_destroy():
    buffer = Priority("auto")
    buffer.insert(*row_of(0))
    assert buffer.destroy().asnumpy().tolist() == [buffer.handle]
    with pytest.raises(ValueError, match="that was not destroyed"):
        PriorityReplayBufferPush(buffer.handle)
    with pytest.raises(RuntimeError, match="was already destroyed"):
        buffer.destroy()
    reservoir = Reservoir("auto")
    other = Reservoir("auto")
    reservoir.destroy()
    other.push(*row_of(3))
    assert int(other.push_op.buffer.size()) == 1


def test_reservoir_samples():
    buffer = Reservoir("native")
    with pytest.raises(RuntimeError, match="a sample needs at least 1 row, but got 0"):
        buffer.sample()
    for number in range(4):
        buffer.push(*row_of(number))
    states, actions = buffer.sample()
    assert states.asnumpy().tolist() == [[n, n] for n in actions.asnumpy().ravel().tolist()]
    assert set(np.concatenate([buffer.sample()[1].asnumpy().ravel() for _ in range(20)])) == {0, 1, 2, 3}
