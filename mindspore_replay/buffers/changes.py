"""Changes of stored rows, by their handles, and of all at once."""

from typing import Any, TypeVar

import mindspore as ms
from mindspore import Tensor, ops

from ..columns import Columns
from ..ops.eager import graph_body
from ..ops.statement_hook import statement_body
from ..store.base.mixins import mixin
from ..store.base.types import Experience, Values
from ..store.faces.front import LocalFront
from ..store.rows.inputs import as_values
from ..store.spec.options import Options
from ..store.spec.spec import BufferSpec
from .compile_time import compile_time, stand_in

_Self = TypeVar("_Self", bound="Changes")


@mixin
class Changes:
    """Methods that change stored rows.

    A *removed* row was deleted, used up or became stale. Its weight is zero until it is overwritten. It is still
    stored, counted by ``size()`` and read by ``get_item``, but not sampled, and its handle is invalid.
    """

    spec: BufferSpec
    columns: Columns
    options: Options
    _front: LocalFront

    # Columns.

    def _update_graph(self, indices, values):
        columns, paths = self._check_update(self._known(indices), self._known(values))
        handles = self._as_handles(indices)
        invalid = self._zero + 0
        for i in range(len(columns)):
            rows = ops.reshape(self._at(values, paths[i]), (-1, *self.shapes[columns[i]]))
            invalid = self._graph.update(columns[i], i == 0, handles, rows)
        return invalid

    @compile_time
    def _check_update(self, indices: object, values: object) -> tuple[tuple[Any, ...], ...]:
        """Check the arguments of `update`. Return the indices of the columns, and the keys that lead to their rows."""
        paths = self.columns.chosen(stand_in(values))
        if differ := [self.columns.names[i] for i in paths if i in self.columns.kind_of]:
            raise ValueError(
                f"For '{self.spec.cls_name}', a graph updates columns whose rows have one length: call 'update' of "
                f"column {differ[0]!r} from Python."
            )
        as_values(self.columns, self.options, stand_in(indices), stand_in(values))
        return tuple(paths), tuple(paths.values())

    @graph_body(statement_body(_update_graph))
    def update(self, indices: Values, values: Experience) -> Tensor:
        """Write columns of stored rows, for example recomputed recurrent states.

        Priorities and use counts do not change. Where the column of terminations becomes nonzero, the row ends its
        episode: see `docs/ends.md`.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles from `sample`, int32 or int64. Shape ``[]`` or ``[n]``,
                in a graph a Tensor. If several name one row, the last counts.
            values (Union[dict, Sequence]): A dict of some columns by name, or one Tensor for each column, of the
                column's dtype. Shape ``[n, *F]``, or ``[*F]`` for one handle ``[]``. From Python also NumPy arrays,
                numbers and nested lists.

        Returns:
            Tensor: Number of invalid handles. They are skipped. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffer has no handles.
            TypeError: If `indices` is not of ints, or a column has another dtype.
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
        return self._front.update(indices, values)  # type: ignore[no-any-return]

    # Priorities.

    def _update_priorities_graph(self, indices, priorities):
        self._check_call("update_priorities", self._known(indices), self._known(priorities))
        return self._graph.update_priorities(
            self._as_handles(indices), self._as_dtype("priorities", priorities, ms.float32)
        )

    @graph_body(_update_priorities_graph)
    def update_priorities(self, indices: Values, priorities: Values) -> Tensor:
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
        return self._front.update_priorities(indices, priorities)  # type: ignore[no-any-return]

    # Removal, and the state of rows.

    def _delete_graph(self, indices):
        self._check_call("delete", self._known(indices))
        return self._graph.delete(self._as_handles(indices))

    @graph_body(_delete_graph)
    def delete(self, indices: Values) -> Tensor:
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
        return self._front.delete(indices)  # type: ignore[no-any-return]

    def _info_graph(self, indices):
        self._check_call("info", self._known(indices))
        priority, uses, staleness = self._graph.info(self._as_handles(indices))
        shape = indices.shape
        return ops.reshape(priority, shape), ops.reshape(uses, shape), ops.reshape(staleness, shape)

    @graph_body(_info_graph)
    def info(self, indices: Values) -> tuple[Tensor, Tensor, Tensor]:
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
        return self._front.info(indices)  # type: ignore[return-value]

    # All rows at once.

    def _advance_graph(self, steps=1):
        self._check_call("advance", self._known(steps))
        self._graph.advance(ops.reshape(ops.cast(steps, ms.int64), ()))
        return self._stored_graph()

    @graph_body(_advance_graph)
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

    def _end_episodes_graph(self):
        self._check_call("end_episodes")
        return self._graph.end_episodes()

    @graph_body(_end_episodes_graph)
    def end_episodes(self) -> Tensor:
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
        return self._front.end_episodes()  # type: ignore[no-any-return]

    def _reset_graph(self):
        self._graph.reset()
        return self._stored_graph()

    @graph_body(_reset_graph)
    def reset(self: _Self) -> _Self:
        """Remove all rows. Serial numbers and the random sequence continue. The next row goes to slot 0.

        The learner's clock, the largest priority, beta and, from Python, the limiter's counts are reset too. Cost O(1),
        or O(C) in a buffer with weights.

        Returns:
            Buffer: The buffer itself. In a graph a tuple with the number of rows stored, int32 ``[]``.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]]).reset()
            >>> print(buffer.size())
            0
        """
        self._front.reset()
        return self
