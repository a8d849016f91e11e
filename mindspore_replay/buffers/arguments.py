"""Arguments of graph bodies, which the checks of calls from Python check while a graph is compiled."""

from typing import NoReturn

import mindspore as ms
from mindspore import Tensor, ops

from ..mindspore_api import isconstant
from .compile_time import MAPPING, NUMBER, TENSOR, compile_time


class Arguments:
    """What graph bodies pass to their checks, and what they make of checked arguments."""

    def _known(self, value):
        """Return what the compiler knows of an argument: a constant, dtype and shape of a Tensor, or that it exists."""
        if isinstance(value, Tensor):
            return (TENSOR, value.dtype, value.shape)
        if isinstance(value, dict):
            return (MAPPING, tuple(value.keys()), self._each_known(tuple(value.values())))
        if isinstance(value, (list, tuple)):
            return self._each_known(value)
        return value if isconstant(value) else NUMBER

    def _each_known(self, values):
        known = ()
        for value in values:
            known = (*known, self._known(value))
        return known

    def _at(self, value, path):
        """Return what these keys lead to."""
        for i in range(len(path)):
            value = value[path[i]]
        return value

    def _as_handles(self, indices):
        """Return checked handles as int64 ``[n]``."""
        if not isinstance(indices, Tensor):
            raise TypeError("In a graph, 'indices' must be a Tensor of ints: pass a Tensor.")
        return ops.reshape(ops.cast(indices, ms.int64), (-1,))

    def _as_dtype(self, argument, value, dtype):
        """Return a checked number or Tensor as a Tensor."""
        if not isinstance(value, (Tensor, bool, int, float)):
            self._refuse_no_tensor(argument)
        return ops.cast(value, dtype)

    @compile_time
    def _refuse_no_tensor(self, argument: str) -> NoReturn:
        raise TypeError(f"In a graph, '{argument}' must be a Tensor or a number: pass a Tensor.")
