"""Prioritized experience replay."""

from ..store.faces import classes
from ..store.spec.registry import registered
from .base import Buffer


@registered
class PrioritizedReplayBuffer(Buffer, classes.PrioritizedReplayBuffer):
    r"""A ring of transitions on the device, sampled in proportion to a power of their priorities.

    .. math:: P(i) = \frac{w_i}{\sum_k w_k}, \quad w_i = (p_i + \epsilon)^\alpha

    `sample` splits the total weight into ``B`` equal strata and draws one row from each, so a row may occur more than
    once. By default a new row gets the largest priority so far, and is therefore sampled soon. An operation costs O(log
    C) a row. Otherwise it behaves as `ReplayBuffer`.

    Axes: ``C`` capacity, ``B`` sample_size, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored, at most 2^31 - 1. In a full buffer each new row replaces the oldest.
        alpha (float): Exponent of priorities, in [0, 1]: 0 uniform, 1 proportional. Default: ``0.6``.
        beta (float): Exponent of importance weights, in [0, 1]: 0 no correction, 1 full. Default: ``0.4``.
        beta_steps (int): Calls of `sample` over which beta rises linearly to 1. 0 keeps it constant. Default: ``0``.
        epsilon (float): Added to every priority, so that rows of priority 0 are sampled too. 0, or at least 1e-37.
            Default: ``1e-6``.
        normalize (str): Divide importance weights by the largest of the ``"batch"``, as in the paper, or of the whole
            ``"buffer"``. Default: ``"batch"``.
        initial_priority (float): Priority of new rows until a larger one is set, also after `reset`. In [1e-37, 3e+38].
            Default: ``1.0``.
        default_priority (str): Priority of rows inserted without one: the ``"largest"`` so far, or ``"largest_held"``,
            the largest among the rows now stored (`initial_priority` if the buffer is empty), which costs up to O(C) an
            insertion. Default: ``"largest"``.
        shapes, types, names, columns, num_envs, max_use, max_staleness, views: As for `ReplayBuffer`.
        seed, storage, backend: As for `ReplayBuffer`.

    Attributes:
        beta (Parameter): Beta of the next call of `sample`. Shape ``[1]``, float64.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend is not available.

    Reference:
        Schaul et al. 2016, "Prioritized experience replay", https://arxiv.org/abs/1511.05952

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(
        ...     sample_size=3, capacity=8, shapes=[(2,), ()], types=[ms.float32, ms.int32], alpha=1.0, beta=1.0, seed=0
        ... )
        >>> buffer = buffer.insert([np.zeros((4, 2), np.float32), np.arange(4, dtype=np.int32)])
        >>> print(buffer.update_priorities([0, 1, 2, 3, 9], [0.0, 1.0, 1.0, 4.0, 1.0]))
        1
        >>> indices, weights, observation, action = buffer.sample()
        >>> print(indices, weights, action)
        [2 3 3] [1.         0.25000018 0.25000018] [2 3 3]
        >>> priority, use_count, staleness = buffer.info(indices)
        >>> print(priority, use_count)
        [1. 4. 4.] [1 2 2]
    """

    def _sample_graph(self, *misplaced, beta=None, as_dict=False, with_indices=False, longest=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        return self._drawn_graph(None, beta, as_dict, True, longest)


#: Its name in MindSpore RL.
PriorityReplayBuffer = PrioritizedReplayBuffer
