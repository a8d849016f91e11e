"""Hindsight experience replay."""

import contextlib
import inspect
from collections.abc import Callable

from ..base.checks import check_number
from ..base.schema import Schema
from .arguments import Shown
from .layout import Hindsight, SampleLayout
from .plan import STRATEGIES
from .registry import registered

#: Prefix of the columns of a Dict space, of what an agent sees before it acts.
_LEAF = "observation."


@registered
class HindsightRelabel(Shown):
    """A view that relabels samples with goals achieved later, and recomputes the rewards.

    A step achieves a goal in the state after its action. The goal of a relabelled sample is one that another row
    achieved, and the reward is ``reward_fn(achieved_goal, goal)``, or ``reward_fn(achieved_goal, goal, batch)`` with
    the other columns; with `NStep`, for each step of the return. A column ``next_desired_goal`` gets the same goal.
    Nothing else changes, unless `reward_fn` returns flags.

    All steps of a relabelled sequence or episode get one goal, chosen for its start, and each its own reward.

    From Python, `sample` calls `reward_fn` with NumPy arrays, so it can be ``compute_reward`` of gymnasium-robotics,
    whose third argument `info` is then the batch. A function of MindSpore's operators gets Tensors. In a compiled graph
    it becomes part of the graph: write it with MindSpore's operators, and return Tensors of the columns' dtypes.

    Args:
        strategy (str): The other row: ``"future"``, uniformly from this one to the last stored one of its episode;
            ``"final"``, that last row; ``"episode"``, any stored row of the episode; ``"random"``, any row of the
            buffer. If a deleted row is chosen, the sample keeps its goal.
        ratio (float): Probability that a sample is relabelled, in [0, 1]. It is ``k / (k + 1)`` for the paper's k.
        reward_fn (Union[Callable, str]): ``"sparse"``: 0 if the Euclidean distance of the two goals is at most
            `tolerance`, else -1, as in gymnasium-robotics; kernels compute it, so files and folders hold the view too.
            Or a function. It maps achieved goals and goals, each ``[n, *F]``, to rewards ``[n]``, or to a pair of
            rewards and flags ``[n]`` that are true where reaching the goal ends the episode. Where a flag is true,
            ``terminated`` is set in a relabelled row, and a return of `NStep` ends, with discount 0. Without flags,
            returns continue beyond a reached goal, and ``terminated`` refers to the original goal. ``n`` is ``B``, or
            ``B * T`` for sequences of ``T`` steps, times the ``n`` of `NStep`. A third argument, if it has one, is a
            dict of the other columns of these rows by name, as stored, ``[n, *F]``, nested for dotted names.
        tolerance (Union[float, None]): Largest distance at which a goal is reached. Required for ``"sparse"``, whose
            columns of goals and rewards are float32 or float64. Default: ``None``.
        achieved_goal (str): Column of the goals achieved after the action. If a column ``next_<name>`` exists, it is
            used instead: `VectorRows` fills it from a dict observation. Else `VectorRows` and `from_minari` fill this
            column with goals after the action. ``observation.<name>`` is recognized too. Default: ``"achieved_goal"``.
        goal (str): Column of the goals, of the same shape and dtype. ``observation.<name>`` is recognized too. Default:
            ``"desired_goal"``.
        reward (str): Column of rewards. Default: ``"reward"``.
        terminated (str): Column that is nonzero where the episode terminated, of shape ``()``. Flags of `reward_fn`
            require it. Default: ``"terminated"``.

    Raises:
        TypeError: If `ratio` or `tolerance` is not a number, or `reward_fn` accepts neither two arguments nor three.
        ValueError: If `strategy` is unknown, `ratio` outside [0, 1], or `tolerance` negative, missing, or beside a
            function.

        Sampling raises a TypeError or ValueError if `reward_fn` returns something else.

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
        reward_fn: Callable[..., object] | str,
        *,
        tolerance: float | None = None,
        achieved_goal: str = "achieved_goal",
        goal: str = "desired_goal",
        reward: str = "reward",
        terminated: str = "terminated",
    ) -> None:
        if strategy not in STRATEGIES[1:]:
            raise ValueError(
                f"For 'HindsightRelabel', 'strategy' must be one of {', '.join(STRATEGIES[1:])}, but got {strategy!r}."
            )
        if not callable(reward_fn) and reward_fn != "sparse":
            raise TypeError(
                f"For 'HindsightRelabel', 'reward_fn' must be a function or 'sparse', but got {reward_fn!r}."
            )
        if (tolerance is None) == (reward_fn == "sparse"):
            raise ValueError(
                "For 'HindsightRelabel', 'tolerance' is the distance of reward_fn='sparse', which needs it, and of no "
                f"function, but got reward_fn={reward_fn!r} and tolerance={tolerance!r}."
            )
        takes_batch = callable(reward_fn) and _takes_batch(reward_fn)
        ratio = check_number("HindsightRelabel", "ratio", ratio)
        most = -1.0 if tolerance is None else check_number("HindsightRelabel", "tolerance", tolerance, 0, 1e30)
        names = achieved_goal, goal, reward, terminated
        self.hindsight = Hindsight(strategy, ratio, reward_fn, *names, takes_batch, most)

    def apply_to(self, layout: SampleLayout) -> None:
        """Add the goals and rewards to the layout of a sample. Called by buffers."""
        layout.only_one("HindsightRelabel", layout.hindsight is not None)
        columns, view = layout.columns, self.hindsight
        view = view._replace(achieved=_achieved(layout, view.achieved), goal=_in_dict(columns, view.goal))
        fields = dict(zip(columns.names, zip(columns.shapes, columns.dtypes)))
        arguments = {"achieved_goal": view.achieved, "goal": view.goal, "reward": view.reward}
        if view.terminated in fields:
            arguments["terminated"] = view.terminated
        for argument, name in arguments.items():
            layout.column("HindsightRelabel", argument, name)
            if argument in ("reward", "terminated") and fields[name][0] != ():
                raise ValueError(f"For 'HindsightRelabel', the column {name!r} must have shape ().")
        following = f"next_{view.goal}"
        goals = [view.achieved, view.goal, *[following] * (view.is_sparse and following in fields)]
        if len({fields[name] for name in goals}) > 1:
            got = " and ".join(f"{shape} of {dtype}" for shape, dtype in map(fields.__getitem__, goals))
            raise ValueError(
                f"For 'HindsightRelabel', the columns {' and '.join(map(repr, goals))} must have one shape and "
                f"dtype, but got {got}."
            )
        types = {fields[name][1] for name in (view.goal, view.reward)}
        if view.is_sparse and not types <= {"float32", "float64"}:
            raise ValueError(
                f"For 'HindsightRelabel', reward_fn='sparse' needs {view.goal!r} and {view.reward!r} of float32 or "
                f"float64, but got {sorted(types)}: give a function."
            )
        layout.hindsight = view


def _takes_batch(reward_fn: Callable[..., object]) -> bool:
    """Return True if a function accepts the other columns beside two goals. Raise a TypeError if it accepts neither."""
    try:
        signature = inspect.signature(reward_fn)
    except (TypeError, ValueError):  # some builtin functions have none
        return False
    for number in (2, 3):
        with contextlib.suppress(TypeError):
            signature.bind(*(None,) * number)
            return number == 3
    raise TypeError(
        "For 'HindsightRelabel', 'reward_fn' must accept (achieved_goal, goal) or (achieved_goal, goal, batch), but "
        f"got one with the arguments {signature}. Bind others with functools.partial."
    )


def _in_dict(columns: Schema, name: str) -> str:
    """Return a column's name, that of a leaf of a Dict space if there is no other."""
    leaf = f"{_LEAF}{name}"
    return leaf if name not in columns.names and leaf in columns.names else name


def _achieved(layout: SampleLayout, name: str) -> str:
    """Return the column of the goals achieved, in the state after the action."""
    columns = layout.columns
    name = _in_dict(columns, name)
    for following in (f"next_{name}", f"next_{_LEAF}{name}"):
        if following in columns.names:
            return following
    if name in columns.names and (name.startswith(_LEAF) or name == "observation"):
        raise ValueError(
            f"For '{layout.cls_name}', HindsightRelabel needs the goals achieved in the state after an action, but "
            f"the column {name!r} holds that before it: add a column 'next_{name}'."
        )
    return name
