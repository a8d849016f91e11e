"""Calls from Python that run compiled graphs, on any device: what `Store` does where kernels can be called directly."""

from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from ..ops import native
from ..ops.eager import wait_for_work
from ..ops.operators import Operators
from ..store import library
from ..store.inputs import as_values, check_length, ends_of, too_long
from ..store.options import Options
from ..store.random import ALL_ROWS
from ..store.schema import Schema
from ..store.windows import END


def graph_of(body: Callable[..., Any], waits: bool = False) -> Callable[..., Any]:
    """Compiles a graph to call from Python; a call first raises what went wrong in the graphs before it.

    One that `waits` comes back when its kernels are done, and raises a KernelError if one of them has failed.
    """
    graph = ms.jit(body)

    def call(*tensors: Any) -> Any:
        native.raise_earlier_failure()
        result = graph(*tensors)
        if waits:
            wait_for_work()
            native.raise_own_failure()
        return result

    return call


class CompiledCalls(nn.Cell):
    """The methods of `Store` by compiled graphs; the buffer's methods hold its lock and wait for work in flight.

    Args:
        operators (Operators): The operators of the buffer.
        parameters (Mapping[str, Parameter]): Its state by name.
        schema (Schema): Its columns.
        options (Options): How rows are kept and drawn.
        reports_failures (bool): Whether kernels report what they fail at after their graph has ended, as on a GPU. Else
            that is to be found out before the call: a graph that failed could not be called again.
    """

    def __init__(
        self, operators: Operators, parameters: Mapping[str, Parameter], schema: Schema, options: Options,
        reports_failures: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self._operators, self._schema, self._options = operators, schema, options
        self.__dict__["_parameters"] = dict(parameters)  # as an attribute they would become its own
        self.checks_first = not reports_failures
        weighted, has_episodes = options.weighting is not None, options.rule is not None
        #: Rows of the longest episode, where that is limited.
        self._longest = 0 if options.rule is None else options.rule.max_length
        waits = reports_failures and self._longest > 0
        self._insert = graph_of(self._insert_with_ends_graph if has_episodes else self._insert_graph, waits)
        self._insert_by_priority = graph_of(
            self._insert_by_priority_with_ends_graph if has_episodes else self._insert_by_priority_graph, waits
        )
        self._sample = graph_of(self._sample_graph, reports_failures)
        self._sample_with = graph_of(self._sample_with_graph, reports_failures)
        self._read = graph_of(self._read_graph)
        self._reset = graph_of(self._reset_graph)
        self._update_column = graph_of(self._update_column_graph)
        if weighted:
            self._update_priorities = graph_of(self._update_priorities_graph)
            self._eligible = graph_of(self._eligible_graph)
            self._eligible_between = graph_of(self._eligible_between_graph)
            self._delete = graph_of(self._delete_graph)
            self._advance = graph_of(self._advance_graph)
            self._info = graph_of(self._info_graph)
        if has_episodes:
            self._end_episodes = graph_of(self._end_episodes_graph)
            self._sample_groups = graph_of(self._sample_groups_graph)

    # Bodies for the compiler, of positional Tensors: a compiled function that takes a tuple would be compiled anew at
    # every call.

    def _insert_graph(self, *rows):
        return self._operators.insert(rows, None, None)

    def _insert_with_ends_graph(self, ends, *rows):
        return self._operators.insert(rows, None, ends)

    def _insert_by_priority_graph(self, priority, *rows):
        return self._operators.insert(rows, priority, None)

    def _insert_by_priority_with_ends_graph(self, priority, ends, *rows):
        return self._operators.insert(rows, priority, ends)

    def _sample_graph(self, bounds):
        return self._operators.sample(bounds, None)

    def _sample_with_graph(self, bounds, beta):
        return self._operators.sample(bounds, beta)

    def _read_graph(self, index):
        return self._operators.read(index)

    def _reset_graph(self):
        return self._operators.reset()

    def _update_column_graph(self, column, handles, rows):
        return self._operators.update(column, handles, rows)

    def _update_priorities_graph(self, handles, priorities):
        return self._operators.update_priorities(handles, priorities)

    def _eligible_graph(self):
        return self._operators.summary()[2]

    def _eligible_between_graph(self, sample_range):
        return self._operators.eligible_in(sample_range)

    def _delete_graph(self, handles):
        return self._operators.delete(handles)

    def _advance_graph(self, steps):
        self._operators.advance(steps)
        return steps

    def _info_graph(self, handles):
        return self._operators.info(handles)

    def _end_episodes_graph(self):
        return self._operators.end_episodes()

    def _sample_groups_graph(self, column, ordered, groups, size):
        return self._operators.sample_groups(column, ordered, groups, size)

    # Calls from Python.

    def count(self) -> int:
        """Returns the number of rows stored."""
        count = int(self._parameters["count"].asnumpy())  # on a device this waits for the work in flight
        native.raise_earlier_failure()
        return count

    def usual_bounds(self) -> tuple[int, int]:
        """Returns the range of logical rows that samples are drawn from by default."""
        window = self._parameters.get("window")
        return ALL_ROWS if window is None else (-int(window.asnumpy()[0]), ALL_ROWS[1])

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Counts the rows at which a sample may start; ``None`` is for all that `sample` draws from."""
        where = self.usual_bounds() if bounds is None else bounds
        if self._options.weighting is None:
            return len(range(*slice(*where).indices(self.count())))
        if where is ALL_ROWS:
            return int(self._eligible().asnumpy())
        return int(self._eligible_between(Tensor(where, ms.int64)).asnumpy())

    def insertion(self, exp: Any, priority: np.ndarray | None, end: Any, final: Any) -> None:
        """Stores one row or a batch; `priority` is float32 ``[]`` or ``[n]``, ``None`` for the largest so far."""
        options = self._options
        fields = self._schema.as_fields(exp)
        rows = self._schema.count_rows(fields, options.num_envs)
        inputs = [value if isinstance(value, Tensor) else Tensor(value) for value in fields]
        if options.rule is not None:
            ends = ends_of(options.cls_name, end, final, rows, options.num_envs)
            if self.checks_first and not self._fits(ends, rows):
                raise too_long(options.cls_name, self._longest)
            inputs.insert(0, Tensor(ends))
        try:
            if priority is None:
                self._insert(*inputs)
            else:
                check_length(options.cls_name, priority, rows)
                self._insert_by_priority(Tensor(priority), *inputs)
        except library.KernelError as error:
            if error.status != library.TOO_LONG:
                raise
            raise too_long(options.cls_name, self._longest) from None

    def _fits(self, ends: np.ndarray, rows: int) -> bool:
        """Returns True if no row makes its episode longer than it may be."""
        longest = self._longest
        if longest == 0:
            return True
        streams, count = self._options.num_envs, self.count()
        length = np.zeros(streams, np.int64)  # of the episodes that the rows go on with
        if count:
            head = int(self._parameters["head"].asnumpy())
            newest = (head + count - streams + np.arange(streams)) % self._options.capacity
            goes_on = self._parameters["flags"].asnumpy()[newest] & END == 0
            length = np.where(goes_on, self._parameters["steps"].asnumpy()[newest] + 1, 0)
        for ended in np.broadcast_to(ends & END > 0, rows).reshape(-1, streams):
            length = length + 1
            if (length[~ended] >= longest).any():
                return False
            length[ended] = 0
        return True

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> tuple[Tensor, ...]:
        """Draws a batch, as `Store.sample` does."""
        where = Tensor(self.usual_bounds() if bounds is None else bounds, ms.int64)
        return self._sample(where) if beta is None else self._sample_with(where, Tensor(beta, ms.float64))

    def read(self, index: np.ndarray) -> tuple[Tensor, ...]:
        """Reads the rows at logical positions, int64 of shape ``[]`` or ``[n]``."""
        return self._read(Tensor(index))

    def update(self, handles: Any, values: Any) -> np.ndarray:
        """Writes columns of stored rows, as `Store.update` does."""
        where, chosen, arrays = as_values(self._schema, handles, values)
        flat = Tensor(where)
        return [self._update_column(i, flat, Tensor(rows)) for i, rows in zip(chosen, arrays)][-1].asnumpy()

    def update_priorities(self, handles: np.ndarray, priorities: np.ndarray) -> np.ndarray:
        """Sets priorities, float32 ``[]`` or ``[n]``. Returns the number of invalid handles."""
        return self._update_priorities(Tensor(handles), Tensor(priorities)).asnumpy()

    def delete(self, handles: np.ndarray) -> np.ndarray:
        """Removes rows. Returns their number."""
        return self._delete(Tensor(handles)).asnumpy()

    def advance(self, steps: int) -> None:
        """Moves the clock."""
        self._advance(Tensor(steps, ms.int64))

    def info(self, handles: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns priorities, use counts and stalenesses."""
        return tuple(part.asnumpy() for part in self._info(Tensor(handles)))

    def end_episodes(self) -> np.ndarray:
        """Ends the open episodes. Returns their number."""
        return self._end_episodes().asnumpy()

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Tensor, ...]:
        """Draws groups by a column of ints: a mask of the rows that exist, and the rows."""
        return self._sample_groups(column, ordered, groups, size)

    def reset(self) -> None:
        """Forgets all rows."""
        self._reset()
