"""Late columns, which are written after the insertion: until then a row is pending, and not drawn."""

import numpy as np

#: Most late columns of a buffer.
MOST_LATE = 16

#: Use counts of pending rows begin here, with a bit for each late column that is missing.
PENDING = -(2**31)

#: The largest use count; more deliveries are not counted. The complement of a removed row's is then no pending one.
MOST_USES = ~(PENDING + (1 << MOST_LATE))

#: Beside the bits of late columns, for an update to count invalid handles.
COUNTS_INVALID = 1 << 32


def pending(use_counts: np.ndarray) -> np.ndarray:
    """Return whether rows with these use counts wait for late columns. Shape ``[n]``, bool."""
    return use_counts < PENDING + (1 << MOST_LATE)
