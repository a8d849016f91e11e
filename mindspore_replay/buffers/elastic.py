"""Experience replay from the newest rows."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from ..columns import numpy_type
from ..store.base.checks import one_int
from ..store.faces import classes
from ..store.spec.registry import registered
from .base import Buffer
from .compile_time import compile_time


@registered
class ElasticReplayBuffer(Buffer, classes.ElasticReplayBuffer):
    r"""A ring of transitions on the device that samples only its newest `window` rows, uniformly or by priority.

    The window can change at any time. Grow it during training, since early rows soon lose their value. Shrinking it
    deletes nothing. With views, the window limits the rows at which samples start. Otherwise it behaves as
    `ReplayBuffer`.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored, at most 2^31 - 1. In a full buffer each new row replaces the oldest.
        window (Union[int, None]): Number of newest rows to sample from, in [1, `capacity`], without replacement at
            least `sample_size`. Default: ``None``, for `capacity`.
        priorities (Union[Priorities, None]): Sample the window by priority, and return importance weights, as a
            `PrioritizedReplayBuffer` of these rows alone would. The ``"buffer"`` is the window. Default: ``None``.
        shapes, types, names, columns, num_envs, max_use, max_staleness, weighted, views: As for `ReplayBuffer`.
        seed, storage, backend: As for `ReplayBuffer`.
        replace (bool): As for `ReplayBuffer`. Must be ``True`` with `priorities`. Default: ``True``.

    Attributes:
        window (Parameter): Number of newest rows to sample from. Shape ``[1]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend is not available.

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ElasticReplayBuffer
        >>> buffer = ElasticReplayBuffer(sample_size=3, capacity=100, shapes=[()], types=[ms.int32], window=4, seed=0)
        >>> buffer = buffer.insert([np.arange(50, dtype=np.int32)])
        >>> print(*buffer.sample())
        [48 48 47]
        >>> print(*buffer.set_window(40).sample())
        [36 41 15]
    """

    window: Parameter

    def _begin(self) -> None:
        self._check = ops.Assert()

    def _set_window_graph(self, window):
        if isinstance(window, Tensor):
            self._check_window_tensor(window.dtype, window.shape)
            size = ops.reshape(ops.cast(window, ms.int64), (1,))
            ok = ops.logical_and(size >= self._smallest_window, size <= self.capacity)
            self._check(ok, (size,))
            ops.assign(self.window, ops.select(ok, size, self.window))
        else:
            self._check_window(window)
            ops.assign(self.window, ops.reshape(ops.cast(window, ms.int64), (1,)))
        return self._stored_graph()

    @compile_time
    def _check_window(self, window: object) -> bool:
        self._front.checked_window(window)
        return True

    @compile_time
    def _check_window_tensor(self, dtype: object, shape: tuple[int, ...]) -> bool:
        one_int(type(self).__name__, "window", np.ones(shape, numpy_type(dtype)))
        return True

    def _sample_graph(self, *misplaced, beta=None, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, beta, as_dict, with_indices or self.prioritized, longest)
