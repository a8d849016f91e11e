"""Reads a Parameter in place.

A graph that reads a Parameter twice, with any write in between, reads copies of the whole Parameter, which on the CPU
go through float32 if it is float64. An operator that writes returns the Parameter itself, so writing nothing returns a
handle to read from. The compiler does not order later writes after such reads: tie the values to write to them by
``ops.depend``.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops
from numpy.typing import DTypeLike

from ..columns import numpy_type
from .primitives import gather


@ms.jit_class
class InPlace:
    """``(parameter) -> parameter``, to read from. Adds zero to its first row.

    Args:
        shape (tuple[int, ...]): Shape of a row of the Parameter.
        dtype (numpy.dtype): Its dtype.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.first = Tensor([0], ms.int64)
        self.nothing = Tensor(np.full((1, *shape), -0.0).astype(dtype))  # 0.0 would change the sign of -0.0

    def __call__(self, parameter):
        """Return the Parameter itself, after a write that changes nothing."""
        return ops.scatter_add(parameter, self.first, self.nothing)

    def done(self, parameter, values):
        """Make later writes to any Parameter wait for the reads that gave these values."""
        ops.scatter_add(parameter, self.first, ops.depend(self.nothing, values))


@ms.jit_class
class Stored:
    """A Parameter of the state, whose rows are read and written by slot."""

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        self.in_place = InPlace(parameter.shape[1:], numpy_type(parameter.dtype))

    def view(self):
        """Return the Parameter, to read from."""
        return self.in_place(self.parameter)

    def at(self, slots):
        """Return copies of the rows in these slots."""
        return gather(self.view(), slots, 0)

    def replace(self, slots, chosen, rows):
        """Write rows to the chosen slots. Entries for one slot are the same."""
        ops.scatter_update(self.parameter, slots, ops.select(chosen, rows, self.at(slots)))

    def done(self, values):
        """Make later writes to any Parameter wait for the reads that gave these values."""
        self.in_place.done(self.parameter, values)
