"""Prioritized experience replay."""

from typing import NoReturn

from mindspore import Tensor

from ..ops.eager import graph_body
from ..store.base.kinds import LONGEST
from ..store.base.types import Values
from ..store.spec.classes import PrioritizedRecipe
from ..store.spec.registry import registered
from .base import Buffer


@registered
class PrioritizedReplayBuffer(PrioritizedRecipe, Buffer):
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
        shapes, types, names, num_envs, max_use, max_staleness, views, late: As for `ReplayBuffer`.
        compress, max_length, items, share_lengths, sample_length, cut, seed, storage, backend: As for `ReplayBuffer`.

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

    @graph_body(_sample_graph)
    def sample(
        self,
        *_misplaced: NoReturn,
        beta: Values | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        r"""Draw one row from each of `sample_size` equal strata of the total weight, with importance weights.

        The importance weight of a row with weight :math:`w_i` is :math:`(w_\min / w_i)^\beta`, where :math:`w_\min`
        is the smallest weight of the sample, or of all eligible rows if `normalize` is ``"buffer"``. That equals
        :math:`(N \cdot P(i))^{-\beta}` divided by its largest value.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, in [0, 1]. A Tensor must have shape ``[]`` or ``[1]``.
                Default: ``None``, for the Parameter `beta`, which advances in either case.
            as_dict (bool): Whether to return a dict, with ``"indices"``, ``"weights"`` and the columns' names.
                Default: ``False``.
            with_indices (bool): Accepted as by other buffers. Handles always come first here. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Handles of the rows, int64 ``[B]``, for `update_priorities`; importance weights, float32
            ``[B]``, in [0, 1]; copies of the rows, ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `beta` is not a number, or `as_dict` is set and the buffer has no names.
            ValueError: If `beta` is outside [0, 1], or `as_dict` is set and a column is named ``"indices"`` or
                ``"weights"``.
            RuntimeError: If no row is eligible. See `can_sample`. In a graph the operator
                raises it, also for a Tensor `beta` outside [0, 1].

        Examples:
            >>> from mindspore_replay import PrioritizedReplayBuffer
            >>> buffer = PrioritizedReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> indices, weights, step = buffer.sample()
            >>> print(indices, weights, step)
            [0 2] [1. 1.] [10 12]
            >>> indices, weights, step = buffer.sample(beta=1.0)  # with another beta
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, beta, as_dict, with_indices, LONGEST if longest else None)
