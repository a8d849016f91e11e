"""Checks of what users pass, and of what a method needs in a buffer."""

import contextlib
import inspect
import math
import operator
import os
import stat
import warnings
from typing import Any

import numpy as np

#: The largest value of a learner's clock.
LAST_CLOCK = 2**62

#: Most rows of a buffer, since its cursors are int32.
MAX_CAPACITY = 2**31 - 1


def warn_caller(message: str) -> None:
    """Give a RuntimeWarning at the line outside of this package that led here."""
    frame: Any = inspect.currentframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("mindspore_replay", "importlib"):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})  # of what has been shown
    warnings.warn_explicit(message, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno, registry=registry)


def check_no_pipe(function: str, path: str | os.PathLike[str]) -> None:
    """Raise a ValueError for a pipe, a socket or a device: opening or reading it could wait forever."""
    with contextlib.suppress(OSError):  # as opening it will say
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ValueError(
                f"For '{function}', 'path' must name a file on a disk, but {os.fspath(path)} is a pipe, a socket or a "
                "device: write what comes from it to a file first."
            )


def need(ok: object, error: type[Exception], cls_name: str, rule: str, got: object) -> None:
    """Raise an error with the rule and what came instead, unless it is `ok`."""
    if not ok:
        raise error(f"For '{cls_name}', {rule}, but got {got!r}.")


def check_size(cls_name: str, argument: str, value: object, maximum: int = MAX_CAPACITY, minimum: int = 1) -> int:
    """Check an int to be in ``[minimum, maximum]``, and return it, else raise a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"For '{cls_name}', '{argument}' must be an int, but got {value!r} ({type(value).__name__}).")
    if not minimum <= value <= maximum:
        raise ValueError(f"For '{cls_name}', '{argument}' must be in [{minimum}, {maximum}], but got {value}.")
    return int(value)


def check_number(cls_name: str, argument: str, value: object, minimum: float = 0.0, maximum: float = 1.0) -> float:
    """Check a number to be in ``[minimum, maximum]``, and return it, else raise a TypeError or ValueError."""
    if not minimum <= (number := any_number(cls_name, argument, value)) <= maximum:
        raise ValueError(f"For '{cls_name}', '{argument}' must be in [{minimum:g}, {maximum:g}], but got {value}.")
    return number


def any_number(cls_name: str, argument: str, value: object) -> float:
    """Return a number, also NaN or infinity. Raise a TypeError for any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"For '{cls_name}', '{argument}' must be a number, but got {value!r} ({type(value).__name__}).")
    return float(value)


def seconds_of(timeout: object, cls_name: str) -> float | None:
    """Return a timeout as seconds, ``None`` for no limit. Raise a TypeError or ValueError if it is not valid."""
    if timeout is None or timeout == math.inf:
        return None
    if not (seconds := any_number(cls_name, "timeout", timeout)) >= 0:
        raise ValueError(f"For '{cls_name}', 'timeout' must be None or at least 0 seconds, but got {timeout!r}.")
    return seconds


def one_int(cls_name: str, argument: str, value: np.ndarray) -> int:
    """Return the only element of an array of ints, else raise a TypeError or ValueError."""
    if value.shape not in ((), (1,)) or value.dtype.kind not in "iu":
        raise TypeError(
            f"For '{cls_name}', '{argument}' must be an int or a Tensor [] of ints, but got a Tensor "
            f"{list(value.shape)} of {value.dtype.name}."
        )
    return int(value.reshape(())[()])


def check_bool(cls_name: str, argument: str, value: object) -> bool:
    """Check that a value is a bool, and return it, else raise a TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"For '{cls_name}', '{argument}' must be a bool, but got {value!r} ({type(value).__name__}).")
    return value


def check_choice(cls_name: str, argument: str, value: object, *choices: str) -> None:
    """Raise a ValueError unless a value is one of two or more."""
    if value not in choices:
        raise ValueError(
            f"For '{cls_name}', '{argument}' must be {' or '.join(map(repr, choices))}, but got {value!r}."
        )


def check_seed(cls_name: str, seed: object) -> int:
    """Check that a seed is in [0, 2^64), or draw one from NumPy's generator, which ``mindspore.set_seed`` seeds."""
    if seed is None:
        return int(np.random.randint(2**63 - 1, dtype=np.int64))
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"For '{cls_name}', 'seed' must be an int or None, but got {seed!r} ({type(seed).__name__}).")
    if not 0 <= seed < 2**64:
        raise ValueError(f"For '{cls_name}', 'seed' must be in [0, 2^64), but got {seed}.")
    return int(seed)


def no_room(cls_name: str, rows: int, room: int, capacity: int, pending: str, items: str = "") -> RuntimeError:
    """Return the error for an insertion of more rows than there is room for, and a note on rows that are pending."""
    of_items = items and rows <= room
    free = f"room for too few items, {items} for the next row" if of_items else f"{room} free of capacity={capacity}"
    return RuntimeError(
        f"For '{cls_name}', there must be room for {rows} {'row' if rows == 1 else 'rows'}, but got {free}, since rows "
        "that were not sampled yet may not be evicted: sample first, pass a timeout to wait for room, or make it with "
        f"when_full='evict'.{pending}"
    )


def check_positions(cls_name: str, positions: np.ndarray, count: int) -> None:
    """Raise an IndexError unless a row is stored at each position."""
    outside = positions[(positions < -count) | (positions >= count)]
    if outside.size and not count:
        raise IndexError(f"For '{cls_name}', 'index' must be that of a stored row, and none is stored yet.")
    if outside.size:
        raise IndexError(
            f"For '{cls_name}', 'index' must be in [-{count}, {count}), since {count} rows are "
            f"stored, but got {outside.flat[0]}."
        )


def range_of(cls_name: str, sample_range: Any, last: int) -> tuple[int, int]:
    """Return a slice ``(start, stop)`` as ints up to `last`. Raise a TypeError for anything else."""
    try:
        start, stop = sample_range
        start = 0 if start is None else operator.index(start)
        stop = last if stop is None else operator.index(stop)
    except (TypeError, ValueError):
        raise TypeError(
            f"For '{cls_name}', 'sample_range' must be (start, stop), each an int or None, but got {sample_range!r}."
        ) from None
    return max(-last, min(start, last)), max(-last, min(stop, last))
