"""torchrl: a shared `ReplayBuffer` of memory-mapped tensors in /dev/shm, passed to other processes."""

import contextlib
import tempfile
from collections.abc import Iterator

import torch
from torchrl.data import LazyMemmapStorage, ReplayBuffer

from ..cases import CARTPOLE, single_rows
from ..peers.torchrl import dtypes_of, one_row
from .team import CAPACITY, Held, Team, Work, inserting, serve


def make(buffer: ReplayBuffer) -> Work:
    """Use the buffer that the learner passed."""
    torch.set_num_threads(1)
    dtypes = dtypes_of(CARTPOLE)
    return inserting(lambda row: buffer.add(one_row(row, dtypes)))


@contextlib.contextmanager
def hold() -> Iterator[Held]:
    """Make the buffer."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as parent:
        storage = LazyMemmapStorage(CAPACITY, scratch_dir=f"{parent}/rows")
        buffer = ReplayBuffer(storage=storage, batch_size=64, shared=True)
        buffer.add(one_row(single_rows(CARTPOLE, 1)[0], dtypes_of(CARTPOLE)))  # makes the files
        yield Team(make, buffer), lambda: len(buffer)


if __name__ == "__main__":
    serve(["torchrl", "tensordict", "torch", "numpy"], hold)
