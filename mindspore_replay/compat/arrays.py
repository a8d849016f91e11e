"""Arrays of a fixed size, `TensorArray` and the operators on it, under the names that they had in MindSpore.

MindSpore RL's A2C and policy gradient collect an episode in them. A handle is the array itself.
"""

import itertools

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..buffers.parameters import state_parameter
from ..columns import TYPES, numpy_type
from ..store.base.schema import type_name
from .base import Operator

_numbers = itertools.count()


@ms.jit_class
class _FixedArray:
    """The rows of an array, ``[N, *F]``, and the number of rows written, int64 ``[]``."""

    def __init__(self, dtype: object, shape: tuple[int, ...], size: int) -> None:
        name = f"TensorArray_{next(_numbers)}"
        self.dtype = TYPES[type_name(dtype)]
        self.shape = shape
        self.rows = state_parameter("rows", np.zeros((size, *shape), numpy_type(dtype)))
        self.count = state_parameter("count", np.zeros((), np.int64))
        self.rows.name, self.count.name = f"{name}.rows", f"{name}.count"
        self.none, self.empty = Tensor(0, ms.int64), Tensor(np.zeros((size, *shape), numpy_type(dtype)))


@ms.jit_class
class TensorArray(Operator):
    """Makes an array. A call returns its handle.

    Args:
        dtype (mindspore.dtype): Dtype of a row, a number.
        element_shape (tuple[int, ...]): Shape ``F`` of a row.
        dynamic_size (bool): Must be ``False``. Default: ``True``.
        size (int): ``N``, rows. Default: ``0``.
        name (str): Not used. Default: ``"TA"``.
    """

    def __init__(
        self, dtype: object, element_shape: tuple[int, ...], dynamic_size: bool = True, size: int = 0, name: str = "TA"
    ) -> None:
        self.array = None if dynamic_size else _FixedArray(dtype, tuple(element_shape), size)

    def __call__(self):
        """Return the handle. Raise a NotImplementedError if the array were to grow."""
        if self.array is None:
            raise NotImplementedError(
                "MindSpore no longer has the operator 'TensorArray', and this package replaces only arrays with "
                "dynamic_size=False."
            )
        return self.array


class _OnArray(Operator):
    """An operator on an array. Its constructor's arguments are ignored, since the array stores them."""

    def __init__(self, *args: object) -> None:
        del args


@ms.jit_class
class TensorArrayWrite(_OnArray):
    """``(handle, index, value) -> rows written``: writes a row."""

    def __call__(self, handle, index, value):
        """Write the row."""
        row = ops.reshape(ops.cast(value, handle.dtype), (1, *handle.shape))
        ops.scatter_update(handle.rows, ops.reshape(ops.cast(index, ms.int32), (1,)), row)
        ops.assign(handle.count, ops.maximum(handle.count, ops.reshape(ops.cast(index, ms.int64), ()) + 1))
        return handle.count + 0


@ms.jit_class
class TensorArrayRead(_OnArray):
    """``(handle, index) -> row [*F]``."""

    def __call__(self, handle, index):
        """Read the row."""
        return ops.gather(handle.rows, ops.reshape(ops.cast(index, ms.int32), ()), 0)


@ms.jit_class
class TensorArrayStack(_OnArray):
    """``(handle) -> rows [N, *F]``: copies all rows, zeros where none was written."""

    def __call__(self, handle):
        """Copy all rows."""
        return handle.rows + handle.empty


@ms.jit_class
class TensorArraySize(_OnArray):
    """``(handle) -> int64 []``: rows written."""

    def __call__(self, handle):
        """Return the number of rows written."""
        return handle.count + 0


@ms.jit_class
class TensorArrayClear(_OnArray):
    """``(handle) -> int64 []``: forgets all rows."""

    def __call__(self, handle):
        """Forget all rows."""
        ops.assign(handle.rows, handle.empty)
        return ops.assign(handle.count, handle.none)


@ms.jit_class
class TensorArrayClose(TensorArrayClear):
    """``(handle) -> int64 []``: forgets all rows. The memory is freed with the array."""
