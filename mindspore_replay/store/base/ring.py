"""The slots of a ring's rows.

The oldest row need not be in slot 0 of a ring that is not full: insertions evict rows for their items, and one whose
process died may have evicted rows for others that are not there.
"""

import numpy as np

from .types import Arrays


def stored_slots(state: Arrays, capacity: int, newest: int | None = None) -> np.ndarray:
    """Return the slots of all rows or of the newest ones, the oldest first. Shape ``[n]``, int64."""
    count = int(state["count"])
    first = 0 if newest is None else count - min(count, newest)
    return (int(state["head"]) + np.arange(first, count)) % capacity


def stored_spans(state: Arrays, capacity: int) -> tuple[slice, slice]:
    """Return the slots of all rows, the oldest first, as two slices: up to the ring's end, and from its first slot."""
    head, count = int(state["head"]), int(state["count"])
    return slice(head, min(head + count, capacity)), slice(0, max(head + count - capacity, 0))
