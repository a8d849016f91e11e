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
from checks import same_states
from faces import OfOneSize
from kinds import KINDS, ends_every
from mindspore import Tensor
from twin_pairs import RandomPair

import mindspore_replay
from mindspore_replay import ReplayBuffer, load, save
from mindspore_replay.buffers.compiled import CompiledCalls
from mindspore_replay.ops import native
from mindspore_replay.store.kernels.library import KernelError, Library, library_for

pytestmark = pytest.mark.cpu_only("compares with kernels that are called directly")


@pytest.fixture
def away() -> Iterator[None]:
    """Make the package treat the memory of Parameters as a device's."""
    with mock.patch.object(native, "on_cpu", return_value=False):
        yield


def make(kind: str, seed: int = 0) -> Any:
    return KINDS[kind].make(2, 12, [(2,), ()], ["float32", "int32"], seed=seed, backend="native")


def rows(buffer: Any, n: int, first: int) -> list[np.ndarray]:
    numbers = np.arange(first, first + n)
    return [np.stack([numbers, -numbers], 1).astype(np.float32), numbers.astype(np.int32)]


@pytest.mark.usefixtures("away", "mode")
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("fixed: by priority", "graph"),
        ("fixed: episodes", "pynative"),
        ("views: returns and frames", "graph"),
        ("views: steps, own next, padded", "pynative"),
    ],
    indirect=["mode"],
)
def test_all_calls(kind: str, tmp_path: Path):
    """Beside the slow twin."""
    pair = RandomPair(kind, mindspore_replay, 1, tmp_path, face=OfOneSize, backend="native")
    assert type(pair.buffer._front.calls) is CompiledCalls
    pair.run(50)
    assert pair.drawn > 1


def test_save_and_load(tmp_path: Path):
    """In files of both, in a checkpoint of MindSpore, and in a buffer that held other rows."""
    direct = make("prioritized")
    direct.insert(rows(direct, 6, 0)).sample()
    state = direct.state_dict()
    save(direct, tmp_path / "direct.safetensors")
    ms.save_checkpoint(direct, str(tmp_path / "buffer.ckpt"))
    with mock.patch.object(native, "on_cpu", return_value=False):
        again = load(tmp_path / "direct.safetensors")
        other, third, fourth = (make("prioritized", i) for i in (7, 8, 9))
        assert type(again._front.calls) is CompiledCalls
        save(again, tmp_path / "compiled.safetensors")
        other.insert(rows(other, 3, 0)).sample()
        load(tmp_path / "compiled.safetensors", buffer=other)
        third.load_state_dict(state)
        ms.load_param_into_net(fourth, ms.load_checkpoint(str(tmp_path / "buffer.ckpt")))
        expected = direct.insert(rows(direct, 6, 40)).sample()
        for buffer in (again, other, third, fourth):
            assert same_states(buffer.state_dict(), state)
            got = buffer.insert(rows(buffer, 6, 40)).sample()
            assert [a.asnumpy().tolist() for a in got] == [b.asnumpy().tolist() for b in expected]
            assert same_states(buffer.state_dict(), direct.state_dict())


@pytest.mark.usefixtures("away")
def test_bfloat16():
    buffer = ReplayBuffer(2, 4, [(2,)], ["bfloat16"], seed=0, backend="native")
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
@pytest.mark.parametrize("kind", ["uniform", "limits", "prioritized", "sequences by priority"])
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
    "queue": (10, RuntimeError, "^For 'ReplayQueue', there must be room for 2 rows, but got "),
}


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("kind", REFUSED)
def test_an_insertion_that_fails_on_the_device_is_told_of_at_once(kind: str):
    status, error, words = REFUSED[kind]
    with on_device(FailingLibrary()):
        buffer = make(kind)
        buffer.insert(rows(buffer, 4, 0), **ends_every(buffer, 2, 4))
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
