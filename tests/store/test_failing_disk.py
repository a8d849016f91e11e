"""Disks that are full, fail, or are gone: a clear error, a process that lives, and nothing lost of what was there."""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_replay import host
from mindspore_replay.store.kernels import library

pytestmark = [
    pytest.mark.cpu_only("rows in a folder are in host memory"),
    pytest.mark.filterwarnings("ignore:.*the machine was restarted"),
]

FAILED = "the disk could not read or write a page of the folder: what is in memory is not what was there"


def make(folder: Path, cls: Any = host.PrioritizedReplayBuffer, rows: int = 64) -> Any:
    """Return a buffer of which a row is a page, and half full."""
    buffer = cls(4, rows, [(512,), ()], ["int64", "int64"], storage=folder, seed=0)
    numbers = np.arange(rows // 2)
    return buffer.insert([np.repeat(numbers[:, None], 512, 1), numbers])


CALLS = {
    "insert": lambda b: b.insert([np.zeros((40, 512), np.int64), np.zeros(40, np.int64)]),
    "get_item": lambda b: b.get_item(np.arange(32)),
    "sample": lambda b: [b.sample() for _ in range(20)],
    "update": lambda b: b.update([0], [np.zeros((1, 512), np.int64), [0]]),
    "state_dict": lambda b: b.state_dict(),
}


@pytest.mark.parametrize(
    ("name", "attached"),
    [*((name, False) for name in CALLS), *((name, True) for name in CALLS if name != "state_dict")],
)
def test_pages_that_cannot_be_had_are_an_error(name: str, attached: bool, tmp_path: Path):
    """A file that was cut off has no pages, as a disk that fails."""
    learner = make(tmp_path / "rows")
    buffer = host.attach(tmp_path / "rows") if attached else learner
    os.truncate(tmp_path / "rows" / "columns", 0)
    for _ in range(2):  # also each later call
        with pytest.raises(RuntimeError, match=f"failed with status {library.NO_DISK}: {FAILED}"):
            CALLS[name](buffer)
    with pytest.raises(RuntimeError, match="failed with status 12"):
        buffer.insert([np.zeros(512, np.int64), 0])
    if attached:
        buffer.close()
        return
    with pytest.raises(OSError, match=FAILED) as raised:
        buffer.flush()
    assert raised.value.errno == errno.EIO
    with pytest.raises(RuntimeError, match="failed with status 12"):
        buffer.close()
    other = make(tmp_path / "other")
    assert len(other) == 32
    other.close()


def test_another_folder_goes_on(tmp_path: Path):
    failed, whole = make(tmp_path / "failed"), make(tmp_path / "whole")
    os.truncate(tmp_path / "failed" / "columns", 0)
    with pytest.raises(RuntimeError, match="failed with status 12"):
        failed.get_item(0)
    whole.insert([np.ones(512, np.int64), 1]).flush()
    assert whole.sample()[2].shape == (4, 512)
    whole.close()
    with contextlib.closing(host.PrioritizedReplayBuffer.open(tmp_path / "whole")) as again:
        assert len(again) == 33


@contextlib.contextmanager
def mounted(where: Path, *arguments: Any) -> Iterator[Path]:
    """Mount a file system during the block."""
    where.mkdir()
    done = subprocess.run(["mount", *map(str, arguments), str(where)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this system does not let the tests mount: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def test_a_disk_without_room(tmp_path: Path):
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as disk:
        with pytest.raises(OSError, match=r"the folder .* bytes could not be made: No space left on device") as raised:
            make(disk / "large", rows=1024)
        assert raised.value.errno == errno.ENOSPC
        assert not list(disk.iterdir())
        buffer = make(disk / "rows", rows=32)
        free = os.statvfs(disk)
        (disk / "full").write_bytes(bytes(free.f_bavail * free.f_frsize))
        for i in range(100):  # its room was reserved
            buffer.insert([np.full(512, i), i])
        buffer.flush()
        with pytest.raises(OSError, match="No space left"):
            shutil.copytree(disk / "rows", disk / "copy")
        buffer.close()
        with contextlib.closing(host.PrioritizedReplayBuffer.open(disk / "rows", verify=True)) as again:
            assert (len(again), again.get_item(-1)[1]) == (32, 99)


@contextlib.contextmanager
def file_size_limit(most: int) -> Iterator[None]:
    """Let no write make or change a file beyond so many bytes in the block. Python ignores the signal, SIGXFSZ."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("most", [0, 4096, 100_000])
def test_a_quota(most: int, tmp_path: Path):
    """As of the disk: a write fails where it was reached, also in the middle."""
    buffer = make(tmp_path / "rows")
    buffer.flush()
    host.save(buffer, tmp_path / "saved")
    saved = (tmp_path / "saved").read_bytes()
    buffer.insert([np.full(512, 99), 99])
    with file_size_limit(most):
        with pytest.raises(OSError, match="bytes could not be made: File too large") as raised:
            make(tmp_path / "other")
        assert raised.value.errno == errno.EFBIG
        with pytest.raises(OSError, match="File too large"):
            host.save(buffer, tmp_path / "saved")
        with pytest.raises(OSError, match="could not be written to the disk: File too large"):
            buffer.flush()
        assert buffer.insert([np.full(512, 100), 100]).get_item(-1)[1] == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows", "saved"]
    assert (tmp_path / "saved").read_bytes() == saved
    with pytest.raises(OSError, match="could not be written to the disk: File too large"):
        buffer.close()
    with contextlib.closing(host.PrioritizedReplayBuffer.open(tmp_path / "rows")) as again:
        assert again.get_item(np.arange(34))[1].tolist() == [*range(32), 99, 100]
        again.check_valid()
        again.flush()


def test_a_disk_that_became_read_only(tmp_path: Path):
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4m", "tmpfs") as disk:
        make(disk / "rows").close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(OSError, match=r"could not be opened: Read-only file system") as raised:
            host.PrioritizedReplayBuffer.open(disk / "rows")
        assert raised.value.errno == errno.EROFS
        with pytest.raises(OSError, match="could not be opened: Read-only file system"):
            host.attach(disk / "rows")
        with pytest.raises(OSError, match="Read-only file system"):
            make(disk / "other")


def test_a_file_system_that_was_shut_down(tmp_path: Path):
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    if shutil.which("mkfs.ext4") is None or subprocess.run(["mkfs.ext4", "-q", image]).returncode:
        pytest.skip("there is no mkfs.ext4")
    with mounted(tmp_path / "disk", "-o", "loop", image) as disk:
        buffer = make(disk / "rows")
        buffer.flush()
        with open(disk / "rows" / "header", "rb") as file:
            fcntl.ioctl(file, 0x8004587D, (2).to_bytes(4, "little"))  # EXT4_IOC_SHUTDOWN, without the log
        assert buffer.get_item(3)[1] == 3  # from memory
        with contextlib.suppress(RuntimeError):
            buffer.insert([np.zeros((20, 512), np.int64), np.zeros(20, np.int64)])
        with pytest.raises((OSError, RuntimeError), match=f"Input/output error|{FAILED}"):
            buffer.flush()
        with pytest.raises((OSError, RuntimeError), match=f"Input/output error|{FAILED}"):
            buffer.close()
