"""What a call from Python costs in calls of Python functions, as ``sys.setprofile`` counts them."""

import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from flat import flat
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, RateLimiter, ReplayBuffer

pytestmark = pytest.mark.cpu_only("calls kernels directly")

NAMES, SHAPES, TYPES = ["observation", "action"], [(3,), ()], ["float32", "int32"]
ROW = [np.ones(3, np.float32), np.int32(1)]
TENSORS = [Tensor(ROW[0]), 1]
HANDLES, PRIORITIES, ACTIONS = np.array([5, 6]), np.ones(2, np.float32), np.ones(2, np.int32)


def prioritized() -> Any:
    buffer = PrioritizedReplayBuffer(2, 64, SHAPES, TYPES, names=NAMES, seed=0, backend="native")
    return buffer.insert([np.ones((8, 3), np.float32), np.arange(8, dtype=np.int32)])


def uniform() -> Any:
    buffer = ReplayBuffer(2, 64, SHAPES, TYPES, names=NAMES, seed=0, backend="native")
    return buffer.insert([np.ones((8, 3), np.float32), np.arange(8, dtype=np.int32)])


def late() -> Any:
    return PrioritizedReplayBuffer(2, 64, **flat(SHAPES, TYPES, names=NAMES, late=["action"], seed=0, backend="native"))


def of_any_length() -> Any:
    shapes, sizes = [(None,), ()], {"max_length": 8, "items": 512}
    return ReplayBuffer(2, 64, **flat(shapes, TYPES, names=NAMES, **sizes, seed=0, backend="native"))


def limited() -> Any:
    buffer = ReplayBuffer(2, 64, SHAPES, TYPES, names=NAMES, seed=0, backend="native")
    buffer.limiter = RateLimiter((0.0, float("inf")), min_size=1, error_buffer=64)
    return buffer.insert([np.ones((8, 3), np.float32), np.arange(8, dtype=np.int32)])


def traced(call: Callable[..., Any], *arguments: Any) -> list[str]:
    """Return the names of the Python functions that run during a call, with itself."""
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call(*arguments)
    finally:
        sys.setprofile(None)
    return names


CASES: dict[str, tuple[int, Callable[[], Any], Callable[[Any], Any]]] = {
    "insert": (2, prioritized, lambda buffer: buffer.insert(ROW)),
    "insert lists": (2, prioritized, lambda buffer: buffer.insert([[1.0, 2.0, 3.0], 1], priority=2)),
    "insert a Tensor": (6, prioritized, lambda buffer: buffer.insert(TENSORS)),
    "insert with_indices": (2, prioritized, lambda buffer: buffer.insert(ROW, with_indices=True)),
    "insert late": (2, late, lambda buffer: buffer.insert(ROW[:1])),
    "insert rows of any length": (2, of_any_length, lambda buffer: buffer.insert([[ROW[0]] * 4, [1] * 4])),
    "size": (5, prioritized, lambda buffer: buffer.size()),
    "can_sample": (6, prioritized, lambda buffer: buffer.can_sample()),
    "sample a range": (5, uniform, lambda buffer: buffer.sample((-4, None))),
    "insert versions": (12, prioritized, lambda buffer: buffer.insert(ROW, version=0)),
    "insert with a limiter": (33, limited, lambda buffer: buffer.insert(ROW)),
    "sample with a limiter": (39, limited, lambda buffer: buffer.sample()),
    "sample": (4, prioritized, lambda buffer: buffer.sample()),
    "update": (8, prioritized, lambda buffer: buffer.update(HANDLES, {"action": ACTIONS})),
    "update lists": (8, prioritized, lambda buffer: buffer.update([5, 6], {"action": [1, 1]})),
    "update_priorities": (4, prioritized, lambda buffer: buffer.update_priorities(HANDLES, PRIORITIES)),
    "update_priorities lists": (8, prioritized, lambda buffer: buffer.update_priorities([5, 6], [1.0, 0.5])),
    "delete": (8, prioritized, lambda buffer: buffer.delete(HANDLES)),
    "delete a list": (8, prioritized, lambda buffer: buffer.delete([5, 6])),
    "info": (8, prioritized, lambda buffer: buffer.info(HANDLES)),
    "info of a list": (8, prioritized, lambda buffer: buffer.info([5, 6])),
    "get_item": (8, prioritized, lambda buffer: buffer.get_item(HANDLES)),
    "get_item of a list": (8, prioritized, lambda buffer: buffer.get_item([1, 2])),
    "get_item of an int": (8, prioritized, lambda buffer: buffer.get_item(-1)),
}


@pytest.mark.parametrize("name", CASES)
def test_few_python_functions_run(name: str):
    most, make, call = CASES[name]
    buffer = make()
    for _ in range(2):  # what a first call makes
        call(buffer)
    names = traced(call, buffer)[1:]
    assert len(names) <= most, names


def test_handles_of_a_sample_are_read_in_place():
    buffer = prioritized()
    indices = buffer.sample()[0]
    assert indices.dtype == ms.int64
    for call in (buffer.delete, buffer.info, lambda handles: buffer.update(handles, {"action": ACTIONS})):
        call(indices)
        call(indices)
        names = [name for name in traced(call, indices) if "lambda" not in name]
        assert len(names) <= 8, names
        assert "asnumpy" not in names
