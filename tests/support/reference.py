"""Slow twins of the operators, in the plainest form: lists of rows, Python ints, one row at a time."""

from typing import Any

import numpy as np

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """SplitMix64's mixing function, on Python ints."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def signed(value: int) -> int:
    """Return the int64 with these 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def initial_key(seed: int) -> int:
    """Return the key of a seed: SplitMix64's first number for it."""
    return mix((seed + _GAMMA) & _MASK)


def random_bits(key: int, counter: int) -> int:
    """Return number `counter` of the sequence `key`, unsigned."""
    return mix((key + (counter + 1) * _GAMMA) & _MASK)


def below(bits: int, n: int) -> int:
    """Map 64 unsigned bits to ``[0, n)``."""
    return bits * n // 2**64


def draw_rows(key: int, counter: int, rows: range, draws: int, replace: bool) -> list[int]:
    """Draw `draws` members of `rows`: independent, or by a Fisher-Yates shuffle that stores only moved cells."""
    cells: dict[int, int] = {}
    drawn = []
    for i in range(draws):
        bits = random_bits(key, counter + i)
        if replace:
            drawn.append(rows[below(bits, len(rows))])
            continue
        j = i + below(bits, len(rows) - i)
        drawn.append(rows[cells.get(j, j)])
        cells[j] = cells.get(i, i)
    return drawn


class ReferenceRing:
    """A ring of rows as a list, with the cursors and the draws of `ReplayBuffer`.

    Args:
        capacity (int): Maximum number of rows.
        seed (int): Start of the random sequence.
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self.rows: list[Any] = []
        self.slots: list[Any] = [None] * capacity
        self.inserted = 0
        self.base = 0
        self.key = initial_key(seed)
        self.counter = 0

    def insert(self, rows: list[Any]) -> None:
        """Append rows, one by one."""
        for row in rows:
            self.slots[(self.inserted - self.base) % self.capacity] = row
            self.inserted += 1
            self.rows.append(row)
            if len(self.rows) > self.capacity:
                del self.rows[0]

    def reset(self) -> None:
        """Remove all rows."""
        self.rows = []
        self.base = self.inserted

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def head(self) -> int:
        return (self.inserted - self.base) % self.capacity if self.size == self.capacity else 0

    @property
    def serials(self) -> list[int]:
        return [self.inserted, self.base]

    @property
    def random_state(self) -> list[int]:
        return [signed(self.key), self.counter]

    def get_item(self, index: int) -> Any:
        """Return the row at a logical position."""
        if not -self.size <= index < self.size:
            raise IndexError(index)
        return self.rows[index]

    def draw_slots(
        self, draws: int, replace: bool, ordered: bool, sample_range: tuple[int | None, int | None] = (None, None)
    ) -> list[int]:
        """Return the slots of a sample; advances the random sequence."""
        rows = range(self.size)[slice(*sample_range)]
        if len(rows) < draws:
            raise RuntimeError(len(rows))
        drawn = draw_rows(self.key, self.counter, rows, draws, replace)
        self.counter += draws
        if not ordered and len(rows) == self.capacity:
            return drawn
        return [(self.head + row) % self.capacity for row in drawn]

    def sample(self, draws: int, replace: bool, ordered: bool, sample_range: Any = (None, None)) -> list[Any]:
        """Return the rows of a sample; advances the random sequence."""
        return [self.slots[slot] for slot in self.draw_slots(draws, replace, ordered, sample_range)]


def stack(rows: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Return rows ``[*F]`` as columns ``[n, *F]``."""
    return tuple(np.stack(column) for column in zip(*rows, strict=True))
