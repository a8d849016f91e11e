"""Reading of rows by position, and their number."""

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..mindspore_api import share
from ..ops.eager import graph_body
from ..ops.primitives import named_in_graph
from ..store.base.mixins import mixin
from ..store.base.nested import Step
from ..store.base.types import Values
from ..store.faces.front import LocalFront
from ..store.spec.spec import BufferSpec
from .compile_time import compile_time
from .isolated_cell import IsolatedCell


@mixin
class Reading:
    """Methods that read rows by position, and count them."""

    spec: BufferSpec
    _front: LocalFront

    def _get_item_graph(self, index, *, as_dict=False):
        self._check_call("get_item", self._known(index))
        return self._read_graph(self._as_dtype("index", index, ms.int64), as_dict)

    def _read_graph(self, positions, as_dict):
        rows = self._graph.read(positions)
        return named_in_graph(self._steps_of_rows("rows"), rows) if as_dict else rows

    @compile_time
    def _steps_of_rows(self, _graph: str) -> tuple[Step, ...]:
        return self.spec.row_names(True).steps

    @graph_body(_get_item_graph)
    def get_item(self, index: Values, *, as_dict: bool = False) -> tuple[Tensor, ...] | dict[str, Any]:
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
        return self._front.get_item(index, as_dict)  # type: ignore[no-any-return]

    def _rows_graph(self, *, as_dict=False):
        return self._read_graph(ops.arange(self.capacity), as_dict)

    @graph_body(_rows_graph)
    def rows(self, *, as_dict: bool = False) -> tuple[Tensor, ...] | dict[str, Any]:
        """Read all rows of a full buffer as one batch, oldest first, for learners that fill, learn and `reset`.

        Args:
            as_dict (bool): Whether to return a dict by name. Default: ``False``.

        Returns:
            Union[tuple[Tensor, ...], dict]: Copies of the rows, ``[C, *F]`` for each column in the order of `shapes`.

        Raises:
            RuntimeError: If fewer than `capacity` rows are stored. See `full`. In a graph the operator raises it.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
            >>> print(*buffer.rows())
            [11 12 13 14]
        """
        return self._front.rows(as_dict)  # type: ignore[no-any-return]

    def _size_graph(self):
        return self._graph.count() + self._zero

    def _stored_graph(self):
        """Return, in a graph, the result of a method that returns the buffer itself from Python.

        A tuple has no method by the name of one of a buffer's, so that a chained call stops the compiler. A Tensor has
        `add`.
        """
        return (self._size_graph(),)

    @graph_body(_size_graph)
    def size(self) -> Tensor:
        """Return the number of rows stored. Shape ``[]``, int32.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> print(buffer.size(), len(buffer))
            3 3
        """
        return share(np.array(self._front.size(), np.int32))

    def _full_graph(self):
        return self._graph.full()

    @graph_body(_full_graph)
    def full(self) -> Tensor:
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
        return share(np.array(self._front.full()))

    @graph_body(IsolatedCell._len_graph)
    def __len__(self) -> int:
        """Return the number of rows stored, as `size` does. Only from Python."""
        return self._front.size()
