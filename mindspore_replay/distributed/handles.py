"""Handles that name a row of one of several shards."""

import numpy as np

_SERIAL_BITS, _LIFE_BITS, _SHARD_BITS = 40, 11, 12
MOST_SHARDS = 1 << _SHARD_BITS
LIVES = 1 << _LIFE_BITS


def joined(shard: int, life: int, handles: np.ndarray) -> np.ndarray:
    """Return handles of a shard's buffer as those of the whole; what names no row stays as it is.

    Args:
        shard (int): Number of the shard.
        life (int): How often its process was seen to begin anew: a handle is that of a row of one life.
        handles (numpy.ndarray): Its buffer's handles. Shape ``[n]``, int64.

    Returns:
        numpy.ndarray: Shape ``[n]``, int64. Those of shard 0 in its first life are its buffer's own.

    Raises:
        OverflowError: If the shard has stored 2^40 rows.
    """
    if handles.max(initial=0) >> _SERIAL_BITS:
        raise OverflowError(
            f"For 'ShardedReplay', a shard may store 2^{_SERIAL_BITS} rows in its life, but shard {shard} stored more."
        )
    place = ((shard << _LIFE_BITS) | (life % LIVES)) << _SERIAL_BITS
    return np.where(handles < 0, handles, handles | place)


def parted(handles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shard of each handle, the life, and the handle there; shard -1 for what names no row.

    Args:
        handles (numpy.ndarray): Handles of the whole. Shape ``[n]``, int64.

    Returns:
        tuple[numpy.ndarray, ...]: Three of shape ``[n]``, int64.
    """
    place = handles >> _SERIAL_BITS
    shard = np.where(handles < 0, -1, place >> _LIFE_BITS)
    return shard, place & (LIVES - 1), handles & ((1 << _SERIAL_BITS) - 1)
