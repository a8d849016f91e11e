"""Epochs: each row once, in an order that is a keyed permutation of positions. Csrc/core/epochs.h draws them."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ..base.random import random_bits
from ..base.structs import EPOCH

#: Rounds of a permutation.
ROUNDS = 8
#: Positions of an order that are computed together.
_AT_ONCE = 1 << 14
#: Elements of the state `epoch`: the key of the order, the serial number of the oldest row when the epoch began, the
#: rows stored then (0 if there is no epoch), the position up to which rows were taken, and the epochs so far.
KEY, FIRST, SIZE, POSITION, BEGUN = map(EPOCH.index, EPOCH)
#: The arrays of a state that `has_batch` reads, if there are such.
OF_BATCHES = ("epoch", "serials", "head", "count", "weights")


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


def _orders(key: int, size: int, begin: int, at_once: int) -> Iterator[np.ndarray]:
    """Iterate over the order from a position on, in arrays of at most `at_once`, int64."""
    bits = max(size - 1, 0).bit_length()
    mask, shift = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
    numbers = random_bits(key, np.arange(2 * ROUNDS))
    for first in range(begin, 1 << bits, at_once):
        x = np.arange(first, min(first + at_once, 1 << bits), dtype=np.uint64)
        for factor, term in zip(numbers[::2] | np.uint64(1), numbers[1::2]):
            x = (x * factor + term) & mask
            x ^= x >> shift
        yield x[x < size].astype(np.int64)


def progress(arrays: Mapping[str, np.ndarray]) -> list[list[int]]:
    """Return numbers of a buffer that change with each sample, insertion and removal: first the state of the epoch."""
    return [arrays[name].tolist() for name in ("epoch", "serials", "counts") if name in arrays]


def has_batch(rule: EpochRule | None, n: int, capacity: int, arrays: Mapping[str, np.ndarray]) -> bool:
    """Return True if the epoch in progress has another batch of n rows for each learner. Cost O(n), as a sample."""
    assert rule is not None
    epoch, weights = arrays["epoch"], arrays.get("weights")
    head, count, inserted = (int(arrays[name].flat[0]) for name in ("head", "count", "serials"))
    left = 1 if rule.pad else n * rule.world
    for rows in _orders(int(epoch[KEY]), int(epoch[SIZE]), int(epoch[POSITION]), min(2 * left + 64, _AT_ONCE)):
        behind = inserted - epoch[FIRST] - rows
        stored = behind <= count
        if weights is not None:
            stored &= weights[(head + count - behind) % capacity] > 0
        left -= np.count_nonzero(stored)
        if left <= 0:
            return True
    return False


def check_epoch(cls_name: str, capacity: int, epoch: np.ndarray) -> None:
    """Raise a ValueError if the state of an epoch is impossible."""
    if (epoch[FIRST:] < 0).any() or epoch[SIZE] > capacity or epoch[POSITION] > 2 * capacity:
        raise ValueError(
            f"For '{cls_name}', 'epoch' must be a key, a serial number, at most {capacity} rows, a position and a "
            f"number of epochs, but got {epoch.tolist()}."
        )
