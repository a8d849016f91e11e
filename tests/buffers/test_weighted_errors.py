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


BAD_VALUES = [-1, -1e-30, NAN, INF, -INF, np.float32(-1), np.array(NAN), Tensor(-1.0), Tensor(INF)]
BAD_LISTS = [[1.0, -1.0], [NAN, 1.0], np.array([1, INF], np.float32), Tensor([1.0, NAN]), [1e39, 1.0]]


@pytest.mark.parametrize("priority", [*BAD_VALUES, *BAD_LISTS], ids=str)
def test_a_bad_priority(buffer: PrioritizedReplayBuffer, priority: Any):
    """Also one too large for float32."""
    message = named("priorit.*(negative|finite)")
    assert_unchanged(buffer, lambda: buffer.insert(PAIR, priority=priority), ValueError, message)
    assert_unchanged(buffer, lambda: buffer.update_priorities([0, 1], priority), ValueError, message)


@pytest.mark.parametrize("priority", [[1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], np.ones((2, 1), np.float32), []], ids=str)
def test_priorities_of_another_length(buffer: PrioritizedReplayBuffer, priority: Any):
    message = named("priorit")
    assert_unchanged(buffer, lambda: buffer.insert(PAIR, priority=priority), ValueError, message)
    assert_unchanged(buffer, lambda: buffer.update_priorities([0, 1], priority), ValueError, message)


def test_a_priority_for_one_row_has_one_element(buffer: PrioritizedReplayBuffer):
    assert_unchanged(buffer, lambda: buffer.insert(EXP, priority=[1.0, 2.0]), ValueError, named("priorit"))


@pytest.mark.parametrize("priority", ["1", [None], object(), 1j], ids=["str", "None", "object", "complex"])
def test_a_priority_that_is_no_number(buffer: PrioritizedReplayBuffer, priority: Any):
    assert_unchanged(buffer, lambda: buffer.insert(EXP, priority=priority), TypeError, named("priority"))
    assert_unchanged(buffer, lambda: buffer.update_priorities([0], priority), TypeError, named("priorit"))


def test_a_bad_row_with_a_good_priority(buffer: PrioritizedReplayBuffer):
    assert_unchanged(buffer, lambda: buffer.insert([X, 1.5], priority=9.0), TypeError, named("column 1"))
    assert_unchanged(buffer, lambda: buffer.insert([X[:2], 1], priority=9.0), ValueError, named("column 0"))


@pytest.mark.parametrize("indices", [0.0, [0.5], True, None, "0", Tensor(0.0), []], ids=str)
def test_handles_that_are_no_ints(buffer: PrioritizedReplayBuffer, indices: Any):
    error = (TypeError, ValueError)
    for call in (buffer.delete, buffer.info, lambda indices: buffer.update_priorities(indices, 1.0)):
        assert_unchanged(buffer, lambda call=call: call(indices), error, named("indices"))  # type: ignore[arg-type]


def test_handles_far_outside_are_dead(buffer: PrioritizedReplayBuffer):
    far = [2**62, -(2**63), 2**63 - 1, -1, 4]
    assert int(buffer.update_priorities(far, 5.0)) == 5
    assert int(buffer.delete(far)) == 0
    assert [part.asnumpy().tolist() for part in buffer.info(far)] == [[0] * 5, [-1] * 5, [-1] * 5]


@pytest.mark.parametrize("beta", [1.5, -0.1, NAN, INF, Tensor(2.0)], ids=str)
def test_a_bad_beta(buffer: PrioritizedReplayBuffer, beta: Any):
    assert_unchanged(
        buffer, lambda: buffer.sample(beta=beta), ValueError, named(r"'beta' must be in \[0, 1\], but got")
    )


@pytest.mark.parametrize("beta", ["1", (0, 3), [0.5]], ids=str)
def test_a_beta_that_is_no_number(buffer: PrioritizedReplayBuffer, beta: Any):
    assert_unchanged(buffer, lambda: buffer.sample(beta=beta), (TypeError, ValueError), named("'beta'"))  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 1.5, None, True, "1"], ids=str)
def test_bad_steps(buffer: PrioritizedReplayBuffer, steps: Any):
    assert_unchanged(buffer, lambda: buffer.advance(steps), (TypeError, ValueError), named("'steps'"))  # type: ignore[arg-type]


def test_a_sample_of_too_few_eligible_rows(buffer: PrioritizedReplayBuffer):
    """The text has the rows needed, the eligible rows, and the way to find out."""
    assert int(buffer.delete([1, 2])) == 2
    for number in (r"sample_size=3", r"\b2\b.*eligible|eligible.*\b2\b", r"can_sample\(\)"):
        assert_unchanged(buffer, buffer.sample, RuntimeError, named(number))


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


@pytest.mark.parametrize(
    ("priority", "error", "message"),
    [
        (-1.0, ValueError, named("a priority must be finite and at least 0, but got -1.0.")),
        (True, TypeError, named("a priority must be a number")),
        (np.array(1.0), TypeError, "In a graph, 'priority' must be a Tensor or a number: pass a Tensor."),
    ],
    ids=["negative", "bool", "array"],
)
def test_a_priority_that_is_no_tensor_in_a_graph(
    buffer: PrioritizedReplayBuffer, priority: Any, error: type[Exception], message: str
):
    @ms.jit
    def insert(x, y, priority):
        buffer.insert([x, y], priority=priority)
        return buffer.size()

    assert_unchanged(buffer, lambda: insert(*map(Tensor, PAIR), priority), error, message)


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
        assert int(buffer.delete([1, 2])) == 2
    driver = Driver(buffer, "compiled")
    message = r"'replay_insert' failed with status 4" if backend == "native" else "assert failed"
    assert_unchanged(buffer, lambda: FAILING[operation](driver), RuntimeError, message)
    # Other calls of the buffer still work, from Python and in other graphs.
    buffer.insert(PAIR)
    assert driver.status()[2] is True
    assert buffer.sample()[0].shape == (3,)
