"""The text of the errors of buffers with weights; a failed call changes nothing."""

import functools
import re
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from drivers import Driver
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

X, Y = np.arange(4, dtype=np.float32), np.array(7, np.int32)
EXP = [X, Y]
PAIR = [np.stack([X, X + 1]), np.array([1, 2], np.int32)]
NAN, INF = float("nan"), float("inf")


def make_buffer(backend: str = "auto", cls: Any = PrioritizedReplayBuffer, **options: Any) -> Any:
    arguments = {"sample_size": 3, "capacity": 6, "shapes": [(4,), ()], "types": [ms.float32, "int32"], "seed": 0}
    return cls(**(arguments | {"backend": backend} | options))


CONSTRUCTOR: list[tuple[type[Exception], dict[str, Any], str]] = [
    (ValueError, {"alpha": 1.5}, "'alpha' must be in [0, 1], but got 1.5"),
    (ValueError, {"alpha": -0.1}, "'alpha' must be in [0, 1], but got -0.1"),
    (ValueError, {"alpha": NAN}, "'alpha' must be in [0, 1], but got nan"),
    (TypeError, {"alpha": "0.6"}, "'alpha' must be"),
    (TypeError, {"alpha": True}, "'alpha' must be"),
    (ValueError, {"beta": 1.01}, "'beta' must be in [0, 1], but got 1.01"),
    (ValueError, {"beta": -1}, "'beta' must be in [0, 1], but got -1"),
    (TypeError, {"beta": None}, "'beta' must be"),
    (ValueError, {"beta_steps": -1}, "'beta_steps' must be"),
    (TypeError, {"beta_steps": 1.5}, "'beta_steps' must be an int, but got 1.5"),
    (ValueError, {"epsilon": -1e-6}, "'epsilon' must be"),
    (ValueError, {"epsilon": 1e-40}, "'epsilon' must be"),
    (ValueError, {"epsilon": INF}, "'epsilon' must be"),
    (ValueError, {"epsilon": NAN}, "'epsilon' must be"),
    (ValueError, {"normalize": "max"}, "'normalize' must be"),
    *[
        (ValueError, {"initial_priority": each}, f"'initial_priority' must be in [1e-37, 3e+38], but got {each}.")
        for each in (0, -1.0, 1e-40, 1e39, INF, NAN)
    ],
    (
        ValueError,
        {"default_priority": "mean"},
        "'default_priority' must be 'largest' or 'largest_held', but got 'mean'.",
    ),
    (TypeError, {"initial_priority": None}, "'initial_priority' must be a number, but got None (NoneType)."),
    (TypeError, {"replace": False}, "there are unknown arguments: 'replace'"),
    (ValueError, {"max_use": 0}, "'max_use' must be in [1, 2147483647], but got 0."),
    (TypeError, {"max_use": 1.0}, "'max_use' must be an int, but got 1.0 (float)."),
    (ValueError, {"max_staleness": -1}, "'max_staleness' must be in [0, 4611686018427387904], but got -1."),
    (TypeError, {"max_staleness": "3"}, "'max_staleness' must be an int, but got '3' (str)."),
]


@pytest.mark.parametrize(("error", "options", "message"), CONSTRUCTOR, ids=lambda value: str(value)[:40])
def test_constructor(error: type[Exception], options: dict[str, Any], message: str):
    with pytest.raises(error, match=f"^{re.escape(f'For {chr(39)}PrioritizedReplayBuffer{chr(39)}, {message}')}"):
        make_buffer(**options)
    if set(options) & {"max_use", "max_staleness"}:
        with pytest.raises(error, match=f"^{re.escape(f'For {chr(39)}ReplayBuffer{chr(39)}, {message}')}"):
            make_buffer(cls=ReplayBuffer, **options)


def test_weighted_is_a_bool():
    with pytest.raises(TypeError, match=r"For 'ReplayBuffer', 'weighted' must be a bool, but got 1"):
        make_buffer(cls=ReplayBuffer, weighted=1)


def test_the_least_epsilon():
    assert make_buffer(epsilon=0).epsilon == 0
    assert make_buffer(epsilon=1e-37).epsilon == 1e-37


def on(backend: str, native: Any, **options: Any) -> Any:
    """Return a native buffer, or one of the other backend in its state: this compiles no graph for rows."""
    if backend == "native":
        return native
    buffer = make_buffer(backend, type(native), **options)
    buffer.load_state_dict(native.state_dict())
    return buffer


@functools.cache
def _shared(backend: str, cls: Any, **options: Any) -> tuple[Any, dict[str, np.ndarray]]:
    buffer = make_buffer(backend, cls, **options).insert(PAIR)
    buffer.insert(PAIR)
    return buffer, buffer.state_dict()


@pytest.fixture
def buffer(backend: str) -> PrioritizedReplayBuffer:
    """Return a buffer with four rows of six; shared with its compiled graphs."""
    buffer, state = _shared(backend, PrioritizedReplayBuffer)
    buffer.load_state_dict(state)
    return buffer


def assert_unchanged(buffer: Any, call: Callable[[], Any], error: type[Exception], message: str) -> None:
    before = buffer.state_dict()
    with pytest.raises(error, match=message):
        call()
    after = buffer.state_dict()
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)
    buffer.check_valid()


def named(message: str) -> str:
    return rf"For 'PrioritizedReplayBuffer'.*{message}"


#: Beside those of the table of misuse.
BAD = [-1e-30, INF, np.float32(-1), np.array(NAN), Tensor(-1.0), Tensor([1.0, NAN]), [1e39, 1.0]]


@pytest.mark.parametrize("priority", BAD, ids=str)
def test_a_bad_priority(buffer: PrioritizedReplayBuffer, priority: Any):
    """Also one too large for float32."""
    message = named("priorit.*(negative|finite)")
    assert_unchanged(buffer, lambda: buffer.insert(PAIR, priority=priority), ValueError, message)
    assert_unchanged(buffer, lambda: buffer.update_priorities([0, 1], priority), ValueError, message)


def test_handles_far_outside_are_dead(buffer: PrioritizedReplayBuffer):
    far = [2**62, -(2**63), 2**63 - 1, -1, 4]
    assert int(buffer.update_priorities(far, 5.0)) == 5
    assert int(buffer.delete(far)) == 0
    assert [part.asnumpy().tolist() for part in buffer.info(far)] == [[0] * 5, [-1] * 5, [-1] * 5]


def test_the_clock_does_not_overflow(backend: str):
    buffer = on(backend, make_buffer("native", max_staleness=3).insert(PAIR), max_staleness=3)
    buffer.advance(2**62 - 1)
    assert_unchanged(buffer, lambda: buffer.advance(2), ValueError, named("'steps' must be in .0, 1., but got 2"))
    buffer.advance(1)
    assert buffer.clock.asnumpy().tolist() == [2**62, 2, 0]
    buffer.check_valid()


# In a graph.


def test_priorities_that_are_a_list_in_a_graph(buffer: PrioritizedReplayBuffer):
    @ms.jit
    def update(indices):
        return buffer.update_priorities(indices, [1.0, 2.0])

    assert_unchanged(buffer, lambda: update(Tensor([0, 1])), TypeError, "must be a Tensor or a number")


def test_indices_that_are_no_tensor_in_a_graph(buffer: PrioritizedReplayBuffer):
    @ms.jit
    def delete():
        return buffer.delete(0)

    assert_unchanged(buffer, delete, TypeError, "In a graph, 'indices' must be a Tensor of ints: pass a Tensor.")


# A failed operator. MindSpore takes three seconds to report, and the graph cannot be called again.
FAILING: dict[str, Callable[[Any], Any]] = {
    "insert": lambda driver: driver.insert(PAIR, np.array([5, NAN], np.float32)),
    "update": lambda driver: driver.update([0, 1], [5.0, -1.0]),
    "sample": lambda driver: driver.sample(),
}


@pytest.mark.cpu_only("on a GPU the next call reports the failure of a kernel")
@pytest.mark.parametrize(
    ("mode", "backend", "operation"),
    [
        ("pynative", "native", "insert"),
        ("graph", "composite", "insert"),
        ("pynative", "composite", "update"),
        ("graph", "composite", "sample"),
    ],
    indirect=["mode"],
)
def test_an_operator_fails_in_a_graph(mode: str, backend: str, operation: str):
    # The cases share a buffer, so that from Python its graphs are compiled once; each has its own compiled bodies.
    buffer, state = _shared(backend, PrioritizedReplayBuffer)
    buffer.load_state_dict(state)
    if operation == "sample":
        assert int(buffer.delete([0, 1, 2, 3])) == 4
    driver = Driver(buffer, "compiled")
    message = r"'replay_insert' failed with status 4" if backend == "native" else "assert failed"
    assert_unchanged(buffer, lambda: FAILING[operation](driver), RuntimeError, message)
    # Other calls of the buffer still work, from Python and in other graphs.
    buffer.insert(PAIR).insert(PAIR)
    assert driver.status()[2] is True
    assert buffer.sample()[0].shape == (3,)
