"""Checks of the arguments of a `MixedReplay`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..columns import TYPES, numpy_type
from ..ops.mixture import exact_counts
from ..store.checks import check_number
from ..store.inputs import as_array
from .base import Buffer

SMALLEST_RATIO, LARGEST_RATIO = 1e-30, 1e30


def _fits(value: float, dtype: np.dtype) -> bool:
    """Return True if a number keeps its value in a column's dtype: exactly for ints, up to rounding for floats."""
    cast = np.array(value).astype(dtype)
    return dtype.kind != "b" and (bool(cast == value) if dtype.kind in "iu" else bool(np.isfinite(cast)))


def rows_of_sources(
    name: str, sources: Sequence[Buffer], ratios: np.ndarray, sample_size: int, adjustable: bool
) -> list[int]:
    """Return the number of rows that each source draws; raise a ValueError if one can never provide them."""
    if adjustable:
        limited = [i for i, buffer in enumerate(sources) if buffer.max_use is not None]
        if limited:
            raise ValueError(
                f"For '{name}', 'adjustable' draws rows that it does not deliver, so no source may have 'max_use', "
                f"but got {limited} with it."
            )
        counts = [sample_size] * len(sources)
    else:
        counts = exact_counts(ratios.tolist(), sample_size)
    if min(counts) < 1:
        raise ValueError(
            f"For '{name}', each source must get a row, but with ratios {ratios.tolist()} the "
            f"sample_size={sample_size} rows are {counts}."
        )
    most = [buffer.options.most_starts for buffer in sources]
    wrong = [f"source {i}: {n} of at most {most[i]}" for i, n in enumerate(counts) if n > most[i]]
    if wrong:
        raise ValueError(
            f"For '{name}', each source must be large enough for its rows of a batch of sample_size={sample_size}, but "
            f"got {'; '.join(wrong)}. Take a larger capacity, or fewer rows."
        )
    return counts


def checked_rewards(
    name: str, rewards: Any, sources: Sequence[Buffer], fields: Mapping[str, tuple[tuple[int, ...], str]]
) -> list[np.ndarray | None]:
    """Return each source's reward in the column's dtype, or ``None``; raise an error if one is invalid."""
    values = [None] * len(sources) if rewards is None else rewards
    if not isinstance(values, (list, tuple)) or len(values) != len(sources):
        raise ValueError(f"For '{name}', 'rewards' must hold one entry for each source, but got {rewards!r}.")
    given = [value for value in values if value is not None]
    for value in given:
        check_number(name, "rewards", value, -LARGEST_RATIO, LARGEST_RATIO)
    if not given:
        return list(values)
    if "reward" not in fields:
        raise ValueError(f"For '{name}', 'rewards' need a column 'reward', but got {list(fields)}.")
    if any(buffer.layout.returns is not None for buffer in sources):
        raise ValueError(f"For '{name}', 'rewards' cannot take the place of the returns that NStep gives.")
    dtype = numpy_type(TYPES[fields["reward"][1]])
    with np.errstate(all="ignore"):
        lost = [value for value in given if not _fits(value, dtype)]
    if lost:
        raise ValueError(f"For '{name}', 'rewards' must fit the column's dtype, {dtype.name}, but got {lost}.")
    return [None if value is None else np.array(value, dtype) for value in values]


def checked_sources(name: str, parts: Any) -> list[tuple[Buffer, Any]]:
    """Return pairs of a buffer and its ratio; raise an error if one is invalid."""
    if not isinstance(parts, (list, tuple)) or not parts:
        raise TypeError(f"For '{name}', 'parts' must be a list of pairs (buffer, ratio), but got {parts!r}.")
    for part in parts:
        if not isinstance(part, (list, tuple)) or len(part) != 2 or not isinstance(part[0], Buffer):
            raise TypeError(f"For '{name}', each of 'parts' must be a pair (buffer, ratio), but got {part!r}.")
    if len({id(buffer) for buffer, _ in parts}) < len(parts):
        raise ValueError(f"For '{name}', each buffer may come only once in 'parts', but got one twice.")
    compressed = [i for i, (buffer, _) in enumerate(parts) if buffer.compressed]
    if compressed:
        raise ValueError(
            f"For '{name}', no source may have compressed columns, since their samples are joined in a graph, but got "
            f"{compressed} with them."
        )
    return [(buffer, ratio) for buffer, ratio in parts]


def common_fields(name: str, buffers: Sequence[Buffer]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the columns of the sources' samples; raise a ValueError that lists sources that differ."""
    first = buffers[0]

    def schema(buffer: Buffer) -> tuple[Any, ...]:
        return (*steps_of(buffer), *((key, *field) for key, field in buffer.spec.fields.items()))

    wrong = [f"source {i}: {schema(b)}" for i, b in enumerate(buffers) if schema(b) != schema(first)]
    if wrong:
        raise ValueError(
            f"For '{name}', the samples of all sources must have the columns of source 0, {schema(first)}, but got "
            f"{'; '.join(wrong)}."
        )
    return first.spec.fields


def steps_of(buffer: Buffer) -> tuple[str, ...]:
    """Return the outputs of a sample that describe its steps: lengths and masks."""
    return tuple(key for key in buffer.spec.bookkeeping if key not in ("indices", "weights"))


def checked_ratios(name: str, ratios: Any, sources: int, may_be_zero: bool) -> np.ndarray:
    """Return ratios as float64 ``[m]``; raise an error if one is invalid."""
    given = list(np.asarray(ratios)) if isinstance(ratios, np.ndarray) and ratios.ndim == 1 else ratios
    if not isinstance(given, (list, tuple)) or len(given) != sources:
        raise ValueError(f"For '{name}', 'ratios' must be {sources} numbers, one for each source, but got {ratios!r}.")
    for ratio in given:
        check_number(name, "ratios", ratio, 0.0 if may_be_zero and ratio == 0 else SMALLEST_RATIO, LARGEST_RATIO)
    if not any(given):
        raise ValueError(f"For '{name}', one of the 'ratios' must be positive, but got {ratios!r}.")
    return np.array(given, np.float64)


def as_ints(name: str, argument: str, values: Any) -> np.ndarray:
    """Return ints as an array; raise an error for other values."""
    array = as_array(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"For '{name}', '{argument}' must hold ints, but got {array.dtype.name}.")
    return array
