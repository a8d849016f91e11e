"""Native operators on memory that is not the host's, as on a GPU: calls from Python go through compiled graphs.

The CPU stands in for such a device: a buffer is told that its memory is elsewhere. Its results, state and errors must
equal those of a buffer whose kernels are called directly, bit for bit.
"""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor
from pairs import same_states

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    HindsightRelabel,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    RateLimiter,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    load,
    save,
)
from mindspore_replay.buffers.compiled import CompiledCalls
from mindspore_replay.ops import groups, native
from mindspore_replay.ops.operator import Operator
from mindspore_replay.store import KernelError, Store
from mindspore_replay.store.library import Library, library_for

pytestmark = pytest.mark.cpu_only("compares with kernels that are called directly")

NAMES = ["observation", "reward", "terminated", "truncated", "next_observation"]
TYPES = ["float32", "float32", "bool", "bool", "float32"]
SHAPES: list[tuple[int, ...]] = [(2,), (), (), (), (2,)]
CAPACITY = 12


def reward_fn(achieved, goal):
    return ms.ops.cast(achieved == goal, ms.float32)


PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta_steps": 5}
LIMITS: dict[str, Any] = {"max_use": 3, "max_staleness": 4}
KINDS: dict[str, tuple[type[Any], tuple[Any, ...], dict[str, Any]]] = {
    "uniform": (ReplayBuffer, (), {}),
    "distinct": (ReplayBuffer, (), {"replace": False, "ordered": True, "num_envs": 2}),
    "weighted": (ReplayBuffer, (), {"weighted": True}),
    "limits": (ReplayBuffer, (), LIMITS | {"replace": False}),
    "prioritized": (PrioritizedReplayBuffer, (), PRIORITIES),
    "prioritized, limits": (PrioritizedReplayBuffer, (), PRIORITIES | LIMITS | {"normalize": "buffer"}),
    "n steps, prioritized": (PrioritizedReplayBuffer, (), PRIORITIES | {"views": [NStep(2, 0.9)], "num_envs": 2}),
    "hindsight": (ReplayBuffer, (), {"views": [HindsightRelabel("future", 0.8, reward_fn)]}),
    "sequences, prioritized": (
        SequenceReplayBuffer,
        (2,),
        PRIORITIES | {"prioritized": True, "num_envs": 2, "burn_in": 1, "pad_end": True},
    ),
    "episodes": (EpisodeReplayBuffer, (4,), {"max_use": 5, "num_envs": 2}),
    "reservoir": (ReservoirReplayBuffer, (), {}),
    "reservoir, weighted": (ReservoirReplayBuffer, (), {"max_use": 4}),
    "elastic": (ElasticReplayBuffer, (), {}),
    "elastic, weighted": (ElasticReplayBuffer, (), {"weighted": True}),
}


def elsewhere() -> Any:
    """Make the package treat the memory of Parameters as a device's, within the context."""
    return mock.patch.object(native, "on_cpu", return_value=False)


@pytest.fixture
def away() -> Iterator[None]:
    with elsewhere():
        yield


def make(kind: str, seed: int = 0) -> Any:
    cls, arguments, options = KINDS[kind]
    names, types, shapes = NAMES, TYPES, SHAPES
    if kind == "hindsight":
        names, types, shapes = ["achieved_goal", "desired_goal", "reward"], ["float32"] * 3, [(), (), ()]
    return cls(2, CAPACITY, shapes, types, *arguments, names=names, seed=seed, backend="native", **options)


class Twins:
    """A buffer whose kernels are called directly, and one that calls graphs. Each call goes to both."""

    def __init__(self, make_one: Callable[[], Any]) -> None:
        self.direct = make_one()
        with elsewhere():
            self.compiled = make_one()

    def both(self, call: Callable[[Any], Any]) -> Any:
        """Return the result of a call, or the error that it raises: the same from both."""
        expected = outcome(call, self.direct)
        with elsewhere():
            got = outcome(call, self.compiled)
        assert got == expected
        return expected

    def compare(self) -> None:
        """Check that the whole state is equal bit for bit."""
        with elsewhere():
            state = self.compiled.state_dict()
            self.compiled.check_valid()
        assert same_states(state, self.direct)


def outcome(call: Callable[[Any], Any], buffer: Any) -> Any:
    try:
        result = call(buffer)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        return type(error), str(error)
    return "itself" if result is buffer else plain(result)


def plain(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [plain(part) for part in result]
    array = result.asnumpy() if isinstance(result, Tensor) else np.asarray(result)
    return array.dtype.name, array.shape, array.tobytes()


def rows(buffer: Any, n: int | None, first: int) -> list[np.ndarray]:
    """Return n rows, or one without a leading axis."""
    numbers = np.arange(first, first + (n or 1))
    batch = []
    for i, (shape, dtype) in enumerate(zip(buffer.columns.shapes, buffer.columns.numpy_types)):
        field = numbers % (2 + i) == 0 if dtype == np.bool_ else (numbers % (7 + i)).astype(dtype)
        field = np.broadcast_to(field.reshape(-1, *(1 for _ in shape)), (len(numbers), *shape)).copy()
        batch.append(field if n else field[0])
    return batch


def operations(buffer: Any, rng: np.random.Generator) -> Iterator[Callable[[Any], Any]]:
    """Yield calls of all methods in random order, some of which fail. They depend on the buffer's rows at that time."""
    for _ in range(90):
        yield from operation(buffer, int(buffer.serials.asnumpy()[0]), rng)


def operation(buffer: Any, inserted: int, rng: np.random.Generator) -> list[Callable[[Any], Any]]:
    handles = inserted - rng.integers(-1, CAPACITY, 3)
    n = [None, 3 * buffer.num_envs, 3 * buffer.num_envs + buffer.num_envs // 2][rng.integers(3)]
    priority, end, small = rng.random(n or 1).astype(np.float32), rng.random(n or 1) < 0.3, int(rng.integers(0, 3))
    given: dict[str, Any] = {"end": end if n else bool(end[0])} if buffer.has_episodes else {}
    if buffer.prioritized and small:
        given["priority"] = priority if n else float(priority[0])
    with_handles = {"with_indices": True} if buffer.has_handles and not buffer.spec.always_handles else {}
    kinds: list[list[Callable[[Any], Any]]] = [
        *[[lambda b: b.insert(rows(b, n, inserted), **given)]] * 5,
        *[[lambda b: b.sample(**with_handles)]] * 3,
        [lambda b: b.get_item([0, -1, small]), lambda b: (b.size(), b.full(), b.can_sample())],
        [lambda b: b.update_priorities(handles, priority[0])],
        [lambda b: b.delete(handles)],
        [lambda b: b.advance(small)],
        [lambda b: b.info(handles)],
        [(lambda b: b.reset(), lambda b: b.end_episodes(), lambda b: b.rows())[small]],
    ]
    return kinds[rng.integers(len(kinds))]


#: Of the others, each call and each kind of argument is among these.
@pytest.mark.parametrize(
    "kind",
    [
        "distinct",
        "prioritized, limits",
        "n steps, prioritized",
        "hindsight",
        "sequences, prioritized",
        "episodes",
        "reservoir",
        "reservoir, weighted",
        "elastic",
        "elastic, weighted",
    ],
)
def test_all_calls(kind: str):
    twins = Twins(lambda: make(kind))
    assert (type(twins.direct._calls), type(twins.compiled._calls)) == (Store, CompiledCalls)
    assert twins.compiled.backend == "native"
    outcomes = set()
    for call in operations(twins.direct, np.random.default_rng(len(kind))):
        result = twins.both(call)
        outcomes.add("failed" if isinstance(result[0], type) else "done")
        twins.compare()
    assert outcomes == {"done", "failed"}


@pytest.mark.usefixtures("mode")
def test_both_modes():
    twins = Twins(lambda: make("prioritized"))
    for call in (
        lambda b: b.insert(rows(b, 5, 0)),
        lambda b: b.sample(),
        lambda b: b.update_priorities([0, 1], [2.0, 3.0]),
        lambda b: b.reset(),
        lambda b: b.load_state_dict(b.state_dict()),
        lambda b: b.insert(rows(b, 5, 5)),
    ):
        twins.both(call)
        twins.compare()


ERRORS: dict[str, Callable[[Any], Any]] = {
    "too few columns": lambda b: b.insert([1.0]),
    "another shape": lambda b: b.insert([np.zeros(3, np.float32), *rows(b, None, 0)[1:]]),
    "another dtype": lambda b: b.insert([np.zeros(2), *rows(b, None, 0)[1:]]),
    "other lengths": lambda b: b.insert([*rows(b, 3, 0)[:4], rows(b, 2, 0)[4]]),
    "no row there": lambda b: b.get_item(99),
    "no row there, of several": lambda b: b.get_item([0, -99]),
    "no position": lambda b: b.get_item(0.5),
    "not full": lambda b: b.rows(),
    "bad handles": lambda b: b.delete([0.5]),
    "bad steps": lambda b: b.advance(-1),
    "a clock beyond its range": lambda b: b.advance(2**62 + 1),
    "a flag too many": lambda b: b.insert(rows(b, 3, 0), end=[True] * 4),
    "a bad priority": lambda b: b.insert(rows(b, 3, 0), priority=[1.0, np.nan, 1.0]),
    "a priority too many": lambda b: b.insert(rows(b, 3, 0), priority=[1.0] * 4),
    "bad priorities": lambda b: b.update_priorities([0, 1], np.array([1.0, -1.0], np.float32)),
    "priorities of another length": lambda b: b.update_priorities([0, 1], np.ones(3, np.float32)),
    "a beta too large": lambda b: b.sample(beta=1.5),
}


@pytest.mark.parametrize("kind", ["uniform", "limits", "prioritized", "sequences, prioritized", "reservoir"])
def test_errors(kind: str):
    twins = Twins(lambda: make(kind))
    assert twins.both(lambda b: b.sample())[0] is RuntimeError  # no row yet
    twins.both(lambda b: b.insert(rows(b, 4, 0)))
    for name, call in ERRORS.items():
        assert isinstance(twins.both(call)[0], type), name
        twins.compare()
    twins.both(lambda b: b.insert(rows(b, 4, 4)))
    twins.both(lambda b: b.sample())  # graphs run as before
    twins.compare()


def test_an_episode_too_long():
    twins = Twins(lambda: make("episodes"))
    assert twins.both(lambda b: b.insert(rows(b, 10, 0)))[0] is ValueError
    twins.both(lambda b: b.insert(rows(b, 6, 0)))
    assert twins.both(lambda b: b.insert(rows(b, 4, 6)))[0] is ValueError
    twins.compare()


def test_groups_are_drawn_by_the_composite_operator():
    def make_one() -> Any:
        names, types = ["group", "number"], ["int32", "float32"]
        return EpisodeReplayBuffer(
            sample_size=2,
            capacity=20,
            shapes=[(), ()],
            types=types,
            max_episode_length=4,
            names=names,
            seed=3,
            backend="native",
        )

    twins = Twins(make_one)
    assert isinstance(twins.direct._graph._groups, Operator)
    assert isinstance(twins.compiled._graph._groups, groups.CompositeSampleGroups)
    numbers = np.arange(16)
    batch = [(numbers % 5).astype(np.int32), numbers.astype(np.float32)]
    assert twins.both(lambda b: b.sample_groups("group", 2, 3))[0] is RuntimeError
    twins.both(lambda b: b.insert(batch, end=numbers % 4 == 3))
    for _ in range(3):
        assert not isinstance(twins.both(lambda b: b.sample_groups("group", 2, 3, ordered=False))[0], type)
        twins.compare()
    assert twins.both(lambda b: b.sample_groups("group", 9, 3))[0] is RuntimeError
    twins.compare()


def test_a_mixture():
    def make_one() -> Any:
        parts = [(make("prioritized"), 0.5), (make("uniform", 1), 0.5)]
        return MixedReplay(parts, 4, adjustable=True, seed=2)

    twins = Twins(make_one)
    assert twins.both(lambda m: m.sample(with_indices=True))[0] is RuntimeError
    for i in range(2):
        twins.both(lambda m, i=i: m.sources[i].insert(rows(m.sources[i], 6, 0)) and None)
    for ratios in ([1.0, 1.0], [3.0, 1.0]):
        twins.both(lambda m, r=ratios: m.set_ratios(r) and None)
        twins.both(lambda m: m.sample(with_indices=True))
        assert same_states(twins.direct.state_dict(), twins.compiled.state_dict())
    twins.both(lambda m: m.load_state_dict(m.state_dict()))
    twins.both(lambda m: m.sample())


def test_a_limiter():
    twins = Twins(lambda: make("uniform"))
    for buffer in (twins.direct, twins.compiled):
        buffer.limiter = RateLimiter(2.0, min_size=4, error_buffer=8)
    twins.both(lambda b: b.insert(rows(b, 4, 0)))
    twins.both(lambda b: b.sample())
    twins.compare()


@pytest.mark.parametrize("kind", ["prioritized", "episodes", "reservoir, weighted"])
def test_save_and_load(kind: str, tmp_path: Path):
    twins = Twins(lambda: make(kind))
    for call in operations(twins.direct, np.random.default_rng(1)):
        outcome(call, twins.direct)
    twins.direct.reset()
    more = {"end": [True] * 6} if twins.direct.has_episodes else {}
    for i in range(3):
        twins.direct.insert(rows(twins.direct, 6, 6 * i), **more)
    state = twins.direct.state_dict()
    save(twins.direct, tmp_path / "direct.safetensors")
    with elsewhere():
        twins.compiled.load_state_dict(state)
        save(twins.compiled, tmp_path / "compiled.safetensors")
        again = load(tmp_path / "direct.safetensors", backend="native")
        assert type(again._calls) is CompiledCalls
        other = make(kind, seed=9)
        other.insert(rows(other, 6, 0), **more)
        load(tmp_path / "compiled.safetensors", buffer=other)
        third = make(kind, seed=10)
        third.insert(rows(third, 6, 0), **more)
        third.sample()
        third.load_state_dict(state)
        for buffer in (again, other, third):
            assert same_states(buffer.state_dict(), state)
            twins.compiled = buffer
            twins.direct.load_state_dict(state)
            for _ in range(2):
                twins.both(lambda b: b.insert(rows(b, 6, 40), **more))
                twins.both(lambda b: b.sample())
                twins.compare()


def test_a_checkpoint_of_mindspore(tmp_path: Path):
    twins = Twins(lambda: make("prioritized"))
    twins.both(lambda b: b.insert(rows(b, 5, 0)))
    twins.both(lambda b: b.sample())
    ms.save_checkpoint(twins.direct, str(tmp_path / "buffer.ckpt"))
    with elsewhere():
        other = make("prioritized", seed=9)
        other.insert(rows(other, 3, 0))
        other.sample()
        ms.load_param_into_net(other, ms.load_checkpoint(str(tmp_path / "buffer.ckpt")))
    twins.compiled = other
    twins.compare()
    twins.both(lambda b: b.sample())
    twins.compare()


@pytest.mark.usefixtures("away")
def test_bfloat16():
    buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[(2,)], types=["bfloat16"], seed=0, backend="native")
    buffer.insert([Tensor(np.ones((3, 2)), ms.bfloat16)])
    state = buffer.state_dict()
    assert [part.dtype for part in (*buffer.sample(), *buffer.get_item(0))] == [ms.bfloat16] * 2
    buffer.reset()
    buffer.load_state_dict(state)
    assert buffer.get_item(1)[0].astype(ms.float32).asnumpy().tolist() == [1.0, 1.0]


# Failures that a device detects after the call.


class FailingLibrary:
    """Stands in for the CUDA library: reports each failure once."""

    def __init__(self, *failures: tuple[int, bytes]) -> None:
        self.failures = list(failures)
        self.asked = 0

    def replay_take_failure(self, kernel: Any) -> int:
        self.asked += 1
        status, name = self.failures.pop(0) if self.failures else (0, b"")
        ctypes.cast(kernel, ctypes.POINTER(ctypes.c_char_p))[0] = name
        return status


FAILURES = {
    2: "fewer rows are eligible than a sample needs",
    3: "an index is out of range: no row is stored there",
    4: "a priority, weight or beta is negative, NaN or infinite, or beyond its range",
    5: "an episode would have more rows than it may have",
    1: "it refused its arguments with status 1",
}


def on_device(library: Any) -> Any:
    own = library_for("CPU").path
    return mock.patch.object(native, "_library", return_value=Library(own, library, ""))


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("status", FAILURES)
def test_a_failure_in_words(status: int):
    message = (
        f"^The kernel 'replay_some' failed in a graph that ran before this call: {FAILURES[status]}. That call of the "
        "kernel changed nothing and gave zeros.$"
    )
    with on_device(FailingLibrary((status, b"replay_some"))):
        with pytest.raises(RuntimeError, match=message):
            native.raise_earlier_failure()
        native.raise_earlier_failure()


def test_kernels_on_the_cpu_fail_at_once():
    assert not native.fails_later()
    native.raise_earlier_failure()
    native.raise_own_failure()


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("kind", ["uniform", "weighted", "prioritized", "sequences, prioritized"])
def test_a_sample_that_fails_on_the_device_is_told_of_at_once(kind: str):
    """Also without a look at the rows before it."""
    with on_device(FailingLibrary()):
        buffer = make(kind).insert(rows(make(kind), 12, 0))
        buffer._need_rows = None  # type: ignore[assignment]
        buffer.sample()
    with (
        on_device(FailingLibrary((0, b""), (2, b"replay_sample"))),
        pytest.raises(RuntimeError, match="a sample needs sample_size"),
    ):
        buffer.sample()
    with on_device(FailingLibrary((0, b""), (4, b"replay_sample"))), pytest.raises(KernelError, match="status 4"):
        buffer.sample()


CALLS: dict[str, Callable[[Any], Any]] = {
    "size": lambda b: b.size(),
    "get_item": lambda b: b.get_item(0),
    "sample": lambda b: b.sample(),
    "insert": lambda b: b.insert(rows(b, 3, 0)),
    "can_sample": lambda b: b.can_sample(),
    "info": lambda b: b.info([0]),
    "update": lambda b: b.update_priorities([0], [1.0]),
    "delete": lambda b: b.delete([0]),
    "advance": lambda b: b.advance(1),
    "reset": lambda b: b.reset(),
}


@pytest.mark.usefixtures("away")
def test_each_call_tells_of_a_failure_before_it_runs_a_graph():
    """A graph in which an operator has failed could not be called again."""
    buffer = make("prioritized").insert(rows(make("prioritized"), 3, 0))
    before = buffer.state_dict()
    for name, call in CALLS.items():
        library = FailingLibrary((2, b"replay_sample"))
        with on_device(library), pytest.raises(RuntimeError, match="fewer rows are eligible"):
            call(buffer)
        assert library.failures == [], name
        assert same_states(before, buffer), name
    with on_device(FailingLibrary()):
        for call in CALLS.values():
            call(buffer)
