"""ReplayBuffer's behaviour, in {native, composite} x {eager, compiled}. `test_twin.py` has random operations."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from checks import assert_frequencies, assert_rows, assert_uniform_without_replacement, cursors, uniform
from drivers import Combination, make_driver
from model import stack

from mindspore_replay import ReplayBuffer

Make = Callable[..., Any]

SHAPES, TYPES = [(2,), ()], [ms.float32, ms.int32]


@pytest.fixture(params=[("native", "eager"), ("composite", "compiled")], ids="-".join)
def few(request: pytest.FixtureRequest) -> Make:
    """Return a maker of drivers of buffers that only one test needs, with graphs of their own."""
    return lambda *args, **options: make_driver(Combination(*request.param), *args, seed=0, **options)


def row(serial: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row with this serial number: its number in every field."""
    return np.array([serial, -serial], np.float32), np.array(serial, np.int32)


def rows(*serials: int) -> tuple[np.ndarray, ...]:
    return stack([row(serial) for serial in serials])


def serials_of(batch: tuple[np.ndarray, ...]) -> list[int]:
    """Return the serials of rows; check that their fields belong together."""
    serials = np.atleast_1d(batch[1]).tolist()
    assert_rows(batch, rows(*serials) if batch[1].ndim else row(serials[0]))
    return serials


def test_the_picture_of_four_steps(make: Make):
    """Capacity 6: insert 2, insert 4, insert 2; the last two evict the two oldest."""
    driver = make(2, 6, SHAPES, TYPES)
    assert (cursors(driver.buffer), driver.status()) == ((0, 0, 0, 0), (0, False, False))
    driver.insert(rows(0, 1))
    assert (cursors(driver.buffer), driver.status()) == ((0, 2, 2, 0), (2, False, True))
    driver.insert(rows(2, 3, 4, 5))
    assert (cursors(driver.buffer), driver.status()) == ((0, 6, 6, 0), (6, True, True))
    driver.insert(rows(6, 7))
    assert (cursors(driver.buffer), driver.status()) == ((2, 6, 8, 0), (6, True, True))
    assert serials_of(driver.get_item(0)) == [2]  # the third row ever inserted
    assert serials_of(driver.get_item(-1)) == [7]
    assert driver.buffer.buffer[1].asnumpy().tolist() == [6, 7, 2, 3, 4, 5]
    driver.buffer.check_valid()


def test_single_rows_fill_and_wrap(make: Make):
    driver = make(2, 6, SHAPES, TYPES)
    for serial in range(14):
        driver.insert(row(serial))
        assert cursors(driver.buffer) == (max(0, serial - 5) % 6, min(serial + 1, 6), serial + 1, 0)
        assert serials_of(driver.get_item(-1)) == [serial]
        assert serials_of(driver.get_item(0)) == [max(0, serial - 5)]


def test_a_batch_that_crosses_the_end(make: Make):
    driver = make(2, 6, SHAPES, TYPES)
    driver.insert(rows(0, 1, 2, 3))
    driver.insert(rows(4, 5, 6, 7))
    assert cursors(driver.buffer) == (2, 6, 8, 0)
    assert driver.buffer.buffer[1].asnumpy().tolist() == [6, 7, 2, 3, 4, 5]
    assert serials_of(driver.get_item([0, 1, 2, 3])) == [2, 3, 4, 5]


def test_a_batch_as_long_as_the_ring_and_longer(make: Make):
    driver = make(2, 6, SHAPES, TYPES)
    driver.insert(row(0))
    driver.insert(rows(*range(1, 7)))
    assert cursors(driver.buffer) == (1, 6, 7, 0)
    driver.insert(rows(*range(7, 22)))  # 15 rows; the newest 6 stay, and the serials count all
    assert cursors(driver.buffer) == (22 % 6, 6, 22, 0)
    assert driver.buffer.buffer[1].asnumpy().tolist() == [18, 19, 20, 21, 16, 17]
    assert serials_of(driver.get_item([0, 1, 2, -1])) == [16, 17, 18, 21]


def test_a_leading_axis_of_one_is_a_batch_of_one(make: Make):
    driver = make(2, 6, SHAPES, TYPES)
    driver.insert(rows(0))
    driver.insert(row(1))
    assert cursors(driver.buffer) == (0, 2, 2, 0)
    assert [a.shape for a in driver.get_item([1])] == [(1, 2), (1,)]
    assert [a.shape for a in driver.get_item(1)] == [(2,), ()]
    assert serials_of(driver.get_item([1])) == serials_of(driver.get_item(1)) == [1]


def test_columns_of_one_element_are_no_batches(few: Make):
    driver = few(1, 3, [(1,), (1, 1)], ["int32", "float32"])
    driver.insert([np.array([7], np.int32), np.array([[7]], np.float32)])
    assert cursors(driver.buffer) == (0, 1, 1, 0)
    driver.insert([np.array([[8], [9]], np.int32), np.array([[[8]], [[9]]], np.float32)])
    assert cursors(driver.buffer) == (0, 3, 3, 0)
    assert_rows(driver.get_item(2), (np.array([9], np.int32), np.array([[9]], np.float32)))


def test_scalar_columns_and_bool(few: Make):
    driver = few(2, 4, [(), (), (2,)], [ms.bool_, "float32", "bool"])
    driver.insert([True, 1.5, np.array([True, False])])
    driver.insert([False, -2, np.array([False, True])])
    expected = np.array([True, False]), np.array([1.5, -2], np.float32), np.array([[True, False], [False, True]])
    assert_rows(driver.get_item([0, 1]), expected)
    assert_rows(driver.get_item(0), [column[0] for column in expected])
    assert [column.dtype for column in driver.buffer.buffer] == [ms.uint8, ms.float32, ms.uint8]
    drawn = driver.sample()
    assert [column.dtype for column in drawn] == [np.bool_, np.float32, np.bool_]


def test_reset_forgets_rows_and_keeps_serials_and_the_random_sequence(make: Make):
    driver = make(2, 6, SHAPES, TYPES)
    driver.insert(rows(0, 1, 2, 3))
    driver.insert(rows(4, 5, 6, 7))
    driver.sample()
    driver.reset()
    assert (cursors(driver.buffer), driver.status()) == ((0, 0, 8, 8), (0, False, False))
    assert driver.buffer.random_state.asnumpy()[1] == 2
    driver.insert(rows(8, 9))
    assert cursors(driver.buffer) == (0, 2, 10, 8)
    assert driver.buffer.buffer[1].asnumpy().tolist()[:2] == [8, 9]  # in time order, from slot 0
    assert serials_of(driver.get_item([0, 1, -2, -1])) == [8, 9, 8, 9]
    driver.buffer.check_valid()


def test_samples_are_copies(make: Make):
    driver = make(2, 6, SHAPES, TYPES)
    driver.insert(rows(0, 1, 2, 3))
    one, drawn = driver.buffer.get_item(0), driver.buffer.sample()
    before = [a.asnumpy().copy() for a in (*one, *drawn)]
    for _ in range(2):
        driver.insert(rows(4, 5, 6, 7))
    assert_rows([*one, *drawn], before)


def test_a_range_survives_the_wrap(make: Make, combination: Combination):
    """With head 2, logical rows 1 to 3 are in slots 3, 0 and 1."""
    driver = make(3, 4, SHAPES, TYPES, replace=False, **({"ordered": True} if combination.call == "compiled" else {}))
    driver.insert(rows(0, 1, 2))
    driver.insert(rows(3, 4, 5))
    for _ in range(5):
        assert sorted(serials_of(driver.sample((1, 4)))) == [3, 4, 5]
        if combination.backend == "native":  # open ranges are the same for both
            assert sorted(serials_of(driver.sample((-3, None)))) == [3, 4, 5]
            assert sorted(serials_of(driver.sample((None, 3)))) == [2, 3, 4]


# Frequencies, of native draws from Python: all others are equal bit for bit, as `test_twin.py` shows.


@pytest.fixture
def native() -> Make:
    """Return a maker of drivers of empty native buffers, called from Python."""
    return lambda *args, **options: make_driver(Combination("native", "eager"), *args, seed=0, **options)


@pytest.mark.parametrize("ordered", [False, True])
def test_with_replacement_each_row_is_equally_likely(native: Make, ordered: bool):
    driver = native(10, 20, [()], ["int32"], ordered=ordered)
    driver.insert([np.arange(15, dtype=np.int32)])
    driver.insert([np.arange(15, 30, dtype=np.int32)])  # rows 10 to 29, head 10
    drawn = [serial for _ in range(120) for serial in driver.sample()[0].tolist()]
    assert_frequencies(drawn, uniform(range(10, 30)))
    with pytest.raises(AssertionError):
        assert_frequencies([serial if serial > 10 else 29 for serial in drawn], uniform(range(10, 30)))


@pytest.mark.parametrize("ordered", [False, True])
def test_without_replacement_positions_and_pairs_are_uniform(native: Make, ordered: bool):
    driver = native(3, 4, SHAPES, TYPES, replace=False, **({"ordered": True} if ordered else {}))
    driver.insert(rows(0, 1, 2))
    driver.insert(rows(3, 4, 5))  # rows 2 to 5, head 2
    batches = [(driver.sample()[1] - 2).tolist() for _ in range(300)]
    assert_uniform_without_replacement(batches, 4)
    with pytest.raises(AssertionError):
        assert_uniform_without_replacement([sorted(batch) for batch in batches], 4)


def test_without_replacement_a_sample_of_all_rows_is_a_permutation(native: Make):
    driver = native(4, 4, [()], ["int32"], replace=False)
    driver.insert([np.arange(3, dtype=np.int32)])
    driver.insert([np.arange(3, 6, dtype=np.int32)])
    batches = {tuple(driver.sample()[0].tolist()) for _ in range(30)}
    assert all(sorted(batch) == [2, 3, 4, 5] for batch in batches)
    assert len(batches) > 8


def test_environments_in_step(native: Make):
    driver = native(2, 6, SHAPES, TYPES, num_envs=2)
    driver.insert(rows(0, 1))
    driver.insert(rows(2, 3, 4, 5))
    driver.insert(rows(6, 7))
    assert cursors(driver.buffer) == (2, 6, 8, 0)
    assert serials_of(driver.get_item([0, 1, -2, -1])) == [2, 3, 6, 7]


def test_a_ring_of_one_row(few: Make):
    driver = few(1, 1, SHAPES, TYPES)
    for serial in range(3):
        driver.insert(row(serial))
        assert (cursors(driver.buffer), driver.status()) == ((0, 1, serial + 1, 0), (1, True, True))
        assert serials_of(driver.sample()) == serials_of(driver.get_item(-1)) == [serial]
    driver.insert(rows(3, 4, 5, 6))
    assert serials_of(driver.get_item(0)) == [6]


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_samples_of_another_size_from_the_same_rows(backend: str):
    native, buffer = (
        ReplayBuffer(2, 8, [()], ["int32"], seed=0, weighted=True, backend=each) for each in ("native", backend)
    )
    other = buffer.with_sample_size(5)
    buffer.load_state_dict(native.insert([np.arange(10, 16, dtype=np.int32)]).state_dict())
    assert (len(other), other.sample_size, buffer.sample_size) == (6, 5, 2)
    indices, rows = other.sample(with_indices=True)
    assert rows.asnumpy().tolist() == (indices.asnumpy() + 10).tolist()
    assert int(other.delete(indices)) == len(set(indices.asnumpy().tolist()))
    assert buffer.eligible() == 6 - len(set(indices.asnumpy().tolist()))
    assert other.lock is buffer.lock
