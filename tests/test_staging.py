"""Rows from Python: the fast ways of `Staging` and the careful one store the same, or refuse the same."""

from typing import Any

import numpy as np
import pytest

from mindspore_replay import ReplayBuffer
from mindspore_replay.buffers.staging import Staging
from mindspore_replay.columns import Columns

pytestmark = pytest.mark.host_memory("rows on their way to kernels that are called directly")

SHAPES, TYPES = [(2,), (), (), (), ()], ["float32", "int32", "float32", "bool", "float16"]


@pytest.fixture(params=["extension", "python"])
def staging(request: pytest.FixtureRequest) -> Staging:
    """With the extension module, which must be there, and without."""
    made = Staging(Columns("Buffer", SHAPES, TYPES))
    assert made._at_once is not None
    if request.param == "python":
        made._at_once = None
    return made


def staged(staging: Staging) -> list[Any]:
    return [place.staged.tolist() for place in staging._places]


def row(**others: Any) -> list[Any]:
    fields = {"a": np.array([1, 2], np.float32), "b": 3, "c": 0.5, "d": True, "e": 0.25}
    return list({**fields, **others}.values())


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"b": np.int32(3), "c": np.float32(0.5), "d": np.bool_(True), "e": np.float16(0.25)},
        {"b": np.int64(3), "c": np.float64(0.5)},
        {"b": np.array(3, np.int32), "c": np.array(0.5, np.float32), "d": np.array(True)},
    ],
)
def test_a_plain_row_is_taken_at_once(staging: Staging, others: dict[str, Any]):
    assert staging.row(row(**others))
    assert staged(staging) == [[1, 2], 3, 0.5, True, 0.25]


@pytest.mark.parametrize(
    "others",
    [
        {"a": np.array([1, 2])},  # a dtype that is not the column's
        {"a": np.zeros(3, np.float32)},
        {"a": [1.0, 2.0]},
        {"b": 0.5},
        {"b": True},
        {"b": 128},
        {"b": np.int64(2**40)},
        {"b": -1},
        {"c": "0.5"},
        {"c": np.float64(1e300)},
        {"c": True},
        {"d": 1},
        {"e": 65_000.0},
        {"e": np.array(0.25)},
        {"e": np.float64("nan")},
    ],
)
def test_anything_else_asks_for_a_closer_look(staging: Staging, others: dict[str, Any]):
    assert not staging.row(row(**others))


@pytest.mark.parametrize(
    "dtype", ["bool", "float32", "float64", *(f"{sign}int{8 << i}" for sign in ("", "u") for i in range(4))]
)
def test_the_extension_takes_each_dtype(dtype: str):
    staging = Staging(Columns("Buffer", [(), (2,)], [dtype] * 2))
    one = np.dtype(dtype).type(1)
    for number in ({"b": True, "f": 1.0}.get(np.dtype(dtype).kind, 1), np.array(one)):
        for place in staging._places:
            place.staged[...] = 0
        assert staging._at_once([number, np.array([one, 0], dtype)])
        assert staged(staging) == [one, [one, 0]]
    wrong = "float32" if dtype != "float32" else "float64"
    assert not staging._at_once([np.array(1, wrong), np.array([one, 0], dtype)])
    assert not staging._at_once([np.array(one), np.array([one, 0], np.dtype(dtype).newbyteorder(">"))]) or (
        np.dtype(dtype).itemsize == 1
    )
    assert not staging._at_once([np.array(one)])
    assert not staging._at_once(np.array([one, one]))


def test_python_numbers_are_rounded_and_overflow_as_arrays_do():
    buffer = ReplayBuffer(
        sample_size=1, capacity=4, shapes=[(), ()], types=["float32", "float64"], seed=0, backend="native"
    )
    for value in (0.1, 1e300, float("inf"), 7):
        buffer.insert([value, value])
        with np.errstate(over="ignore"):
            assert buffer.get_item(-1)[0].asnumpy() == np.float32(value)
        assert buffer.get_item(-1)[1].asnumpy() == float(value)


def batch(n: int) -> list[np.ndarray]:
    return [np.arange(n * int(np.prod(s))).reshape(n, *s).astype(t) for s, t in zip(SHAPES, TYPES)]


def test_a_plain_batch_is_known(staging: Staging):
    assert staging.batch(batch(6), 3) == 6
    assert staging.batch(tuple(batch(1)), 1) == 1


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "change",
    [
        lambda a: [a[0][::-1], *a[1:]],
        lambda a: [a[0].astype(">f4"), *a[1:]],
        lambda a: [a[0], a[1].astype(np.int64), *a[2:]],
        lambda a: [a[0], a[1][:5], *a[2:]],
        lambda a: [a[0], a[1].tolist(), *a[2:]],
        lambda a: [a[0].tolist(), *a[1:]],
        lambda a: [a[0], a[1].reshape(6, 1), *a[2:]],
        lambda a: [x[:0] for x in a],
        lambda a: [x[:5] for x in a],  # no multiple of num_envs
    ],
)
def test_any_other_batch_asks_for_a_closer_look(staging: Staging, change: Any):
    assert staging.batch(change(batch(6)), 3) == 0


def test_a_batch_is_stored_the_same_however_it_lies():
    n = 6
    plain, strange = batch(n), batch(n)
    strange = [np.asfortranarray(strange[0]), strange[1].tolist(), *map(read_only, strange[2:])]
    strange[1] = np.array(strange[1], np.int32)[::-1].copy()[::-1]
    one, other = (
        ReplayBuffer(sample_size=2, capacity=8, shapes=SHAPES, types=TYPES, seed=0, backend="native") for _ in range(2)
    )
    one.insert(plain)
    other.insert(strange)
    for a, b, given in zip(one.get_item(range(n)), other.get_item(range(n)), plain):
        np.testing.assert_array_equal(a.asnumpy(), given)
        np.testing.assert_array_equal(b.asnumpy(), given)


def test_a_refused_row_leaves_the_buffer_as_it_was():
    buffer = ReplayBuffer(sample_size=1, capacity=4, shapes=SHAPES, types=TYPES, seed=0, backend="native")
    buffer.insert(row())
    before = buffer.state_dict()
    for wrong, error in ((row(b=2**40), ValueError), (row(a=np.zeros(2)), TypeError), (row(e="x"), TypeError)):
        with pytest.raises(error, match="column"):
            buffer.insert(wrong)
    after = buffer.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)
