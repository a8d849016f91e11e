"""Buffers in folders, used by processes other than the learner's."""

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..base.checks import check_size, seconds_of
from ..base.gone import left_by_forks
from ..base.length_groups import LONGEST, Packing
from ..base.types import Sample, Values
from ..folder.folder import Folder
from ..folder.header import bad_folder
from ..folder.opening import open_to_attach
from ..kernels import library
from ..kernels.limits import BY_ROWS, NO_LIMIT
from ..kernels.locks import Held, Locks, first, on_failure
from ..rows.any_length import make_store
from ..rows.store import Store
from ..spec.spec import BufferSpec
from ..waits.rate_rule import QueueAccount
from ..waits.waiting import Turn, Waiting
from .front import Front, delivered
from .methods import BufferMethods, describe

_Result = TypeVar("_Result")


def attach(
    folder: str | os.PathLike[str], *, sample_size: int | None = None, timeout: float | None = None
) -> "AttachedBuffer":
    """Use the buffer in a folder from another process than its learner, without MindSpore.

    Args:
        folder (Union[str, PathLike]): The folder, the `storage` of the buffer.
        sample_size (Union[int, None]): Rows of one sample. Default: ``None``, for the buffer's own.
        timeout (Union[float, None]): Longest wait for the buffer's limiter, in seconds. Default: ``None``, for no
            limit.

    Returns:
        AttachedBuffer: The same rows, with NumPy arrays.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder contains something else, a damaged buffer or one of a newer version of this library,
            or `sample_size` is out of range.
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


class AttachedBuffer(BufferMethods):
    """The buffer in a folder, for another process than its learner. Make it with `attach`.

    Methods have the arguments, results and errors of the buffer's class, with NumPy arrays instead of Tensors. All
    processes share rows, priorities and random sequence. Threads may share one object. A process may be killed at any
    time: the next one to use the buffer completes or undoes its operation.

    A pickled or copied object attaches to the same folder.

    Once the learner closes the buffer, all methods but `close` raise a RuntimeError. An object attached after that can
    only read: `get_item`, `info`, `size`, `full` and `check_valid`.

    Insertions and samples wait for the buffer's limiter. If several processes insert into a buffer that stores
    episodes, each must insert whole episodes, with ``end=True`` in the last row.

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

    _OTHER_SIZE = "attach(folder, sample_size={}).sample()"

    def __init__(self, folder: str | os.PathLike[str], sample_size: int | None, timeout: float | None) -> None:
        opened = open_to_attach(folder, "attach")
        options = opened.spec.options
        with on_failure(opened.close):
            wanted = options.plan.n if sample_size is None else sample_size
            spec = opened.spec.resized(check_size("attach", "sample_size", wanted, opened.spec.largest_sample))
            try:
                store = make_store(spec, folder=opened)
            except (ArithmeticError, IndexError, library.KernelError, TypeError, ValueError) as error:
                raise bad_folder("attach", opened.path, f"is damaged: {error}") from error
        opened.begin("attach")
        self._folder = opened
        describe(self, spec, AttachedFront(store, opened, spec, timeout))

    def __reduce__(self) -> tuple[Any, ...]:
        return AttachedBuffer, (os.fspath(self._folder.path), self.sample_size, self._front.timeout)

    def sample(
        self,
        sample_range: tuple[Any, Any] | None = None,
        *_misplaced: NoReturn,
        beta: float | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Sample `sample_size` rows as the learner's buffer does.

        Args:
            sample_range (Union[tuple, None]): ``(start, stop)``, a slice of the rows, oldest first. Default: ``None``,
                for all.
            beta (Union[float, None]): Beta of this call. Default: ``None``, for the buffer's.
            as_dict (bool): Whether to return a dict by name. Default: ``False``.
            with_indices (bool): Whether to return handles also where the buffer's class does not. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Default: ``False``, to
                ``sample_length``.

        Returns:
            Union[tuple[numpy.ndarray, ...], dict[str, numpy.ndarray]]: Bookkeeping and columns, as for the learner.

        Raises:
            RuntimeError: If too few rows are eligible, if the sample requires the learner's Python code, such as
                `HindsightRelabel`, or as for `insert`.
        """
        if _misplaced or _unknown or type(sample_range) is int:
            given = (*(() if sample_range is None else (sample_range,)), *_misplaced)
            raise self._wrong_sample(given, _unknown)
        return self._front.sample(sample_range, beta, as_dict, with_indices, LONGEST if longest else None)

    @property
    def folder(self) -> Path:
        """Files of the rows."""
        return self._folder.path

    @property
    def closed(self) -> bool:
        """True if this object was closed, or the learner has closed the buffer."""
        return self._front.given_up or self._folder.closed

    def close(self) -> None:
        """Release the folder. Other threads stop waiting for a limiter, and further calls raise a RuntimeError."""
        self._front.close()


class AttachedFront(Front):
    """The calls of an attached process: the limiter and the closing are the learner's.

    Args:
        store (Store): The rows.
        folder (Folder): Their files.
        spec (BufferSpec): What the buffer is.
        timeout (Union[float, None]): Seconds after which a wait for the limiter is an error, or ``None`` for no limit.
    """

    calls: Store

    def __init__(self, store: Store, folder: Folder, spec: BufferSpec, timeout: float | None) -> None:
        super().__init__(store, spec, threading.RLock(), lambda array: array, int)
        self.timeout, self.given_up = timeout, False
        left_by_forks(self)
        self._folder, self._of_closed = folder, folder.closed
        self._closed, self._limits = folder.arrays["shared.closed"], store.limits
        self._waiting = _Waiting(self, timeout)

    def leave(self) -> None:
        """Go on in a process that was forked from this one, where no other thread holds the lock."""
        self.lock = threading.RLock()

    def try_insert(self, *given: object) -> Any:
        """Store rows that obviously fit, and may go in now."""
        with self.lock:
            self.ready()
            return self.calls.try_insert(*given)

    def sample(
        self, sample_range: object, beta: Values | None, as_dict: bool, with_indices: bool, pack: Packing | None = None
    ) -> Sample:
        """Draw a batch, as `BaseFront.sample` does; in the default way by one call, if it may go on now."""
        plain = sample_range is None and beta is None and pack is None and not as_dict and not self.keeps_turn
        if plain and self.spec.relabelling is None and (self.has_handles or not with_indices):
            with self.lock:
                self.ready()
                batch = self.calls.try_sample(self.drops_handles and not with_indices)
            if type(batch) is tuple:
                return batch
        return super().sample(sample_range, beta, as_dict, with_indices, pack)

    def draw_batch(self, bounds: tuple[int, int] | None, beta: float | None, pack: Packing | None) -> tuple[Any, ...]:
        """Draw a batch with all of its bookkeeping, in the lock."""
        if self.spec.relabelling is not None:
            name = self.spec.cls_name
            raise RuntimeError(f"For '{name}', only the learner can sample: a view of the buffer is Python code.")
        return super().draw_batch(bounds, beta, pack)

    def can_sample(self) -> bool:
        """Return True if enough eligible rows are stored, and the limiter allows a sample now."""
        with self.lock:
            self.ready()
            with self._exclusive():
                return self.calls.has_rows() and self._waiting.can_sample(self.spec.sample_size)

    def close(self) -> None:
        """Give up the folder."""
        with self.lock:
            if not self.given_up:
                self.calls.detach()
                self.given_up = True

    def ready(self) -> None:
        """Raise a RuntimeError if this object or the buffer was closed."""
        if self.given_up:
            raise RuntimeError(f"For '{self.spec.cls_name}', this object was closed: attach to the folder again.")
        if self._closed[0]:
            raise RuntimeError(
                f"For '{self.spec.cls_name}', the learner has closed the buffer in {self._folder.path}: open it again "
                "in a learner, then use this object again."
            )

    def ready_to_read(self) -> None:
        """Raise a RuntimeError if this object was closed, or the buffer was after this object was attached to it."""
        if self.given_up or not self._of_closed:
            self.ready()

    def _exclusive(self) -> Held:
        """Return a block, in the lock, that keeps all others out of the open buffer."""
        return Locks(self.calls.kernels_kept_out(), first(self.ready))

    # Limits.

    @property
    def is_limited(self) -> bool:
        """True if insertions and samples may have to wait."""
        return self._limits.kind != NO_LIMIT

    def account(self) -> QueueAccount:
        """Return the rows of a queue that can be sampled, and its room."""
        return QueueAccount.of(self.calls, self.spec.options)

    def has_learner(self) -> bool:
        """Return True if there is a learner, which insertions and samples may wait for."""
        return self._folder.has_learner()

    def in_turn(self, operation: str, rows: int, call: Callable[[], _Result], decided: bool = True) -> _Result:
        """Return what a call returns that inserts or samples rows, when it may. Other threads go on meanwhile."""
        if rows == 0:
            return super().in_turn(operation, rows, call)
        turn = self._waiting.take(operation, rows)
        assert turn is not None
        kernel_decides = decided and not (operation == "sample" and self.keeps_turn)
        attempt = call if kernel_decides else functools.partial(self._alone, turn, call)
        try:
            return turn.go(functools.partial(super().in_turn, operation, rows, attempt))
        except TimeoutError:
            if self.timeout != 0 or self._limits.kind != BY_ROWS:
                raise
            now = self.account()
        raise now.no_room(rows) if operation == "insert" else self.too_few(now.valid)

    def _alone(self, turn: Turn, call: Callable[[], _Result]) -> _Result:
        """Make a call, if it may go on now, while nobody else uses the buffer. It counts in the end."""
        with self._exclusive(), turn.tried(self.calls):
            result = call()
            if turn.operation == "sample":
                turn.done = delivered(result)
            return result


class _Waiting(Waiting):
    """Lets calls of an attached process wait, whatever limits the buffer."""

    def __init__(self, front: AttachedFront, timeout: float | None) -> None:
        super().__init__(timeout, front.spec.cls_name, front.calls.limits, rows=front)
        self._front = front

    def check_open(self, operation: str, rows: int) -> None:
        """Raise a RuntimeError if there is no learner to wait for."""
        self._front.ready()
        if not self._front.has_learner():
            did, folder = "inserted" if operation == "insert" else "sampled", self._front.calls.folder
            assert folder is not None
            raise RuntimeError(
                f"For '{self._cls_name}', {rows} rows cannot be {did}: the limiter waits for the learner, which has "
                f"ended. Open {folder.path} in a learner again."
            )
