"""The composite backend serves single rows; all else is refused when a buffer is made, as the tables of misuse say."""

import re
from typing import Any
from unittest import mock

import mindspore as ms
import pytest
from mindspore import Tensor

from mindspore_replay import MixedReplay, ReplayBuffer, ReplayQueue
from mindspore_replay.ops import native

COLUMNS: dict[str, Any] = {"shapes": [()], "types": ["int32"], "seed": 0}
WAY_OUT = (
    "needs kernels, with backend='native' or, on a device without them, storage='host', its default, but got {}. The "
    "composite backend serves single rows, drawn uniformly or by priority."
)
GOT = "backend='composite' and storage='device'"


def refused(message: str) -> Any:
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def test_the_way_out_on_a_device_without_kernels():
    """On Ascend the rows are in the memory of the host, unless the device is asked for."""
    with mock.patch.object(native.ms, "get_context", return_value="Ascend"):
        got = f"{GOT}, since {native.why_not()}"
        with refused(f"For 'ReplayQueue', drawing in order {WAY_OUT.format(got)}"):
            ReplayQueue(2, 12, **COLUMNS, storage="device")
        for queue in (ReplayQueue(2, 12, **COLUMNS), ReplayQueue(2, 12, **COLUMNS, storage="host")):
            assert queue.insert([1]).size() == 1
            assert queue.backend == "native"


def test_a_machine_without_kernels_gets_the_reason():
    with mock.patch.object(native, "why_not", return_value="there is no compiler"):
        got = f"{GOT}, since there is no compiler"
        with refused(f"For 'ReplayQueue', drawing in order {WAY_OUT.format(got)}"):
            ReplayQueue(2, 12, **COLUMNS)


def test_a_mixture():
    sources = [(ReplayBuffer(2, 12, **COLUMNS, backend=backend), 1.0) for backend in ("native", "composite")]
    with refused("For 'MixedReplay', source 1 " + WAY_OUT.format("a buffer with backend='composite'")):
        MixedReplay(sources, 4)


@pytest.mark.parametrize("in_graph", [False, True])
def test_versions(in_graph: bool):
    """They are known at an insertion, not when the buffer is made."""
    buffer = ReplayBuffer(2, 12, **COLUMNS, weighted=True, backend="composite")
    row, version = Tensor(1, ms.int32), Tensor(0)

    def insert():
        buffer.insert([row], version=version)
        return buffer.size()

    message = "For 'ReplayBuffer', 'version' " + WAY_OUT.format("backend='composite'")
    with pytest.raises(ValueError, match=re.escape(message)):
        (ms.jit(insert) if in_graph else insert)()
    assert int(buffer.serials.asnumpy()[0]) == 0
