"""Calls from Python that run compiled graphs, on any device, in place of `Store`, which calls kernels directly."""

import inspect
import mmap
from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from ..ops import native
from ..ops.checks import raise_earlier_failure
from ..ops.composite import CompositeOperators
from ..ops.eager import compiled, wait_for_work
from ..ops.operators import Operators
from ..store.base.checks import check_positions, no_room
from ..store.base.random import ALL_ROWS
from ..store.base.schema import Schema
from ..store.base.types import Experience, Values
from ..store.kernels import library
from ..store.kernels.memory import give_back
from ..store.rows.calls import Calls
from ..store.rows.inputs import (
    NewRows,
    as_handles_for,
    as_positions,
    as_priorities,
    as_values,
    check_versions,
    too_long,
)
from ..store.spec.options import Options
from .storage import need_kernels


@ms.jit_class
class _Insertion:
    """``(has_priority, has_version, *columns, *others) -> handle of the first row``: stores rows in a graph.

    Arguments are positional Tensors: a compiled function with a tuple argument would be compiled at every call.

    Args:
        operators (Operators): The operators of the buffer.
        width (int): Number of columns.
        has_episodes (bool): Whether the buffer stores episodes.
    """

    def __init__(self, operators: Operators | CompositeOperators, width: int, has_episodes: bool) -> None:
        self.operators, self.width, self.has_episodes = operators, width, has_episodes

    def __call__(self, has_priority, has_version, *inputs):
        """Return the handle."""
        rows, others = inputs[: self.width], inputs[self.width :]
        priority, ends, version = None, None, None
        if has_priority:
            priority, others = others[0], others[1:]
        if self.has_episodes:
            ends, others = others[0], others[1:]
        if has_version:
            version = others[0]
        return self.operators.insert(rows, priority, ends, version)


class CompiledCalls(Calls):
    """The methods of `Store` by compiled graphs. The caller must hold the buffer's lock and wait for work in flight.

    Args:
        operators (Operators): The operators of the buffer.
        parameters (Mapping[str, Parameter]): The buffer's state by name.
        schema (Schema): The buffer's columns.
        options (Options): How rows are stored and drawn.
        block (Union[mmap.mmap, None]): The memory of the state, if it is the host's. Default: ``None``.
    """

    def __init__(
        self,
        operators: Operators | CompositeOperators,
        parameters: Mapping[str, Parameter],
        schema: Schema,
        options: Options,
        block: mmap.mmap | None = None,
    ) -> None:
        self._operators, self._parameters, self._schema, self.options = operators, parameters, schema, options
        self._block = block
        #: Whether kernels report failures after their graph has ended. Others are prevented: a failed graph cannot be
        #: called again.
        self._reported = isinstance(operators, Operators) and operators.goes_on
        #: Rows of the longest episode, if that is limited.
        self._longest = 0 if options.rule is None else options.rule.max_length
        #: The graphs of which a call waits for the kernels, since they may fail.
        self._may_fail = {"draw", "sample_groups"}
        if self._longest > 0 or options.never_evicts_valid:
            self._may_fail.add("insert")
        self._graphs: dict[str, Callable[..., Any]] = {}
        self._first = Tensor(0, ms.int64)

    def _run(self, operator: str, *inputs: object) -> Any:
        """Run an operator in a compiled graph, and raise any failure of an earlier graph that was not reported."""
        if operator not in self._graphs:
            body = getattr(self._operators, operator)
            if operator == "insert":
                body = _Insertion(self._operators, len(self._schema), self.options.rule is not None)
            self._graphs[operator] = compiled(body if inspect.ismethod(body) else body.__call__)
        raise_earlier_failure()
        result = self._graphs[operator](*inputs)
        if self._reported and operator in self._may_fail:
            wait_for_work()
            native.raise_own_failure()
        return result

    def close(self) -> None:
        """Give the memory of the state back to the system, if it is the host's."""
        if self._block is not None:
            give_back(self._block)

    # Calls from Python.

    def count(self) -> int:
        """Return the number of rows stored."""
        count = int(self._parameters["count"].asnumpy())  # on a device this waits for work in flight
        raise_earlier_failure()
        return count

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Return the number of rows at which a sample may start. ``None`` means all that `sample` draws from."""
        where = self.usual_bounds() if bounds is None else bounds
        if self.options.weighting is None:
            return len(range(*slice(*where).indices(self.count())))
        if where is ALL_ROWS:
            return int(self._run("eligible").asnumpy())
        return int(self._run("eligible_in", Tensor(where, ms.int64)).asnumpy())

    def insertion(self, new: NewRows) -> None:
        """Store one row or a batch, as `store.insertion.Insertion` does."""
        options, rows = self.options, new.batch.rows
        if rows == 0:
            return
        fields = [value if isinstance(value, Tensor) else Tensor(value) for value in new.fields]
        if new.version is not None:
            check_versions(options.cls_name, new.version, int(self._parameters["clock"].asnumpy()[0]))
            if isinstance(self._operators, CompositeOperators):
                need_kernels(options.cls_name, "'version'", "backend='composite'")
        more = [Tensor(part) for part in (new.priority, new.ends, new.version) if part is not None]
        try:
            self._first = self._run("insert", new.priority is not None, new.version is not None, *fields, *more)
        except library.KernelError as error:
            if error.status == library.FULL:
                note = self.pending_note()
                raise no_room(options.cls_name, rows, self.room(), options.capacity, note) from None
            if error.status != library.TOO_LONG:
                raise
            raise too_long(options.cls_name, self._longest) from None

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""
        return int(self._first.asnumpy().reshape(()))

    def _arrays(self, *names: str) -> dict[str, np.ndarray]:
        """Return copies of the state, as far as the buffer has these Parameters."""
        return {name: self._parameters[name].asnumpy() for name in names if name in self._parameters}

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> tuple[Tensor, ...]:
        """Draw a batch, as `Store.sample` does."""
        if not self._reported and self.eligible(bounds) < self.options.min_rows_to_sample:
            raise library.KernelError("replay_sample", library.TOO_FEW_ROWS)
        where = Tensor(self.usual_bounds() if bounds is None else bounds, ms.int64)
        return self._run("draw", where, None if beta is None else Tensor(beta, ms.float64))

    def read(self, index: Values) -> tuple[Tensor, ...]:
        """Read the rows at logical positions, as `Store.read` does."""
        positions = as_positions(self.options.cls_name, index)
        check_positions(self.options.cls_name, positions, self.count())
        return self._run("read", Tensor(positions.astype(np.int64)))

    def update(self, handles: Values, values: Experience) -> np.ndarray:
        """Write columns of stored rows, as `Store.update` does."""
        where, chosen, arrays = as_values(self._schema, self.options, handles, values)
        flat = Tensor(where)
        updates = enumerate(zip(chosen, arrays))
        return [self._run("update", i, j == 0, flat, Tensor(rows)) for j, (i, rows) in updates][-1].asnumpy()

    def check_update(self, handles: Values, values: Experience) -> None:
        """Raise the errors of `update`, and write nothing."""
        as_values(self._schema, self.options, handles, values)

    def update_priorities(self, handles: Values, priorities: Values) -> np.ndarray:
        """Set priorities, as `Store.update_priorities` does."""
        where, checked = map(Tensor, as_priorities(self.options, handles, priorities))
        return self._run("update_priorities", where, checked).asnumpy()

    def delete(self, handles: Values) -> np.ndarray:
        """Remove rows, as `Store.delete` does."""
        where = as_handles_for(self.options, "delete", handles)  # raises the error of a buffer without weights
        return self._run("delete", Tensor(where.reshape(-1))).asnumpy()

    def advance(self, steps: int) -> None:
        """Advance the clock."""
        self._run("advance", Tensor(steps, ms.int64))

    def info(self, handles: Values) -> tuple[np.ndarray, ...]:
        """Return priorities, use counts and stalenesses, as `Store.info` does."""
        where = as_handles_for(self.options, "info", handles)
        return tuple(part.asnumpy().reshape(where.shape) for part in self._run("info", Tensor(where.reshape(-1))))

    def end_episodes(self) -> np.ndarray:
        """End the open episodes, and return their number."""
        return self._run("end_episodes").asnumpy()

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Tensor, ...]:
        """Draw groups by a column of ints: a mask of the rows that exist, and the rows."""
        return self._run("sample_groups", column, ordered, groups, size)

    def begin_epoch(self) -> None:
        """End the epoch in progress, as `Store.begin_epoch` does."""
        self._run("begin_epoch")

    def reset(self) -> None:
        """Remove all rows."""
        self._run("reset")
