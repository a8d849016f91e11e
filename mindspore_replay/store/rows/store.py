"""A replay buffer in host memory, without MindSpore."""

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..base.checks import check_positions
from ..base.random import ALL_ROWS
from ..base.schema import Schema
from ..base.types import Arrays, Experience, Nested, Outputs, Values
from ..folder.sharing import is_busy
from ..kernels import library, state
from ..kernels.call import NO_TENSORS, Array, Call, Tensors, fixed
from ..kernels.invocations import Invocations, Key
from ..kernels.limits import Limits, on_rows
from ..kernels.locks import Held
from ..kernels.memory import address, at_the_end, block_of, give_back, holding
from ..spec.epochs import SIZE
from ..spec.options import Options
from .calls import Calls
from .inputs import as_handles_for, as_new_rows, as_positions, as_priorities, as_values
from .insertion import Insertion

if TYPE_CHECKING:
    from ..folder.folder import Folder

_Read = TypeVar("_Read")
_Result = TypeVar("_Result")

#: Version of the layout that `Store.state_dict` writes.
STATE_VERSION = 1


class Store(Calls):
    """The rows of a buffer and their state, in named arrays, and the operators on them.

    It implements the calls from Python of a buffer on the CPU. It is not thread-safe: hold a lock if threads share it.
    Methods and kernels in compiled graphs exclude each other.

    Axes: ``C`` capacity, ``B`` rows of a sample, ``*F`` a column's shape.

    Args:
        schema (Schema): The columns.
        options (Options): How rows are stored and drawn.
        arrays (Union[Mapping[str, numpy.ndarray], None]): The arrays of another store to share, with its ``updates``.
            Default: ``None``, for new ones.
        tensors (Tensors): The framework's Tensors, for arguments and results. Default: `NO_TENSORS`.
        folder (Union[Folder, None]): Files for the arrays. Default: ``None``, for memory of this process.

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
        arrays: Arrays | None = None,
        tensors: Tensors = NO_TENSORS,
        folder: "Folder | None" = None,
    ) -> None:
        if reason := library.library_for("CPU").reason:
            raise RuntimeError(f"For '{options.cls_name}', {reason}.")
        self.schema, self.options, self._rows_schema = schema, options, schema
        if folder is not None:
            arrays = folder.arrays
        if arrays is None:
            arrays = state.make(schema, options)
        self.arrays = {name: arrays[name] for name in state.layout(schema, options)}
        self.updates = arrays["updates"]
        #: The compressed columns, by their names in the state.
        self.compressed: dict[str, Any] = {}
        self._tensors, self.guard = tensors, tensors.guard
        self._indices = {name: i for i, name in enumerate(schema.given_names or ())}
        self._all_columns = tuple(range(len(schema)))
        self._count = self.arrays["count"]
        self._handle = library.loaded()
        self._head = address(self.arrays["head"])
        self.folder = folder
        if folder is not None:
            folder.share(self._state, self.check)

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
        arguments: dict[str, Any] = {key: fixed(a) for key, a in self.arrays.items() if not key.startswith("column.")}
        arguments |= {"columns": columns, "updates": fixed(self.updates)}
        if options.weighting is not None:
            arguments["row_rule"] = fixed(options.row_rule())
        if options.rule is not None:
            arguments["window_rule"] = fixed(options.rule.array())
        if options.epochs is not None:
            arguments["epoch_rule"] = fixed(options.epochs.array())
        return arguments

    @functools.cached_property
    def limits(self) -> Limits:
        """The limits of the rows, which kernels keep to."""
        if self.folder is not None:
            return Limits(self.folder.arrays["shared.limits"], self._head)
        stored = self.schema.references
        row = [Array((1, *shape), dtype) for shape, dtype in zip(stored.shapes, stored.stored_dtypes)]
        call = Call("update", self.options.groups, {**self._state, "rows": row, "written": Array((2,), "int64")})
        call.let_arrays_go()  # which keep the memory that keeps the call
        return on_rows(self._head, call, block_of(self._count))

    @functools.cached_property
    def _kernels(self) -> Invocations:
        return Invocations(self.schema, self.options, self._state, self._tensors)

    def _run(self, result_type: type[_Result], key: Key, *arguments: object) -> _Result:
        """Call a kernel with arguments that fit, and return its result. Raise a KernelError if it failed."""
        result = self._kernels[key](*arguments)
        if isinstance(result, result_type):
            return result
        raise library.KernelError(f"replay_{self._kernels.operator(key)}", result)

    # Rows in and out.

    @functools.cached_property
    def insertion(self) -> Insertion:
        """The object that checks and stores rows for `insert`."""
        return Insertion(
            self.schema, self.options, self._state, self._tensors, weakref.WeakMethod(self.kernels_kept_out)
        )

    @functools.cached_property
    def try_insert(self) -> Callable[..., Any]:
        """Store rows that obviously fit, as `Insertion.now` does, or False if the general path has to do it."""
        return self.insertion.now

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""
        return self.insertion.first

    def insert(
        self,
        exp: Experience,
        priority: Values | None = None,
        end: Values = False,
        final: Values = False,
        version: Values | None = None,
    ) -> None:
        """Store one row or a batch.

        Args:
            exp (Union[Sequence, dict]): A value for each column, ``[*F]`` or ``[n, *F]``, in order or by name.
            priority (Union[numpy.ndarray, float, None]): Priority of all rows or of each, or ``None`` for
                the largest so far.
            end (Union[bool, Sequence[bool]]): Whether a row is the last of its episode.
            final (Union[bool, Sequence[bool]]): Whether it contains only the observation after its episode.
            version (Union[numpy.ndarray, int, None]): Version of all rows or of each, or ``None`` for the clock.

        Raises:
            TypeError, ValueError: If an argument does not fit. Nothing is stored then.
        """
        if not self.try_insert(exp, priority, end, final, version):
            self.insertion(as_new_rows(self._rows_schema, self.options, exp, priority, end, final, version))

    @functools.cached_property
    def try_sample(self) -> Callable[[int], Outputs | int]:
        """Draw a batch in the default way: ``(skip)``, which returns a tuple of the outputs without the first `skip`.

        An int if the general path must draw it, or raise the error. Nothing has changed then.
        """
        return self._kernels["sample"] if self.options.window is None else lambda _: -1

    def try_sample_range(self, sample_range: object, skip: int) -> Outputs | int:
        """Draw a batch from a range, as `Calls.try_sample_range` has it."""
        if type(sample_range) is not tuple or len(sample_range) != 2 or self._rows_schema is not self.schema:
            return -1
        start, stop = sample_range
        first, last = 0 if start is None else start, ALL_ROWS[1] if stop is None else stop
        if type(first) is not int or type(last) is not int:
            return -1
        batch: Outputs | int = self._kernels["sample_range"]((first, last), skip)
        return batch

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> Outputs:
        """Draw a batch.

        Args:
            bounds (Union[tuple[int, int], None]): A slice of logical rows to draw from, or ``None`` for all, or for
                the newest `window`.
            beta (Union[float, None]): Beta of this call, in [0, 1], with priorities, or ``None`` for that of the state.

        Returns:
            tuple[numpy.ndarray, ...]: The outputs of the plan.

        Raises:
            KernelError: If too few rows are eligible.
        """
        if bounds is None and self.options.window is None and beta is None:
            return self._run(tuple, "sample")
        where = self.usual_bounds() if bounds is None else bounds
        return self._run(tuple, "sample_range", where) if beta is None else self._run(tuple, "sample_beta", where, beta)

    def read(self, index: Values) -> Outputs:
        """Return the rows at logical positions, ints of shape ``[]`` or ``[n]``. 0 is the oldest, -1 the newest.

        Raises:
            TypeError, ValueError: If `index` is not of ints, or has more axes.
            IndexError: If there is no such row.
        """
        rows: Outputs | int = self._kernels["read"](index)
        if type(rows) is tuple:
            return rows
        positions = as_positions(self.options.cls_name, index)
        while True:
            check_positions(self.options.cls_name, positions, self.count())
            try:
                return self._run(tuple, "read", positions.astype(np.int64))
            except library.KernelError as error:
                if error.status != library.OUT_OF_RANGE:  # else rows have gone since then: their writer died
                    raise

    def update(self, handles: Values, values: Experience) -> np.ndarray:
        """Write columns of stored rows.

        Args:
            handles (Union[numpy.ndarray, Sequence[int], int]): Handles, ``[]`` or ``[n]``. If several name one row, the
                last counts.
            values (Union[dict, Sequence]): Rows of some columns by name, or of all in order, ``[*F]`` or ``[n, *F]``.

        Returns:
            numpy.ndarray: Number of invalid handles, of rows overwritten or deleted. Shape ``[]``, int32.

        Raises:
            TypeError, ValueError: If an argument does not fit. Nothing is written then.
        """
        columns = self._all_columns
        fields: Iterable[Nested] | None = values if isinstance(values, (list, tuple)) else None
        if type(values) is dict:
            columns, fields = tuple(map(self._indices.get, values, itertools.repeat(-1))), values.values()
        kernel = self._kernels.get(("update", columns))  # made by the first update of these columns that fits
        if kernel is not None and fields is not None and len(values) == len(columns):
            invalid = kernel(handles, *fields)
            if type(invalid) is np.ndarray:
                return invalid
        return self._write(*as_values(self.schema, self.options, handles, values))

    def check_update(self, handles: Values, values: Experience) -> None:
        """Raise the errors of `update`, and write nothing."""
        as_values(self.schema, self.options, handles, values)

    def _write(self, where: np.ndarray, chosen: list[int], arrays: list[np.ndarray]) -> np.ndarray:
        return self._run(np.ndarray, ("update", tuple(chosen)), where, *arrays)

    # The state of rows.

    @functools.cached_property
    def try_update_priorities(self) -> Callable[[Values, Values], np.ndarray | int]:
        """Set the priorities of rows: ``(handles, priorities)``, as `update_priorities` does.

        It returns the number of invalid handles, an array ``[]``. If the general path has to convert them, or to raise
        the error, it returns an int. Then nothing has changed.
        """
        return self._kernels["update_priorities"]

    def update_priorities(self, handles: Values, priorities: Values) -> np.ndarray:
        """Set the priorities of rows: one for all, or one for each.

        Returns:
            numpy.ndarray: Number of invalid handles among `handles`, ``[]`` or ``[n]``. Shape ``[]``, int32.

        Raises:
            TypeError: If handles are no ints, or priorities no numbers.
            ValueError: If shapes do not fit, or a priority is negative, NaN or infinite. Nothing is changed then.
        """
        invalid = self.try_update_priorities(handles, priorities)
        if type(invalid) is np.ndarray:
            return invalid
        return self._run(np.ndarray, "update_priorities", *as_priorities(self.options, handles, priorities))

    def delete(self, handles: Values) -> np.ndarray:
        """Remove the rows of these handles, ``[]`` or ``[n]``, from sampling, and return their number, int32 ``[]``."""
        removed = None if self.options.weighting is None else self._kernels["delete"](handles)
        if isinstance(removed, np.ndarray):
            return removed
        return self._run(np.ndarray, "delete", as_handles_for(self.options, "delete", handles))

    def info(self, handles: Values) -> tuple[np.ndarray, ...]:
        """Return priorities, use counts and stalenesses of the rows of these handles, each of their shape."""
        parts = None if self.options.weighting is None else self._kernels["info"](handles)
        if isinstance(parts, tuple):
            return parts
        return self._run(tuple, "info", as_handles_for(self.options, "info", handles))

    def advance(self, steps: int = 1) -> None:
        """Advance the learner's clock, and remove rows that became stale."""
        self._run(np.ndarray, "advance", steps)

    def end_episodes(self) -> np.ndarray:
        """End the open episodes, and return their number, int32 ``[]``."""
        return self._run(np.ndarray, "end_episodes")

    def reset(self) -> None:
        """Remove all rows. Serial numbers and the random sequence continue. Beta is reset."""
        self._run(np.ndarray, "reset")
        if self.options.beta is not None:
            self.arrays["beta"][0] = self.options.beta

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> Outputs:
        """Draw groups by a column of ints: a mask of the rows that exist, bool ``[G, L]``, and rows, ``[G, L, *F]``."""
        return self._run(tuple, "sample_groups", (column, int(ordered)), np.empty((groups, size), np.int8))

    # Counts.

    def _arrays(self, *_names: str) -> dict[str, np.ndarray]:
        return self.arrays

    def _between(self, read: Callable[[], _Read]) -> _Read:
        """Return what `read` finds between two operations. That of a process that died is completed or undone first."""
        found = read()
        if self.folder is not None and is_busy(self.folder.arrays):
            with self.kernels_kept_out():
                return read()
        return found

    def count(self) -> int:
        """Return the number of rows stored."""
        return int(self._count) if self.folder is None else self._between(self._count.item)

    def has_rows(self) -> bool:
        """Return True if as many rows are eligible as `can_sample` waits for."""
        if self.folder is None and self.options.window is None:
            number, wanted = self._eligible_and_wanted
            return bool(number[...] >= wanted)
        return super().has_rows()

    @functools.cached_property
    def _eligible_and_wanted(self) -> tuple[np.ndarray, int]:
        """The element of the state that counts the rows that may be drawn of all, and `options.rows_to_wait_for`."""
        number = self._count if self.options.weighting is None else self.arrays["weights"][-1:]
        return number, self.options.rows_to_wait_for

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Return the number of rows at which a sample may start. `bounds` are as for `sample`."""
        return self._between(lambda: self._eligible(bounds))

    def _eligible(self, bounds: tuple[int, int] | None) -> int:
        where = self.usual_bounds() if bounds is None else bounds
        if self.options.weighting is None:
            return len(range(*slice(*where).indices(self._count.item())))
        if where is ALL_ROWS:
            return int(self.arrays["weights"][-1])
        if self.options.beta is not None:
            return self._positive(*slice(*where).indices(self._count.item()))
        return int(self._run(np.ndarray, "sums", where))

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

    # The whole state.

    def kernels_kept_out(self) -> Held:
        """Return a block that keeps kernels of all threads, and of other processes, out of these arrays.

        Only of a buffer in a folder, this thread may call kernels meanwhile.
        """
        return self._hold

    @functools.cached_property
    def _hold(self) -> Held:
        return holding(self._head, _raise_failure)

    def sole_use(self, arrays: Arrays) -> Held:
        """Prevent attaching to a folder during the block, for a state with other rows than those stored now.

        Raises:
            RuntimeError: If a process is attached.
        """
        if self.folder is None or self._has_rows_of(arrays):
            return contextlib.nullcontext()
        return self.folder.without_attached()

    def begin_replacing(self, arrays: Arrays) -> Arrays:
        """Declare that all rows are about to be replaced by those of a state, and return the state to write.

        The caller must have `sole_use` for the state, in a `hold`. If the process dies, no row is left in a folder.
        There a serial number is never used twice: that of a row to write may be raised.
        """
        same = self.folder is None or self._has_rows_of(arrays)
        if self.folder is not None:
            if not same:
                self.folder.check_sole_use()
            self.updates[:] = self.updates[0] + 1  # what belongs to the rows may change, also if these are the same
        self._handle.replay_replace(self._head)
        return arrays if same else state.renumbered(arrays, int(self.arrays["serials"][0]))

    def _has_rows_of(self, arrays: Arrays) -> bool:
        """Return True if the rows of a state are those stored now, by their serial numbers and their bytes."""
        columns = [key for key in self.arrays if key.startswith(state.OF_ROWS)]
        keys = ["serials", *(key for key in ("row_serials",) if key in self.arrays), *columns]  # the small ones first
        return all(
            key in arrays and np.ascontiguousarray(arrays[key]).data.cast("B") == self.arrays[key].data.cast("B")
            for key in keys
        )

    def close(self) -> None:
        """Flush the files of a folder, and end its use by all processes, or only by this one if it is not the learner.

        Other memory is returned to the system. If the folder was deleted, or a signal interrupts this, the buffer is
        still open.
        """
        if self.folder is not None and self.folder.is_learner:
            try:
                self.folder.end(self._hold)
            except (OSError, library.KernelError) as error:
                if getattr(error, "errno", 0) is not None:  # the disk failed
                    self.detach()
                raise
        if self.guard is not None:
            self.guard.close()
        if self.folder is not None:
            self.detach()
            return
        block = block_of(self._count)
        at_the_end(block, "replay_unshare", self._head)
        self._handle.replay_close(self._head)
        give_back(block)

    def detach(self) -> None:
        """End the use of a folder by this process, also in compiled graphs."""
        assert self.folder is not None
        self._handle.replay_close(self._head)
        self.folder.close()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy all arrays, by name, with the capacity and the version of the layout."""
        with self.kernels_kept_out():
            arrays = {name: array.copy() for name, array in {**self.arrays, **self.compressed}.items()}
        return {"version": np.array(STATE_VERSION), "capacity": np.array(self.options.capacity), **arrays}

    def load_state_dict(self, saved: Arrays) -> None:
        """Load the result of `state_dict` of a store with the same columns and options.

        Raises:
            ValueError: If an array does not fit or the state is inconsistent. Nothing is changed then.
        """
        arrays = state.checked(self._rows_schema, self.options, saved, STATE_VERSION)
        with self.sole_use(arrays), self.kernels_kept_out():
            replaced = self.begin_replacing(arrays)
            for name, array in {**self.arrays, **self.compressed}.items():
                array[...] = replaced[name]

    def check(self) -> None:
        """Raise a ValueError if the arrays are inconsistent."""
        with self.kernels_kept_out():
            state.check(self.options, self.arrays)


def _raise_failure(status: int) -> None:
    raise library.KernelError("replay_hold", status)
