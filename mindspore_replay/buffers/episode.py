"""Whole episodes."""

from ..ops.primitives import named_in_graph
from ..store.base.nested import Step
from ..store.faces import classes
from ..store.faces.groups import as_groups, names_of_groups
from ..store.spec.registry import registered
from .base import Buffer
from .compile_time import compile_time


@registered
class EpisodeReplayBuffer(Buffer, classes.EpisodeReplayBuffer):
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
        priorities (Union[Priorities, None]): Sample episodes by the priority of their first row, and return importance
            weights. Default: ``None``, for uniform sampling.
        max_use (Union[int, None]): As for `ReplayBuffer`, counting the deliveries by `sample`. Default: ``None``.
        replace (bool): As for `ReplayBuffer`. Must be ``True`` with `priorities`. Default: ``True``.
        shapes, types, names, columns, num_envs, max_staleness, seed, storage, backend: As for `ReplayBuffer`.
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

    def _sample_groups_graph(self, key, groups, size_in_group, ordered=True, *, as_dict=False):
        column = self._group_column(key, groups, size_in_group, ordered)
        batch = self._graph.sample_groups(column, ordered, groups, size_in_group)
        return named_in_graph(self._steps_of_groups("sample_groups"), batch) if as_dict else batch

    @compile_time
    def _steps_of_groups(self, _graph: str) -> tuple[Step, ...]:
        return names_of_groups(self.spec).steps

    @compile_time
    def _group_column(self, key: object, groups: object, size_in_group: object, ordered: object) -> int:
        return as_groups(self.spec, key, groups, size_in_group, ordered).column
