"""A queue: each row, or each sequence, is delivered once, in order."""

from ..store.faces import classes
from ..store.spec.registry import registered
from .base import Buffer


@registered
class ReplayQueue(Buffer, classes.ReplayQueue):
    r"""A queue of steps that delivers each once, in order: as single rows, or as sequences of consecutive steps.

    `sample` removes what it delivers, so several consumers (threads, compiled graphs, attached processes) share the
    rows. The order is that of insertion. Rows of one step are in the order of the environments.

    With `sequence_length`, samples are sequences as in `SequenceReplayBuffer`, in the order of their starts. By default
    they do not overlap: `stride` is `sequence_length`. If an episode's last steps do not fill a sequence, the last
    sequence overlaps the one before. With `pad_end` it is padded instead.

    Calls from Python wait up to `timeout` seconds: `sample` for rows, and `insert` for room if ``when_full="block"``. A
    compiled graph cannot wait: call it within ``queue.limiter.sampling(queue.sample_size)`` or
    ``queue.limiter.inserting(n)``, or check `can_sample` first. Without enough rows, or room, the operator fails.

    With ``order="lifo"``, a full queue has room again only once its oldest row is delivered.

    While a row waits for its late columns, rows delivered behind it keep their places. Such deliveries are allowed only
    while ``2 * sample_size`` places are left, else `can_sample` is False, and `sample` waits or fails. So neither side
    can block for ever with insertions of up to ``sample_size + 1`` rows.

    Axes: ``B`` sample_size, ``T`` steps, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows or sequences of one sample.
        capacity (int): Most rows stored, of all environments together.
        sequence_length (Union[int, None]): Steps of a sequence from its start on. Default: ``None``, for single rows.
        burn_in (int): Steps before the start. Default: ``0``.
        stride (Union[int, None]): Steps of the episode from one start to the next. Default: ``None``, for
            `sequence_length`.
        pad_end (bool): Whether a sequence may extend beyond the end of its episode. The steps there are zeros and
            masked. Default: ``False``.
        order (str): ``"fifo"``, the oldest first, or ``"lifo"``, the newest first. Default: ``"fifo"``.
        when_full (str): ``"block"``: `insert` waits for room or fails, so nothing is lost; ``"evict"``: it replaces the
            oldest rows, delivered or not. Default: ``"block"``.
        timeout (Union[float, None]): Longest wait in seconds: ``0`` to fail at once, ``None`` for no limit. Default:
            ``0``.
        max_staleness (Union[int, None]): Remove rows older than this, as in `ReplayBuffer`. Default: ``None``.
        shapes, types, names, columns, num_envs, seed, storage, backend: As for `ReplayBuffer`. Attached
            processes set their own timeouts.
        views (Sequence): As for `ReplayBuffer`, or for `SequenceReplayBuffer`. A view uses the rows stored at the time
            of delivery. Default: ``()``.

    Attributes:
        limiter (QueueLimiter): Waits for rows and room. It cannot be replaced.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend is not available.

    Reference:
        Cassirer et al. 2021, "Reverb: A Framework For Experience Replay", https://arxiv.org/abs/2102.04736: a table
        with ``max_times_sampled=1`` and the selector ``Fifo`` or ``Lifo``.

    Examples:
        >>> from mindspore_replay import ReplayQueue
        >>> queue = ReplayQueue(sample_size=2, capacity=4, shapes=[()], types=["int32"])
        >>> for step in range(4):
        ...     queue = queue.insert([step])
        >>> print(*queue.sample(), *queue.sample(), queue.can_sample())
        [0 1] [2 3] False
        >>> queue = ReplayQueue(sample_size=1, capacity=9, shapes=[()], types=["int32"], sequence_length=3)
        >>> for step in range(7):
        ...     queue = queue.insert([step], end=step == 6)
        >>> for _ in range(3):
        ...     indices, mask, steps = queue.sample()
        ...     print(indices, steps)
        [0] [[0 1 2]]
        [3] [[3 4 5]]
        [4] [[4 5 6]]
    """

    def _sample_graph(self, *misplaced, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, None, as_dict, with_indices or self.sequence_length is not None, longest)
