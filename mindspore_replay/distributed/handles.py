"""Handles that identify a row of one of several shards."""

import numpy as np

_SERIAL_BITS, _LIFE_BITS, _SHARD_BITS = 40, 11, 12
MOST_SHARDS = 1 << _SHARD_BITS
LIVES = 1 << _LIFE_BITS


def joined(shard: int, life: int, handles: np.ndarray) -> np.ndarray:
    """Convert handles of a shard's buffer to handles of the whole; invalid ones stay as they are.

    Args:
        shard (int): Number of the shard.
        life (int): Number of restarts of its process so far: a handle is valid for one process only.
        handles (numpy.ndarray): Its buffer's handles. Shape ``[n]``, int64.

    Returns:
        numpy.ndarray: Shape ``[n]``, int64. For shard 0 in its first process, equal to `handles`.

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
    """Split handles into shard, process number and the handle there; the shard is -1 for an invalid handle.

    Args:
        handles (numpy.ndarray): Handles of the whole. Shape ``[n]``, int64.

    Returns:
        tuple[numpy.ndarray, ...]: Three arrays ``[n]``, int64.
    """
    place = handles >> _SERIAL_BITS
    shard = np.where(handles < 0, -1, place >> _LIFE_BITS)
    return shard, place & (LIVES - 1), handles & ((1 << _SERIAL_BITS) - 1)
