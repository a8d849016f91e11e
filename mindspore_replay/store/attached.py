"""Buffers in folders, used by processes other than the learner's."""

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import numpy as np

from . import library
from .checks import check_positions, check_size, need_episodes, need_handles, range_of, too_few_rows
from .folder import bad_folder, open_to_attach
from .habits import NoContainer, wrong_sample
from .inputs import as_beta, as_handles_for, as_new_rows, as_positions, as_priorities, as_steps
from .naming import named, sample_names
from .random import ALL_ROWS
from .rate_rule import Account, QueueAccount, Wait, seconds_of
from .store import Store

_Result = TypeVar("_Result")

#: Seconds after which a wait for the limiter checks that there still is a learner.
_LONGEST_WAIT = 0.2


def attach(
    folder: str | os.PathLike[str], *, sample_size: int | None = None, timeout: float | None = None
) -> "AttachedBuffer":
    """Use the buffer in a folder beside its learner, without MindSpore.

    Args:
        folder (Union[str, PathLike]): The folder, the `storage` of the buffer.
        sample_size (Union[int, None]): Rows of one sample. Default: ``None``, for the buffer's own.
        timeout (Union[float, None]): Seconds after which a wait for the buffer's limiter is an error. Default:
            ``None``, for no limit.

    Returns:
        AttachedBuffer: The same rows, with NumPy arrays.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder holds something else, a damaged buffer or one of a newer version of this library, or
            `sample_size` is out of range.
        RuntimeError: If the kernel library is not available.
        OSError: If this process may not write to the folder.

    Examples:
        >>> import tempfile
        >>> from mindspore_replay import ReplayBuffer, attach
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     buffer = ReplayBuffer(2, 100, [(3,), ()], ["float32", "int32"], storage=f"{parent}/rows")
        ...     attached = attach(f"{parent}/rows")  # as in another process
        ...     _ = attached.insert([[0.5, 1.5, 2.5], 7])
        ...     print(*buffer.get_item(0), attached.get_item(-1))
        [0.5 1.5 2.5] 7 (array([0.5, 1.5, 2.5], dtype=float32), array(7, dtype=int32))
    """
    return AttachedBuffer(folder, sample_size, seconds_of(timeout, "attach"))


class AttachedBuffer(NoContainer):
    """The buffer in a folder, for a process beside its learner; `attach` makes it.

    Arguments, results and errors of its methods are those of the buffer's class, with NumPy arrays instead of Tensors.
    All processes see the same rows, priorities and random sequence. Threads may share one object. A process may be
    killed at any time: then the next one that uses the buffer completes or undoes its operation.

    It can be pickled and copied: the copy attaches to the same folder.

    Once the learner has closed the buffer, all methods but `close` raise a RuntimeError. Attached to a buffer that is
    closed already, it reads: `get_item`, `info`, `size`, `full` and `check_valid`.

    Insertions and samples wait for the buffer's limiter. Rows of one episode must come from one process: if several
    insert into a buffer whose rows know their episode, each inserts whole episodes, with ``end=True`` in the last row.

    Attributes:
        names (Union[tuple[str, ...], None]): Names of the columns.
        capacity (int): Most rows stored.
        sample_size (int): Rows of one sample.

    Examples:
        >>> import tempfile
        >>> from mindspore_replay import PrioritizedReplayBuffer, attach
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     learner = PrioritizedReplayBuffer(2, 8, [()], ["int32"], storage=f"{parent}/rows", seed=0)
        ...     attached = attach(f"{parent}/rows")
        ...     _ = attached.insert([[10, 11, 12]], priority=[1.0, 0.0, 1.0])
        ...     indices, weights, step = attached.sample()
        ...     print(indices, step, attached.update_priorities(indices, [3.0, 4.0]), attached.size())
        ...     attached.close()
        ...     learner.close()
        [0 2] [10 12] 0 3
    """

    def __init__(self, folder: str | os.PathLike[str], sample_size: int | None, timeout: float | None) -> None:
        opened = open_to_attach(folder, "attach")
        self._spec, options = opened.spec, opened.spec.options
        with contextlib.ExitStack() as stack:
            stack.callback(opened.close)
            wanted = options.plan.n if sample_size is None else sample_size
            size = check_size("attach", "sample_size", wanted, options.most_starts)
            options = options._replace(plan=options.plan._replace(n=size))
            try:
                self._store = Store(opened.spec.columns, options, folder=opened)
            except (ArithmeticError, IndexError, library.KernelError, TypeError, ValueError) as error:
                raise bad_folder("attach", opened.path, f"is damaged: {error}") from error
            stack.pop_all()
        self._folder, self._name, self._timeout = opened, options.cls_name, timeout
        self._is_queue = options.plan.in_order
        self._lock, self._given_up, self._of_closed = threading.RLock(), False, opened.closed
        columns, self.capacity, self.sample_size = opened.spec.columns, options.capacity, size
        self.names, self.types, self.num_envs = columns.given_names, columns.dtypes, options.num_envs
        self.has_episodes, self.achieved_goal = opened.spec.has_episodes, opened.spec.achieved_goal

    def __reduce__(self) -> tuple[Any, ...]:
        return AttachedBuffer, (os.fspath(self._folder.path), self.sample_size, self._timeout)

    def __repr__(self) -> str:
        rows = "closed" if self.closed else f"{len(self)} of {self.capacity} rows"
        return f"AttachedBuffer({os.fspath(self._folder.path)!r}, {self._name}, {rows})"

    # Rows in and out.

    def insert(
        self,
        exp: Any = None,
        *_misplaced: NoReturn,
        priority: Any = None,
        end: Any = False,
        final: Any = False,
        version: Any = None,
        with_indices: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Append one row or a batch, as `Buffer.insert` does.

        Args:
            exp (Union[Sequence, dict]): One array for each column, ``[*F]`` or ``[n, *F]``, in order or by name.
            priority (Union[float, numpy.ndarray, None]): Priority of all rows, or of each. Default: ``None``, for the
                largest so far.
            end (Union[bool, Sequence[bool]]): Whether a row is the last of its episode. Default: ``False``.
            final (Union[bool, Sequence[bool]]): Whether a row holds only the observation after its episode. Default:
                ``False``.
            version (Union[int, numpy.ndarray, None]): Version of the policy that made all rows, or each: the learner's
                clock then. Default: ``None``, for the clock now.
            with_indices (bool): Whether to return the handles of the rows. Default: ``False``.

        Returns:
            Union[AttachedBuffer, numpy.ndarray]: The buffer itself; or handles, int64 ``[]`` or ``[n]``.

        Raises:
            TypeError, ValueError: If an argument does not fit; then nothing is stored.
            RuntimeError: If the buffer lacks what an argument needs, the learner has closed it, or an insertion has to
                wait for the limiter and there is no learner; also if the newest rows are an open episode of another
                process.
            TimeoutError: If it has to wait too long.
        """
        schema, options = self._store.schema, self._store.options
        if _misplaced or _unknown:
            raise schema.wrong_insert(exp, _misplaced, _unknown)
        if version is None and not with_indices:
            with self._lock:
                self._need_open()
                if not self._is_limited and self._store.try_insert(exp, priority, end, final):
                    return self
        new = as_new_rows(schema, options, exp, priority, end, final, version, with_indices)

        def insert() -> Any:
            self._store.insertion(new)
            return new.batch.handles(self._store.first) if with_indices else self

        return self._when_allowed("insert", new.batch.rows, insert)

    #: `insert` under the other name that buffers have for it.
    add = insert

    def get_item(self, index: Any) -> tuple[np.ndarray, ...]:
        """Read rows by logical position: 0 is the oldest, -1 the newest.

        Args:
            index (Union[int, Sequence[int]]): Positions, ``[]`` or ``[k]``.

        Returns:
            tuple[numpy.ndarray, ...]: Copies of the rows, one array for each column. Shape ``[*F]`` or ``[k, *F]``.

        Raises:
            TypeError, ValueError: If `index` holds no ints, or has more than one axis.
            IndexError: If there is no such row.
        """
        positions = as_positions(self._name, index)
        with self._lock:
            self._need_open(reading=True)
            with self._store.kernels_kept_out():
                check_positions(self._name, positions, self._store.count())
                return self._store.read(positions.astype(np.int64))

    def sample(
        self,
        sample_range: tuple[Any, Any] | None = None,
        *_misplaced: NoReturn,
        beta: float | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Draw `sample_size` rows as the learner's buffer does.

        Args:
            sample_range (Union[tuple, None]): ``(start, stop)``, a slice of logical rows. Default: ``None``, for all.
            beta (Union[float, None]): Beta of this call. Default: ``None``, for the buffer's.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.
            with_indices (bool): Whether to return handles also where the buffer's class does not. Default: ``False``.

        Returns:
            Union[tuple[numpy.ndarray, ...], dict[str, numpy.ndarray]]: Bookkeeping and columns, as the learner gets
            them.

        Raises:
            RuntimeError: If too few rows are eligible, if the sample needs Python code that only the learner has, as
                with `HindsightRelabel`, or as for `insert`.
        """
        options = self._store.options
        if _misplaced or _unknown or type(sample_range) is int:
            given = (*(() if sample_range is None else (sample_range,)), *_misplaced)
            raise wrong_sample(self._name, self, given, _unknown, "attach(folder, sample_size={}).sample()")
        if self.achieved_goal is not None:
            raise RuntimeError(f"For '{self._name}', only the learner can sample: a view of the buffer is Python code.")
        beta = as_beta(options, beta)
        if with_indices:
            need_handles(options, "sample(with_indices=True)")
        with_indices = with_indices or options.plan.always_handles
        has_names = self.names is not None
        names = sample_names(self._name, has_names, *self._spec.names, with_indices) if as_dict else ()
        bounds = None if sample_range is None else range_of(self._name, sample_range, ALL_ROWS[1])
        if self._is_limited:
            batch = self._when_allowed("sample", self.sample_size, lambda: self._draw(bounds, beta))
        else:
            with self._lock:
                self._need_open()
                batch = self._draw(bounds, beta)
        if options.has_handles and not with_indices:
            batch = batch[1:]
        return named(names, batch) if as_dict else batch

    def _draw(self, bounds: tuple[int, int] | None, beta: float | None) -> tuple[np.ndarray, ...]:
        try:
            return self._store.sample(bounds, beta)
        except library.KernelError as error:
            if error.status != library.TOO_FEW_ROWS:
                raise
        raise self._too_few(bounds)

    def _too_few(self, bounds: tuple[int, int] | None = None) -> RuntimeError:
        store, weighted = self._store, self._store.options.weighting is not None
        rows, stored = store.eligible(bounds), store.count()
        return too_few_rows(self._name, self.sample_size, weighted, rows, stored, store.pending_note())

    # The state of rows.

    def update_priorities(self, indices: Any, priorities: Any) -> int:
        """Set the priorities of rows, as `Buffer.update_priorities` does, and return the number of invalid handles."""
        handles, given = as_priorities(self._store.options, indices, priorities)
        with self._lock:
            self._need_open()
            return int(self._store.update_priorities(handles, given))

    def update(self, indices: Any, values: Any) -> int:
        """Write columns of stored rows, as `Buffer.update` does, and return the number of invalid handles."""
        need_handles(self._store.options, "update")
        with self._lock:
            self._need_open()
            return int(self._store.update(indices, values))

    def delete(self, indices: Any) -> int:
        """Remove rows, as `Buffer.delete` does, and return their number."""
        handles = as_handles_for(self._store.options, "delete", indices).reshape(-1)
        with self._lock:
            self._need_open()
            return int(self._store.delete(handles))

    def info(self, indices: Any) -> tuple[np.ndarray, ...]:
        """Return priority, use count and staleness of rows, as `Buffer.info` does."""
        handles = as_handles_for(self._store.options, "info", indices)
        with self._lock:
            self._need_open(reading=True)
            return tuple(part.reshape(handles.shape) for part in self._store.info(handles.reshape(-1)))

    def advance(self, steps: int = 1) -> "AttachedBuffer":
        """Advance the learner's clock, as `Buffer.advance` does."""
        with self._exclusive():
            self._store.advance(as_steps(self._store.options, steps, lambda: int(self._store.arrays["clock"][0])))
        return self

    def end_episodes(self) -> int:
        """End all open episodes, as `Buffer.end_episodes` does, and return their number."""
        need_episodes(self._store.options, "end_episodes")
        with self._lock:
            self._need_open()
            return int(self._store.end_episodes())

    # Counts.

    def __len__(self) -> int:
        with self._lock:
            self._need_open(reading=True)
            return self._store.count()

    def __bool__(self) -> bool:
        return True

    def size(self) -> int:
        """Return the number of rows stored."""
        return len(self)

    def full(self) -> bool:
        """Return True if `capacity` rows are stored."""
        return len(self) >= self.capacity

    def can_sample(self) -> bool:
        """Return True if `sample_size` eligible rows are stored, and the limiter allows the sample now."""
        with self._exclusive():
            in_progress = self._folder.arrays["shared.in_progress"]
            allowed = not self._is_limited or self._account().allows("sample", self.sample_size, in_progress)
            return bool(allowed and self._store.eligible() >= self._store.options.min_rows_to_sample)

    @property
    def closed(self) -> bool:
        """True if this object was closed, or the learner has closed the buffer."""
        return self._given_up or self._folder.closed

    def check_valid(self) -> None:
        """Raise a ValueError if the state is inconsistent; the rows' own data are not checked. Cost O(C)."""
        with self._lock:
            self._need_open(reading=True)
            self._store.check()

    def close(self) -> None:
        """Give up the folder. The object cannot be used any more; waits of other threads for a limiter end."""
        with self._lock:
            if not self._given_up:
                self._given_up = True
                self._store.detach()

    def _need_open(self, reading: bool = False) -> None:
        """Raise a RuntimeError if this object or the buffer was closed; one attached to a closed buffer may read."""
        if self._given_up:
            raise RuntimeError(f"For '{self._name}', this object was closed: attach to the folder again.")
        if self._folder.closed and not (reading and self._of_closed):
            raise RuntimeError(
                f"For '{self._name}', the learner has closed the buffer in {self._folder.path}: open it again in a "
                "learner, then this object works on."
            )

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep all others out of the open buffer during the block."""
        with self._lock:
            self._need_open()
            with self._store.kernels_kept_out():
                self._need_open()
                yield

    # Limits.

    @property
    def _is_limited(self) -> bool:
        """True if insertions and samples may have to wait."""
        return self._is_queue or bool(self._folder.arrays["shared.limited"][0])

    def _account(self) -> Account | QueueAccount:
        arrays = self._folder.arrays
        if self._is_queue:
            room = self._store.room() if self._store.options.never_evicts_valid else math.inf
            return QueueAccount(self._name, self.capacity, self._store.eligible(), room, self._store.pending_note())
        return Account(*arrays["shared.rule"].tolist(), *arrays["shared.counts"].tolist())

    def _when_allowed(self, what: str, rows: int, action: Callable[[], _Result]) -> _Result:
        """Insert or sample as soon as the limiter allows it, and count the rows. Other threads go on meanwhile."""
        if not self._is_limited:
            with self._lock:
                self._need_open()
                return action()
        arrays, signals = self._folder.arrays, self._folder.signals
        if rows == 0:
            with self._exclusive():
                return action()
        wait = Wait(self._account, what, rows, self._timeout)
        while True:
            seen = signals.seen()
            with self._exclusive():
                now, in_progress = self._account(), arrays["shared.in_progress"]
                if isinstance(now, Account):
                    now.check_room(what, rows, arrays["shared.sizes"])
                elif self._timeout != 0:
                    now.check_room(what, rows)
                if not self._is_limited or now.allows(what, rows, in_progress):
                    result = action()
                    arrays["shared.counts"] += now.increments(what, rows, in_progress)
                    signals.send()
                    return result
                if isinstance(now, QueueAccount) and self._timeout == 0:
                    raise now.no_room(rows) if what == "insert" else self._too_few()
            if not self._folder.has_learner():
                raise RuntimeError(
                    f"For '{self._name}', {rows} rows cannot be {'inserted' if what == 'insert' else 'sampled'}: the "
                    f"limiter waits for the learner, which is gone. Open {self._folder.path} in a learner again."
                )
            signals.wait(seen, min(wait.left(), _LONGEST_WAIT))
