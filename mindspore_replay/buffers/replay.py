"""Uniform experience replay."""

import contextlib
import itertools
import operator
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor

from .. import mindspore_api
from ..columns import Columns
from ..ops import native
from ..ops.eager import graph_body, wait_for_work
from ..ops.operators import Operators
from ..ops.state import State
from ..store import state
from ..store.checks import check_bool, check_seed, check_size
from ..store.library import TOO_FEW_ROWS, KernelError
from ..store.options import Options
from ..store.random import ALL_ROWS
from ..store.store import Store
from .compiled import CompiledCalls
from .graph_bodies import GraphBodies
from .state import parameter_on

_numbers = itertools.count()


class SampleSchema(NamedTuple):
    """The contents of a sample.

    Attributes:
        bookkeeping (tuple[str, ...]): What comes before the columns.
        fields (dict): Of each column the shape without its first axis, and the dtype.
        has_handles (bool): Whether a sample can come with handles.
        always_handles (bool): Whether every sample does.
    """

    bookkeeping: tuple[str, ...]
    fields: dict[str, tuple[tuple[int, ...], str]]
    has_handles: bool
    always_handles: bool


class ReplayBuffer(GraphBodies):
    r"""A ring of transitions on the device, sampled uniformly.

    Its methods compile into the graph of the Cell or ``ms.jit`` function that calls them. Called from Python they do
    the same at once, with NumPy arrays, Python scalars or Tensors; such calls hold the buffer's lock. An operation
    costs O(rows touched), whatever the capacity. With the native backend threads may also call compiled graphs and
    methods side by side: every row stays whole.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, rows that the buffer keeps; then each new row replaces the oldest. At most 2^31 - 1.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column, ``()`` for a scalar.
        types (Sequence[Union[mindspore.dtype, numpy.dtype, type, str]]): Dtype of each column, or its name:
            bool, int8 to int64, uint8 to uint64, float16, float32, float64, and bfloat16 with the native backend.
        names (Union[Sequence[str], None]): Name of each column. With names, `insert` also takes a dict.
            Default: ``None``.
        num_envs (int): Environments that write in step: an insertion holds a multiple of this many rows.
            Default: ``1``.
        replace (bool): Whether a row may come twice in one sample. Default: ``True``.
        ordered (bool): Whether drawn positions count from the oldest row; ``False`` takes them as slots of the ring.
            The distribution is the same. Default: ``False``.
        max_use (Union[int, None]): Deliveries of a row after which it is removed: it is not drawn any more. Each
            counts, also several in one sample. Default: ``None``, for no limit.
        max_staleness (Union[int, None]): A row is removed when the learner's clock, which `advance` moves, is more than
            this ahead of its value at the insertion. Default: ``None``, for no limit.
        weighted (bool): Whether to keep a weight, a use count and an insertion clock for each row, 25 bytes, as a
            limit, `delete`, `info` and ``sample(with_indices=True)`` need; a limit brings them along. Default:
            ``False``.
        views (Sequence): What a sample makes of the rows: `NStep`, `FrameStack`, `HindsightRelabel`. They bring weights
            along, and rows know their episode, 9 bytes more. Default: ``()``, for rows as they are stored.
        seed (Union[int, None]): Start of the random sequence. ``None`` takes one from NumPy's generator, which
            ``mindspore.set_seed`` seeds. Default: ``None``.
        backend (str): ``"native"`` (C++ and CUDA kernels, CPU and GPU), ``"composite"`` (MindSpore's operators, every
            device) or ``"auto"`` (native where it can be had). Both give the same rows for the same state. Default:
            ``"auto"``.

    Attributes:
        buffer (ParameterTuple): The columns, each ``[C, *F]``, in ring order; a bool column is kept as uint8.
        head (Parameter): Slot of the oldest row. Shape ``[]``, int32.
        count (Parameter): Rows stored. Shape ``[]``, int32.
        serials (Parameter): Rows ever inserted, and the serial number of the first row since the last `reset`. Shape
            ``[2]``, int64.
        random_state (Parameter): Key and counter of the random sequence. Shape ``[2]``, int64. `sample` advances it.
        limiter (Union[RateLimiter, None]): What calls of `insert` and `sample` from Python wait for. Default: ``None``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If there is no column, a size is not positive, or `shapes`, `types` and `names` differ in length.
        RuntimeError: If the backend asked for cannot be had.

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

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[Any],
        *,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        weighted: bool = False,
        views: Sequence[Any] = (),
        seed: int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self._set_up(
            sample_size, capacity, shapes, types, names, num_envs, replace, ordered, max_use, max_staleness, weighted,
            views, seed, backend,
        )  # fmt: skip

    def _set_up(
        self, sample_size: int, capacity: int, shapes: Any, types: Any, names: Any, num_envs: int, replace: bool,
        ordered: bool, max_use: int | None, max_staleness: int | None, weighted: bool, views: Sequence[Any],
        seed: int | None, backend: str,
    ) -> None:  # fmt: skip
        """Checks the arguments and makes state and operators. Classes with more arguments set those before."""
        name = type(self).__name__
        self.sample_size = check_size(name, "sample_size", sample_size)
        self.capacity = check_size(name, "capacity", capacity)
        self._check_order()
        self.num_envs = check_size(name, "num_envs", num_envs)
        self.limiter = None
        self.replace = check_bool(name, "replace", replace)
        self.ordered = check_bool(name, "ordered", ordered)
        self.columns = Columns(name, shapes, types, names)
        self._width = len(self.columns)
        self._set_limits(max_use, max_staleness, weighted)
        self._set_windows(views)
        self._check_starts()
        self.backend = native.choose_backend(backend, name)
        self._direct = native.direct_calls(self.backend)
        if self.backend == "composite":
            self.columns.check_composite()
        self._options = self._made_for(check_seed(name, seed))
        self._make_state()
        self._make_operators()
        self._lock = threading.RLock()

    def _made_for(self, seed: int) -> Options:
        """What the store under the buffer is made for."""
        return Options(
            capacity=self.capacity,
            plan=self._plan(),
            num_envs=self.num_envs,
            seed=seed,
            weighting=(self.alpha, self.epsilon) if self.weighted else None,
            rule=self._rule,
            max_staleness=self.max_staleness,
            end_flags=self._last_flags(),
            cls_name=type(self).__name__,
        )

    def _make_state(self) -> None:
        if self._direct:
            self._calls = Store(
                self.columns, self._options, share=mindspore_api.share, address_of=mindspore_api.address
            )
        arrays = self._calls.arrays if self._direct else state.make(self.columns, self._options)
        # A buffer outside of a Cell gets no prefix from its owner, and a graph that holds two needs different names.
        prefix = f"{type(self).__name__}_{next(_numbers)}."
        parameters = {name: parameter_on(name, array) for name, array in arrays.items()}
        columns = [parameter for name, parameter in parameters.items() if name.startswith("column.")]
        self.buffer = ParameterTuple(columns)
        for name, parameter in parameters.items():
            if not name.startswith("column."):
                setattr(self, name, parameter)
            parameter.name = prefix + name

    def _make_operators(self) -> None:
        by_kernel = self.backend == "native"
        graph_state = State(self.buffer, self._state(), self._options)
        self._graph = Operators(graph_state, self.columns, self._options, by_kernel, self._direct)
        if self.weighted:
            self._make_weight_operators()
        if self.timed:
            self._make_window_operators()
        self._make_graph_constants()
        if not self._direct:
            self._calls = CompiledCalls(self)
        self._finish_now = ms.jit(self._finish_outputs) if self._direct and self._finish is not None else None

    @property
    def _bookkeeping_names(self) -> tuple[str, ...]:
        """What a sample can give before its columns."""
        names = ("indices",) * self._has_handles + ("weights",) * self.prioritized
        return (*names, *self._bookkeeping(self._layout)) if self.timed else names

    @property
    def _sample_fields(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Of each column of a sample the shape without its first axis, and the dtype."""
        if self.timed:
            outputs, columns = self._layout.outputs(), self.columns
            return {k: (output.shape(1, columns)[1:], output.dtype(columns)) for k, output in outputs.items()}
        return dict(zip(self.columns.names, zip(self.shapes, self.columns.dtypes)))

    @property
    def _gives_handles(self) -> bool:
        """Whether every sample comes with handles, not only one that asks for them."""
        return self.prioritized or bool(set(self._bookkeeping_names) - {"indices", "weights"})

    def _with_handles(self) -> tuple[Tensor, ...]:
        """A sample with all of its bookkeeping."""
        return self.sample(with_indices=True) if self._has_handles and not self._gives_handles else self.sample()  # type: ignore[return-value]

    def _resized(self, sample_size: int) -> "ReplayBuffer":
        """A buffer on the same rows, with the same Parameters and lock, for samples of another size."""
        twin = type(self).__new__(type(self))
        super(ReplayBuffer, twin).__init__()
        own = vars(self).keys() - vars(twin).keys()
        twin.__dict__.update({key: value for key, value in vars(self).items() if key in own})
        for name, parameter in self.parameters_and_names(expand=False):
            twin.insert_param_to_cell(name, parameter, check_name_contain_dot=False)
        twin.__dict__["limiter"] = self.limiter
        twin.sample_size = sample_size
        twin._options = self._options._replace(plan=self._options.plan._replace(n=sample_size))
        if twin._direct:
            twin._calls = self._calls.resized(twin._options)
        twin._make_operators()
        return twin

    @property
    def sample_schema(self) -> SampleSchema:
        """The contents of a sample, with all of its bookkeeping."""
        return SampleSchema(self._bookkeeping_names, self._sample_fields, self._has_handles, self._gives_handles)

    @property
    def options(self) -> Options:
        """What the store under the buffer is made for."""
        return self._options

    @property
    def most_starts(self) -> int:
        """The largest possible sample, in rows."""
        return self._most_starts

    @property
    def lock(self) -> Any:
        """The lock that calls from Python hold. It keeps no compiled graph out."""
        return self._lock

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[dict[str, np.ndarray]]:
        """Gives the capacity and the state without columns, which nothing changes in the block."""
        with self._alone() as arrays:
            yield {"capacity": np.array(self.capacity), **arrays}

    with_sample_size, full_sample = _resized, _with_handles

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, or ``None`` if the buffer was made without."""
        return self.columns.given_names

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of one row of each column."""
        return self.columns.shapes

    @property
    def types(self) -> tuple[Any, ...]:
        """MindSpore dtype of each column."""
        return self.columns.types

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, cursors, random state and weights at full capacity."""
        state = (parameter for key, parameter in self._state().items() if "." not in key)
        return self.capacity * self.columns.row_bytes() + sum(parameter.nbytes for parameter in state)

    def extend_repr(self) -> str:
        return f"sample_size={self.sample_size}, capacity={self.capacity}, backend={self.backend!r}"

    # Methods, with the bodies that Python runs.

    @graph_body(GraphBodies._insert_graph)
    def insert(self, exp: Any, *, end: Any = False, final: Any = False) -> "ReplayBuffer":
        """Appends one row or a batch; in a full buffer each new row replaces the oldest.

        Of a batch longer than the capacity the newest rows stay. Nothing is stored if anything is wrong.

        Args:
            exp (Union[Sequence, dict]): One Tensor for each column, or a dict of them by name. Each has the column's
                dtype and the shape ``[*F]``, for one row, or ``[n, *F]``, for n rows, n static in a graph. From Python
                also NumPy arrays, and numbers or nested lists of numbers, which take the column's dtype.
            end (Union[bool, Tensor, Sequence[bool]]): Whether a row is the last of its episode, terminated or
                truncated. One flag for each row, shape ``[n]``, or ``[]`` for the rows of one step. Needs `views`.
                Default: ``False``.
            final (Union[bool, Tensor, Sequence[bool]]): Whether a row holds nothing but the observation after the last
                step of its episode: it is an `end`, it is read as a next observation, and it is not drawn. In
                sequences and whole episodes it is the last step. Needs `views`. Default: ``False``.

        Returns:
            ReplayBuffer: The buffer itself. In a graph the rows stored then, a Tensor, shape ``[]``, int32.

        Raises:
            TypeError: If `exp` is no list, tuple or dict, or a column has another dtype; all such columns are listed.
                If `end` or `final` holds no bools.
            ValueError: If columns, shapes or lengths do not fit, or the rows are no multiple of `num_envs`.
            RuntimeError: If `end` or `final` is given to a buffer whose rows know no episodes.
        """
        if type(exp) is not list or len(exp) != self._width:
            exp = self.columns.in_order(exp)
        if not (end is False and final is False):
            self._need_episodes("end")
        return self._insert(exp, None, end, final)

    #: `insert` under a name that MindSpore's parser never takes for a list's method.
    add = insert

    @graph_body(GraphBodies._get_item_graph)
    def get_item(self, index: Any) -> tuple[Tensor, ...]:
        """Rows by logical position: 0 is the oldest, -1 the newest.

        Args:
            index (Union[int, Sequence[int], Tensor]): One position or k positions, int32 or int64. Shape ``[]`` or
                ``[k]``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor for each column. Shape ``[*F]`` or ``[k, *F]``.

        Raises:
            TypeError: If `index` holds no ints.
            ValueError: If `index` has more than one axis.
            IndexError: If there is no such row. In a graph the operator fails with a RuntimeError.
        """
        positions = self._positions(index)
        with self._lock:
            wait_for_work()
            count = self._calls.count()
            outside = positions[(positions < -count) | (positions >= count)]
            if outside.size:
                raise IndexError(
                    f"For '{type(self).__name__}', 'index' must be in [-{count}, {count}), since {count} rows are "
                    f"stored, but got {outside.flat[0]}."
                )
            return self._calls.read(positions.astype(np.int64))

    @graph_body(GraphBodies._rows_graph)
    def rows(self) -> tuple[Tensor, ...]:
        """All rows of a full buffer as one batch, the oldest first, for learners that fill, learn and `reset`.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, ``[C, *F]`` for each column in the order of `shapes`.

        Raises:
            RuntimeError: If fewer than `capacity` rows are stored; `full` tells. In a graph the operator fails.
        """
        with self._lock:
            wait_for_work()
            stored = self._calls.count()
            if stored < self.capacity:
                raise RuntimeError(
                    f"For '{type(self).__name__}', 'rows' gives all capacity={self.capacity} rows, but got {stored} "
                    "stored. Wait until full() is true; of the rows stored until then, get_item(range(len(buffer))) "
                    "gives a batch, and datasets.to_npz makes a file."
                )
            return self._calls.read(np.arange(self.capacity))

    @graph_body(GraphBodies._sample_graph)
    def sample(
        self, sample_range: tuple[Any, Any] | None = None, *, as_dict: bool = False, with_indices: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Draws `sample_size` rows, each row of the range that was not removed equally likely.

        Args:
            sample_range (Union[tuple, None]): ``(start, stop)``, a slice of logical rows: negative bounds count from
                the newest row, ``None`` is open, bounds outside are clamped. Default: ``None``, for all rows.
            as_dict (bool): Whether to give a dict by column name; only from Python. Default: ``False``.
            with_indices (bool): Whether the rows' handles come first, int64 ``[B]``, in a dict as ``"indices"``; only
                of a buffer with weights. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `sample_range` is no pair, or `as_dict` is asked of a buffer without names.
            RuntimeError: If the range holds fewer than `sample_size` eligible rows, with or without replacement;
                `can_sample` tells. In a graph the operator fails with a RuntimeError.
        """
        return self._draw_between(None if sample_range is None else self._bounds(sample_range), as_dict, with_indices)

    def _draw_between(self, bounds: tuple[int, int] | None, as_dict: bool, with_indices: bool) -> Any:
        if with_indices and not self._has_handles:
            self._need_weights("sample(with_indices=True)")
        names = self._dict_names(self._bookkeeping_names if with_indices else ()) if as_dict else ()
        batch = self._draw(bounds, None)
        if self._has_handles and not with_indices:
            batch = batch[1:]
        return dict(zip(names, batch)) if as_dict else batch

    def _dict_names(self, bookkeeping: tuple[str, ...]) -> tuple[str, ...]:
        """The keys of a sample that is a dict."""
        if self.names is None:
            raise TypeError(f"For '{type(self).__name__}', 'as_dict' needs a buffer made with 'names'.")
        taken = sorted(set(bookkeeping) & set(self._fields if self.timed else self.columns.names))
        if taken:
            raise ValueError(f"For '{type(self).__name__}', 'as_dict' needs columns with other names than {taken}.")
        return (*bookkeeping, *(self._fields if self.timed else self.columns.names))

    def _insert(self, exp: Any, priority: np.ndarray | None, end: Any, final: Any) -> "ReplayBuffer":
        with self._lock if self.limiter is None else self._turn_to_insert(exp):
            wait_for_work()
            self._calls.insertion(exp, priority, end, final)
        return self

    @contextlib.contextmanager
    def _turn_to_insert(self, exp: Any) -> Iterator[None]:
        rows = self.columns.count_rows(self.columns.as_fields(exp), self.num_envs)
        with self.limiter.inserting(rows), self._lock:
            yield

    @contextlib.contextmanager
    def _turn_to_sample(self) -> Iterator[None]:
        with self.limiter.sampling(self.sample_size), self._lock:
            yield

    def _turn_unless(self, stop: threading.Event) -> contextlib.AbstractContextManager[None]:
        """Waits until the limiter lets a sample be drawn in the block; a RuntimeError soon after `stop` is set."""
        if self.limiter is None:
            return contextlib.nullcontext()
        return self.limiter._counting("sample", self.sample_size, None, stop)

    def _draw(self, bounds: tuple[int, int] | None, beta: float | None) -> tuple[Tensor, ...]:
        with self._lock if self.limiter is None else self._turn_to_sample():
            wait_for_work()
            if not self._direct and self._calls.checks_first:
                self._need_rows(bounds)
            try:
                batch = self._calls.sample(bounds, beta)
            except KernelError as error:
                if error.status != TOO_FEW_ROWS:
                    raise
                raise self._too_few(self._calls.eligible(bounds)) from None
            return batch if self._finish_now is None else self._finished_now(batch)

    def _finished_now(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        first = len(self._bookkeeping_outputs())
        return (*batch[:first], *self._finish_now(*batch[first:]))  # type: ignore[misc]

    def _need_rows(self, bounds: tuple[int, int] | None) -> None:
        rows = self._calls.eligible(bounds)
        if rows < self.sample_size:
            raise self._too_few(rows)

    def _too_few(self, rows: int) -> RuntimeError:
        what = "eligible rows" if self.weighted else "rows"
        return RuntimeError(
            f"For '{type(self).__name__}', a sample needs sample_size={self.sample_size} {what}, but got {rows} in the "
            f"range to draw from, of {self._calls.count()} stored. Wait until can_sample() is true."
        )

    @graph_body(GraphBodies._update_rows_graph)
    def update(self, indices: Any, values: Any) -> Tensor:
        """Writes columns of stored rows, for example recurrent states that were computed anew.

        Priorities, use counts and episodes stay as they are.

        Args:
            indices (Union[Tensor, Sequence[int], int]): Handles as `sample` gives them, int32 or int64. Shape ``[]`` or
                ``[n]``, in a graph only a Tensor. Of several for one row the last counts.
            values (Union[dict, Sequence]): A dict of some columns by name, or one Tensor for each column. Each has the
                column's dtype and the shape ``[n, *F]``, ``[*F]`` for one handle ``[]``. From Python also NumPy arrays,
                and numbers or nested lists of numbers.

        Returns:
            Tensor: How many handles were dead: those of rows that are gone or deleted. They are skipped. Shape ``[]``,
            int32.

        Raises:
            RuntimeError: If the buffer gives no handles.
            TypeError: If `indices` holds no ints, or a column has another dtype.
            ValueError: If there is no such column, or shapes do not fit. Nothing is written then.
        """
        if not self._has_handles:
            self._need_weights("update")
        with self._lock:
            wait_for_work()
            return mindspore_api.share(self._calls.update(indices, values))

    @graph_body(GraphBodies._reset_graph)
    def reset(self) -> "ReplayBuffer":
        """Forgets all rows. Serial numbers and the random sequence go on; the next row lands in slot 0.

        Everything else begins anew: the learner's clock, the largest priority, and beta. Costs O(1), and O(C) in a
        buffer with weights.

        Returns:
            ReplayBuffer: The buffer itself. In a graph the rows stored then, a Tensor, shape ``[]``, int32.
        """
        with self._lock:
            wait_for_work()
            self._calls.reset()
        return self

    @graph_body(GraphBodies._size_graph)
    def size(self) -> Tensor:
        """Rows stored. Shape ``[]``, int32."""
        return Tensor(self._count(), ms.int32)

    @graph_body(GraphBodies._full_graph)
    def full(self) -> Tensor:
        """Whether `capacity` rows are stored. Shape ``[]``, bool."""
        return Tensor(self._count() >= self.capacity)

    @graph_body(GraphBodies._can_sample_graph)
    def can_sample(self) -> Tensor:
        """Whether `sample_size` eligible rows are stored, so that `sample` succeeds. Shape ``[]``, bool.

        Every row is eligible that was not removed and has a weight above zero. From Python, also whether the `limiter`
        lets them be sampled now; a graph does not ask it.
        """
        allowed = self.limiter is None or self.limiter.lets_sample(self.sample_size)
        return Tensor(allowed and self._has_enough())

    def _has_enough(self) -> bool:
        """Whether the rows for a sample are stored."""
        with self._lock:
            wait_for_work()
            return bool(self._calls.eligible() >= self.sample_size)

    @graph_body(GraphBodies._len_graph)
    def __len__(self) -> int:
        """Rows stored, as `size` gives them; only from Python."""
        return self._count()

    def _count(self) -> int:
        with self._lock:
            wait_for_work()
            return self._calls.count()

    def _positions(self, index: Any) -> np.ndarray:
        positions = np.asarray(index.asnumpy() if isinstance(index, Tensor) else index)
        if positions.dtype.kind not in "iu":
            raise TypeError(f"For '{type(self).__name__}', 'index' must be an int or hold ints, but got {index!r}.")
        if positions.ndim > 1 or positions.size == 0:
            raise ValueError(
                f"For '{type(self).__name__}', 'index' must have shape [] or [k], but got {list(positions.shape)}."
            )
        return positions

    def _bounds(self, sample_range: Any) -> tuple[int, int]:
        try:
            start, stop = sample_range
            start = ALL_ROWS[0] if start is None else operator.index(start)
            stop = ALL_ROWS[1] if stop is None else operator.index(stop)
        except (TypeError, ValueError):
            raise TypeError(
                f"For '{type(self).__name__}', 'sample_range' must be (start, stop), each an int or None, "
                f"but got {sample_range!r}."
            ) from None
        last = ALL_ROWS[1]
        return max(-last, min(start, last)), max(-last, min(stop, last))
