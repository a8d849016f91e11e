"""Inserts CartPole rows and brings them to the disk after each so many, in torchrl or dm-reverb.

    python durable.py torchrl|reverb FOLDER ROWS SECONDS

Neither waits for the disk by itself: torchrl's `dumps` and dm-reverb's `checkpoint` leave their files in the system's
memory. So each is followed by `fsync` of the files that it wrote. Prints rows a second, and milliseconds of that, as
JSON.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CAPACITY = 100_000
ROW = {
    "observation": np.zeros(4, np.float32),
    "action": np.int32(1),
    "reward": np.float32(1),
    "next_observation": np.zeros(4, np.float32),
    "terminated": np.bool_(False),
}


def torchrl(folder: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return functions that insert a row, and write the buffer to files."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyMemmapStorage, ReplayBuffer

    buffer = ReplayBuffer(storage=LazyMemmapStorage(CAPACITY, scratch_dir=folder / "rows"), batch_size=1)
    row = TensorDict({name: torch.as_tensor(value) for name, value in ROW.items()}, [])
    return lambda: buffer.add(row), lambda: buffer.dumps(folder / "dump")


def reverb(folder: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return functions that insert a row, and write a checkpoint."""
    import reverb

    selectors, limiter = (reverb.selectors.Uniform(), reverb.selectors.Fifo()), reverb.rate_limiters.MinSize(1)
    table = reverb.Table("table", *selectors, CAPACITY, limiter)
    checkpointer = reverb.platform.checkpointers_lib.DefaultCheckpointer(str(folder))
    server = reverb.Server([table], checkpointer=checkpointer)
    client = server.localhost_client()
    writer = client.trajectory_writer(1)

    def insert() -> None:
        writer.append(ROW)
        writer.create_item("table", 1.0, {name: column[-1:] for name, column in writer.history.items()})

    def checkpoint() -> None:
        writer.flush()
        client.checkpoint()

    insert.server = server  # type: ignore[attr-defined]  # as long as it is used
    return insert, checkpoint


def main(kind: str, folder: Path, each: int, longest: float) -> tuple[float, float]:
    """Return rows a second with all files on the disk after each so many rows, and milliseconds of that."""
    insert, write = {"torchrl": torchrl, "reverb": reverb}[kind](folder)
    rows, spent, begin = 0, 0.0, time.perf_counter()
    while rows == 0 or time.perf_counter() - begin < longest:
        for _ in range(each):
            insert()
        rows += each
        before = time.perf_counter()
        since = time.time() - 60
        write()
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_mtime > since:
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        spent += time.perf_counter() - before
    return rows / (time.perf_counter() - begin), 1e3 * spent / (rows / each)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
    sys.stdout.flush()
    os._exit(0)
