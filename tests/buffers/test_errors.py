"""The text of every error; a failed call stores, draws and moves nothing."""

import functools
import re
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from drivers import Combination, make_driver
from mindspore import Tensor, nn

from mindspore_replay import FrameStack, ReplayBuffer

X, Y = np.arange(4, dtype=np.float32), np.array(7, np.int32)
EXP = [X, Y]


def make_buffer(backend: str = "auto", **options: Any) -> ReplayBuffer:
    arguments = {"sample_size": 3, "capacity": 6, "shapes": [(4,), ()], "types": [ms.float32, "int32"], "seed": 0}
    return ReplayBuffer(**(arguments | {"backend": backend} | options))


def text(message: str) -> str:
    return f"^{re.escape(f'For {chr(39)}ReplayBuffer{chr(39)}, ' + message)}$"


CONSTRUCTOR = {
    "no column": (ValueError, {"shapes": [], "types": []}, "'shapes' must name at least one column, but got []."),
    "zero axis": (ValueError, {"shapes": [(4, 0), ()]}, "each axis of 'shapes[0]' must be positive, but got (4, 0)."),
    "negative axis": (
        ValueError,
        {"shapes": [(4,), (-1,)]},
        "each axis of 'shapes[1]' must be positive, but got (-1,).",
    ),
    "float axis": (TypeError, {"shapes": [(4.0,), ()]}, "'shapes[0]' must be a tuple of ints, but got (4.0,)."),
    "bool axis": (TypeError, {"shapes": [(True,), ()]}, "'shapes[0]' must be a tuple of ints, but got (True,)."),
    "shape without brackets": (TypeError, {"shapes": [4, ()]}, "'shapes[0]' must be a tuple of ints, but got 4."),
    "shapes of another type": (
        TypeError,
        {"shapes": "ab"},
        "'shapes' must be a list or tuple with one entry for each column, but got 'ab' (str).",
    ),
    "types of another type": (
        TypeError,
        {"types": None},
        "'types' must be a list or tuple with one entry for each column, but got None (NoneType).",
    ),
    "too few types": (
        ValueError,
        {"types": [ms.float32]},
        "'types' must have one entry for each of the 2 shapes, but got 1.",
    ),
    "too many types": (
        ValueError,
        {"types": [ms.float32] * 3},
        "'types' must have one entry for each of the 2 shapes, but got 3.",
    ),
    "no names": (ValueError, {"names": []}, "'names' must have one entry for each of the 2 shapes, but got 0."),
    "too many names": (
        ValueError,
        {"names": ["a", "b", "c"]},
        "'names' must have one entry for each of the 2 shapes, but got 3.",
    ),
    "empty name": (TypeError, {"names": ["a", ""]}, "each of 'names' must be a non-empty string, but got ''."),
    "number as name": (TypeError, {"names": ["a", 1]}, "each of 'names' must be a non-empty string, but got 1."),
    "the same name": (ValueError, {"names": ["a", "a"]}, "'names' must differ from each other, but got ('a', 'a')."),
    "names as a string": (
        TypeError,
        {"names": "ab"},
        "'names' must be a list or tuple with one entry for each column, but got 'ab' (str).",
    ),
    "seed of another type": (TypeError, {"seed": 1.5}, "'seed' must be an int or None, but got 1.5 (float)."),
    "bool as seed": (TypeError, {"seed": True}, "'seed' must be an int or None, but got True (bool)."),
    "negative seed": (ValueError, {"seed": -1}, "'seed' must be in [0, 2^64), but got -1."),
    "large seed": (ValueError, {"seed": 2**64}, f"'seed' must be in [0, 2^64), but got {2**64}."),
    "backend": (
        ValueError,
        {"backend": "cuda"},
        "'backend' must be one of 'auto', 'native', 'composite', but got 'cuda'.",
    ),
    "int as bool": (TypeError, {"replace": 1}, "'replace' must be a bool, but got 1 (int)."),
    "string as bool": (TypeError, {"ordered": "yes"}, "'ordered' must be a bool, but got 'yes' (str)."),
    "bfloat16 on composite": (
        TypeError,
        {"types": [ms.bfloat16, "int32"], "backend": "composite"},
        "column 0 is bfloat16, which MindSpore's operators neither scatter nor gather: the composite backend cannot "
        "store it. Use float16, or native on a CPU.",
    ),
}


@pytest.mark.parametrize("case", CONSTRUCTOR)
def test_constructor(case: str):
    error, options, message = CONSTRUCTOR[case]
    with pytest.raises(error, match=text(message)):
        make_buffer(**options)


@pytest.mark.parametrize("argument", ["capacity", "sample_size", "num_envs"])
def test_sizes(argument: str):
    for value in (0, -1, 2**31):
        with pytest.raises(ValueError, match=text(f"'{argument}' must be in [1, 2147483647], but got {value}.")):
            make_buffer(**{argument: value})
    for value, name in ((1.0, "float"), ("1", "str"), (None, "NoneType"), (True, "bool")):
        with pytest.raises(TypeError, match=text(f"'{argument}' must be an int, but got {value!r} ({name}).")):
            make_buffer(**{argument: value})


@pytest.mark.parametrize(
    "dtype", ["complex64", "string", "int4", "", None, 3, np.complex64, np.dtype("U1"), str, ms.complex64, "Float32"]
)
def test_dtypes(dtype: Any):
    with pytest.raises(TypeError, match=re.escape("For 'ReplayBuffer', 'types[1]' must be one of bool, int8, ")):
        make_buffer(types=["float32", dtype])


def test_sizes_take_any_int():
    buffer = make_buffer(capacity=np.int64(6), sample_size=np.uint8(3))
    assert (type(buffer.capacity), type(buffer.sample_size)) == (int, int)


def test_errors_speak_of_the_class():
    class MyBuffer(ReplayBuffer):
        pass

    with pytest.raises(ValueError, match=r"^For 'MyBuffer', 'capacity' must be in"):
        MyBuffer(1, 0, [()], ["int32"])


def test_sizes_in_the_wrong_order():
    message = (
        "'sample_size' must be at most 'capacity', but got sample_size=1000000 and capacity=32. The order of the "
        "arguments is (sample_size, capacity, shapes, types); give the sizes by name."
    )
    with pytest.raises(ValueError, match=text(message)):
        ReplayBuffer(1_000_000, 32, [()], ["int32"], replace=False)
    assert ReplayBuffer(32, 32, [()], ["int32"], replace=False).sample_size == 32


def test_an_array_of_another_dtype_says_how_to_cast_it():
    buffer = make_buffer(types=[ms.float32, "bool"])
    hint = "No array is cast silently: call .astype(np.{0}) on an array, .astype(ms.{0}) on a Tensor."
    with pytest.raises(TypeError, match=re.escape(hint.format("float32")) + "$"):
        buffer.insert([X.astype(np.float64), True])
    with pytest.raises(TypeError, match=re.escape(hint.format("bool_")) + "$"):
        buffer.insert([X, Y])


DTYPES = "'exp' must have the columns' dtypes. "
LAYOUT = (
    "'exp' must hold one row in each column's shape, or a batch of rows with one leading axis more, the same in each "
    "column. "
)
INSERT = {
    "no list": (TypeError, X, "'exp' must be a list or tuple of 2 arrays, but got ndarray."),
    "generator": (TypeError, iter(EXP), "'exp' must be a list or tuple of 2 arrays, but got list_iterator."),
    "too many": (ValueError, [X, Y, Y], "'exp' must hold one array for each of the 2 columns, but got 3."),
    "dtype": (TypeError, [X.astype(np.float64), Y], DTYPES + "column 0: expected float32, but got float64."),
    "dtypes": (
        TypeError,
        [X.astype(np.float16), Y.astype(np.int64)],
        DTYPES + "column 0: expected float32, but got float16; column 1: expected int32, but got int64.",
    ),
    "Tensor": (TypeError, [X, Tensor(7, ms.int64)], DTYPES + "column 1: expected int32, but got int64."),
    "list of floats for an int": (
        TypeError,
        [X, [1.5]],
        DTYPES + "column 1: expected int32, but got a list of float64.",
    ),
    "list of arrays": (TypeError, [[np.zeros(4)], 7], DTYPES + "column 0: expected float32, but got float64."),
    "list outside int32": (ValueError, [[[0] * 4] * 2, (1, 2**31)], "column 1 is int32 and cannot hold 2147483648."),
    "uneven lists": (
        ValueError,
        [[[1.0], [1.0, 2.0]], 7],
        "the lists of a column in 'exp' must have equal lengths. column 0: got [[1.0], [1.0, 2.0]].",
    ),
    "float for an int": (TypeError, [X, 1.5], DTYPES + "column 1: expected int32, but got the float 1.5."),
    "complex": (TypeError, [X, 1j], DTYPES + "column 1: expected int32, but got the complex 1j."),
    "None": (TypeError, [X, None], DTYPES + "column 1: expected int32, but got object."),
    "outside int32": (ValueError, [X, 2**31], "column 1 is int32 and cannot hold 2147483648."),
    "shape": (ValueError, [X[:3], Y], LAYOUT + "column 0: expected (4,), but got (3,)."),
    "shapes": (
        ValueError,
        [np.zeros((2, 3), np.float32), np.zeros(3, np.int32)],
        LAYOUT + "column 0: expected (2, 4), but got (2, 3); column 1: expected (2,), but got (3,).",
    ),
    "one row beside a batch": (ValueError, [X, np.zeros(1, np.int32)], LAYOUT + "column 1: expected (), but got (1,)."),
    "lengths": (
        ValueError,
        [np.zeros((2, 4), np.float32), np.zeros(3, np.int32)],
        LAYOUT + "column 1: expected (2,), but got (3,).",
    ),
    "scalar for an array": (ValueError, [1.0, 7], LAYOUT + "column 0: expected (1, 4), but got (); column 1: expected"),
}


@functools.cache
def _shared(backend: str, **options: Any) -> tuple[ReplayBuffer, dict[str, np.ndarray]]:
    buffer = make_buffer(backend, **options).insert([np.stack([X, X + 1]), np.array([1, 2], np.int32)])
    return buffer, buffer.state_dict()


def make_shared(backend: str, **options: Any) -> ReplayBuffer:
    """Return a buffer with two rows of six, shared with its compiled graphs."""
    buffer, state = _shared(backend, **options)
    buffer.load_state_dict(state)
    return buffer


@pytest.fixture
def buffer(backend: str) -> ReplayBuffer:
    return make_shared(backend)


def assert_unchanged(buffer: ReplayBuffer, call: Callable[[], Any], error: type[Exception], message: str) -> None:
    before = buffer.state_dict()
    with pytest.raises(error, match=message):
        call()
    after = buffer.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    buffer.check_valid()


@pytest.mark.parametrize("case", INSERT)
def test_insert(buffer: ReplayBuffer, case: str):
    error, exp, message = INSERT[case]
    assert_unchanged(buffer, lambda: buffer.insert(exp), error, text(message).removesuffix("$"))
    assert_unchanged(buffer, lambda: buffer.add(exp), error, text(message).removesuffix("$"))


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_insert_by_name(backend: str):
    buffer = make_buffer(backend, names=["x", "y"])
    cases = [
        ({"x": X}, ValueError, "the keys of 'exp' must be the columns' names: missing ['y'], unknown []."),
        ({"x": X, "z": Y}, ValueError, "the keys of 'exp' must be the columns' names: missing ['y'], unknown ['z']."),
        (
            {"x": X, "y": Y, 3: Y},
            ValueError,
            "the keys of 'exp' must be the columns' names: missing [], unknown ['3'].",
        ),
        ({"x": X, "y": 0.5}, TypeError, DTYPES + "column 'y': expected int32, but got the float 0.5."),
        ({"x": X[:2], "y": Y}, ValueError, LAYOUT + "column 'x': expected (4,), but got (2,)."),
    ]
    for exp, error, message in cases:
        assert_unchanged(buffer, lambda exp=exp: buffer.insert(exp), error, text(message))


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_environments(backend: str):
    names, views = ["observation", "action"], [FrameStack(1)]  # rows that know no episode may come in any number
    buffer = make_buffer(backend, num_envs=2, names=names, views=views)
    message = text("'exp' must hold a positive multiple of num_envs=2 rows, but got 1.")
    assert_unchanged(buffer, lambda: buffer.insert(EXP), ValueError, message)
    batch = [np.zeros((3, 4), np.float32), np.zeros(3, np.int32)]
    assert_unchanged(buffer, lambda: buffer.insert(batch), ValueError, message.replace("1", "3"))


@pytest.mark.parametrize("index", [2, -3, 100, 2**63, 2**64 - 1, [0, 2], [-3, 1], np.uint64(2**64 - 1)])
def test_a_position_without_a_row(buffer: ReplayBuffer, index: Any):
    wrong = next(i for i in np.atleast_1d(index).tolist() if not -2 <= i < 2)
    message = text(f"'index' must be in [-2, 2), since 2 rows are stored, but got {wrong}.")
    assert_unchanged(buffer, lambda: buffer.get_item(index), IndexError, message)


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_an_empty_buffer_has_no_row(backend: str):
    buffer = make_buffer(backend)
    for index in (0, -1):
        message = text("'index' must be that of a stored row, and none is stored yet.")
        assert_unchanged(buffer, lambda index=index: buffer.get_item(index), IndexError, message)


@pytest.mark.parametrize("index", [0.0, True, None, "0", [0.0], Tensor(0.0)])
def test_a_position_that_is_no_int(buffer: ReplayBuffer, index: Any):
    assert_unchanged(
        buffer,
        lambda: buffer.get_item(index),
        TypeError,
        text("'index' must be an int or hold ints, but got").rstrip("$"),
    )


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(
    ("sample_range", "rows"), [(None, 2), ((0, 2), 2), ((0, 100), 2), ((1, None), 1), ((2, 1), 0), ((-1, None), 1)]
)
@pytest.mark.parametrize("backend", ["native", "composite"])
def test_a_sample_of_too_few_rows(backend: str, sample_range: Any, rows: int, replace: bool):
    buffer = make_shared(backend, replace=replace)
    if replace and rows:
        stored = range(1, 3)[slice(*(sample_range or (None,)))]
        assert set(buffer.sample(sample_range)[1].asnumpy().tolist()) <= set(stored)
        return
    needs = "at least 1 row" if replace else "sample_size=3 rows"
    message = text(
        f"a sample needs {needs}, but got {rows} in the range to draw from, of 2 stored. Wait until can_sample() is "
        "true."
    )
    assert_unchanged(buffer, lambda: buffer.sample(sample_range), RuntimeError, message)


@pytest.mark.parametrize("sample_range", ["04", (0,), (0, 1, 2), (0.5, 2), ("a", None), (None, "2"), [None, 1.0]])
def test_a_range_that_is_no_pair_of_ints(buffer: ReplayBuffer, sample_range: Any):
    message = text(f"'sample_range' must be (start, stop), each an int or None, but got {sample_range!r}.")
    assert_unchanged(buffer, lambda: buffer.sample(sample_range), TypeError, message)


def test_a_range_of_huge_bounds_is_clamped(buffer: ReplayBuffer):
    buffer.insert([np.stack([X, X]), np.array([3, 4], np.int32)])
    assert set(buffer.sample((-(2**80), 2**80))[1].asnumpy().tolist()) <= {1, 2, 3, 4}


def test_rows_of_a_buffer_that_is_not_full(backend: str):
    message = (
        "'rows' returns all capacity=6 rows, but got 2 stored. Wait until full() is true. Before that, "
        "get_item(range(len(buffer))) returns the stored rows, and datasets.to_npz writes them."
    )
    buffer = make_shared(backend)
    assert_unchanged(buffer, buffer.rows, RuntimeError, text(message))
    assert buffer.get_item(range(len(buffer)))[1].asnumpy().tolist() == [1, 2]


class Insert(nn.Cell):
    def __init__(self, buffer: ReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer

    @ms.jit
    def construct(self, *rows):
        self.buffer.insert(rows)
        return self.buffer.size()


NO_TENSOR = "In a graph, 'exp' must hold Tensors or constant Python numbers: pass a Tensor."


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1.5, TypeError, "'exp' must have the columns' dtypes. column 1: expected int32, but got the float 1.5."),
        (2**31, ValueError, "column 1 is int32 and cannot hold 2147483648."),
        (Y, TypeError, NO_TENSOR),
        (ms.mutable(5), TypeError, NO_TENSOR),
        ("five", TypeError, "'exp' must have the columns' dtypes. column 1: expected int32, but got <u4"),
    ],
    ids=["float", "too large", "array", "variable", "string"],
)
def test_rows_that_are_no_tensors_in_a_graph(buffer: ReplayBuffer, value: Any, error: type[Exception], message: str):
    call = Insert(buffer)
    assert_unchanged(buffer, lambda: call(Tensor(X), value), error, re.escape(message))


class InRange(nn.Cell):
    def __init__(self, buffer: ReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer

    @ms.jit
    def construct(self, start):
        return self.buffer.sample((start, None))


def test_a_range_in_a_graph(buffer: ReplayBuffer):
    message = r"In a graph, 'sample_range' must be \(start, stop\), each an int, a Tensor or None\."
    assert_unchanged(buffer, lambda: InRange(buffer)(np.array(0)), TypeError, message)


# A failed operator. MindSpore takes three seconds to report, and the graph cannot be called again.
FAILED = {
    ("native", "get_item"): "The kernel 'replay_read' failed with status 3",
    ("native", "sample"): "The kernel 'replay_sample' failed with status 2",
    ("composite", "get_item"): "assert failed",
    ("composite", "sample"): "assert failed",
}


@pytest.mark.cpu_only("on a GPU the next call reports the failure of a kernel")
@pytest.mark.parametrize(
    ("mode", "backend", "operation"),
    [
        ("pynative", "native", "get_item"),
        ("pynative", "composite", "sample"),
        ("graph", "native", "sample"),
        ("graph", "composite", "get_item"),
    ],
    indirect=["mode"],
)
def test_an_operator_fails_in_a_graph(mode: str, backend: str, operation: str):
    place, columns = Combination(mode, backend, "compiled"), ([(4,), ()], [ms.float32, "int32"])
    driver = make_driver(place, 3, 6, *columns, seed=0, replace=False)
    driver.insert([np.stack([X, X + 1]), np.array([1, 2], np.int32)])
    fail = {"get_item": lambda: driver.get_item(2), "sample": lambda: driver.sample()}[operation]
    assert_unchanged(driver.buffer, fail, RuntimeError, FAILED[backend, operation])
    # Other calls of the buffer still work, from Python and in other graphs.
    driver.insert([np.stack([X, X + 1]), np.array([3, 4], np.int32)])
    assert driver.status() == (4, False, True)
    assert int(driver.buffer.get_item(-1)[1]) == 4
    assert driver.buffer.sample()[1].shape == (3,)
