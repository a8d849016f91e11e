"""Epochs: each row once, in an order that is a keyed permutation of positions; csrc/core/epochs.h draws them."""

from typing import NamedTuple

import numpy as np

#: Rounds of a permutation.
ROUNDS = 8
#: Elements of the state `epoch`: the key of the order, the serial number of the oldest row when the epoch began, the
#: rows stored then (0 if there is no epoch), the position up to which rows were taken, and the epochs so far.
KEY, FIRST, SIZE, POSITION, BEGUN = range(5)


class EpochRule(NamedTuple):
    """Rule for the batches of an epoch.

    Args:
        pad (bool): Whether the last batch of an epoch may have fewer rows.
        rank (int): Number of this learner.
        world (int): Learners that share out each batch.
    """

    pad: bool
    rank: int
    world: int

    def array(self) -> np.ndarray:
        """Return the rule as an argument of kernels. Shape ``[3]``, int64."""
        return np.array(self, np.int64)

    def batches(self, rows: int, n: int) -> int:
        """Return the number of batches of n rows for each learner in an epoch of so many rows."""
        whole, rest = divmod(rows, n * self.world)
        return whole + (self.pad and rest > 0)


def check_epoch(cls_name: str, capacity: int, epoch: np.ndarray) -> None:
    """Raise a ValueError if the state of an epoch is impossible."""
    if (epoch[FIRST:] < 0).any() or epoch[SIZE] > capacity or epoch[POSITION] > 2 * capacity:
        raise ValueError(
            f"For '{cls_name}', 'epoch' must be a key, a serial number, at most {capacity} rows, a position and a "
            f"number of epochs, but got {epoch.tolist()}."
        )
