"""The methods of buffers that a `Front` answers, on NumPy arrays or on Tensors."""

from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from ..base.habits import NoContainer, only_from_python, wrong_sample
from ..base.kinds import LONGEST, Form
from ..base.mixins import mixin
from ..base.types import Experience, Values
from ..rows.items import with_lengths
from ..spec.spec import BufferSpec
from .showing import table, text

_Self = TypeVar("_Self", bound="Insertable")
#: What users get of an array, and of a number.
_Arrays = TypeVar("_Arrays")
_Number = TypeVar("_Number")


@mixin
@only_from_python
class Insertable:
    """What rows are inserted into: it has their columns, and checks them.

    Args:
        spec (BufferSpec): What the buffer is.
        front (Any): Does what a method is called for.

    Attributes:
        spec (BufferSpec): What the buffer is.
        names (Union[tuple[str, ...], None]): Names of the columns.
        capacity (int): Most rows stored.
        sample_size (int): Rows of one sample.
    """

    def __init__(self, spec: BufferSpec, front: Any) -> None:
        vars(self).pop("_front", None)  # that of the buffer that this one is a copy of
        self.spec, self.options, columns = spec, spec.options, spec.columns
        self.names, self.shapes, self.types = columns.given_names, columns.given_shapes, columns.types
        self.capacity, self.sample_size, self.num_envs = spec.capacity, spec.sample_size, spec.num_envs
        self.has_episodes, self.achieved_goal, self._front = spec.has_episodes, spec.achieved_goal, front

    def insert(
        self,
        exp: Experience | None = None,
        *_misplaced: NoReturn,
        priority: Values | None = None,
        end: Values = False,
        final: Values = False,
        version: Values | None = None,
        lengths: Values | Mapping[str, Values] | None = None,
        with_indices: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Append one row or a batch, as `Buffer.insert` does.

        Args:
            exp (Union[Sequence, dict]): One array for each column, ``[*F]`` or ``[n, *F]``, in order or by name.
            priority (Union[float, numpy.ndarray, None]): One priority for all rows, or one per row. Default: ``None``,
                for the largest so far.
            end (Union[bool, Sequence[bool]]): Whether a row is the last of its episode. Default: ``False``.
            final (Union[bool, Sequence[bool]]): Whether a row contains only the observation after the row before it;
                with `end`, whether its own next observation is not known. Default: ``False``.
            version (Union[int, numpy.ndarray, None]): Version of the policy that made the rows, one or one per row: the
                learner's clock then. Default: ``None``, for the clock now.
            lengths (Union[numpy.ndarray, dict, None]): Lengths of the rows in columns passed as the concatenated items
                of all rows, ``[N, *F]``, or as padded rows, ``[n, L, *F]``: ints ``[n]``, or a dict of them by column.
                Default: ``None``, for a list of arrays.
            with_indices (bool): Whether to return the handles of the rows. Default: ``False``.

        Returns:
            Union[Insertable, numpy.ndarray]: The object itself, or handles, int64 ``[]`` or ``[n]``.

        Raises:
            TypeError, ValueError: If an argument does not fit. Nothing is stored then.
            RuntimeError: If an argument's requirement is not met, the learner has closed the buffer, the limiter
                requires a wait and there is no learner, or the newest rows are another process's open episode.
            TimeoutError: If it waits longer than the timeout.
        """
        if _misplaced or _unknown:
            raise self.spec.columns.wrong_insert(exp, _misplaced, _unknown)
        if lengths is not None and exp is not None:
            exp = with_lengths(self.spec.columns, exp, lengths)
        front = self._front
        stored = front.try_insert(exp, priority, end, final, version, with_indices)
        if stored is not False:
            return self if stored is True else stored
        handles = front.insert(exp, priority, end, final, version, with_indices)
        return self if handles is None else handles

    #: `insert` under the other name that buffers have for it.
    add = insert


@mixin
@only_from_python
class FrontMethods(Insertable, NoContainer, Generic[_Arrays, _Number]):
    """The methods of a buffer that need no order of its rows, with arrays or with Tensors."""

    def update_priorities(self, indices: Values, priorities: Values) -> _Number:
        """Set the priorities of rows, as `Buffer.update_priorities` does, and return the number of invalid handles."""
        return self._front.update_priorities(indices, priorities)  # type: ignore[no-any-return]

    def update(self, indices: Values, values: Experience) -> _Number:
        """Write columns of stored rows, as `Buffer.update` does, and return the number of invalid handles."""
        return self._front.update(indices, values)  # type: ignore[no-any-return]

    def delete(self, indices: Values) -> _Number:
        """Remove rows, as `Buffer.delete` does, and return their number."""
        return self._front.delete(indices)  # type: ignore[no-any-return]

    def info(self, indices: Values) -> tuple[_Arrays, ...]:
        """Return priority, use count and staleness of rows, as `Buffer.info` does."""
        return self._front.info(indices)

    def advance(self: _Self, steps: int = 1) -> _Self:
        """Advance the learner's clock, as `Buffer.advance` does."""
        self._front.advance(steps)
        return self

    def check_valid(self) -> None:
        """Raise a ValueError if the state is inconsistent. Columns are not checked. Cost O(C)."""
        with self._front.lock:
            self._front.ready_to_read()
            self._front.calls.check()

    def __len__(self) -> int:
        return self._front.size()

    def __bool__(self) -> bool:
        return True


@mixin
@only_from_python
class ArrayBuffer(FrontMethods[np.ndarray, int]):
    """A buffer on NumPy arrays: the methods of `Buffer`, with arrays in place of Tensors."""

    __repr__, _repr_html_ = text, table

    def get_item(self, index: Values, *, as_dict: bool = False) -> Any:
        """Read rows by logical position: 0 is the oldest, -1 the newest.

        Args:
            index (Union[int, Sequence[int]]): Positions, ``[]`` or ``[k]``.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.

        Returns:
            Union[tuple[numpy.ndarray, ...], dict]: Copies of the rows, one array for each column. Shape ``[*F]`` or
            ``[k, *F]``; k may be 0.

        Raises:
            TypeError, ValueError: If `index` is not of ints, or has more than one axis.
            IndexError: If there is no such row.
        """
        return self._front.get_item(index, as_dict)

    def sample(
        self,
        sample_range: tuple[Any, Any] | None = None,
        *_misplaced: NoReturn,
        beta: float | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Sample `sample_size` rows as the learner's buffer does.

        Args:
            sample_range (Union[tuple, None]): ``(start, stop)``, a slice of the rows, oldest first. Default: ``None``,
                for all.
            beta (Union[float, None]): Beta of this call. Default: ``None``, for the buffer's.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.
            with_indices (bool): Whether to return handles also where the buffer's class does not. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Default: ``False``, to
                ``sample_length``.

        Returns:
            Union[tuple[numpy.ndarray, ...], dict[str, numpy.ndarray]]: Bookkeeping and columns, as for the learner.

        Raises:
            RuntimeError: If too few rows are eligible, if the sample requires the learner's Python code, such as
                `HindsightRelabel`, or as for `insert`.
        """
        if _misplaced or _unknown or type(sample_range) is int:
            given = (*(() if sample_range is None else (sample_range,)), *_misplaced)
            raise wrong_sample(self.spec.cls_name, self, given, _unknown, self._OTHER_SIZE)
        return self._front.sample(sample_range, beta, as_dict, with_indices, LONGEST if longest else None)

    def sample_packed(self, max_items: int | None = None, *, as_dict: bool = False, with_indices: bool = False) -> Any:
        """Sample rows of different lengths, concatenating their items instead of padding them.

        Args:
            max_items (Union[int, None]): Most items of each such column. The batch ends before the first row that would
                exceed it, which a queue keeps for the next batch, and contains no row twice. Other buffers thus
                deliver long rows less often. Default: ``None``, for `sample_size` rows.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.
            with_indices (bool): Whether to return handles also where the buffer's class does not. Default: ``False``.

        Returns:
            Union[tuple, dict]: Bookkeeping; offsets, int32 ``[B + 1]``: row i has the items from offset i to the next;
            and columns, ``[N, *F]``, and ``[B, *F]`` where all rows are equally long.

        Raises:
            ValueError: If rows do not differ in length, `max_items` is less than the longest row, or the buffer could
                not sample the rows that do not fit again.
            RuntimeError: As for `sample`.

        Examples:
            >>> import numpy as np
            >>> from mindspore_replay.host import ReplayQueue
            >>> queue = ReplayQueue(2, 8, [(None,), ()], ["int32", "float32"], max_length=4, items=32)
            >>> queue = queue.insert([[np.arange(3, dtype="int32"), np.arange(2, dtype="int32")], [0.5, 1.0]])
            >>> print(*queue.sample_packed())
            [0 3 5] [0 1 2 0 1] [0.5 1. ]
        """
        return self._front.sample(None, None, as_dict, with_indices, Form(packed=True, max_items=max_items))

    def end_episodes(self) -> int:
        """End all open episodes, as `Buffer.end_episodes` does, and return their number."""
        return self._front.end_episodes()  # type: ignore[no-any-return]

    # Counts.

    def can_sample(self) -> bool:
        """Return True if `sample_size` rows are eligible and the limiter allows the sample now."""
        return self._front.can_sample()  # type: ignore[no-any-return]

    def size(self) -> int:
        """Return the number of rows stored."""
        return len(self)

    def full(self) -> bool:
        """Return True if there is no room for another row, as `Buffer.full` does."""
        return self._front.full()  # type: ignore[no-any-return]
