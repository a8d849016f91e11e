"""Hindsight experience replay."""

from collections.abc import Callable
from typing import Any

from ..arguments import Shown
from ..buffers.layout import Hindsight
from ..store.checks import check_number
from ..store.windows import STRATEGIES


class HindsightRelabel(Shown):
    """A view that gives samples other goals, achieved later, and the rewards for them.

    A column holds the goal that each step achieved, in the state after its action. In a relabelled sample, the goal is
    one that another row achieved, and the reward is ``reward_fn(achieved_goal, goal)``; with `NStep` this applies to
    each step of the return. Nothing else changes: a column that says whether the episode terminated still refers to the
    original goal. If achieving a goal ends an episode, derive that from the reward.

    In a sample of sequences or episodes, all steps of a relabelled one have the same goal, drawn for the row at its
    start, the first after the burn-in, and each step has its own reward for it.

    Args:
        strategy (str): Choice of the other row: ``"future"``, a row from this one to the last stored one of its
            episode, each equally likely; ``"final"``, that last row; ``"episode"``, any stored row of the episode;
            ``"random"``, any row of the buffer. Only stored rows of an unfinished episode are used. A deleted row gives
            no goal: a sample that draws one keeps its own.
        ratio (float): Probability that a sample is relabelled, in [0, 1]. The paper's k other goals for one original
            goal are ``k / (k + 1)``.
        reward_fn (Callable): From achieved goals and goals, two Tensors ``[B, *F]``, to rewards ``[B]``. It is compiled
            into the graph that samples. The leading axis is ``B * T`` for sequences of ``T`` steps, and with `NStep`
            ``n`` times as long, for the steps of all returns.
        achieved_goal (str): Column of the goals achieved. Default: ``"achieved_goal"``.
        goal (str): Column of the goals, of the same shape and dtype. Default: ``"desired_goal"``.
        reward (str): Column of rewards. Default: ``"reward"``.

    Raises:
        TypeError: If `ratio` is no number or `reward_fn` cannot be called.
        ValueError: If `strategy` is unknown, or `ratio` outside [0, 1].

    Reference:
        Andrychowicz et al. 2017, "Hindsight experience replay", https://arxiv.org/abs/1707.01495, section 4.5.

    Examples:
        >>> from mindspore import ops
        >>> from mindspore_replay import HindsightRelabel, ReplayBuffer
        >>> names, types = ["achieved_goal", "desired_goal", "reward"], ["float32"] * 3
        >>> view = HindsightRelabel("final", ratio=1.0, reward_fn=ops.sub)  # the reward is achieved - goal
        >>> buffer = ReplayBuffer(3, 8, [(), (), ()], types, names=names, views=[view], replace=False, seed=0)
        >>> buffer = buffer.insert([[1.0, 2.0, 3.0], [9.0, 9.0, 9.0], [-8.0, -7.0, -6.0]], end=[False, False, True])
        >>> for column in buffer.sample():
        ...     print(column)
        [2. 3. 1.]
        [3. 3. 3.]
        [-1.  0. -2.]
    """

    def __init__(
        self,
        strategy: str,
        ratio: float,
        reward_fn: Callable[[Any, Any], Any],
        *,
        achieved_goal: str = "achieved_goal",
        goal: str = "desired_goal",
        reward: str = "reward",
    ) -> None:
        if strategy not in STRATEGIES[1:]:
            raise ValueError(
                f"For 'HindsightRelabel', 'strategy' must be one of {', '.join(STRATEGIES[1:])}, but got {strategy!r}."
            )
        if not callable(reward_fn):
            raise TypeError(f"For 'HindsightRelabel', 'reward_fn' must be a function, but got {reward_fn!r}.")
        ratio = check_number("HindsightRelabel", "ratio", ratio)
        self.hindsight = Hindsight(strategy, ratio, reward_fn, achieved_goal, goal, reward)

    def apply_to(self, layout: Any) -> None:
        """Add the goals and rewards to the layout of a sample. Called by buffers."""
        layout.only_one("HindsightRelabel", layout.hindsight is not None)
        wanted = {"achieved_goal": self.hindsight.achieved, "goal": self.hindsight.goal}
        achieved, goal = (layout.column("HindsightRelabel", key, name) for key, name in wanted.items())
        reward = layout.column("HindsightRelabel", "reward", self.hindsight.reward)
        columns = layout.columns
        if (columns.shapes[achieved], columns.types[achieved]) != (columns.shapes[goal], columns.types[goal]):
            raise ValueError(
                f"For 'HindsightRelabel', the columns {self.hindsight.achieved!r} and {self.hindsight.goal!r} must "
                f"have one shape and dtype, but got {columns.shapes[achieved]} of {columns.types[achieved]} and "
                f"{columns.shapes[goal]} of {columns.types[goal]}."
            )
        if columns.shapes[reward] != ():
            raise ValueError(f"For 'HindsightRelabel', the column {self.hindsight.reward!r} must have shape ().")
        layout.hindsight = self.hindsight
