"""Whole episodes."""

from collections.abc import Sequence
from typing import Any

from mindspore import Tensor

from ..columns import check_size
from ..ops import timeline, windows
from ..ops.eager import graph_body
from ..ops.random import ALL_ROWS
from .layout import SampleLayout, Steps
from .replay import ReplayBuffer


class EpisodeReplayBuffer(ReplayBuffer):
    """A ring of steps, sampled as whole episodes, each equally likely.

    Rows come as in `ReplayBuffer`, step by step or many at once, and ``end`` says which row is the last of its episode.
    An episode is drawn once it is finished, until the first of its rows is overwritten or one of them deleted: then the
    whole episode is gone. Its handle is that of its first row.

    Axes: ``B`` sample_size, ``L`` max_episode_length, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, episodes of one sample.
        capacity (int): Rows that the buffer keeps, of all environments together; at least ``L`` times `num_envs`.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column, ``()`` for a scalar.
        types (Sequence[Union[mindspore.dtype, str]]): Dtype of each column, as for `ReplayBuffer`.
        max_episode_length (int): ``L``, steps of the longest episode. Its last row must be an `end`: a row with which
            an episode would go on beyond it is refused, and nothing changes.
        names, num_envs, replace, ordered, max_use, max_staleness, seed, backend: As for `ReplayBuffer`; `max_use`
            counts the deliveries of an episode by `sample`.
        views (Sequence): `FrameStack` gives each step its stack. Default: ``()``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend asked for cannot be had.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore_replay import EpisodeReplayBuffer
        >>> buffer = EpisodeReplayBuffer(2, 20, [()], [ms.int32], 4, seed=0)
        >>> for step in range(1, 9):
        ...     buffer = buffer.insert([step], end=step in (1, 4, 6))
        >>> indices, lengths, mask, steps = buffer.sample()
        >>> print(indices, lengths)
        [1 4] [3 2]
        >>> print(steps)
        [[2 3 4 0]
         [5 6 0 0]]
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[Any],
        max_episode_length: int,
        *,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        views: Sequence[Any] = (),
        seed: int | None = None,
        backend: str = "auto",
    ) -> None:
        super(ReplayBuffer, self).__init__()  # what ReplayBuffer's own would do comes below
        self.max_episode_length = check_size(type(self).__name__, "max_episode_length", max_episode_length)
        self._set_up(
            sample_size, capacity, shapes, types, names, num_envs, replace, ordered, max_use, max_staleness, True,
            views, seed, backend,
        )  # fmt: skip

    def _layout_of(self, views: Sequence[Any]) -> SampleLayout:
        layout = SampleLayout(type(self).__name__, self.columns, Steps(0, self.max_episode_length))
        return self._shaped(layout, views)

    def _window_rule(self, layout: SampleLayout, past: int) -> timeline.WindowRule:
        # A whole episode is a sequence that starts at its first step and may be padded at its end.
        longest = self.max_episode_length
        return timeline.WindowRule(0, longest, longest, True, self.num_envs, longest)

    def _bookkeeping(self, layout: SampleLayout) -> dict[str, windows.Output]:
        return {"lengths": windows.Output(windows.LENGTH), "mask": layout.mask()}

    # Bodies for the compiler.

    def _sample_graph(self, *, as_dict=False):
        if as_dict:
            raise ValueError("For 'sample', 'as_dict' must be False in a graph.")
        return self._sample_between(self._all_rows)

    # Methods, with the bodies that Python runs.

    @graph_body(_sample_graph)
    def sample(self, *, as_dict: bool = False) -> tuple[Tensor, ...] | dict[str, Tensor]:  # type: ignore[override]
        """Draws finished episodes.

        Args:
            as_dict (bool): Whether to give a dict, with ``"indices"``, ``"lengths"``, ``"mask"`` and the columns'
                names; only from Python. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: Handles of the episodes, int64 ``[B]``; their lengths, int32 ``[B]``; which steps there
            are, bool ``[B, L]``; copies of the rows, ``[B, L, *F]`` for each column, zeros where the mask is ``False``.

        Raises:
            TypeError: If `as_dict` is asked of a buffer without names.
            RuntimeError: If there are fewer than `sample_size` finished episodes; `can_sample` tells. In a graph the
                operator fails with a RuntimeError.
        """
        names = self._dict_names(("indices", "lengths", "mask")) if as_dict else ()
        batch = self._draw(None, ALL_ROWS)
        return dict(zip(names, batch)) if as_dict else batch
