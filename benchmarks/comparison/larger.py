"""A buffer of one library three times as large as the memory that its process may use: filled once, then drawn from.

    python -m comparison.larger folder|memory|unlimited|torchrl|rlox

Rows of four Atari frames are inserted by 64 and drawn at random by 32, by a process in a memory cgroup (version 1; it
must be writable). The limit comes on top of the memory that the process has when its libraries are loaded. Files are in
the working directory, which should be on a disk. A buffer in memory, whose process must be killed, shows that the limit
holds.
"""

import contextlib
import importlib
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .answering import Library, NotOfferedError, figures
from .cases import Schema, row_bytes
from .rounds import Question

ATARI: Schema = {
    "observation": ((4, 84, 84), "uint8"),
    "action": ((), "int32"),
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
}
BATCH, SAMPLE = 64, 32
LIMIT = 512 << 20
ROWS = math.ceil(3 * LIMIT / row_bytes(ATARI) / BATCH) * BATCH
GROUPS = Path("/sys/fs/cgroup/memory")
QUESTIONS = [Question("larger", "a buffer three times as large as the memory allowed", "", {})]

#: Inserts a batch of columns by name, and draws observations and actions.
Calls = tuple[Callable[[Mapping[str, np.ndarray]], Any], Callable[[], tuple[np.ndarray, np.ndarray]]]


class MemoryGroup:
    """A group of processes whose memory can be limited, with that of the files that they use."""

    def __init__(self) -> None:
        self.path = GROUPS / f"mindspore_replay_{os.getpid()}"

    def __enter__(self) -> "MemoryGroup":
        try:
            self.path.mkdir()
        except OSError as error:
            raise NotOfferedError(f"it needs a writable memory cgroup of version 1 in {GROUPS}: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        (self.path / "memory.force_empty").write_text("0")
        self.path.rmdir()

    def limit(self, size: int) -> None:
        """Limit the group to so many bytes, and count anew what it uses at most."""
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if (self.path / name).exists():
                (self.path / name).write_text(str(size))
        (self.path / "memory.max_usage_in_bytes").write_text("0")

    @property
    def most(self) -> int:
        return int((self.path / "memory.max_usage_in_bytes").read_text()) >> 20


def ours(folder: Path, storage: str = "") -> Calls:
    from mindspore_replay import ReplayBuffer

    shapes, types = map(list, zip(*ATARI.values()))
    storage = storage or str(folder / "rows")
    buffer = ReplayBuffer(SAMPLE, ROWS, shapes, types, names=list(ATARI), storage=storage)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        batch = buffer.sample()
        return batch[0].asnumpy(), batch[1].asnumpy()

    return buffer.insert, sample


def rlox(folder: Path) -> Calls:
    """A `MmapReplayBuffer`, which stores two observations a row as float32, and part of the rows in memory.

    To store the same bytes, four bytes of a row are one float32, and the halves of a row are the two observations.
    """
    import rlox

    half = int(np.prod(ATARI["observation"][0])) // 8
    buffer = rlox.MmapReplayBuffer(ROWS // 24, ROWS, half, 1, str(folder / "rows"))
    seed = iter(range(10**9))

    def insert(batch: Mapping[str, np.ndarray]) -> None:
        halves = batch["observation"].reshape(-1, 2, half * 4).swapaxes(0, 1)
        packed = [np.ascontiguousarray(half).reshape(-1).view(np.float32) for half in halves]
        scalars = (batch[name].astype(np.float32) for name in ("action", "reward", "terminated", "terminated"))
        buffer.push_batch(*packed, *scalars)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        batch = buffer.sample(SAMPLE, next(seed))
        return np.asarray(batch["obs"]).view(np.uint8), np.asarray(batch["actions"]).astype(np.int32)

    return insert, sample


def torchrl(folder: Path) -> Calls:
    from torchrl.data import LazyMemmapStorage, ReplayBuffer

    from .peers.torchrl import rows_of

    buffer = ReplayBuffer(storage=LazyMemmapStorage(ROWS, scratch_dir=folder / "rows"), batch_size=SAMPLE)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        batch = buffer.sample()
        return batch["observation"].numpy(), batch["action"].numpy()

    return lambda batch: buffer.extend(rows_of(batch)), sample


#: How a library's buffer is made, and the packages that are loaded before the limit is set.
LIBRARIES: dict[str, tuple[Callable[[Path], Calls], tuple[str, ...]]] = {
    "folder": (ours, ("mindspore_replay", "mindspore")),
    "memory": (lambda folder: ours(folder, "device"), ("mindspore_replay", "mindspore")),
    "unlimited": (lambda folder: ours(folder, "device"), ("mindspore_replay", "mindspore")),
    "torchrl": (torchrl, ("torchrl", "torch")),
    "rlox": (rlox, ("rlox",)),
}


def _heap() -> int:
    """Return the bytes of the process that belong to no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def fill(name: str, group: Path | None, folder: Path, seconds: float, pipe: Any) -> None:
    """Fill and draw in a process of its own; tell how much memory the libraries need, and each rate."""
    if group:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    make, packages = LIBRARIES[name]
    for package in packages:
        importlib.import_module(package)
    pipe.send(_heap())
    pipe.recv()  # the limit is set now
    insert, sample = make(folder)
    random = np.random.default_rng(0)
    batch: dict[str, np.ndarray] = {
        "observation": random.integers(0, 256, (BATCH, 4, 84, 84), np.uint8),
        "action": np.zeros(BATCH, np.int32),
        "reward": np.ones(BATCH, np.float32),
        "terminated": np.zeros(BATCH, bool),
    }
    numbers = batch["observation"].reshape(BATCH, -1)[:, :4].view(np.int32)  # each row carries its number twice
    start = time.perf_counter()
    for first in range(0, ROWS, BATCH):
        batch["action"][:] = numbers[:, 0] = np.arange(first, first + BATCH)
        insert(batch)
    pipe.send(ROWS / (time.perf_counter() - start))
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        observation, action = sample()
        found = np.ascontiguousarray(observation.reshape(SAMPLE, -1)[:, :4]).view(np.int32)[:, 0]
        if (found != action).any():
            raise SystemExit("a sample has rows that were not inserted")
        n += SAMPLE
    pipe.send(n / (time.perf_counter() - start))
    os._exit(0)  # without writing to the disk first: the folder is deleted


class Measured(Library):
    """Measures one of them, each time in a new process."""

    def __init__(self, name: str) -> None:
        self._name, self.packages = name, LIBRARIES[name][1]

    def measure(self, seconds: float) -> dict[str, float]:
        context = multiprocessing.get_context("spawn")
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".")))
            group = None if self._name == "unlimited" else stack.enter_context(MemoryGroup())
            here, there = context.Pipe()
            process = context.Process(target=fill, args=(self._name, group and group.path, folder, seconds, there))
            process.start()
            there.close()
            try:
                heap = here.recv()
                if group:
                    group.limit(heap + LIMIT)
                here.send(None)
                found = {"rows/s inserted": here.recv(), "rows/s sampled": here.recv()}
                process.join()
            except EOFError:
                process.join()
                most = f", at {group.most} MiB" if group else ""
                raise RuntimeError(f"its process ended with {process.exitcode}{most}") from None
            more = {"most MiB": group.most} if group else {}
            return {**found, "MiB of libraries": heap / 2**20, **more}


if __name__ == "__main__":
    figures(Measured(sys.argv[1]))
