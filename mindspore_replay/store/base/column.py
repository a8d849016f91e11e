"""Records of constructors: a column with its options, and how priorities become weights."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a column or of priorities that are not the defaults, by name."""
    return {field.name: value for field in fields(record) if (value := getattr(record, field.name)) != field.default}


def _shown(record: Any) -> str:
    return f"{type(record).__name__}({', '.join(f'{name}={value!r}' for name, value in fields_of(record).items())})"


@dataclass(frozen=True, repr=False)
class Column:
    """A column of a buffer, with its options: a value of the constructors' ``columns``.

    Args:
        shape (Sequence[Union[int, None]]): Shape of one row, ``()`` for a scalar. If the first axis is ``None``, rows
            differ in length, as ``docs/appendix/lengths.md`` says.
        dtype (Union[mindspore.dtype, numpy.dtype, type, str]): Dtype, or its name: bool, int8 to int64, uint8 to
            uint64, float16, float32, float64, and bfloat16 with the native backend.
        late (bool): Whether `update` writes the column after the insertion, for example rewards of a slow judge.
            `insert` omits it. A row is sampled once all its late columns are written. A row with ``final=True`` needs
            none. Turns weights on. Default: ``False``.
        compress (bool): Whether to store rows compressed by LZ4, without loss, for example frames. Samples are the
            same. The buffer then works from Python only, and requires the package lz4 and the CPU's kernels. See
            ``docs/compression.md``. Default: ``False``.
        longest (Union[int, None]): Items of the longest row, if rows differ in length. Default: ``None``.
        items (Union[int, None]): Items to allocate memory for, if rows differ in length. Default: ``None``.
        sample_length (Union[int, None]): Items per row in a sample, if rows differ in length. Default: ``None``, for
            `longest`.
        cut (str): Which items of a row that is longer than `sample_length` to sample: the ``"first"`` ones, or a
            ``"random"`` window. Default: ``"first"``.
        lengths_of (Union[str, int, None]): Another column, by name or index, whose rows are as long, in place of
            `longest`, `items`, `sample_length` and `cut`. Default: ``None``.

    Examples:
        >>> from mindspore_replay import Column, ReplayBuffer
        >>> columns = {"observation": Column((4,), "float32"), "reward": Column((), "float32", late=True)}
        >>> buffer = ReplayBuffer(sample_size=2, capacity=8, columns=columns, seed=0)
        >>> indices = buffer.insert({"observation": [[0, 0, 0, 0], [1, 1, 1, 1]]}, with_indices=True)
        >>> print(buffer.update(indices, {"reward": [0.5, 1.5]}), *buffer.sample()[1:])
        0 [1.5 1.5]
    """

    shape: Sequence[int | None]
    dtype: Any
    _: KW_ONLY
    late: bool = False
    compress: bool = False
    longest: int | None = None
    items: int | None = None
    sample_length: int | None = None
    cut: str = "first"
    lengths_of: str | int | None = None
    __repr__ = _shown


@dataclass(frozen=True, repr=False)
class Priorities:
    """How priorities become weights, and weights of samples: the constructors' ``priorities``.

    Args:
        alpha (float): Exponent of priorities, in [0, 1]. Default: ``0.6``.
        beta (float): Exponent of importance weights, in [0, 1]. Default: ``0.4``.
        beta_steps (int): Samples after which beta is 1. Default: ``0``, for a constant beta.
        epsilon (float): Added to each priority, 0 or in [1e-37, 1e30]. Default: ``1e-6``.
        normalize (str): Whether the largest importance weight of the ``"batch"`` is 1, or that of the ``"buffer"``.
            Default: ``"batch"``.
        initial_priority (float): Priority of rows inserted before any larger one was given, in [1e-37, 3e38]. Default:
            ``1.0``.
        default_priority (str): Priority of new rows: the ``"largest"`` given so far, or ``"largest_held"``, the largest
            of the rows stored now. Default: ``"largest"``.

    Examples:
        >>> from mindspore_replay import Priorities, SequenceReplayBuffer
        >>> buffer = SequenceReplayBuffer(
        ...     1, 8, shapes=[()], types=["int32"], sequence_length=2, priorities=Priorities(alpha=0.9), seed=0
        ... )
        >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
        >>> indices, weights, mask, steps = buffer.sample()
        >>> print(indices, weights, mask, steps)
        [1] [1.] [[ True  True]] [[11 12]]
    """

    alpha: float = 0.6
    beta: float = 0.4
    beta_steps: int = 0
    epsilon: float = 1e-6
    normalize: str = "batch"
    initial_priority: float = 1.0
    default_priority: str = "largest"
    __repr__ = _shown
