"""A uniform sample of everything that ever came."""

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from ..columns import Columns, zeros_parameter
from ..ops.eager import graph_body
from ..ops.plan import WINDOW, Output, SamplePlan
from ..ops.reservoir import CompositeReservoirInsert, FindRows, NativeReservoirInsert
from ..ops.ring import CompositeRead, NativeRead
from ..ops.sample import CompositeSample, NativeSample
from ..ops.state import State
from ..ops.updates import CompositeReset, NativeReset
from .host import CompiledHost, NativeHost
from .replay import ReplayBuffer
from .state import check_reservoir, check_slots, check_weights, state_parameter
from .weighted_host import CompiledWeightedHost


class ReservoirReplayBuffer(ReplayBuffer):
    r"""A reservoir of transitions on the device: each row that ever came is equally likely to be among those kept.

    The first `capacity` rows are kept. Row t, counted from 0, then takes the place of one of them, any with the same
    probability, with probability :math:`C / (t + 1)`, and else is forgotten at once. A sample is drawn uniformly from
    the rows kept, and so from the whole stream, as fictitious self-play needs. An insertion costs O(1) a row. The other
    properties are those of `ReplayBuffer`; logical positions are slots, in no order of time.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, rows that the buffer keeps. At most 2^31 - 1.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column, ``()`` for a scalar.
        types (Sequence[Union[mindspore.dtype, numpy.dtype, type, str]]): Dtype of each column, as for `ReplayBuffer`.
        names (Union[Sequence[str], None]): Name of each column. Default: ``None``.
        replace (bool): Whether a row may come twice in one sample. Default: ``True``.
        max_use (Union[int, None]): Deliveries of a row after which it is not drawn any more, until another row takes
            its place. Default: ``None``, for no limit.
        weighted (bool): Whether to keep a weight for each row, as `max_use`, `delete` and `info` need. Default:
            ``False``.
        seed, backend: As for `ReplayBuffer`.

    Attributes:
        row_serials (Parameter): Serial number of the row in each slot: how many rows had ever come before it. Shape
            ``[C]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If there is no column, a size is not positive, or `shapes`, `types` and `names` differ in length.
        RuntimeError: If the backend asked for cannot be had.

    Reference:
        Vitter 1985, "Random sampling with a reservoir", https://doi.org/10.1145/3147.3165 (Algorithm R)

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReservoirReplayBuffer
        >>> buffer = ReservoirReplayBuffer(sample_size=3, capacity=5, shapes=[()], types=[ms.int32], seed=0)
        >>> buffer = buffer.insert([np.arange(1000, dtype=np.int32)])
        >>> print(buffer.size(), *buffer.rows())
        5 [869 436 700  14  27]
        >>> indices, step = buffer.sample(with_indices=True)
        >>> print(indices, step)
        [ 14  14 436] [ 14  14 436]
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[Any],
        *,
        names: Sequence[str] | None = None,
        replace: bool = True,
        max_use: int | None = None,
        weighted: bool = False,
        seed: int | None = None,
        backend: str = "auto",
    ) -> None:
        super(ReplayBuffer, self).__init__()  # what ReplayBuffer's own would do comes below
        self._set_up(
            sample_size, capacity, shapes, types, names, 1, replace, False, max_use, None, weighted, (), seed, backend
        )

    @property
    def _has_handles(self) -> bool:
        return True

    def _make_own_state(self) -> None:
        self.row_serials = zeros_parameter("row_serials", (self.capacity,), ms.int64)
        if self.weighted:
            # Operators on weights name rows by their slots: to them this is a ring that was never full.
            self.slot_serials = state_parameter("slot_serials", np.zeros(2, np.int64))

    def _operator_state(self) -> State:
        parameters = self._state()
        return State(
            self.buffer, {**parameters, "serials": parameters["slot_serials"]} if self.weighted else parameters
        )

    @property
    def _drawn(self) -> Columns:
        """The columns of a sample: the buffer's, and the serial numbers."""
        return Columns(type(self).__name__, (*self.columns.shapes, ()), (*self.columns.types, ms.int64))

    def _plan(self) -> SamplePlan:
        # The rows' handles are their serial numbers, which are drawn as a column, and those of the slots are not given.
        handles = Output(WINDOW, len(self.columns))
        return super()._plan()._replace(outputs=(handles, *self._outputs))

    def _make_ring_operators(self) -> None:
        given = self._graph_state, self.columns
        drawn = State((*self.buffer, self.row_serials), vars(self._graph_state)), self._plan(), self._drawn, None
        self._find = FindRows(self._graph_state, self.serials)
        self._nothing = Tensor([0, 0], ms.int64)
        native_here = self.backend == "native"
        self._forget = (
            NativeReset(self._graph_state, None) if native_here and self.weighted else CompositeReset(self._graph_state)
        )
        if native_here:
            self._read = NativeRead(*given)
            self._write = NativeReservoirInsert(*given, self.serials)
            self._sample = NativeSample(*drawn)
        else:
            self._read = CompositeRead(*given)
            self._write = CompositeReservoirInsert(*given, self.serials)
            self._sample = CompositeSample(*drawn)

    def _make_host(self) -> Any:
        if self.weighted:
            return CompiledWeightedHost(self)
        return NativeReservoirHost(self, self._drawn) if self._direct else CompiledHost(self)

    # Bodies for the compiler.

    def _delete_handles(self, handles):
        return self._delete(self._find(handles))

    def _info_of(self, handles):
        return self._info(self._find(handles))

    def _forget_rows(self):
        self._forget()
        if self.weighted:
            ops.assign(self.slot_serials, self._nothing)
            ops.assign(self.clock, self._nothing)
            ops.assign(self.serials, ops.stack((self.serials[0], self.serials[0])))

    def _sample_graph(self, *, as_dict=False, with_indices=False):
        return self._drawn_graph(self._all_rows, as_dict, with_indices)

    # Methods, with the bodies that Python runs.

    @graph_body(_sample_graph)
    def sample(  # type: ignore[override]
        self, *, as_dict: bool = False, with_indices: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Draws `sample_size` rows, each that was not removed equally likely.

        Args:
            as_dict (bool): Whether to give a dict by column name; only from Python. Default: ``False``.
            with_indices (bool): Whether the rows' handles come first, int64 ``[B]``, in a dict as ``"indices"``: their
                serial numbers. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `as_dict` is asked of a buffer without names.
            RuntimeError: If there are fewer than `sample_size` eligible rows; `can_sample` tells. In a graph the
                operator fails with a RuntimeError.
        """
        return self._draw_between(None, as_dict, with_indices)

    def _check_state(self, state: Mapping[str, np.ndarray]) -> None:
        name = type(self).__name__
        check_reservoir(name, self.capacity, state)
        self._check_limiter(state)
        if self.weighted:
            check_slots(name, state)
            check_weights(name, self.capacity, state, self._eligible(state), self.alpha, self.epsilon)


class NativeReservoirHost(NativeHost):
    """Calls the kernels on the Parameters' own memory, with no MindSpore in between.

    Args:
        buffer (ReservoirReplayBuffer): The buffer, without weights.
        drawn (Columns): The columns of a sample: the buffer's, and the serial numbers.
    """

    _insert_kernel = "replay_reservoir_insert"

    def __init__(self, buffer: Any, drawn: Columns) -> None:
        self._drawn = drawn
        super().__init__(buffer)

    def _state_of(self, buffer: Any) -> tuple[Parameter, ...]:
        cursors = buffer.head, buffer.count, buffer.row_serials, buffer.serials, buffer.random_state
        return (*buffer.buffer, *cursors)

    def _make_sample(self, buffer: Any) -> None:
        self._sample = self._sampling(buffer, (*buffer.buffer, buffer.row_serials), self._drawn)

    def sample(self, bounds: tuple[int, int]) -> tuple[Tensor, ...]:
        """Serial numbers and rows, drawn from a range of logical rows."""
        batch = super().sample(bounds)
        return (batch[-1], *batch[:-1])
