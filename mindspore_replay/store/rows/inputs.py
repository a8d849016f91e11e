"""Converts arguments other than rows to arrays for kernels. Raises a TypeError or ValueError for invalid ones."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..base.checks import LAST_CLOCK, check_number, check_size, one_int
from ..base.nested import at
from ..base.schema import Batch, Schema, is_tensor
from ..base.types import ArrayOrTensor
from ..spec.episodes import END, FINAL
from ..spec.needs import need_episodes, need_handles, need_priorities, need_weights
from ..spec.options import Options
from .items import split

_INFINITY = np.float32(np.inf).view(np.uint32)


def as_array(value: object) -> np.ndarray:
    """Return an array, a Tensor, or numbers as an array."""
    return value.asnumpy() if is_tensor(value) else np.asarray(value)


def is_empty(value: object) -> bool:
    """Return True if there is no number in a list, or in an array or Tensor ``[0]``."""
    return not value if isinstance(value, (list, tuple, range)) else getattr(value, "shape", None) == (0,)


def _one_or_many(
    cls_name: str, value: object, dtypes: str, subject: str, rule: str, shape: str = "[] or [n]"
) -> np.ndarray:
    """Return numbers of these kinds of dtypes, ``[]`` or ``[n]``. An error names the rule that a value breaks."""
    array = as_array(value)
    if array.shape == (0,):  # the dtype of an empty list says nothing
        expected = f"{subject} must have shape {shape}, but got [0]: name at least one, or leave the call out"
        raise ValueError(f"For '{cls_name}', {expected}.")
    if array.dtype.kind not in dtypes and not (array.dtype.name == "bfloat16" and "f" in dtypes):
        raise TypeError(f"For '{cls_name}', {rule}, but got {array.dtype.name}.")
    if array.ndim > 1:
        raise ValueError(f"For '{cls_name}', {subject} must have shape {shape}, but got {list(array.shape)}.")
    return array


def as_handles(cls_name: str, indices: object) -> np.ndarray:
    """Return handles as int64 ``[]`` or ``[n]``."""
    handles = _one_or_many(cls_name, indices, "iu", "'indices'", "'indices' must hold ints")
    return np.ascontiguousarray(handles, np.int64).reshape(handles.shape)


def as_priority(cls_name: str, priority: object, rows: int) -> np.ndarray:
    """Return priorities of rows as float32 ``[]`` or ``[n]``. Raise a ValueError if one is negative, NaN or inf."""
    rule = "a priority must be a number or hold numbers"
    priorities = _one_or_many(cls_name, priority, "iuf", "priorities", rule)
    if priorities.dtype != np.float32:
        with np.errstate(over="ignore"):
            priorities = priorities.astype(np.float32)
    priorities = np.asarray(priorities, order="C")
    # As unsigned ints, the bits of finite numbers >= 0 are smaller than those of infinity; all others are larger.
    if priorities.view(np.uint32).max() >= _INFINITY:
        bad = priorities[~(np.isfinite(priorities) & (priorities >= 0))]
        if bad.size:
            raise ValueError(f"For '{cls_name}', a priority must be finite and at least 0, but got {bad[0]}.")
    _check_length(cls_name, priorities, rows, "priorities")
    return priorities


def as_versions(cls_name: str, version: object, rows: int) -> np.ndarray:
    """Return versions of rows as int64 ``[]`` or ``[n]``."""
    versions = _one_or_many(cls_name, version, "iu", "'version'", "'version' must be an int or hold ints")
    _check_length(cls_name, versions, rows, "versions")
    return np.ascontiguousarray(versions, np.int64).reshape(versions.shape)


def check_versions(cls_name: str, versions: np.ndarray, now: int) -> None:
    """Raise a ValueError if a version is negative, or newer than the learner's clock."""
    bad = versions[(versions < 0) | (versions > now)]
    if bad.size:
        raise ValueError(
            f"For '{cls_name}', a version must be a value that the learner's clock has had, from 0 to {now}, but got "
            f"{bad[0]}. Nothing was stored."
        )


class NewRows(NamedTuple):
    """Rows to insert, checked and converted.

    Attributes:
        fields (list): A Tensor or an array for each column, ``[*F]`` or ``[n, *F]``.
        batch (Batch): Their number and layout.
        priority (Union[numpy.ndarray, None]): Priority of all rows or of each, float32, or ``None`` for the largest so
            far.
        ends (Union[numpy.ndarray, None]): Flags of episodes, uint8 ``[1]`` or ``[n]``, or ``None`` if the buffer does
            not store episodes.
        version (Union[numpy.ndarray, None]): Version of all rows or of each, int64, or ``None`` for the clock.
        items (Mapping[int, numpy.ndarray]): The items ``[N, *F]`` of columns whose rows differ in length. Default:
            none.
    """

    fields: Sequence[ArrayOrTensor]
    batch: Batch
    priority: np.ndarray | None
    ends: np.ndarray | None
    version: np.ndarray | None
    items: Mapping[int, np.ndarray] = MappingProxyType({})


def as_new_rows(
    schema: Schema,
    options: Options,
    exp: object,
    priority: object = None,
    end: object = False,
    final: object = False,
    version: object = None,
    with_indices: bool = False,
) -> NewRows:
    """Check and convert the arguments of `insert`, in this order: columns, what the buffer lacks, rows, the others."""
    items: Mapping[int, np.ndarray] = {}
    if schema.length_groups:
        exp, items = split(schema, exp)
        schema = schema.references
    in_order = schema.in_order(exp)
    if priority is not None:
        need_priorities(options, "insert(priority=...)")
    for argument, flag in (("end", end), ("final", final)):
        if flag is not False:
            need_episodes(options, argument)
    if version is not None:
        need_weights(options, "insert(version=...)")
    if with_indices:
        need_handles(options, "insert(with_indices=True)")
    fields = schema.as_fields(in_order)
    batch, name = schema.layout(fields, options.streams), options.cls_name
    if batch.rows == 0:
        return NewRows(fields, batch, None, None, None)
    priorities = None if priority is None else as_priority(name, priority, batch.rows)
    ends = None if options.rule is None else ends_of(name, end, final, batch.rows, options.num_envs)
    versions = None if version is None else as_versions(name, version, batch.rows)
    return NewRows(fields, batch, priorities, ends, versions, items)


def as_priorities(options: Options, indices: object, priorities: object) -> tuple[np.ndarray, np.ndarray]:
    """Check and convert the arguments of `update_priorities`: handles, int64 ``[n]``, and priorities."""
    need_priorities(options, "update_priorities")
    handles = as_handles(options.cls_name, indices).reshape(-1)
    return handles, as_priority(options.cls_name, priorities, handles.size)


def as_handles_for(options: Options, method: str, indices: object) -> np.ndarray:
    """Check and convert the argument of a method that needs weights: handles, int64 ``[]`` or ``[n]``."""
    need_weights(options, method)
    return as_handles(options.cls_name, indices)


def as_steps(options: Options, steps: object, clock: Callable[[], int]) -> int:
    """Check and convert the argument of `advance`. `clock` reads the learner's clock."""
    need_weights(options, "advance")
    number = one_int(options.cls_name, "steps", steps.asnumpy()) if is_tensor(steps) else steps
    return check_size(options.cls_name, "steps", number, LAST_CLOCK - clock(), minimum=0)


def as_positions(cls_name: str, index: object) -> np.ndarray:
    """Check and convert the argument of `get_item`: positions of rows, ints ``[]`` or ``[k]``."""
    return _one_or_many(cls_name, index, "iu", "'index'", "'index' must be an int or hold ints", "[] or [k]")


def as_beta(options: Options, beta: object) -> float | None:
    """Check and convert the beta of one `sample`."""
    if beta is None:
        return None
    need_priorities(options, "sample(beta=...)")
    name = options.cls_name
    one = one_number(name, as_array(beta)) if is_tensor(beta) or isinstance(beta, np.ndarray) else beta
    return check_number(name, "beta", one)


def as_values(
    schema: Schema, options: Options, indices: object, values: object
) -> tuple[np.ndarray, list[int], list[np.ndarray]]:
    """Check and convert the arguments of `update`: handles ``[n]``, indices of columns, and their rows ``[n, *F]``."""
    need_handles(options, "update")
    handles = as_handles(options.cls_name, indices)
    paths = schema.chosen(values)
    chosen = list(paths)
    fields = schema.checked("values", chosen, (schema.fitted(i, at(values, path)) for i, path in paths.items()))
    arrays = [schema.as_array(i, field) for i, field in zip(chosen, fields)]
    schema.check_values(chosen, arrays, handles.shape)
    rows = [np.ascontiguousarray(a).reshape(handles.size, *schema.shapes[i]) for i, a in zip(chosen, arrays)]
    return handles.reshape(-1), chosen, rows


def _check_length(cls_name: str, array: np.ndarray, rows: int, subject: str) -> None:
    """Raise a ValueError unless there is one number, or one for each row."""
    if array.shape not in ((), (rows,)):
        raise ValueError(
            f"For '{cls_name}', the {subject} must be one number for all rows or have shape [{rows}], one for each, "
            f"but got shape {list(array.shape)}."
        )


def one_number(cls_name: str, beta: np.ndarray) -> object:
    """Return the only element of an array. Raise an error if there is not exactly one."""
    if beta.shape not in ((), (1,)) or beta.dtype.kind not in "iuf":
        raise TypeError(
            f"For '{cls_name}', 'beta' must be one number, but got shape {list(beta.shape)} of {beta.dtype.name}."
        )
    return beta.reshape(())[()]


def ends_of(cls_name: str, end: object, final: object, rows: int, num_envs: int) -> np.ndarray:
    """Combine the flags `end` and `final` of rows. Shape ``[1]`` or ``[n]``, uint8."""
    ends = np.zeros(1, np.uint8)
    for argument, value, bits in (("end", end, END), ("final", final, FINAL)):
        if value is not False:
            ends = ends | _flags(cls_name, argument, value, rows, num_envs) * np.uint8(bits)
    return ends


def _flags(cls_name: str, argument: str, value: object, rows: int, num_envs: int) -> np.ndarray:
    """Return a flag for each row, or a single one for the rows of a single step. Shape ``[1]`` or ``[n]``, bool."""
    flags = _one_or_many(cls_name, value, "b", f"'{argument}'", f"'{argument}' must be a bool or hold bools")
    if flags.shape != (rows,) and (flags.ndim or rows != num_envs):
        raise ValueError(
            f"For '{cls_name}', '{argument}' must have shape [{rows}], one flag for each row"
            f"{', or []' if rows == num_envs else ''}, but got shape {list(flags.shape)}."
        )
    return flags.reshape(-1)


def too_long(cls_name: str, longest: int) -> ValueError:
    """Return the error for a row that would make its episode too long."""
    return ValueError(
        f"For '{cls_name}', no episode may have more than max_episode_length={longest} rows: insert the last of them "
        "with end=True, or call end_episodes() before the next. Nothing was stored."
    )
