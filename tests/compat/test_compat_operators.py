"""The operators on a ring under MindSpore's old names, called as MindSpore RL calls them."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import ONCE, Body, compiled
from mindspore import Parameter, ParameterTuple, Tensor, nn

from mindspore_replay.compat.operators import BufferAppend, BufferGetItem, BufferSample

SHAPES, TYPES = [(2,), (1,)], [ms.float32, ms.int32]


class Ring(nn.Cell):
    """A ring that owns its columns and cursors, like MindSpore RL's uniform buffer."""

    def __init__(
        self, backend: str, capacity: int = 5, batch_size: int = 2, types: Any = TYPES, **options: Any
    ) -> None:
        super().__init__()
        columns = [
            Parameter(Tensor(np.zeros((capacity, *shape)), dtype), name=f"buffer_{i}", requires_grad=False)
            for i, (shape, dtype) in enumerate(zip(SHAPES, types))
        ]
        self.buffer = ParameterTuple(columns)
        self.count = Parameter(Tensor(0, ms.int32), name="count", requires_grad=False)
        self.head = Parameter(Tensor(0, ms.int32), name="head", requires_grad=False)
        self.zero = Tensor(0, ms.int32)
        self.assign = ms.ops.Assign()
        self.buffer_append = BufferAppend(capacity, SHAPES, types, backend=backend)
        self.buffer_get = BufferGetItem(capacity, SHAPES, types, backend=backend)
        self.buffer_sample = BufferSample(capacity, batch_size, SHAPES, types, backend=backend, **options)

    def insert(self, exp):
        self.buffer_append(self.buffer, exp, self.count, self.head)
        return self.buffer

    def get_item(self, index):
        return self.buffer_get(self.buffer, self.count, self.head, index)

    def sample(self):
        return self.buffer_sample(self.buffer, self.count, self.head)

    def reset(self):
        return self.assign(self.count, self.zero)

    def rows(self) -> list[int]:
        """Return the rows' numbers, oldest first; check that each row is whole."""
        numbers = []
        for i in range(int(self.count)):
            state, action = self.get_item(i)
            assert state.asnumpy().tolist() == [int(action)] * 2
            numbers.append(int(action))
        return numbers


class Append(Body):
    def construct(self, state, action):
        self.buffer.insert([state, action])
        return self.buffer.count + 0


class Get(Body):
    def construct(self, index):
        return self.buffer.get_item(index), self.buffer.get_item(-1)


class Sample(Body):
    def construct(self):
        return self.buffer.sample()


class ResetAndAppend(Body):
    def construct(self, reset, state, action):
        if reset:
            self.buffer.reset()
        self.buffer.insert([state, action])
        return self.buffer.count + 0


def rows_of(numbers: list[int]) -> tuple[Tensor, Tensor]:
    return Tensor(np.array([[n, n] for n in numbers], np.float32)), Tensor(np.array([[n] for n in numbers], np.int32))


def row_of(number: int) -> tuple[Tensor, Tensor]:
    return Tensor([number, number], ms.float32), Tensor([number], ms.int32)


@ONCE
def test_batches_that_wrap_land_in_order(mode: str, backend: str):
    """The old kernel copied the start of such a batch twice."""
    ring = Ring(backend)
    put = compiled(Append(ring), mode)
    assert [int(put(*rows_of(numbers))) for numbers in ([0, 1, 2], [3, 4, 5])] == [3, 5]
    assert int(ring.head) == 1
    assert ring.buffer[1].asnumpy().ravel().tolist() == [5, 1, 2, 3, 4]
    ring.insert(list(row_of(6)))  # from Python
    assert ring.rows() == [2, 3, 4, 5, 6]
    put(*rows_of([7, 8, 9]))
    assert ring.rows() == [5, 6, 7, 8, 9]
    ring.insert(list(rows_of(list(range(10, 18)))))  # longer than the ring
    assert ring.rows() == [13, 14, 15, 16, 17]


@ONCE
def test_an_emptied_ring_fills_from_slot_0(mode: str, backend: str):
    """On-policy trainers read the whole buffer, which must be in time order; the old kernel counted no more rows."""
    ring = Ring(backend)
    put = compiled(ResetAndAppend(ring), mode)
    ring.insert(list(rows_of([0, 1, 2, 3, 4, 5, 6])))
    assert int(ring.head) == 2
    for number in range(10, 15):
        assert int(put(Tensor(number == 10), *row_of(number))) == number - 9
    assert ring.buffer[1].asnumpy().ravel().tolist() == [10, 11, 12, 13, 14]
    assert int(ring.head) == 0


@ONCE
def test_get_item(mode: str, backend: str):
    ring = Ring(backend)
    ring.insert(list(rows_of(list(range(7)))))
    get = compiled(Get(ring), mode)
    (state, action), (_, newest) = get(Tensor(1, ms.int32))
    assert (state.asnumpy().tolist(), action.asnumpy().tolist(), newest.asnumpy().tolist()) == ([3, 3], [3], [6])
    assert int(get(Tensor([-2], ms.int64))[0][1]) == 5
    assert [int(ring.get_item(index)[1]) for index in (0, -1, Tensor(2), ring.count - 1)] == [2, 6, 4, 6]


@pytest.mark.cpu_only("on a GPU the next call reports the failure of a kernel")
def test_get_item_outside_is_an_error(backend: str):
    """The old kernel logged it and read out of bounds."""
    ring = Ring(backend)
    with pytest.raises(IndexError, match=r"must be in \[-0, 0\), since 0 rows are stored, but got 0"):
        ring.get_item(0)
    ring.insert(list(rows_of([0, 1, 2])))
    for index in (3, -4):
        with pytest.raises(IndexError, match=rf"must be in \[-3, 3\), since 3 rows are stored, but got {index}\."):
            ring.get_item(index)
    if backend == "native":  # a failing graph takes seconds
        with pytest.raises(RuntimeError, match=r"'replay_read' failed with status 3"):
            ms.jit(Get(ring).construct)(Tensor(3, ms.int32))[0][1].asnumpy()
    assert ring.rows() == [0, 1, 2]


@ONCE
def test_samples_hold_whole_rows_of_all_that_are_stored(mode: str, backend: str):
    ring, drawn = Ring(backend, batch_size=4, seed=1), set()
    ring.insert(list(rows_of([0, 1, 2, 3, 4])))
    sample = compiled(Sample(ring), mode)
    for _ in range(20):
        state, action = (part.asnumpy() for part in sample())
        assert (state == action).all()
        drawn |= set(action.ravel().tolist())
    assert drawn == {0, 1, 2, 3, 4}


def test_seeds():
    """Equal seeds draw equally, in both backends; 0 means any seed; a seed's state advances with each sample."""

    def drawn(backend: str = "native", **options: Any) -> list[list[int]]:
        ring = Ring(backend, capacity=50, batch_size=20, **options)
        ring.insert(list(rows_of(list(range(50)))))
        return [ring.sample()[1].asnumpy().ravel().tolist() for _ in range(2)]

    assert drawn(seed=7) == drawn(seed=7) == drawn("composite", seed=7) != drawn(seed=8)
    assert drawn(seed=7)[0] != drawn(seed=7)[1]
    assert drawn() != drawn()


def test_unique(backend: str):
    ring = Ring(backend, batch_size=5, unique=True)
    ring.insert(list(rows_of([0, 1, 2, 3, 4])))
    for _ in range(5):
        assert sorted(ring.sample()[1].asnumpy().ravel().tolist()) == [0, 1, 2, 3, 4]


def test_too_few_rows_is_an_error(backend: str):
    """The old kernel logged it and returned uninitialized memory."""
    ring = Ring(backend, batch_size=3, unique=True)
    ring.insert(list(rows_of([0, 1])))
    with pytest.raises(RuntimeError, match="a sample needs batch_size=3 rows, but 2 are stored"):
        ring.sample()
    repeating = Ring(backend, batch_size=9)
    with pytest.raises(RuntimeError, match="a sample needs at least 1 row, but 0 are stored"):
        repeating.sample()
    repeating.insert(list(rows_of([7])))
    assert repeating.sample()[1].asnumpy().ravel().tolist() == [7] * 9
    if backend == "composite":  # a failing graph takes seconds
        with pytest.raises(RuntimeError, match="assert failed"):
            ms.jit(Sample(ring).construct)()[1].asnumpy()


def test_bool_columns(mode: str):
    """The native backend stores them unchanged; MindSpore's operators cannot, which raises an error."""
    types = [ms.float32, ms.bool_]
    ring = Ring("native", types=types)
    put, sample = compiled(Append(ring), mode), compiled(Sample(ring), mode)
    for _ in range(3):
        put(Tensor([1, 1], ms.float32), Tensor([True]))
    assert ring.buffer[1].asnumpy().ravel().tolist() == [True] * 3 + [False] * 2
    assert sample()[1].asnumpy().tolist() == [[True], [True]]
    with pytest.raises(ValueError, match=r"column 1: expected uint8 \(5, 1\), but got bool \(5, 1\)"):
        Ring("composite", types=types).insert([Tensor([1, 1], ms.float32), Tensor([True])])


@ONCE
def test_rows_and_columns_that_do_not_fit(mode: str, backend: str):
    ring = Ring(backend)
    state, action = row_of(1)
    with pytest.raises(TypeError, match="column 1: expected int32, but got float32"):
        ring.insert([state, state])
    with pytest.raises(ValueError, match=r"column 1: expected \(1,\), but got \(3,\)"):
        ring.insert([state, Tensor([1, 2, 3], ms.int32)])
    with pytest.raises(ValueError, match=r"column 0: expected float32 \(5, 2\), but got float32 \(4, 2\)"):
        ring.buffer_append(
            (Parameter(Tensor(np.zeros((4, 2), np.float32))), ring.buffer[1]), [state, action], ring.count, ring.head
        )
    with pytest.raises(ValueError, match=r"'count' must be int32 of shape \(\), but got int64"):
        ring.buffer_append(ring.buffer, [state, action], Tensor(0, ms.int64), ring.head)
    with pytest.raises(TypeError, match="'index' must be one int32 or int64, but got float32"):
        ring.get_item(Tensor(1.0))
    with pytest.raises(TypeError, match="column 1: expected int32, but got float32"):
        compiled(Append(ring), mode)(state, Tensor([1.0], ms.float32))
    assert int(ring.count) == 0


def test_arguments():
    with pytest.raises(ValueError, match=r"'batch_size' must be in \[1, 5\], but got 6"):
        BufferSample(5, 6, SHAPES, TYPES, unique=True)
    with pytest.raises(ValueError, match="'capacity' must be"):
        BufferAppend(0, SHAPES, TYPES)
    append = BufferAppend(5, SHAPES, TYPES)
    assert append.add_prim_attr("primitive_target", "CPU") is append
    assert BufferSample(5, 3, SHAPES, TYPES, 0, False).batch_size == 3
