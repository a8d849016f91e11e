"""Threads that wait until rows may be inserted or sampled."""

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .calls import Calls
from .checks import check_size
from .mixins import mixin
from .rate_rule import KINDS, Account, QueueAccount, Turn, Wait, seconds_of
from .types import Outputs

if TYPE_CHECKING:
    from .folder import Folder
    from .sharing import SharedCondition

#: Seconds after which a waiting thread checks again, since the state may have been loaded from a checkpoint.
_LONGEST_WAIT = 0.5


@mixin
class Waiting:
    """Lets threads insert and sample when an account of the buffer allows it.

    A subclass returns the account, with the methods of `store.rate_rule.Account`. All methods are thread-safe.

    Args:
        timeout (Union[float, None]): Seconds after which a wait is an error, or ``None`` for no limit.
        cls_name (str): Class to name in errors.
    """

    def __init__(self, timeout: object, cls_name: str) -> None:
        super().__init__()
        self.timeout, self._cls_name = seconds_of(timeout, cls_name), cls_name
        self._changed: threading.Condition | SharedCondition = threading.Condition()
        self._inside = threading.local()
        self._in_progress = np.zeros(4, np.int64)  # amounts of blocks in progress
        self._folder: Folder | None = None
        self._waiting: dict[str, list[int]] = {what: [] for what in KINDS}
        #: Set when the buffer is closed, which ends waits.
        self.closing: threading.Event | None = None

    @property
    def waits(self) -> bool:
        """True if calls of the buffer wait."""
        return True

    def account(self) -> Account | QueueAccount:
        """Return the rows and the rule now."""
        raise NotImplementedError

    def _noted_account(self, what: str, rows: int) -> Account | QueueAccount:
        """Return the account. Raise a ValueError if an insertion or a sample of so many rows can never be allowed."""
        raise NotImplementedError

    def _count(self, done: np.ndarray) -> None:
        """Count amounts of blocks that ended. The caller must hold the lock."""

    def restart(self) -> None:
        """Restart, since the buffer is empty."""
        with self._changed:
            self._changed.notify_all()

    def can_insert(self, rows: int = 1) -> bool:
        """Return True if `rows` rows may be inserted now.

        Args:
            rows (int): Number of rows. Default: ``1``.

        Returns:
            bool: Whether they may be inserted.

        Raises:
            ValueError: If `rows` is not positive.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> print(limiter.can_insert())
            True
            >>> limiter.count_inserted(3)
            >>> print(limiter.can_insert())
            False
        """
        return self._asked("insert", rows)

    def can_sample(self, rows: int = 1) -> bool:
        """Return True if `rows` rows may be sampled now. The buffer's `can_sample` also checks that they are stored.

        Args:
            rows (int): Number of rows. Default: ``1``.

        Returns:
            bool: Whether they may be sampled.

        Raises:
            ValueError: If `rows` is not positive.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> print(limiter.can_sample())
            False
            >>> limiter.count_inserted(1)
            >>> print(limiter.can_sample(4), limiter.can_sample(7))
            True False
        """
        return self._asked("sample", rows)

    def lets_sample(self, rows: int) -> bool:
        """Return True if a `sample` of so many rows by this thread would not wait, as always in a `sampling` block."""
        return getattr(self._inside, "sample", False) or self.can_sample(rows)

    def _asked(self, what: str, rows: int) -> bool:
        check_size(self._cls_name, "rows", rows)
        with self._changed:
            return bool(self.account().allows(what, rows, self._in_progress))

    def inserting(self, rows: int = 1, *, timeout: float | None = None) -> contextlib.AbstractContextManager[object]:
        """Wait until rows may be inserted, and count them after the block, unless it raises.

        Within the block, the same thread's calls of the buffer's `insert` neither wait nor count.

        Args:
            rows (int): Rows that the block inserts. Default: ``1``.
            timeout (Union[float, None]): Longest wait in seconds. Default: ``None``, for the limiter's own.

        Returns:
            AbstractContextManager: For a ``with`` statement.

        Raises:
            TimeoutError: If they may not be inserted in time.
            ValueError: If `rows` is not positive, or so many can never be inserted.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> with limiter.inserting(2):
            ...     pass  # a compiled graph that inserts two rows
            >>> print(limiter.inserted)
            2
        """
        return self.turn("insert", check_size(self._cls_name, "rows", rows), None, seconds_of(timeout, self._cls_name))

    def sampling(self, rows: int = 1, *, timeout: float | None = None) -> contextlib.AbstractContextManager[object]:
        """Wait until rows may be sampled, and count them after the block, unless it raises.

        Within the block, the same thread's calls of the buffer's `sample` neither wait nor count.

        Args:
            rows (int): Rows that the block samples. Default: ``1``.
            timeout (Union[float, None]): Longest wait in seconds. Default: ``None``, for the limiter's own.

        Returns:
            AbstractContextManager: For a ``with`` statement.

        Raises:
            TimeoutError: If they may not be sampled in time.
            ValueError: If `rows` is not positive, or so many can never be sampled.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.count_inserted(1)
            >>> with limiter.sampling(4):
            ...     pass  # a compiled graph that samples four rows
            >>> print(limiter.sampled)
            4
        """
        return self.turn("sample", check_size(self._cls_name, "rows", rows), None, seconds_of(timeout, self._cls_name))

    @contextlib.contextmanager
    def turn(
        self,
        what: str,
        rows: int,
        stop: threading.Event | None = None,
        seconds: float | None = None,
        poll: Callable[[float], None] | None = None,
    ) -> Iterator[Turn]:
        """Run the block of `inserting` or `sampling`. Raise a RuntimeError if `stop` is set during the wait.

        If counts arrive from elsewhere, the wait calls `poll` without the lock, with the most seconds that it may last.
        """
        turn = Turn(rows)
        if getattr(self._inside, what, False):
            yield turn
            return
        more = self._begin(what, rows, self.timeout if seconds is None else seconds, stop, poll)
        setattr(self._inside, what, True)
        try:
            yield turn
        except BaseException:
            self._end(more, more * 0)
            raise
        else:
            self._end(more, more * turn.rows // rows)
        finally:
            setattr(self._inside, what, False)

    def try_insert(self, calls: Calls, *arguments: object) -> bool:
        """Insert rows that obviously fit, as `Store.try_insert` does, when they may be inserted, and count them."""
        if getattr(self._inside, "insert", False):
            return bool(calls.try_insert(*arguments))
        rows = calls.rows_to_insert(*arguments)
        if rows < 1:
            return False
        more, done = self._begin("insert", rows, self.timeout), False
        try:
            done = calls.try_insert(*arguments)
        finally:
            self._end(more, more if done else more * 0)
        return done

    def try_sample(self, calls: Calls, skip: int, rows: int) -> Outputs | int:
        """Draw a batch, as `Store.try_sample` does, when it may be drawn, and count its rows."""
        if getattr(self._inside, "sample", False):
            return calls.try_sample(skip)
        more, batch = self._begin("sample", rows, self.timeout), None
        try:
            batch = calls.try_sample(skip)
        finally:
            self._end(more, more if type(batch) is tuple else more * 0)
        return batch

    def _begin(
        self,
        what: str,
        rows: int,
        seconds: float | None,
        stop: threading.Event | None = None,
        poll: Callable[[float], None] | None = None,
    ) -> np.ndarray:
        """Wait until rows may be inserted or sampled, and return what they add to the counts."""
        wait: Wait | None = None
        self._changed.acquire()
        self._waiting[what].append(rows)
        try:
            while not (now := self._noted_account(what, rows)).allows(what, rows, self._in_progress):
                if self._folder is not None and self._folder.closed:
                    raise RuntimeError(
                        f"For '{self._cls_name}', the buffer in {self._folder.path} was closed: open its folder again."
                    )
                if self.closing is not None and self.closing.is_set():
                    raise RuntimeError(f"For '{self._cls_name}', the buffer was closed: make another.")
                wait = wait or Wait(self.account, what, rows, seconds, stop)
                if poll is None:
                    self._changed.wait(min(wait.left(), _LONGEST_WAIT))
                else:
                    self._poll(poll, wait.left())
            increments: np.ndarray = now.increments(what, rows, self._in_progress)
            in_progress = self._in_progress
            in_progress += increments
            return increments
        finally:
            self._waiting[what].remove(rows)
            self._changed.release()

    def _poll(self, poll: Callable[[float], None], seconds: float) -> None:
        """Receive counts without the lock, which the caller must hold: counting requires it."""
        self._changed.release()
        try:
            poll(seconds)
        finally:
            self._changed.acquire()

    def _end(self, in_progress: np.ndarray, done: np.ndarray) -> None:
        self._changed.acquire()
        try:
            others = self._in_progress
            others -= in_progress
            self._count(done)
            if self._folder is not None or any(self._waiting.values()):
                self._changed.notify_all()
        finally:
            self._changed.release()


class Queue(Protocol):
    """A queue, which a limiter can wait for."""

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room."""

    def signals(self) -> "tuple[threading.Condition | SharedCondition, Folder | None]":
        """Return the condition of waits, and the folder if there is one."""


class QueueLimiter(Waiting):
    """Lets samples of a queue wait for rows, and insertions for room, in all processes that use it.

    Args:
        queue (ReplayQueue): The queue.
        timeout (Union[float, None]): Seconds after which a wait is an error, or ``None`` for no limit.
    """

    def __init__(self, queue: Queue, timeout: object) -> None:
        super().__init__(timeout, type(queue).__name__)
        self._queue = queue
        self._changed, self._folder = queue.signals()
        if self._folder is not None:
            self._in_progress = self._folder.arrays["shared.in_progress"]
            self._in_progress[:] = 0

    def __deepcopy__(self, memo: dict[Any, Any]) -> "QueueLimiter":
        """Make the limiter of a copy of the queue."""
        return QueueLimiter(copy.deepcopy(self._queue, memo), self.timeout)

    @property
    def waits(self) -> bool:
        """True if calls wait. Without, they fail with a RuntimeError."""
        return self.timeout != 0

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room."""
        return self._queue.account()

    def try_insert(self, calls: Calls, *arguments: object) -> bool:
        """Insert rows that obviously fit; if it may wait, when there is room."""
        if self.timeout == 0:
            return bool(calls.try_insert(*arguments))
        return super().try_insert(calls, *arguments)

    def try_sample(self, calls: Calls, skip: int, rows: int) -> Outputs | int:
        """Draw a batch; if it may wait, or rows may have to wait for those before them, when there are enough rows."""
        if self.timeout == 0:
            return -1 if calls.options.keeps_turn else calls.try_sample(skip)
        return super().try_sample(calls, skip, rows)

    def _noted_account(self, what: str, rows: int) -> QueueAccount:
        now = self.account()
        now.check_room(what, rows)
        return now
