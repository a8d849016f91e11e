"""A limit on the ratio of samples to insertions, which threads and processes wait for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.checks import check_size
from ..base.mixins import mixin
from ..folder.folder import Folder
from ..kernels.locks import Held
from ..kernels.state import fitting
from ..rows.calls import Calls
from ..spec.options import Options
from .rate_rule import ENABLED, KINDS, ROUNDING, Account, check_room, checked_rule
from .waiting import QueueLimiter, Waiting


def check_limiter(cls_name: str, now: object, limiter: object, base: type = object) -> None:
    """Raise a TypeError unless a buffer, which has a limiter or none now, can get another one, derived from `base`."""
    if isinstance(now, QueueLimiter):
        raise TypeError(
            f"For '{cls_name}', 'limiter' cannot be set, but got {limiter!r}: a queue has its own, whose timeout is an "
            "argument of the queue."
        )
    if limiter is not None and not isinstance(limiter, RateLimiter):
        raise TypeError(f"For '{cls_name}', 'limiter' must be a RateLimiter or None, but got {type(limiter).__name__}.")
    if limiter is not None and not isinstance(limiter, base):
        raise TypeError(
            f"For '{cls_name}', 'limiter' must be a RateLimiter of mindspore_replay, as the buffer is, but got one of "
            "mindspore_replay.host."
        )


def begin_limits(calls: Calls, lock: Held, folder: Folder | None, limiter: "RateLimiter | None") -> None:
    """Let a limiter count the rows stored, and processes attached to a folder see it, or that there is none.

    The caller must have waited for work in flight.
    """
    with lock:
        if limiter is not None:
            limiter.begin(calls.count(), calls.options)
        if folder is None:
            return
        if limiter is not None:
            limiter.move_to(folder, lock)
            return
        folder.arrays["shared.limited"][0] = 0
    folder.signals.send()


@mixin
class RateLimiter(Waiting):
    """Keeps the number of samples in proportion to the number of insertions: `mindspore_replay.RateLimiter` on arrays.

    Args:
        samples_per_insert (Union[float, Sequence[float]]): Rows sampled for each row inserted, or ``(low, high)``.
        min_size (int): Rows to store before the first sample.
        error_buffer (float): How far one side may be ahead, in sampled rows.
        timeout (Union[float, None]): Longest wait in seconds. Default: ``None``, for no limit.

    Examples:
        >>> from mindspore_replay import RateLimiter, ReplayBuffer
        >>> buffer = ReplayBuffer(sample_size=4, capacity=100, shapes=[()], types=["float32"])
        >>> buffer.limiter = RateLimiter(samples_per_insert=2, min_size=10, error_buffer=4)
        >>> buffer = buffer.insert([[0.0] * 10])
        >>> print(buffer.can_sample(), buffer.limiter.inserted, buffer.limiter.can_insert(3))
        True 10 False
    """

    def __init__(
        self,
        samples_per_insert: float | Sequence[float],
        min_size: int,
        error_buffer: float,
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__(timeout, "RateLimiter")
        rule = np.array([*checked_rule(samples_per_insert, min_size, error_buffer), 1], np.float64)
        self._on(np.zeros(4, np.int64), rule)
        self._sizes = np.ones(2, np.int64)  # rows of the largest insertion and sample
        self._usual = [1, 1]  # rows of those that are expected

    def __repr__(self) -> str:
        now = self.account()
        return (
            f"RateLimiter({now.settings()}, timeout={self.timeout}, enabled={self.enabled}, inserted={now.inserted}, "
            f"sampled={now.sampled})"
        )

    @property
    def inserted(self) -> int:
        """Rows inserted, and those that the buffer stored when it got the limiter.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.count_inserted(5)
            >>> print(limiter.inserted)
            5
        """
        return int(self._counts[0])

    @property
    def sampled(self) -> int:
        """Rows sampled.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.count_inserted(1)
            >>> with limiter.sampling(2):
            ...     pass
            >>> print(limiter.sampled)
            2
        """
        return int(self._counts[1])

    @property
    def enabled(self) -> bool:
        """Whether it limits: False after `disable`.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.disable()
            >>> print(limiter.enabled)
            False
        """
        return bool(self._rule[ENABLED])

    def change(
        self,
        samples_per_insert: float | Sequence[float] | None = None,
        min_size: int | None = None,
        error_buffer: float | None = None,
    ) -> None:
        """Change some arguments. The ratio counts from now on, with neither side ahead.

        Args:
            samples_per_insert (Union[float, Sequence[float], None]): As for the class. Default: ``None``, for no
                change.
            min_size (Union[int, None]): As for the class. Default: ``None``, for no change.
            error_buffer (Union[float, None]): As for the class. Default: ``None``, for no change.

        Raises:
            TypeError: If an argument is of another type.
            ValueError: If an argument is out of range, or `error_buffer` is too small for a waiting insertion or
                sample. Nothing is changed then.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.change(samples_per_insert=4, error_buffer=16)
            >>> print(limiter.account().settings())
            samples_per_insert=4, min_size=1, error_buffer=16
        """
        with self._lock:
            now = self.account()
            ratio = (now.low, now.high) if samples_per_insert is None else samples_per_insert
            size = int(now.min_size) if min_size is None else min_size
            rule = checked_rule(ratio, size, now.error if error_buffer is None else error_buffer)
            sizes = n, batch = [max([1, *self.waiting(what)]) for what in KINDS]
            check_room(rule[0], rule[1], rule[3], n, batch)
            self._sizes[:] = sizes
            self._rule[:] = [*rule, now.enabled]
            self._counts[:] = now.inserted, now.sampled, 0, 0
        self._signals.send()

    def restart(self) -> None:
        """Set all counts to zero. Sampling then requires `min_size` new rows.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.count_inserted(5)
            >>> limiter.restart()
            >>> print(limiter.inserted)
            0
        """
        with self._lock:
            self._counts[:] = 0
        self._signals.send()

    def disable(self) -> None:
        """Stop limiting, and end all waits. Rows still count, but not for the ratio.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> print(limiter.can_sample(), limiter.disable(), limiter.can_sample())
            False None True
        """
        self._enable(False)

    def enable(self) -> None:
        """Limit again, with the counts of the ratio from before `disable`.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.disable()
            >>> limiter.enable()
            >>> print(limiter.can_sample())
            False
        """
        self._enable(True)

    def _enable(self, enabled: bool) -> None:
        with self._lock:
            self._rule[ENABLED] = enabled
        self._signals.send()

    def check_state(self, rule: np.ndarray, counts: np.ndarray) -> None:
        """Check values for `rule` and `counts` before they are loaded.

        Raises:
            ValueError: If they cannot be those of a limiter.
        """
        low, high, min_size, error, enabled = rule.tolist()
        try:
            checked_rule((low, high), int(min_size), error)
            right = min_size == int(min_size) and enabled in (0, 1) and (counts >= 0).all()
        except (OverflowError, TypeError, ValueError):
            right = False
        if not right or (counts[2:] > counts[:2]).any():
            raise ValueError(
                f"For 'RateLimiter', 'rule' and 'counts' must be those of a limiter, but got {rule.tolist()} and "
                f"{counts.tolist()}."
            )

    def __deepcopy__(self, memo: dict[Any, Any]) -> "RateLimiter":
        """Make a limiter with the same rule and counts, which nothing waits for."""
        made = type(self)(1, 1, 1, timeout=self.timeout)
        with self._lock:
            made.load_arrays(self.arrays())
        return made

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load the rule and the counts. Raise a ValueError if they are not those of a limiter."""
        expected = {"rule": ((5,), "float64"), "counts": ((4,), "int64")}
        checked = fitting("RateLimiter", arrays, expected)
        self.check_state(checked["rule"], checked["counts"])
        with self._lock:
            self._rule[:], self._counts[:] = checked["rule"], checked["counts"]
        self._signals.send()

    def account(self) -> Account:
        """Return the rule and the counts as numbers.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> print(limiter.account().low, limiter.account().inserted)
            2.0 0
        """
        return Account(*self._rule.tolist(), *self._counts.tolist())

    def allowance(self, waiting: int = 1) -> float:
        """Return how many rows all writers together may insert before the next sample.

        Args:
            waiting (int): Rows of the largest waiting insertion. Default: ``1``.

        Returns:
            float: A whole number of rows, or infinity.

        Raises:
            ValueError: If `waiting` is not positive, or `error_buffer` is too small for it.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.count_inserted(1)
            >>> print(limiter.allowance())
            2.0
        """
        check_size("RateLimiter", "waiting", waiting)
        with self._lock:
            now = self._noted_account("insert", waiting)
            if not now.enabled or now.low == 0:
                return math.inf
            most = (now.counted_samples + now.error) / now.low
            most = math.floor(most + ROUNDING * max(1.0, most)) - now.counted - self._in_progress[2]
            missing = max(now.min_size - now.inserted - self._in_progress[0], 0)
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
        check_room(now.low, now.high, now.error, insertion, sample)

    def count_inserted(self, rows: int) -> None:
        """Count rows that other processes inserted under an `allowance`.

        Args:
            rows (int): Number of rows.

        Raises:
            ValueError: If `rows` is negative.
        """
        check_size("RateLimiter", "rows", rows, minimum=0)
        with self._lock:
            increments, counts = self.account().increments("insert", rows, self._in_progress), self._counts
            counts += increments
        self._signals.send()

    def begin(self, rows: int, options: Options) -> None:
        """Count the rows that a buffer with these options stores for `min_size`, unless as many were counted."""
        with self._lock:
            self._usual = [options.num_envs, options.plan.n]
            self._counts[0] = max(self._counts[0], rows)
        self._signals.send()

    def _on(self, counts: np.ndarray, rule: np.ndarray) -> None:
        """Count in these arrays, in host memory."""
        self._counts, self._rule = counts, rule

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the memory of the rule and the counts."""
        return {"rule": self._rule, "counts": self._counts}

    def _noted_account(self, what: str, rows: int) -> Account:
        """Return the rule and the counts. Raise a ValueError if insertions and samples could block each other."""
        now = self.account()
        if rows > self._sizes[KINDS.index(what)]:
            if what == "insert" and rows < now.min_size:  # more may be a whole dataset, once
                self._usual[0] = rows
            now.check_room(what, rows, self._sizes, self._usual)
        return now

    def move_to(self, folder: Folder, lock: Held) -> None:
        """Count in a buffer's folder from now on, where attached processes see it. Nothing may wait for the limiter.

        Args:
            folder (Folder): The folder.
            lock (ContextManager): The lock of all processes.
        """
        arrays, self._folder = folder.arrays, folder
        with lock:
            arrays["shared.rule"][:], arrays["shared.counts"][:] = self._rule, self._counts
            self._in_progress, self._sizes = arrays["shared.in_progress"], arrays["shared.sizes"]
            self._lock, self._signals = lock, folder.signals
            self._in_progress[:], self._sizes[:] = 0, 1
            self._on(arrays["shared.counts"], arrays["shared.rule"])
            arrays["shared.limited"][0] = 1
        folder.signals.send()
