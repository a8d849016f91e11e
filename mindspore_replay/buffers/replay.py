"""Uniform experience replay."""

import mindspore as ms
from mindspore import Tensor, ops

from ..store.faces import classes
from ..store.spec.registry import registered
from .base import Buffer


@registered
class ReplayBuffer(Buffer, classes.ReplayBuffer):
    r"""A ring of transitions on the device, sampled uniformly.

    Its methods compile into the graph of the Cell or ``ms.jit`` function that calls them. Called from Python they run
    immediately, accept NumPy arrays, Python scalars and Tensors, and hold the buffer's lock. An operation costs O(rows
    touched) at any capacity. With the native backend, threads may call compiled graphs and methods concurrently.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored, at most 2^31 - 1. In a full buffer each new row replaces the oldest.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column, ``()`` for a scalar.
        types (Sequence[Union[mindspore.dtype, numpy.dtype, type, str]]): Dtype of each column, or its name:
            bool, int8 to int64, uint8 to uint64, float16, float32, float64, and bfloat16 with the native backend.
        names (Union[Sequence[str], None]): Name of each column. With names, `insert` also accepts a dict. Default:
            ``None``.
        columns (Union[Mapping[str, Column], Sequence[Column], None]): The columns by name in place of these three, for
            options of a column: `Column` has late values, compression and rows that differ in length. Default:
            ``None``.
        num_envs (int): Environments that insert in step: the number of rows of each insertion must be a multiple of it.
            Default: ``1``.
        replace (bool): Whether a row may occur twice in one sample. Default: ``True``.
        ordered (bool): Whether to count sampled positions from the oldest row instead of slot 0. The distribution is
            the same. Default: ``False``.
        max_use (Union[int, None]): Remove a row, so that it is no longer sampled, after this many deliveries. Each
            occurrence in a sample counts. Default: ``None``, for no limit.
        max_staleness (Union[int, None]): Remove rows older than this many `advance` steps of the learner's clock.
            Default: ``None``, for no limit.
        weighted (bool): Whether to store a weight, a use count and an insertion clock for each row, 25 bytes. Limits,
            `delete`, `info` and ``sample(with_indices=True)`` require it. Setting a limit turns it on. Default:
            ``False``.
        views (Sequence): Transformations of samples: `NStep`, `FrameStack`, `HindsightRelabel`. Each turns weights on,
            and stores the episode of each row, 9 bytes more. Default: ``()``, for rows as stored.
        seed (Union[int, None]): Seed of the random sequence. Default: ``None``, for one from NumPy's generator, which
            ``mindspore.set_seed`` seeds.
        storage (Union[str, PathLike, None]): ``"device"``; ``"host"``, to store rows in the host's memory on every
            device and sample them with the CPU's kernels; or the path of a new folder, such as ``"./rows"``, to store
            rows and state in memory-mapped files that other processes `attach` to and `open` reopens. Off the CPU,
            ``"host"`` and folders work from Python only. ``docs/processes.md`` compares them. Default: ``None``, for
            ``"device"`` on the CPU, on a GPU with the CUDA kernels and with ``backend="composite"``, else ``"host"``.
        backend (str): ``"native"`` (C++ and CUDA kernels, CPU and GPU), ``"composite"`` (MindSpore's operators, every
            device, without `views`, columns with options and versions) or ``"auto"`` (native if available). Both return
            the same rows for the same state. Default: ``"auto"``.

    Attributes:
        buffer (ParameterTuple): The columns, each ``[C, *F]``, in ring order. A bool column is stored as uint8. With
            compressed columns, a tuple. ``asnumpy()`` of a compressed column returns its rows.
        head (Parameter): Slot of the oldest row. Shape ``[]``, int32.
        count (Parameter): Rows stored. Shape ``[]``, int32.
        serials (Parameter): Rows inserted so far, and the serial number of the first row since the last `reset`. Shape
            ``[2]``, int64.
        random_state (Parameter): Key and counter of the random sequence. Shape ``[2]``, int64. `sample` advances it.
        limiter (Union[RateLimiter, None]): Makes `insert` and `sample` from Python wait. Default: ``None``.

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

    def _sample_graph(self, sample_range=None, *misplaced, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        bounds = None if sample_range is None else self._range_graph(sample_range)
        return self._drawn_graph(bounds, None, as_dict, with_indices, longest)

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


#: Its name in MindSpore RL.
UniformReplayBuffer = ReplayBuffer
