"""The slots of a ring's rows."""

import numpy as np

from .types import Arrays


def stored_slots(state: Arrays, capacity: int, newest: int | None = None) -> np.ndarray:
    """Return the slots of all rows or of the newest ones, the oldest first. Shape ``[n]``, int64."""
    count = int(state["count"])
    first = 0 if newest is None else count - min(count, newest)
    return (int(state["head"]) + np.arange(first, count)) % capacity
