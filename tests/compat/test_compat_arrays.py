"""Arrays of a fixed size under the names of MindSpore's `TensorArray`, in graphs and from Python."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_replay.compat import arrays

SIZE = 5


class Collect(nn.Cell):
    """Uses an array as MindSpore RL's `TensorArray` does."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.handle = arrays.TensorArray(dtype, (2,), False, SIZE, "TA")()
        self.write, self.read = arrays.TensorArrayWrite(), arrays.TensorArrayRead(dtype, (2,))
        self.stack = arrays.TensorArrayStack(dtype, (2,), False, SIZE)
        self.size, self.clear = arrays.TensorArraySize(), arrays.TensorArrayClear()
        self.zero = Tensor(0, ms.int64)

    def construct(self, rows, n):
        t = self.zero
        while t < n:
            self.write(self.handle, t, rows[t])
            t = t + 1
        first, stacked, size = self.read(self.handle, self.zero), self.stack(self.handle), self.size(self.handle)
        self.clear(self.handle)
        return first, stacked, size, self.size(self.handle), self.stack(self.handle)


@pytest.mark.parametrize("dtype", [ms.float32, ms.int32])
@pytest.mark.parametrize("compiled", [True, False])
def test_rows_are_written_stacked_and_forgotten(dtype: Any, compiled: bool):
    """A second call finds nothing of the first, which wrote more rows."""
    cell = Collect(dtype)
    call = ms.jit(cell.construct) if compiled else cell.construct
    rows = np.arange(2, 2 + 2 * SIZE).reshape(SIZE, 2)
    for n in (4, 2):
        first, stacked, size, none, cleared = call(Tensor(rows, dtype), Tensor(n))
        expected = np.where(np.arange(SIZE)[:, None] < n, rows, 0)
        assert stacked.dtype == dtype
        np.testing.assert_array_equal(stacked.asnumpy(), expected)
        np.testing.assert_array_equal(first.asnumpy(), rows[0])
        assert (int(size), int(none)) == (n, 0)
        assert not cleared.asnumpy().any()


def test_arrays_are_apart():
    one, other = Collect(ms.float32), Collect(ms.float32)
    one.write(one.handle, 1, Tensor([1.0, 2.0]))
    assert (int(one.size(one.handle)), int(other.size(other.handle))) == (2, 0)
    assert not other.stack(other.handle).asnumpy().any()


def test_an_array_that_grows_says_so():
    made = arrays.TensorArray(ms.float32, ())
    with pytest.raises(NotImplementedError, match="replaces only arrays with dynamic_size=False"):
        made()
