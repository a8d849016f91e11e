"""torchrl: a `ReplayBuffer` of memory-mapped tensors."""

from pathlib import Path

import numpy as np
from torchrl.data import LazyMemmapStorage, ReplayBuffer

from ..peers.torchrl import rows_of
from .larger import SAMPLE, Insert, Sample, measure


def make(rows: int, folder: Path) -> tuple[Insert, Sample]:
    """Make the buffer."""
    buffer = ReplayBuffer(storage=LazyMemmapStorage(rows, scratch_dir=folder / "rows"), batch_size=SAMPLE)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        batch = buffer.sample()
        return batch["observation"].numpy(), batch["action"].numpy()

    return lambda batch: buffer.extend(rows_of(batch)), sample


if __name__ == "__main__":
    measure(make)
