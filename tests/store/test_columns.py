"""The schema of a transition: names, shapes, dtypes, bytes, and the conversion of fields to arrays."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest

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


def test_bytes_of_a_row():
    assert columns().row_bytes() == 4 * 4 + 4
    assert columns([(84, 84, 4), (), (3,)], ["uint8", "bool", "float16"]).row_bytes() == 28224 + 1 + 6


def test_bytes_of_a_buffer():
    """Ten rows of 20 bytes, head and count of 4, serials and random state of 16."""
    assert ReplayBuffer(1, 10, [(4,), ()], ["float32", "int32"]).nbytes == 10 * 20 + 4 + 4 + 16 + 16


def test_columns_start_as_zeros():
    x, y = ReplayBuffer(1, 3, [(2,), ()], ["float32", "bool"]).buffer
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
