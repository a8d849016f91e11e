"""Rewards of samples that have other goals: in a compiled graph, and from Python on NumPy arrays.

Axes: ``B`` samples, ``T`` steps of a window, ``n`` steps of a chain, ``*L`` the axes before a column's shape: ``B``, or
``B, T``.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import type_name
from ..mindspore_api import isconstant, share
from ..ops.eager import compiled
from ..ops.primitives import columns, concat_columns, named_in_graph
from ..store.base.naming import named
from ..store.faces.relabelling import RelabelOfArrays, bad_result, column_type, need_column, wanted
from ..store.spec.layout import RelabelPlan
from .compile_time import compile_time


def _products_of(discounts):
    """Return the products of the first 0, 1, ... discounts of each row of a matrix, float64 ``[m, n + 1]``."""
    discounts = ops.cast(discounts, ms.float64)
    longest = discounts.shape[1]
    product = ops.ones_like(columns(discounts, 0, 1))
    products = (product,)
    for step in range(longest):
        product = product * columns(discounts, step, step + 1)
        products = (*products, product)
    return concat_columns(products)


@ms.jit_class
class RewardFunction:
    """``(achieved goals [m, *F], goals [m, *F], ...) -> (rewards, terminated or None)``: calls the user's function.

    A bound method and an object with ``__call__`` compile. The arguments of a ``functools.partial`` are taken out of
    it, since MindSpore would run it in Python.

    Args:
        function (Callable): The user's function.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.arguments: tuple[Any, ...] = ()
        self.keywords: dict[str, Any] = {}
        while isinstance(function, functools.partial):
            self.arguments = function.args + self.arguments
            self.keywords = {**function.keywords, **self.keywords}
            function = function.func
        is_lambda = getattr(function, "__name__", "") == "<lambda>"
        self.function = _unreadable if is_lambda and not _is_alone(function) else function

    def __call__(self, *given):
        """Return Tensors."""
        result = self.function(*self.arguments, *given, **self.keywords)
        if not isinstance(result, tuple):
            return self._tensor(result), None
        if len(result) != 2:
            self._refuse(f"a tuple of {len(result)}")
        return self._tensor(result[0]), self._tensor(result[1])

    def _tensor(self, result):
        if not isinstance(result, Tensor):
            self._refuse("a value of Python or NumPy")
        elif not isconstant(result.shape):
            self._refuse("an array that NumPy has made")
        return result

    @compile_time
    def _refuse(self, got: str) -> bool:
        raise TypeError(bad_result("a Tensor, or two", got, True))


def _unreadable(*_goals):
    """Take the place of a lambda that MindSpore's parser cannot read."""
    raise TypeError(
        "For 'HindsightRelabel', 'reward_fn' must be a function made with def, or a lambda in a separate statement, to "
        "compile into a graph, but got a lambda within another expression."
    )


def _is_alone(function: Callable[..., object]) -> bool:
    """Return True if MindSpore's parser can read a lambda: if its line is nothing but its assignment."""
    try:
        statement = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):
        return False
    return isinstance(getattr(statement, "value", None), ast.Lambda)


@ms.jit_class
class Relabel:
    """``(outputs) -> outputs`` in a graph: computes the rewards of relabelled samples, and drops the hidden outputs.

    Args:
        plan (RelabelPlan): Where the outputs are.
    """

    def __init__(self, plan: Any) -> None:
        # The compiler would parse the function wherever it finds it.
        self.plan = plan._replace(columns=plan.columns._replace(reward_fn=None))
        self.rewards, self.steps = RewardFunction(plan.columns.reward_fn), plan.batch.steps
        self.chain = plan.chain or 1
        self.powers = Tensor(np.array([plan.gamma**step for step in range(self.chain)]))
        self.index = Tensor(np.arange(self.chain), ms.int32)
        self.zero, self.none = Tensor(0.0, ms.float64), Tensor(0.0, ms.float32)

    def __call__(self, *outputs):
        """Return the outputs of a sample."""
        plan = self.plan
        relabelled, hidden = outputs[plan.width], outputs[plan.width + 1 :]
        outputs = outputs[: plan.width]
        if plan.mask is not None:
            relabelled = ops.logical_and(ops.expand_dims(relabelled, 1), outputs[plan.mask])
        if plan.chain is not None:
            outputs = self.with_returns(outputs, relabelled, hidden)
        else:
            outputs = self.with_rewards(outputs, relabelled)
        if plan.next_goal is None:
            return outputs
        where = ops.reshape(relabelled, (*relabelled.shape, *(1,) * len(plan.goal_shape)))
        return self.put(outputs, plan.next_goal, ops.select(where, outputs[plan.goal], outputs[plan.next_goal]))

    def with_rewards(self, outputs, relabelled):
        """Return the outputs with the rewards of single steps."""
        plan = self.plan
        rewards, terminated = self.of(outputs[plan.achieved], outputs[plan.goal], outputs)
        outputs = self.put_where(outputs, plan.reward, relabelled, rewards)
        if terminated is None:
            return outputs
        return self.end(outputs, ops.logical_and(relabelled, terminated))

    def with_returns(self, outputs, relabelled, hidden):
        """Return the outputs with n-step returns, in which every step has the same goal, up to one that ends."""
        plan = self.plan
        chains, achieved = hidden[0], hidden[1]
        goals = ops.broadcast_to(ops.expand_dims(outputs[plan.goal], chains.ndim), achieved.shape)
        rewards, terminated = self.of(achieved, goals, hidden)
        inside = self.index < ops.expand_dims(chains, -1)
        if terminated is None:
            return self.put_where(outputs, plan.reward, relabelled, self.total(inside, rewards, hidden))
        ends = ops.cast(ops.logical_and(terminated, inside), ms.int32)
        passed = ops.cumsum(ends, chains.ndim)
        inside = ops.logical_and(inside, passed - ends == 0)
        outputs = self.put_where(outputs, plan.reward, relabelled, self.total(inside, rewards, hidden))
        reached = ops.logical_and(relabelled, passed[..., self.chain - 1] > 0)
        discount = ops.select(reached, self.none, outputs[plan.discount])
        outputs = self.end(self.put(outputs, plan.discount, discount), reached)
        length = ops.cumsum(ops.cast(inside, ms.int32), chains.ndim)[..., self.chain - 1]
        shorter = ops.logical_and(reached, length < chains)
        if plan.truncated is not None:
            flag = outputs[plan.truncated]
            outputs = self.put_where(outputs, plan.truncated, shorter, ops.zeros_like(flag))
        for i in range(len(plan.following)):
            field = plan.following[i]
            new = outputs[field]
            for step in range(self.chain - 1):
                new = self.after(step, hidden[2 + i], new, ops.logical_and(shorter, length == step + 1))
            outputs = self.put(outputs, field, new)
        return outputs

    def after(self, step, observations, new, where):
        """Return next observations: for chains that end at this step, the observations that follow it."""
        taken = observations[:, step] if self.plan.mask is None else observations[:, step : step + new.shape[1]]
        where = ops.reshape(where, (*where.shape, *(1,) * (new.ndim - where.ndim)))
        return ops.select(where, taken, new)

    def total(self, inside, rewards, hidden):
        """Return the discounted sums of rewards over chains."""
        weights = self.powers
        if self.plan.step_discounts is not None:
            products = _products_of(ops.reshape(hidden[self.plan.step_discounts], (-1, self.chain)))
            weights = weights * ops.reshape(columns(products, 0, self.chain), inside.shape)
        terms = ops.select(inside, ops.cast(rewards, ms.float64) * weights, self.zero)
        return ops.cumsum(terms, inside.ndim - 1)[..., self.chain - 1]

    def of(self, achieved, goal, outputs):
        """Return rewards, and whether they end the episode or ``None``, for goals of shape ``[*L, *F]``.

        Some outputs are the batch for the user's function.
        """
        plan = self.plan
        rows = (-1, *plan.goal_shape)
        lead = achieved.shape[: achieved.ndim - len(self.plan.goal_shape)]
        achieved, goal = ops.reshape(achieved, rows), ops.reshape(goal, rows)
        given = (achieved, goal)
        if plan.columns.takes_batch:
            given = (*given, self.batch(goal.shape[0], outputs))
        rewards, terminated = self.rewards(*given)
        self._check(rewards.shape, rewards.dtype, achieved.shape[0])
        if terminated is None:
            return ops.reshape(rewards, lead), None
        self._check_terminated(terminated.shape, achieved.shape[0])
        return ops.reshape(rewards, lead), ops.reshape(terminated != 0, lead)

    def batch(self, rows, outputs):
        """Return the columns for the user's function, with one leading axis; of stacks, the newest frames."""
        plan, parts = self.plan, ()
        for i in range(len(plan.batch_at)):
            frames = ops.reshape(outputs[plan.batch_at[i]], (rows, -1, *plan.batch_fields[i][0]))
            parts = (*parts, frames[:, -1])
        return named_in_graph(self.steps, parts)

    def end(self, outputs, reached):
        """Return the outputs with the episode ended where a goal is reached."""
        at = self.plan.terminated
        flag = outputs[at]
        return self.put_where(outputs, at, reached, ops.ones_like(flag))

    def put_where(self, outputs, at, where, new):
        """Return the outputs with new values in one of them where a mask is true."""
        old = outputs[at]
        return self.put(outputs, at, ops.select(where, ops.cast(new, old.dtype), old))

    def put(self, outputs, at, new):
        """Return the outputs with a new one at this place."""
        return (*outputs[:at], new, *outputs[at + 1 :])

    @compile_time
    def _check(self, shape: tuple[int, ...], dtype: object, rows: int) -> bool:
        got, expected = type_name(dtype), self.plan.reward_type
        if got != expected:
            raise TypeError(bad_result(wanted(rows, expected), f"{got} of shape {shape}", True))
        if shape != (rows,):
            raise ValueError(bad_result(wanted(rows, expected), f"shape {shape}", True))
        return True

    @compile_time
    def _check_terminated(self, shape: tuple[int, ...], rows: int) -> bool:
        if shape != (rows,):
            raise ValueError(bad_result(wanted(rows, None), f"shape {shape}", True))
        need_column(self.plan)
        return True


class RelabelFromPython(RelabelOfArrays):
    """``(outputs) -> outputs`` as `Relabel`, for samples drawn from Python: computes on NumPy arrays.

    The user's function gets arrays. If it cannot compute with them, it gets Tensors, in a compiled graph of its own, or
    one operator after the other if it cannot be compiled.

    Args:
        plan (RelabelPlan): Where the outputs are.
    """

    def __init__(self, plan: RelabelPlan) -> None:
        super().__init__(plan)
        self._graph: Callable[..., object] | None = None
        self._rewards = RewardFunction(self._function)

    def __call__(self, batch: tuple[Any, ...], before: int) -> tuple[Tensor, ...]:
        """Return the relabelled outputs of a sample of arrays or Tensors. The first `before` are not in the plan."""
        outputs = super().__call__(batch, before)
        return tuple(share(value) if isinstance(value, np.ndarray) else value for value in outputs)

    @functools.cached_property
    def runs_graphs(self) -> bool:
        """True if the user's function computes with Tensors, not with arrays. It is tried on two goals of zeros."""
        plan = self._plan
        goals = np.zeros((2, 2, *plan.goal_shape), column_type(plan.goal_type))
        parts = [np.zeros((2, *shape), column_type(dtype)) for shape, dtype in plan.batch_fields]
        with np.errstate(all="ignore"):
            try:
                result = self._function(*goals, *([named(plan.batch, parts)] if plan.columns.takes_batch else ()))
            except Exception:
                return True
        return any(isinstance(value, Tensor) for value in (result if isinstance(result, tuple) else (result,)))

    def _called(self, *arguments: Any) -> object:
        """Return what the user's function returns for arrays, or for Tensors, in a graph if it can be compiled."""
        if not self.runs_graphs:
            return super()._called(*arguments)
        tensors = _shared(arguments)
        try:
            if self._graph is None:
                self._graph = compiled(self._rewards.__call__)
            return self._graph(*tensors)
        except Exception:
            self._graph = self._function
        try:
            return self._function(*tensors)
        except Exception as error:
            raise RuntimeError(
                "For 'HindsightRelabel', 'reward_fn' must compute rewards from NumPy arrays or from Tensors of shape "
                f"{arguments[0].shape}, but failed with both. The last error was {type(error).__name__}: {error}"
            ) from error


def _shared(value: Any) -> Any:
    """Return Tensors for arrays, in tuples and dicts too."""
    if isinstance(value, dict):
        return {key: _shared(part) for key, part in value.items()}
    return tuple(map(_shared, value)) if isinstance(value, tuple) else share(value)
