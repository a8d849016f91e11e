"""Other systems than Linux: buffers in memory work without what they lack, and those in folders are refused."""

import subprocess
import sys

import pytest

#: Uses buffers on arrays on Linux, without what Python has there alone.
PROGRAM = """
import mmap, os, sys, tempfile
from pathlib import Path
sys.platform = sys.argv[1]
for name in [name for name in dir(mmap) if name.startswith("MADV_")]:
    delattr(mmap, name)
names = {"posix_fallocate", "posix_fadvise", "memfd_create", "sched_getaffinity"}
if sys.platform == "win32":
    sys.modules["fcntl"] = sys.modules["resource"] = None
    names |= {"register_at_fork", "fork", "O_DIRECTORY", "O_CLOEXEC", "sysconf", "mkfifo"}
    del mmap.MAP_PRIVATE
for name in names & set(dir(os)):
    delattr(os, name)
from mindspore_replay import SharedWeights, attach, host
buffer = host.PrioritizedReplayBuffer(2, 100_000, [(4,)], ["float32"], seed=0).insert([[[1.0] * 4] * 9])
buffer.update_priorities(buffer.sample(with_indices=True)[0], [1.0, 2.0])
with tempfile.TemporaryDirectory() as folder:
    host.save(buffer, f"{folder}/buffer")
    print(len(host.load(f"{folder}/buffer")))
buffer.close()
for make in (
    lambda: host.ReplayBuffer(1, 9, [()], ["int8"], storage="./rows"),
    lambda: host.ReplayBuffer.open("rows"),
    lambda: attach("rows"),
):
    try:
        make()
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_buffers_in_memory_need_no_linux(system: str, tmp_path):
    command = [sys.executable, "-c", PROGRAM, system]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    reason = (
        "a buffer in a folder needs Linux, whose locks outlive the processes that hold them, but this is "
        f"{system}: keep the rows in memory, storage='host'."
    )
    names = "ReplayBuffer", "ReplayBuffer.open", "attach"
    assert result.stdout.splitlines() == ["9", *(f"For '{name}', {reason}" for name in names)]
    assert not list(tmp_path.iterdir())
