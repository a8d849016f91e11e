"""Replay buffers with MindSpore RL's constructors and attributes, for code whose configuration names them."""

from typing import TypeVar

from mindspore import Tensor

from ..buffers.base import Buffer
from ..buffers.prioritized import PrioritizedReplayBuffer
from ..buffers.replay import ReplayBuffer
from ..buffers.reservoir import ReservoirReplayBuffer as Reservoir
from ..ops.eager import graph_body
from ..store.base.mixins import mixin
from ..store.base.types import Values
from .base import Shapes, Types
from .handles import seed_of
from .operators import BufferAppend, BufferGetItem, BufferSample
from .patches import install, uninstall

__all__ = ["PriorityReplayBuffer", "ReservoirReplayBuffer", "UniformReplayBuffer", "install", "uninstall"]

_Buffer = TypeVar("_Buffer", bound="_FieldByField")


class UniformReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` with the attributes that MindSpore RL's trainers use.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored. In a full buffer each new row replaces the oldest.
        shapes (Sequence[tuple[int, ...]]): Shape ``F`` of one row of each column.
        types (Sequence[mindspore.dtype]): Dtype of each column.
        backend (str): As for `ReplayBuffer`. Default: ``"auto"``.

    Attributes:
        buffer (ParameterTuple): The columns, each ``[C, *F]``, in ring order.
        count (Parameter): Rows stored. Shape ``[]``, int32.
        head (Parameter): Slot of the oldest row. Shape ``[]``, int32.
        buffer_append (BufferAppend): Called as ``buffer_append(self.buffer, exp, self.count, self.head)``.
        buffer_get (BufferGetItem): Called as ``buffer_get(self.buffer, self.count, self.head, index)``.
        buffer_sample (BufferSample): Called as ``buffer_sample(self.buffer, self.count, self.head)``. Its `batch_size`
            equals `sample_size`.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a size is out of its range, or `shapes` and `types` differ in length.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_replay.compat.mindspore_rl import UniformReplayBuffer
        >>> params = {"sample_size": 2, "capacity": 10}
        >>> buffer = UniformReplayBuffer(**params, shapes=[(4,), (1,)], types=[ms.float32, ms.int32])
        >>> for action in range(3):
        ...     buffer = buffer.insert([Tensor([0.5] * 4, ms.float32), Tensor([action], ms.int32)])
        >>> print(buffer.count.asnumpy(), buffer.buffer_sample.batch_size, buffer.sample()[0].shape)
        3 2 (2, 4)
    """

    def __init__(self, sample_size: int, capacity: int, shapes: Shapes, types: Types, *, backend: str = "auto") -> None:
        super().__init__(sample_size, capacity, shapes, types, backend=backend)
        layout = self.shapes, self.types
        self.buffer_append = BufferAppend(capacity, *layout, backend=backend)
        self.buffer_append.serials = self.serials
        self.buffer_get = BufferGetItem(capacity, *layout, backend=backend)
        self.buffer_sample = BufferSample(capacity, sample_size, *layout, backend=backend)
        self.buffer_sample.serials, self.buffer_sample.random_state = self.serials, self.random_state


@mixin
class _FieldByField(Buffer):
    """Common methods of MindSpore RL's buffers with priorities and reservoirs."""

    def _push_graph(self, *transition):
        return self._add_graph(transition)

    @graph_body(_push_graph)
    def push(self: _Buffer, *transition: Values) -> _Buffer:
        """Append a row or a batch, one argument per column.

        Also available as `insert`. In compiled code call that by a bound method, as MindSpore RL's trainers do:
        MindSpore treats the bare statement ``buffer.insert(a, b)`` as a list's.

        Args:
            transition (Tensor): One for each column. Shape ``[*F]``, or ``[n, *F]``.

        Returns:
            Cell: The buffer itself.

        Raises:
            TypeError, ValueError: As for `ReplayBuffer.insert`.
        """
        return self.add(list(transition))

    def destroy(self: _Buffer) -> _Buffer:
        """Remove all rows."""
        return self.reset()


class PriorityReplayBuffer(_FieldByField, PrioritizedReplayBuffer):
    """A `PrioritizedReplayBuffer` whose `insert` takes the columns as separate arguments.

    `sample` returns handles, importance weights relative to the buffer's largest, and the columns.

    Args:
        alpha (float): Exponent of priorities, in [0, 1]: 0 uniform, 1 proportional.
        capacity (int): ``C``, most rows stored. In a full buffer each new row replaces the oldest.
        sample_size (int): ``B``, rows of one sample.
        shapes (Sequence[tuple[int, ...]]): Shape ``F`` of one row of each column.
        types (Sequence[mindspore.dtype]): Dtype of each column.
        seed0, seed1 (int): Seeds: `seed1` if it is not 0, else `seed0`. If both are 0, NumPy's generator supplies one,
            which ``mindspore.set_seed`` seeds. Default: ``0``.
        backend (str): As for `ReplayBuffer`. Default: ``"auto"``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If an argument is out of its range, or `shapes` and `types` differ in length.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_replay.compat.mindspore_rl import PriorityReplayBuffer
        >>> buffer = PriorityReplayBuffer(0.6, 10, 2, [(4,), (1,)], [ms.float32, ms.int32])
        >>> for action in range(3):
        ...     buffer = buffer.insert(Tensor([0.5] * 4, ms.float32), Tensor([action], ms.int32))
        >>> indices, weights, states, actions = buffer.sample(0.4)
        >>> print(buffer.update_priorities(indices, Tensor([0.1, 2.0], ms.float32)))
        0
    """

    def __init__(
        self,
        alpha: float,
        capacity: int,
        sample_size: int,
        shapes: Shapes,
        types: Types,
        seed0: int = 0,
        seed1: int = 0,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            sample_size,
            capacity,
            shapes,
            types,
            alpha=alpha,
            epsilon=1e-7,
            normalize="buffer",
            seed=seed_of("PriorityReplayBuffer", seed0, seed1),
            backend=backend,
        )

    insert = _FieldByField.push  # type: ignore[assignment]

    def _sample_of_beta_graph(self, beta=None, *, as_dict=False):
        return self._drawn_graph(None, beta, as_dict, True)

    @graph_body(_sample_of_beta_graph)
    def sample(  # type: ignore[override]
        self, beta: Values | None = None, *, as_dict: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Draw a sample, as `PrioritizedReplayBuffer.sample` does.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call. Default: ``None``, for the buffer's.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.
        """
        return self._front.sample(None, beta, as_dict, False)


class ReservoirReplayBuffer(_FieldByField, Reservoir):
    """A reservoir whose `push` takes the columns as separate arguments.

    Each row inserted so far is equally likely to be stored.

    Args:
        capacity (int): ``C``, rows stored.
        sample_size (int): ``B``, rows of one sample.
        shapes (Sequence[tuple[int, ...]]): Shape ``F`` of one row of each column.
        dtypes (Sequence[mindspore.dtype]): Dtype of each column.
        seed0, seed1 (int): As for `PriorityReplayBuffer`. Default: ``0``.
        backend (str): As for `ReplayBuffer`. Default: ``"auto"``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If an argument is out of its range, or `shapes` and `dtypes` differ in length.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_replay.compat.mindspore_rl import ReservoirReplayBuffer
        >>> buffer = ReservoirReplayBuffer(10, 2, [(4,), (1,)], [ms.float32, ms.int32], seed1=1)
        >>> for action in range(30):
        ...     buffer = buffer.push(Tensor([0.5] * 4, ms.float32), Tensor([action], ms.int32))
        >>> states, actions = buffer.sample()
        >>> print(buffer.size(), actions.shape)
        10 (2, 1)
    """

    def __init__(
        self,
        capacity: int,
        sample_size: int,
        shapes: Shapes,
        dtypes: Types,
        seed0: int = 0,
        seed1: int = 0,
        *,
        backend: str = "auto",
    ) -> None:
        seed = seed_of("ReservoirReplayBuffer", seed0, seed1)
        super().__init__(sample_size, capacity, shapes, dtypes, seed=seed, backend=backend)
