"""Stacks of frames, each stored once."""

from collections.abc import Sequence

from ..base.checks import check_size
from .arguments import Shown
from .layout import SampleLayout
from .registry import registered

#: What stands before the first step of an episode.
_PADDINGS = "zeros", "first"


@registered
class FrameStack(Shown):
    """A view that stacks each observation with those of the steps before it. Each frame is stored once.

    In a sample the observation is ``[B, k, *F]``, the newest frame last. The stack of the next observation follows the
    columns. Its newest frame is the next row's observation, or zeros where the episode has terminated. The last row of
    an episode whose column ``terminated`` is zero is not sampled, see `docs/ends.md`. Without such a column each end
    counts as a termination. In a sample of sequences or episodes the stacks are ``[B, T, k, *F]``, all zeros where the
    mask is ``False``, without next observations.

    Args:
        k (int): Frames of a stack, at least 1.
        observation (Union[str, Sequence[str]]): Columns of frames. ``"x"`` stands for all columns with names ``"x.y"``,
            too. The next one of ``"x"`` is ``"next_x"``. Default: ``"observation"``.
        padding (str): Frames before the first step of the episode: ``"zeros"``, or ``"first"`` for that step's frame,
            the default of gymnasium's ``FrameStackObservation``. Default: ``"zeros"``.

    Raises:
        TypeError: If `k` is no int.
        ValueError: If `k` is not positive, or `padding` is unknown; from the buffer, if it has a column of next
            observations.

    Reference:
        Mnih et al. 2015, "Human-level control through deep reinforcement learning",
        https://doi.org/10.1038/nature14236, Methods.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore_replay import FrameStack, ReplayBuffer
        >>> names, views = ["observation"], [FrameStack(3)]
        >>> buffer = ReplayBuffer(
        ...     sample_size=1, capacity=8, shapes=[()], types=[ms.int32], names=names, views=views, seed=1
        ... )
        >>> for step in range(3):
        ...     buffer = buffer.insert([10 + step])
        >>> frames, next_frames = buffer.sample()
        >>> print(frames, next_frames)
        [[ 0  0 10]] [[ 0 10 11]]
    """

    def __init__(self, k: int, *, observation: str | Sequence[str] = "observation", padding: str = "zeros") -> None:
        if padding not in _PADDINGS:
            raise ValueError(f"For 'FrameStack', 'padding' must be one of {', '.join(_PADDINGS)}, but got {padding!r}.")
        self.padding = padding
        self.k = check_size("FrameStack", "k", k)
        self.observations = (observation,) if isinstance(observation, str) else tuple(observation)

    def apply_to(self, layout: SampleLayout) -> None:
        """Add the stacks to the layout of a sample. Called by buffers."""
        for name in layout.inside(self.observations):
            layout.column("FrameStack", "observation", name)
            layout.stack(name, self.k, self.padding == "first")
            if f"next_{name}" in layout.columns.names:
                following = "next row" if layout.steps is None else "next step, which NStep adds as a field"
                raise ValueError(
                    f"For '{layout.cls_name}', a column 'next_{name}' would store each frame twice: leave it out, the "
                    f"next observation is built from the {following}."
                )
            if layout.steps is None:
                layout.add_next(name)
