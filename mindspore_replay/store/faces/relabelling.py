"""Rewards of samples that have other goals, computed on NumPy arrays.

Axes: ``*L`` the axes before a column's shape: ``B`` samples, or ``B, T`` with the steps of a window.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..base.naming import named
from ..base.schema import is_tensor
from ..base.types import ArrayOrTensor, Outputs
from ..rows.inputs import as_array
from ..spec.layout import RelabelPlan

_IN_GRAPHS = (
    " In a compiled graph it must be written with MindSpore's operators; a NumPy function serves samples drawn from "
    "Python."
)


def bad_result(expected: str, got: str, in_graph: bool = False) -> str:
    """Return the message for a result of the reward function."""
    return f"For 'HindsightRelabel', 'reward_fn' must return {expected}, but got {got}.{_IN_GRAPHS if in_graph else ''}"


def wanted(rows: int, dtype: str | None) -> str:
    """Return what the reward function must return."""
    if dtype is None:
        return f"(rewards, terminated) with a flag for each row, of shape ({rows},)"
    return f"a reward of {dtype} for each row, of shape ({rows},), or (rewards, terminated)"


def need_column(plan: RelabelPlan) -> None:
    """Raise a ValueError if there is no column for what the reward function returns beside rewards."""
    if plan.terminated is None:
        raise ValueError(
            "For 'HindsightRelabel', 'reward_fn' returns (rewards, terminated), so the buffer must have the column "
            f"{plan.columns.terminated!r} as its 'terminated', but it has none."
        )


class RelabelOfArrays:
    """``(outputs) -> outputs``: recomputes the rewards of relabelled samples.

    The user's function gets arrays.

    Args:
        plan (RelabelPlan): Where the outputs are.
    """

    def __init__(self, plan: RelabelPlan) -> None:
        self._plan = plan
        self._index = np.arange(plan.chain or 1)
        self._powers = plan.gamma ** self._index.astype(np.float64)
        self._function = plan.columns.reward_fn

    def __call__(self, batch: Outputs, before: int) -> Outputs:
        """Return the relabelled outputs of a sample of arrays or Tensors. The first `before` are not in the plan."""
        plan, outputs = self._plan, list(batch[before : before + self._plan.width])
        relabelled, *hidden = map(_array, batch[before + plan.width :])
        if plan.mask is not None:
            relabelled = relabelled[:, None] & _array(outputs[plan.mask])
        goal = _array(outputs[plan.goal])
        if plan.chain is not None:
            self._put_returns(outputs, relabelled, goal, hidden)
        else:
            rewards, terminated = self._of(_array(outputs[plan.achieved]), goal, outputs)
            self._put(outputs, plan.reward, relabelled, rewards)
            if terminated is not None:
                self._put(outputs, plan.terminated, relabelled & terminated, True)
        self._put(outputs, plan.next_goal, relabelled, goal)
        return (*batch[:before], *outputs)

    def _put_returns(
        self, outputs: list[ArrayOrTensor], relabelled: np.ndarray, goal: np.ndarray, hidden: list[np.ndarray]
    ) -> None:
        """Put n-step returns, in which every step has the same goal, up to one that ends."""
        plan, chains, achieved = self._plan, hidden[0], hidden[1]
        goals = np.broadcast_to(np.expand_dims(goal, chains.ndim), achieved.shape)
        rewards, terminated = self._of(achieved, goals, hidden)
        inside = self._index < chains[..., None]
        if terminated is not None:
            ends = terminated & inside
            passed = np.cumsum(ends, -1)
            inside &= passed - ends == 0
        weights = self._powers
        if plan.step_discounts is not None:  # that of a reward is the product over the steps before it
            products = np.cumprod(hidden[plan.step_discounts].astype(np.float64), -1)
            weights = weights * np.concatenate([np.ones_like(products[..., :1]), products[..., :-1]], -1)
        terms = np.where(inside, rewards.astype(np.float64) * weights, 0.0)
        self._put(outputs, plan.reward, relabelled, np.cumsum(terms, -1)[..., -1])
        if terminated is None:
            return
        reached, length = relabelled & (passed[..., -1] > 0), inside.sum(-1)
        shorter = reached & (length < chains)
        self._put(outputs, plan.discount, reached, 0.0)
        self._put(outputs, plan.terminated, reached, True)
        self._put(outputs, plan.truncated, shorter, False)
        for field, observations in zip(plan.following, hidden[2:]):
            for step in range(len(self._index) - 1):
                steps = step if plan.mask is None else slice(step, step + chains.shape[1])
                self._put(outputs, field, shorter & (length == step + 1), observations[:, steps])

    def _put(self, outputs: list[ArrayOrTensor], at: int | None, where: np.ndarray, new: ArrayLike) -> None:
        """Put new values in an output where a mask is true, if there is this output."""
        if at is None:
            return
        found = outputs[at]
        array = outputs[at] = found.asnumpy().copy() if is_tensor(found) else np.asarray(found)
        if array.ndim > where.ndim:
            where = where.reshape(*where.shape, *[1] * (array.ndim - where.ndim))
        np.copyto(array, new, "unsafe", where)

    def _of(
        self, achieved: np.ndarray, goal: np.ndarray, outputs: Sequence[ArrayOrTensor]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return rewards, and whether they end the episode or ``None``, for goals of shape ``[*L, *F]``.

        Some outputs are the batch for the user's function.
        """
        plan = self._plan
        lead = achieved.shape[: achieved.ndim - len(plan.goal_shape)]
        rows = (-1, *plan.goal_shape)
        achieved, goal = (np.ascontiguousarray(goals).reshape(rows) for goals in (achieved, goal))
        # Of a stack the newest frame.
        fields = zip(plan.batch_at, plan.batch_fields)
        frames = (_array(outputs[at]).reshape(len(goal), -1, *shape) for at, (shape, _) in fields)
        batch = [np.ascontiguousarray(frame[:, -1]) for frame in frames]
        result = self._called(achieved, goal, *([named(plan.batch, batch)] if plan.columns.takes_batch else ()))
        rewards, terminated = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        rewards = self._checked(rewards, len(goal), plan.reward_type).reshape(lead)
        if terminated is None:
            return rewards, None
        need_column(plan)
        return rewards, self._checked(terminated, len(goal), None).reshape(lead) != 0

    def _called(self, *arguments: object) -> object:
        """Return what the user's function returns."""
        return self._function(*arguments)

    def _checked(self, result: object, rows: int, dtype: str | None) -> np.ndarray:
        """Return rewards or flags as an array of the right shape. Raise an error for anything else."""
        try:
            array = as_array(result)
        except (TypeError, ValueError):
            array = np.empty((), object)
        if array.dtype.kind not in "biuf":
            got = f"{type(result).__name__} of {array.dtype}" if array.ndim else type(result).__name__
            raise TypeError(bad_result(wanted(rows, dtype), got))
        if array.shape != (rows,):
            raise ValueError(bad_result(wanted(rows, dtype), f"{type(result).__name__} of shape {array.shape}"))
        if dtype is not None and not np.can_cast(array.dtype, column_type(dtype), "same_kind"):
            raise TypeError(bad_result(wanted(rows, dtype), str(array.dtype)))
        return array


def column_type(dtype: str) -> np.dtype:
    """Return the NumPy dtype that a column's rows are computed in."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def _array(result: object) -> np.ndarray:
    """Return the values of an array or a Tensor, bfloat16 as float32."""
    array = as_array(result)
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)
