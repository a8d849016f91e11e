"""Changes of rows by one call: vectors that fit are read in place, other numbers are cast, the rest is left alone."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from locks import RecordingLock
from mindspore import Parameter, Tensor
from mindspore.common.initializer import Zero

from mindspore_replay import PrioritizedReplayBuffer
from mindspore_replay.mindspore_api import jit_contexts, refuse_trace
from mindspore_replay.store.kernels.invocations import Invocations
from mindspore_replay.store.kernels.library import BAD_WEIGHT, calls

pytestmark = pytest.mark.cpu_only("calls kernels directly")

HANDLES, PRIORITIES = np.array([1, 2]), np.array([3, 0.5], np.float32)


@pytest.fixture
def buffer() -> PrioritizedReplayBuffer:
    made = PrioritizedReplayBuffer(2, 4, [()], ["int32"], alpha=1, seed=0, backend="native")
    return made.insert([np.arange(4, dtype=np.int32)])


def priorities(buffer: PrioritizedReplayBuffer) -> list[float]:
    return buffer.info(range(4))[0].asnumpy().tolist()


@pytest.mark.parametrize("form", [(np.array, np.array), (Tensor, Tensor), (np.array, Tensor), (Tensor, np.array)])
def test_vectors_that_fit_are_read_in_place(
    buffer: PrioritizedReplayBuffer, form: tuple[Callable[[Any], Any], Callable[[Any], Any]]
):
    invalid = buffer._front.calls.try_update_priorities(form[0](HANDLES), form[1](PRIORITIES))
    assert (type(invalid), invalid.shape, invalid.dtype, int(invalid)) == (np.ndarray, (), np.int32, 0)
    assert priorities(buffer) == [1, 3, 0.5, 1]
    assert int(buffer._front.calls.try_update_priorities(form[0](HANDLES + 2), form[1](PRIORITIES + 1))) == 1
    assert priorities(buffer) == [1, 3, 0.5, 4]
    assert int(invalid) == 0  # no later call changes it


class Own(Tensor):
    """A class of the user's."""


CAST: dict[str, tuple[Any, Any]] = {
    "lists": ([1, 2], [3.0, 0.5]),
    "tuples of scalars": ((np.int32(1), 2), (3, np.float16(0.5))),
    "handles int32": (HANDLES.astype(np.int32), PRIORITIES),
    "handles uint8": (HANDLES.astype(np.uint8), PRIORITIES),
    "priorities float64": (HANDLES, PRIORITIES.astype(np.float64)),
    "priorities float16": (HANDLES, PRIORITIES.astype(np.float16)),
    "a step": (np.arange(4)[1:3:1][::-1], PRIORITIES[::-1]),
    "other byte order": (HANDLES.astype(">i8"), PRIORITIES.astype(">f4")),
}


@pytest.mark.parametrize("name", CAST)
def test_numbers_are_cast(buffer: PrioritizedReplayBuffer, name: str):
    handles, given = CAST[name]
    assert int(buffer._front.calls.try_update_priorities(handles, given)) == 0
    assert priorities(buffer) == [1, 3, 0.5, 1]


@pytest.mark.parametrize("one", [3, 3.0, np.float32(3), np.array(3.0), True - 1 + 3, Tensor(np.float32(3))])
def test_one_priority_is_that_of_all(buffer: PrioritizedReplayBuffer, one: Any):
    assert int(buffer._front.calls.try_update_priorities(HANDLES, one)) == 0
    assert int(buffer._front.calls.try_update_priorities(0, one)) == 0
    assert priorities(buffer) == [3, 3, 3, 1]


OTHERS: dict[str, tuple[Any, Any]] = {
    "one of two priorities": (HANDLES, PRIORITIES[:1]),
    "no rows": (HANDLES[:0], PRIORITIES[:0]),
    "two axes": (HANDLES[None], PRIORITIES[None]),
    "real handles": ([1.0, 2.0], PRIORITIES),
    "bools": ([True, False], PRIORITIES),
    "an array of bools": (HANDLES, np.array([True, False])),
    "a range": (range(1, 3), PRIORITIES),
    "texts": (["1", "2"], PRIORITIES),
    "a ragged list": ([[1], [2, 3]], PRIORITIES),
    "large handles": ([2**70, 1], PRIORITIES),
    "handles uint64": (HANDLES.astype(np.uint64), PRIORITIES),
    "a Tensor int32": (Tensor(HANDLES, ms.int32), PRIORITIES),
    "a Tensor float16": (HANDLES, Tensor(PRIORITIES, ms.float16)),
    "a Tensor of one": (HANDLES, Tensor(PRIORITIES[:1])),
    "a Tensor that is not contiguous": (HANDLES, Tensor(np.ones((2, 2), np.float32)).T[0]),
    "a Tensor without memory": (HANDLES, Tensor(shape=(2,), dtype=ms.float32, init=Zero())),
    "a Parameter": (HANDLES, Parameter(Tensor(PRIORITIES))),
    "a subclass": (HANDLES, Own(PRIORITIES)),
    "nothing": (None, None),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(buffer: PrioritizedReplayBuffer, name: str):
    handles, given = OTHERS[name]
    assert buffer._front.calls.try_update_priorities(handles, given) == -1
    assert priorities(buffer) == [1, 1, 1, 1]


def test_a_kernel_that_fails_gives_its_status(buffer: PrioritizedReplayBuffer):
    assert buffer._front.calls.try_update_priorities(HANDLES, -PRIORITIES) == BAD_WEIGHT
    assert priorities(buffer) == [1, 1, 1, 1]
    with pytest.raises(TypeError, match=r"^now\(\*inputs\) needs 2 of them$"):
        buffer._front.calls.try_update_priorities(HANDLES)


def updating_with(buffer: PrioritizedReplayBuffer, **parts: Any) -> Callable[..., Any]:
    """Return the call that sets priorities, with other parts of `Tensors`."""
    store = buffer._front.calls
    return Invocations(store.schema, store.options, store._state, store._tensors._replace(**parts))["update_priorities"]


def test_an_error_of_a_vector_is_raised(buffer: PrioritizedReplayBuffer):
    def fail(_: Any) -> int:
        raise ZeroDivisionError

    now = updating_with(buffer, guard=None, address_of=fail)
    with pytest.raises(ZeroDivisionError):
        now(Tensor(HANDLES), Tensor(PRIORITIES))
    assert priorities(buffer) == [1, 1, 1, 1]
    assert int(now(HANDLES, PRIORITIES)) == 0


def test_only_a_tensor_is_waited_for(buffer: PrioritizedReplayBuffer):
    lock = RecordingLock()
    guard = calls.Guard(lock, lambda: lock.log.append("waited"), jit_contexts, refuse_trace)
    now = updating_with(buffer, guard=guard)
    now(HANDLES, PRIORITIES)
    assert lock.log == ["acquired", "released"]
    now(HANDLES, Tensor(PRIORITIES))
    assert lock.log[2:] == ["acquired", "waited", "released"]
    guard.close()
    assert now(HANDLES, PRIORITIES) == -1
