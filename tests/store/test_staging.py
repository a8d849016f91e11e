"""Rows from Python: `try_insert` and the general path store the same, or reject the same."""

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flat import flat

import mindspore_replay
from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer, SequenceReplayBuffer, host
from mindspore_replay.columns import Columns
from mindspore_replay.store.base.schema import DTYPES, Schema
from mindspore_replay.store.rows.store import Store
from mindspore_replay.store.spec.options import Options
from mindspore_replay.store.spec.plan import WINDOW, Output, SamplePlan

pytestmark = pytest.mark.cpu_only("rows staged for directly called kernels")

SHAPES, TYPES = [(2,), (), (), (), ()], ["float32", "int32", "float32", "bool", "float16"]


def make(shapes: list[Any], types: list[str], num_envs: int = 1, names: list[str] | None = None) -> Store:
    plan = SamplePlan(1, "uniform", tuple(Output(WINDOW, i) for i in range(len(types))))
    return Store(Schema("Buffer", shapes, types, names), Options(30, plan, num_envs=num_envs))


def now(store: Store, exp: Any, end: Any = False, final: Any = False) -> bool:
    """Store rows if they obviously fit."""
    return store.try_insert(exp, None, end, final)


@pytest.fixture
def store() -> Store:
    return make(SHAPES, TYPES)


def newest(store: Store) -> list[Any]:
    return [array.tolist() for array in store.read(np.array(-1))]


def row(**others: Any) -> list[Any]:
    fields = {"a": np.array([1, 2], np.float32), "b": 3, "c": 0.5, "d": True, "e": np.array(0.25, np.float16)}
    return list({**fields, **others}.values())


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"b": np.array(3, np.int32), "c": np.array(0.5, np.float32), "d": np.array(True)},
        {"a": np.array([9, 1, 2], np.float32)[1:]},
        {"b": np.int32(3), "c": np.float32(0.5), "d": np.bool_(True), "e": np.float16(0.25)},
        {"b": np.int64(3), "c": np.float64(0.5), "e": 0.25},
        {"a": [1.0, 2.0]},
        {"a": (1, np.float64(2.0))},
        {"a": np.array([1, 9, 2], np.float32)[::2]},
        {"a": np.array([1, 2], ">f4")},
        {"a": np.array([1, 2]), "b": np.array(3), "c": np.array(0.5), "d": 1, "e": np.array(0.25)},
        {"a": np.array([1.0, 2.0]), "b": np.uint8(3), "d": np.array(1, np.int8)},
    ],
)
def test_a_plain_row_is_taken_at_once(store: Store, others: dict[str, Any]):
    for stored, given in enumerate((row(**others), tuple(row(**others)))):
        assert now(store, given)
        assert newest(store) == [[1, 2], 3, 0.5, True, 0.25]
        assert store.count() == stored + 1


@pytest.mark.parametrize(
    "others",
    [
        {"a": np.zeros(3, np.float32)},
        {"a": [1.0]},
        {"a": [1.0, None]},
        {"a": [np.array(1.0), np.array(2.0)]},  # no number, and not the column's dtype
        {"a": [[1.0], [2.0, 3.0]]},
        {"b": 0.5},
        {"b": np.int64(2**40)},
        {"b": np.array(2**40)},
        {"b": np.array(3.0)},
        {"d": 2},
        {"d": np.array(1.0)},
        {"c": "0.5"},
        {"c": np.complex64(1)},
    ],
)
def test_anything_else_asks_for_a_closer_look(store: Store, others: dict[str, Any]):
    assert not now(store, row(**others))
    assert store.count() == 0


@pytest.mark.parametrize(
    "dtype", ["bool", "float32", "float64", *(f"{sign}int{8 << i}" for sign in ("", "u") for i in range(4))]
)
def test_each_dtype_is_taken_at_once(dtype: str):
    store = make([(), (2,)], [dtype] * 2)
    one = np.dtype(dtype).type(1)
    for number in ({"b": True, "f": 1.0}.get(np.dtype(dtype).kind, 1), np.array(one)):
        assert now(store, [number, np.array([one, 0], dtype)])
        assert newest(store) == [one, [one, 0]]
    stored = store.count()
    assert not now(store, [np.array(1, complex), np.array([one, 0], dtype)])
    assert not now(store, [np.array(one)])
    assert not now(store, np.array([one, one]))
    assert store.count() == stored
    turned = np.array([one, 0], np.dtype(dtype).newbyteorder(">"))
    assert now(store, [np.array(one), turned])
    assert newest(store) == [one, [one, 0]]


class Move(enum.IntEnum):
    LEFT = -1
    RIGHT = 3


def integers() -> Iterator[int]:
    for bits in (8, 16, 32, 64):
        for edge in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 2**bits - 1):
            yield from (edge - 1, edge, edge + 1)
    yield from (-1, 0, 1, 2049, 2051, 65_519, 65_520, 2**24 + 1, 2**24 + 3, 2**53 + 1, 2**60 + 2**36, 2**60 + 2**36 + 1)


def reals() -> Iterator[float]:
    """Numbers at and beside the places where float16, bfloat16 and float32 round, overflow and become subnormal."""
    yield from (0.0, 0.1, np.pi, 1e300, 1e-300, np.inf, np.nan)
    for mantissa_bits, least, most in ((10, -24, 15), (7, -133, 127), (23, -149, 127)):
        step = 2.0**-mantissa_bits
        for scale in (2.0**least, 2.0 ** (least + mantissa_bits), 1.0, 2.0**most):
            for middle in (scale / 2, scale * (1 + step / 2), scale * (1 + 3 * step / 2), scale * (2 - step / 2)):
                yield from (np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf))


def numbers_given() -> Iterator[Any]:
    """Numbers of every type that a row may hold, and some that no row may hold."""
    yield from (True, False, np.True_, np.False_, *Move)
    yield from (1j, np.complex64(1), "1", np.str_("1"), None, np.timedelta64(1))
    for number in integers():
        yield number
        for dtype in "bhilqBHILQ":  # two of them are of 64 bits
            if np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
                yield np.dtype(dtype).type(number)
    for real in reals():
        with np.errstate(over="ignore"):
            yield from (sign * float(real) for sign in (1, -1))
            yield from (np.dtype(dtype).type(sign * real) for dtype in "efdg" for sign in (1, -1))


DTYPES_OF_FRONTS = [(Schema, dtype) for dtype in DTYPES] + [(Columns, "bfloat16")]


@pytest.mark.parametrize("in_list", [False, True])
@pytest.mark.parametrize(("front", "dtype"), DTYPES_OF_FRONTS, ids=lambda value: getattr(value, "__name__", value))
def test_numbers_at_once_are_those_of_the_closer_look(front: Any, dtype: str, in_list: bool):
    schema = front("Buffer", [(2,) if in_list else ()], [dtype])
    store = Store(schema, Options(1, SamplePlan(1, "uniform", (Output(WINDOW, 0),))))
    column = store.arrays["column.0"]
    taken, before = 0, 1
    for number in numbers_given():
        given, before = [number, before] if in_list else number, number
        try:
            wanted = schema.to_array(0, given)
        except (TypeError, ValueError):
            wanted = np.array("refused")
        fits = wanted.dtype == schema.numpy_types[0]
        if not now(store, [given]):
            assert not fits or in_list, (given, type(number))
            continue
        taken += 1
        assert fits, (given, type(number))
        assert column.tobytes() == wanted.tobytes(), (given, type(number), column, wanted)
    assert taken > (0 if in_list else {"bool": 3}.get(dtype, 60))


@pytest.mark.parametrize("flag", [True, np.True_, False, np.False_, np.array([True])])
def test_a_flag_of_a_row_is_taken_at_once(flag: Any):
    shared = {"capacity": 8, "shapes": [()], "types": ["int32"], "sequence_length": 2}
    buffer = SequenceReplayBuffer(1, **flat(seed=0, backend="native", **shared))
    assert buffer._front.calls.try_insert([1], None, flag, False)
    assert buffer._front.calls.try_insert([1], None, False, flag)
    assert buffer.flags.asnumpy()[:2].tolist() == ([1, 3] if flag else [0, 0])


def test_a_priority_of_a_row_is_taken_at_once():
    buffer = PrioritizedReplayBuffer(1, 64, [()], ["int32"], seed=0, backend="native")
    given = (2, 2.5, np.int64(3), np.float32(0.1), np.float64(0.1), np.float16(0.1), np.uint8(7), Move.RIGHT, 2**70)
    for number in given[:-1]:
        assert buffer._front.calls.try_insert([1], number, False, False)
        assert buffer.priorities.asnumpy()[int(buffer.size()) - 1] == np.float32(number)
    for other in (-1, np.nan, np.inf, np.float64(1e300), True, np.True_, "1", 2**70, -0.5, [1.0, 2.0], [True], []):
        assert not buffer._front.calls.try_insert([1], other, False, False)
    assert int(buffer.size()) == len(given) - 1


def test_a_row_by_name_is_taken_at_once():
    store = make(SHAPES, TYPES, names=list("abcde"))
    given = dict(zip("abcde", row()))
    assert now(store, given)
    assert now(store, dict(reversed(given.items())))
    assert newest(store) == [[1, 2], 3, 0.5, True, 0.25]
    assert not now(store, {**given, "f": 1})
    assert not now(store, {name: given[name] for name in "abcd"})
    assert not now(store, {**{name: given[name] for name in "abcd"}, "f": 1})
    assert not now(make(SHAPES, TYPES), given)
    assert store.count() == 2


class Odd:
    """A key whose comparison fails."""

    def __hash__(self) -> int:
        return hash("e")

    def __eq__(self, _: object) -> bool:
        raise ZeroDivisionError


def test_an_error_of_a_key_is_raised():
    store = make(SHAPES, TYPES, names=list("abcde"))
    with pytest.raises(ZeroDivisionError):
        now(store, {**dict(zip("abcd", row())), Odd(): 1})
    assert store.count() == 0


def batch(n: int) -> list[np.ndarray]:
    return [np.arange(n * int(np.prod(s))).reshape(n, *s).astype(t) for s, t in zip(SHAPES, TYPES)]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_plain_batch_is_taken_at_once(num_envs: int):
    store = make(SHAPES, TYPES, num_envs)
    for n, given in ((6, batch(6)), (3, tuple(batch(3)))):
        assert now(store, given)
        for stored, column in zip(store.read(np.arange(-n, 0)), given):
            np.testing.assert_array_equal(stored, column)
    assert store.count() == 9


@pytest.mark.parametrize(
    "change",
    [
        lambda a: [a[0], a[1].astype(np.float64), *a[2:]],
        lambda a: [a[0], a[1][:5], *a[2:]],
        lambda a: [a[0], a[1].reshape(6, 1), *a[2:]],
        lambda a: [x[:0] for x in a],
        lambda a: a[:4],
        lambda a: [a[0][0], *a[1:]],
    ],
)
def test_any_other_batch_asks_for_a_closer_look(store: Store, change: Any):
    assert not now(store, change(batch(6)))
    assert store.count() == 0


def test_a_batch_that_is_no_multiple_of_num_envs_asks_for_a_closer_look():
    buffer = SequenceReplayBuffer(1, 30, SHAPES, TYPES, sequence_length=2, num_envs=3, seed=0, backend="native")
    assert not now(buffer._front.calls, batch(5))
    assert not now(buffer._front.calls, row())
    assert buffer._front.calls.count() == 0


def general(buffer: Any) -> Any:
    """Return the buffer without its fast ways."""
    store = buffer._front.calls
    vars(store)["try_insert"] = vars(buffer._front)["try_insert"] = lambda *_: False
    store._kernels["sample_range"] = library_refuses(store._kernels["sample_range"])
    return buffer


def library_refuses(kernel: Any) -> Any:
    """Let a kernel run for the general way alone, which passes one argument."""
    return lambda *given: kernel(*given) if len(given) == 1 else -1


ROWS = {"o": np.arange(6, dtype=np.float32).reshape(3, 2), "a": np.arange(3, dtype=np.int32)}
ITEMS = [np.arange(n, dtype=np.int32) for n in (3, 0, 5)]
WAYS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "handles": ({}, [{"exp": {"o": [1.0, 2.0], "a": 1}}, {"exp": ROWS}, {"exp": list(ROWS.values())}]),
    "late": ({"late": ["a"]}, [{"exp": {"o": [1.0, 2.0]}}, {"exp": {"o": ROWS["o"]}}, {"exp": [ROWS["o"]]}]),
    "late, first": ({"late": ["o"]}, [{"exp": {"a": 1}}, {"exp": {"a": ROWS["a"]}, "priority": 0.5}]),
    "any length": (
        {"shapes": [(None,), ()], "types": ["int32", "int32"], "max_length": 8, "items": 160},
        [
            {"exp": {"o": ITEMS[0], "a": 1}},
            {"exp": {"o": ITEMS[::2], "a": ROWS["a"][:2]}},
            {"exp": {"o": ITEMS, "a": ROWS["a"]}},
            {"exp": {"o": tuple(ITEMS[:1]), "a": ROWS["a"][:1]}, "priority": [2.0]},
        ],
    ),
}


@pytest.mark.parametrize("module", [mindspore_replay, host], ids=["Cells", "arrays"])
@pytest.mark.parametrize("way", WAYS)
def test_the_fast_and_the_general_way_return_and_store_the_same(module: Any, way: str):
    more, calls = WAYS[way]
    given = {"shapes": [(2,), ()], "types": ["float32", "int32"], "names": ["o", "a"], **more}
    fast, slow = (module.PrioritizedReplayBuffer(4, 20, **flat(**given, seed=0)) for _ in range(2))
    general(slow)
    for call in calls * 9:
        for with_indices in (True, False):
            handles = fast.insert(**call, with_indices=with_indices), slow.insert(**call, with_indices=with_indices)
            if with_indices:
                assert np.array_equal(*handles)
                assert type(handles[0]) is type(handles[1])
                assert handles[0].shape == handles[1].shape
                assert handles[0].dtype == handles[1].dtype
    for name, array in fast._front.calls.arrays.items():
        assert np.array_equal(array, slow._front.calls.arrays[name]), name


@pytest.mark.parametrize("numbers", [(3, 4), (4, 3), (1, 3), (3, 0)])
def test_lists_of_different_numbers_of_rows_are_refused(numbers: tuple[int, int]):
    shapes, sizes = [(None,), (None,)], {"max_length": 8, "items": 64}
    buffer = host.ReplayBuffer(1, 8, **flat(shapes, ["int32", "int32"], names=["a", "b"], **sizes))
    with pytest.raises(ValueError, match="same in each column"):
        buffer.insert([[ITEMS[0]] * n for n in numbers])
    with pytest.raises(ValueError, match="same in each column"):
        buffer.insert([[ITEMS[0]] * numbers[0], ITEMS[2]])
    assert buffer.size() == 0


def test_handles_stay_as_they_are_when_more_rows_come():
    buffer = host.PrioritizedReplayBuffer(2, 8, [()], ["int32"])
    found = [buffer.insert([n], with_indices=True) for n in range(20)]
    assert [int(handle) for handle in found] == list(range(20))


@pytest.mark.parametrize("more", [{}, {"weighted": True}, {"max_use": 3}, {"replace": False}], ids=str)
def test_a_range_is_drawn_from_in_both_ways_alike(more: dict[str, Any]):
    fast, slow = (ReplayBuffer(3, 20, **flat([()], ["int32"], seed=3, **more)) for _ in range(2))
    general(slow)
    for buffer in (fast, slow):
        buffer.insert([np.arange(30, dtype=np.int32)])
    for where in [(-5, None), (0, 3), (None, -2), (2, 10**12), [-7, -1], (np.int64(-3), None), (-(10**12), 4)]:
        for one, other in zip(fast.sample(where), slow.sample(where), strict=True):
            assert np.array_equal(one, other), where
    wrongs = {(5, 5): RuntimeError, (0.0, 3): TypeError, (2**70, None): RuntimeError, (1,): TypeError}
    for wrong, error in wrongs.items():
        for buffer in (fast, slow):
            with pytest.raises(error):
                buffer.sample(wrong)
    assert np.array_equal(fast.random_state.asnumpy(), slow.random_state.asnumpy())
