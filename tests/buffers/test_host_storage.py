"""With `storage="host"` no method of a buffer runs an operator or a graph of MindSpore, whatever the device."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from flat import flat
from kinds import CLASSES, ends_every, full_sample
from kinds import KINDS as EVERY
from mindspore import Tensor

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    FrameStack,
    NStep,
    ReplayBuffer,
    create_buffer,
    kernel_status,
)
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


def test_methods_of_a_buffer_on_the_device_are_noticed():
    with mock.patch.object(native, "on_cpu", return_value=False):
        buffer = ReplayBuffer(2, 30, **flat(**SCHEMA | {"storage": "device"}))
        assert "graph" in called(lambda: buffer.insert(rows()))


NO_KERNELS = "native kernels run on CPU and GPU, and the device target is Ascend"


@contextlib.contextmanager
def other_device(kernels: bool) -> Iterator[None]:
    """Tell buffers that the device is not the CPU, and whether it has kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "on_cpu", lambda: False)
        patch.setattr(native, "why_not", lambda device=None: "" if kernels or device == "CPU" else NO_KERNELS)
        yield


@pytest.mark.parametrize(
    ("kernels", "arguments", "on_device"),
    [
        (True, {}, True),
        (False, {}, False),
        (False, {"storage": "device"}, True),
        (False, {"backend": "composite"}, True),
        (True, {"compress": ["observation"]}, False),
        (False, {"compress": ["observation"]}, False),
    ],
)
def test_rows_are_on_a_device_by_default_if_it_has_kernels(kernels: bool, arguments: dict[str, Any], on_device: bool):
    given = {**SCHEMA, "storage": None, **arguments}
    with other_device(kernels):
        for buffer in (
            ReplayBuffer(2, 30, **flat(**given)),
            create_buffer({"capacity": 30, "sample_size": 2, **flat(**given)}),
        ):
            assert ("graph" in called(lambda buffer=buffer: buffer.insert(rows()))) == on_device
            assert len(buffer) == 12
    assert "graph" not in called(lambda: ReplayBuffer(2, 30, **flat(**given)).insert(rows())) or "backend" in arguments


def test_the_status_tells_where_rows_are_by_default():
    assert (kernel_status().storage, kernel_status().backend) == ("device", "native")
    with other_device(kernels=False):
        status = kernel_status()
    assert (status.storage, status.backend, status.reason) == ("host", "native", NO_KERNELS)
    assert "\nrows: storage='host' by default\n" in str(status)


def test_a_graph_says_what_else_there_is():
    with other_device(kernels=False):
        buffer = ReplayBuffer(2, 30, **flat(**SCHEMA | {"storage": None}))
        with pytest.raises(RuntimeError, match=r"pass the samples to the graph, or make it with storage='device'\."):
            ms.jit(buffer.size)()
