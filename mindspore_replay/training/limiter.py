"""Limits on the ratio of samples to insertions."""

import numpy as np
from mindspore import nn

from ..buffers.isolated_cell import IsolatedCell
from ..buffers.parameters import parameter_on
from ..store.spec.registry import registered
from ..store.waits import limiter


@registered
class RateLimiter(limiter.RateLimiter, IsolatedCell, nn.Cell):
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
        counts (Parameter): Rows inserted and sampled, and those of each that count for the ratio. Shape ``[4]``, int64.
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

    def _on(self, counts: np.ndarray, rule: np.ndarray) -> None:
        super()._on(counts, rule)
        self.counts, self.rule = parameter_on("counts", counts, True), parameter_on("rule", rule, True)

    def _load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Load the rule and the counts from the ``state_dict`` of an enclosing Cell."""
        self.load_arrays(arrays)
