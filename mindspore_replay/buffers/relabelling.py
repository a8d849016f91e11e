"""Rewards of samples that have other goals: in a compiled graph, and from Python with functions of either kind."""

import ast
import contextlib
import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import type_name
from ..mindspore_api import isconstant, share
from ..ops.eager import compiled
from ..ops.primitives import columns, concat_columns, named_in_graph
from ..store.faces.relabelling import Relabelling, bad_result, column_type, need_column
from .compile_time import compile_time


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
class Relabel(Relabelling):
    """``(outputs) -> outputs`` in a graph.

    A bound method of the user's and an object with ``__call__`` compile. The arguments of a ``functools.partial`` are
    taken out of it, since MindSpore would run it in Python.
    """

    def __init__(self, plan: Any) -> None:
        # The compiler would parse the function wherever it finds it.
        self.plan, self.steps = plan._replace(columns=plan.columns._replace(reward_fn=None)), plan.batch.steps
        whole = functools.partial(plan.columns.reward_fn)
        is_lambda = getattr(whole.func, "__name__", "") == "<lambda>"
        self.function = _unreadable if is_lambda and not _is_alone(whole.func) else whole.func
        self.arguments, self.keywords = whole.args, whole.keywords
        self.index = Tensor(np.arange(plan.chain or 1), ms.int32)
        self.powers = Tensor(np.array([plan.gamma**step for step in range(plan.chain or 1)]))
        self.int32, self.float64 = ms.int32, ms.float64
        self.zero, self.one = Tensor(0.0, ms.float64), Tensor(1.0, ms.float64)
        self.where, self.both, self.cast, self.cumsum = ops.select, ops.logical_and, ops.cast, ops.cumsum
        self.reshape, self.spread = ops.reshape, ops.broadcast_to

    def __call__(self, *outputs):
        """Return the outputs of a sample."""
        return self._relabelled(outputs)

    def products(self, discounts):
        """Return the products of the first 0, 1, ... discounts of chains."""
        flat = ops.cast(ops.reshape(discounts, (-1, self.plan.chain)), ms.float64)
        product = ops.ones_like(columns(flat, 0, 1))
        products = (product,)
        for step in range(self.plan.chain - 1):
            product = product * columns(flat, step, step + 1)
            products = (*products, product)
        return ops.reshape(concat_columns(products), discounts.shape)

    def _called(self, achieved, goal, parts):
        arguments = (achieved, goal)
        if self.plan.columns.takes_batch:
            arguments = (*arguments, named_in_graph(self.steps, parts))
        rewards, terminated = self.rewards(*arguments)
        self._check(rewards.shape, rewards.dtype, achieved.shape[0])
        if terminated is not None:
            self._check(terminated.shape, None, achieved.shape[0])
        return rewards, terminated

    def rewards(self, *arguments):
        """Call the user's function. Return rewards, and flags or ``None``."""
        result = self.function(*self.arguments, *arguments, **self.keywords)
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
        raise TypeError(bad_result(0, None, got, True))

    @compile_time
    def _check(self, shape: tuple[int, ...], dtype: object, rows: int) -> bool:
        """Check the rewards, or, without a dtype, the flags."""
        expected = None if dtype is None else self.plan.reward_type
        if dtype is None:
            need_column(self.plan)
        elif type_name(dtype) != expected:
            raise TypeError(bad_result(rows, expected, f"{type_name(dtype)} of shape {shape}", True))
        if shape != (rows,):
            raise ValueError(bad_result(rows, expected, f"shape {shape}", True))
        return True


class RelabelFromPython(Relabelling):
    """The same for samples drawn from Python: the user's function gets arrays.

    If it cannot compute with them, it gets Tensors, in a compiled graph, or one operator after the other.
    """

    def __call__(self, batch: tuple[Any, ...], before: int) -> tuple[Tensor, ...]:
        """Return the relabelled outputs of a sample of arrays or Tensors, as Tensors."""
        outputs = super().__call__(batch, before)
        return tuple(share(value) if isinstance(value, np.ndarray) else value for value in outputs)

    @functools.cached_property
    def runs_graphs(self) -> bool:
        """True if the user's function computes with Tensors, not with arrays. It is tried on two rows of zeros."""
        fields = *[(self.plan.goal_shape, self.plan.goal_type)] * 2, *self.plan.batch_fields
        with np.errstate(all="ignore"), contextlib.suppress(Exception):
            result = super()._result([np.zeros((2, *shape), column_type(dtype)) for shape, dtype in fields])
            return any(isinstance(value, Tensor) for value in (result if isinstance(result, tuple) else (result,)))
        return True

    @functools.cached_property
    def _graph(self) -> Callable[..., Any] | None:
        return compiled(Relabel(self.plan).rewards)

    def _result(self, arguments: Sequence[Any], function: Callable[..., Any] | None = None) -> Any:
        """Return what the user's function returns for arrays, or for Tensors, in a graph if it can be compiled."""
        if not self.runs_graphs:
            return super()._result(arguments)
        tensors = [*map(share, arguments)]
        try:
            return super()._result(tensors, self._graph)
        except Exception:
            self.__dict__["_graph"] = None
        try:
            return super()._result(tensors)
        except Exception as error:
            raise RuntimeError(
                "For 'HindsightRelabel', 'reward_fn' must compute rewards from NumPy arrays or from Tensors of shape "
                f"{arguments[0].shape}, but failed with both. The last error was {type(error).__name__}: {error}"
            ) from error
