"""The state of the counter-based random sequence in csrc/core/random.h and ops/random.py."""

import numpy as np

GAMMA = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_MASK = (1 << 64) - 1

#: The range of all rows, as an argument `sample_range`.
ALL_ROWS = (0, (1 << 63) - 1)


def signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit number."""
    return value - (1 << 64) if value >> 63 else value


def random_bits(key: int, counters: np.ndarray) -> np.ndarray:
    """Return these numbers of the sequence of a key, 64 random bits each, uint64."""
    z = np.uint64(key & _MASK) + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA)
    for shift, factor in MIX:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z


def initial_state(seed: int) -> np.ndarray:
    """Return the state of a generator with this seed, int64 ``[2]``: a key mixed from the seed, and counter 0."""
    key = (seed + GAMMA) & _MASK
    for shift, factor in MIX:
        key = ((key ^ (key >> shift)) * factor) & _MASK
    return np.array([signed(key), 0], np.int64)
