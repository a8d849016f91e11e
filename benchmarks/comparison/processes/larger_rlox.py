"""rlox: a `MmapReplayBuffer`, which stores two observations a row as float32, and part of the rows in memory.

To store the same bytes, four bytes of a row are one float32, and the halves of a row are the two observations.
"""

from pathlib import Path

import numpy as np
import rlox

from .larger import ATARI, SAMPLE, Insert, Rows, Sample, measure

HALF = int(np.prod(ATARI["observation"][0])) // 8
#: The part of the rows that it keeps in memory.
HOT = 1 / 24


def make(rows: int, folder: Path) -> tuple[Insert, Sample]:
    """Make the buffer."""
    buffer = rlox.MmapReplayBuffer(int(rows * HOT), rows, HALF, 1, str(folder / "rows"))
    seed = iter(range(10**9))

    def insert(batch: Rows) -> None:
        halves = batch["observation"].reshape(-1, 2, HALF * 4).swapaxes(0, 1)
        packed = [np.ascontiguousarray(half).reshape(-1).view(np.float32) for half in halves]
        scalars = (batch[name].astype(np.float32) for name in ("action", "reward", "terminated", "terminated"))
        buffer.push_batch(*packed, *scalars)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        batch = buffer.sample(SAMPLE, next(seed))
        return np.asarray(batch["obs"]).view(np.uint8), np.asarray(batch["actions"]).astype(np.int32)

    return insert, sample


if __name__ == "__main__":
    measure(make)
