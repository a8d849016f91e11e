"""The schema of a transition: names, shapes, dtypes, bytes, and the conversion of fields to arrays."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_replay import ReplayBuffer
from mindspore_replay.columns import TYPES, Columns, numpy_type
from mindspore_replay.store.base.schema import Batch, type_name

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES += ["float16", "float32", "float64", "bfloat16"]
BYTES = [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2]


def columns(shapes: Any = ((4,), ()), types: Any = (ms.float32, "int32"), names: Any = None) -> Columns:
    return Columns("Buffer", shapes, types, names)


def test_every_dtype_has_a_name_and_a_size():
    assert list(TYPES) == NAMES
    assert [type_name(dtype) for dtype in TYPES.values()] == NAMES
    assert [numpy_type(dtype).itemsize for dtype in TYPES.values()] == BYTES
    assert [numpy_type(dtype).name for dtype in TYPES.values()] == NAMES


def test_dtypes_as_objects_and_as_names():
    objects = columns([()] * 13, list(TYPES.values()))
    names = columns([()] * 13, NAMES)
    assert objects.types == names.types == tuple(TYPES.values())
    assert objects.stored_types[0] == ms.uint8
    assert objects.stored_types[1:] == objects.types[1:]
    assert columns([()], [ms.bool_]).types == columns([()], ["bool"]).types


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_of_numpy(name: str):
    if name != "bfloat16":
        assert columns([()] * 2, [np.dtype(name), np.dtype(name).type]).types == (TYPES[name],) * 2
    assert columns([()], [numpy_type(TYPES[name])]).types == (TYPES[name],)


def test_dtypes_of_python_are_those_that_numpy_takes_them_for():
    given = [bool, int, float]
    assert columns([()] * 3, given).types == tuple(TYPES[np.dtype(dtype).name] for dtype in given)


def test_names_default_to_numbers():
    assert columns().names == ("0", "1")
    assert columns().given_names is None
    assert columns(names=["x", "y"]).names == columns(names=["x", "y"]).given_names == ("x", "y")


def test_shapes_take_any_ints():
    assert columns([[np.int64(2), 3], ()]).shapes == ((2, 3), ())
    assert all(type(axis) is int for axis in columns([[np.int64(2), 3], ()]).shapes[0])


def test_bytes_of_a_row():
    assert columns().row_bytes() == 4 * 4 + 4
    assert columns([(84, 84, 4), (), (3,)], ["uint8", "bool", "float16"]).row_bytes() == 28224 + 1 + 6


def test_bytes_of_a_buffer():
    """Ten rows of 20 bytes, head and count of 4, serials and random state of 16."""
    assert (
        ReplayBuffer(sample_size=1, capacity=10, shapes=[(4,), ()], types=["float32", "int32"]).nbytes
        == 10 * 20 + 4 + 4 + 16 + 16
    )


def test_columns_start_as_zeros():
    x, y = ReplayBuffer(sample_size=1, capacity=3, shapes=[(2,), ()], types=["float32", "bool"]).buffer
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((3, 2), ms.float32, (3,), ms.uint8)
    assert x.asnumpy().tolist() == [[0, 0]] * 3
    assert y.asnumpy().tolist() == [0] * 3
    assert not x.requires_grad
    assert not y.requires_grad


@pytest.mark.parametrize(
    ("shapes", "batch"),
    [([(4,), ()], Batch(1, True)), ([(1, 4), (1,)], Batch(1, False)), ([(7, 4), (7,)], Batch(7, False))],
)
def test_the_layout_of_rows(shapes: Any, batch: Batch):
    assert columns().layout([np.zeros(shape) for shape in shapes], 1) == batch


def test_the_layout_where_the_first_column_is_scalar():
    two = columns([(), (4,)], ["int32", "float32"])
    assert two.layout([np.zeros(()), np.zeros(4)], 1) == Batch(1, True)
    assert two.layout([np.zeros(4), np.zeros((4, 4))], 1) == Batch(4, False)


@pytest.mark.parametrize(("num_envs", "rows"), [(1, 3), (3, 3), (3, 6)])
def test_environments_divide_the_rows(num_envs: int, rows: int):
    assert columns().layout([np.zeros((rows, 4)), np.zeros(rows)], num_envs).rows == rows


def test_fields_in_the_order_of_the_columns():
    named = columns(names=["x", "y"])
    assert named.in_order({"y": 2, "x": 1}) == [1, 2]
    assert named.in_order([1, 2]) == [1, 2]
    assert columns().in_order((1, 2)) == (1, 2)


def test_tensors_and_arrays_stay_as_they_are():
    tensor, array = Tensor([1.0], ms.float32), np.ones(3, np.float32)
    assert columns().to_array(0, array) is array
    assert columns().to_array(0, tensor).tolist() == [1.0]
    assert columns().to_array(0, [array, array]).dtype == np.float32
