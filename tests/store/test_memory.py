"""The memory that a process may use."""

from pathlib import Path
from typing import Any

import pytest

from mindspore_replay.store.kernels import memory

GIB = 1 << 30
TREES: dict[str, tuple[str, dict[str, str], int]] = {
    "none": ("", {}, 64 * GIB),
    "version 2": ("0::/user/job\n", {"/sys/fs/cgroup/user/job/memory.max": "1073741824\n"}, GIB),
    "no limit": ("0::/user\n", {"/sys/fs/cgroup/user/memory.max": "max\n"}, 64 * GIB),
    "in a container": ("0::/\n", {"/sys/fs/cgroup/memory.max": "2147483648\n"}, 2 * GIB),
    "version 1": (
        "5:memory:/job\n4:cpu,cpuacct:/\n",
        {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "3221225472\n"},
        3 * GIB,
    ),
    "larger than the machine": ("0::/\n", {"/sys/fs/cgroup/memory.max": str(99 * GIB)}, 64 * GIB),
}


@pytest.mark.parametrize("name", TREES)
def test_the_limit_is_that_of_the_control_group(name: str, monkeypatch: pytest.MonkeyPatch):
    groups, files, expected = TREES[name]
    files = {"/proc/self/cgroup": groups, **files}

    def read(path: Path, **_: Any) -> str:
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(memory.os, "sysconf", {"SC_PHYS_PAGES": 64 * GIB >> 12, "SC_PAGE_SIZE": 4096}.get)
    assert memory.memory_limit() == expected
