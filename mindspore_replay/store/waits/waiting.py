"""One way to wait until rows may be inserted or sampled: try, wait, try. Kernels decide, and wake who may go on."""

import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from ..base.checks import check_size, seconds_of
from ..base.mixins import mixin
from ..kernels.library import NOT_YET, KernelError
from ..kernels.limits import BY_ROWS, OPERATIONS, Limits
from ..kernels.locks import Block, Event, Held, Locks, on_failure, released
from ..rows.calls import BaseCalls
from .rate_rule import PATIENCE, Account, QueueAccount, check_room, why_not, why_so_long

logger = logging.getLogger("mindspore_replay.limiter")

_Result = TypeVar("_Result")

#: Seconds after which a thread that waits looks again: who was to wake it may have died, and a state may be loaded.
_LOOK_AGAIN = 0.5


class Owner(Protocol):
    """The rows that a limiter limits."""

    def check_open(self, cls_name: str) -> None:
        """Raise a RuntimeError if they were closed."""


class Rows(Protocol):
    """The calls of a queue."""

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room."""


@mixin
class Waiting:
    """Lets calls insert and sample when the limits of the buffer allow it.

    All methods are thread-safe.

    Args:
        timeout (Union[float, None]): Seconds after which a wait is an error, or ``None`` for no limit.
        cls_name (str): Class to name in errors.
        limits (Union[Limits, None]): The limits. Default: ``None``, for new ones.
        lock (ContextManager): The lock of the rows. Default: none.
        rows (Union[Rows, None]): The rows, if they may be a queue. Default: ``None``.
    """

    def __init__(
        self,
        timeout: object,
        cls_name: str,
        limits: Limits | None = None,
        lock: Held = contextlib.nullcontext(),  # noqa: B008
        rows: Rows | None = None,
    ) -> None:
        super().__init__()
        self.timeout, self._cls_name = seconds_of(timeout, cls_name), cls_name
        self.limits, self._lock, self._rows = limits or Limits(), lock, rows
        #: The rows: when they are closed, waits end.
        self.owner: Owner | None = None

    @property
    def waits(self) -> bool:
        """True if calls of the buffer wait."""
        return True

    def account(self) -> Any:
        """Return the rule and the counts as numbers, or the rows of a queue and its room.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> print(limiter.account().low, limiter.account().inserted)
            2.0 0
        """
        if self._rows is not None and self.limits.kind == BY_ROWS:
            return self._rows.account()
        return Account(*self.limits.rule.tolist(), *self.limits.counts.tolist())

    def note(self, operation: str, rows: int) -> None:
        """Note the rows of an insertion or a sample, if they are the most so far.

        Raises:
            ValueError: If such insertions and samples could block each other, or a queue has never room for them.
        """
        limits, kind = self.limits, OPERATIONS.index(operation)
        if (limits.kind == BY_ROWS and operation == "sample") or rows <= limits.largest[kind]:
            return
        now = self.account()
        if isinstance(now, QueueAccount):
            if self.timeout != 0:
                now.check_room(rows)
        elif now.enabled and (operation == "sample" or now.inserted >= now.min_size):
            largest = limits.largest.tolist()
            largest[kind] = rows
            # An error asks for an `error_buffer` that is enough for the usual ones too, which may not have come yet.
            check_room(now.low, now.high, now.error, largest[0], largest[1], limits.usual.tolist())
            limits.largest[kind] = rows

    def available(self, operation: str) -> int:
        """Return the rows of a queue that can be sampled, or its room."""
        return self.account().available(operation) if self.limits.kind == BY_ROWS else 0  # type: ignore[no-any-return]

    def leave(self, gone: Held) -> None:
        """Raise the error of this lock from here on: the process was forked from that of the limiter."""
        vars(self)["_lock"] = gone

    def restart(self) -> None:
        """Restart, since the buffer is empty."""

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
        return self.limits.is_inside("sample") or self.can_sample(rows)

    def _asked(self, operation: str, rows: int) -> bool:
        check_size(self._cls_name, "rows", rows)
        with self._lock:
            return self.limits.may_go(operation, rows, self.available(operation))

    def inserting(self, rows: int = 1, *, timeout: float | None = None) -> Held:
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

    def sampling(self, rows: int = 1, *, timeout: float | None = None) -> Held:
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

    def turn(
        self,
        operation: str,
        rows: int,
        stop: Event | None = None,
        seconds: float | None = None,
        poll: Callable[[float], None] | None = None,
    ) -> Held:
        """Return the block of `inserting` or `sampling`. It raises a RuntimeError if `stop` is set during the wait.

        If counts arrive from elsewhere, the wait calls `poll` with the most seconds that it may last.
        """
        turn = self.take(operation, rows, stop, seconds, poll)
        return contextlib.nullcontext() if turn is None else turn.taken()

    def take(
        self,
        operation: str,
        rows: int,
        stop: Event | None = None,
        seconds: float | None = None,
        poll: Callable[[float], None] | None = None,
    ) -> "Turn | None":
        """Return a turn that waits as `turn` does, or ``None`` if this thread is in one."""
        if self.limits.is_inside(operation):
            return None
        seconds = self.timeout if seconds is None else seconds
        return Turn(self, operation, rows, seconds, stop, poll or self.limits.sleep)

    def check_open(self, operation: str, rows: int) -> None:
        """Raise a RuntimeError if there is nothing to wait for any more."""
        if self.owner is not None:
            self.owner.check_open(self._cls_name)


class Turn:
    """A turn to insert or sample rows in any way: what it does counts when it ends.

    Args:
        waiting (Waiting): What it waits for.
        operation (str): ``"insert"`` or ``"sample"``.
        rows (int): Number of rows.
        seconds (Union[float, None]): Seconds after which the wait is an error, or ``None`` for no limit.
        stop (Union[Event, None]): Ends the wait when it is set.
        sleep (Callable): Sleeps between two tries, so many seconds.

    Attributes:
        done (int): Rows to count after it: fewer than `rows` if a sample delivers fewer.
    """

    def __init__(
        self,
        waiting: Waiting,
        operation: str,
        rows: int,
        seconds: float | None,
        stop: Event | None,
        sleep: Callable[[float], None],
    ) -> None:
        self.waiting, self.operation, self.rows, self.done = waiting, operation, rows, rows
        self._seconds, self._stop, self._sleep = math.inf if seconds is None else seconds, stop, sleep
        self._since, self._said, self._noted = time.monotonic(), False, np.zeros(5, np.int64)
        self._calls: BaseCalls | None = None
        self._before: object = None

    def taken(self) -> Held:
        """Return a block that waits first, and counts the rows unless it raises or they were counted."""
        return Block(self._await, self._end)

    def watched(self, calls: BaseCalls) -> Held:
        """Return a block within, in the lock of the buffer, that counts the rows if it inserts or samples them.

        It does so also if a signal interrupts it right after that.
        """
        self._calls = calls
        return Block(self._note, self._judge)

    def go(self, call: Callable[[], _Result]) -> _Result:
        """Return what a call returns whose kernel decides whether it may go on, and counts the rows, once it may."""
        with self.waiting.limits.waiting(self.operation):
            return self._tried(call)

    def _tried(self, call: Callable[[], _Result]) -> _Result:
        """Try a call until it does not answer that it may not go on yet, and sleep in between."""
        waiting, operation, rows = self.waiting, self.operation, self.rows
        with on_failure(lambda: waiting.limits.leave(operation)):
            while True:
                waiting.note(operation, rows)
                try:
                    return call()
                except KernelError as error:
                    if error.status != NOT_YET:
                        raise
                waiting.check_open(operation, rows)
                with released(waiting._lock):  # noqa: SLF001  that of the rows, which the caller may hold
                    self._sleep(min(self._left(), _LOOK_AGAIN))

    def _left(self) -> float:
        """Return the seconds until the timeout. Logs a long wait once.

        Raises:
            RuntimeError: If `stop` was set.
            TimeoutError: If the timeout has passed.
        """
        waited, account = time.monotonic() - self._since, self.waiting.account
        if self._stop is not None and self._stop.is_set():
            raise RuntimeError(f"For '{account().name}', the wait ended, because its Prefetch was closed.")
        if waited >= self._seconds:
            raise TimeoutError(why_not(self.operation, self.rows, self._seconds, account()))
        if waited >= PATIENCE and not self._said:
            self._said = True
            logger.warning(why_so_long(self.operation, self.rows, account()))
        return self._seconds - waited

    def tried(self, calls: BaseCalls) -> Held:
        """Return a block that does not wait, in which nobody else uses the rows: it counts as `watched` does."""
        return Locks(Block(functools.partial(self._begin, True), self._end), self.watched(calls))

    def _begin(self, holds: bool = False) -> None:
        """Begin it. Raise a KernelError with the status NOT_YET if it has to wait."""
        waiting, operation = self.waiting, self.operation
        with waiting._lock:  # noqa: SLF001  that of the rows
            if not waiting.limits.begin(operation, self.rows, waiting.available(operation), self._noted, holds):
                raise KernelError(operation, NOT_YET)

    def settle(self, succeeded: bool) -> None:
        """Count the rows if they were inserted or sampled, unless they were counted."""
        self.waiting.limits.end(self.rows, self.done if succeeded else 0, self._noted)

    def _await(self) -> None:
        self._tried(self._begin)

    def _end(self, succeeded: bool) -> None:
        self.settle(succeeded)
        if self.waiting.limits.is_inside(self.operation):
            self.waiting.limits.leave(self.operation)

    def _note(self) -> None:
        assert self._calls is not None
        self._before = self._calls.progress_of(self.operation)

    def _judge(self, succeeded: bool) -> None:
        assert self._calls is not None
        if not succeeded and self._before is not None:
            succeeded = self._calls.progress_of(self.operation) != self._before
        self.settle(succeeded)


class QueueLimiter(Waiting):
    """Lets samples of a queue wait for rows, and insertions for room, in all processes that use it.

    Args:
        rows (Rows): The calls of the queue.
        timeout (Union[float, None]): Seconds after which a wait is an error, or ``None`` for no limit.
        cls_name (str): Class to name in errors.
        limits (Limits): Its limits.
        lock (ContextManager): The lock of its rows.
    """

    def __init__(self, rows: Rows, timeout: object, cls_name: str, limits: Limits, lock: Held) -> None:
        super().__init__(timeout, cls_name, limits, lock, rows)
        limits.in_progress[:] = 0
        limits.kind = BY_ROWS

    @property
    def waits(self) -> bool:
        """True if calls wait. Without, they fail with a RuntimeError."""
        return self.timeout != 0
