"""This project: a buffer in a folder, or with the argument "memory" in memory."""

import sys
from pathlib import Path

import numpy as np

from mindspore_replay import ReplayBuffer

from .larger import ATARI, SAMPLE, Insert, Sample, measure


def make(rows: int, folder: Path) -> tuple[Insert, Sample]:
    """Make the buffer."""
    storage = "device" if sys.argv[4:] == ["memory"] else folder / "rows"
    shapes, types = map(list, zip(*ATARI.values()))
    buffer = ReplayBuffer(SAMPLE, rows, shapes, types, names=list(ATARI), storage=storage)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        batch = buffer.sample()
        return batch[0].asnumpy(), batch[1].asnumpy()

    return buffer.insert, sample


if __name__ == "__main__":
    measure(make)
