"""ReplayBuffer's behaviour by hand, in each way to call. `test_twin.py` has random operations, of all backends."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import assert_rows, cursors
from model import stack

from mindspore_replay import ReplayBuffer

Make = Callable[..., Any]

COLUMNS: dict[str, Any] = {"shapes": [(2,), ()], "types": ["float32", "int32"], "names": ["pair", "number"]}


def row(serial: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row with this serial number: its number in every field."""
    return np.array([serial, -serial], np.float32), np.array(serial, np.int32)


def rows(*serials: int) -> dict[str, np.ndarray]:
    return dict(zip(COLUMNS["names"], stack([row(serial) for serial in serials])))


def serials_of(batch: Any) -> list[int]:
    """Return the serials of rows; check that their fields belong together."""
    batch = tuple(batch.values()) if isinstance(batch, dict) else batch
    serials = np.atleast_1d(batch[1]).tolist()
    assert_rows(batch, rows(*serials).values() if batch[1].ndim else row(serials[0]))
    return serials  # type: ignore[no-any-return]


def cursors_of(face: Any) -> tuple[int, ...]:
    """Return head, count, rows ever inserted, and the serial of the first row since the last reset."""
    state = face.buffer.state_dict()
    return int(state["head"]), int(state["count"]), *state["serials"].tolist()


def test_the_picture_of_four_steps(make: Make):
    """Capacity 6: insert 2, insert 4, insert 2; the last two evict the two oldest."""
    face = make("ReplayBuffer", 2, 6, **COLUMNS)
    assert (cursors_of(face), face.status()) == ((0, 0, 0, 0), (0, False, False))
    face.insert(rows(0, 1))
    assert (cursors_of(face), face.status()) == ((0, 2, 2, 0), (2, False, True))
    face.insert(rows(2, 3, 4, 5))
    assert (cursors_of(face), face.status()) == ((0, 6, 6, 0), (6, True, True))
    face.insert(rows(6, 7))
    assert (cursors_of(face), face.status()) == ((2, 6, 8, 0), (6, True, True))
    assert serials_of(face.get_item(0)) == [2]  # the third row ever inserted
    assert serials_of(face.get_item(-1)) == [7]
    assert face.buffer.state_dict()["column.number"].tolist() == [6, 7, 2, 3, 4, 5]
    face.buffer.check_valid()


# From Python alone: `test_twin.py` holds graphs to the same.


def test_a_leading_axis_of_one_is_a_batch_of_one():
    buffer = ReplayBuffer(2, 6, **COLUMNS).insert(rows(0)).insert(row(1))
    assert cursors(buffer) == (0, 2, 2, 0)
    assert [a.shape for a in buffer.get_item([1])] == [(1, 2), (1,)]
    assert [a.shape for a in buffer.get_item(1)] == [(2,), ()]


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_columns_of_one_element_are_no_batches(backend: str):
    buffer = ReplayBuffer(1, 3, [(1,), (1, 1)], ["int32", "float32"], backend=backend)
    buffer.insert([np.array([7], np.int32), np.array([[7]], np.float32)])
    assert cursors(buffer) == (0, 1, 1, 0)
    buffer.insert([np.array([[8], [9]], np.int32), np.array([[[8]], [[9]]], np.float32)])
    assert cursors(buffer) == (0, 3, 3, 0)
    assert_rows(buffer.get_item(2), (np.array([9], np.int32), np.array([[9]], np.float32)))


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_scalar_columns_and_bool(backend: str):
    buffer = ReplayBuffer(2, 4, [(), (), (2,)], ["bool", "float32", "bool"], backend=backend)
    buffer.insert([True, 1.5, np.array([True, False])])
    buffer.insert([False, -2, np.array([False, True])])
    expected = np.array([True, False]), np.array([1.5, -2], np.float32), np.array([[True, False], [False, True]])
    assert_rows(buffer.get_item([0, 1]), expected)
    assert_rows(buffer.get_item(0), [column[0] for column in expected])
    assert [column.asnumpy().dtype for column in buffer.buffer] == [np.uint8, np.float32, np.uint8]
    assert [column.asnumpy().dtype for column in buffer.sample()] == [np.bool_, np.float32, np.bool_]


def test_samples_are_copies():
    buffer = ReplayBuffer(2, 6, **COLUMNS).insert(rows(0, 1, 2, 3))
    kept = [*buffer.get_item(0), *buffer.sample()]
    before = [a.asnumpy().copy() for a in kept]
    for _ in range(2):
        buffer.insert(rows(4, 5, 6, 7))
    assert_rows(kept, before)


def test_samples_of_another_size_from_the_same_rows():
    buffer = ReplayBuffer(2, 8, [()], ["int32"], seed=0, weighted=True).insert([np.arange(10, 16, dtype=np.int32)])
    other = buffer.with_sample_size(5)
    assert (len(other), other.sample_size, buffer.sample_size) == (6, 5, 2)
    indices, numbers = other.sample(with_indices=True)
    assert numbers.asnumpy().tolist() == (indices.asnumpy() + 10).tolist()
    assert int(other.delete(indices)) == len(set(indices.asnumpy().tolist()))
    assert buffer.eligible() == 6 - len(set(indices.asnumpy().tolist()))
    assert other.lock is buffer.lock
