"""The two ways of `host.py`, for buffers whose rows know their episode."""

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from ..columns import numpy_type, type_name
from ..ops import native
from ..ops.outputs import Outputs, share
from ..ops.timeline import END
from .host import graph_of, row_specs
from .state import overwrite
from .weighted_host import CompiledWeightedHost, NativeWeightedHost, check_length


def too_long(cls_name: str, longest: int) -> ValueError:
    """The error of a row with which an episode would be longer than it may be."""
    return ValueError(
        f"For '{cls_name}', no episode may have more than max_episode_length={longest} rows: the last of them must "
        "come with end=True, but got one without. Nothing was stored."
    )


class NativeTimedHost(NativeWeightedHost):
    """Calls the kernels on the Parameters' own memory, with no MindSpore in between.

    Args:
        buffer (TimedCell): The buffer.
    """

    _insert_kernel = "replay_insert_timed"
    _delete_kernel = "replay_delete_timed"
    _advance_kernel = "replay_advance_timed"
    _reset_kernel = "replay_reset_timed"
    _between = (((6,), "int64"), ((2,), "float64"), ((1,), "float32"), ((1,), "uint8"))

    def __init__(self, buffer: Any) -> None:
        self._fixed = (buffer._rule.array(),)
        self._num_envs = buffer.num_envs
        self._ends = buffer._ends
        self._prioritized = buffer.prioritized
        self._beta: Parameter | None = buffer.beta if self._prioritized else None
        self._first_beta = np.array([getattr(buffer, "first_beta", 0.0)])
        super().__init__(buffer)
        self._update = self._on_marks("replay_update_timed", self._factors, "int64", "float32", self._result)
        flags = np.array([buffer._last_flags()], np.uint8)
        self._end_all = self._on_marks("replay_end_episodes", self._factors, flags, self._result)
        self._finish = ms.jit(buffer._finish_outputs) if buffer._finish is not None else None

    def insert(  # type: ignore[override]
        self, exp: Sequence[Any], priority: np.ndarray | None, end: Any, final: Any
    ) -> None:
        """Appends one row or a batch; `priority` is float32 ``[]`` or ``[n]``, ``None`` for the largest so far."""
        call, rows, _held = self._taken(exp, self._num_envs)
        ends = self._ends(end, final, rows)
        self._give_priority(call, rows, priority)
        at = self._priority_at + 1
        call.set_leading(range(at, at + 1), ends.size)
        call.addresses[at] = ends.ctypes.data
        call.locate(0, self._state)
        try:
            call()
        except native.KernelError as error:
            if error.status != native.TOO_LONG:
                raise
            raise too_long(self._cls_name, int(self._fixed[0][-1])) from None

    def _make_sample(self, buffer: Any) -> None:
        plan = buffer._plan()
        self._numbers, self._options = plan.numbers(), plan.options()
        self._given_beta, self._beta_step = np.zeros(1), np.array([plan.beta_step])
        shapes, types = plan.shapes(self._columns), plan.types(self._columns)
        self._made = Outputs((shape, numpy_type(dtype)) for shape, dtype in zip(shapes, types))
        inputs = [self._fixed[0], np.zeros(2, np.int64), self._range, *[self._given_beta] * 2, self._beta_step]
        inputs += [self._numbers, self._options]
        state = [(parameter.shape, type_name(parameter.dtype)) for parameter in self._state]
        between = [(array.shape, array.dtype.name) for array in inputs]
        outputs = [(shape, type_name(dtype)) for shape, dtype in zip(shapes, types)]
        self._sample = native.DirectCall("replay_sample_windows", *zip(*state, *between, *outputs))
        first = len(self._state)
        for i, array in enumerate(inputs):
            self._sample.addresses[first + i] = array.ctypes.data
        self._outputs_at = first + len(inputs)

    def sample(self, how: Any) -> tuple[Tensor, ...]:
        """Handles, for a prioritized buffer importance weights, and fields.

        `how` is a range of logical rows; for a prioritized buffer beta, ``None`` for that of the Parameter.
        """
        call, first = self._sample, len(self._state)
        call.locate(0, self._state)
        call.locate(first + 1, (self._random_state,))
        if self._beta is None:
            self._range[:] = how
        else:
            current = native.address(self._beta)
            if how is not None:
                self._given_beta[0] = how
            given = current if how is None else self._given_beta.ctypes.data
            call.addresses[first + 3 : first + 5] = [current, given]
        outputs = self._made.make()
        call.locate(self._outputs_at, outputs)
        call()
        tensors = tuple(map(share, outputs))
        fields = tensors[2:] if self._finish is None else self._finish(*tensors[2:])
        return (*tensors[: 2 if self._prioritized else 1], *fields)

    def update(self, handles: np.ndarray | Tensor, priority: np.ndarray | Tensor) -> np.ndarray:
        """Gives rows other priorities, float32 ``[]`` or ``[n]``; how many handles were dead."""
        self._update.run(handles, priority)
        return self._result.copy()

    def end_episodes(self) -> np.ndarray:
        """Ends the episodes that go on; how many."""
        self._end_all.run()
        return self._result.copy()

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Tensor, ...]:
        """Which rows there are, and the rows, of groups by a column of ints."""
        lead = (groups, size)
        options = np.array([column, ordered], np.int64)
        template = np.zeros(lead, np.int8)
        made = [np.empty(lead, np.bool_)]
        made += [np.empty(shape, dtype) for shape, dtype in row_specs(self._columns, lead)]
        arguments = [(parameter.shape, type_name(parameter.dtype)) for parameter in (*self._state, self._random_state)]
        arguments[len(self._state) : len(self._state)] = [(self._fixed[0].shape, "int64")]
        arrays: list[np.ndarray] = [options, template, *made]
        arguments += [(array.shape, array.dtype.name) for array in arrays]
        call = native.DirectCall("replay_sample_groups", *zip(*arguments))
        addresses = [*map(native.address, self._state), self._fixed[0].ctypes.data, native.address(self._random_state)]
        call.addresses[:] = [*addresses, *(array.ctypes.data for array in arrays)]
        call()
        return tuple(map(share, made))

    def reset(self) -> None:
        """Forgets all rows; beta begins anew."""
        super().reset()
        if self._beta is not None:
            overwrite(self._beta, self._first_beta)


class CompiledTimedHost(CompiledWeightedHost):
    """Calls compiled graphs, on any device.

    Args:
        buffer (TimedCell): The buffer, whose graph bodies take positional Tensors.
    """

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self._num_envs = buffer.num_envs
        self._ends = buffer._ends
        self._prioritized = buffer.prioritized
        self._rule = buffer._rule
        self._head, self._steps, self._flags = buffer.head, buffer.steps, buffer.flags
        waits = self._tells and self._rule.max_length > 0
        self._insert = graph_of(buffer._insert_timed, waits)
        self._insert_with = graph_of(buffer._insert_timed_with, waits)
        self._end_all = graph_of(buffer._end_open_episodes)
        if hasattr(buffer, "_groups_of"):
            self._groups = graph_of(buffer._groups_of)
        if self._prioritized:
            self._sample = graph_of(buffer._sample_now, self._tells)
            self._sample_with = graph_of(buffer._sample_with, self._tells)
            self._update = graph_of(buffer._update_with)

    def insert(  # type: ignore[override]
        self, exp: Sequence[Any], priority: np.ndarray | None, end: Any, final: Any
    ) -> None:
        """Appends one row or a batch; `priority` is float32 ``[]`` or ``[n]``, ``None`` for the largest so far."""
        tensors, rows = self._checked(exp, self._num_envs)
        ends = self._ends(end, final, rows)
        if self.checks_first and not self._fits(ends, rows):
            raise too_long(self._cls_name, self._rule.max_length)
        if priority is not None:
            check_length(self._cls_name, priority, rows)
        try:
            if priority is None:
                self._insert(Tensor(ends), *tensors)
            else:
                self._insert_with(Tensor(priority), Tensor(ends), *tensors)
        except native.KernelError as error:
            if error.status != native.TOO_LONG:
                raise
            raise too_long(self._cls_name, self._rule.max_length) from None

    def _fits(self, ends: np.ndarray, rows: int) -> bool:
        """Whether no row makes its episode longer than it may be."""
        longest = self._rule.max_length
        if longest == 0:
            return True
        streams, count = self._num_envs, self.count()
        length = np.zeros(streams, np.int64)  # of the episodes that the rows go on with
        if count:
            newest = (int(self._head.asnumpy()) + count - streams + np.arange(streams)) % self._steps.shape[0]
            goes_on = self._flags.asnumpy()[newest] & END == 0
            length = np.where(goes_on, self._steps.asnumpy()[newest] + 1, 0)
        for ended in np.broadcast_to(ends & END > 0, rows).reshape(-1, streams):
            length = length + 1
            if (length[~ended] >= longest).any():
                return False
            length[ended] = 0
        return True

    def sample(self, how: Any) -> tuple[Tensor, ...]:
        """Handles, for a prioritized buffer importance weights, and fields.

        `how` is a range of logical rows; for a prioritized buffer beta, ``None`` for that of the Parameter.
        """
        if not self._prioritized:
            return self._sample(Tensor(how, ms.int64))
        return self._sample() if how is None else self._sample_with(Tensor(how, ms.float64))

    def update(self, handles: np.ndarray, priority: np.ndarray) -> np.ndarray:
        """Gives rows other priorities, float32 ``[]`` or ``[n]``; how many handles were dead."""
        return self._update(Tensor(handles), Tensor(priority)).asnumpy()

    def end_episodes(self) -> np.ndarray:
        """Ends the episodes that go on; how many."""
        return self._end_all().asnumpy()

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Tensor, ...]:
        """Which rows there are, and the rows, of groups by a column of ints."""
        return self._groups(column, ordered, groups, size)
