"""The composite backend serves single rows. All else is refused when a buffer is made, with the way out."""

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
import pytest
from flat import flat
from mindspore import Tensor

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpochReplayBuffer,
    FrameStack,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from mindspore_replay.ops import native

COLUMNS: dict[str, Any] = {
    "shapes": [(2,), (), (), ()],
    "types": ["float32", "float32", "bool", "float32"],
    "names": ["observation", "reward", "terminated", "score"],
    "seed": 0,
}
#: For each kind that needs kernels: its class, its options, and what the error names.
REFUSED: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "sequences": (SequenceReplayBuffer, {"sequence_length": 2}, "'sequence_length'"),
    "episodes": (EpisodeReplayBuffer, {"max_episode_length": 4}, "'max_episode_length'"),
    "stacks": (ReplayBuffer, {"views": [FrameStack(2)]}, "'views'"),
    "returns by priority": (PrioritizedReplayBuffer, {"views": [NStep(2, 0.9)]}, "'views'"),
    "late columns": (ReplayBuffer, {"late": ["score"]}, "late=True"),
    "elastic": (ElasticReplayBuffer, {"window": 4}, "'window'"),
    "elastic by priority": (ElasticReplayBuffer, {"prioritized": True}, "'window'"),
    "queue": (ReplayQueue, {}, "drawing in order"),
    "stack of rows": (ReplayQueue, {"order": "lifo", "when_full": "evict"}, "drawing in order"),
    "epochs": (EpochReplayBuffer, {}, "drawing in epochs"),
    "epochs of sequences": (EpochReplayBuffer, {"sequence_length": 2}, "'sequence_length'"),
    "reservoir": (ReservoirReplayBuffer, {}, "a reservoir"),
}
WAY_OUT = (
    " needs kernels, with backend='native' or, on a device without them, storage='host', its default, but got "
    "backend='composite' and storage='device'"
)
SERVES = ". The composite backend serves single rows, drawn uniformly or by priority."


def make(kind: str, **given: Any) -> Any:
    cls, options, _ = REFUSED[kind]
    return cls(2, 12, **flat(**COLUMNS, **options, **given))


def refused(kind: str, since: str = "", **given: Any) -> None:
    cls, _, what = REFUSED[kind]
    message = f"For {cls.__name__!r}, {what}{WAY_OUT}{since}{SERVES}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(kind, **given)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_needs_kernels(kind: str):
    refused(kind, backend="composite")


@pytest.mark.parametrize("kind", REFUSED)
def test_the_way_out_on_a_device_without_kernels(kind: str):
    """On Ascend the rows are in the memory of the host, unless the device is asked for."""
    with mock.patch.object(native.ms, "get_context", return_value="Ascend"):
        refused(kind, f", since {native.why_not()}", storage="device")
        buffer, other = make(kind), make(kind, storage="host")
        row = [np.ones(2, np.float32), 1.0, False, 2.0]
        for each in (buffer, other):
            present = [row[i] for i in each.columns.present]
            each.insert(present)
            assert each.size() == 1
        assert buffer.backend == "native"


def test_a_machine_without_kernels_gets_the_reason():
    with mock.patch.object(native, "why_not", return_value="there is no compiler"):
        refused("queue", ", since there is no compiler")


def test_a_mixture():
    sources = [(ReplayBuffer(2, 12, **flat(**COLUMNS, backend=backend)), 1.0) for backend in ("native", "composite")]
    message = (
        "For 'MixedReplay', source 1 needs kernels, with backend='native' or, on a device without them, "
        "storage='host', its default, but got a buffer with backend='composite'" + SERVES
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MixedReplay(sources, 4)


@pytest.mark.parametrize("in_graph", [False, True])
def test_versions(in_graph: bool):
    """They are known at an insertion, not when the buffer is made."""
    buffer = ReplayBuffer(2, 12, [()], ["int32"], weighted=True, backend="composite")
    row, version = Tensor(1, ms.int32), Tensor(0)

    def insert():
        buffer.insert([row], version=version)
        return buffer.size()

    message = (
        "For 'ReplayBuffer', 'version' needs kernels, with backend='native' or, on a device without them, "
        "storage='host', its default, but got backend='composite'" + SERVES
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        (ms.jit(insert) if in_graph else insert)()
    assert int(buffer.serials.asnumpy()[0]) == 0
