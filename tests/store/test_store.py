"""The store under a buffer: it needs no MindSpore, behaves like the buffer, and owns the memory of its Parameters."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bodies import Kept
from kinds import full_sample
from mindspore import Parameter, Tensor, ops

import mindspore_replay
from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    FrameStack,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.store import KernelError, Options, Output, SamplePlan, Schema, Store
from mindspore_replay.store.plan import HANDLE, WEIGHT, WINDOW

pytestmark = pytest.mark.cpu_only("a store keeps its rows in host memory")


def run(program: str, folder: Path) -> str:
    """Return the output of a process in which warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# Without MindSpore.

WITHOUT_MINDSPORE = """
import sys
import numpy as np
from mindspore_replay.store import KernelError, Options, Output, SamplePlan, Schema, Store, WindowRule
from mindspore_replay.store.plan import HANDLE, LENGTH, MASK, WEIGHT, WINDOW

schema = Schema("Store", [(4,), (), (2,)], ["float32", "int32", "bool"], ["o", "a", "b"])
ROWS = tuple(Output(WINDOW, i) for i in range(3))
HANDLES, MARKED = (Output(HANDLE), *ROWS), {"weighting": (0.0, 0.0)}


def steps(n):
    windows = tuple(Output(WINDOW, i, length=n, lead=(n,)) for i in range(3))
    return (Output(HANDLE), Output(LENGTH), Output(MASK, length=n, lead=(n,)), *windows)


KINDS = {
    "uniform": Options(16, SamplePlan(5, "uniform", ROWS), num_envs=2),
    "by rank": Options(16, SamplePlan(5, "rank", HANDLES, max_use=3), **MARKED, max_staleness=4),
    "by priority": Options(
        16, SamplePlan(5, "priority", (Output(HANDLE), Output(WEIGHT), *ROWS), beta_step=0.1),
        weighting=(0.6, 1e-6), beta=0.4,
    ),
    "sequences": Options(16, SamplePlan(2, "rank", steps(3)), **MARKED, rule=WindowRule(0, 3, 1, False, 1, 0)),
    "episodes": Options(16, SamplePlan(2, "rank", steps(4)), **MARKED, rule=WindowRule(0, 4, 2**62, True, 1, 4)),
    "reservoir": Options(16, SamplePlan(5, "uniform", HANDLES), reservoir=True),
    "weighted reservoir": Options(16, SamplePlan(5, "rank", HANDLES), **MARKED, reservoir=True),
    "elastic": Options(16, SamplePlan(2, "uniform", ROWS), window=4),
}


def batch(first, n):
    numbers = np.arange(first, first + n)
    return [np.repeat(numbers[:, None], 4, 1).astype(np.float32), numbers.astype(np.int32), np.ones((n, 2), bool)]


def same(a, b):
    assert a.keys() == b.keys()
    assert all(a[name].tobytes() == b[name].tobytes() for name in a)


def use(name, store):
    options = store.options
    empty = store.state_dict()
    try:
        store.sample()
        raise AssertionError("a sample of no rows")
    except KernelError:
        pass
    ends = [i % 4 == 3 for i in range(20)] if options.rule else [False] * 20
    for i in range(20) if options.num_envs == 1 else ():
        store.insert([np.full(4, i, np.float32), i, np.array([True, False])], end=ends[i])
    if options.num_envs > 1:
        store.insert(batch(0, 20))
    store.insert(dict(zip("oab", batch(20, 8))), end=ends[:8] if options.rule else False)
    store.check()
    assert store.count() == 16 and store.arrays["count"] == 16
    assert store.eligible() >= options.plan.n
    given = store.sample()
    assert all(type(part) is np.ndarray and len(part) == options.plan.n for part in given)
    rows = store.read(np.array([0, -1]))
    assert [part.shape for part in rows] == [(2, 4), (2,), (2, 2)]
    assert (rows[0] == rows[1][:, None]).all() and rows[2].dtype == bool
    handles = store.state_dict()["serials"][0] - np.arange(1, 5)
    if options.weighting:
        assert len(store.info(handles)) == 3
        invalid = store.update_priorities(handles, np.array([1.0, 0.0, 1.0, 1.0], np.float32))
        assert invalid.shape == () and 0 <= invalid <= 4
        before = store.eligible()
        removed = int(store.delete(handles[2:]))
        assert 0 <= removed <= 2 and store.eligible() <= before
        store.advance(2)
        store.check()
    if options.rule:
        assert int(store.end_episodes()) in (0, 1)
        mask, *groups = store.sample_groups(1, True, 2, 3)
        assert mask.shape == (2, 3) and [part.shape for part in groups] == [(2, 3, 4), (2, 3), (2, 3, 2)]
    store.check()
    state = store.state_dict()
    drawn = [part.tobytes() for part in store.sample()]
    store.reset()
    assert store.count() == 0 and store.eligible() == 0
    store.check()
    store.load_state_dict(state)
    store.check()
    assert [part.tobytes() for part in store.sample()] == drawn
    other = Store(schema, options._replace(seed=9))
    other.load_state_dict(state)
    same(other.state_dict(), state)
    assert [part.tobytes() for part in other.sample()] == drawn
    store.load_state_dict(empty)
    same(store.state_dict(), empty)
    print(name)


for name, options in KINDS.items():
    use(name, Store(schema, options))
assert "mindspore" not in sys.modules
"""


def test_every_kind_does_without_mindspore(tmp_path: Path):
    kinds = "uniform, by rank, by priority, sequences, episodes, reservoir, weighted reservoir, elastic"
    assert run(WITHOUT_MINDSPORE, tmp_path).splitlines() == kinds.split(", ")


LAZY = """
import sys
import mindspore_replay
assert mindspore_replay.__version__
assert set(mindspore_replay.__all__) <= set(dir(mindspore_replay))
import mindspore_replay.store
assert "mindspore" not in sys.modules
try:
    mindspore_replay.nothing
except AttributeError as error:
    print(error)
assert "mindspore" not in sys.modules
"""


def test_the_package_alone_does_not_import_mindspore(tmp_path: Path):
    assert run(LAZY, tmp_path) == "module 'mindspore_replay' has no attribute 'nothing'"


def test_every_public_name_is_there():
    names: dict[str, Any] = {}
    exec("from mindspore_replay import *", names)
    assert names.keys() - {"__builtins__"} == set(mindspore_replay.__all__)
    assert set(mindspore_replay.__all__) - {"__version__"} == set(mindspore_replay._PLACES)
    assert mindspore_replay.__all__ == sorted(mindspore_replay.__all__)
    for name in mindspore_replay.__all__:
        assert name in dir(mindspore_replay)
        assert names[name] is getattr(mindspore_replay, name)
    assert names["PriorityReplayBuffer"] is PrioritizedReplayBuffer
    assert names["UniformReplayBuffer"] is ReplayBuffer


# Equality with a buffer.

NAMES, CAPACITY = ["observation", "reward", "terminated", "truncated", "group"], 24
SHAPES: list[tuple[int, ...]] = [(2,), (), (), (), ()]
TYPES = ["float32", "float32", "bool", "bool", "int32"]
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta_steps": 5}
KINDS: dict[str, tuple[type[Any], tuple[Any, ...], dict[str, Any]]] = {
    "uniform": (ReplayBuffer, (), {}),
    "distinct": (ReplayBuffer, (), {"replace": False, "ordered": True, "num_envs": 2}),
    "limits": (ReplayBuffer, (), {"max_use": 3, "max_staleness": 4}),
    "prioritized": (PrioritizedReplayBuffer, (), PRIORITIES),
    "prioritized, limits": (PrioritizedReplayBuffer, (), PRIORITIES | {"max_use": 4, "normalize": "buffer"}),
    "n steps": (PrioritizedReplayBuffer, (), PRIORITIES | {"views": [NStep(2, 0.9)], "num_envs": 2}),
    "frames": (ReplayBuffer, (), {"views": [FrameStack(3)]}),
    "sequences": (SequenceReplayBuffer, (3,), {"burn_in": 1, "pad_end": True}),
    "sequences, prioritized": (SequenceReplayBuffer, (2,), PRIORITIES | {"prioritized": True, "num_envs": 2}),
    "episodes": (EpisodeReplayBuffer, (4,), {"max_use": 9}),
    "reservoir": (ReservoirReplayBuffer, (), {}),
    "reservoir, weighted": (ReservoirReplayBuffer, (), {"max_use": 4}),
    "elastic": (ElasticReplayBuffer, (6,), {}),
    "elastic, weighted": (ElasticReplayBuffer, (6,), {"weighted": True}),
}


def make(kind: str, seed: int = 0) -> Any:
    cls, arguments, options = KINDS[kind]
    return cls(2, CAPACITY, SHAPES, TYPES, *arguments, names=NAMES, seed=seed, backend="native", **options)


def store_like(buffer: Any) -> Store:
    """Return a store of its own, of the buffer's kind and with its seed."""
    return Store(Schema(type(buffer).__name__, SHAPES, TYPES, NAMES), buffer.options)


def rows(n: int | None, first: int) -> list[np.ndarray]:
    """Return n rows, or one without a leading axis."""
    numbers = np.arange(first, first + (n or 1))
    observations = np.stack([numbers, -numbers], 1).astype(np.float32)
    flags = numbers % 7 == 0
    batch = [observations, (numbers % 5).astype(np.float32), flags, ~flags & (numbers % 5 == 0), numbers % 3]
    batch[4] = batch[4].astype(np.int32)
    return batch if n else [field[0] for field in batch]


Pair = tuple[Callable[[Any], Any], Callable[[Store], Any]]


def pairs(buffer: Any, first: int, rng: np.random.Generator) -> list[Pair]:
    """Return an operation of each sort, for the buffer and for the store."""
    n = [None, None, 2, 6][rng.integers(4)] if buffer.num_envs == 1 else 2 * int(rng.integers(1, 4))
    exp, given = rows(n, first), {}
    if buffer.has_episodes:
        ends = rng.random(n or 1) < 0.4
        given["end"] = ends if n else bool(ends[0])
    weight = rng.random(n or 1).astype(np.float32) if n else np.float32(rng.random())
    priority = {"priority": weight} if buffer.prioritized and rng.integers(2) else {}
    index, serial = rng.integers(-8, 8, 3), int(buffer.serials.asnumpy()[0])
    handles, few = serial - rng.integers(-1, CAPACITY + 4, 3), int(rng.integers(3))
    insertion: Pair = (lambda b: b.insert(exp, **given, **priority), lambda s: s.insert(exp, **given, **priority))
    found: list[Pair] = [
        *[insertion] * 4,
        *[(lambda b: full_sample(b), lambda s: s.sample())] * 3,
        (lambda b: b.get_item(index), lambda s: s.read(index)),
        (lambda b: (len(b), bool(b.can_sample())), lambda s: (s.count(), s.eligible() >= buffer.sample_size)),
    ]
    if type(buffer) is ReplayBuffer and not buffer.has_episodes:
        bounds = (int(index[0]), int(index[1]))
        ask = {"with_indices": True} if buffer.weighted else {}
        found.append((lambda b: b.sample(bounds, **ask), lambda s: s.sample(bounds)))
    if buffer.weighted:
        found.append((lambda b: b.delete(handles[:few]), lambda s: s.delete(handles[:few])) if few else insertion)
        found.append((lambda b: b.info(handles), lambda s: s.info(handles)))
        found.append((lambda b: b.advance(few), lambda s: s.advance(few)))
    if buffer.prioritized:
        new = rng.random(3).astype(np.float32)
        found.append((lambda b: b.update_priorities(handles, new), lambda s: s.update_priorities(handles, new)))
        found.append((lambda b: b.sample(beta=0.3), lambda s: s.sample(beta=0.3)))
    if buffer.has_episodes:
        found.append((lambda b: b.end_episodes(), lambda s: s.end_episodes()))
    if isinstance(buffer, EpisodeReplayBuffer):
        ordered = bool(few)
        found.append((lambda b: b.sample_groups("group", 2, 3, ordered), lambda s: s.sample_groups(4, ordered, 2, 3)))
    if isinstance(buffer, ElasticReplayBuffer):
        window = int(rng.integers(2, CAPACITY))
        found.append((lambda b: b.set_window(window), lambda s: s.arrays["window"].fill(window)))
    if rng.integers(6) == 0:
        found.append((lambda b: b.reset(), lambda s: s.reset()))
    return found


def plain(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [plain(part) for part in result]
    array = result.asnumpy() if isinstance(result, Tensor) else np.asarray(result)
    return array.shape, array.tobytes()


def outcome(call: Callable[[Any], Any], to: Any) -> Any:
    """Return the result of a call. A kernel's error has another text in a buffer."""
    try:
        result = call(to)
    except (IndexError, RuntimeError):
        return "failed"
    except ValueError as error:
        return str(error)
    return None if result is None or result is to else plain(result)


def same_arrays(store: Store, state: dict[str, np.ndarray]) -> None:
    own = store.state_dict()
    assert own.keys() == state.keys()
    for name, array in own.items():
        assert (array.shape, array.dtype) == (state[name].shape, state[name].dtype), name
        assert array.tobytes() == state[name].tobytes(), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_does_what_its_buffer_does(kind: str):
    buffer = make(kind)
    store, rng = store_like(buffer), np.random.default_rng(len(kind))
    assert store.arrays["head"].ctypes.data != buffer._calls.arrays["head"].ctypes.data
    outcomes = []
    for _ in range(90):
        choice = pairs(buffer, int(buffer.serials.asnumpy()[0]), rng)
        of_buffer, of_store = choice[rng.integers(len(choice))]
        expected = outcome(of_buffer, buffer)
        assert outcome(of_store, store) == expected
        same_arrays(store, buffer.state_dict())
        assert (store.count(), store.eligible()) == (len(buffer), buffer.eligible())
        outcomes.append("done" if expected is None else "failed" if isinstance(expected, str) else "gave")
    assert min(map(outcomes.count, ("done", "gave"))) >= 10
    store.check()
    buffer.check_valid()


def test_another_seed_gives_other_draws():
    """The comparison above would detect it."""
    buffer, store = make("uniform", seed=1), store_like(make("uniform", seed=2))
    for each in (buffer, store):
        each.insert(rows(20, 0))
    assert [plain(buffer.sample()) for _ in range(4)] != [plain(store.sample()) for _ in range(4)]


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_buffers_and_stores_are_exchanged(kind: str):
    buffer, store = make(kind), store_like(make(kind, seed=5))
    more = {"end": [i % 4 == 3 for i in range(20)]} if buffer.has_episodes else {}
    buffer.insert(rows(20, 0), **more)
    full_sample(buffer)
    store.load_state_dict(buffer.state_dict())
    same_arrays(store, buffer.state_dict())
    assert plain(store.sample()) == plain(full_sample(buffer))
    buffer.reset()
    buffer.load_state_dict(store.state_dict())
    assert plain(store.sample()) == plain(full_sample(buffer))


# The memory of a buffer's Parameters.


def assert_shared(buffer: Any) -> None:
    """Check that every Parameter shares the memory of an array of the store, and the reverse."""
    parameters, arrays = buffer.state_parameters(), buffer._calls.arrays
    assert parameters.keys() == arrays.keys()
    for name, parameter in parameters.items():
        seen = parameter.asnumpy()
        assert (seen.shape, seen.dtype) == (arrays[name].shape, arrays[name].dtype), name
        assert seen.ctypes.data == arrays[name].ctypes.data, name


class InsertsAndSamples(Kept):
    """A graph that stores rows and draws some."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    @ms.jit
    def step(self, *fields):
        self.buffer.insert(fields)
        return self.buffer.sample()


def make_filled(kind: str, seed: int) -> Any:
    buffer = make(kind, seed)
    return buffer.insert(rows(12, 50), **({"end": [False, True] * 6} if buffer.has_episodes else {}))


SHARED = ["uniform", "prioritized", "sequences", "reservoir", "elastic"]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("kind", SHARED)
def test_parameters_lie_in_the_arrays_of_the_store(kind: str):
    buffer = make(kind)
    assert_shared(buffer)
    buffer.insert(rows(12, 0), **({"end": [False] * 12} if buffer.has_episodes else {}))
    assert_shared(buffer)
    assert [column[0] for column in buffer._calls.read(np.array([3]))[0].asnumpy()] == [3.0]
    other = make_filled(kind, 7).state_parameters()
    for name, parameter in buffer.state_parameters().items():
        parameter.set_data(Tensor(other[name].asnumpy().copy()))
        assert buffer._calls.arrays[name].tobytes() == other[name].asnumpy().tobytes(), name
        assert_shared(buffer)
    buffer.check_valid()
    buffer.load_state_dict(make_filled(kind, 3).state_dict())
    assert_shared(buffer)
    ms.load_param_into_net(
        buffer, {name: Parameter(value) for name, value in make_filled(kind, 4).state_parameters().items()}
    )
    assert_shared(buffer)
    same_arrays(buffer._calls, make_filled(kind, 4).state_dict())


@pytest.mark.parametrize("kind", SHARED)
def test_what_graphs_and_operators_write_is_in_the_arrays(kind: str):
    buffer = make(kind)
    buffer.insert(rows(12, 0), **({"end": [False] * 12} if buffer.has_episodes else {}))
    arrays = buffer._calls.arrays
    ops.assign(buffer.buffer[1], Tensor(np.full(CAPACITY, 8, np.float32)))
    buffer.size()  # waits for the operator
    assert (arrays["column.reward"] == 8).all()
    assert_shared(buffer)
    assert buffer.get_item(0)[1] == 8
    graph, twin = InsertsAndSamples(buffer), store_like(buffer)
    twin.load_state_dict(buffer.state_dict())
    for first in (100, 110):
        batch = rows(6, first)
        drawn = graph.step(*(Tensor(field) for field in batch))
        twin.insert(batch)
        given = twin.sample()[-len(drawn) :]
        assert [part.asnumpy().tobytes() for part in drawn] == [part.tobytes() for part in given]
        assert_shared(buffer)
        same_arrays(twin, buffer._calls.state_dict())
    if "reservoir" not in kind:
        stored = arrays["column.observation"][12:24, 0]
        assert stored.tolist() == [*range(100, 106), *range(110, 116)]


def test_rows_written_into_the_arrays_are_read_by_a_graph():
    buffer = make("uniform")
    buffer.insert(rows(CAPACITY, 0))
    buffer._calls.arrays["column.reward"][:] = 3
    drawn = InsertsAndSamples(buffer).step(*(Tensor(field) for field in rows(2, 40)))
    assert set(drawn[1].asnumpy().tolist()) <= {3.0, 0.0, 1.0}
    assert buffer.get_item(0)[1] == 3


@pytest.mark.parametrize("kind", ["prioritized", "sequences"])
def test_a_buffer_of_another_sample_size_has_the_same_arrays(kind: str):
    buffer = make(kind)
    other = buffer.with_sample_size(5)
    assert_shared(other)
    buffer.insert(rows(12, 0), **({"end": [False] * 12} if buffer.has_episodes else {}))
    assert other._calls.count() == 12
    assert {id(array) for array in other._calls.arrays.values()} == {id(a) for a in buffer._calls.arrays.values()}


def test_a_buffer_that_calls_graphs_has_no_store():
    buffer = ReplayBuffer(sample_size=1, capacity=4, shapes=[()], types=["int32"], seed=0, backend="composite")
    assert not isinstance(buffer._calls, Store)


# Errors.

BAD_ROWS: dict[str, Callable[[list[Any]], Any]] = {
    "no list": lambda r: np.zeros(5),
    "too few columns": lambda r: r[:4],
    "too many columns": lambda r: [*r, 1],
    "another shape": lambda r: [np.zeros(3, np.float32), *r[1:]],
    "another dtype": lambda r: [np.zeros(2), *r[1:]],
    "several dtypes": lambda r: [np.zeros(2), np.array(1), *r[2:]],
    "other lengths": lambda r: [np.zeros((3, 2), np.float32), *r[1:]],
    "no rows of one column": lambda r: [np.zeros((0, *np.shape(r[0])), np.asarray(r[0]).dtype), *r[1:]],
    "a float for a bool": lambda r: [*r[:2], 1.0, *r[3:]],
    "a float for an int": lambda r: [*r[:4], 0.5],
    "beyond the dtype": lambda r: [*r[:4], 2**40],
    "no number": lambda r: [r[0], "x", *r[2:]],
    "uneven lists": lambda r: [[[1.0, 2.0], [1.0]], *r[1:]],
    "a missing key": lambda r: dict(zip(NAMES[:4], r)),
    "an unknown key": lambda r: dict(zip([*NAMES[:4], "other"], r)),
}
BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "a negative priority": {"priority": -1.0},
    "a priority that is NaN": {"priority": [1.0, np.nan]},
    "a priority too many": {"priority": [1.0, 1.0, 1.0]},
    "a priority of another type": {"priority": "x"},
    "a flag too many": {"end": [True] * 3},
    "a flag of another type": {"end": 1},
}


def refusal(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[type[Exception], str]:
    with pytest.raises((TypeError, ValueError)) as caught:
        call(*args, **kwargs)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("kind", ["uniform", "limits", "prioritized", "sequences, prioritized", "reservoir"])
def test_bad_rows_are_refused_as_by_a_buffer(kind: str):
    buffer = make(kind)
    store = store_like(buffer)
    for each in (buffer, store):
        each.insert(rows(4, 0))
    before = store.state_dict()
    for name, change in BAD_ROWS.items():
        bad = change(rows(None, 4))
        assert refusal(store.insert, bad) == refusal(buffer.insert, bad), name
        same_arrays(store, before)
    allowed = {name for name, is_there in (("priority", buffer.prioritized), ("end", buffer.has_episodes)) if is_there}
    for name, options in BAD_OPTIONS.items():
        if set(options) <= allowed:
            expected = refusal(buffer.insert, rows(2, 4), **options)
            assert refusal(store.insert, rows(2, 4), **options) == expected, name
            same_arrays(store, before)
    for each in (buffer, store):
        each.insert(rows(2, 4))
    same_arrays(store, buffer.state_dict())


def test_a_refusal_in_words():
    store = Store(Schema("Mine", [(2,)], ["float32"]), Options(4, SamplePlan(1, "uniform", (Output(WINDOW, 0),))))
    with pytest.raises(
        ValueError, match=r"^For 'Mine', 'exp' must hold one row in each column's shape, .*column 0: ex"
    ):
        store.insert([np.zeros(3, np.float32)])
    with pytest.raises(TypeError, match=r"^For 'Mine', 'exp' can be a dict only of a buffer made with 'names'.$"):
        store.insert({"0": np.zeros(2, np.float32)})
    assert store.count() == 0


def test_an_episode_too_long_is_refused_as_by_a_buffer():
    buffer = make("episodes")
    store = store_like(buffer)
    assert refusal(store.insert, rows(5, 0)) == refusal(buffer.insert, rows(5, 0))
    for each in (buffer, store):
        each.insert(rows(3, 0))
    assert refusal(store.insert, rows(2, 3)) == refusal(buffer.insert, rows(2, 3))
    same_arrays(store, buffer.state_dict())


def test_too_few_rows_change_nothing():
    store = store_like(make("prioritized"))
    store.insert(rows(None, 0))
    before = store.state_dict()
    with pytest.raises(KernelError, match=r"^The kernel 'replay_sample' failed with status 2: fewer rows are eligible"):
        store.sample()
    with pytest.raises(KernelError, match=r"'replay_sample' failed with status 4: a priority, weight or beta"):
        store.sample(beta=1.5)
    with pytest.raises(IndexError, match=r"'index' must be in \[-1, 1\), since 1 rows are stored, but got 1"):
        store.read(np.array([0, 1]))
    same_arrays(store, before)


BAD_STATES: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "a version": lambda s: s | {"version": np.array(99)},
    "a capacity": lambda s: s | {"capacity": np.array(5)},
    "a missing array": lambda s: {name: array for name, array in s.items() if name != "weights"},
    "a dtype": lambda s: s | {"priorities": s["priorities"].astype(np.float64)},
    "a shape": lambda s: s | {"serials": s["serials"][:1]},
    "cursors": lambda s: s | {"count": np.array(CAPACITY + 1, np.int32)},
    "weights": lambda s: s | {"weights": s["weights"] + 1},
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_a_state_that_does_not_fit_changes_nothing(case: str):
    buffer = make("prioritized")
    store = store_like(buffer)
    store.insert(rows(4, 0))
    before = store.state_dict()
    bad = BAD_STATES[case](before)
    kind, text = refusal(store.load_state_dict, bad)
    assert (kind, text) == refusal(buffer.load_state_dict, bad)
    assert text.startswith("For 'PrioritizedReplayBuffer', ")
    same_arrays(store, before)


def test_a_check_finds_arrays_that_contradict_each_other():
    store = store_like(make("prioritized"))
    store.insert(rows(4, 0))
    store.check()
    store.arrays["weights"][0] += 1
    with pytest.raises(ValueError, match=r"^For 'PrioritizedReplayBuffer', "):
        store.check()


def test_handles_and_priorities_of_any_kind_are_taken_by_value():
    """Lists, ints of another width and doubles are cast; objects without numbers are rejected."""
    rows = (Output(HANDLE), Output(WEIGHT), Output(WINDOW))
    options = Options(8, SamplePlan(2, "priority", rows), weighting=(1.0, 0.0), beta=0.4)
    store = Store(Schema("Store", [()], ["int32"]), options)
    store.insert([np.arange(4, dtype=np.int32)])
    assert int(store.update_priorities([0, 1], [7.0, 3])) == 0
    assert int(store.update_priorities(np.array([2, 9], np.int32), np.array([2.0, 5.0]))) == 1
    assert store.info(np.array([0, 1, 2, 3], np.int32))[0].tolist() == [7, 3, 2, 1]
    assert int(store.delete([0])) == 1
    with pytest.raises(TypeError, match="'indices' must hold ints"):
        store.delete([0.5])
    with pytest.raises(TypeError, match="'indices' must hold ints, but got object"):
        store.update_priorities(None, None)
    with pytest.raises(ValueError, match="must be one number for all rows or have shape"):
        store.update_priorities([1, 2], [1.0, 2.0, 3.0])
