"""Values of any dtype in columns of any dtype, on every way into a buffer, against the rule written with NumPy."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from flat import flat
from mindspore import Tensor, nn

from mindspore_replay import RateLimiter, ReplayBuffer, VectorRows, attach, host
from mindspore_replay.columns import TYPES, numpy_type
from mindspore_replay.datasets.filling import fit
from mindspore_replay.distributed.writer import InsertionFront
from mindspore_replay.store.base.schema import DTYPES

GIVEN = (*DTYPES, "longdouble", "complex64")
NUMBERS = [
    *(0, 1, 2, -1, -128, 100, 127, 128, 255, 256, 2049, 32767, 65504, 2**16, 70_000, 2**24 + 1, 2**25 + 3, 2**31 - 1),
    *(-(2**31), 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 0.5, 1.5, 0.1, -0.0, 65519.9, 65520.0),
    *(1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 1 + 2**-11 + 2**-30, 1e-40, 1e-46, 3e38, 3.4e38, -1e300),
    *(float("nan"), float("inf"), -float("inf")),
]


@functools.cache
def values_of(dtype: str) -> np.ndarray:
    """Return numbers of a dtype, at its limits and those of others."""
    if dtype == "uint32 of uint16":  # which are no bits
        return values_of("uint16").astype(np.uint32)
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return np.array([n for n in NUMBERS if isinstance(n, int) and limits.min <= n <= limits.max], dtype)
    if dtype == "bool":
        return np.array([False, True])
    with np.errstate(all="ignore"):
        return np.array(NUMBERS, np.float64).astype(numpy_type(dtype) if dtype == "bfloat16" else dtype)


def are_bits(values: np.ndarray, column: str) -> bool:
    """Return True for an array of uint16 for bfloat16: bits without MindSpore, and refused with it."""
    return values.dtype == np.uint16 and column == "bfloat16"


@functools.cache
def ruled(of: str, column: str) -> list[Any]:
    """Return what a column stores of each value of a dtype, or the error. The rule, one value at a time."""
    values, result = values_of(of), list[Any]()
    given = values.dtype.name
    for value in values:
        with np.errstate(all="ignore"):
            wide = np.float32(value) if "bfloat16" in (given, column) and "complex" not in given else value
        if given == column:
            result.append(wide)
        elif given == "complex64" or ("float" in given and "float" not in column) or are_bits(values, column):
            result.append(TypeError)
        elif "float" in column:
            with np.errstate(all="ignore"):
                rounded = wide.astype(numpy_type(column)).astype(np.float32 if column == "bfloat16" else column)
            result.append(rounded)
        else:
            most = range(2) if column == "bool" else range(np.iinfo(column).min, np.iinfo(column).max + 1)
            result.append(np.dtype(column).type(int(value)) if int(value) in most else ValueError)
    return result


def in_graph(given: str, column: str) -> bool:
    """Return True if a graph casts a dtype to that of a column, by NumPy's word where both are ints."""
    if given == column:
        return True
    if "int" in given and "float" not in column:
        return column != "bool" and np.can_cast(given, column)
    wide = "float" in given and "float" not in column
    return not wide and (given, column) not in (("float64", "float16"), ("uint16", "bfloat16"))


def numbers_in(array: Any, column: str) -> np.ndarray:
    """Return what was read of a column, bits of bfloat16 as numbers."""
    array = np.asarray(array.asnumpy() if hasattr(array, "asnumpy") else array)
    return array.view(numpy_type("bfloat16")).astype(np.float32) if column == "bfloat16" else array


def assert_stores(way: "Way", given: str, as_given: Callable[[np.ndarray], Any]) -> None:
    """Check that a way stores the values that fit, and refuses others, each with all that comes with it.

    What fits is decided in one place, which is tested with all values; of the ways to it, a few are enough.
    """
    values = values_of(given)
    expected = ruled(given, way.column)
    fit = np.array([not isinstance(each, type) for each in expected])
    if fit.any():
        way.put(as_given(values[fit]))
        got = numbers_in(way.newest(int(fit.sum())), way.column)
        wanted = np.array([each for each in expected if not isinstance(each, type)], got.dtype)
        assert got.dtype.name == way.column.replace("bfloat16", "float32")
        np.testing.assert_array_equal(got, wanted, err_msg=f"{given} in {way.column}")
        assert (np.signbit(got.astype(float)) == np.signbit(wanted.astype(float)))[
            ~np.isnan(wanted.astype(float))
        ].all()
    before = way.state()
    unfit = np.flatnonzero(~fit)
    for i in unfit if way.exhaustive else unfit[:: len(unfit) // 3 + 1]:
        with pytest.raises(expected[i], match="'x'") as error:
            way.put(as_given(np.append(values[fit][:2], values[i : i + 1])))
        reason = f": expected {way.column}, but got " if expected[i] is TypeError else f" cannot hold {values[i]}."
        assert reason in str(error.value)
        if expected[i] is TypeError:  # as each of these values
            break
    assert before == way.state()


class Way:
    """A buffer with a column ``x``, and how a call stores values in it."""

    exhaustive = False

    def __init__(self, column: str, buffer: Any, put: Callable[[Any], Any], reader: Any = None) -> None:
        self.column, self.buffer, self.put, self.reader = column, buffer, put, reader or buffer

    def newest(self, n: int) -> Any:
        return self.reader.get_item(range(len(self.reader) - n, len(self.reader)))[-1]

    def state(self) -> list[bytes]:
        return [np.asarray(value).tobytes() for value in self.buffer.state_dict().values()]


def made(kind: Any, column: str, **arguments: Any) -> Any:
    return kind(1, 256, **flat(**{"shapes": [()], "types": [column], "names": ["x"], "seed": 0, **arguments}))


def insert(kind: Any, column: str, **arguments: Any) -> Way:
    buffer = made(kind, column, **arguments)
    return Way(column, buffer, lambda values: buffer.insert([values]))


def in_general(column: str) -> Way:
    buffer = made(host.ReplayBuffer, column)
    return Way(column, buffer, lambda values: buffer._front.insert([values], None, False, False, None, False))


def limited(column: str) -> Way:
    way = insert(ReplayBuffer, column)
    way.buffer.limiter = RateLimiter(1.0, 1, error_buffer=1e9)
    return way


def update(kind: Any, column: str) -> Way:
    buffer = made(kind, column, weighted=True).insert([np.zeros(64, bool)])
    return Way(column, buffer, lambda values: buffer.update(np.arange(64 - len(values), 64), {"x": values}))


def late(column: str) -> Way:
    more = {"shapes": [(), ()], "types": ["int32", column], "names": ["key", "x"], "late": ["x"]}
    buffer = made(host.ReplayBuffer, column, **more).insert([np.zeros(64, np.int32)])
    return Way(column, buffer, lambda values: buffer.update(np.arange(64 - len(values), 64), {"x": values}))


def compressed(column: str) -> Way:
    buffer = made(host.ReplayBuffer, column, shapes=[(1,)], compress=["x"])
    way = Way(column, buffer, lambda values: buffer.insert([np.asarray(values)[:, None]]))
    way.newest = lambda n: buffer.get_item(range(len(buffer) - n, len(buffer)))[-1][:, 0]  # type: ignore[method-assign]
    return way


def any_length(column: str, form: Callable[[Any], Any], **more: Any) -> Way:
    buffer = made(host.ReplayBuffer, column, shapes=[(None,)], max_length=64, items=9999)
    way = Way(column, buffer, lambda values: buffer.insert([form(values)], **{k: v(values) for k, v in more.items()}))

    def newest(n: int) -> Any:
        rows, left = [], n
        for i in range(len(buffer)):
            lengths, row = buffer.get_item(-1 - i)
            rows.append(row[: int(lengths)])
            left -= int(lengths)
            if not left:
                break
        return np.concatenate(rows[::-1])

    way.newest = newest  # type: ignore[method-assign]
    return way


def shard(column: str) -> Way:
    """Rows as a writer of shards takes them, which stores them in a buffer here."""
    buffer = made(host.ReplayBuffer, column)
    front = InsertionFront(buffer.spec, lambda new: buffer.insert(list(new.fields)) and None, lambda: 0)
    return Way(column, buffer, lambda values: front.insert([values], None, False, False, None, False))


#: Ways that take arrays and lists.
WAYS: dict[str, Callable[[str], Way]] = {
    "insert": functools.partial(insert, host.ReplayBuffer),
    "insert in general": in_general,
    "insert of a Cell": functools.partial(insert, ReplayBuffer),
    "limited Cell": limited,
    "update": functools.partial(update, host.ReplayBuffer),
    "update of a Cell": functools.partial(update, ReplayBuffer),
    "late": late,
    "compressed": compressed,
    "row of any length": functools.partial(any_length, form=lambda values: values),
    "rows of any length": functools.partial(any_length, form=lambda values: [values[:1], values[1:]]),
    "flat rows": functools.partial(any_length, form=lambda values: values, lengths=lambda values: [len(values)]),
    "shard": shard,
}


@pytest.mark.parametrize("column", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_arrays_of_every_dtype(way: str, column: str) -> None:
    one = WAYS[way](column)
    one.exhaustive = way in ("insert", "insert in general")
    for given in GIVEN:
        if are_bits(values_of(given), column) and "Cell" not in way:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_stores(one, given, lambda array: array)
            if given in ("int64", "float64", "bool") and way != "compressed":
                assert_stores(one, given, np.ndarray.tolist)


@pytest.mark.parametrize("column", DTYPES)
@pytest.mark.parametrize("way", ["insert", "insert in general", "insert of a Cell", "shard"])
def test_scalars_of_every_dtype(way: str, column: str) -> None:
    one = WAYS[way](column)
    for given in (*DTYPES, "longdouble"):
        values = values_of(given)
        for value, expected in zip(values, ruled("uint32 of uint16" if given == "uint16" else given, column)):
            if isinstance(expected, type):
                with pytest.raises(expected, match="'x'"):
                    one.put(value)
                continue
            one.put(value)
            np.testing.assert_array_equal(numbers_in(one.newest(1), column), np.array([expected]), err_msg=given)


@pytest.mark.parametrize("column", DTYPES)
@pytest.mark.parametrize("way", ["insert", "insert of a Cell", "update of a Cell", "row of any length"])
def test_tensors_of_every_dtype(way: str, column: str) -> None:
    one = WAYS[way](column)
    for given in DTYPES:
        if not are_bits(values_of(given), column):
            assert_stores(one, given, lambda array, given=given: Tensor(array, TYPES[given]))


@pytest.mark.parametrize("column", DTYPES)
def test_attached_processes(tmp_path: Path, column: str) -> None:
    learner = made(host.ReplayBuffer, column, storage=tmp_path / "rows")
    attached = attach(tmp_path / "rows")
    one = Way(column, learner, lambda values: attached.insert([values]), attached)
    for given in GIVEN:
        if not are_bits(values_of(given), column):
            assert_stores(one, given, lambda array: array)
    attached.close()
    learner.close()


class Stores(nn.Cell):
    """Inserts values into columns of these dtypes, and updates the first rows, or one of both."""

    def __init__(self, columns: list[str], inserts: bool = True, updates: bool = True) -> None:
        super().__init__()
        self.n, self.inserts, self.updates = len(columns), inserts, updates
        more: dict[str, Any] = {"names": [f"x.{column}" for column in columns], "weighted": True, "seed": 0}
        self.buffer = ReplayBuffer(1, 128, **flat([()] * self.n, columns, **more)).insert([np.zeros(64, bool)] * self.n)

    def construct(self, values, handles):
        if self.inserts:
            self.buffer.insert([values] * self.n)
        if self.updates:
            self.buffer.update(handles, [values] * self.n)
        return self.buffer.size()


def subnormal(values: np.ndarray) -> np.ndarray:
    """Return which values graphs take for 0."""
    return (abs(values) < 1e-37) & (values != 0)


@pytest.mark.parametrize("given", ["bool", "int16", "int64", "uint8", "uint16", "float16", "float64", "bfloat16"])
def test_graphs_cast_by_dtypes_alone(given: str) -> None:
    values = values_of(given)
    whole = ~subnormal(values) if "float" in given else np.ones(len(values), bool)
    n, tensor = int(whole.sum()), Tensor(values[whole], TYPES[given])
    handles, held = Tensor(np.arange(n)), [column for column in DTYPES if in_graph(given, column)]
    cell = Stores(held)
    ms.jit(cell.construct)(tensor, handles)
    for where in (range(n), range(64, 64 + n)):
        for column, rows in zip(held, cell.buffer.get_item(where)):
            wanted = [value for value, is_whole in zip(ruled(given, column), whole) if is_whole]
            np.testing.assert_array_equal(numbers_in(rows, column), wanted, err_msg=f"{given} in {column}")
    if given == "bool":  # which any column holds
        return
    for refused in (Stores(list(DTYPES), updates=False), Stores(list(DTYPES), inserts=False)):
        with pytest.raises(TypeError, match="must have dtypes that the columns hold") as error:
            ms.jit(refused.construct)(tensor, handles)
        listed = [
            column for column in DTYPES if f"'x.{column}': expected {column}, but got {given}" in str(error.value)
        ]
        assert listed == [column for column in DTYPES if column not in held]


@pytest.mark.parametrize("column", [column for column in DTYPES if column != "bfloat16"])
def test_rows_of_environments(column: str) -> None:
    buffer = host.ReplayBuffer(1, 999, [()] * 2, [column, "float32"], names=["observation", "x"])
    for given in GIVEN:
        if given == "bfloat16":
            continue
        values, no = values_of(given), np.zeros(1, bool)
        for value, expected in zip(values, ruled(given, column)):
            step = functools.partial(VectorRows(buffer, "SAME_STEP").step, action=no, reward=no, terminated=no)
            put = functools.partial(step, np.array([value]), next_observation=no, truncated=no, info={}, x=[0.0])
            if isinstance(expected, type):
                with pytest.raises(expected, match="'observation'"):
                    put()
            else:
                rows = put()[0]["observation"]
                np.testing.assert_array_equal(rows, np.array([expected]))
                assert rows.dtype == column


@pytest.mark.parametrize("column", [column for column in DTYPES if column != "bfloat16"])
def test_columns_of_datasets(column: str) -> None:
    for given in GIVEN:
        if given == "bfloat16":
            continue
        values = values_of(given)
        for value, expected in zip(values, ruled(given, column)):
            put = functools.partial(fit, "from", "file", "x", np.array([value]), ((), np.dtype(column)))
            if isinstance(expected, type):
                with pytest.raises(expected, match="'x'"):
                    put()
            else:
                np.testing.assert_array_equal(put(), np.array([expected]))


def test_every_bad_column_is_named_and_no_row_is_stored() -> None:
    columns: dict[str, Any] = {"shapes": [(), (2,), ()], "types": ["int8", "float32", "bool"], "names": ["a", "b", "c"]}
    for kind in (host.ReplayBuffer, ReplayBuffer):
        buffer = kind(1, 8, **columns)
        with pytest.raises(
            TypeError,
            match=r"^For 'ReplayBuffer', 'exp' must have dtypes that the columns hold\. column 'a': expected int8, but "
            r"got float32; column 'c': expected bool, but got float64\. Cast it yourself: call \.astype\(np\.int8\) on "
            r"an array, \.astype\(ms\.int8\) on a Tensor\.$",
        ):
            buffer.insert([np.ones(3, np.float32), np.ones((3, 2)), np.ones(3)])
        with pytest.raises(
            ValueError,
            match=r"^For 'ReplayBuffer', column 'a' is int8 and cannot hold 128; column 'c' is bool and cannot hold 2",
        ):
            buffer.insert([np.array([0, 128, 129]), np.ones((3, 2)), np.array([0, 1, 2])])
        with pytest.raises(TypeError, match=r"hold\. column 'c': expected bool, but got float64\. Cast it yourself"):
            buffer.insert([np.array([0, 128]), np.ones((2, 2)), np.ones(2)])
        assert buffer.size() == 0


def test_what_an_environment_gives_needs_no_cast() -> None:
    names, types = ["observation", "action", "reward", "terminated"], ["float32", "int32", "float32", "float32"]
    buffer = host.ReplayBuffer(1, 8, [(2,), (), (), ()], types, names=names, num_envs=3)
    step = [np.full((3, 2), 0.1), np.arange(3), np.array([1e300, -0.1, 2.0]), np.array([True, False, True])]
    observation, action, reward, terminated = buffer.insert(step).get_item(range(3))
    np.testing.assert_array_equal(observation, np.full((3, 2), np.float32(0.1)))
    assert (action.tolist(), terminated.tolist()) == ([0, 1, 2], [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(reward, np.float32([np.inf, -0.1, 2]))
