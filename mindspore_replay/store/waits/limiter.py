"""A limit on the ratio of samples to insertions, which threads and processes wait for."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.checks import check_size
from ..kernels.limits import BY_RULE, ENABLED, NO_LIMIT, Limits
from ..kernels.locks import Held
from ..kernels.state import fitting
from ..spec.options import Options
from ..spec.registry import registered
from .rate_rule import ROUNDING, check_room, checked_rule
from .waiting import QueueLimiter, Waiting


def check_limiter(cls_name: str, now: object, limiter: object, owner: object = None) -> None:
    """Raise a TypeError or ValueError unless rows, which have a limiter or none now, can get another one."""
    if isinstance(now, QueueLimiter):
        raise TypeError(
            f"For '{cls_name}', 'limiter' cannot be set, but got {limiter!r}: a queue has its own, whose timeout is an "
            "argument of the queue."
        )
    if limiter is not None and not isinstance(limiter, RateLimiter):
        raise TypeError(f"For '{cls_name}', 'limiter' must be a RateLimiter or None, but got {type(limiter).__name__}.")
    if limiter is not None and limiter.owner not in (None, owner):
        raise ValueError(
            f"For '{cls_name}', 'limiter' must be one that no other buffer has, since it counts the rows of one: make "
            "another."
        )


@registered
class RateLimiter(Waiting):
    r"""Keeps the number of samples in proportion to the number of insertions, at any speed of either side.

    Whichever side is ahead by more than `error_buffer` sampled rows waits. With :math:`I` rows inserted beyond the
    first `min_size` and :math:`S` rows sampled, n more may be inserted, and B more sampled, iff

    .. math:: s_{low} (I + n) - S \le e, \qquad S + B - s_{high} I \le e

    Until `min_size` rows are inserted, insertions never wait, and nothing is sampled. Rows that the buffer stores when
    it gets the limiter count among them.

    Set it as ``buffer.limiter``, one limiter per buffer. Calls of `insert` and `sample` from Python then wait for it,
    and its counters belong to the buffer's state and checkpoints. A compiled graph cannot wait: call it within
    `sampling` or `inserting`, or check `can_sample` and `can_insert` first. `sample_groups` neither waits nor counts.
    All methods are thread-safe.

    In a thread that both inserts and samples, check the buffer's `can_sample`, which includes the limiter, before each
    sample: a wait there would never end. A wait of 10 s is logged once, as a warning of ``mindspore_replay.limiter``.

    Args:
        samples_per_insert (Union[float, Sequence[float]]): Rows sampled for each row inserted, or their minimum and
            maximum, ``(low, high)``. If low is 0, insertions never wait. If high is infinite, samples wait for
            `min_size` only.
        min_size (int): Rows to store before the first sample.
        error_buffer (float): How far one side may be ahead, in sampled rows. At least 1, and at least
            ``(low n + B) / 2`` for insertions of n rows and samples of B, else both sides could wait for each other for
            ever.
        timeout (Union[float, None]): Longest wait in seconds. Default: ``None``, for no limit.

    Attributes:
        counts (numpy.ndarray): Rows inserted and sampled, and those of each that count for the ratio. Shape ``[4]``,
            int64. A buffer has them as its Parameter ``limiter.counts``.
        rule (numpy.ndarray): Low, high, `min_size`, `error_buffer`, and whether it is enabled. Shape ``[5]``, float64.
            A buffer has them as its Parameter ``limiter.rule``.

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
        super().__init__(timeout, "RateLimiter")
        self.limits.rule[:] = [*checked_rule(samples_per_insert, min_size, error_buffer), 1]
        self.limits.kind = BY_RULE

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
        return int(self.limits.counts[0])

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
        return int(self.limits.counts[1])

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
        return bool(self.limits.rule[ENABLED])

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
        limits = self.limits
        with limits.hold():
            now = self.account()
            ratio = (now.low, now.high) if samples_per_insert is None else samples_per_insert
            size = int(now.min_size) if min_size is None else min_size
            rule = checked_rule(ratio, size, now.error if error_buffer is None else error_buffer)
            sizes = n, batch = [max([1, *self.limits.awaited(operation)]) for operation in ("insert", "sample")]
            check_room(rule[0], rule[1], rule[3], n, batch)
            limits.largest[:], limits.rule[:] = sizes, [*rule, now.enabled]
            limits.counts[2:] = 0
        limits.wake()

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
        with self.limits.hold():
            self.limits.counts[:] = 0

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
        self.limits.rule[ENABLED] = enabled
        self.limits.wake()

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
        copy = type(self)(1, 1, 1, timeout=self.timeout)
        copy.load_arrays(self.arrays())
        return copy

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load the rule and the counts. Raise a ValueError if they are not those of a limiter."""
        expected = {"rule": ((5,), "float64"), "counts": ((4,), "int64")}
        checked = fitting("RateLimiter", arrays, expected)
        self.check_state(checked["rule"], checked["counts"])
        with self.limits.hold():
            self.limits.rule[:], self.limits.counts[:] = checked["rule"], checked["counts"]
        self.limits.wake()

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
        self.note("insert", waiting)
        now, in_progress = self.account(), self.limits.in_progress
        if not now.enabled or now.low == 0:
            return math.inf
        most = (now.counted_samples + now.error) / now.low
        most = math.floor(most + ROUNDING * max(1.0, most)) - now.counted - in_progress[2]
        missing = max(now.min_size - now.inserted - in_progress[0], 0)
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
        self.limits.count("insert", rows)

    def begin(self, rows: int, options: Options) -> None:
        """Count the rows that a buffer with these options stores for `min_size`, unless as many were counted."""
        self.limits.usual[:] = options.num_envs, options.plan.n
        self.limits.counts[0] = max(self.limits.counts[0], rows)
        self.limits.wake()

    @property
    def counts(self) -> np.ndarray:
        """The counts, as the class has them."""
        return self.limits.counts

    @property
    def rule(self) -> np.ndarray:
        """The rule, as the class has it."""
        return self.limits.rule

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the memory of the rule and the counts."""
        return {"rule": self.rule, "counts": self.counts}

    def move_to(self, limits: Limits, lock: Held) -> None:
        """Count in the limits of a buffer from now on, whose rows have this lock. Nothing may wait for the limiter."""
        limits.rule[:], limits.counts[:] = self.limits.rule, self.limits.counts
        limits.in_progress[:], limits.largest[:], limits.usual[:] = 0, 1, self.limits.usual
        self.limits, self._lock = limits, lock
        limits.kind = BY_RULE


def leave_buffer(limiter: Waiting | None) -> None:
    """Let a limiter, if there is one, count for itself from now on. Its buffer has no limits any more."""
    if isinstance(limiter, RateLimiter):
        limits, alone = limiter.limits, RateLimiter(1, 1, 1)
        limiter.move_to(alone.limits, contextlib.nullcontext())
        limits.kind, limiter.owner = NO_LIMIT, None
        limits.wake()
