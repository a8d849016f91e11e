"""Limits on the ratio of samples to insertions."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from mindspore import nn

from ..buffers.own_names import OwnNames
from ..buffers.parameters import load_in_place, overwrite, state_parameter
from ..store.checks import check_size

logger = logging.getLogger("mindspore_replay.limiter")

#: Seconds after which a wait is logged.
PATIENCE = 10.0
_ENABLED = 4
_KINDS = "insert", "sample"
#: Seconds after which a waiting thread checks again, since the counts may have been loaded from a checkpoint.
_LONGEST_WAIT = 0.5
#: Relative rounding error that is allowed for in sums of samples.
_ROUNDING = 1e-9


class RateLimiter(OwnNames, nn.Cell):
    r"""Keeps the number of samples in proportion to the number of insertions, whatever the speed of either side.

    Insertions wait when they are ahead of the samples, samples when they are ahead of the insertions, each by more than
    `error_buffer` samples. With :math:`I` rows inserted beyond the first `min_size` and :math:`S` rows sampled, n more
    may be inserted, and B more sampled, iff

    .. math:: s_{low} (I + n) - S \le e, \qquad S + B - s_{high} I \le e

    Before `min_size` rows are inserted, insertions never wait, and nothing is sampled.

    With a limiter set as ``buffer.limiter``, calls of the buffer's `insert` and `sample` from Python wait for it, and
    its counters are part of the buffer's state and checkpoints. A compiled graph cannot wait: call it within `sampling`
    or `inserting`, or check `can_sample` and `can_insert` before. `sample_groups` neither waits nor counts. All methods
    are thread-safe. Use one limiter for one buffer only.

    If one thread both inserts and samples, a wait in it never ends: check the buffer's `can_sample` before each sample;
    it includes the limiter. A wait of 10 s is logged once, as a warning of ``mindspore_replay.limiter``.

    Args:
        samples_per_insert (Union[float, Sequence[float]]): Rows sampled for each row inserted, or the minimum and the
            maximum, ``(low, high)``: with low 0 insertions never wait, with an infinite high samples wait for
            `min_size` only.
        min_size (int): Rows to insert before the first sample.
        error_buffer (float): How far one side may be ahead, in rows sampled. At least 1, and ``(low n + B) / 2`` for
            insertions of n rows and samples of B; otherwise both sides could wait for each other for ever.
        timeout (Union[float, None]): Seconds after which a wait is an error. Default: ``None``, for no limit.

    Attributes:
        counts (Parameter): Rows inserted and sampled, and how many of each count for the ratio. Shape ``[4]``, int64.
        rule (Parameter): Low, high, `min_size`, `error_buffer`, and whether it is enabled. Shape ``[5]``, float64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If an argument is out of range.

    Reference:
        Cassirer et al. 2021, "Reverb: A Framework For Experience Replay", https://arxiv.org/abs/2102.04736.

    Examples:
        >>> from mindspore_replay import RateLimiter, ReplayBuffer
        >>> buffer = ReplayBuffer(sample_size=4, capacity=100, shapes=[()], types=["float32"])
        >>> buffer.limiter = RateLimiter(samples_per_insert=2, min_size=10, error_buffer=4)
        >>> for _ in range(100):
        ...     if buffer.can_sample():
        ...         batch = buffer.sample()
        ...     else:
        ...         buffer = buffer.insert([0.0])
        >>> print(buffer.limiter.inserted, buffer.limiter.sampled)
        70 120
    """

    def __init__(
        self,
        samples_per_insert: float | Sequence[float],
        min_size: int,
        error_buffer: float,
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__()
        self.counts = state_parameter("counts", np.zeros(4, np.int64))
        self.rule = state_parameter("rule", np.array([*_checked_rule(samples_per_insert, min_size, error_buffer), 1]))
        load_in_place(self.counts)
        load_in_place(self.rule)
        self.timeout = _seconds(timeout)
        self._changed = threading.Condition()
        self._inside = threading.local()
        self._begun = np.zeros(4, np.int64)  # additions to `counts` of blocks in progress
        self._sizes = dict.fromkeys(_KINDS, 1)  # rows of the largest insertion and sample
        self._waiting: dict[str, list[int]] = {what: [] for what in _KINDS}

    def __repr__(self) -> str:
        now = self.account()
        return (
            f"RateLimiter({now.settings()}, timeout={self.timeout}, enabled={self.enabled}, inserted={now.inserted}, "
            f"sampled={now.sampled})"
        )

    @property
    def inserted(self) -> int:
        """Rows inserted."""
        return int(self.counts.asnumpy()[0])

    @property
    def sampled(self) -> int:
        """Rows sampled."""
        return int(self.counts.asnumpy()[1])

    @property
    def enabled(self) -> bool:
        """True unless it is disabled."""
        return bool(self.rule.asnumpy()[_ENABLED])

    def can_insert(self, rows: int = 1) -> bool:
        """Return True if so many rows may be inserted now.

        Args:
            rows (int): Number of rows. Default: ``1``.

        Returns:
            bool: Whether they may be inserted.

        Raises:
            ValueError: If `rows` is not positive.
        """
        return self._asked("insert", rows)

    def can_sample(self, rows: int = 1) -> bool:
        """Return True if so many rows may be sampled now. The buffer's `can_sample` also checks that they are stored.

        Args:
            rows (int): Number of rows. Default: ``1``.

        Returns:
            bool: Whether they may be sampled.

        Raises:
            ValueError: If `rows` is not positive.
        """
        return self._asked("sample", rows)

    def lets_sample(self, rows: int) -> bool:
        """Return True if a `sample` of so many rows by this thread would not wait, as always in a `sampling` block."""
        return getattr(self._inside, "sample", False) or self.can_sample(rows)

    def _asked(self, what: str, rows: int) -> bool:
        check_size("RateLimiter", "rows", rows)
        with self._changed:
            return self._may(what, rows, self.account())

    def inserting(self, rows: int = 1, *, timeout: float | None = None) -> contextlib.AbstractContextManager[None]:
        """Wait until rows may be inserted, and count them after the block; if the block raises, they do not count.

        Within the block, the same thread's calls of the buffer's `insert` neither wait nor count.

        Args:
            rows (int): Rows that the block inserts. Default: ``1``.
            timeout (Union[float, None]): Longest wait in seconds. Default: ``None``, for the limiter's own.

        Returns:
            AbstractContextManager: For a ``with`` statement.

        Raises:
            TimeoutError: If they may not be inserted in time.
            ValueError: If `rows` is not positive, or `error_buffer` is too small for them.
        """
        return self._counting("insert", check_size("RateLimiter", "rows", rows), _seconds(timeout))

    def sampling(self, rows: int = 1, *, timeout: float | None = None) -> contextlib.AbstractContextManager[None]:
        """Wait until rows may be sampled, and count them after the block; if the block raises, they do not count.

        Within the block, the same thread's calls of the buffer's `sample` neither wait nor count.

        Args:
            rows (int): Rows that the block samples. Default: ``1``.
            timeout (Union[float, None]): Longest wait in seconds. Default: ``None``, for the limiter's own.

        Returns:
            AbstractContextManager: For a ``with`` statement.

        Raises:
            TimeoutError: If they may not be sampled in time.
            ValueError: If `rows` is not positive, or `error_buffer` is too small for them.
        """
        return self._counting("sample", check_size("RateLimiter", "rows", rows), _seconds(timeout))

    def sampling_unless(self, stop: threading.Event, rows: int) -> contextlib.AbstractContextManager[None]:
        """Act as `sampling`, but raise a RuntimeError if `stop` is set during the wait."""
        return self._counting("sample", rows, None, stop)

    def change(
        self,
        samples_per_insert: float | Sequence[float] | None = None,
        min_size: int | None = None,
        error_buffer: float | None = None,
    ) -> None:
        """Change the arguments that are given. The ratio counts from now on: neither side is ahead of the other.

        Args:
            samples_per_insert (Union[float, Sequence[float], None]): As for the class. Default: ``None``, for no
                change.
            min_size (Union[int, None]): As for the class. Default: ``None``, for no change.
            error_buffer (Union[float, None]): As for the class. Default: ``None``, for no change.

        Raises:
            TypeError: If an argument is of another type.
            ValueError: If an argument is out of range, or `error_buffer` is too small for a waiting insertion or
                sample; then nothing is changed.
        """
        with self._changed:
            now = self.account()
            ratio = (now.low, now.high) if samples_per_insert is None else samples_per_insert
            size = int(now.min_size) if min_size is None else min_size
            rule = _checked_rule(ratio, size, now.error if error_buffer is None else error_buffer)
            sizes = {what: max([1, *self._waiting[what]]) for what in _KINDS}
            _check_room(rule[0], rule[1], rule[3], sizes)
            self._sizes = sizes
            overwrite(self.rule, np.array([*rule, now.enabled]))
            overwrite(self.counts, np.array([now.inserted, now.sampled, 0, 0]))
            self._changed.notify_all()

    def disable(self) -> None:
        """Stop limiting, and end all waits. Rows are still counted, but not for the ratio."""
        self._enable(False)

    def enable(self) -> None:
        """Limit again, with the ratio's counts from before `disable`."""
        self._enable(True)

    def _enable(self, enabled: bool) -> None:
        with self._changed:
            overwrite(self.rule, np.array([*self.rule.asnumpy()[:_ENABLED], enabled]))
            self._changed.notify_all()

    def check_state(self, rule: np.ndarray, counts: np.ndarray) -> None:
        """Check values for `rule` and `counts` before they are loaded.

        Raises:
            ValueError: If they cannot be those of a limiter.
        """
        low, high, min_size, error, enabled = rule.tolist()
        try:
            _checked_rule((low, high), int(min_size), error)
            right = min_size == int(min_size) and enabled in (0, 1) and (counts >= 0).all()
        except (OverflowError, TypeError, ValueError):
            right = False
        if not right or (counts[2:] > counts[:2]).any():
            raise ValueError(
                f"For 'RateLimiter', 'rule' and 'counts' must be those of a limiter, but got {rule.tolist()} and "
                f"{counts.tolist()}."
            )

    def account(self) -> "_Account":
        """Return the rule and the counts as numbers."""
        return _Account(*self.rule.asnumpy().tolist(), *self.counts.asnumpy().tolist())

    def _may(self, what: str, rows: int, now: "_Account") -> bool:
        """Return True if rows may be inserted or sampled.

        Each side's own operations count from their start, those of the other side from their end: a row can be sampled
        only when it is stored.
        """
        if not now.enabled:
            return True
        begun = self._begun
        ahead: float
        behind: float
        if what == "insert":
            if now.inserted + begun[0] < now.min_size:
                return True
            ahead, behind = now.low * (now.counted + begun[2] + rows), now.counted_samples
        else:
            if now.inserted < now.min_size or math.isinf(now.high):
                return now.inserted >= now.min_size
            ahead, behind = now.counted_samples + begun[3] + rows, now.high * now.counted
        return ahead - behind <= now.error + _ROUNDING * max(1.0, ahead, behind)

    @contextlib.contextmanager
    def _counting(
        self, what: str, rows: int, seconds: float | None, stop: threading.Event | None = None
    ) -> Iterator[None]:
        """Run the block of `inserting` or `sampling`; raise a RuntimeError if `stop` is set during the wait."""
        if getattr(self._inside, what, False):
            yield
            return
        with self._changed:
            more = self._begin(what, rows, self.timeout if seconds is None else seconds, stop)
        setattr(self._inside, what, True)
        try:
            yield
        except BaseException:
            self._end(more, more * 0)
            raise
        else:
            self._end(more, more)
        finally:
            setattr(self._inside, what, False)

    def _begin(self, what: str, rows: int, seconds: float | None, stop: threading.Event | None) -> np.ndarray:
        """Wait until rows may be inserted or sampled, and return what they add to the counts."""
        wait: Wait | None = None
        self._waiting[what].append(rows)
        try:
            while not self._may(what, rows, now := self._noted_account(what, rows)):
                wait = wait or Wait(self, what, rows, seconds, stop)
                self._changed.wait(min(wait.left(), _LONGEST_WAIT))
        finally:
            self._waiting[what].remove(rows)
        amounts = self._amounts(what, rows, now)
        self._begun += amounts
        return amounts

    def _amounts(self, what: str, rows: int, now: "_Account") -> np.ndarray:
        """Return what rows inserted or sampled now add to the counts."""
        counted = now.enabled != 0
        if what == "sample":
            return np.array([0, rows, 0, rows * counted])
        inserted = now.inserted + self._begun[0]
        return np.array([rows, 0, max(inserted + rows - max(inserted, int(now.min_size)), 0) * counted, 0])

    def allowance(self, waiting: int = 1) -> float:
        """Return the rows that all writers together may insert before anything more is sampled.

        Args:
            waiting (int): Rows of the largest waiting insertion. Default: ``1``.

        Returns:
            float: Rows, a whole number; infinite if there is no limit.

        Raises:
            ValueError: If `waiting` is not positive, or `error_buffer` is too small for it.
        """
        check_size("RateLimiter", "waiting", waiting)
        with self._changed:
            now = self._noted_account("insert", waiting)
            if not now.enabled or now.low == 0:
                return math.inf
            most = (now.counted_samples + now.error) / now.low
            most = math.floor(most + _ROUNDING * max(1.0, most)) - now.counted - self._begun[2]
            missing = max(now.min_size - now.inserted - self._begun[0], 0)
            # An insertion that begins before `min_size` rows are stored may exceed it.
            return max(missing + max(most, 0), waiting if missing else 0)

    def check_sizes(self, insertion: int, sample: int) -> None:
        """Check that insertions and samples of these sizes cannot block each other.

        Args:
            insertion (int): Rows of an insertion.
            sample (int): Rows of a sample.

        Raises:
            ValueError: If `error_buffer` is too small for them.
        """
        now = self.account()
        _check_room(now.low, now.high, now.error, {"insert": insertion, "sample": sample})

    def count_inserted(self, rows: int) -> None:
        """Count rows that other processes inserted under an `allowance`.

        Args:
            rows (int): Number of rows.

        Raises:
            ValueError: If `rows` is negative.
        """
        check_size("RateLimiter", "rows", rows, minimum=0)
        with self._changed:
            overwrite(self.counts, self.counts.asnumpy() + self._amounts("insert", rows, self.account()))
            self._changed.notify_all()

    def _end(self, begun: np.ndarray, done: np.ndarray) -> None:
        with self._changed:
            self._begun -= begun
            overwrite(self.counts, self.counts.asnumpy() + done)
            self._changed.notify_all()

    def _noted_account(self, what: str, rows: int) -> "_Account":
        """Return the rule and the counts; raise a ValueError if insertions and samples could block each other."""
        now = self.account()
        if rows > self._sizes[what] and now.enabled and (what == "sample" or now.inserted >= now.min_size):
            sizes = {**self._sizes, what: rows}
            _check_room(now.low, now.high, now.error, sizes)
            self._sizes = sizes
        return now


class Wait:
    """One wait for rows to be inserted or sampled.

    Args:
        limiter (RateLimiter): The limiter to wait for.
        what (str): ``"insert"`` or ``"sample"``.
        rows (int): Number of rows.
        seconds (Union[float, None]): Seconds after which the wait is an error; ``None`` for no limit.
        stop (Union[threading.Event, None]): Ends the wait when it is set. Default: ``None``.
    """

    def __init__(
        self, limiter: RateLimiter, what: str, rows: int, seconds: float | None, stop: threading.Event | None = None
    ) -> None:
        self._limiter, self._what, self._rows, self._stop = limiter, what, rows, stop
        self._seconds = math.inf if seconds is None else seconds
        self._begin = time.monotonic()
        self._said = False

    def left(self) -> float:
        """Return the seconds until the timeout. Logs a long wait once.

        Raises:
            RuntimeError: If `stop` was set.
            TimeoutError: If the timeout has passed.
        """
        if self._stop is not None and self._stop.is_set():
            raise RuntimeError("For 'RateLimiter', waiting was given up.")
        waited = time.monotonic() - self._begin
        if waited >= self._seconds:
            raise TimeoutError(_why_not(self._what, self._rows, self._seconds, self._limiter.account()))
        if waited >= PATIENCE and not self._said:
            self._said = True
            logger.warning(_why_so_long(self._what, self._rows, self._limiter.account()))
        return self._seconds - waited


class _Account(NamedTuple):
    """The numbers of `RateLimiter.rule` and `RateLimiter.counts`."""

    low: float
    high: float
    min_size: float
    error: float
    enabled: float
    inserted: int
    sampled: int
    counted: int
    counted_samples: int

    def settings(self, last: str = ", ") -> str:
        """Return the settings as arguments of the class, with `last` before the last one."""
        ratio = f"{self.low:g}" if self.low == self.high else f"({self.low:g}, {self.high:g})"
        return f"samples_per_insert={ratio}, min_size={self.min_size:g}{last}error_buffer={self.error:g}"

    def counts(self) -> str:
        """Return counts and settings, for a message."""
        return f"{self.inserted} were inserted and {self.sampled} sampled, with {self.settings(' and ')}"


_PAST = {"insert": "inserted", "sample": "sampled"}


def _counted(rows: int) -> str:
    return f"{rows} {'row' if rows == 1 else 'rows'}"


def _why_not(what: str, rows: int, seconds: float, now: _Account) -> str:
    way_out = "sample rows" if what == "insert" else "insert rows"
    return (
        f"For 'RateLimiter', {_counted(rows)} could not be {_PAST[what]} within {seconds:g} s: {now.counts()}. First "
        f"{way_out}, or disable() it while the buffer is filled."
    )


def _why_so_long(what: str, rows: int, now: _Account) -> str:
    other, ask = ("samples", "limiter.can_insert") if what == "insert" else ("inserts", "the buffer's can_sample")
    return (
        f"For 'RateLimiter', {_counted(rows)} could not be {_PAST[what]} for {PATIENCE:g} s: {now.counts()}. The wait "
        f"ends when another thread or process {other} rows, or calls disable() or change(). In a single loop call {ask}"
        "() before. A timeout makes a long wait an error."
    )


def _check_room(low: float, high: float, error: float, sizes: dict[str, int]) -> None:
    n, batch = sizes["insert"], sizes["sample"]
    if low > 0 and math.isfinite(high) and low * n + batch > 2 * error * (1 + _ROUNDING):
        raise ValueError(
            f"For 'RateLimiter', 'error_buffer' must be at least {(low * n + batch) / 2:g} for insertions of {n} and "
            f"samples of {batch} rows with samples_per_insert={low:g}, but got {error:g}: one could wait for the other "
            "without end."
        )


def _checked_rule(ratio: Any, min_size: Any, error_buffer: Any) -> list[float]:
    pair = list(ratio) if isinstance(ratio, Sequence) and not isinstance(ratio, str) else [ratio, ratio]
    if len(pair) != 2:
        raise ValueError(f"For 'RateLimiter', 'samples_per_insert' must be a number or two, but got {ratio!r}.")
    low, high = (_number("samples_per_insert", value) for value in pair)
    if not (0 <= low <= high and high > 0 and math.isfinite(low)):
        raise ValueError(
            "For 'RateLimiter', 'samples_per_insert' must be positive, or the fewest and the most samples with 0 <= "
            f"low <= high, high above 0 and low finite, but got {ratio!r}."
        )
    error = _number("error_buffer", error_buffer)
    if not 1 <= error < math.inf:
        raise ValueError(f"For 'RateLimiter', 'error_buffer' must be finite and at least 1, but got {error_buffer}.")
    return [low, high, check_size("RateLimiter", "min_size", min_size), error]


def _number(argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"For 'RateLimiter', {argument!r} must be a number, but got {value!r}.")
    return float(value)


def _seconds(timeout: Any) -> float | None:
    if timeout is None or timeout == math.inf:
        return None
    if not _number("timeout", timeout) >= 0:
        raise ValueError(f"For 'RateLimiter', 'timeout' must be None or at least 0 seconds, but got {timeout!r}.")
    return float(timeout)
