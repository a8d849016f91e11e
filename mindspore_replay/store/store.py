"""A replay buffer in host memory, without MindSpore."""

import contextlib
import ctypes
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import library, state
from .call import NO_TENSORS, Array, Call, Tensors, kept
from .epochs import SIZE, has_batch, progress
from .inputs import as_handles, as_new_rows, as_priorities, as_values
from .insertion import Insertion
from .late import COUNTS_INVALID
from .memory import block_of, give_back
from .options import Options
from .random import ALL_ROWS
from .schema import Schema
from .sharing import is_busy, register

if TYPE_CHECKING:
    from .folder import Folder

_Read = TypeVar("_Read")

#: Version of the layout that `Store.state_dict` writes.
STATE_VERSION = 1


class Store:
    """The rows of a buffer and their state, in named arrays, and the operators on them.

    It implements the calls from Python of a buffer on the CPU. It is not thread-safe: threads that share one hold a
    lock; kernels in compiled graphs and the methods exclude each other by themselves.

    Axes: ``C`` capacity, ``B`` rows of a sample, ``*F`` a column's shape.

    Args:
        schema (Schema): The columns.
        options (Options): How rows are stored and drawn.
        arrays (Union[Mapping[str, numpy.ndarray], None]): The arrays of another store, to share them, with its
            ``updates``. Default: ``None``, for new ones.
        tensors (Tensors): The Tensors of a framework, which it takes and gives. Default: `NO_TENSORS`.
        folder (Union[Folder, None]): Files that hold the arrays. Default: ``None``, for memory of this process.

    Attributes:
        arrays (dict[str, numpy.ndarray]): The state by name, as in `state.layout`.
        updates (numpy.ndarray): The numbers of updates, as in `state.whole_layout`.

    Raises:
        RuntimeError: If the kernel library is not available.
        ValueError: If the state in the folder is damaged.

    Examples:
        >>> from mindspore_replay.store import Options, Output, SamplePlan, Schema, Store
        >>> schema = Schema("Store", shapes=[()], types=["int32"])
        >>> plan = SamplePlan(n=3, draw="uniform", outputs=(Output(0, 0),))
        >>> store = Store(schema, Options(capacity=4, plan=plan))
        >>> store.insert([[10, 11, 12, 13, 14]])
        >>> print(store.count(), *store.sample(), store.arrays["column.0"])
        4 [12 12 11] [14 11 12 13]
    """

    def __init__(
        self,
        schema: Schema,
        options: Options,
        arrays: Mapping[str, np.ndarray] | None = None,
        tensors: Tensors = NO_TENSORS,
        folder: "Folder | None" = None,
    ) -> None:
        if library.library_for("CPU").handle is None:
            raise RuntimeError(f"For '{options.cls_name}', {library.library_for('CPU').reason}.")
        self.schema, self.options, self._rows_schema = schema, options, schema
        if folder is not None:
            arrays = folder.arrays
        if arrays is None:
            arrays = state.make(schema, options)
        self.arrays = {name: arrays[name] for name in state.layout(schema, options)}
        self.updates = arrays["updates"]
        self._tensors, self._share, self.guard = tensors, tensors.share, tensors.guard
        self._count = self.arrays["count"]
        self._handle: Any = library.library_for("CPU").handle
        self._head = ctypes.c_void_p(self.arrays["head"].ctypes.data)
        self._range = np.array(ALL_ROWS, np.int64)
        self.folder, self._holds = folder, 0
        if folder is not None:
            self._begin_sharing(folder)

    def _begin_sharing(self, folder: "Folder") -> None:
        """Let kernels use the folder's lock; raise a ValueError if its state is damaged, which is then left alone."""
        try:
            register(
                self.schema,
                self.options,
                folder.arrays,
                self._state,
                folder.alone,
                folder.is_beyond_memory(),
                folder.memory,
            )
            if folder.alone and not folder.is_new:
                self.check()
        except BaseException:
            folder.restore()
            raise
        folder.join()

    def resized(self, options: Options) -> "Store":
        """Return a store on the same arrays that draws by other options."""
        resized = Store(self.schema, options, {**self.arrays, "updates": self.updates}, self._tensors)
        resized.folder = self.folder
        return resized

    # The state as arguments of kernels.

    @functools.cached_property
    def _state(self) -> dict[str, Any]:
        schema, options = self.schema, self.options
        columns = [
            Array(self.arrays[f"column.{name}"].shape, dtype, self.arrays[f"column.{name}"])
            for name, dtype in zip(schema.names, schema.stored_dtypes)
        ]
        given: dict[str, Any] = {name: kept(a) for name, a in self.arrays.items() if not name.startswith("column.")}
        given |= {"columns": columns, "updates": kept(self.updates)}
        if options.weighting is not None:
            given["row_rule"] = kept(options.row_rule())
        if options.rule is not None:
            given["window_rule"] = kept(options.rule.array())
        if options.epochs is not None:
            given["epoch_rule"] = kept(options.epochs.array())
        return given

    def _call(self, operator: str, **arguments: Any) -> Call:
        return Call(operator, self.options.groups, self._state | arguments)

    # Rows in and out.

    @functools.cached_property
    def insertion(self) -> Insertion:
        """The object that checks and stores rows for `insert`."""
        return Insertion(self.schema, self.options, self._state, self.guard)

    @functools.cached_property
    def try_insert(self) -> Callable[[Any, Any, Any, Any], bool]:
        """Store rows that obviously fit, as `Insertion.now` does; False if the general path has to do it."""
        return self.insertion.now

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""
        return self.insertion.first

    def insert(self, exp: Any, priority: Any = None, end: Any = False, final: Any = False, version: Any = None) -> None:
        """Store one row or a batch.

        Args:
            exp (Union[Sequence, dict]): A value for each column, ``[*F]`` or ``[n, *F]``, in order or by name.
            priority (Union[numpy.ndarray, float, None]): Priority of all rows or of each; ``None`` for
                the largest so far.
            end (Union[bool, Sequence[bool]]): Whether a row is the last of its episode.
            final (Union[bool, Sequence[bool]]): Whether it holds only the observation after its episode.
            version (Union[numpy.ndarray, int, None]): Version of all rows or of each; ``None`` for the clock.

        Raises:
            TypeError, ValueError: If an argument does not fit; then nothing is stored.
        """
        if version is None and self.try_insert(exp, priority, end, final):
            return
        self.insertion(as_new_rows(self._rows_schema, self.options, exp, priority, end, final, version))

    def _specs(self, lead: tuple[int, ...]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        return [((*lead, *shape), dtype) for shape, dtype in zip(self.schema.shapes, self.schema.numpy_types)]

    @functools.cached_property
    def _sampling(self) -> Call:
        plan = self.options.plan
        beta = self.arrays.get("beta", np.zeros(1))
        return self._call(
            "sample",
            plan=kept(plan.options()),
            sample_range=kept(self._range),
            beta=kept(beta),
            given_beta=kept(beta),
            powers=kept(plan.powers()),
            outputs=[Array(shape, dtype) for shape, dtype in plan.specs(self.schema)],
        )

    @functools.cached_property
    def _give_sample(self) -> Callable[[int], Any]:
        schema = self.schema
        specs = ((shape, schema.numpy_type(dtype)) for shape, dtype in self.options.plan.specs(schema))
        # The caller computes with the outputs of relabelled samples, and makes Tensors of them.
        share = self._share if self.options.plan.strategy == "none" else None
        return self._sampling.giving("outputs", specs, share, self.guard)

    @functools.cached_property
    def try_sample(self) -> Callable[[int], Any]:
        """Draw a batch in the default way: ``(skip)``, which returns a tuple of the outputs without the first `skip`.

        An int if the general path has to draw it, or to raise the error; then nothing has changed.
        """
        return self._give_sample if self.options.window is None else lambda _: -1

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> tuple[Any, ...]:
        """Draw a batch.

        Args:
            bounds (Union[tuple[int, int], None]): A slice of logical rows to draw from; ``None`` for all, or for
                the newest `window`.
            beta (Union[float, None]): Beta of this call, in [0, 1], with priorities; ``None`` for that of the state.

        Returns:
            tuple[numpy.ndarray, ...]: The outputs of the plan.

        Raises:
            KernelError: If too few rows are eligible.
        """
        if bounds is None and beta is None:
            batch = self.try_sample(0)
            if type(batch) is tuple:
                return batch
        call = self._sampling
        if beta is not None:
            call.bind("given_beta", np.array([beta]))
        self._range[:] = self.usual_bounds() if bounds is None else bounds
        try:
            given = self._give_sample(0)
        finally:  # what `try_sample` draws with
            self._range[:] = ALL_ROWS
            if beta is not None:
                call.bind("given_beta", self.arrays["beta"])
        if type(given) is not tuple:
            call.check(given)
        return given

    def usual_bounds(self) -> tuple[int, int]:
        """Return the range of logical rows to draw from by default."""
        return ALL_ROWS if self.options.window is None else (-int(self.arrays["window"][0]), ALL_ROWS[1])

    @functools.cached_property
    def _reading(self) -> Call:
        rows = zip(self._specs((1,)), self.schema.dtypes)
        return self._call("read", rows=[Array(shape, dtype) for (shape, _), dtype in rows])

    def read(self, index: np.ndarray) -> tuple[Any, ...]:
        """Return the rows at logical positions, int64 of shape ``[]`` or ``[n]``; 0 is the oldest, -1 the newest."""
        call = self._reading
        index = np.ascontiguousarray(index, np.int64).reshape(index.shape)
        call.bind_vector("index", index)
        call.set_leading("rows", index.size)
        given = call.giving("rows", self._specs(index.shape), self._share)(0)
        if type(given) is not tuple:
            call.check(given)
        return given

    def update(self, handles: Any, values: Any) -> np.ndarray:
        """Write columns of stored rows.

        Args:
            handles (Union[numpy.ndarray, Sequence[int], int]): Handles, ``[]`` or ``[n]``; if several name one row, the
                last counts.
            values (Union[dict, Sequence]): Rows of some columns by name, or of all in order, ``[*F]`` or ``[n, *F]``.

        Returns:
            numpy.ndarray: Number of invalid handles, of rows overwritten or deleted. Shape ``[]``, int32.

        Raises:
            TypeError, ValueError: If an argument does not fit; then nothing is written.
        """
        return self._write(*as_values(self.schema, self.options, handles, values))

    def _write(self, where: np.ndarray, chosen: list[int], arrays: list[np.ndarray]) -> np.ndarray:
        rows = [Array(array.shape, self.schema.dtypes[i], array) for i, array in zip(chosen, arrays)]
        columns = [self._state["columns"][i] for i in chosen]
        late = kept(np.array([self.options.late_bits(chosen) | COUNTS_INVALID], np.int64))
        self._call("update", columns=columns, handles=kept(where), rows=rows, late=late, invalid=kept(self._result))()
        return self._result.copy()

    # The state of rows.

    @functools.cached_property
    def _result(self) -> np.ndarray:
        return np.zeros((), np.int32)

    @functools.cached_property
    def _updating(self) -> Call:
        return self._call("update_priorities", invalid=kept(self._result))

    @functools.cached_property
    def try_update_priorities(self) -> Callable[[Any, Any], Any]:
        """Set the priorities of rows: ``(handles, priorities)``, vectors ``[n]``, int64 and float32.

        It returns the number of invalid handles, an array ``[]``; an int if the general path has to convert them, or to
        raise the error. Then nothing has changed.
        """
        tensors = self._tensors
        handles, priorities = (np.int64, tensors.int64), (np.float32, tensors.float32)
        return self._updating.changing(self._result, tensors, handles=handles, priority=priorities)

    def update_priorities(self, handles: Any, priorities: Any) -> np.ndarray:
        """Set the priorities of rows, float32 ``[]`` or ``[n]``.

        Returns:
            numpy.ndarray: Number of invalid handles among those given, int64 ``[n]``. Shape ``[]``, int32.

        Raises:
            ValueError: If a priority is negative, NaN or infinite; then nothing is changed.
        """
        invalid = self.try_update_priorities(handles, priorities)
        if type(invalid) is np.ndarray:
            return invalid
        handles, priorities = as_priorities(self.options, handles, priorities)
        self._updating.bind_vector("handles", handles)
        self._updating.bind_vector("priority", priorities)
        self._updating()
        return self._result.copy()

    @functools.cached_property
    def _deleting(self) -> Call:
        return self._call("delete", removed=kept(self._result))

    def delete(self, handles: Any) -> np.ndarray:
        """Remove the rows of these handles, int64 ``[n]``, from sampling, and return their number, int32 ``[]``."""
        handles = as_handles(self.options.cls_name, handles).reshape(-1)
        self._deleting.bind_vector("handles", handles)
        self._deleting()
        return self._result.copy()

    @functools.cached_property
    def _advancing(self) -> tuple[Call, np.ndarray]:
        steps, most = np.zeros(1, np.int64), self.options.stale_after()
        return self._call(
            "advance", ticks=kept(steps), max_staleness=kept(most), now=kept(np.zeros(1, np.int64))
        ), steps

    def advance(self, steps: int = 1) -> None:
        """Advance the learner's clock, and remove rows that became stale."""
        call, given = self._advancing
        given[0] = steps
        call()

    @functools.cached_property
    def _informing(self) -> Call:
        return self._call("info")

    def info(self, handles: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return priorities, use counts and stalenesses of the rows of these handles, int64 ``[n]``."""
        call = self._informing
        handles = as_handles(self.options.cls_name, handles).reshape(-1)
        parts = {
            "handles": handles,
            "priority": np.empty(handles.shape, np.float32),
            "uses": np.empty(handles.shape, np.int32),
            "staleness": np.empty(handles.shape, np.int64),
        }
        for name, part in parts.items():
            call.bind_vector(name, part)
        call()
        return tuple(parts.values())[1:]

    @functools.cached_property
    def _ending(self) -> Call:
        flag = np.array([self.options.end_flags], np.uint8)
        return self._call("end_episodes", flag=kept(flag), ended=kept(self._result))

    def end_episodes(self) -> np.ndarray:
        """End the open episodes, and return their number, int32 ``[]``."""
        self._ending()
        return self._result.copy()

    @functools.cached_property
    def _resetting(self) -> Call:
        return self._call("reset", stored=kept(self._result))

    def reset(self) -> None:
        """Remove all rows. Serial numbers and the random sequence continue; beta is reset."""
        self._resetting()
        if self.options.beta is not None:
            self.arrays["beta"][0] = self.options.beta

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Any, ...]:
        """Draw groups by a column of ints: a mask of the rows that exist, bool ``[G, L]``, and rows, ``[G, L, *F]``."""
        lead = (groups, size)
        specs = self._specs(lead)
        rows = [Array(shape, dtype) for (shape, _), dtype in zip(specs, self.schema.dtypes)]
        template = np.zeros(lead, np.int8)
        mask = np.empty(lead, np.bool_)
        options = np.array([column, ordered], np.int64)
        call = self._call("sample_groups", options=kept(options), template=kept(template), mask=kept(mask), rows=rows)
        given = call.giving("rows", specs, self._share)(0)
        if type(given) is not tuple:
            call.check(given)
        return (mask if self._share is None else self._share(mask), *given)

    # Counts.

    def _between(self, read: Callable[[], _Read]) -> _Read:
        """Return what `read` finds between two operations; that of a process that died is completed or undone first."""
        found = read()
        if self.folder is not None and not self._holds and is_busy(self.folder.arrays):
            with self.kernels_kept_out():
                return read()
        return found

    def count(self) -> int:
        """Return the number of rows stored."""
        return self._between(self._count.item)

    @functools.cached_property
    def _summing(self) -> tuple[Call, np.ndarray, np.ndarray]:
        ranges, sums = np.zeros((1, 2), np.int64), np.zeros(1)
        return self._call("sums", ranges=kept(ranges), sums=kept(sums)), ranges, sums

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Return the number of rows at which a sample may start; `bounds` are as for `sample`."""
        return self._between(lambda: self._eligible(bounds))

    def _eligible(self, bounds: tuple[int, int] | None) -> int:
        where = self.usual_bounds() if bounds is None else bounds
        if self.options.weighting is None:
            return len(range(*slice(*where).indices(self._count.item())))
        if where is ALL_ROWS:
            return int(self.arrays["weights"][-1])
        if self.options.beta is not None:
            return self._positive(*slice(*where).indices(self._count.item()))
        call, ranges, sums = self._summing
        ranges[0] = where
        call()
        return int(sums[0])

    def _positive(self, first: int, stop: int, _: int) -> int:
        """Count the rows of a range with a positive weight. Cost O(range)."""
        capacity, size = self.options.capacity, max(stop - first, 0)
        begin = (self.arrays["head"].item() + first) % capacity
        leaves, wrapped = self.arrays["weights"][:capacity], max(begin + size - capacity, 0)
        return int(np.count_nonzero(leaves[begin : begin + size]) + np.count_nonzero(leaves[:wrapped]))

    def begin_epoch(self) -> None:
        """End the epoch in progress: the next sample begins another."""
        with self.kernels_kept_out():
            self.arrays["epoch"][SIZE] = 0

    def progress(self) -> list[list[int]]:
        """Return numbers that change with each sample, insertion and removal: first the state of the epoch."""
        return self._between(lambda: progress(self.arrays))

    def has_batch(self) -> bool:
        """Return True if the epoch in progress has another batch."""
        options = self.options
        return self._between(lambda: has_batch(options.epochs, options.plan.n, options.capacity, self.arrays))

    def room(self) -> int:
        """Return the number of rows that can be inserted without evicting one that can still be drawn."""
        return self._between(lambda: state.room(self.options, self.arrays))

    def pending_note(self) -> str:
        """Return a sentence on the rows that wait for late columns; empty if there are none."""
        return self._between(lambda: state.pending_note(self.options, self.arrays))

    # The whole state.

    def hold(self) -> None:
        """Keep kernels of all threads, and of other processes, out of these arrays until `let_go`.

        Only of a buffer in a folder, this thread may call kernels meanwhile.
        """
        status = self._handle.replay_hold(self._head)
        if status != library.OK:
            raise library.KernelError("replay_hold", status)
        self._holds += 1

    def let_go(self) -> None:
        """End a `hold`."""
        self._holds -= 1
        self._handle.replay_let_go(self._head)

    def sole_use(self, arrays: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
        """Let nobody attach to a folder during the block, for a state with other rows than those stored now.

        Raises:
            RuntimeError: If somebody is attached.
        """
        if self.folder is None or self._holds_rows_of(arrays):
            return contextlib.nullcontext()
        return self.folder.without_attached()

    def begin_replacing(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Declare that all rows are about to be replaced by those of a state, and return the state to write.

        The caller has `sole_use` for the state, in a `hold`. If the process dies, no row is left in a folder. There a
        serial number is never given out twice: that of a row to write may be raised.
        """
        same = self.folder is None or self._holds_rows_of(arrays)
        if self.folder is not None and not same:
            self.folder.check_sole_use()
        self._handle.replay_replace(self._head)
        return arrays if same else state.renumbered(arrays, int(self.arrays["serials"][0]))

    def _holds_rows_of(self, arrays: Mapping[str, Any]) -> bool:
        """Return True if the rows of a state are those stored now, by their serial numbers and their bytes."""
        columns = [key for key in self.arrays if key.startswith("column.")]
        keys = ["serials", *(key for key in ("row_serials",) if key in self.arrays), *columns]  # the small ones first
        return all(
            key in arrays and np.ascontiguousarray(arrays[key]).data.cast("B") == self.arrays[key].data.cast("B")
            for key in keys
        )

    @contextlib.contextmanager
    def kernels_kept_out(self) -> Iterator[None]:
        """Hold these arrays during the block."""
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    def flush(self) -> None:
        """Write the files of a folder to the disk."""
        assert self.folder is not None
        with self.kernels_kept_out():
            self.folder.flush()

    def close(self) -> None:
        """Flush the files of a folder, and end its use by all processes; by this one alone if it is not the learner.

        Other memory is given back to the system.
        """
        if self.guard is not None:
            self.guard.close()
        if self.folder is None:
            block = block_of(self._count)
            weakref.finalize(block, self._handle.replay_unshare, self._head)
            self._handle.replay_close(self._head)
            give_back(block)
            return
        try:
            if self.folder.is_learner:
                with self.kernels_kept_out():
                    self.folder.arrays["shared.closed"][0] = 1
                    self.folder.signals.send()
                    self.folder.flush()
        finally:
            self.detach()

    def detach(self) -> None:
        """End the use of a folder by this process, also in compiled graphs."""
        assert self.folder is not None
        self._handle.replay_close(self._head)
        self.folder.close()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy all arrays, by name, with the capacity and the version of the layout."""
        with self.kernels_kept_out():
            arrays = {name: array.copy() for name, array in self.arrays.items()}
        return {"version": np.array(STATE_VERSION), "capacity": np.array(self.options.capacity), **arrays}

    def load_state_dict(self, given: Mapping[str, Any]) -> None:
        """Load the result of `state_dict` of a store with the same columns and options.

        Raises:
            ValueError: If an array does not fit or the state is inconsistent; then nothing is changed.
        """
        arrays = state.checked(self.schema, self.options, given, STATE_VERSION)
        with self.sole_use(arrays), self.kernels_kept_out():
            replaced = self.begin_replacing(arrays)
            for name, array in self.arrays.items():
                array[...] = replaced[name]

    def check(self) -> None:
        """Raise a ValueError if the arrays are inconsistent."""
        with self.kernels_kept_out():
            state.check(self.options, self.arrays)
