"""Threads that wait until rows may be inserted or sampled."""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..base.checks import check_size, seconds_of
from ..base.mixins import mixin
from ..kernels.locks import Block, Event, Held, Signals, released
from ..rows.calls import BaseCalls
from ..spec.spec import BufferSpec
from .rate_rule import Account, QueueAccount, Wait

if TYPE_CHECKING:
    from ..folder import sharing
    from ..folder.folder import Folder

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
        self._lock: Held = threading.RLock()  # guards all counts
        self._signals: Signals | sharing.Signals = Signals()
        self._inside = threading.local()
        self._in_progress, self._counts = np.zeros((2, 4), np.int64)  # amounts of blocks in progress, and that ended
        self._folder: Folder | None = None
        self.turns: set[Turn] = set()  # that wait or are in progress
        #: Set when the buffer is closed, which ends waits.
        self.closing: Event | None = None

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

    def leave(self, gone: Held) -> None:
        """Raise the error of this lock from here on: the process was forked from that of the limiter."""
        vars(self)["_lock"] = gone

    def restart(self) -> None:
        """Restart, since the buffer is empty."""
        self._signals.send()

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
        return getattr(self._inside, "sample", None) is not None or self.can_sample(rows)

    def _asked(self, what: str, rows: int) -> bool:
        check_size(self._cls_name, "rows", rows)
        with self._lock:
            return bool(self.account().allows(what, rows, self._in_progress))

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
        what: str,
        rows: int,
        stop: Event | None = None,
        seconds: float | None = None,
        poll: Callable[[float], None] | None = None,
    ) -> Held:
        """Return the block of `inserting` or `sampling`. It raises a RuntimeError if `stop` is set during the wait.

        If counts arrive from elsewhere, the wait calls `poll` without the lock, with the most seconds that it may last.
        """
        turn = self.take(what, rows, stop, seconds, poll)
        return contextlib.nullcontext() if turn is None else turn.taken()

    def take(
        self,
        what: str,
        rows: int,
        stop: Event | None = None,
        seconds: float | None = None,
        poll: Callable[[float], None] | None = None,
    ) -> "Turn | None":
        """Return a turn that waits as `turn` does, or ``None`` if this thread is in one."""
        if getattr(self._inside, what, None) is not None:
            return None
        return Turn(self, what, rows, self.timeout if seconds is None else seconds, stop, poll)

    def waiting(self, what: str) -> list[int]:
        """Return the rows of insertions or samples that wait."""
        return [turn.rows for turn in tuple(self.turns) if turn.what == what and turn.waits]

    def await_turn(self, turn: "Turn") -> None:
        """Wait until rows may be inserted or sampled, and let them be in progress."""
        self.turns.add(turn)
        wait: Wait | None = None
        while True:
            seen = self._signals.seen()
            with self._lock:
                now = self._noted_account(turn.what, turn.rows)
                if now.allows(turn.what, turn.rows, self._in_progress):
                    setattr(self._inside, turn.what, turn)
                    increments: np.ndarray = now.increments(turn.what, turn.rows, self._in_progress)
                    in_progress = self._in_progress
                    turn.in_progress, turn.waits = increments, False
                    in_progress += increments
                    return
                self._check_open()
            wait = wait or Wait(self.account, turn.what, turn.rows, turn.seconds, turn.stop)
            with released(self._lock):  # which the caller may hold
                if turn.poll is None:
                    self._signals.wait(seen, min(wait.left(), _LONGEST_WAIT))  # type: ignore[arg-type]
                else:
                    turn.poll(wait.left())

    def _check_open(self) -> None:
        if self._folder is not None and self._folder.closed:
            raise RuntimeError(
                f"For '{self._cls_name}', the buffer in {self._folder.path} was closed: open its folder again."
            )
        if self.closing is not None and self.closing.is_set():
            raise RuntimeError(f"For '{self._cls_name}', the buffer was closed: make another.")

    def settle(self, turn: "Turn", succeeded: bool) -> None:
        """Count the rows of a turn if they were inserted or sampled. They are no longer in progress."""
        if turn.in_progress is None:
            return
        with self._lock:
            counts, in_progress, amounts = self._counts, self._in_progress, turn.in_progress
            done = amounts if turn.done == turn.rows else amounts * turn.done // turn.rows
            turn.in_progress = None
            in_progress -= amounts
            if succeeded:
                counts += done

    def end(self, turn: "Turn") -> None:
        """End a turn that is settled."""
        self.turns.discard(turn)
        setattr(self._inside, turn.what, None)
        if self._folder is not None or self.turns:
            self._signals.send()


class Turn:
    """A turn to insert or sample rows.

    Args:
        waiting (Waiting): What it waits for.
        what (str): ``"insert"`` or ``"sample"``.
        rows (int): Number of rows.
        seconds (Union[float, None]): Longest wait, or ``None`` for no limit.
        stop (Union[Event, None]): Ends the wait when it is set.
        poll (Union[Callable, None]): Called while it waits, instead of waiting for a signal.

    Attributes:
        done (int): Rows to count after it: fewer than `rows` if a sample delivers fewer.
        in_progress (Union[numpy.ndarray, None]): What it adds to the amounts in progress.
        waits (bool): Whether it has not begun.
    """

    def __init__(
        self,
        waiting: Waiting,
        what: str,
        rows: int,
        seconds: float | None,
        stop: Event | None,
        poll: Callable[[float], None] | None,
    ) -> None:
        self._waiting, self.what, self.rows, self.done = waiting, what, rows, rows
        self.seconds, self.stop, self.poll, self.waits = seconds, stop, poll, True
        self.in_progress: np.ndarray | None = None
        self._calls: BaseCalls | None = None
        self._before: object = None

    def taken(self) -> Held:
        """Return a block that waits first, and counts the rows unless it raises or they were counted."""
        return Block(self._begin, self._end)

    def watched(self, calls: BaseCalls) -> Held:
        """Return a block within, in the lock of the buffer, that counts the rows if it inserts or samples them.

        It does so also if a signal interrupts it right after that.
        """
        self._calls = calls
        return Block(self._note, self._judge)

    def _begin(self) -> None:
        self._waiting.await_turn(self)

    def _end(self, succeeded: bool) -> None:
        self._waiting.settle(self, succeeded)
        self._waiting.end(self)

    def _note(self) -> None:
        assert self._calls is not None
        self._before = self._calls.progress_of(self.what)

    def _judge(self, succeeded: bool) -> None:
        assert self._calls is not None
        if not succeeded and self._before is not None:
            succeeded = self._calls.progress_of(self.what) != self._before
        self._waiting.settle(self, succeeded)


class Queue(Protocol):
    """The calls of a queue, which a limiter can wait for."""

    spec: BufferSpec

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room."""

    def signals(self) -> "tuple[Held, Signals | sharing.Signals, Folder | None]":
        """Return the lock, the signals that end waits, and the folder if there is one."""


class QueueLimiter(Waiting):
    """Lets samples of a queue wait for rows, and insertions for room, in all processes that use it.

    Args:
        queue (Queue): The calls of the queue.
        timeout (Union[float, None]): Seconds after which a wait is an error, or ``None`` for no limit.
    """

    def __init__(self, queue: Queue, timeout: object) -> None:
        super().__init__(timeout, queue.spec.cls_name)
        self._queue = queue
        self._lock, self._signals, self._folder = queue.signals()
        if self._folder is not None:
            self._in_progress = self._folder.arrays["shared.in_progress"]
            self._in_progress[:] = 0

    @property
    def waits(self) -> bool:
        """True if calls wait. Without, they fail with a RuntimeError."""
        return self.timeout != 0

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room."""
        return self._queue.account()

    def _noted_account(self, what: str, rows: int) -> QueueAccount:
        now = self.account()
        now.check_room(what, rows)
        return now
