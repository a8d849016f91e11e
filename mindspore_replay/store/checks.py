"""Checks of numbers passed by users."""

from typing import Any

import numpy as np

#: Most rows of a buffer, since its cursors are int32.
MAX_CAPACITY = 2**31 - 1


def check_size(cls_name: str, argument: str, value: Any, maximum: int = MAX_CAPACITY, minimum: int = 1) -> int:
    """Check an int to be in ``[minimum, maximum]``, and return it; else raise a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"For '{cls_name}', '{argument}' must be an int, but got {value!r} ({type(value).__name__}).")
    if not minimum <= value <= maximum:
        raise ValueError(f"For '{cls_name}', '{argument}' must be in [{minimum}, {maximum}], but got {value}.")
    return int(value)


def check_number(cls_name: str, argument: str, value: Any, minimum: float = 0.0, maximum: float = 1.0) -> float:
    """Check a number to be in ``[minimum, maximum]``, and return it; else raise a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"For '{cls_name}', '{argument}' must be a number, but got {value!r} ({type(value).__name__}).")
    if not minimum <= value <= maximum:
        raise ValueError(f"For '{cls_name}', '{argument}' must be in [{minimum:g}, {maximum:g}], but got {value}.")
    return float(value)


def one_int(cls_name: str, argument: str, value: np.ndarray) -> int:
    """Return the only element of an array of ints; else raise a TypeError or ValueError."""
    if value.shape not in ((), (1,)) or value.dtype.kind not in "iu":
        raise TypeError(
            f"For '{cls_name}', '{argument}' must be an int or a Tensor [] of ints, but got a Tensor "
            f"{list(value.shape)} of {value.dtype.name}."
        )
    return int(value.reshape(())[()])


def check_bool(cls_name: str, argument: str, value: Any) -> bool:
    """Check that a value is a bool, and return it; else raise a TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"For '{cls_name}', '{argument}' must be a bool, but got {value!r} ({type(value).__name__}).")
    return value


def check_seed(cls_name: str, seed: Any) -> int:
    """Check a seed to be in [0, 2^64), or take one from NumPy's generator, which ``mindspore.set_seed`` seeds."""
    if seed is None:
        return int(np.random.randint(2**63 - 1, dtype=np.int64))
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"For '{cls_name}', 'seed' must be an int or None, but got {seed!r} ({type(seed).__name__}).")
    if not 0 <= seed < 2**64:
        raise ValueError(f"For '{cls_name}', 'seed' must be in [0, 2^64), but got {seed}.")
    return int(seed)
