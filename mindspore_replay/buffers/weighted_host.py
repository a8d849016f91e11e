"""The two ways of `host.py`, for buffers with weights."""

import ctypes
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from ..columns import type_name
from ..ops import native
from ..ops.outputs import Outputs, share
from ..ops.state import MARKS, RING, TIME
from .host import CompiledHost, NativeHost, graph_of, row_specs
from .state import overwrite


def check_length(cls_name: str, priority: np.ndarray | Tensor, rows: int) -> None:
    """Raises a ValueError unless there is one priority for all rows or one for each."""
    if priority.shape not in ((), (rows,)):
        raise ValueError(
            f"For '{cls_name}', the priorities must be one number for all rows or have shape [{rows}], one for each, "
            f"but got shape {list(priority.shape)}."
        )


class MarksCall(native.DirectCall):
    """Calls a kernel that takes no rows: what the buffer knows of them, then other arguments.

    Args:
        function (str): Name of the kernel.
        marks (Sequence[Parameter]): The Parameters that it takes first.
        others (Sequence[Union[str, numpy.ndarray]]): What it takes then: an array that stays, or the dtype of a vector
            that `run` is given; these follow one another.
    """

    def __init__(self, function: str, marks: Sequence[Parameter], others: Sequence[str | np.ndarray]) -> None:
        self._marks = marks
        arguments = [(parameter.shape, type_name(parameter.dtype)) for parameter in marks]
        arguments += [((1,), other) if isinstance(other, str) else (other.shape, other.dtype.name) for other in others]
        super().__init__(function, *zip(*arguments))
        self._given = [i for i, other in enumerate(others, len(marks)) if isinstance(other, str)]
        self._kept = [other for other in others if not isinstance(other, str)]  # alive as long as their addresses
        for i, other in enumerate(others, len(marks)):
            if not isinstance(other, str):
                self.addresses[i] = other.ctypes.data

    def run(self, *vectors: np.ndarray | Tensor) -> None:
        """Makes the call on these vectors, contiguous and ``[]`` or ``[n]``."""
        self.locate(0, self._marks)
        if vectors:
            for i, vector in zip(self._given, vectors):
                self.set_leading(range(i, i + 1), vector.size)
            self.locate(self._given[0], vectors)
        self()


class NativeWeightedHost(NativeHost):
    """Calls the kernels on the Parameters' own memory, with no MindSpore in between.

    Args:
        buffer (ReplayBuffer): The buffer.
    """

    _insert_kernel = "replay_insert_weighted"
    _delete_kernel = "replay_delete"
    _advance_kernel = "replay_advance"
    _reset_kernel = "replay_reset_weighted"
    _between: tuple[tuple[tuple[int, ...], str], ...] = (((2,), "float64"), ((1,), "float32"))
    #: Arrays that all kernels but those of trees and `info` take after the state.
    _fixed: tuple[np.ndarray, ...] = ()

    def __init__(self, buffer: Any) -> None:
        self._factors = np.array([buffer.alpha, buffer.epsilon])
        self._max_priority = buffer.max_priority
        self._weights = buffer.weights
        self._cursors = buffer.head, buffer.count
        self._cls_name = type(buffer).__name__
        super().__init__(buffer)
        first = len(self._state)
        for call in (self._insert_one, self._insert_many):
            for i, array in enumerate((*self._fixed, self._factors), first):
                call.addresses[i] = array.ctypes.data
        self._priority_at = first + len(self._fixed) + 1
        # Kernels that touch no rows take one column, by which they are told apart from those on other buffers.
        self._marks = (buffer.buffer[0], *self._state[len(self._columns) :])
        self._result = np.zeros((), np.int32)
        self._steps = np.zeros(1, np.int64)
        staleness = np.array([-1 if buffer.max_staleness is None else buffer.max_staleness], np.int64)
        self._delete = self._on_marks(self._delete_kernel, "int64", self._result)
        self._advance = self._on_marks(self._advance_kernel, self._steps, staleness, np.zeros(1, np.int64))
        self._reset = self._on_marks(self._reset_kernel, self._result)
        known = (buffer.buffer[0], *buffer._graph_state.those(RING + MARKS))
        self._info = MarksCall("replay_info", known, ["int64", "float32", "int32", "int64"])
        self._sums = native.DirectCall(
            "replay_tree_sums",
            [self._weights.shape, (1,), (), (), (1, 2), (1,)],
            ["float64", "int64", "int32", "int32", "int64", "float64"],
        )
        self._capacity = np.array([buffer.capacity], np.int64)
        self._sum = np.zeros(1)

    def _state_of(self, buffer: Any) -> tuple[Parameter, ...]:
        return (*super()._state_of(buffer), *buffer._graph_state.those(MARKS + TIME))

    def _make_sample(self, buffer: Any) -> None:
        self._outputs = Outputs([(self._lead, np.int64), *row_specs(self._columns, self._lead)])
        self._options = np.array([buffer.replace, buffer.ordered, buffer.max_use or 0], np.int64)
        inputs = [((2,), "int64"), ((2,), "int64"), ((3,), "int64"), (self._lead, "int64")]
        self._sample = self._drawing("replay_sample_weighted", inputs)
        first = len(self._state)
        self._sample.addresses[first + 1 : first + 3] = [self._range.ctypes.data, self._options.ctypes.data]

    def _drawing(self, kernel: str, between: Sequence[tuple[tuple[int, ...], str]]) -> native.DirectCall:
        """The call of a kernel that takes the state, gives rows ``[B, *F]``, and has these arguments in between."""
        state = [(parameter.shape, type_name(parameter.dtype)) for parameter in self._state]
        rows = [
            ((*self._lead, *shape), type_name(dtype)) for shape, dtype in zip(self._columns.shapes, self._columns.types)
        ]
        shapes, types = zip(*state, *between, *rows)
        return native.DirectCall(kernel, shapes, types)

    def _on_marks(self, kernel: str, *others: str | np.ndarray) -> "MarksCall":
        """The call of a kernel that takes the marks and then these: arrays, or vectors of a dtype that come later."""
        return MarksCall(kernel, self._marks, (*self._fixed, *others))

    def eligible(self, bounds: tuple[int, int] | None) -> int:
        """Rows of a range that may be drawn; ``None`` is the range of all rows."""
        address = native.address(self._weights)
        if bounds is None:
            return int(ctypes.c_double.from_address(address + 8 * (self._weights.shape[0] - 1)).value)
        self._range[:] = bounds
        cursors = list(map(native.address, self._cursors))
        arrays = [array.ctypes.data for array in (self._range, self._sum)]
        self._sums.addresses[:] = [address, self._capacity.ctypes.data, *cursors, *arrays]
        self._sums()
        return int(self._sum[0])

    def insert(self, exp: Sequence[Any], num_envs: int, priority: np.ndarray | None = None) -> None:
        """Appends one row or a batch; `priority` is float32 ``[]`` or ``[n]``, ``None`` for the largest so far."""
        call, rows, _held = self._taken(exp, num_envs)
        self._give_priority(call, rows, priority)
        call.locate(0, self._state)
        call()

    def _give_priority(self, call: native.DirectCall, rows: int, priority: np.ndarray | None) -> None:
        if priority is not None:
            check_length(self._cls_name, priority, rows)
        at = self._priority_at
        call.set_leading(range(at, at + 1), 1 if priority is None else priority.size)
        call.addresses[at] = native.address(self._max_priority) if priority is None else priority.ctypes.data

    def sample(self, bounds: tuple[int, int]) -> tuple[Tensor, ...]:
        """Handles and rows, drawn from a range of logical rows."""
        self._range[:] = bounds
        first = len(self._state)
        return self._drawn(self._sample, first + 3)

    def _drawn(self, call: native.DirectCall, first_output: int) -> tuple[Tensor, ...]:
        """Makes a call on the state and the random state; new Tensors are its outputs, bookkeeping first."""
        outputs = self._outputs.make()
        first = len(self._state)
        call.locate(0, self._state)
        call.locate(first, (self._random_state,))
        call.locate(first_output, outputs)
        call()
        return tuple(map(share, outputs))

    def delete(self, handles: np.ndarray) -> np.ndarray:
        """Removes rows; how many."""
        self._delete.run(handles)
        return self._result.copy()

    def advance(self, steps: int) -> None:
        """Moves the clock."""
        self._steps[0] = steps
        self._advance.run()

    def info(self, handles: np.ndarray) -> tuple[np.ndarray, ...]:
        """Priorities, use counts and stalenesses."""
        parts = tuple(np.empty(handles.shape, dtype) for dtype in (np.float32, np.int32, np.int64))
        self._info.run(handles, *parts)
        return parts

    def reset(self) -> None:
        """Forgets all rows."""
        self._reset.run()


class NativePrioritizedHost(NativeWeightedHost):
    """Calls the kernels on the Parameters' own memory, with no MindSpore in between.

    Args:
        buffer (PrioritizedReplayBuffer): The buffer.
    """

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self._beta = buffer.beta
        self._first_beta = np.array([buffer.first_beta])
        self._update = self._on_marks("replay_update_priorities", self._factors, "int64", "float32", self._result)

    def _make_sample(self, buffer: Any) -> None:
        bookkeeping = [(self._lead, np.int64), (self._lead, np.float32)]
        self._outputs = Outputs([*bookkeeping, *row_specs(self._columns, self._lead)])
        self._options = np.array([buffer.ordered, buffer.max_use or 0, buffer.normalize == "buffer"], np.int64)
        self._beta_step = np.array([buffer._beta_step()])
        self._given_beta = np.zeros(1)
        inputs = [((2,), "int64"), ((), "float64"), ((1,), "float64"), ((1,), "float64"), ((3,), "int64")]
        outputs = [(self._lead, "int64"), (self._lead, "float32")]
        self._sample = self._drawing("replay_sample_prioritized", [*inputs, *outputs])
        first = len(self._state)
        self._sample.addresses[first + 3 : first + 5] = [self._beta_step.ctypes.data, self._options.ctypes.data]

    def sample(self, beta: float | None) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Handles, importance weights and rows; ``None`` is the Parameter's beta."""
        first = len(self._state)
        current = native.address(self._beta)
        if beta is not None:
            self._given_beta[0] = beta
        given = current if beta is None else self._given_beta.ctypes.data
        self._sample.addresses[first + 1 : first + 3] = [current, given]
        return self._drawn(self._sample, first + 5)

    def update(self, handles: np.ndarray | Tensor, priority: np.ndarray | Tensor) -> np.ndarray:
        """Gives rows other priorities, float32 ``[]`` or ``[n]``; how many handles were dead."""
        self._update.run(handles, priority)
        return self._result.copy()

    def reset(self) -> None:
        """Forgets all rows; beta begins anew."""
        super().reset()
        overwrite(self._beta, self._first_beta)


class CompiledWeightedHost(CompiledHost):
    """Calls compiled graphs, on any device.

    Args:
        buffer (ReplayBuffer): The buffer, whose graph bodies take positional Tensors.
    """

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self._cls_name = type(buffer).__name__
        self._eligible_rows = graph_of(buffer._eligible_rows)
        self._eligible_between = graph_of(buffer._eligible_between)
        self._delete = graph_of(buffer._delete_handles)
        self._advance = graph_of(buffer._advance_by)
        self._info = graph_of(buffer._info_of)

    def eligible(self, bounds: tuple[int, int] | None) -> int:
        """Rows of a range that may be drawn; ``None`` is the range of all rows."""
        if bounds is None:
            return int(self._eligible_rows().asnumpy())
        return int(self._eligible_between(Tensor([bounds], ms.int64)).asnumpy()[0])

    def delete(self, handles: np.ndarray) -> np.ndarray:
        """Removes rows; how many."""
        return self._delete(Tensor(handles)).asnumpy()

    def advance(self, steps: int) -> None:
        """Moves the clock."""
        self._advance(Tensor(steps, ms.int64))

    def info(self, handles: np.ndarray) -> tuple[np.ndarray, ...]:
        """Priorities, use counts and stalenesses."""
        return tuple(part.asnumpy() for part in self._info(Tensor(handles)))


class CompiledPrioritizedHost(CompiledWeightedHost):
    """Calls compiled graphs, on any device.

    Args:
        buffer (PrioritizedReplayBuffer): The buffer, whose graph bodies take positional Tensors.
    """

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self._insert_with = graph_of(buffer._insert_with)
        self._sample = graph_of(buffer._sample_now, self._tells)
        self._sample_with = graph_of(buffer._sample_with, self._tells)
        self._update = graph_of(buffer._update_with)

    def insert(self, exp: Sequence[Any], num_envs: int, priority: np.ndarray | None = None) -> None:
        """Appends one row or a batch; `priority` is float32 ``[]`` or ``[n]``, ``None`` for the largest so far."""
        tensors, rows = self._checked(exp, num_envs)
        if priority is None:
            self._insert(*tensors)
        else:
            check_length(self._cls_name, priority, rows)
            self._insert_with(Tensor(priority), *tensors)

    def sample(self, beta: float | None) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Handles, importance weights and rows; ``None`` is the Parameter's beta."""
        return self._sample() if beta is None else self._sample_with(Tensor(beta, ms.float64))

    def update(self, handles: np.ndarray, priority: np.ndarray) -> np.ndarray:
        """Gives rows other priorities, float32 ``[]`` or ``[n]``; how many handles were dead."""
        return self._update(Tensor(handles), Tensor(priority)).asnumpy()
