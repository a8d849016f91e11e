"""The order of an epoch, and its batches, one row after the other."""

from collections.abc import Callable

from reference import random_bits

ROUNDS = 8


def order_of(key: int, size: int) -> list[int]:
    """Return the rows of an epoch in their order."""
    bits = max(size - 1, 0).bit_length()
    mask, rows = (1 << bits) - 1, []
    for position in range(1 << bits):
        x = position
        for i in range(ROUNDS):
            x = (x * (random_bits(key, 2 * i) | 1) + random_bits(key, 2 * i + 1)) & mask
            x ^= x >> (bits + 1) // 2
        if x < size:
            rows.append(x)
    return rows


class EpochTwin:
    """The epochs of one learner.

    Args:
        n (int): Rows of a batch.
        pad (bool): Whether the last batch may be short.
        rank (int): Number of the learner.
        world (int): Number of learners.
        order (Callable): Returns the rows of an epoch in their order, given its key and its size.
    """

    def __init__(
        self,
        n: int,
        pad: bool = False,
        rank: int = 0,
        world: int = 1,
        order: Callable[[int, int], list[int]] = order_of,
    ) -> None:
        self.n, self.pad, self.rank, self.world, self.order = n, pad, rank, world, order
        self.left: list[int] = []
        self.size = 0  # rows stored when the epoch began

    def batch(self, key: int, stored: list[int], valid: set[int]) -> list[int] | None:
        """Return the next batch, serial numbers; None if there are too few rows.

        Args:
            key (int): Key of the order if an epoch begins.
            stored (list[int]): The serial numbers of all rows, from the oldest on.
            valid (set[int]): Those that can be drawn.
        """
        for begins in (False, True):
            left = [stored[row] for row in self.order(key, len(stored))] if begins else self.left
            batch = [serial for serial in left if serial in valid][: self.n * self.world]
            if len(batch) == self.n * self.world or (self.pad and batch):
                is_last = len(batch) < self.n * self.world
                self.left = [] if is_last else left[left.index(batch[-1]) + 1 :]
                self.size = len(stored) if begins else self.size
                return batch[self.rank :: self.world]
        return None
