"""Samples as dicts in compiled graphs: the names and the rows of the same call from Python."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from kinds import KINDS, ends_every
from mindspore import nn

from mindspore_replay import EpisodeReplayBuffer, MixedReplay

COLUMNS: dict[str, Any] = {
    "sample_size": 2,
    "capacity": 12,
    "shapes": [(3,), ()],
    "types": ["float32", "int32"],
    "names": ["x", "step"],
    "seed": 0,
}


def make(kind: str, backend: str) -> Any:
    if kind == "mixed":
        return MixedReplay([(make("prioritized", backend), 0.5), (make("uniform", backend), 0.5)], 4)
    buffer = KINDS[kind].make(**COLUMNS, backend=backend)
    steps = np.arange(9, dtype=np.int32)
    rows = [np.repeat(steps[:, None], 3, 1).astype(np.float32), steps]
    return buffer.insert(rows, **ends_every(buffer, 3, 9))


MADE = ("uniform", "sequences by priority", "episodes", "padded epochs, weighted", "mixed")


class Sampler(nn.Cell):
    """Returns a sample as a dict, and one column."""

    def __init__(self, buffer: Any, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.buffer, self.with_indices = buffer, bool(arguments)

    def construct(self):
        batch = self.buffer.sample(as_dict=True, with_indices=True) if self.with_indices else self._plain()
        return batch, batch["step"] + 1

    def _plain(self):
        return self.buffer.sample(as_dict=True)


@pytest.mark.parametrize(("kind", "backend"), [(kind, "native") for kind in MADE])
def test_the_names_and_rows_of_a_call_from_python(kind: str, backend: str):
    arguments = {"with_indices": True} if kind == "mixed" or KINDS[kind].handles else {}
    twin, buffer = make(kind, backend), make(kind, backend)
    expected = twin.sample(as_dict=True, **arguments)
    batch, more = ms.jit(Sampler(buffer, arguments).construct)()
    assert list(batch) == list(expected)
    for name, part in expected.items():
        assert batch[name].asnumpy().tolist() == part.asnumpy().tolist(), name
    assert more.asnumpy().tolist() == (expected["step"].asnumpy() + 1).tolist()


@pytest.mark.parametrize("backend", ["native"])
def test_groups(backend: str):
    def groups(buffer: EpisodeReplayBuffer) -> Any:
        return buffer.sample_groups("step", 2, 1, as_dict=True)

    class Groups(nn.Cell):
        def __init__(self, buffer: EpisodeReplayBuffer) -> None:
            super().__init__()
            self.buffer = buffer

        def construct(self):
            return self.buffer.sample_groups("step", 2, 1, as_dict=True)

    twin, buffer = (make("episodes", backend) for _ in range(2))
    expected, batch = groups(twin), ms.jit(Groups(buffer).construct)()
    assert list(batch) == list(expected) == ["mask", "x", "step"]
    assert batch["step"].asnumpy().tolist() == expected["step"].asnumpy().tolist()


def test_no_warning_of_columns_that_are_not_used(capfd: pytest.CaptureFixture[str]):

    class Named(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.buffer = make("prioritized", "native")

        def construct(self):
            batch = self.buffer.sample(as_dict=True)
            return batch["step"]

    ms.jit(Named().construct)()
    assert "side effect nodes" not in "".join(capfd.readouterr())
