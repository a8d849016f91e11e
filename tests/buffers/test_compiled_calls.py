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
from twins import KINDS, Twins, calls_of, elsewhere, outcome, rows

from mindspore_replay import EpisodeReplayBuffer, ReplayBuffer, load, save
from mindspore_replay.buffers.compiled import CompiledCalls
from mindspore_replay.ops import native
from mindspore_replay.store.kernels.library import KernelError, Library, library_for
from mindspore_replay.store.rows.store import Store

pytestmark = pytest.mark.cpu_only("compares with kernels that are called directly")


@pytest.fixture
def away() -> Iterator[None]:
    with elsewhere():
        yield


def make(kind: str, seed: int = 0) -> Any:
    return KINDS[kind].make(backend="native", seed=seed)


def twins_of(make_one: Callable[[], Any]) -> Twins:
    return Twins(make_one(), make_one)


@pytest.mark.parametrize("kind", ["returns", "goals", "sequences, by priority"])
def test_all_calls(kind: str):
    """`test_backends.py` has the other kinds: composite operators are called in the same way."""
    twins = twins_of(lambda: make(kind))
    assert (type(twins.direct._front.calls), type(twins.compiled._front.calls)) == (Store, CompiledCalls)
    assert twins.compiled.backend == "native"
    outcomes = set()
    for call in calls_of(twins.direct, np.random.default_rng(len(kind)), (None, 3), 60):
        outcomes.add("failed" if isinstance(twins.both(call)[0], type) else "done")
        twins.compare()
    assert outcomes == {"done", "failed"}


@pytest.mark.usefixtures("mode")
def test_both_modes():
    twins = twins_of(lambda: make("prioritized"))
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


def test_groups():
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

    twins = twins_of(make_one)
    numbers = np.arange(16)
    batch = [(numbers % 5).astype(np.int32), numbers.astype(np.float32)]
    twins.both(lambda b: b.insert(batch, end=numbers % 4 == 3))
    for _ in range(3):
        assert not isinstance(twins.both(lambda b: b.sample_groups("group", 2, 3, ordered=False))[0], type)
        twins.compare()


@pytest.mark.parametrize("kind", ["prioritized", "episodes", "elastic, weighted"])
def test_save_and_load(kind: str, tmp_path: Path):
    twins = twins_of(lambda: make(kind))
    for call in calls_of(twins.direct, np.random.default_rng(1), (None, 3), 60):
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
        assert type(again._front.calls) is CompiledCalls
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
    twins = twins_of(lambda: make("prioritized"))
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
        "kernel changed nothing and returned zeros.$"
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
@pytest.mark.parametrize("kind", ["uniform", "limits", "prioritized", "sequences, by priority"])
def test_a_sample_that_fails_on_the_device_is_told_of_at_once(kind: str):
    with on_device(FailingLibrary()):
        buffer = make(kind).insert(rows(make(kind), 12, 0))
        buffer.sample()
    with (
        on_device(FailingLibrary((0, b""), (2, b"replay_sample"))),
        pytest.raises(RuntimeError, match="a sample needs "),
    ):
        buffer.sample()
    with on_device(FailingLibrary((0, b""), (4, b"replay_sample"))), pytest.raises(KernelError, match="status 4"):
        buffer.sample()


REFUSED = {
    "episodes": (5, ValueError, "^For 'EpisodeReplayBuffer', no episode may have more than max_episode_length=4 "),
    "queue of sequences": (10, RuntimeError, "^For 'ReplayQueue', there must be room for 2 rows, but got 6 free of "),
}


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("kind", REFUSED)
def test_an_insertion_that_fails_on_the_device_is_told_of_at_once(kind: str):
    status, error, words = REFUSED[kind]
    with on_device(FailingLibrary()):
        buffer = make(kind).insert(rows(make(kind), 4, 0))
    failing = FailingLibrary((0, b""), (status, b"replay_insert"))
    with on_device(failing), pytest.raises(error, match=words):
        buffer.insert(rows(buffer, 2, 4))
    assert failing.failures == []


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
