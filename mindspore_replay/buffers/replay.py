"""Uniform experience replay."""

from typing import Any, NoReturn

import mindspore as ms
from mindspore import Tensor, ops

from ..ops.eager import graph_body
from ..store.recipe.classes import ReplayRecipe
from ..store.recipe.registry import registered
from .base import Buffer


@registered
class ReplayBuffer(ReplayRecipe, Buffer):
    r"""A ring of transitions on the device, sampled uniformly.

    Its methods compile into the graph of the Cell or ``ms.jit`` function that calls them. Called from Python they run
    immediately, with NumPy arrays, Python scalars or Tensors; such calls hold the buffer's lock. An operation costs
    O(rows touched) at any capacity. With the native backend, threads may also call compiled graphs and methods
    concurrently: rows are never mixed.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored; then each new row replaces the oldest. At most 2^31 - 1.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column, ``()`` for a scalar.
        types (Sequence[Union[mindspore.dtype, numpy.dtype, type, str]]): Dtype of each column, or its name:
            bool, int8 to int64, uint8 to uint64, float16, float32, float64, and bfloat16 with the native backend.
        names (Union[Sequence[str], None]): Name of each column. With names, `insert` also takes a dict.
            Default: ``None``.
        num_envs (int): Environments that insert in step: an insertion has a multiple of this number of rows.
            Default: ``1``.
        replace (bool): Whether a row may occur twice in one sample. Default: ``True``.
        ordered (bool): Whether drawn positions count from the oldest row; ``False`` uses slots of the ring.
            The distribution is the same. Default: ``False``.
        max_use (Union[int, None]): Deliveries of a row after which it is removed, that is, not drawn any more. Each
            counts, also several in one sample. Default: ``None``, for no limit.
        max_staleness (Union[int, None]): Rows older than this, by the learner's clock, which `advance` moves, are
            removed. Default: ``None``, for no limit.
        weighted (bool): Whether to store a weight, a use count and an insertion clock for each row, 25 bytes, as
            limits, `delete`, `info` and ``sample(with_indices=True)`` need; a limit implies it. Default: ``False``.
        views (Sequence): Modifications of the contents of a sample: `NStep`, `FrameStack`, `HindsightRelabel`. They
            imply weights, and rows know their episode, which takes 9 bytes more. Default: ``()``, for rows as stored.
        late (Sequence[Union[str, int]]): Columns, by name or index, that `update` writes after the insertion, for
            example rewards of a slow judge. `insert` leaves them out, and a row is drawn only when all of them have
            been written; a row with ``final=True`` waits for none. It implies weights. Default: ``()``.
        compress (Sequence[Union[str, int]]): Columns, by name or index, whose rows are kept compressed by LZ4, without
            loss, for example frames. The buffer is then used from Python only, and draws the same rows.
            ``docs/compression.md`` has figures. Needs the package lz4 and the kernels of the CPU. Default: ``()``.
        max_length (Union[int, dict, None]): Items of the longest row in columns whose shape begins with ``None``: their
            rows differ in length, see ``docs/appendix/lengths.md``. The buffer is then used from Python only. A dict
            has it by column, here and below. Default: ``None``.
        items (Union[int, dict, None]): Items of such a column that there is memory for. Default: ``None``.
        share_lengths (Sequence[Sequence]): Groups of such columns whose rows are equally long. Default: ``()``.
        sample_length (Union[int, dict, None]): Items of a row in a sample. Default: ``None``, for `max_length`.
        cut (str): Where a longer row is cut for a sample: after its ``"first"`` items, or at ``"random"``. Default:
            ``"first"``.
        seed (Union[int, None]): Seed of the random sequence. ``None`` takes one from NumPy's generator, which
            ``mindspore.set_seed`` seeds. Default: ``None``.
        storage (Union[str, PathLike, None]): ``"device"``; ``"host"``, for rows in the host's memory on every device,
            drawn and gathered by the CPU's kernels; or the path of a new folder, for rows and state in files mapped
            into memory, which other processes use by `attach`, and which `open` opens again. On another device than the
            CPU, the last two are used from Python only. ``docs/processes.md`` compares them. Default: ``None``, for
            ``"device"`` on the CPU, on a GPU with the CUDA kernels and with ``backend="composite"``, else ``"host"``.
        backend (str): ``"native"`` (C++ and CUDA kernels, CPU and GPU), ``"composite"`` (MindSpore's operators, every
            device) or ``"auto"`` (native if available). Both give the same rows for the same state. Default:
            ``"auto"``.

    Attributes:
        buffer (ParameterTuple): The columns, each ``[C, *F]``, in ring order; a bool column is stored as uint8. With
            `compress` a tuple, in which ``asnumpy()`` of a compressed column gives its rows.
        head (Parameter): Slot of the oldest row. Shape ``[]``, int32.
        count (Parameter): Rows stored. Shape ``[]``, int32.
        serials (Parameter): Rows inserted so far, and the serial number of the first row since the last `reset`. Shape
            ``[2]``, int64.
        random_state (Parameter): Key and counter of the random sequence. Shape ``[2]``, int64. `sample` advances it.
        limiter (Union[RateLimiter, None]): Limiter that calls of `insert` and `sample` from Python wait for. Default:
            ``None``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If there is no column, a size is not positive, or `shapes`, `types` and `names` differ in length.
        RuntimeError: If the backend is not available.
        FileExistsError: If `storage` is a folder that is not empty.

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReplayBuffer
        >>> names, shapes, types = ["observation", "action"], [(4,), ()], [ms.float32, ms.int32]
        >>> buffer = ReplayBuffer(sample_size=2, capacity=6, shapes=shapes, types=types, names=names, seed=0)
        >>> for step in range(8):
        ...     buffer = buffer.insert([np.full(4, step, np.float32), step])
        >>> print(buffer.size(), buffer.head.asnumpy())
        6 2
        >>> observation, action = buffer.get_item(0)
        >>> print(observation, action)
        [2. 2. 2. 2.] 2
        >>> observation, action = buffer.sample()
        >>> print(observation.shape, action.shape)
        (2, 4) (2,)
    """

    def _sample_graph(self, sample_range=None, *misplaced, as_dict=False, with_indices=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        bounds = None if sample_range is None else self._range_graph(sample_range)
        return self._drawn_graph(bounds, None, as_dict, with_indices)

    @graph_body(_sample_graph)
    def sample(
        self,
        sample_range: tuple[Any, Any] | None = None,
        *_misplaced: NoReturn,
        as_dict: bool = False,
        with_indices: bool = False,
        **_unknown: NoReturn,
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Draw `sample_size` rows, each row of the range that was not removed with equal probability.

        Args:
            sample_range (Union[tuple, None]): ``(start, stop)``, a slice of logical rows: negative bounds count from
                the newest row, ``None`` is open, bounds outside are clamped. Default: ``None``, for all rows.
            as_dict (bool): Whether to return a dict by column name. Default: ``False``.
            with_indices (bool): Whether to return the rows' handles first, int64 ``[B]``, in a dict as ``"indices"``;
                only with weights. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `sample_range` is no pair, or `as_dict` is set and the buffer has no names.
            RuntimeError: If the range has fewer than `sample_size` eligible rows, with or without replacement; see
                `can_sample`. In a graph the operator fails with a RuntimeError.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], names=["step"], seed=0)
            >>> buffer = buffer.insert([list(range(9))])
            >>> print(*buffer.sample(), *buffer.sample((-3, None)))  # from all rows, from the newest three
            [5 6 3] [7 8 6]
            >>> print(buffer.sample(as_dict=True)["step"])
            [7 2 3]
        """
        if _misplaced or _unknown or type(sample_range) is int:
            raise self._wrong_sample((sample_range, *_misplaced) if sample_range is not None else _misplaced, _unknown)
        return self._front.sample(sample_range, None, as_dict, with_indices)  # type: ignore[no-any-return]

    def _range_graph(self, sample_range):
        if isinstance(sample_range, int):
            self._refuse_graph((sample_range,), {})
        self._check_call("sample_range", self._known(sample_range))
        start, stop = sample_range
        first = self._graph.all_rows[0] if start is None else self._bound_graph(start)
        last = self._graph.all_rows[1] if stop is None else self._bound_graph(stop)
        return ops.stack((first, last))

    def _bound_graph(self, bound):
        if not isinstance(bound, (int, Tensor)):
            raise TypeError("In a graph, 'sample_range' must be (start, stop), each an int, a Tensor or None.")
        return ops.cast(bound, ms.int64)
