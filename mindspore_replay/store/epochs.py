"""Epochs: each row once, in an order that is a keyed permutation of positions; csrc/core/epochs.h draws them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .random import random_bits

#: Rounds of a permutation.
ROUNDS = 8
#: Positions of an order that are computed together.
_AT_ONCE = 1 << 14
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


def order_of(key: int, size: int) -> Iterator[int]:
    """Iterate over the positions ``[0, size)`` in the order of a key."""
    bits = max(size - 1, 0).bit_length()
    mask, shift = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
    numbers = random_bits(key, np.arange(2 * ROUNDS))
    for begin in range(0, 1 << bits, _AT_ONCE):
        x = np.arange(begin, min(begin + _AT_ONCE, 1 << bits), dtype=np.uint64)
        for factor, term in zip(numbers[::2] | np.uint64(1), numbers[1::2]):
            x = (x * factor + term) & mask
            x ^= x >> shift
        yield from x[x < size].tolist()


def check_epoch(cls_name: str, capacity: int, epoch: np.ndarray) -> None:
    """Raise a ValueError if the state of an epoch is impossible."""
    if (epoch[FIRST:] < 0).any() or epoch[SIZE] > capacity or epoch[POSITION] > 2 * capacity:
        raise ValueError(
            f"For '{cls_name}', 'epoch' must be a key, a serial number, at most {capacity} rows, a position and a "
            f"number of epochs, but got {epoch.tolist()}."
        )
