"""Converts arguments other than rows to arrays for kernels; raises a TypeError or ValueError for invalid ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .episodes import END, FINAL
from .schema import Schema, is_tensor

_INFINITY = np.float32(np.inf).view(np.uint32)


def as_array(value: Any) -> np.ndarray:
    """Return an array, a Tensor, or numbers as an array."""
    return value.asnumpy() if is_tensor(value) else np.asarray(value)


def as_handles(cls_name: str, indices: Any) -> np.ndarray:
    """Return handles as int64 ``[]`` or ``[n]``."""
    handles = as_array(indices)
    if handles.dtype.kind not in "iu":
        raise TypeError(f"For '{cls_name}', 'indices' must hold ints, but got {handles.dtype.name}.")
    if handles.ndim > 1 or handles.size == 0:
        raise ValueError(
            f"For '{cls_name}', 'indices' must have shape [] or [n], n at least 1, but got {list(handles.shape)}."
        )
    return np.ascontiguousarray(handles, np.int64).reshape(handles.shape)


def as_priority(cls_name: str, priority: Any) -> np.ndarray:
    """Return priorities as float32 ``[]`` or ``[n]``; raise a ValueError if one is negative, NaN or infinite."""
    given = as_array(priority)
    if given.dtype.kind not in "iuf" and given.dtype.name != "bfloat16":
        raise TypeError(f"For '{cls_name}', a priority must be a number or hold numbers, but got {given.dtype.name}.")
    if given.ndim > 1 or given.size == 0:
        raise ValueError(f"For '{cls_name}', priorities must have shape [] or [n], but got {list(given.shape)}.")
    if given.dtype != np.float32:
        with np.errstate(over="ignore"):
            given = given.astype(np.float32)
    given = np.asarray(given, order="C")
    # As unsigned ints, the bits of finite numbers >= 0 are smaller than those of infinity; all others are larger.
    if given.view(np.uint32).max() >= _INFINITY:
        bad = given[~(np.isfinite(given) & (given >= 0))]
        if bad.size:
            raise ValueError(f"For '{cls_name}', a priority must be finite and at least 0, but got {bad[0]}.")
    return given


def as_versions(cls_name: str, version: Any) -> np.ndarray:
    """Return versions as int64 ``[]`` or ``[n]``."""
    given = as_array(version)
    if given.dtype.kind not in "iu":
        raise TypeError(f"For '{cls_name}', 'version' must be an int or hold ints, but got {given.dtype.name}.")
    if given.ndim > 1 or given.size == 0:
        raise ValueError(f"For '{cls_name}', 'version' must have shape [] or [n], but got {list(given.shape)}.")
    return np.ascontiguousarray(given, np.int64).reshape(given.shape)


def bad_version(cls_name: str, versions: np.ndarray, now: int) -> ValueError:
    """Return the error for versions of which one is negative, or newer than the learner's clock."""
    bad = versions[(versions < 0) | (versions > now)]
    return ValueError(
        f"For '{cls_name}', a version must be a value that the learner's clock has had, from 0 to {now}, but got "
        f"{bad[0] if bad.size else versions.tolist()}. Nothing was stored."
    )


def as_values(schema: Schema, indices: Any, values: Any) -> tuple[np.ndarray, list[int], list[np.ndarray]]:
    """Return handles ``[n]``, indices of columns, and the rows of these columns, each ``[n, *F]``."""
    handles = as_handles(schema.cls_name, indices)
    chosen = schema.chosen(values)
    given = list(values.values()) if isinstance(values, Mapping) else values
    arrays = [schema.to_array(i, value) for i, value in zip(chosen, given)]
    schema.check_values(chosen, [a.shape for a in arrays], schema.names_of(chosen, arrays), handles.shape)
    rows = [np.ascontiguousarray(a).reshape(handles.size, *schema.shapes[i]) for i, a in zip(chosen, arrays)]
    return handles.reshape(-1), chosen, rows


def check_length(cls_name: str, given: Any, rows: int, what: str = "priorities") -> None:
    """Raise a ValueError unless there is one number, or one for each row."""
    if given.shape not in ((), (rows,)):
        raise ValueError(
            f"For '{cls_name}', the {what} must be one number for all rows or have shape [{rows}], one for each, "
            f"but got shape {list(given.shape)}."
        )


def one_number(cls_name: str, beta: np.ndarray) -> Any:
    """Return the only element of an array; raise an error if there is not exactly one."""
    if beta.shape not in ((), (1,)) or beta.dtype.kind not in "iuf":
        raise TypeError(
            f"For '{cls_name}', 'beta' must be one number, but got shape {list(beta.shape)} of {beta.dtype.name}."
        )
    return beta.reshape(())[()]


def as_flags(cls_name: str, argument: str, value: Any) -> np.ndarray:
    """Return flags as bool ``[]`` or ``[n]``."""
    given = as_array(value)
    if given.dtype != np.bool_:
        raise TypeError(f"For '{cls_name}', '{argument}' must be a bool or hold bools, but got {given.dtype.name}.")
    if given.ndim > 1 or given.size == 0:
        raise ValueError(f"For '{cls_name}', '{argument}' must have shape [] or [n], but got {list(given.shape)}.")
    return given


def check_flags(cls_name: str, argument: str, flags: np.ndarray, rows: int, num_envs: int) -> None:
    """Raise a ValueError unless there is a flag for each row, or a single one for a single step."""
    if flags.shape != (rows,) and (flags.ndim or rows != num_envs):
        raise ValueError(
            f"For '{cls_name}', '{argument}' must have shape [{rows}], one flag for each row"
            f"{', or []' if rows == num_envs else ''}, but got shape {list(flags.shape)}."
        )


def ends_of(cls_name: str, end: Any, final: Any, rows: int, num_envs: int) -> np.ndarray:
    """Combine the flags `end` and `final` of rows. Shape ``[1]`` or ``[n]``, uint8."""
    ends = np.zeros(1, np.uint8)
    for argument, value, bits in (("end", end, END), ("final", final, END | FINAL)):
        if value is False:
            continue
        flags = as_flags(cls_name, argument, value)
        check_flags(cls_name, argument, flags, rows, num_envs)
        ends = ends | flags.reshape(-1) * np.uint8(bits)
    return ends


def too_long(cls_name: str, longest: int) -> ValueError:
    """Return the error for a row that would make its episode too long."""
    return ValueError(
        f"For '{cls_name}', no episode may have more than max_episode_length={longest} rows: the last of them must "
        "come with end=True, but got one without. Nothing was stored."
    )
