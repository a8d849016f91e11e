"""Limits on the ratio of samples to insertions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import nn

from ..buffers.isolated_cell import IsolatedCell
from ..buffers.parameters import overwrite, parameter_on
from ..store.checks import check_size
from ..store.rate_rule import ENABLED, KINDS, ROUNDING, Account, check_room, checked_rule
from ..store.recipe.registry import registered
from ..store.state import fitting
from ..store.waiting import Waiting


@registered
class RateLimiter(Waiting, IsolatedCell, nn.Cell):
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
        super().__init__(timeout, "RateLimiter")
        rule = np.array([*checked_rule(samples_per_insert, min_size, error_buffer), 1], np.float64)
        self._on(np.zeros(4, np.int64), rule)
        self._sizes = np.ones(2, np.int64)  # rows of the largest insertion and sample

    def __repr__(self) -> str:
        now = self.account()
        return (
            f"RateLimiter({now.settings()}, timeout={self.timeout}, enabled={self.enabled}, inserted={now.inserted}, "
            f"sampled={now.sampled})"
        )

    @property
    def inserted(self) -> int:
        """Rows inserted.

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
        """True unless it is disabled.

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

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.change(samples_per_insert=4, error_buffer=16)
            >>> print(limiter.account().settings())
            samples_per_insert=4, min_size=1, error_buffer=16
        """
        with self._changed:
            now = self.account()
            ratio = (now.low, now.high) if samples_per_insert is None else samples_per_insert
            size = int(now.min_size) if min_size is None else min_size
            rule = checked_rule(ratio, size, now.error if error_buffer is None else error_buffer)
            sizes = [max([1, *self._waiting[what]]) for what in KINDS]
            check_room(rule[0], rule[1], rule[3], *sizes)
            self._sizes[:] = sizes
            overwrite(self.rule, np.array([*rule, now.enabled]))
            overwrite(self.counts, np.array([now.inserted, now.sampled, 0, 0]))
            self._changed.notify_all()

    def restart(self) -> None:
        """Set all counts to zero: nothing is sampled before `min_size` rows are inserted again.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> limiter.count_inserted(5)
            >>> limiter.restart()
            >>> print(limiter.inserted)
            0
        """
        with self._changed:
            overwrite(self.counts, np.zeros(4, np.int64))
            self._changed.notify_all()

    def disable(self) -> None:
        """Stop limiting, and end all waits. Rows are still counted, but not for the ratio.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> print(limiter.can_sample(), limiter.disable(), limiter.can_sample())
            False None True
        """
        self._enable(False)

    def enable(self) -> None:
        """Limit again, with the ratio's counts from before `disable`.

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
        with self._changed:
            overwrite(self.rule, np.array([*self.rule.asnumpy()[:ENABLED], enabled]))
            self._changed.notify_all()

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
        made = RateLimiter(1, 1, 1, timeout=self.timeout)
        with self._changed:
            overwrite(made.rule, self.rule.asnumpy())
            overwrite(made.counts, self.counts.asnumpy())
            made._sizes[:] = self._sizes
        return made

    def load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Load the rule and the counts that the ``state_dict`` of a Cell which contains the limiter holds."""
        expected = {"rule": ((5,), "float64"), "counts": ((4,), "int64")}
        checked = fitting("RateLimiter", arrays, expected)
        self.check_state(checked["rule"], checked["counts"])
        with self._changed:
            overwrite(self.rule, checked["rule"])
            overwrite(self.counts, checked["counts"])
            self._changed.notify_all()

    def account(self) -> "Account":
        """Return the rule and the counts as numbers.

        Examples:
            >>> from mindspore_replay import RateLimiter
            >>> limiter = RateLimiter(samples_per_insert=2, min_size=1, error_buffer=4)
            >>> print(limiter.account().low, limiter.account().inserted)
            2.0 0
        """
        return Account(*self._rule.tolist(), *self._counts.tolist())

    def allowance(self, waiting: int = 1) -> float:
        """Return the rows that all writers together may insert before anything more is sampled.

        Args:
            waiting (int): Rows of the largest waiting insertion. Default: ``1``.

        Returns:
            float: Rows, a whole number; infinite if there is no limit.

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
        with self._changed:
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
        with self._changed:
            overwrite(self.counts, self.counts.asnumpy() + self.account().increments("insert", rows, self._in_progress))
            self._changed.notify_all()

    def _on(self, counts: np.ndarray, rule: np.ndarray) -> None:
        """Count in these arrays, in host memory."""
        self._counts, self._rule = counts, rule
        self.counts, self.rule = parameter_on("counts", counts, True), parameter_on("rule", rule, True)

    def _count(self, done: np.ndarray) -> None:
        counts = self._counts
        counts += done

    def _noted_account(self, what: str, rows: int) -> "Account":
        """Return the rule and the counts; raise a ValueError if insertions and samples could block each other."""
        now = Account(*self._rule.tolist(), *self._counts.tolist())
        if rows > self._sizes[KINDS.index(what)]:
            now.check_room(what, rows, self._sizes)
        return now

    def move_to(self, folder: Any, changed: Any) -> None:
        """Count in a buffer's folder from now on, where attached processes see it. Nothing may wait for the limiter.

        Args:
            folder (Folder): The folder.
            changed (SharedCondition): Wakes waits in all processes.
        """
        arrays, self._folder = folder.arrays, folder
        with changed:
            arrays["shared.rule"][:], arrays["shared.counts"][:] = self.rule.asnumpy(), self.counts.asnumpy()
            self._in_progress, self._sizes, self._changed = (
                arrays["shared.in_progress"],
                arrays["shared.sizes"],
                changed,
            )
            self._in_progress[:], self._sizes[:] = 0, 1
            self._on(arrays["shared.counts"], arrays["shared.rule"])
            arrays["shared.limited"][0] = 1
            changed.notify_all()
