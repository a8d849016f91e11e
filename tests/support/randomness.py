"""The random numbers of a buffer, and what is drawn by them, on Python numbers."""

from collections.abc import Sequence

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
ROUNDS = 8


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


def unit(bits: int) -> float:
    """Map 64 unsigned bits to ``(0, 1]``."""
    return ((bits >> 11) + 1) * 2.0**-53


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


def draw_slot(weights: Sequence[float], target: float) -> int:
    """Return the first place whose prefix sum, itself included, reaches the target."""
    cumulative = 0.0
    for place, weight in enumerate(weights):
        cumulative += weight
        if target <= cumulative:
            return place
    raise ValueError(target)


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
