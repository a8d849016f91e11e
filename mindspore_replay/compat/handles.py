"""Operators on a buffer that an integer identifies: prioritized replay and reservoirs, under MindSpore's old names."""

import itertools

import mindspore as ms
from mindspore import Tensor

from ..buffers.base import Buffer
from ..buffers.prioritized import PrioritizedReplayBuffer
from ..buffers.reservoir import ReservoirReplayBuffer
from ..columns import Columns
from ..ops.eager import graph_body
from ..store.base.checks import check_size
from .base import Operator, Shapes, Types

_buffers: dict[int, Buffer] = {}
_handles = itertools.count()


def seed_of(cls_name: str, seed0: object, seed1: object) -> int | None:
    """Return the seed that two arguments stand for: `seed1`, or `seed0` if that is 0, or ``None`` if both are 0."""
    maximum = 2**63 - 1
    first = check_size(cls_name, "seed0", seed0, maximum, minimum=0)
    return check_size(cls_name, "seed1", seed1, maximum, minimum=0) or first or None


class _Create(Operator):
    """Makes a buffer. A call returns its handle, int64 ``[1]``. The buffer lives until the handle is destroyed."""

    def _keep(self, buffer: Buffer) -> None:
        number = next(_handles)
        _buffers[number] = buffer
        self.handle = Tensor([number], ms.int64)

    def __call__(self):
        return self.handle


class _OnHandle(Operator):
    """An operator on the buffer that a handle identifies.

    Args:
        handle (int): Handle of the buffer.

    Raises:
        ValueError: If no buffer of this class has the handle.
    """

    buffer_cls: type[Buffer]

    def __init__(self, handle: int) -> None:
        name = type(self).__name__
        buffer = _buffers.get(check_size(name, "handle", handle, minimum=0))
        if not isinstance(buffer, self.buffer_cls):
            raise ValueError(
                f"For '{name}', 'handle' must be that of a {self.buffer_cls.__name__} that was not destroyed, but got "
                f"{handle}."
            )
        self.buffer, self.number = buffer, int(handle)
        self.handle = Tensor([self.number], ms.int64)


class _Sample(_OnHandle):
    """Draws rows of a buffer, by another buffer on the same rows whose samples have the batch size.

    Args:
        handle (int): Handle of the buffer.
        batch_size (int): ``B``, rows of one sample.
        shapes (Sequence[tuple[int, ...]]): Shape ``F`` of one row of each column, as of the buffer.
        dtypes (Sequence[mindspore.dtype]): Dtype of each column.

    Raises:
        ValueError: If no buffer of this class has the handle, or it has other `shapes` and `dtypes`.
        RuntimeError: If fewer than `batch_size` rows can be drawn. In a graph the operator fails.
    """

    def __init__(self, handle: int, batch_size: int, shapes: Shapes, dtypes: Types) -> None:
        super().__init__(handle)
        name, buffer = type(self).__name__, self.buffer
        columns = Columns(name, shapes, dtypes)
        if (columns.shapes, columns.types) != (buffer.shapes, buffer.types):
            raise ValueError(
                f"For '{name}', 'shapes' and 'dtypes' must be those of the buffer, {buffer.shapes} and {buffer.types}, "
                f"but got {columns.shapes} and {columns.types}."
            )
        self.resized = buffer.with_sample_size(check_size(name, "batch_size", batch_size))


class _Push(_OnHandle):
    """``(transition) -> handle``: appends one row, a tuple with a Tensor ``[*F]`` for each column, or a batch."""

    def __call__(self, transition):
        self.buffer.add(transition)
        return self.handle


class _Destroy(_OnHandle):
    """``() -> handle``: removes all rows. From Python the handle becomes invalid too.

    The memory is freed with the last operator that was made with the handle. A second call raises a RuntimeError.
    """

    def _call_graph(self):
        self.buffer.reset()
        return self.handle

    @graph_body(_call_graph)
    def __call__(self) -> Tensor:
        if _buffers.pop(self.number, None) is None:
            raise RuntimeError(f"For '{type(self).__name__}', the buffer {self.number} was already destroyed.")
        self.buffer.reset()
        return self.handle


@ms.jit_class
class PriorityReplayBufferCreate(_Create):
    """``() -> handle``: makes a `PrioritizedReplayBuffer`.

    Args:
        capacity (int): ``C``, rows that the buffer keeps. When it is full, each new row replaces the oldest.
        alpha (float): How much priorities count, from 0 (uniform) to 1.
        shapes (Sequence[tuple[int, ...]]): Shape ``F`` of one row of each column.
        dtypes (Sequence[mindspore.dtype]): Dtype of each column.
        seed0, seed1 (int): Seeds: `seed1`, or `seed0` if that is 0. If both are 0, one from NumPy's generator, which
            ``mindspore.set_seed`` seeds. Default: ``0``.
        backend (str): As for `ReplayBuffer`. Default: ``"auto"``.

    Returns:
        Tensor: The handle. Shape ``[1]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If an argument is out of its range, or `shapes` and `dtypes` differ in length.
    """

    def __init__(
        self,
        capacity: int,
        alpha: float,
        shapes: Shapes,
        dtypes: Types,
        seed0: int = 0,
        seed1: int = 0,
        *,
        backend: str = "auto",
    ) -> None:
        seed = seed_of("PriorityReplayBufferCreate", seed0, seed1)
        self._keep(
            PrioritizedReplayBuffer(
                1, capacity, shapes, dtypes, alpha=alpha, epsilon=1e-7, normalize="buffer", seed=seed, backend=backend
            )
        )


@ms.jit_class
class PriorityReplayBufferPush(_Push):
    """``(transition) -> handle``: appends a row with the largest priority so far, at first 1."""

    buffer_cls = PrioritizedReplayBuffer


@ms.jit_class
class PriorityReplayBufferSample(_Sample):
    """``(beta) -> indices, weights, *rows``: draws rows by priority.

    Inputs:
        - **beta** (Union[float, Tensor]) - How far the bias is corrected, in [0, 1]. Shape ``[]`` or ``[1]``.

    Returns:
        tuple[Tensor, ...]: Handles of the rows, int64 ``[B]``: the number of rows inserted before each. Importance
        weights over the buffer's largest, float32 ``[B]``. The rows, ``[B, *F]`` for each column.

    Raises:
        ValueError: If `beta` is outside [0, 1]. In a graph the operator fails for such a Tensor.
    """

    buffer_cls = PrioritizedReplayBuffer

    def __call__(self, beta):
        """Return handles, importance weights and rows of a sample."""
        return self.resized.sample(beta=beta)


@ms.jit_class
class PriorityReplayBufferUpdate(_OnHandle):
    """``(indices, priorities) -> handle``: sets the priorities of rows. Overwritten rows are skipped.

    Inputs:
        - **indices** (Tensor) - Handles of rows, from a sample. Shape ``[n]``, int64.
        - **priorities** (Tensor) - Finite and not negative. Shape ``[n]``, float32.

    Raises:
        TypeError, ValueError: If the arguments do not fit. In a graph the operator fails on a priority that is
            negative, NaN or infinite.
    """

    buffer_cls = PrioritizedReplayBuffer

    def __call__(self, indices, priorities):
        """Set the priorities, and return the handle of the buffer."""
        self.buffer.update_priorities(indices, priorities)
        return self.handle


@ms.jit_class
class PriorityReplayBufferDestroy(_Destroy):
    """``() -> handle``: removes all rows of a prioritized buffer."""

    buffer_cls = PrioritizedReplayBuffer


@ms.jit_class
class ReservoirReplayBufferCreate(_Create):
    """``() -> handle``: makes a `ReservoirReplayBuffer`, a uniform sample of all rows inserted so far.

    Args:
        capacity (int): ``C``, rows that the buffer keeps.
        shapes, dtypes, seed0, seed1, backend: As for `PriorityReplayBufferCreate`.

    Returns:
        Tensor: The handle. Shape ``[1]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If an argument is out of its range, or `shapes` and `dtypes` differ in length.
    """

    def __init__(
        self, capacity: int, shapes: Shapes, dtypes: Types, seed0: int = 0, seed1: int = 0, *, backend: str = "auto"
    ) -> None:
        seed = seed_of("ReservoirReplayBufferCreate", seed0, seed1)
        self._keep(ReservoirReplayBuffer(1, capacity, shapes, dtypes, seed=seed, backend=backend))


@ms.jit_class
class ReservoirReplayBufferPush(_Push):
    """``(transition) -> handle``: offers a row, which is kept with probability ``C / rows inserted so far``."""

    buffer_cls = ReservoirReplayBuffer


@ms.jit_class
class ReservoirReplayBufferSample(_Sample):
    """``() -> rows [B, *F]``: draws rows, each stored one equally likely, and so each row inserted so far."""

    buffer_cls = ReservoirReplayBuffer

    def __call__(self):
        """Return the rows of a sample."""
        return self.resized.sample()


@ms.jit_class
class ReservoirReplayBufferDestroy(_Destroy):
    """``() -> handle``: removes all rows of a reservoir."""

    buffer_cls = ReservoirReplayBuffer
