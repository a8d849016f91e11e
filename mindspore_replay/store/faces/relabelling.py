"""Rewards of samples that have other goals, by a function of the user's.

The steps are written once, for NumPy arrays and, with the operators of a subclass, for MindSpore's Tensors in graphs.

Axes: ``*L`` the axes before a column's shape: ``B`` samples, or ``B, T`` with the steps of a window.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from ..base.naming import named
from ..base.schema import is_tensor
from ..base.types import Outputs
from ..rows.inputs import as_array
from ..spec.layout import RelabelPlan


def bad_result(rows: int, dtype: str | None, got: object, in_graph: bool = False) -> str:
    """Return the message for a result of the reward function that is no rewards, or, without a dtype, no flags."""
    expected = f"a reward of {dtype} for each row, of shape ({rows},), or (rewards, terminated)"
    if dtype is None:
        expected = f"(rewards, terminated) with a flag for each row, of shape ({rows},)" if rows else "a Tensor, or two"
    note = " In a compiled graph it must be written with MindSpore's operators; a NumPy function serves samples drawn "
    note = f"{note}from Python." if in_graph else ""
    return f"For 'HindsightRelabel', 'reward_fn' must return {expected}, but got {got}.{note}"


def need_column(plan: RelabelPlan) -> None:
    """Raise a ValueError if there is no column for what the reward function returns beside rewards."""
    if plan.terminated is None:
        raise ValueError(
            "For 'HindsightRelabel', 'reward_fn' returns (rewards, terminated), so the buffer must have the column "
            f"{plan.columns.terminated!r} as its 'terminated', but it has none."
        )


def _products(discounts: np.ndarray) -> np.ndarray:
    """Return the products of the first 0, 1, ... discounts of chains."""
    products = np.cumprod(discounts.astype(np.float64), -1)
    return np.concatenate([np.ones_like(products[..., :1]), products[..., :-1]], -1)


class Relabelling:
    """``(outputs, number of those before the plan's) -> outputs`` on arrays, which the user's function gets."""

    int32, float64, zero, one = np.int32, np.float64, np.array(0.0), np.array(1.0)
    where, both, cumsum = staticmethod(np.where), staticmethod(np.logical_and), staticmethod(np.cumsum)
    reshape, spread, products = staticmethod(np.ndarray.reshape), staticmethod(np.broadcast_to), staticmethod(_products)
    cast = staticmethod(np.ndarray.astype)

    def __init__(self, plan: RelabelPlan) -> None:
        self.plan, self._function = plan, cast(Any, plan.columns.reward_fn)
        self.index = np.arange(plan.chain or 1)
        self.powers = plan.gamma ** self.index.astype(np.float64)

    def __call__(self, batch: Outputs, before: int) -> Outputs:
        """Return the relabelled outputs of a sample of arrays or Tensors. The first `before` are not in the plan."""
        arrays = [part.asnumpy().copy() if is_tensor(part) else part for part in batch[before:]]
        return (*batch[:before], *self._relabelled(tuple(arrays)))

    def _relabelled(self, outputs):
        """Return the outputs of a sample."""
        plan = self.plan
        relabelled, hidden = outputs[plan.width], outputs[plan.width + 1 :]
        outputs = outputs[: plan.width]
        if plan.mask is not None:
            relabelled = self.both(self.reshape(relabelled, (-1, 1)), outputs[plan.mask])
        if plan.chain is not None:
            outputs = self._with_returns(outputs, relabelled, hidden)
        else:
            rewards, terminated = self._of(outputs[plan.achieved], outputs[plan.goal], outputs)
            outputs = self._put(outputs, plan.reward, relabelled, rewards)
            if terminated is not None:
                outputs = self._put(outputs, plan.terminated, self.both(relabelled, terminated), self.one)
        if plan.next_goal is None:
            return outputs
        return self._put(outputs, plan.next_goal, relabelled, outputs[plan.goal])

    def _with_returns(self, outputs, relabelled, hidden):
        """Return the outputs with n-step returns, in which every step has the same goal, up to one that ends."""
        plan, chains, achieved = self.plan, hidden[0], hidden[1]
        goals = self.spread(self.reshape(outputs[plan.goal], (*chains.shape, 1, *plan.goal_shape)), achieved.shape)
        rewards, terminated = self._of(achieved, goals, hidden)
        inside = self.index < self.reshape(chains, (*chains.shape, 1))
        if terminated is None:
            return self._put(outputs, plan.reward, relabelled, self._total(inside, rewards, hidden))
        ends = self.cast(self.both(terminated, inside), self.int32)
        passed = self.cumsum(ends, chains.ndim)
        inside = self.both(inside, passed - ends == 0)
        reached = self.both(relabelled, passed[..., plan.chain - 1] > 0)
        length = self.cumsum(self.cast(inside, self.int32), chains.ndim)[..., plan.chain - 1]
        shorter = self.both(reached, length < chains)
        outputs = self._put(outputs, plan.reward, relabelled, self._total(inside, rewards, hidden))
        outputs = self._put(outputs, plan.discount, reached, self.zero)
        outputs = self._put(outputs, plan.terminated, reached, self.one)
        if plan.truncated is not None:
            outputs = self._put(outputs, plan.truncated, shorter, self.zero)
        for i in range(len(plan.following)):
            for step in range(plan.chain - 1):  # where a chain ends at this step, the observations that follow it
                last = step + 1 if plan.mask is None else step + chains.shape[1]
                after = hidden[2 + i][:, step:last]
                after = self.reshape(after, outputs[plan.following[i]].shape)
                outputs = self._put(outputs, plan.following[i], self.both(shorter, length == step + 1), after)
        return outputs

    def _total(self, inside, rewards, hidden):
        """Return the discounted sums of rewards over chains."""
        weights = self.powers
        if self.plan.step_discounts is not None:  # that of a reward is the product over the steps before it
            weights = weights * self.products(hidden[self.plan.step_discounts])
        terms = self.where(inside, self.cast(rewards, self.float64) * weights, self.zero)
        return self.cumsum(terms, inside.ndim - 1)[..., self.plan.chain - 1]

    def _put(self, outputs, at, where, new):
        """Return the outputs with new values in one of them where a mask is true."""
        old = outputs[at]
        where = self.reshape(where, (*where.shape, *(1,) * (old.ndim - where.ndim)))
        return (*outputs[:at], self.where(where, self.cast(new, old.dtype), old), *outputs[at + 1 :])

    def _of(self, achieved, goal, outputs):
        """Return rewards, and whether they end the episode or ``None``, for goals of shape ``[*L, *F]``.

        Some outputs are the batch for the user's function: of stacks, the newest frames.
        """
        plan, rows, parts = self.plan, (-1, *self.plan.goal_shape), ()
        lead = achieved.shape[: achieved.ndim - len(plan.goal_shape)]
        achieved, goal = self.reshape(achieved, rows), self.reshape(goal, rows)
        for i in range(len(plan.batch_at)):
            frames = self.reshape(outputs[plan.batch_at[i]], (goal.shape[0], -1, *plan.batch_fields[i][0]))
            parts = (*parts, frames[:, -1])
        rewards, terminated = self._called(achieved, goal, parts)
        rewards = self.reshape(rewards, lead)
        return rewards, None if terminated is None else self.reshape(terminated != 0, lead)

    def _called(self, achieved: Any, goal: Any, parts: Any) -> tuple[Any, Any]:
        """Return what the user's function returns, checked: rewards, and whether they end the episode or ``None``."""
        arguments = (achieved, goal, *parts)
        result = self._result([np.ascontiguousarray(part, column_type(part.dtype.name)) for part in arguments])
        rewards, terminated = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        rewards = self._checked(rewards, len(goal), self.plan.reward_type)
        if terminated is not None:
            need_column(self.plan)
            terminated = self._checked(terminated, len(goal), None)
        return rewards, terminated

    def _result(self, arguments: Sequence[Any], function: Callable[..., Any] | None = None) -> Any:
        """Call the user's function, or another one in its place, of goals and perhaps the other columns."""
        batch = [named(self.plan.batch, tuple(arguments[2:]))] if self.plan.columns.takes_batch else []
        return (function or self._function)(*arguments[:2], *batch)

    def _checked(self, result: object, rows: int, dtype: str | None) -> np.ndarray:
        """Return rewards or flags as an array of the right shape. Raise an error for anything else."""
        try:
            array = as_array(result)
        except (TypeError, ValueError):
            array = np.empty((), object)
        found = type(result).__name__
        if array.dtype.kind not in "biuf":
            raise TypeError(bad_result(rows, dtype, f"{found} of {array.dtype}" if array.ndim else found))
        if array.shape != (rows,):
            raise ValueError(bad_result(rows, dtype, f"{found} of shape {array.shape}"))
        if dtype is not None and not np.can_cast(array.dtype, column_type(dtype), "same_kind"):
            raise TypeError(bad_result(rows, dtype, array.dtype))
        return array


def column_type(dtype: str) -> np.dtype:
    """Return the NumPy dtype that a column's rows are computed in."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)
