"""Sequences of steps of one episode."""

from ..store.faces import classes
from ..store.spec.registry import registered
from .base import Buffer


@registered
class SequenceReplayBuffer(Buffer, classes.SequenceReplayBuffer):
    r"""A ring of steps, sampled as sequences of consecutive steps of one episode and one environment.

    A sequence has ``T`` = `burn_in` + `sequence_length` steps. Its handle is that of its *start*, the first step after
    the burn-in. A row is a valid start if its sequence and burn-in contain only stored rows of its episode, none of
    them deleted. If the episode begins within the burn-in, the steps before are zeros and masked, so the first steps of
    an episode can be sampled too. Valid starts are determined at insertion, at O(T) a row. Sampling costs O(log C + T)
    a sequence at any capacity.

    Every `stride`-th step of an episode is a start. Without `pad_end`, so is the step from which the sequence exactly
    reaches the end of the episode: its last step is sampled with any stride. An episode shorter than `sequence_length`
    is sampled only with `pad_end`.

    To write results back to the steps of a sequence, pass `update` their handles: step t, counted from 0, is the row
    ``indices + (t - burn_in) * num_envs`` where the mask is ``True``.

    With the view `NStep`, each step has its n-step return, next observation and discount, ``[B, T]``. The mask is
    ``False`` also where no transition begins.

    Axes: ``B`` sample_size, ``T`` steps, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, sequences of one sample.
        capacity (int): Most rows stored, of all environments together, at least ``T`` times `num_envs`.
        sequence_length (int): Steps from the start on.
        burn_in (int): Steps before the start, for the state of a recurrent network. Default: ``0``.
        stride (int): Steps of the episode from one start to the next. Default: ``1``.
        pad_end (bool): Whether a sequence may extend beyond the end of its episode. The steps there are zeros and
            masked. Default: ``False``.
        priorities (Union[Priorities, None]): Sample starts by priority, and return importance weights. Default:
            ``None``, for uniform sampling of valid starts.
        max_use (Union[int, None]): As for `ReplayBuffer`, counting the deliveries of a start. Default: ``None``.
        replace (bool): As for `ReplayBuffer`. Must be ``True`` with `priorities`. Default: ``True``.
        shapes, types, names, columns, num_envs, max_staleness, seed, storage, backend: As for `ReplayBuffer`.
        views (Sequence): `FrameStack` and `NStep`, applied to each step. Default: ``()``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend is not available.

    Reference:
        Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning",
        https://openreview.net/forum?id=r1lyTjAqYX

    Examples:
        >>> import mindspore as ms
        >>> from mindspore_replay import SequenceReplayBuffer
        >>> buffer = SequenceReplayBuffer(
        ...     sample_size=1, capacity=20, shapes=[()], types=[ms.int32], sequence_length=3, burn_in=2, seed=8
        ... )
        >>> for step in range(8):
        ...     buffer = buffer.insert([10 + step], end=step == 7)
        >>> indices, mask, steps = buffer.sample()
        >>> print(indices, mask, steps)
        [1] [[False  True  True  True  True]] [[ 0 10 11 12 13]]
        >>> from mindspore_replay import NStep
        >>> names, types = ["observation", "reward", "terminated"], [ms.float32, ms.float32, ms.bool_]
        >>> buffer = SequenceReplayBuffer(
        ...     sample_size=1, capacity=20, shapes=[(), (), ()], types=types, names=names, sequence_length=3,
        ...     views=[NStep(2, 0.5)], seed=0
        ... )
        >>> for step in range(3):
        ...     buffer = buffer.insert([float(step), 1.0, step == 2], end=step == 2)
        >>> batch = buffer.sample(as_dict=True)
        >>> print(batch["reward"], batch["discount"])
        [[1.5 1.5 1. ]] [[0.25 0.   0.  ]]
    """

    def _sample_graph(self, *misplaced, beta=None, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, beta, as_dict, True, longest)
