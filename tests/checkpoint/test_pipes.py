"""What is no file on a disk is refused where a file is read: a pipe would be waited for, for ever."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mindspore_replay import TrainingCheckpoint, cli, host, load_config, save
from mindspore_replay.datasets import from_hdf5, from_npz
from mindspore_replay.store.faces.weights import SharedWeights

READERS: dict[str, Callable[[Path], object]] = {
    "load": host.load,
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


def test_a_pipe_beside_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    save(buffer(), tmp_path / "rows")
    os.mkfifo(tmp_path / "rows.1")
    with pytest.raises(ValueError, match=r"rows\.1 is a pipe"):
        host.load(tmp_path / "rows")
    assert cli.main(["inspect", str(tmp_path / "rows")]) != 0
    assert "rows.1 is a pipe" in capsys.readouterr().err
    with pytest.raises(FileExistsError, match=r"no other file .*rows\.1 beside it"):
        save(buffer(), tmp_path / "rows")
