"""Base classes of the operators that MindSpore no longer has."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from ..buffers.parameters import load_in_place, state_parameter
from ..columns import Columns
from ..ops import native
from ..ops.checks import raise_earlier_failure
from ..store.base.checks import check_size
from ..store.base.random import initial_state
from ..store.base.schema import type_name

_numbers = itertools.count()

#: Shapes of one row of each column, and their dtypes.
Shapes = Sequence[tuple[int, ...]]
Types = Sequence[object]
_Self = TypeVar("_Self")


class Operator:
    """An operator of compiled graphs that replaces a primitive of MindSpore."""

    def add_prim_attr(self: _Self, name: str, value: object) -> _Self:
        """Accept an attribute of a primitive, and ignore it: placement and side effects are fixed here.

        Returns:
            Operator: The operator itself.
        """
        del name, value
        return self


class RingOperator(Operator):
    """An operator on a ring that its caller owns: columns ``[C, *F]``, `count` and `head`, both int32 ``[]``.

    Args:
        capacity (int): ``C``, most rows stored.
        buffer_shape (Sequence[tuple[int, ...]]): Shape of one row of each column.
        buffer_dtype (Sequence[mindspore.dtype]): Dtype of each column.
        backend (str): ``"native"``, ``"composite"`` or ``"auto"``, as for `ReplayBuffer`.
    """

    def _set_up(self, capacity: int, buffer_shape: Shapes, buffer_dtype: Types, backend: str, seed: int = 0) -> None:
        name = type(self).__name__
        self.capacity = check_size(name, "capacity", capacity)
        self.columns = Columns(name, buffer_shape, buffer_dtype)
        self.types = self.columns.types
        self.backend = native.choose_backend(backend, name)
        if self.backend == "composite":
            self.columns.check_composite()
        self.native = self.backend == "native"
        self.number = next(_numbers)
        # The caller's arrays have neither serial numbers nor a random state.
        self.serials = self._parameter("serials", np.zeros(2, np.int64))
        self.random_state = self._parameter("random_state", initial_state(seed))
        self.check_ring = self._check_in_graph(self._check_ring, "Ring")

    def _check_in_graph(self, check: Callable[..., bool], subject: str) -> Callable[..., bool]:
        """Return a check for compiled bodies. The compiler caches checks by name, so the name is unique."""
        return ops.constexpr(check, name=f"Check{subject}Of{type(self).__name__}{self.number}")

    def _parameter(self, name: str, value: np.ndarray) -> Parameter:
        """Make a Parameter of the operator, under a unique name: a graph may use any number of operators."""
        parameter = state_parameter(f"{type(self).__name__}_{self.number}.{name}", value)
        load_in_place(parameter)
        return parameter

    def _check_ring(self, shapes: Shapes, types: Types, cursors: tuple[Any, ...]) -> bool:
        name, columns = type(self).__name__, self.columns
        if len(shapes) != len(columns):
            raise ValueError(f"For '{name}', 'buffer' must hold {len(columns)} columns, but got {len(shapes)}.")
        wrong = []
        for i, (shape, dtype) in enumerate(zip(shapes, types)):
            expected, stored = (self.capacity, *columns.shapes[i]), columns.stored_types[i]
            # MindSpore's operators cannot scatter bool.
            if tuple(shape) != expected or (dtype != stored and not (dtype == columns.types[i] and self.native)):
                wrong.append(
                    f"column {i}: expected {type_name(stored)} {expected}, but got {type_name(dtype)} {tuple(shape)}"
                )
        if wrong:
            raise ValueError(f"For '{name}', 'buffer' must hold the columns of the operator. {'; '.join(wrong)}.")
        for argument, (shape, dtype) in zip(("count", "head"), (cursors[:2], cursors[2:])):
            if tuple(shape) != () or dtype != ms.int32:
                raise ValueError(
                    f"For '{name}', '{argument}' must be int32 of shape (), but got {type_name(dtype)} of shape "
                    f"{tuple(shape)}."
                )
        return True

    def _checked_in_python(self, buffer: Sequence[Tensor], count: Tensor, head: Tensor) -> None:
        raise_earlier_failure()
        self._checked(buffer, count, head)

    def _checked(self, buffer, count, head):
        shapes = ()
        types = ()
        for column in buffer:
            shapes = shapes + (column.shape,)
            types = types + (column.dtype,)
        self.check_ring(shapes, types, (count.shape, count.dtype, head.shape, head.dtype))
