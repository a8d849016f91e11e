"""Calls from Python that run compiled graphs, on any device, in place of `Store`, which calls kernels directly."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from ..ops import native
from ..ops.checks import raise_earlier_failure
from ..ops.eager import wait_for_work
from ..ops.operators import Operators
from ..ops.primitives import item
from ..store import library, state
from ..store.checks import check_positions, no_room
from ..store.episodes import END, continues, marks_of
from ..store.epochs import has_batch, progress
from ..store.inputs import NewRows, as_handles_for, as_positions, as_priorities, as_values, check_versions, too_long
from ..store.memory import give_back
from ..store.options import Options
from ..store.random import ALL_ROWS
from ..store.schema import Schema


def graph_of(body: Callable[..., Any], waits: bool = False) -> Callable[..., Any]:
    """Compile a graph to call from Python; a call first raises any unreported failure of earlier graphs.

    With `waits`, a call returns when its kernels are done, and raises a KernelError if one of them has failed.
    """
    graph = ms.jit(body)

    def call(*tensors: Any) -> Any:
        raise_earlier_failure()
        result = graph(*tensors)
        if waits:
            wait_for_work()
            native.raise_own_failure()
        return result

    return call


class CompiledCalls(nn.Cell):
    """The methods of `Store` by compiled graphs. The caller holds the buffer's lock and waits for work in flight.

    Args:
        operators (Operators): The operators of the buffer.
        parameters (Mapping[str, Parameter]): The buffer's state by name.
        schema (Schema): The buffer's columns.
        options (Options): How rows are stored and drawn.
        reports_failures (bool): Whether kernels report failures after their graph has ended, as on a GPU. Otherwise
            failures must be prevented before the call: a failed graph cannot be called again.
        block (Union[mmap.mmap, None]): The memory of the state, if it is the host's. Default: ``None``.
    """

    def __init__(
        self,
        operators: Operators,
        parameters: Mapping[str, Parameter],
        schema: Schema,
        options: Options,
        reports_failures: bool,
        block: Any = None,
    ) -> None:
        super().__init__()
        self._operators, self._schema, self._options = operators, schema, options
        self._block = block
        self.__dict__["_parameters"] = dict(parameters)  # as an attribute they would become its own
        self.checks_first = not reports_failures
        weighted, has_episodes = options.weighting is not None, options.rule is not None
        #: Rows of the longest episode, if that is limited.
        self._longest = 0 if options.rule is None else options.rule.max_length
        waits = reports_failures and (self._longest > 0 or options.never_evicts_valid)
        self._width, self._has_episodes = len(schema), has_episodes
        self._insert = graph_of(self._insert_graph, waits)
        self._sample = graph_of(self._sample_graph, reports_failures)
        self._sample_with = graph_of(self._sample_with_graph, reports_failures)
        self._read = graph_of(self._read_graph)
        self._reset = graph_of(self._reset_graph)
        self._update_column = graph_of(self._update_column_graph)
        if options.epochs is not None:
            self._begin_epoch = graph_of(self._begin_epoch_graph)
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

    def kernels_kept_out(self) -> contextlib.AbstractContextManager[None]:
        """Return a block for what is to happen at once; it keeps no graph out."""
        return contextlib.nullcontext()

    def sole_use(self, arrays: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
        """Return a block during which nobody attaches to the rows: nobody can."""
        return contextlib.nullcontext()

    def begin_replacing(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state to write: no other process sees rows that are being replaced."""
        return arrays

    def close(self) -> None:
        """Give the memory of the state back to the system, if it is the host's."""
        if self._block is not None:
            give_back(self._block)

    # Bodies for the compiler, with positional Tensors: a compiled function that takes a tuple would be compiled again
    # at every call.

    def _insert_graph(self, has_priority, has_version, *inputs):
        rows, others = inputs[: self._width], inputs[self._width :]
        priority, ends, version = None, None, None
        if has_priority:
            priority, others = others[0], others[1:]
        if self._has_episodes:
            ends, others = others[0], others[1:]
        if has_version:
            version = others[0]
        return self._operators.insert(rows, priority, ends, version)

    def _sample_graph(self, bounds):
        return self._operators.draw(bounds, None)

    def _sample_with_graph(self, bounds, beta):
        return self._operators.draw(bounds, beta)

    def _read_graph(self, index):
        return self._operators.read(index)

    def _reset_graph(self):
        return self._operators.reset()

    def _begin_epoch_graph(self):
        return self._operators.begin_epoch()

    def _update_column_graph(self, column, counts, handles, rows):
        return self._operators.update(column, counts, handles, rows)

    def _update_priorities_graph(self, handles, priorities):
        return self._operators.update_priorities(handles, priorities)

    def _eligible_graph(self):
        return item(self._operators.summary(), 2)

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
        """Return the number of rows stored."""
        count = int(self._parameters["count"].asnumpy())  # on a device this waits for work in flight
        raise_earlier_failure()
        return count

    def clock(self) -> int:
        """Return the learner's clock."""
        return int(self._parameters["clock"].asnumpy()[0])

    def usual_bounds(self) -> tuple[int, int]:
        """Return the range of logical rows to draw from by default."""
        window = self._parameters.get("window")
        return ALL_ROWS if window is None else (-int(window.asnumpy()[0]), ALL_ROWS[1])

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Return the number of rows at which a sample may start; ``None`` means all that `sample` draws from."""
        where = self.usual_bounds() if bounds is None else bounds
        if self._options.weighting is None:
            return len(range(*slice(*where).indices(self.count())))
        if where is ALL_ROWS:
            return int(self._eligible().asnumpy())
        return int(self._eligible_between(Tensor(where, ms.int64)).asnumpy())

    def try_insert(self, exp: Any, priority: Any, end: Any, final: Any, version: Any = None) -> bool:
        """Return False: a graph stores rows."""
        return False

    def rows_to_insert(self, *_arguments: Any) -> int:
        """Return -1: rows have to be checked first."""
        return -1

    def insertion(self, new: NewRows) -> None:
        """Store one row or a batch, as `store.insertion.Insertion` does."""
        options, rows = self._options, new.batch.rows
        if rows == 0:
            self.__dict__.setdefault("_first", Tensor(0, ms.int64))
            return
        fields = [value if isinstance(value, Tensor) else Tensor(value) for value in new.fields]
        if self.checks_first and self._longest > 0 and new.ends is not None and not self._fits(fields, new.ends, rows):
            raise too_long(options.cls_name, self._longest)
        if new.version is not None:
            check_versions(options.cls_name, new.version, int(self._parameters["clock"].asnumpy()[0]))
        if self.checks_first and options.never_evicts_valid and rows > self.room():
            raise self._no_room(rows)
        more = [Tensor(part) for part in (new.priority, new.ends, new.version) if part is not None]
        try:
            first = self._insert(new.priority is not None, new.version is not None, *fields, *more)
        except library.KernelError as error:
            if error.status == library.FULL:
                raise self._no_room(rows) from None
            if error.status != library.TOO_LONG:
                raise
            raise too_long(options.cls_name, self._longest) from None
        self.__dict__["_first"] = first

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""
        return int(self.__dict__["_first"].asnumpy().reshape(()))

    def room(self) -> int:
        """Return the number of rows that can be inserted without evicting one that can still be drawn."""
        return state.room(self._options, self._arrays(*state.ROOM))

    def _arrays(self, *names: str) -> dict[str, np.ndarray]:
        """Return copies of the state, as far as the buffer has these Parameters."""
        return {name: self._parameters[name].asnumpy() for name in names if name in self._parameters}

    def pending_note(self) -> str:
        """Return a sentence on the rows that wait for late columns; empty if there are none."""
        return state.pending_note(self._options, self._arrays(*state.ROOM))

    def _no_room(self, rows: int) -> RuntimeError:
        options = self._options
        return no_room(options.cls_name, rows, self.room(), options.capacity, self.pending_note())

    def _fits(self, fields: list[Tensor], ends: np.ndarray, rows: int) -> bool:
        """Return True if no row would make its episode too long."""
        rule = self._options.rule
        assert rule is not None
        streams, count = rule.streams, self.count()
        flags = np.broadcast_to(ends, rows)
        if rule.terminated >= 0:
            flags = marks_of(rule, flags, fields[rule.terminated].asnumpy().reshape(rows) != 0)
        before, steps = np.full(streams, END, np.uint8), np.zeros(streams, np.int64)
        if count:
            head = int(self._parameters["head"].asnumpy())
            newest = (head + count - streams + np.arange(streams)) % self._options.capacity
            before, steps = (self._parameters[name].asnumpy()[newest] for name in ("flags", "steps"))
        for now in flags.reshape(-1, streams):
            steps = np.where(continues(before, now), steps + 1, 0)
            if (steps + (now & END == 0) >= rule.max_length).any():
                return False
            before = now
        return True

    def try_sample(self, skip: int) -> int:
        """Return -1: a graph draws rows."""
        return -1

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> tuple[Tensor, ...]:
        """Draw a batch, as `Store.sample` does."""
        where = Tensor(self.usual_bounds() if bounds is None else bounds, ms.int64)
        return self._sample(where) if beta is None else self._sample_with(where, Tensor(beta, ms.float64))

    def read(self, index: Any) -> tuple[Tensor, ...]:
        """Read the rows at logical positions, as `Store.read` does."""
        positions = as_positions(self._options.cls_name, index)
        check_positions(self._options.cls_name, positions, self.count())
        return self._read(Tensor(positions.astype(np.int64)))

    def update(self, handles: Any, values: Any) -> np.ndarray:
        """Write columns of stored rows, as `Store.update` does."""
        where, chosen, arrays = as_values(self._schema, self._options, handles, values)
        flat = Tensor(where)
        updates = enumerate(zip(chosen, arrays))
        return [self._update_column(i, j == 0, flat, Tensor(rows)) for j, (i, rows) in updates][-1].asnumpy()

    def try_update_priorities(self, handles: Any, priorities: Any) -> int:
        """Return -1: a graph sets priorities."""
        return -1

    def update_priorities(self, handles: Any, priorities: Any) -> np.ndarray:
        """Set priorities, as `Store.update_priorities` does."""
        where, given = map(Tensor, as_priorities(self._options, handles, priorities))
        return self._update_priorities(where, given).asnumpy()

    def delete(self, handles: Any) -> np.ndarray:
        """Remove rows, as `Store.delete` does."""
        where = as_handles_for(self._options, "delete", handles)  # raises the error of a buffer without weights
        return self._delete(Tensor(where.reshape(-1))).asnumpy()

    def advance(self, steps: int) -> None:
        """Advance the clock."""
        self._advance(Tensor(steps, ms.int64))

    def info(self, handles: Any) -> tuple[np.ndarray, ...]:
        """Return priorities, use counts and stalenesses, as `Store.info` does."""
        where = as_handles_for(self._options, "info", handles)
        return tuple(part.asnumpy().reshape(where.shape) for part in self._info(Tensor(where.reshape(-1))))

    def end_episodes(self) -> np.ndarray:
        """End the open episodes, and return their number."""
        return self._end_episodes().asnumpy()

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Tensor, ...]:
        """Draw groups by a column of ints: a mask of the rows that exist, and the rows."""
        return self._sample_groups(column, ordered, groups, size)

    def begin_epoch(self) -> None:
        """End the epoch in progress, as `Store.begin_epoch` does."""
        self._begin_epoch()

    def progress(self) -> list[list[int]]:
        """Return the numbers of `Store.progress`."""
        return progress(self._arrays("epoch", "serials", "counts"))

    def has_batch(self) -> bool:
        """Return True if the epoch in progress has another batch."""
        options, arrays = self._options, self._arrays("epoch", "serials", "head", "count", "weights")
        return has_batch(options.epochs, options.plan.n, options.capacity, arrays)

    def reset(self) -> None:
        """Remove all rows."""
        self._reset()
