"""The two ways in which a call from Python reaches a buffer: native kernels on its memory, or compiled graphs.

The buffer's methods hold its lock and wait for work in flight before they come here; rows are checked here.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from ..columns import Columns, type_name
from ..ops import native
from ..ops.eager import wait_for_work
from ..ops.outputs import Outputs, share
from .staging import Staging


def row_specs(columns: Columns, lead: tuple[int, ...]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and dtype of ``[*lead, *F]`` for each column."""
    return [((*lead, *shape), dtype) for shape, dtype in zip(columns.shapes, columns.numpy_types)]


class _Gathering(native.DirectCall):
    """Calls a kernel that takes columns, head, count and more, and gives rows of the columns.

    Args:
        kernel (str): Name of the kernel.
        stored (Sequence[Parameter]): The columns.
        columns (Columns): Their schema.
        cursors (Sequence[Parameter]): Head and count.
        others (Sequence[tuple]): Shape and dtype of what comes between cursors and rows.
        lead (tuple[int, ...]): Leading axes of the rows.
    """

    def __init__(
        self, kernel: str, stored: Sequence[Parameter], columns: Columns, cursors: Sequence[Parameter],
        others: Sequence[tuple[tuple[int, ...], str]], lead: tuple[int, ...],
    ) -> None:  # fmt: skip
        self._inputs = (*stored, *cursors)
        inputs = [(parameter.shape, type_name(parameter.dtype)) for parameter in self._inputs]
        rows = [((*lead, *shape), type_name(dtype)) for shape, dtype in zip(columns.shapes, columns.types)]
        super().__init__(kernel, *zip(*inputs, *others, *rows))
        #: Where the arguments begin that are neither columns nor cursors.
        self.first = len(inputs)
        self._columns = columns
        self._outputs = Outputs(row_specs(columns, lead))

    def run(self, lead: tuple[int, ...] | None = None) -> tuple[Tensor, ...]:
        """Makes the call; new Tensors with other leading axes, if those are given."""
        rows = (self._outputs if lead is None else Outputs(row_specs(self._columns, lead))).make()
        self.locate(0, self._inputs)
        self.locate(len(self.addresses) - len(rows), rows)
        self()
        return tuple(map(share, rows))


class NativeHost:
    """Calls the kernels on the Parameters' own memory, with no MindSpore in between.

    The Parameters' addresses are looked up at each call, since MindSpore may give a Parameter other memory.

    Args:
        buffer (ReplayBuffer): The buffer.
    """

    #: Whether calls run compiled graphs.
    compiled = False
    #: Whether what a call would fail at is to be found out before.
    checks_first = False
    _insert_kernel = "replay_ring_write"
    _sample: Any
    #: Shapes and dtypes of what the kernel takes between the state and the rows.
    _between: tuple[tuple[tuple[int, ...], str], ...] = ()

    def __init__(self, buffer: Any) -> None:
        columns = buffer.columns
        self._columns = columns
        self._count = buffer.count
        self._random_state = buffer.random_state
        self._state = self._state_of(buffer)
        self._staging = Staging(columns)
        self._lead = (buffer.sample_size,)
        self._range = np.zeros(2, np.int64)
        self._make_insertions()
        self._make_sample(buffer)
        self._make_read(buffer)

    def _state_of(self, buffer: Any) -> tuple[Parameter, ...]:
        """What the kernel of an insertion takes first."""
        return (*buffer.buffer, buffer.head, buffer.count, buffer.serials)

    def _make_insertions(self) -> None:
        self._written = np.zeros((), np.int32)
        self._insert_one = self._insertion(self._columns.shapes)
        self._insert_many = self._insertion([(1, *shape) for shape in self._columns.shapes])
        self._insert_one.addresses[self._rows.start : self._rows.stop] = self._staging.addresses

    def _insertion(self, row_shapes: Sequence[tuple[int, ...]]) -> native.DirectCall:
        state = [(parameter.shape, type_name(parameter.dtype)) for parameter in self._state]
        rows = zip(row_shapes, map(type_name, self._columns.types))
        shapes, types = zip(*state, *self._between, *rows, ((), "int32"))
        call = native.DirectCall(self._insert_kernel, shapes, types)
        first = len(state) + len(self._between)
        self._rows = range(first, first + len(row_shapes))
        call.addresses[self._rows.stop] = self._written.ctypes.data
        return call

    def _make_sample(self, buffer: Any) -> None:
        self._sample = self._sampling(buffer, buffer.buffer, self._columns)

    def _sampling(self, buffer: Any, stored: Sequence[Parameter], columns: Columns) -> _Gathering:
        """The call that draws rows of these columns."""
        self._options = np.array([buffer.capacity, buffer.replace, buffer.ordered], np.int64)
        others = [((2,), "int64"), ((2,), "int64"), ((3,), "int64")]
        cursors = buffer.head, buffer.count
        call = _Gathering("replay_sample_uniform", stored, columns, cursors, others, self._lead)
        call.addresses[call.first + 1 : call.first + 3] = [self._range.ctypes.data, self._options.ctypes.data]
        return call

    def _make_read(self, buffer: Any) -> None:
        cursors = buffer.head, buffer.count
        others = [((1,), "int64")]
        self._read = _Gathering("replay_ring_read", buffer.buffer, self._columns, cursors, others, (1,))

    def count(self) -> int:
        """Rows stored."""
        return ctypes.c_int32.from_address(native.address(self._count)).value

    def eligible(self, bounds: tuple[int, int] | None) -> int:
        """Rows of a range that may be drawn; ``None`` is the range of all rows."""
        return rows_between(bounds, self.count())

    def insert(self, exp: Sequence[Any], num_envs: int) -> None:
        """Appends one row or a batch."""
        call, _, _held = self._taken(exp, num_envs)
        call.locate(0, self._state)
        call()

    def _taken(self, exp: Sequence[Any], num_envs: int) -> tuple[native.DirectCall, int, Any]:
        """The call that stores rows, how many they are, and what is to live until the kernel has read them."""
        if num_envs == 1 and self._staging.row(exp):
            return self._insert_one, 1, None
        fields = tuple(exp)
        rows = self._staging.batch(fields, num_envs)
        if not rows:
            checked, rows = self._staging.checked(fields, num_envs)
            if not checked:
                return self._insert_one, 1, None
            fields = tuple(checked)
        call = self._insert_many
        call.set_leading(self._rows, rows)
        call.locate(self._rows.start, fields)
        return call, rows, fields

    def sample(self, bounds: tuple[int, int]) -> tuple[Tensor, ...]:
        """A batch drawn from a range of logical rows."""
        self._range[:] = bounds
        self._sample.locate(self._sample.first, (self._random_state,))
        return self._sample.run()

    def read(self, index: np.ndarray) -> tuple[Tensor, ...]:
        """The rows at logical positions, int64 of shape ``[]`` or ``[n]``."""
        first = self._read.first
        index = np.ascontiguousarray(index) if index.ndim else index
        self._read.set_leading(range(first, first + 1 + len(self._columns)), index.size)
        self._read.addresses[first] = index.ctypes.data
        return self._read.run(index.shape)


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


class CompiledHost:
    """Calls compiled graphs, on any device.

    Args:
        buffer (ReplayBuffer): The buffer, whose graph bodies take positional Tensors: a compiled function that takes a
            tuple would be compiled anew at every call.
    """

    #: Whether calls run compiled graphs.
    compiled = True
    #: Whether what a graph would fail at is to be found out before: one that failed could not be called again.
    checks_first = True

    def __init__(self, buffer: Any) -> None:
        self._columns = buffer.columns
        self._count = buffer.count
        self._tells = buffer.backend == "native" and native.fails_later()
        self.checks_first = not self._tells
        self._insert = graph_of(buffer._insert_rows)
        self._sample = graph_of(buffer._sample_between, self._tells)
        self._read = graph_of(buffer._read_rows)
        self._reset = graph_of(buffer._forget_rows)

    def count(self) -> int:
        """Rows stored."""
        count = int(self._count.asnumpy())  # on a device this waits for the work in flight
        native.raise_earlier_failure()
        return count

    def eligible(self, bounds: tuple[int, int] | None) -> int:
        """Rows of a range that may be drawn; ``None`` is the range of all rows."""
        return rows_between(bounds, self.count())

    def insert(self, exp: Sequence[Any], num_envs: int) -> None:
        """Appends one row or a batch."""
        tensors, _ = self._checked(exp, num_envs)
        self._insert(*tensors)

    def _checked(self, exp: Sequence[Any], num_envs: int) -> tuple[list[Tensor], int]:
        """The rows as Tensors, and how many they are."""
        fields = self._columns.as_fields(exp)
        rows = self._columns.count_rows(fields, num_envs)
        return [value if isinstance(value, Tensor) else Tensor(value) for value in fields], rows

    def sample(self, bounds: tuple[int, int]) -> tuple[Tensor, ...]:
        """A batch drawn from a range of logical rows."""
        return self._sample(Tensor(bounds, ms.int64))

    def read(self, index: np.ndarray) -> tuple[Tensor, ...]:
        """The rows at logical positions, int64 of shape ``[]`` or ``[n]``."""
        return self._read(Tensor(index))

    def reset(self) -> None:
        """Forgets all rows."""
        self._reset()


def rows_between(bounds: tuple[int, int] | None, count: int) -> int:
    """How many of `count` rows a slice holds; ``None`` is all of them."""
    return count if bounds is None else len(range(*slice(*bounds).indices(count)))
