"""What is no file on a disk is refused where a file is read: a pipe would be waited for, for ever."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mindspore_replay import TrainingCheckpoint, host, load_config
from mindspore_replay.checkpoint.overview import overview
from mindspore_replay.datasets import from_hdf5, from_npz
from mindspore_replay.store.faces.weights import SharedWeights

READERS: dict[str, Callable[[Path], object]] = {
    "load": host.load,
    "inspect": overview,
    "from_npz": from_npz,
    "from_hdf5": from_hdf5,
    "load_config": load_config,
    "TrainingCheckpoint": lambda path: TrainingCheckpoint(path, buffer=buffer()).load(),
    "SharedWeights": lambda path: SharedWeights(path.parent).read(),
}


def buffer() -> host.ReplayBuffer:
    return host.ReplayBuffer(1, 4, [()], ["int32"]).insert([1])


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused(reader: str, tmp_path: Path):
    path = tmp_path / "weights"
    os.mkfifo(path)
    with pytest.raises(
        ValueError, match=r"must name a file on a disk, but .*weights is a pipe, a socket or a device: "
    ):
        READERS[reader](path)
