"""With `storage="host"` no method of a buffer runs an operator or a graph of MindSpore, whatever the device."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from kinds import CLASSES, ends_every, full_sample
from kinds import KINDS as EVERY
from mindspore import Tensor

from mindspore_replay import ElasticReplayBuffer, EpisodeReplayBuffer, FrameStack, NStep, ReplayBuffer
from mindspore_replay.ops import native

pytestmark = pytest.mark.cpu_only("the CPU stands in for another device")

SCHEMA: dict[str, Any] = {
    "shapes": [(2,), (), (), ()],
    "types": ["float32", "int32", "float32", "bool"],
    "names": ["observation", "group", "reward", "terminated"],
    "storage": "host",
    "seed": 0,
}
KINDS = {
    kind: partial(EVERY[kind].make, 2, 30, **SCHEMA)
    for kind in (*CLASSES, "distinct", "limits", "reservoir, weighted", "sequences by priority")
}
KINDS["views"] = partial(KINDS["prioritized"], views=[NStep(2, 0.9), FrameStack(2)])
#: Functions of MindSpore that touch no device: wait for work in flight, read a Tensor in host memory, make one.
HOST = {"asnumpy", "from_numpy", "is_contiguous", "sync"}


def rows() -> list[Any]:
    numbers = np.arange(12)
    fields = [np.zeros((12, 2), np.float32), numbers.astype(np.int32) % 2, np.ones(12, np.float32), numbers % 3 == 2]
    return [*fields[:2], *map(Tensor, fields[2:])]


def called(work: Callable[[], Any]) -> set[str]:
    """Return the names of the functions in MindSpore's library that Python calls, and of graphs and operators."""
    found = set()

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            owner = getattr(function, "__self__", None)
            where = f"{getattr(function, '__module__', '')} {type(owner).__module__} {type(owner).__name__}"
            if "mindspore." in where or "PyCapsule" in getattr(function, "__qualname__", ""):
                found.add(function.__name__)
        elif frame.f_code.co_name == "staging_specialize":
            found.add("graph")
        elif frame.f_globals.get("__name__", "").startswith("mindspore.ops."):
            found.add("operator")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def use(buffer: Any) -> None:
    """Call all methods that this buffer has."""
    buffer.insert(rows(), **ends_every(buffer, 3, 12))
    batch = buffer.sample()
    buffer.get_item([0, -1])
    (buffer.size(), buffer.full(), buffer.can_sample(), len(buffer))
    if buffer.has_handles:
        handles = full_sample(buffer)[0]
        buffer.update(handles, {"reward": [2.0, 3.0]})
        if buffer.prioritized:
            buffer.update_priorities(handles, batch[1])
        if buffer.weighted:
            (buffer.info(handles), buffer.delete(handles), buffer.advance(1))
    if buffer.has_episodes:
        buffer.end_episodes()
    if isinstance(buffer, EpisodeReplayBuffer):
        buffer.sample_groups("group", 1, 2)
    if isinstance(buffer, ElasticReplayBuffer):
        buffer.set_window(3).sample()
    buffer.load_state_dict(buffer.state_dict())
    buffer.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_no_method_calls_an_operator(kind: str):
    with mock.patch.object(native, "on_cpu", return_value=False):
        buffer = KINDS[kind]()
        found = called(lambda: use(buffer))
    assert found <= HOST
    assert "asnumpy" in found


def test_operators_and_graphs_are_noticed():
    tensor = Tensor([1.0])

    @ms.jit
    def graph(x):
        return x + 1

    assert called(lambda: tensor + 1) - HOST
    assert "graph" in called(lambda: graph(tensor))
    assert called(lambda: ms.ops.gather(tensor, Tensor([0]), 0)) - HOST


def test_methods_of_a_buffer_on_the_device_are_noticed():
    with mock.patch.object(native, "on_cpu", return_value=False):
        buffer = ReplayBuffer(2, 30, **SCHEMA | {"storage": "device"})
        assert "graph" in called(lambda: buffer.insert(rows()))
