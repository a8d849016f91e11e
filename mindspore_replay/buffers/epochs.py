"""Epochs over the rows that are stored: each once, in random batches."""

from ..store.faces import classes
from ..store.spec.registry import registered
from .base import Buffer


@registered
class EpochReplayBuffer(Buffer, classes.EpochReplayBuffer):
    r"""A ring of rows, sampled in epochs: each stored row once an epoch, in a new random order.

    Use it for learners that pass several times over their rollouts, such as PPO. The first sample begins an epoch over
    the rows stored then. The sample after the last batch begins the next. An epoch skips rows evicted or removed
    meanwhile. Rows inserted meanwhile belong to the next.

    With `pad_end`, sequences at the newest rows of open episodes are padded too, and get the next steps of the episode
    once these are there. Steps of a sequence whose first step was evicted are left out: call `reset` between rollouts,
    so that each begins with a sequence.

    The order is a keyed permutation, which needs no memory. From a checkpoint in the middle of an epoch, the epoch
    continues with the remaining rows.

    Several learners with the same rows and seed split each epoch by `rank`, into disjoint batches, the same number
    each. In a folder, the learner and attached processes share one epoch.

    Axes: ``B`` sample_size, ``T`` steps, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows or sequences of one sample.
        capacity (int): Most rows stored, of all environments together.
        sequence_length (Union[int, None]): Steps of a sequence from its start on. Default: ``None``, for single rows.
        burn_in, stride, pad_end: As for `ReplayQueue`, but see above.
        last (str): If fewer than ``world * sample_size`` rows remain at the end of an epoch: ``"drop"`` them, or
            ``"pad"`` the batch with zeros and return a mask. Default: ``"drop"``.
        rank (int): Number of this learner, from 0. Default: ``0``.
        world (int): Number of learners that split the epochs. Default: ``1``.
        shapes, types, names, columns, num_envs, max_use, max_staleness, weighted, views: As for `ReplayBuffer`.
        seed, storage, backend: As for `ReplayBuffer`.

    Attributes:
        epoch (Parameter): Key of the order, serial number of the epoch's oldest row, number of its rows, position in
            the order, and epochs begun. Shape ``[5]``, int64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend is not available.

    Reference:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", https://arxiv.org/abs/1707.06347.

    Examples:
        >>> import numpy as np
        >>> from mindspore_replay import EpochReplayBuffer
        >>> buffer = EpochReplayBuffer(sample_size=2, capacity=6, shapes=[()], types=["int32"], seed=2)
        >>> buffer = buffer.insert([np.arange(6, dtype=np.int32)])
        >>> print(*(batch[0] for batch in buffer.minibatches(epochs=2)))
        [4 1] [3 2] [5 0] [5 2] [0 4] [1 3]
    """

    def _sample_graph(self, *misplaced, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, None, as_dict, with_indices or self.sequence_length is not None, longest)

    def _begin_epoch_graph(self):
        _ = self._graph.begin_epoch()
        return self._stored_graph()
