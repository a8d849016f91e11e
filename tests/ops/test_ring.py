"""Ring write, read and gather of composite operators against the twin, to the last bit, for every dtype."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import ParameterTuple, Tensor, nn
from model import Model, stack

from mindspore_replay.buffers.parameters import overwrite, parameter_on
from mindspore_replay.columns import TYPES, Columns
from mindspore_replay.ops.composite import CompositeOperators
from mindspore_replay.ops.eager import wait_for_work
from mindspore_replay.ops.state import State
from mindspore_replay.store.kernels.state import make
from mindspore_replay.store.spec.options import Options
from mindspore_replay.store.spec.plan import WINDOW, Output, SamplePlan

CAPACITY = 5
SHAPES = [(), (3,), (1,), (2, 2), (), (5,), (17,), (), (1, 2), (3,), (), (4,)]


class Ring(nn.Cell):
    """The operators on a ring of their own."""

    def __init__(self, shapes: list[Any], types: list[str]) -> None:
        super().__init__()
        self.columns = Columns("Ring", shapes, types)
        options = Options(CAPACITY, SamplePlan(1, "uniform", (Output(WINDOW, 0),)))
        parameters = {name: parameter_on(name, array) for name, array in make(self.columns, options).items()}
        self.buffer = ParameterTuple([parameters[f"column.{name}"] for name in self.columns.names])
        self.head, self.count, self.serials = (parameters[name] for name in ("head", "count", "serials"))
        state = State(self.buffer, parameters, options)
        self.operators = CompositeOperators(state, self.columns, options)

    @ms.jit
    def insert(self, *rows):
        return self.operators.insert(rows, None, None, None)

    @ms.jit
    def get_item(self, index):
        return self.operators.read(index)

    def put(self, twin: Model) -> None:
        """Copy the twin's rows and cursors."""
        wait_for_work()
        overwrite(self.head, twin.head)
        overwrite(self.count, twin.size)
        overwrite(self.serials, twin.serials)
        for i, column in enumerate(self.buffer):
            stored = column.asnumpy().copy()
            for slot, row in enumerate(twin.slots):
                stored[slot] = 0 if row is None else row[i]
            overwrite(column, stored)

    def assert_like(self, twin: Model) -> None:
        wait_for_work()
        assert (int(self.head.asnumpy()), int(self.count.asnumpy())) == (twin.head, twin.size)
        assert self.serials.asnumpy().tolist() == twin.serials
        for i, (column, dtype) in enumerate(zip(self.buffer, self.columns.numpy_types, strict=True)):
            for slot, row in enumerate(twin.slots):
                expected = np.zeros(self.columns.shapes[i], dtype) if row is None else row[i]
                assert column.asnumpy()[slot].tobytes() == expected.tobytes(), f"{dtype}, slot {slot}"


@pytest.fixture(scope="module")
def cells() -> Ring:
    types = [name for name in TYPES if name != "bfloat16"]
    return Ring(SHAPES[: len(types)], types)


def random_row(columns: Columns, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return one row of random bits, including NaN, infinities, negative zero and the limits of ints.

    MindSpore's operators preserve every float16 but the payload of a NaN, so NaNs have the usual one.
    """
    row = []
    for shape, dtype in zip(columns.shapes, columns.numpy_types, strict=True):
        bits = generator.bytes(int(np.prod(shape, dtype=int)) * dtype.itemsize)
        values = np.frombuffer(bits, np.uint8) % 2 == 1 if dtype == np.bool_ else np.frombuffer(bits, dtype)
        if dtype == np.float16:
            values = np.where(np.isnan(values), dtype.type(np.nan), values)
        row.append(values.reshape(shape).copy())
    return tuple(row)


def random_twin(columns: Columns, generator: np.random.Generator) -> Model:
    """Return a ring after some insertions and perhaps a reset."""
    twin = Model("ReplayBuffer", 1, CAPACITY)
    twin.insert([random_row(columns, generator) for _ in range(generator.integers(0, 2 * CAPACITY))])
    if generator.integers(2):
        twin.reset()
        twin.insert([random_row(columns, generator) for _ in range(generator.integers(0, 2 * CAPACITY))])
    return twin


def tensors(columns: Columns, arrays: tuple[np.ndarray, ...]) -> list[Tensor]:
    """Return Tensors with these bits; NumPy has MindSpore's spelling of bfloat16, which `Tensor` does not accept."""
    return [Tensor.from_numpy(np.ascontiguousarray(a).reshape(a.shape)) for a in arrays]


def assert_bits(got: tuple[Tensor, ...], expected: tuple[np.ndarray, ...]) -> None:
    for a, b in zip(got, expected, strict=True):
        assert (a.asnumpy().dtype, a.shape) == (b.dtype, b.shape)
        assert a.asnumpy().tobytes() == b.tobytes(), f"{b.dtype}"


@pytest.mark.parametrize("n", [None, 4, 3 * CAPACITY + 2])
def test_write_equals_the_twin(cells: Ring, n: int | None):
    """`None` is one row without a leading axis."""
    generator = np.random.default_rng(n or 0)
    for _ in range(12):
        twin = random_twin(cells.columns, generator)
        cells.put(twin)
        rows = [random_row(cells.columns, generator) for _ in range(n or 1)]
        first = cells.insert(*tensors(cells.columns, rows[0] if n is None else stack(rows)))
        twin.insert(rows)
        assert int(first.asnumpy().item()) == twin.serials[0] - len(rows)
        cells.assert_like(twin)


@pytest.mark.parametrize("n", [None, 4])
def test_read_equals_the_twin(cells: Ring, n: int | None):
    generator = np.random.default_rng(10 + (n or 0))
    for case in range(12):
        twin = random_twin(cells.columns, generator)
        if not twin.size:
            twin.insert([random_row(cells.columns, generator)])
        cells.put(twin)
        index = generator.integers(-twin.size, twin.size, size=n or ())
        if case == 0 and n == 4:
            index = np.array([0, -1, -twin.size, twin.size - 1])
        rows = [twin.get_item(int(i)) for i in np.atleast_1d(index)]
        assert_bits(cells.get_item(Tensor(index, ms.int64)), rows[0] if n is None else stack(rows))
        cells.assert_like(twin)
