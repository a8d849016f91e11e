"""Operators on a ring under the names and signatures that they had in MindSpore."""

from collections.abc import Callable, Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..buffers.compile_time import Tensor as StandIn
from ..ops import composite, native
from ..ops.checks import blank
from ..ops.eager import graph_body
from ..ops.operator import SingleRow
from ..store.base.checks import MAX_CAPACITY, check_bool, check_seed, check_size
from ..store.base.random import ALL_ROWS
from ..store.base.schema import type_name
from ..store.base.types import Experience
from ..store.spec.plan import WINDOW, Output, SamplePlan
from .base import RingOperator, Shapes, Types


@ms.jit_class
class BufferAppend(RingOperator):
    """``(buffer, exp, count, head)``: appends one row or a batch to a ring, in place.

    Rows keep their order, also across the end of the ring. In a full ring each new row replaces the oldest, and of a
    batch longer than the capacity the newest rows stay. An empty ring starts at slot 0 again, so a ring filled from
    empty is in time order. Costs O(rows).

    Args:
        capacity (int): ``C``, most rows stored.
        buffer_shape (Sequence[tuple[int, ...]]): Shape ``F`` of one row of each column.
        buffer_dtype (Sequence[mindspore.dtype]): Dtype of each column.
        backend (str): As for `ReplayBuffer`. The composite backend keeps bool columns as uint8 only. Default:
            ``"auto"``.

    Inputs:
        - **buffer** (Sequence[Parameter]) - The columns. Shape ``[C, *F]``. Changed.
        - **exp** (Sequence[Tensor]) - The rows, each of the column's dtype, shape ``[*F]``, or ``[n, *F]`` for n rows.
        - **count** (Parameter) - Rows stored. Shape ``[]``, int32. Changed.
        - **head** (Parameter) - Slot of the oldest row. Shape ``[]``, int32. Changed.

    Returns:
        Tensor: Rows stored now. Shape ``[]``, int32.

    Raises:
        TypeError: If an argument, or the dtype of a row, is of another type.
        ValueError: If sizes, shapes or the columns do not fit.
    """

    def __init__(self, capacity: int, buffer_shape: Shapes, buffer_dtype: Types, *, backend: str = "auto") -> None:
        self._set_up(capacity, buffer_shape, buffer_dtype, backend)
        self.write: Callable[..., Tensor] = (
            native.custom("replay_insert", lambda *_: (1,), ms.int64)
            if self.native
            else composite.RingWrite(self.capacity, self.columns)
        )
        self.check_rows = self._check_in_graph(self._check_rows, "Rows")

    def _check_rows(self, shapes: Shapes, types: Types) -> bool:
        rows = zip(self.columns.in_order(types), shapes)  # type: ignore[arg-type]
        self.columns.layout(self.columns.as_fields([StandIn(dtype, shape) for dtype, shape in rows]), 0)
        return True

    def _append(self, buffer, exp, count, head):
        ops.assign(head, head * ops.cast(count > 0, ms.int32))
        if self.native:
            self.write(*buffer, head, count, self.serials, *exp)
        else:
            self.write(buffer, head, count, self.serials, exp, None)
        return count + 0

    def _call_graph(self, buffer, exp, count, head):
        self._checked(buffer, count, head)
        shapes = ()
        types = ()
        for row in exp:
            shapes = shapes + (row.shape,)
            types = types + (row.dtype,)
        self.check_rows(shapes, types)
        rows = ()
        for i in range(len(types)):
            rows = rows + (exp[i] if types[i] == self.types[i] else ops.cast(exp[i], self.types[i]),)
        return self._append(buffer, rows, count, head)

    @graph_body(_call_graph)
    def __call__(self, buffer: Sequence[Tensor], exp: Experience, count: Tensor, head: Tensor) -> Tensor:
        """Append one row or a batch, and return the number of rows stored."""
        self._checked_in_python(buffer, count, head)
        fields = self.columns.as_fields(self.columns.in_order(exp))
        rows = [Tensor(field) if isinstance(field, np.ndarray) else field for field in fields]
        self._check_rows(tuple(row.shape for row in rows), tuple(row.dtype for row in rows))
        return self._append(buffer, rows, count, head)


@ms.jit_class
class BufferGetItem(RingOperator):
    """``(buffer, count, head, index)``: reads the row of a ring at a logical position: 0 the oldest, -1 the newest.

    Args:
        capacity, buffer_shape, buffer_dtype, backend: As for `BufferAppend`.

    Inputs:
        - **buffer**, **count**, **head** - As for `BufferAppend`, not changed.
        - **index** (Union[int, Tensor]) - The position. Shape ``[]`` or ``[1]``, int32 or int64.

    Returns:
        tuple[Tensor, ...]: A copy of the row. Shape ``[*F]`` for each column.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If sizes, shapes or the columns do not fit.
        IndexError: If there is no such row. In a graph the operator raises a RuntimeError.
    """

    def __init__(self, capacity: int, buffer_shape: Shapes, buffer_dtype: Types, *, backend: str = "auto") -> None:
        self._set_up(capacity, buffer_shape, buffer_dtype, backend)
        shapes = tuple(shape or (1,) for shape in self.columns.shapes)
        self.read: Callable[..., tuple[Tensor, ...]] = (
            native.custom("replay_read", lambda *_: shapes, tuple(self.columns.types))
            if self.native
            else composite.RingRead(self.capacity, self.columns)
        )
        self.single = SingleRow(self.columns.shapes)
        self.check_index = self._check_in_graph(self._check_index, "Index")

    def _check_index(self, dtype: object, shape: tuple[int, ...]) -> bool:
        if dtype not in (ms.int32, ms.int64) or tuple(shape) not in ((), (1,)):
            raise TypeError(
                f"For 'BufferGetItem', 'index' must be one int32 or int64, but got {type_name(dtype)} of shape "
                f"{tuple(shape)}."
            )
        return True

    def _row(self, buffer, count, head, index):
        if self.native:
            return self.single(self.read(*buffer, head, count, self.serials, index))
        return self.read(buffer, head, count, index)

    def _call_graph(self, buffer, count, head, index):
        self._checked(buffer, count, head)
        if isinstance(index, Tensor):
            self.check_index(index.dtype, index.shape)
        elif not isinstance(index, int):
            raise TypeError("For 'BufferGetItem', 'index' must be an int or a Tensor.")
        return self._row(buffer, count, head, ops.reshape(ops.cast(index, ms.int64), ()))

    @graph_body(_call_graph)
    def __call__(
        self, buffer: Sequence[Tensor], count: Tensor, head: Tensor, index: int | Tensor
    ) -> tuple[Tensor, ...]:
        """Return a copy of the row at a logical position."""
        self._checked_in_python(buffer, count, head)
        position = index if isinstance(index, Tensor) else Tensor(np.asarray(index))
        self._check_index(position.dtype, position.shape)
        number, stored = int(position), int(count)
        if not -stored <= number < stored:
            raise IndexError(
                f"For 'BufferGetItem', 'index' must be in [-{stored}, {stored}), since {stored} rows are stored, but "
                f"got {number}."
            )
        return self._row(buffer, count, head, Tensor(number, ms.int64))


@ms.jit_class
class BufferSample(RingOperator):
    """``(buffer, count, head)``: draws rows of a ring, each equally likely.

    Args:
        capacity, buffer_shape, buffer_dtype, backend: As for `BufferAppend`.
        batch_size (int): ``B``, rows of one sample, at most `capacity`.
        seed (int): Seed of the random sequence. 0 for one from NumPy's generator, which ``mindspore.set_seed`` seeds.
            Default: ``0``.
        unique (bool): Whether each row occurs at most once in a sample. Default: ``False``.

    Inputs:
        - **buffer**, **count**, **head** - As for `BufferAppend`, not changed.

    Returns:
        tuple[Tensor, ...]: Copies of the rows. Shape ``[B, *F]`` for each column.

    Attributes:
        random_state (Parameter): Key and counter of the random sequence. Shape ``[2]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If `batch_size` is larger than `capacity` with `unique`, or sizes, shapes or the columns do not fit.
        RuntimeError: If no row is stored, or with `unique` fewer than `batch_size`. In a graph the operator fails.
    """

    def __init__(
        self,
        capacity: int,
        batch_size: int,
        buffer_shape: Shapes,
        buffer_dtype: Types,
        seed: int = 0,
        unique: bool = False,
        *,
        backend: str = "auto",
    ) -> None:
        self._set_up(capacity, buffer_shape, buffer_dtype, backend, check_seed("BufferSample", seed or None))
        replace = not check_bool("BufferSample", "unique", unique)
        most = MAX_CAPACITY if replace else self.capacity
        self.batch_size = check_size("BufferSample", "batch_size", batch_size, maximum=most)
        outputs = tuple(Output(WINDOW, column) for column in range(len(self.columns)))
        plan = SamplePlan(self.batch_size, "uniform", outputs, replace=replace)
        self.needed = plan.needed
        if self.native:
            self.plan = Tensor(plan.options())
            shapes = tuple(shape for shape, _ in plan.specs(self.columns))
            self.sample = native.custom("replay_sample", lambda *_: shapes, tuple(self.columns.types))
        else:
            self.draw = composite.DrawUniform(plan, self.capacity)
            self.gather, self.blank = composite.Gather(self.columns), blank()
        self.all_rows = Tensor(ALL_ROWS, ms.int64)

    def _rows(self, buffer, count, head):
        if self.native:
            return self.sample(*buffer, head, count, self.serials, self.random_state, self.plan, self.all_rows)
        slots, ok = self.draw(self.random_state, head, count, self.all_rows)
        rows = self.gather(buffer, slots)
        return rows if self.blank is None else self.blank(rows, ok)

    def _call_graph(self, buffer, count, head):
        self._checked(buffer, count, head)
        return self._rows(buffer, count, head)

    @graph_body(_call_graph)
    def __call__(self, buffer: Sequence[Tensor], count: Tensor, head: Tensor) -> tuple[Tensor, ...]:
        """Return the rows of a sample."""
        self._checked_in_python(buffer, count, head)
        stored = int(count)
        if stored < self.needed:
            rows = f"batch_size={self.batch_size} rows" if self.needed == self.batch_size else "at least 1 row"
            raise RuntimeError(f"For 'BufferSample', a sample needs {rows}, but {stored} are stored.")
        return self._rows(buffer, count, head)
