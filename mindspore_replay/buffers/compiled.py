"""Calls from Python that run compiled graphs, on any device: what `Store` does where kernels can be called directly."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from ..ops import native
from ..ops.eager import wait_for_work
from ..store import library
from ..store.inputs import as_values, check_length, ends_of, too_long
from ..store.random import ALL_ROWS
from ..store.windows import END


def graph_of(body: Callable[..., Any], waits: bool = False) -> Callable[..., Any]:
    """A compiled graph to call from Python, which first says what went wrong in the graphs before it.

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


class CompiledCalls:
    """The methods of `Store` by compiled graphs; the buffer's methods hold its lock and wait for work in flight.

    Args:
        buffer (ReplayBuffer): The buffer, whose graph bodies take positional Tensors: a compiled function that takes a
            tuple would be compiled anew at every call.
    """

    def __init__(self, buffer: Any) -> None:
        self._schema, self._options = buffer.columns, buffer._options
        options = self._options
        self._parameters = buffer._state()
        tells = buffer.backend == "native" and native.fails_later()
        #: Whether what a graph would fail at is to be found out before: one that failed could not be called again.
        self.checks_first = not tells
        marked, timed = options.weighting is not None, options.rule is not None
        limited = timed and options.rule.max_length > 0
        self._insert = graph_of(buffer._insert_rows, tells and limited)
        self._sample = graph_of(buffer._sample_in, tells)
        self._read = graph_of(buffer._read_rows)
        self._reset = graph_of(buffer._forget_rows)
        self._update_column = graph_of(buffer._update_column)
        if marked:
            self._insert_with = graph_of(buffer._insert_with, tells and limited)
            self._sample_with = graph_of(buffer._sample_with, tells)
            if options.beta is not None:
                self._update = graph_of(buffer._update_with)
            self._eligible_rows = graph_of(buffer._eligible_rows)
            self._eligible_between = graph_of(buffer._eligible_between)
            self._delete = graph_of(buffer._delete_handles)
            self._advance = graph_of(buffer._advance_by)
            self._info = graph_of(buffer._info_of)
        if timed:
            self._end_episodes = graph_of(buffer._end_open_episodes)
            if hasattr(buffer, "_groups_of"):
                self._groups = graph_of(buffer._groups_of)

    def count(self) -> int:
        """Rows stored."""
        count = int(self._parameters["count"].asnumpy())  # on a device this waits for the work in flight
        native.raise_earlier_failure()
        return count

    def usual_bounds(self) -> tuple[int, int]:
        """The logical rows that are drawn from where nothing else is said."""
        window = self._parameters.get("window")
        return ALL_ROWS if window is None else (-int(window.asnumpy()[0]), ALL_ROWS[1])

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Rows at which a sample may start; ``None`` is for all that `sample` draws from."""
        where = self.usual_bounds() if bounds is None else bounds
        if self._options.weighting is None:
            return len(range(*slice(*where).indices(self.count())))
        if where is ALL_ROWS:
            return int(self._eligible_rows().asnumpy())
        return int(self._eligible_between(Tensor([where], ms.int64)).asnumpy()[0])

    def insertion(self, exp: Any, priority: np.ndarray | None, end: Any, final: Any) -> None:
        """Stores one row or a batch; `priority` is float32 ``[]`` or ``[n]``, ``None`` for the largest so far."""
        options = self._options
        fields = self._schema.as_fields(exp)
        rows = self._schema.count_rows(fields, options.num_envs)
        inputs = [value if isinstance(value, Tensor) else Tensor(value) for value in fields]
        if options.rule is not None:
            ends = ends_of(options.cls_name, end, final, rows, options.num_envs)
            if self.checks_first and not self._fits(ends, rows):
                raise too_long(options.cls_name, options.rule.max_length)
            inputs.insert(0, Tensor(ends))
        try:
            if priority is None:
                self._insert(*inputs)
            else:
                check_length(options.cls_name, priority, rows)
                self._insert_with(Tensor(priority), *inputs)
        except library.KernelError as error:
            if error.status != library.TOO_LONG:
                raise
            raise too_long(options.cls_name, options.rule.max_length) from None

    def _fits(self, ends: np.ndarray, rows: int) -> bool:
        """Whether no row makes its episode longer than it may be."""
        longest = self._options.rule.max_length
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
        """A batch, as `Store.sample` gives it."""
        where = Tensor(self.usual_bounds() if bounds is None else bounds, ms.int64)
        return self._sample(where) if beta is None else self._sample_with(where, Tensor(beta, ms.float64))

    def read(self, index: np.ndarray) -> tuple[Tensor, ...]:
        """The rows at logical positions, int64 of shape ``[]`` or ``[n]``."""
        return self._read(Tensor(index))

    def update(self, handles: Any, values: Any) -> np.ndarray:
        """Writes columns of stored rows, as `Store.update` does."""
        where, chosen, arrays = as_values(self._schema, handles, values)
        flat = Tensor(where)
        return [self._update_column(i, flat, Tensor(rows)) for i, rows in zip(chosen, arrays)][-1].asnumpy()

    def update_priorities(self, handles: np.ndarray, priorities: np.ndarray) -> np.ndarray:
        """Gives rows other priorities, float32 ``[]`` or ``[n]``; how many handles were dead."""
        return self._update(Tensor(handles), Tensor(priorities)).asnumpy()

    def delete(self, handles: np.ndarray) -> np.ndarray:
        """Takes rows out of the draw; how many."""
        return self._delete(Tensor(handles)).asnumpy()

    def advance(self, steps: int) -> None:
        """Moves the clock."""
        self._advance(Tensor(steps, ms.int64))

    def info(self, handles: np.ndarray) -> tuple[np.ndarray, ...]:
        """Priorities, use counts and stalenesses."""
        return tuple(part.asnumpy() for part in self._info(Tensor(handles)))

    def end_episodes(self) -> np.ndarray:
        """Ends the episodes that go on; how many."""
        return self._end_episodes().asnumpy()

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Tensor, ...]:
        """Which rows there are, and the rows, of groups by a column of ints."""
        return self._groups(column, ordered, groups, size)

    def reset(self) -> None:
        """Forgets all rows."""
        self._reset()
