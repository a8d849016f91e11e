"""The methods of buffers that a `Front` answers, with arrays or with Tensors as results."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from ..base.habits import only_from_python, refuse_change, refuse_item, refuse_iteration, wrong_sample
from ..base.length_groups import Packing
from ..base.mixins import mixin
from ..base.types import Experience, Values
from ..rows.items import with_lengths
from ..spec.needs import need_priorities
from ..spec.options import Options
from ..spec.spec import BufferSpec
from .showing import table, text

_Self = TypeVar("_Self", bound="BufferMethods")

#: Attributes that are for the package, and for graphs; and what is for a class without a buffer.
_OF_THE_PACKAGE = {
    *("achieved_goal", "arrays", "has_episodes", "options", "spec", "state", "updates"),
    *("columns", "compressed", "has_handles", "prioritized", "weighted", "open"),
}


def describe(buffer: Any, spec: BufferSpec, front: Any = None) -> None:
    """Set the attributes that say what a buffer is; and, now or later, the front, after which they are read-only."""
    columns, options = spec.columns, spec.options
    attributes = dict(spec=spec, options=options, capacity=spec.capacity, sample_size=spec.sample_size)
    attributes |= dict(names=columns.given_names, shapes=columns.given_shapes, types=columns.types)
    attributes |= dict(num_envs=spec.num_envs, has_episodes=spec.has_episodes, achieved_goal=spec.achieved_goal)
    for name, value in (attributes if front is None else {**attributes, "_front": front}).items():
        object.__setattr__(buffer, name, value)  # by `vars(buffer)` Python would read all attributes slower


@mixin
@only_from_python
class BufferMethods:
    """The methods of a buffer, which its front answers.

    Attributes:
        spec (BufferSpec): What the buffer is.
        names (Union[tuple[str, ...], None]): Names of the columns.
        capacity (int): Most rows stored.
        sample_size (int): Rows of one sample.
    """

    spec: BufferSpec
    options: Options
    capacity: int
    sample_size: int
    _front: Any
    #: Code for a sample of ``{}`` rows, for errors.
    _OTHER_SIZE: ClassVar[str] = "with_sample_size({}).sample()"

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
        """Append one row or a batch. In a full buffer each new row replaces the oldest.

        If a batch exceeds the capacity, its newest rows are stored. After an error nothing is stored.

        Args:
            exp (Union[Sequence, dict]): One Tensor for each column, or a dict of them by name. Shape ``[*F]`` for one
                row, or ``[n, *F]`` for n rows, n static in a graph. From Python also NumPy arrays, numbers and nested
                lists. Omit late columns. Values of other dtypes are cast if the column holds them: bools, ints and
                floats in a column of floats, rounded; ints that fit in one of ints; 0 and 1 in one of bools.
            priority (Union[float, Tensor, Sequence, None]): One priority for all rows, or one per row: a number, or
                shape ``[n]``, in a graph a Tensor. Cast to float32. Subnormal values become 0. Requires a buffer with
                priorities. Default: ``None``, for the largest priority so far, initially 1.
            end (Union[bool, Tensor, Sequence[bool]]): Whether a row is the last of its episode, terminated or
                truncated. A nonzero ``"terminated"``, or the column that `NStep` names, implies it. If samples read
                next observations from the next row and the episode has not terminated, the row itself is not sampled.
                One flag per row, shape ``[n]``, or ``[]`` for the rows of one step. Requires `views`, or a buffer of
                sequences or episodes. Default: ``False``.
            final (Union[bool, Tensor, Sequence[bool]]): Whether a row contains only the observation after the step of
                the row before it. It ends the episode, is read as a next observation, and is not sampled, except as the
                last step of sequences and episodes. With `end` it is a step of its own instead, whose next observation
                is not known. Same requirement as `end`. See the picture in `docs/ends.md`. Default: ``False``.
            version (Union[int, Tensor, Sequence[int], None]): Version of the policy that made the rows, as a past or
                present value of the learner's clock. The rows' age counts from it. One for all rows, or one per row: an
                int, or int32 or int64 of shape ``[]`` or ``[n]``. Requires weights. Default: ``None``, for the clock
                now.
            lengths (Union[Tensor, Sequence[int], dict, None]): Lengths of the rows in columns whose shape begins with
                ``None``: ints ``[n]``, or a dict of them by column. Pass such a column as the concatenated items of all
                rows, ``[N, *F]``, or as padded rows, ``[n, L, *F]``. In a graph rows are padded, and lengths Tensors.
                Default: ``None``, for a list of Tensors, and in a graph for rows as long as they are padded.
            with_indices (bool): Whether to return the rows' handles instead of the buffer. Requires handles. Default:
                ``False``.

        Returns:
            Union[Buffer, Tensor]: The buffer itself, or handles, int64 ``[]`` or ``[n]``. In a graph a tuple with the
            number of rows stored, int32 ``[]``, instead of the buffer, since a chained call would leave the graph.

        Raises:
            TypeError: If `exp` is not a list, tuple or dict, or columns do not hold a dtype. The error lists all of
                them. If `priority` is not numeric, `end` or `final` not bool, or `version` not int.
            ValueError: If columns, shapes, ints or lengths do not fit, or the number of rows is not a multiple of
                `num_envs`. If a priority is negative, NaN or infinite, or a version negative or newer than the clock.
                In a graph the operator raises a RuntimeError instead.
            RuntimeError: If an argument's requirement is not met.

        Examples:
            >>> import numpy as np
            >>> from mindspore_replay import ReplayBuffer
            >>> names, shapes, types = ["observation", "action"], [(2,), ()], ["float32", "int32"]
            >>> buffer = ReplayBuffer(sample_size=1, capacity=9, shapes=shapes, types=types, names=names)
            >>> buffer = buffer.insert([np.ones(2, np.float32), 3])  # one row
            >>> buffer = buffer.insert({"observation": np.zeros((4, 2), np.float32), "action": [0, 1, 2, 3]})  # four
            >>> print(buffer.size())
            5
        """
        if _misplaced or _unknown:
            raise self.spec.columns.wrong_insert(exp, _misplaced, _unknown)
        if lengths is not None and exp is not None:
            exp = with_lengths(self.spec.columns, exp, lengths)
        front = self._front
        try_insert = front.try_insert or front.begin_inserting()
        stored = try_insert(exp, priority, end, final, version, with_indices)
        if stored is not False:
            return self if stored is True else stored
        handles = front.insert(exp, priority, end, final, version, with_indices)
        return self if handles is None else handles

    #: `insert` under the other name that buffers have for it.
    add = insert

    def update_priorities(self, indices: Values, priorities: Values) -> Any:
        """Set the priorities of rows, for example to the absolute TD errors of a sample.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles from `sample`, int32 or int64. Shape ``[]`` or ``[n]``,
                in a graph a Tensor. If several name one row, the last counts.
            priorities (Union[Tensor, Sequence[float], float]): One priority for all rows, or one per row: a number, or
                shape ``[n]``, in a graph a Tensor. Finite and >= 0. Cast to float32. Subnormal values become 0.

        Returns:
            Tensor: Number of handles skipped: the row was evicted or removed. A row that cannot be sampled yet keeps
            the priority for later. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffer does not draw by priority.
            TypeError: If `indices` is not of ints, or `priorities` not numeric.
            ValueError: If shapes do not fit, or a priority is negative, NaN or infinite. Nothing is changed then. In a
                graph the operator raises a RuntimeError for such a priority.

        Examples:
            >>> from mindspore_replay import PrioritizedReplayBuffer
            >>> buffer = PrioritizedReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> invalid = buffer.update_priorities([0, 1, 99], [0.0, 9.0, 1.0])
            >>> priority, use_count, staleness = buffer.info([0, 1, 2])
            >>> print(invalid, priority)
            1 [0. 9. 1.]
        """
        return self._front.update_priorities(indices, priorities)

    def update(self, indices: Values, values: Experience) -> Any:
        """Write columns of stored rows, for example recomputed recurrent states.

        Priorities and use counts do not change. Where the column of terminations becomes nonzero, the row ends its
        episode: see `docs/ends.md`.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles from `sample`, int32 or int64. Shape ``[]`` or ``[n]``,
                in a graph a Tensor. If several name one row, the last counts.
            values (Union[dict, Sequence]): A dict of some columns by name, or one Tensor for each column, of a
                dtype that `insert` takes. Shape ``[n, *F]``, or ``[*F]`` for one handle ``[]``. From Python also NumPy
                arrays, numbers and nested lists.

        Returns:
            Tensor: Number of invalid handles. They are skipped. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffer has no handles.
            TypeError: If `indices` is not of ints, or a column does not hold a dtype.
            ValueError: If there is no such column, or shapes do not fit. Then nothing is written.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], weighted=True, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> indices, step = buffer.sample(with_indices=True)
            >>> invalid = buffer.update(indices, [step + 100])
            >>> print(indices, invalid, *buffer.get_item(range(3)))
            [1 2] 0 [ 10 111 112]
        """
        return self._front.update(indices, values)

    def delete(self, indices: Values) -> Any:
        """Remove rows, so that they are no longer sampled.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles from `sample`, int32 or int64. Shape ``[]`` or ``[n]``,
                in a graph a Tensor.

        Returns:
            Tensor: Number of rows removed, each counted once. Invalid handles are skipped. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffer has no weights.
            TypeError: If `indices` is not of ints.
            ValueError: If `indices` has more than one axis.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], weighted=True, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(buffer.delete([0, 1, 99]), buffer.size(), buffer.eligible())
            2 3 1
        """
        return self._front.delete(indices)

    def info(self, indices: Values) -> tuple[Any, ...]:
        """Return priority, use count and staleness of rows, also of removed rows not yet overwritten.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles from `sample`, int32 or int64. Shape ``[]`` or ``[n]``,
                in a graph a Tensor.

        Returns:
            tuple[Tensor, Tensor, Tensor]: Priority, float32, 1 in a buffer without priorities; use count, int32, the
            number of deliveries; staleness, int64, the learner's clock minus the row's version. Each in the shape of
            `indices`. For rows no longer stored: 0, -1, -1.

        Raises:
            RuntimeError: If the buffer has no weights.
            TypeError: If `indices` is not of ints.
            ValueError: If `indices` has more than one axis.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], weighted=True, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> indices, step = buffer.sample(with_indices=True)
            >>> priority, use_count, staleness = buffer.advance(3).info(indices)
            >>> print(indices, priority, use_count, staleness)
            [1 2] [1. 1.] [1 1] [3 3]
        """
        return self._front.info(indices)

    def advance(self: _Self, steps: int = 1) -> _Self:
        """Advance the learner's clock, and remove stale rows: those older than `max_staleness`.

        Args:
            steps (Union[int, Tensor]): Learner steps to advance by, at least 0. Default: ``1``.

        Returns:
            Buffer: The buffer itself. In a graph a tuple with the number of rows stored, int32 ``[]``.

        Raises:
            RuntimeError: If the buffer has no weights.
            TypeError: If `steps` is no int.
            ValueError: If `steps` is negative, or the clock would pass 2^62. In a graph the operator raises a
                RuntimeError for such a Tensor.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=1, capacity=4, shapes=[()], types=["int32"], max_staleness=1)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> for step in range(3):
            ...     print(step, buffer.eligible())
            ...     buffer = buffer.advance()
            0 3
            1 3
            2 0
        """
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

    __repr__, _repr_html_ = text, table
    __iter__ = refuse_iteration

    def __getitem__(self, index: object) -> NoReturn:
        refuse_item(self, index)

    def __dir__(self) -> list[str]:
        """List no method that this buffer refuses, and nothing that is for the package."""
        if "_front" not in vars(self):  # before the constructor has returned
            return [*super().__dir__()]
        spec = self.spec
        needs: dict[str, Any] = dict.fromkeys(("delete", "info", "advance"), spec.weighted)
        needs |= {"update": spec.has_handles, "update_priorities": spec.prioritized, "end_episodes": spec.options.rule}
        needs |= {"sample_packed": spec.columns.length_groups, "flush": getattr(self._front, "folder", None)}
        return sorted(name for name in super().__dir__() if name not in _OF_THE_PACKAGE and needs.get(name, True))

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_change(self, name, value)
        super().__setattr__(name, value)

    def _wrong_sample(self, misplaced: Sequence[object], unknown: Mapping[str, object]) -> TypeError:
        """Return the error for a sample with other arguments than `sample` has."""
        if "beta" in unknown:
            need_priorities(self.options, "sample(beta=...)")
        return wrong_sample(self.spec.cls_name, self, misplaced, unknown, self._OTHER_SIZE)

    def get_item(self, index: Values, *, as_dict: bool = False) -> Any:
        """Read rows by logical position: 0 is the oldest, -1 the newest.

        Args:
            index (Union[int, Sequence[int], Tensor]): One position or k positions, int32 or int64. Shape ``[]`` or
                ``[k]``.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.

        Returns:
            Union[tuple[Tensor, ...], dict]: Copies of the rows, one Tensor for each column. Shape ``[*F]`` or
            ``[k, *F]``; from Python k may be 0.

        Raises:
            TypeError: If `index` is not of ints.
            ValueError: If `index` has more than one axis.
            IndexError: If there is no such row. In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(*buffer.get_item(0), *buffer.get_item(-1), *buffer.get_item([0, 2]))
            10 12 [10 12]
        """
        return self._front.get_item(index, as_dict)

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
            >>> from mindspore_replay.host import Column, ReplayQueue
            >>> queue = ReplayQueue(
            ...     2, 8, columns=[Column((None,), "int32", longest=4, items=32), Column((), "float32")]
            ... )
            >>> queue = queue.insert([[np.arange(3, dtype="int32"), np.arange(2, dtype="int32")], [0.5, 1.0]])
            >>> print(*queue.sample_packed())
            [0 3 5] [0 1 2 0 1] [0.5 1. ]
        """
        return self._front.sample(None, None, as_dict, with_indices, Packing(packed=True, max_items=max_items))

    def end_episodes(self) -> Any:
        """End all open episodes. The next row of each environment begins an episode.

        Call it if you reset environments before they are done, or start them again after loading the buffer. The newest
        row of each environment becomes the last of its episode. If samples read next observations from the next row,
        this row is no longer sampled, since its next observation is unknown.

        Returns:
            Tensor: Number of episodes ended. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffer does not store episodes.

        Examples:
            >>> from mindspore_replay import SequenceReplayBuffer
            >>> buffer = SequenceReplayBuffer(1, 8, shapes=[()], types=["int32"], sequence_length=2, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(buffer.end_episodes(), buffer.end_episodes())
            1 0
        """
        return self._front.end_episodes()

    # Counts.

    def can_sample(self) -> Any:
        """Return True if `sample_size` rows are eligible. Shape ``[]``, bool.

        Loops wait for it. With replacement `sample` alone needs one eligible row, and `can_sample` is also true when
        all rows that fit into the buffer, or the window, are eligible. In epochs it requires ``world * sample_size``
        rows, or one if the last batch is padded.

        A row is eligible if it was not removed and its weight is positive; in an `ElasticReplayBuffer`, only within the
        window. From Python, the `limiter` must also allow the sample now. A graph does not check it.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> print(buffer.insert([10]).can_sample(), buffer.insert([11]).can_sample())
            False True
        """
        return self._front.truth(np.array(self._front.can_sample()))

    def size(self) -> Any:
        """Return the number of rows stored. Shape ``[]``, int32.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(buffer.size(), len(buffer))
            3 3
        """
        return self._front.count(np.array(self._front.size(), np.int32))

    def full(self) -> Any:
        """Return True if there is no room for another row. Shape ``[]``, bool.

        Until then an insertion evicts no row. A buffer has room for `capacity` rows and, if rows differ in length, for
        their `items`: it is full when those of a row of `max_length` do not fit. In a queue that blocks, rows that were
        delivered make room.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> print(buffer.full(), buffer.insert([[10, 11, 12, 13]]).full())
            False True
        """
        return self._front.truth(np.array(self._front.full()))
