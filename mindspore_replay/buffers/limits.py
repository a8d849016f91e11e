"""Rows that are not drawn any more: used up, stale, deleted. What a buffer keeps of each row for that."""

import itertools
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import Columns, numpy_type
from ..mindspore_api import isconstant, share
from ..ops.eager import graph_body, wait_for_work
from ..ops.operators import Operators
from ..store.checks import check_bool, check_size, one_int
from ..store.inputs import as_handles
from ..store.state import LAST_CLOCK
from ..store.windows import WindowRule
from .saving import SavedCell

_numbers = itertools.count()


class LimitedCell(SavedCell):
    """A ring of rows with a weight each, if it is made `weighted` or with a limit.

    A row that is *removed*, since it was deleted, used up or went stale, has weight zero until it is overwritten: it is
    stored, counted by ``size()`` and read by ``get_item``, but not drawn, and its handle is dead.

    Attributes:
        weights (Parameter): Weight of each slot, then the tree of their sums. Shape ``[M]``, float64, see
            ``ops/sum_tree.py``.
        priorities (Parameter): Priority of the row in each slot. Shape ``[C]``, float32.
        max_priority (Parameter): The largest priority so far. Shape ``[]``, float32.
        use_counts (Parameter): Deliveries of the row in each slot, their bitwise complement once it is removed. Shape
            ``[C]``, int32.
        insertion_clocks (Parameter): The learner's clock when the row in each slot was inserted. Shape ``[C]``, int64.
        clock (Parameter): The learner's clock, and the serial number of the oldest row that was not found stale. Shape
            ``[2]``, int64.
        counts (Parameter): What has happened to rows since the buffer was made: deliveries, rows removed as used up,
            as stale, by `delete`, and dead handles skipped. Shape ``[5]``, int64.
    """

    #: The operators of compiled graphs.
    _graph: Operators
    #: Which windows are legal; ``None`` where samples are single rows.
    _rule: WindowRule | None = None
    limiter: Any
    columns: Columns
    timed: bool
    #: How a priority becomes a weight: (priority + epsilon)^alpha. Without priorities every weight is 1.
    alpha = 0.0
    epsilon = 0.0

    def _set_limits(self, max_use: int | None, max_staleness: int | None, weighted: bool) -> None:
        name = type(self).__name__
        self.max_use = None if max_use is None else check_size(name, "max_use", max_use)
        self.max_staleness = (
            None if max_staleness is None else check_size(name, "max_staleness", max_staleness, LAST_CLOCK, minimum=0)
        )
        limited = self.max_use is not None or self.max_staleness is not None
        self.weighted = check_bool(name, "weighted", weighted) or limited

    def _make_weight_operators(self) -> None:
        number = next(_numbers)
        self._check_steps = ops.constexpr(self._check_steps_in_graph, name=f"CheckSteps{number}")
        self._check_steps_tensor = ops.constexpr(self._check_steps_tensor_in_graph, name=f"CheckStepsTensor{number}")

    # Bodies for the compiler.

    def _check_steps_in_graph(self, steps: Any) -> bool:
        check_size(type(self).__name__, "steps", steps, LAST_CLOCK, minimum=0)
        return True

    def _check_steps_tensor_in_graph(self, dtype: Any, shape: tuple[int, ...]) -> bool:
        one_int(type(self).__name__, "steps", np.ones(shape, numpy_type(dtype)))
        return True

    def _check_handles_in_graph(self, dtype: Any, shape: tuple[int, ...]) -> bool:
        self._handles(np.zeros(shape, numpy_type(dtype)))
        return True

    def _handles_graph(self, indices):
        if not self._has_handles:
            raise RuntimeError("For a buffer without weights, there are no 'indices'. Make it with weighted=True.")
        if not isinstance(indices, Tensor):
            raise TypeError("In a graph, 'indices' must be a Tensor of ints: pass a Tensor.")
        self._check_handles(indices.dtype, indices.shape)
        return ops.reshape(ops.cast(indices, ms.int64), (-1,))

    def _delete_graph(self, indices):
        return self._delete_handles(self._handles_graph(indices))

    def _advance_graph(self, steps=1):
        if not self.weighted:
            raise RuntimeError("For 'advance', the buffer must be made with weighted=True or a limit.")
        if isinstance(steps, Tensor):
            self._check_steps_tensor(steps.dtype, steps.shape)
        elif isconstant(steps) or not isinstance(steps, int):
            self._check_steps(steps)
        self._advance_by(ops.reshape(ops.cast(steps, ms.int64), ()))
        return self._size_graph()

    def _info_graph(self, indices):
        priority, uses, staleness = self._info_of(self._handles_graph(indices))
        shape = indices.shape
        return ops.reshape(priority, shape), ops.reshape(uses, shape), ops.reshape(staleness, shape)

    def _forget_rows(self):
        """Graph body of `reset`; a class with more state begins that anew too."""
        self._graph.reset()

    def _delete_handles(self, handles):
        return self._graph.delete(handles)

    def _advance_by(self, steps):
        self._graph.advance(steps)
        return steps

    def _info_of(self, handles):
        return self._graph.info(handles)

    def _eligible_rows(self):
        return self._graph.summary()[2]

    def _eligible_between(self, ranges):
        return self._graph.sums(ranges)

    # Methods, with the bodies that Python runs.

    @graph_body(_delete_graph)
    def delete(self, indices: Any) -> Tensor:
        """Removes rows: they are not drawn any more.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles as `sample` gives them, int32 or int64. Shape ``[]`` or
                ``[n]``. In a graph only a Tensor.

        Returns:
            Tensor: How many rows were removed; dead handles are skipped, and a row counts once. Shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffer keeps no weights.
            TypeError: If `indices` holds no ints.
            ValueError: If `indices` has more than one axis.
        """
        self._need_weights("delete")
        handles = self._handles(indices).reshape(-1)
        with self._lock:
            wait_for_work()
            return share(self._calls.delete(handles))

    @graph_body(_advance_graph)
    def advance(self, steps: int = 1) -> "LimitedCell":
        """Moves the learner's clock, and removes rows that became stale: older than `max_staleness` by that clock.

        Args:
            steps (Union[int, Tensor]): By how much, at least 0. Default: ``1``.

        Returns:
            The buffer itself. In a graph the rows stored then, a Tensor, shape ``[]``, int32.

        Raises:
            RuntimeError: If the buffer keeps no weights.
            TypeError: If `steps` is no int.
            ValueError: If `steps` is negative, or the clock would pass 2^62. In a graph a Tensor for which that is so
                fails the operator with a RuntimeError.
        """
        self._need_weights("advance")
        if isinstance(steps, Tensor):
            steps = one_int(type(self).__name__, "steps", steps.asnumpy())
        with self._lock:
            wait_for_work()
            most = LAST_CLOCK - int(self.clock.asnumpy()[0])
            self._calls.advance(check_size(type(self).__name__, "steps", steps, most, minimum=0))
        return self

    @graph_body(_info_graph)
    def info(self, indices: Any) -> tuple[Tensor, Tensor, Tensor]:
        """What is known of rows, also of removed ones that are still stored.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles as `sample` gives them, int32 or int64. Shape ``[]`` or
                ``[n]``. In a graph only a Tensor.

        Returns:
            tuple[Tensor, Tensor, Tensor]: Priority, float32, 1 in a buffer without priorities; use count, int32: how
            often the row was delivered; staleness, int64: the learner's clock less its value at the insertion. Each has
            the shape of `indices`. Where no row is stored any more: 0, -1, -1.

        Raises:
            RuntimeError: If the buffer keeps no weights.
            TypeError: If `indices` holds no ints.
            ValueError: If `indices` has more than one axis.
        """
        self._need_weights("info")
        handles = self._handles(indices)
        with self._lock:
            wait_for_work()
            parts = self._calls.info(handles.reshape(-1))
        priority, uses, staleness = (Tensor(part.reshape(handles.shape)) for part in parts)
        return priority, uses, staleness

    def _need_weights(self, method: str) -> None:
        need_weights(type(self).__name__, self.weighted, method)

    def _handles(self, indices: Any) -> np.ndarray:
        return as_handles(type(self).__name__, indices)


def need_weights(cls_name: str, weighted: bool, method: str) -> None:
    """Raises a RuntimeError unless a buffer keeps a weight for each row."""
    if not weighted:
        raise RuntimeError(
            f"For '{cls_name}', '{method}' needs a buffer that keeps a weight for each row: make it with "
            "weighted=True, max_use or max_staleness."
        )
