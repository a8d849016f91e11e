"""Experience replay from the newest rows."""

from typing import NoReturn

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from ..columns import numpy_type
from ..ops.eager import graph_body
from ..store.base.checks import check_size, one_int
from ..store.base.kinds import LONGEST
from ..store.base.types import Values
from ..store.spec.classes import ElasticRecipe
from ..store.spec.registry import registered
from .base import Buffer
from .compile_time import compile_time
from .parameters import overwrite


@registered
class ElasticReplayBuffer(ElasticRecipe, Buffer):
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
        prioritized (bool): Whether to sample the window by priority and return importance weights, as a
            `PrioritizedReplayBuffer` of these rows alone would. Default: ``False``.
        alpha, beta, beta_steps, epsilon, normalize, initial_priority, default_priority: As for
            `PrioritizedReplayBuffer`, if `prioritized`. The ``"buffer"`` is the window.
        shapes, types, names, num_envs, max_use, max_staleness, weighted, views, late: As for `ReplayBuffer`.
        compress, max_length, items, share_lengths, sample_length, cut, seed, storage, backend: As for `ReplayBuffer`.
        replace (bool): As for `ReplayBuffer`. Must be ``True`` if `prioritized`. Default: ``True``.

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
            given = ops.reshape(ops.cast(window, ms.int64), (1,))
            ok = ops.logical_and(given >= self._smallest_window, given <= self.capacity)
            self._check(ok, (given,))
            ops.assign(self.window, ops.select(ok, given, self.window))
        else:
            self._check_window(window)
            ops.assign(self.window, ops.reshape(ops.cast(window, ms.int64), (1,)))
        return self._stored_graph()

    @graph_body(_set_window_graph)
    def set_window(self, window: int | Tensor) -> "ElasticReplayBuffer":
        """Set the number of newest rows to sample from.

        Args:
            window (Union[int, Tensor]): In [1, `capacity`], without replacement at least `sample_size`. A Tensor must
                have shape ``[]`` or ``[1]``.

        Returns:
            ElasticReplayBuffer: The buffer itself. In a graph a tuple with the number of rows stored, int32 ``[]``.

        Raises:
            TypeError: If `window` is not an int.
            ValueError: If `window` is outside its range. In a graph the operator raises a RuntimeError for such a
                Tensor, and the window does not change.

        Examples:
            >>> from mindspore_replay import ElasticReplayBuffer
            >>> buffer = ElasticReplayBuffer(3, 100, shapes=[()], types=["int32"], window=5, seed=0)
            >>> print(*buffer.insert([list(range(100))]).set_window(50).sample())
            [82 85 69]
        """
        if isinstance(window, Tensor):
            window = one_int(type(self).__name__, "window", window.asnumpy())
        with self.exclusive():
            overwrite(self.window, np.array([self._checked_window(window)], np.int64))
        return self

    def _checked_window(self, window: object) -> int:
        return check_size(type(self).__name__, "window", window, self.capacity, self._smallest_window)

    @compile_time
    def _check_window(self, window: object) -> bool:
        self._checked_window(window)
        return True

    @compile_time
    def _check_window_tensor(self, dtype: object, shape: tuple[int, ...]) -> bool:
        one_int(type(self).__name__, "window", np.ones(shape, numpy_type(dtype)))
        return True

    def _sample_graph(self, *misplaced, beta=None, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, beta, as_dict, with_indices or self.prioritized, longest)

    @graph_body(_sample_graph)
    def sample(
        self,
        *_misplaced: NoReturn,
        beta: Values | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Sample `sample_size` of the newest `window` rows, uniformly or by priority. Removed rows are skipped.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, as for `PrioritizedReplayBuffer.sample`. Only if
                `prioritized`. Default: ``None``.
            as_dict (bool): Whether to return a dict by column name. Default: ``False``.
            with_indices (bool): Whether to return the rows' handles first, as for `ReplayBuffer.sample`. Default:
                ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor ``[B, *F]`` for each column in the order of `shapes`. If
            `prioritized`, handles, int64 ``[B]``, and importance weights, float32 ``[B]``, precede them.

        Raises:
            TypeError: If `as_dict` is set and the buffer has no names.
            ValueError: If `beta` is outside [0, 1].
            RuntimeError: If `beta` is given and the buffer is not `prioritized`, or the window has no
                eligible row, or without replacement fewer than `sample_size`. See `can_sample`. In a graph the operator
                raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import ElasticReplayBuffer
            >>> buffer = ElasticReplayBuffer(3, 100, shapes=[()], types=["int32"], window=5, seed=0)
            >>> print(*buffer.insert([list(range(100))]).sample())
            [98 98 96]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, beta, as_dict, with_indices, LONGEST if longest else None)
