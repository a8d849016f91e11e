"""Whole episodes."""

from typing import NoReturn

import numpy as np
from mindspore import Tensor

from ..ops.eager import graph_body
from ..ops.primitives import named_in_graph
from ..store.base.kinds import LONGEST
from ..store.base.nested import Step
from ..store.base.types import Values
from ..store.faces.groups import as_groups, names_of_groups
from ..store.spec.classes import EpisodeRecipe
from ..store.spec.registry import registered
from .base import Buffer
from .compile_time import compile_time


@registered
class EpisodeReplayBuffer(EpisodeRecipe, Buffer):
    """A ring of steps, sampled as whole episodes, uniformly or by priority.

    Insert rows as into `ReplayBuffer`, one or many at once. ``end`` marks the last row of an episode. A finished
    episode can be sampled until its first row is overwritten or one of its rows is deleted. Its handle is that of its
    first row.

    Axes: ``B`` sample_size, ``L`` max_episode_length, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, episodes of one sample.
        capacity (int): Most rows stored, of all environments together, at least ``L`` times `num_envs`.
        max_episode_length (int): ``L``, steps of the longest episode. `insert` raises an error for a row that would
            exceed it, and stores nothing.
        prioritized (bool): Whether to sample episodes by the priority of their first row and return importance weights.
            Default: ``False``.
        alpha, beta, beta_steps, epsilon, normalize, initial_priority, default_priority: As for
            `PrioritizedReplayBuffer`, if `prioritized`.
        max_use (Union[int, None]): As for `ReplayBuffer`, counting the deliveries by `sample`. Default: ``None``.
        replace (bool): As for `ReplayBuffer`. Must be ``True`` if `prioritized`. Default: ``True``.
        shapes, types, names, num_envs, max_staleness, late: As for `ReplayBuffer`.
        compress, max_length, items, share_lengths, sample_length, cut, seed, storage, backend: As for `ReplayBuffer`.
        views (Sequence): `FrameStack` and `NStep`, applied to each step. Default: ``()``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend is not available.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore_replay import EpisodeReplayBuffer
        >>> buffer = EpisodeReplayBuffer(
        ...     sample_size=2, capacity=20, shapes=[()], types=[ms.int32], max_episode_length=4, seed=0
        ... )
        >>> for step in range(1, 9):
        ...     buffer = buffer.insert([step], end=step in (1, 4, 6))
        >>> indices, lengths, mask, steps = buffer.sample()
        >>> print(indices, lengths)
        [1 4] [3 2]
        >>> print(steps)
        [[2 3 4 0]
         [5 6 0 0]]
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
        """Sample finished episodes.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, as for `PrioritizedReplayBuffer.sample`. Only if
                `prioritized`. Default: ``None``.
            as_dict (bool): Whether to return a dict, with ``"indices"``, ``"weights"`` if `prioritized`, ``"lengths"``,
                ``"mask"`` and the columns' names. Default: ``False``.
            with_indices (bool): Accepted as by other buffers. Handles always come first here. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Handles of the episodes, int64 ``[B]``; if `prioritized`, importance weights, float32
            ``[B]``; the episodes' lengths, int32 ``[B]``; a mask of the steps that exist, bool ``[B, L]``; copies of
            the rows, ``[B, L, *F]`` for each column, zeros where the mask is ``False``. With `NStep` the steps are
            transitions, so ``final`` rows do not count.

        Raises:
            TypeError, ValueError: As for `PrioritizedReplayBuffer.sample`.
            RuntimeError: If no episode is finished, or without replacement fewer than `sample_size`. See `can_sample`.
                In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import EpisodeReplayBuffer
            >>> buffer = EpisodeReplayBuffer(1, 8, shapes=[()], types=["int32"], max_episode_length=4, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
            >>> indices, lengths, mask, steps = buffer.sample()
            >>> print(indices, lengths, mask, steps)
            [0] [3] [[ True  True  True False]] [[10 11 12  0]]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, beta, as_dict, with_indices, LONGEST if longest else None)

    def _sample_groups_graph(self, key, groups, size_in_group, ordered=True, *, as_dict=False):
        column = self._group_column(key, groups, size_in_group, ordered)
        batch = self._graph.sample_groups(column, ordered, groups, size_in_group)
        return named_in_graph(self._steps_of_groups("sample_groups"), batch) if as_dict else batch

    @graph_body(_sample_groups_graph)
    def sample_groups(
        self, key: str, groups: int, size_in_group: int, ordered: bool = True, *, as_dict: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        r"""Sample groups of rows with equal values in a column.

        Groups are uniform and distinct, of rows of the episodes that `sample` can return. It reads the column of all
        rows: cost O(C log C).

        Axes: ``G`` groups, ``L`` size_in_group.

        Args:
            key (str): Name of the column that defines the groups, of ints and of shape ``()``.
            groups (int): ``G``.
            size_in_group (int): ``L``, most rows of a group.
            ordered (bool): Whether to return consecutive rows of a group, in insertion order from a random one on.
                ``False`` returns distinct rows in random order. Smaller groups are returned whole. Default: ``True``.
            as_dict (bool): Whether to return a dict, with ``"mask"`` and the columns' names. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: A mask of the rows that exist, bool ``[G, L]``; copies of the rows, ``[G, L, *F]`` for
            each column, zeros where the mask is ``False``.

        Raises:
            TypeError: If an argument is of another type, or the buffer has no names.
            ValueError: If there is no such column, it is not of ints, or a size is not positive, or if `as_dict` is set
                and a column is named ``"mask"``.
            RuntimeError: If there are fewer than `groups` groups. In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import EpisodeReplayBuffer
            >>> names, types = ["task", "step"], ["int32", "int32"]
            >>> buffer = EpisodeReplayBuffer(1, 8, [(), ()], types, max_episode_length=8, names=names, seed=0)
            >>> buffer = buffer.insert([[0, 1, 0, 1, 1], list(range(5))], end=[False] * 4 + [True])
            >>> mask, task, step = buffer.sample_groups("task", groups=2, size_in_group=3)
            >>> print(mask, task, step, sep="\n")
            [[ True  True  True]
             [ True  True False]]
            [[1 1 1]
             [0 0 0]]
            [[1 3 4]
             [0 2 0]]
        """
        given = as_groups(self.spec, key, groups, size_in_group, ordered)
        return self._front.sample_groups(given, as_dict, self._array)

    def _array(self, name: str) -> np.ndarray:
        return self.state_parameters()[name].asnumpy()  # type: ignore[no-any-return]

    @compile_time
    def _steps_of_groups(self, _graph: str) -> tuple[Step, ...]:
        return names_of_groups(self.spec).steps

    @compile_time
    def _group_column(self, key: object, groups: object, size_in_group: object, ordered: object) -> int:
        return as_groups(self.spec, key, groups, size_in_group, ordered).column
