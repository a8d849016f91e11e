"""Buffers in folders, used by processes other than the learner's."""

import contextlib
import math
import os
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from . import library
from .checks import check_size
from .folder import Folder, bad_folder, open_to_attach
from .front import Front
from .habits import NoContainer, wrong_sample
from .rate_rule import Account, QueueAccount, Wait, seconds_of
from .recipe.spec import BufferSpec
from .store import Store

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
        options = opened.spec.options
        with contextlib.ExitStack() as stack:
            stack.callback(opened.close)
            wanted = options.plan.n if sample_size is None else sample_size
            spec = opened.spec.resized(check_size("attach", "sample_size", wanted, options.most_starts))
            try:
                store = Store(spec.columns, spec.options, folder=opened)
            except (ArithmeticError, IndexError, library.KernelError, TypeError, ValueError) as error:
                raise bad_folder("attach", opened.path, f"is damaged: {error}") from error
            stack.pop_all()
        self._front, self._folder, self._spec = AttachedFront(store, opened, spec, timeout), opened, spec
        self.names, self.types = spec.columns.given_names, spec.columns.dtypes
        self.capacity, self.sample_size, self.num_envs = spec.capacity, spec.sample_size, spec.num_envs
        self.has_episodes, self.achieved_goal = spec.has_episodes, spec.achieved_goal

    def __reduce__(self) -> tuple[Any, ...]:
        return AttachedBuffer, (os.fspath(self._folder.path), self.sample_size, self._front.timeout)

    def __repr__(self) -> str:
        rows = "closed" if self.closed else f"{len(self)} of {self.capacity} rows"
        return f"AttachedBuffer({os.fspath(self._folder.path)!r}, {self._spec.cls_name}, {rows})"

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
        if _misplaced or _unknown:
            raise self._spec.columns.wrong_insert(exp, _misplaced, _unknown)
        front = self._front
        if not with_indices and front.try_insert(exp, priority, end, final, version):
            return self
        handles = front.insert(exp, priority, end, final, version, with_indices)
        return self if handles is None else handles

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
        return self._front.get_item(index)

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
        if _misplaced or _unknown or type(sample_range) is int:
            given = (*(() if sample_range is None else (sample_range,)), *_misplaced)
            name = self._spec.cls_name
            raise wrong_sample(name, self, given, _unknown, "attach(folder, sample_size={}).sample()")
        return self._front.sample(sample_range, beta, as_dict, with_indices)

    # The state of rows.

    def update_priorities(self, indices: Any, priorities: Any) -> int:
        """Set the priorities of rows, as `Buffer.update_priorities` does, and return the number of invalid handles."""
        return self._front.update_priorities(indices, priorities)  # type: ignore[no-any-return]

    def update(self, indices: Any, values: Any) -> int:
        """Write columns of stored rows, as `Buffer.update` does, and return the number of invalid handles."""
        return self._front.update(indices, values)  # type: ignore[no-any-return]

    def delete(self, indices: Any) -> int:
        """Remove rows, as `Buffer.delete` does, and return their number."""
        return self._front.delete(indices)  # type: ignore[no-any-return]

    def info(self, indices: Any) -> tuple[np.ndarray, ...]:
        """Return priority, use count and staleness of rows, as `Buffer.info` does."""
        return self._front.info(indices)

    def advance(self, steps: int = 1) -> "AttachedBuffer":
        """Advance the learner's clock, as `Buffer.advance` does."""
        self._front.advance(steps)
        return self

    def end_episodes(self) -> int:
        """End all open episodes, as `Buffer.end_episodes` does, and return their number."""
        return self._front.end_episodes()  # type: ignore[no-any-return]

    # Counts.

    def __len__(self) -> int:
        return self._front.size()

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
        return self._front.can_sample()

    @property
    def closed(self) -> bool:
        """True if this object was closed, or the learner has closed the buffer."""
        return self._front.given_up or self._folder.closed

    def check_valid(self) -> None:
        """Raise a ValueError if the state is inconsistent; the rows' own data are not checked. Cost O(C)."""
        self._front.check_valid()

    def close(self) -> None:
        """Give up the folder. The object cannot be used any more; waits of other threads for a limiter end."""
        self._front.close()


class AttachedFront(Front):
    """The calls of an attached process: the limiter and the closing are the learner's.

    Args:
        store (Store): The rows.
        folder (Folder): Their files.
        spec (BufferSpec): What the buffer is.
        timeout (Union[float, None]): Seconds after which a wait for the limiter is an error; ``None`` for no limit.
    """

    calls: Store

    def __init__(self, store: Store, folder: Folder, spec: BufferSpec, timeout: float | None) -> None:
        super().__init__(store, spec, threading.RLock(), lambda array: array, int)
        self.timeout, self.given_up = timeout, False
        self._folder, self._of_closed, self._is_queue = folder, folder.closed, spec.options.plan.in_order
        self._closed, self._limited = folder.arrays["shared.closed"], folder.arrays["shared.limited"]

    def try_insert(self, *given: Any) -> bool:
        """Store rows that obviously fit, unless they may have to wait."""
        with self.lock:
            self.ready()
            return not (self._is_queue or self._limited[0]) and self.calls.try_insert(*given)

    def drawn(self, bounds: tuple[int, int] | None, beta: float | None) -> tuple[Any, ...]:
        """Draw a batch with all of its bookkeeping, in the lock."""
        if self.spec.achieved_goal is not None:
            name = self.spec.cls_name
            raise RuntimeError(f"For '{name}', only the learner can sample: a view of the buffer is Python code.")
        return super().drawn(bounds, beta)

    def can_sample(self) -> bool:
        """Return True if enough eligible rows are stored, and the limiter allows a sample now."""
        with self._exclusive():
            in_progress = self._folder.arrays["shared.in_progress"]
            allowed = not self.is_limited or self._account().allows("sample", self.spec.sample_size, in_progress)
            return bool(allowed and self.calls.eligible() >= self.spec.options.min_rows_to_sample)

    def check_valid(self) -> None:
        """Raise a ValueError if the state is inconsistent."""
        with self.lock:
            self.ready(reading=True)
            self.calls.check()

    def close(self) -> None:
        """Give up the folder."""
        with self.lock:
            if not self.given_up:
                self.given_up = True
                self.calls.detach()

    def ready(self, reading: bool = False) -> None:
        """Raise a RuntimeError if this object or the buffer was closed; one attached to a closed buffer may read."""
        if self.given_up:
            raise RuntimeError(f"For '{self.spec.cls_name}', this object was closed: attach to the folder again.")
        if self._closed[0] and not (reading and self._of_closed):
            raise RuntimeError(
                f"For '{self.spec.cls_name}', the learner has closed the buffer in {self._folder.path}: open it again "
                "in a learner, then this object works on."
            )

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep all others out of the open buffer during the block."""
        with self.lock:
            self.ready()
            with self.calls.kernels_kept_out():
                self.ready()
                yield

    # Limits.

    @property
    def is_limited(self) -> bool:
        """True if insertions and samples may have to wait."""
        return self._is_queue or bool(self._limited[0])

    def _account(self) -> Account | QueueAccount:
        arrays, spec = self._folder.arrays, self.spec
        if self._is_queue:
            room = self.calls.room() if spec.options.never_evicts_valid else math.inf
            return QueueAccount(spec.cls_name, spec.capacity, self.calls.eligible(), room, self.calls.pending_note())
        return Account(*arrays["shared.rule"].tolist(), *arrays["shared.counts"].tolist())

    @contextlib.contextmanager
    def turn(self, what: str, rows: int) -> Iterator[None]:
        """Wait until rows may be inserted or sampled, and count them. Other threads go on meanwhile."""
        arrays, signals, name = self._folder.arrays, self._folder.signals, self.spec.cls_name
        if rows == 0:
            with self._exclusive():
                yield
            return
        wait = Wait(self._account, what, rows, self.timeout)
        while True:
            seen = signals.seen()
            with self._exclusive():
                now, in_progress = self._account(), arrays["shared.in_progress"]
                if isinstance(now, Account):
                    now.check_room(what, rows, arrays["shared.sizes"])
                elif self.timeout != 0:
                    now.check_room(what, rows)
                if not self.is_limited or now.allows(what, rows, in_progress):
                    yield
                    arrays["shared.counts"] += now.increments(what, rows, in_progress)
                    signals.send()
                    return
                if isinstance(now, QueueAccount) and self.timeout == 0:
                    raise now.no_room(rows) if what == "insert" else self.too_few(self.calls.eligible())
            if not self._folder.has_learner():
                raise RuntimeError(
                    f"For '{name}', {rows} rows cannot be {'inserted' if what == 'insert' else 'sampled'}: the limiter "
                    f"waits for the learner, which is gone. Open {self._folder.path} in a learner again."
                )
            signals.wait(seen, min(wait.left(), _LONGEST_WAIT))
