"""Hindsight experience replay."""

import contextlib
import inspect
from collections.abc import Callable

from ..checks import check_number
from ..plan import STRATEGIES
from ..schema import Schema
from .arguments import Shown
from .layout import Hindsight, SampleLayout
from .registry import registered

#: Prefix of the columns of a Dict space, of what an agent sees before it acts.
_LEAF = "observation."


@registered
class HindsightRelabel(Shown):
    """A view that gives samples other goals, achieved later, and the rewards for them.

    A step achieves a goal in the state after its action. In a relabelled sample, the goal is one that another row
    achieved, and the reward is ``reward_fn(achieved_goal, goal)``, or ``reward_fn(achieved_goal, goal, batch)`` with
    the other columns; with `NStep` this applies to each step of the return. If a sample also has the goal of the
    next observation, such as ``next_desired_goal``, this becomes the same goal. Nothing else changes, unless
    `reward_fn` says which goals end an episode.

    In a sample of sequences or episodes, all steps of a relabelled one have the same goal, drawn for the row at its
    start, the first after the burn-in, and each step has its own reward for it.

    Called from Python, `sample` gives `reward_fn` NumPy arrays, as the ``compute_reward`` of gymnasium-robotics takes
    them; its third argument `info` is then the batch. A function that computes with MindSpore's
    operators gets Tensors. In a compiled graph it becomes part of the graph, so it must be written with MindSpore's
    operators, and return Tensors of the columns' dtypes.

    Args:
        strategy (str): Choice of the other row: ``"future"``, a row from this one to the last stored one of its
            episode, each equally likely; ``"final"``, that last row; ``"episode"``, any stored row of the episode;
            ``"random"``, any row of the buffer. Only stored rows of an unfinished episode are used. A deleted row gives
            no goal: a sample that draws one keeps its own.
        ratio (float): Probability that a sample is relabelled, in [0, 1]. The paper's k other goals for one original
            goal are ``k / (k + 1)``.
        reward_fn (Callable): From achieved goals and goals, each ``[n, *F]``, to rewards ``[n]``, or to a pair of
            rewards and flags ``[n]`` that are true where reaching the goal ends the episode. Then a relabelled row has
            ``terminated`` set also where the flag is true; with `NStep` the chain ends there, with the return up to it,
            the discount 0 and the observation after it. Without flags a return goes on beyond a goal that was reached,
            and ``terminated`` refers to the original goal. ``n`` is ``B``, or ``B * T`` for sequences of ``T`` steps,
            and times the ``n`` of `NStep`. If it has three arguments, the third is a dict with the other columns of
            these rows by name, as stored, ``[n, *F]``, nested for dotted names: actions, for example, or what a column
            holds of the environment's infos.
        achieved_goal (str): Goals achieved. If there is a column ``next_`` of this name, as `VectorRows` fills it from
            a dict observation, its goals are those after the action, and it is taken; else the column itself must hold
            them, as `VectorRows` and `from_minari` then make it. Without a column of the name, that of a Dict space of
            Minari is taken, ``observation.`` before it. Default: ``"achieved_goal"``.
        goal (str): Column of the goals, of the same shape and dtype; also with ``observation.`` before it. Default:
            ``"desired_goal"``.
        reward (str): Column of rewards. Default: ``"reward"``.
        terminated (str): Column that is nonzero where the episode terminated, of shape ``()``, which the flags of
            `reward_fn` need. Default: ``"terminated"``.

    Raises:
        TypeError: If `ratio` is no number, or `reward_fn` can be called neither with two arguments nor with three.
        ValueError: If `strategy` is unknown, or `ratio` outside [0, 1].

        Drawing a sample raises a TypeError or ValueError if `reward_fn` returns something else.

    Reference:
        Andrychowicz et al. 2017, "Hindsight experience replay", https://arxiv.org/abs/1707.01495, section 4.5.

    Examples:
        >>> import numpy as np
        >>> from mindspore_replay import HindsightRelabel, ReplayBuffer
        >>> names, types = ["achieved_goal", "desired_goal", "reward"], ["float32"] * 3
        >>> view = HindsightRelabel("final", ratio=1.0, reward_fn=np.subtract)  # the reward is achieved - goal
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
        reward_fn: Callable[..., object],
        *,
        achieved_goal: str = "achieved_goal",
        goal: str = "desired_goal",
        reward: str = "reward",
        terminated: str = "terminated",
    ) -> None:
        if strategy not in STRATEGIES[1:]:
            raise ValueError(
                f"For 'HindsightRelabel', 'strategy' must be one of {', '.join(STRATEGIES[1:])}, but got {strategy!r}."
            )
        if not callable(reward_fn):
            raise TypeError(f"For 'HindsightRelabel', 'reward_fn' must be a function, but got {reward_fn!r}.")
        takes_batch = _takes_batch(reward_fn)
        ratio = check_number("HindsightRelabel", "ratio", ratio)
        self.hindsight = Hindsight(strategy, ratio, reward_fn, achieved_goal, goal, reward, terminated, takes_batch)

    def apply_to(self, layout: SampleLayout) -> None:
        """Add the goals and rewards to the layout of a sample. Called by buffers."""
        layout.only_one("HindsightRelabel", layout.hindsight is not None)
        columns, view = layout.columns, self.hindsight
        if not columns.given_names:
            layout.column("HindsightRelabel", "achieved_goal", view.achieved)
        view = view._replace(achieved=_achieved(layout, view.achieved), goal=_in_dict(columns, view.goal))
        achieved = layout.column("HindsightRelabel", "achieved_goal", view.achieved)
        goal = layout.column("HindsightRelabel", "goal", view.goal)
        reward = layout.column("HindsightRelabel", "reward", view.reward)
        if view.terminated in columns.names:
            terminated = layout.column("HindsightRelabel", "terminated", view.terminated)
            if columns.shapes[terminated] != ():
                raise ValueError(f"For 'HindsightRelabel', the column {view.terminated!r} must have shape ().")
        kinds = [(columns.shapes[i], columns.dtypes[i]) for i in (achieved, goal)]
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"For 'HindsightRelabel', the columns {view.achieved!r} and {view.goal!r} must have one shape and "
                f"dtype, but got {' and '.join(f'{shape} of {dtype}' for shape, dtype in kinds)}."
            )
        if columns.shapes[reward] != ():
            raise ValueError(f"For 'HindsightRelabel', the column {view.reward!r} must have shape ().")
        layout.hindsight = view


def _takes_batch(reward_fn: Callable[..., object]) -> bool:
    """Return True if a function takes the other columns beside two goals; raise a TypeError if it takes neither."""
    try:
        signature = inspect.signature(reward_fn)
    except (TypeError, ValueError):  # some builtin functions have none
        return False
    for number in (2, 3):
        with contextlib.suppress(TypeError):
            signature.bind(*(None,) * number)
            return number == 3
    raise TypeError(
        "For 'HindsightRelabel', 'reward_fn' must take (achieved_goal, goal) or (achieved_goal, goal, batch), but got "
        f"one with the arguments {signature}. Give others by functools.partial."
    )


def _in_dict(columns: Schema, name: str) -> str:
    """Return a column's name, that of a leaf of a Dict space if there is no other."""
    leaf = f"{_LEAF}{name}"
    return leaf if name not in columns.names and leaf in columns.names else name


def _achieved(layout: SampleLayout, name: str) -> str:
    """Return the column of the goals achieved, in the state after the action."""
    columns, name = layout.columns, _in_dict(layout.columns, name)
    for following in (f"next_{name}", f"next_{_LEAF}{name}"):
        if following in columns.names:
            return following
    if name in columns.names and (name.startswith(_LEAF) or name == "observation"):
        raise ValueError(
            f"For '{layout.cls_name}', HindsightRelabel needs the goals achieved in the state after an action, but "
            f"the column {name!r} holds that before it: add a column 'next_{name}'."
        )
    return name
