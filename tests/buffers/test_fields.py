"""Inputs of insertions and outputs of samples: arrays, scalars and Tensors, names and dicts, every dtype."""

import functools
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_rows, cursors
from mindspore import Tensor

from mindspore_replay import ReplayBuffer
from mindspore_replay.columns import TYPES

X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.array([5, 6, 7], np.int32)


@functools.cache
def _shared(backend: str) -> tuple[ReplayBuffer, dict[str, np.ndarray]]:
    buffer = ReplayBuffer(2, 6, [(4,), ()], [ms.float32, ms.int32], names=["x", "y"], seed=0, backend=backend)
    return buffer, buffer.state_dict()


@pytest.fixture
def buffer(backend: str) -> ReplayBuffer:
    """Return an empty buffer, shared with its compiled graphs."""
    buffer, empty = _shared(backend)
    buffer.load_state_dict(empty)
    return buffer


FORMS = {
    "arrays": [X, Y],
    "Tensors": [Tensor(X), Tensor(Y)],
    "an array and a Tensor": (X, Tensor(Y)),
    "dict": {"y": Y, "x": X},
    "dict of Tensors": {"x": Tensor(X), "y": Y},
    "column order": [np.asfortranarray(X), Y],
    "a view": [np.repeat(X, 2, axis=0)[::2], Y[::-1][::-1]],
    "columns of a wider array": [np.concatenate([X, X], 1)[:, :4], np.stack([Y, Y], 1)[:, 0]],
    "the other byte order": [X.astype(X.dtype.newbyteorder()), Y.astype(Y.dtype.newbyteorder())],
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_batch(buffer: ReplayBuffer, form: str):
    assert buffer.insert(FORMS[form]) is buffer
    assert cursors(buffer) == (0, 3, 3, 0)
    assert_rows(buffer.get_item([0, 1, 2]), [X, Y])


ROWS = {
    "an array and an int": [X[1], 6],
    "an array and a NumPy scalar": [X[1], np.int32(6)],
    "another NumPy scalar": [X[1], np.uint8(6)],
    "an array of no axis": [X[1], np.array(6, np.int32)],
    "Tensors": [Tensor(X[1]), Tensor(6, ms.int32)],
    "a view": [np.repeat(X, 2, axis=1)[1, ::2], 6],
    "the other byte order": [X[1].astype(X.dtype.newbyteorder()), Y[1:2].astype(Y.dtype.newbyteorder())[0]],
    "dict": {"y": 6, "x": X[1]},
}


@pytest.mark.parametrize("form", ROWS)
def test_forms_of_a_row(buffer: ReplayBuffer, form: str):
    buffer.insert(ROWS[form]).add(ROWS[form])
    assert cursors(buffer) == (0, 2, 2, 0)
    assert_rows(buffer.get_item(-1), [X[1], Y[1]])


def test_what_is_inserted_is_copied(buffer: ReplayBuffer):
    x, y = X.copy(), Y.copy()
    buffer.insert([x, y])
    one, number = x[0].copy(), np.array(9, np.int32)
    buffer.insert([one, number])
    x[:], y[:], one[:], number[...] = 0, 0, 0, 0
    assert_rows(buffer.get_item([0, 1, 2]), [X, Y])
    assert_rows(buffer.get_item(3), [X[0], np.int32(9)])


def test_a_dict_of_a_sample(buffer: ReplayBuffer):
    buffer.insert([X, Y])
    assert list(buffer.sample(as_dict=True)) == ["x", "y"]
    batch = buffer.sample((1, None), as_dict=True)
    assert set(batch["y"].asnumpy().tolist()) <= {6, 7}
    for x, y in zip(batch["x"].asnumpy(), batch["y"].asnumpy(), strict=True):
        assert x.tolist() == X[y - 5].tolist()


@pytest.mark.parametrize(
    "index", [-1, np.int8(-1), np.uint64(2), Tensor(2, ms.int32), Tensor(-1, ms.int64), np.array(2)]
)
def test_forms_of_a_position(buffer: ReplayBuffer, index: Any):
    buffer.insert([X, Y])
    assert_rows(buffer.get_item(index), [X[2], Y[2]])


@pytest.mark.parametrize(
    "index", [[2, 0], (2, -3), np.array([2, 0], np.uint8), Tensor([-1, 0]), np.array([9, 2, 9, 0])[1::2]]
)
def test_forms_of_positions(buffer: ReplayBuffer, index: Any):
    buffer.insert([X, Y])
    assert_rows(buffer.get_item(index), [X[[2, 0]], Y[[2, 0]]])


@pytest.mark.parametrize("sample_range", [(1, 3), [1, None], (np.int64(1), 3), (Tensor(1), Tensor(3)), (-2, 100)])
def test_forms_of_a_range(buffer: ReplayBuffer, sample_range: Any):
    buffer.insert([X, Y])
    drawn = [number for _ in range(10) for number in buffer.sample(sample_range)[1].asnumpy().tolist()]
    assert set(drawn) == {6, 7}


def test_the_description(buffer: ReplayBuffer):
    assert buffer.names == ("x", "y")
    backend = ", composite backend" if buffer.backend == "composite" else ""
    assert repr(buffer).startswith(f"ReplayBuffer: 0 of 6 rows{backend}\n  sample_size=2")


def test_every_dtype_by_rows_and_batches():
    """One row, a batch that wraps, reads and samples, from NumPy and from Tensors, of two columns of each dtype."""
    names = list(TYPES)
    types = [name for name in names for _ in range(2)]
    shapes: list[tuple[int, ...]] = [(2,), ()] * len(names)
    buffer = ReplayBuffer(2, 4, shapes, types, seed=0, backend="native")
    columns = []
    for name, dtype in zip(names, buffer.columns.numpy_types[::2], strict=True):
        wide = np.array([[i, i + 1] for i in range(6)]) % (2 if name == "bool" else 9)
        wide = wide.astype(np.float32).astype(dtype)
        columns += [wide, wide[:, 0]]
    buffer.insert([column[0] for column in columns])
    buffer.insert([Tensor.from_numpy(column[1:3].copy()) for column in columns])
    buffer.insert([column[3:] for column in columns])
    assert cursors(buffer) == (2, 4, 6, 0)
    assert_rows(buffer.get_item([0, 1, 2, 3]), [column[2:] for column in columns])
    one = buffer.get_item(-1)
    assert_rows(one, [column[5] for column in columns])
    assert [part.dtype for part in one] == [TYPES[name] for name in types]
    drawn = buffer.sample()
    expected = [(TYPES[name], (2, *shape)) for name, shape in zip(types, shapes)]
    assert [(part.dtype, part.shape) for part in drawn] == expected
    for wide, narrow in zip(drawn[::2], drawn[1::2]):
        np.testing.assert_array_equal(wide.asnumpy()[:, 0], narrow.asnumpy())
    kept = [ms.uint8 if name == "bool" else TYPES[name] for name in types]
    assert [column.dtype for column in buffer.buffer] == kept


def test_the_composite_backend_stores_no_bfloat16():
    with pytest.raises(TypeError, match=r"column 0, column 1 is bfloat16, .* the composite backend cannot store it"):
        ReplayBuffer(2, 4, [(2,), ()], ["bfloat16"] * 2, backend="composite")


def test_bfloat16_of_other_libraries():
    """JAX's arrays have NumPy's dtype of ml_dtypes, MindSpore's have one of its own."""
    bfloat16 = pytest.importorskip("ml_dtypes", reason="the dtype of JAX's arrays comes with JAX").bfloat16
    buffer = ReplayBuffer(1, 20, [(), (2,)], ["bfloat16"] * 2, weighted=True)
    numbers = np.array([1.5, -2.0, 3.0], bfloat16)
    pairs = np.stack([numbers, -numbers], 1)
    buffer.insert([numbers, pairs])
    buffer.insert([numbers[0], list(pairs[0])])
    handles = buffer.insert([numbers[1], pairs[1]], with_indices=True)
    rows = [part.asnumpy().astype(np.float32) for part in buffer.get_item(range(5))]
    assert (rows[0].tolist(), rows[1].tolist()) == ([1.5, -2, 3, 1.5, -2], [[x, -x] for x in (1.5, -2, 3, 1.5, -2)])
    assert buffer.update([handles], [numbers[2:], pairs[2:]]) == 0
    assert buffer.get_item(-1)[1].asnumpy().astype(np.float32).tolist() == [3, -3]
