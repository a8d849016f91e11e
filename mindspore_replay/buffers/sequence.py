"""Sequences of steps of one episode."""

from collections.abc import Sequence
from typing import Any

from mindspore import Tensor

from ..ops.eager import graph_body
from ..store.checks import check_bool, check_size
from ..store.windows import Output, WindowRule
from .layout import SampleLayout, Steps
from .prioritized import PrioritizedReplayBuffer
from .replay import ReplayBuffer


class SequenceReplayBuffer(PrioritizedReplayBuffer):
    r"""A ring of steps, sampled as sequences of consecutive steps of one episode and one environment.

    A sample has ``T`` = `burn_in` + `sequence_length` steps. Its handle is that of its *start*, the first step after
    the burn-in. A row is a legal start if the sequence crosses neither the newest row, nor the end of its episode, nor
    a deleted row, and its burn-in neither the oldest row nor a deleted one. Where the episode begins within the
    burn-in, the steps before are zeros and masked, so that the first steps of an episode are reached too. Whether a row
    is a legal start is decided when rows are inserted, at O(T) a row; a sample costs O(log C + T) a sequence, whatever
    the capacity.

    Starts are every `stride`-th step of an episode; and, without `pad_end`, the start from which the sequence just
    reaches the end of the episode, so that the last step is reached whatever the stride. An episode shorter than
    `sequence_length` is reached only with `pad_end`.

    Step t of a sample, from 0 on, is the row with the handle ``indices + (t - burn_in) * num_envs`` where the mask is
    ``True``: `update` can write what was computed along a sequence into its rows.

    Axes: ``B`` sample_size, ``T`` steps, ``*F`` a column's shape.

    Args:
        sample_size (int): ``B``, sequences of one sample.
        capacity (int): Rows that the buffer keeps, of all environments together; at least ``T`` times `num_envs`.
        shapes (Sequence[tuple[int, ...]]): Shape of one row of each column, ``()`` for a scalar.
        types (Sequence[Union[mindspore.dtype, numpy.dtype, type, str]]): Dtype of each column, as for `ReplayBuffer`.
        sequence_length (int): Steps from the start on.
        burn_in (int): Steps before the start, for the state of a recurrent network. Default: ``0``.
        stride (int): Steps of the episode from one start to the next. Default: ``1``.
        pad_end (bool): Whether a sequence may reach beyond the end of its episode; the steps there are zeros and
            masked. Default: ``False``.
        prioritized (bool): Whether starts are drawn by priority, and samples come with importance weights. Default:
            ``False``, each legal start is equally likely.
        alpha, beta, beta_steps, epsilon, normalize: As for `PrioritizedReplayBuffer`, if `prioritized`.
        names, num_envs, replace, ordered, max_use, max_staleness, seed, backend: As for `ReplayBuffer`; `max_use`
            counts the deliveries of a start, and `replace` must be ``True`` if `prioritized`.
        views (Sequence): `FrameStack` gives each step its stack. Default: ``()``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a value is outside its range.
        RuntimeError: If the backend asked for cannot be had.

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
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        types: Sequence[Any],
        sequence_length: int,
        *,
        burn_in: int = 0,
        stride: int = 1,
        pad_end: bool = False,
        prioritized: bool = False,
        names: Sequence[str] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        views: Sequence[Any] = (),
        seed: int | None = None,
        backend: str = "auto",
    ) -> None:
        super(ReplayBuffer, self).__init__()  # what the other constructors would do comes below
        name = type(self).__name__
        self.sequence_length = check_size(name, "sequence_length", sequence_length)
        self.burn_in = check_size(name, "burn_in", burn_in, minimum=0)
        self.stride = check_size(name, "stride", stride)
        self.pad_end = check_bool(name, "pad_end", pad_end)
        self.prioritized = check_bool(name, "prioritized", prioritized)
        if self.prioritized:
            self._set_priorities(alpha, beta, beta_steps, epsilon, normalize)
            self._need_replace(replace)
        self._set_up(
            sample_size, capacity, shapes, types, names, num_envs, replace, ordered, max_use, max_staleness, True,
            views, seed, backend,
        )  # fmt: skip

    def _layout_of(self, views: Sequence[Any]) -> SampleLayout:
        steps = Steps(-self.burn_in, self.burn_in + self.sequence_length)
        return self._shaped(SampleLayout(type(self).__name__, self.columns, steps), views)

    def _window_rule(self, layout: SampleLayout, past: int) -> WindowRule:
        return WindowRule(past, self.sequence_length, self.stride, self.pad_end, self.num_envs, 0)

    def _bookkeeping(self, layout: SampleLayout) -> dict[str, Output]:
        return {"mask": layout.mask()}

    # Bodies for the compiler.

    def _sample_graph(self, beta=None, *, as_dict=False):
        if as_dict:
            raise ValueError("For 'sample', 'as_dict' must be False in a graph.")
        if self.prioritized:
            return self._by_weight_graph(beta)
        if beta is not None:
            raise ValueError("For 'sample', 'beta' needs a buffer made with prioritized=True.")
        return self._sample_in(self._all_rows)

    # Methods, with the bodies that Python runs.

    @graph_body(_sample_graph)
    def sample(  # type: ignore[override]
        self, beta: Any = None, *, as_dict: bool = False
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Draws sequences.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, as for `PrioritizedReplayBuffer.sample`; only if
                `prioritized`. Default: ``None``.
            as_dict (bool): Whether to give a dict, with ``"indices"``, ``"weights"`` if `prioritized`, ``"mask"`` and
                the columns' names; only from Python. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: Handles of the starts, int64 ``[B]``; if `prioritized`, importance weights, float32
            ``[B]``; which steps there are, bool ``[B, T]``; copies of the rows, ``[B, T, *F]`` for each column, zeros
            where the mask is ``False``.

        Raises:
            TypeError, ValueError: As `PrioritizedReplayBuffer.sample`.
            RuntimeError: If there are fewer than `sample_size` legal starts; `can_sample` tells. In a graph the
                operator fails with a RuntimeError.
        """
        if self.prioritized:
            return self._by_weight(beta, as_dict)
        if beta is not None:
            raise ValueError(f"For '{type(self).__name__}', 'beta' needs a buffer made with prioritized=True.")
        names = self._dict_names(self._bookkeeping_names) if as_dict else ()
        batch = self._draw(None, None)
        return dict(zip(names, batch)) if as_dict else batch
