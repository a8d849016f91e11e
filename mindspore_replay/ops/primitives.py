"""Operators and pieces of compiled bodies that MindSpore compiles fast.

For each graph MindSpore parses every called function again, also those of ``mindspore.ops``, and what their overloads
need. Measured in ms, for the first use in a graph: ``ops.arange`` 240, ``ops.searchsorted`` 65, ``x[0]`` 64,
``x[:, 0]`` 47, ``max(a, b)`` 40, ``ops.gather`` and ``ops.stack`` 10. Those here need 1 to 4.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..mindspore_api import make_dict

#: ``(x, indices, axis)``
gather = ops.Gather()
#: ``(tensors)``
stack = ops.Stack()
#: ``(tensors)``, along the first axis.
concat = ops.Concat()
#: ``(tensors)``, along the second axis.
concat_columns = ops.Concat(1)
#: ``(x)``
zeros_like = ops.ZerosLike()
#: The least float32 that is not subnormal.
LEAST_NORMAL = float(np.finfo(np.float32).tiny)
#: ``(sorted, values)``: the first place, int64, whose element is at least the value.
searchsorted = ops.SearchSorted()
#: The same as int32, for ints: MindSpore registers it for no floats on Ascend.
searchsorted_int32 = ops.SearchSorted(ms.int32)
#: ``(n) -> int64 [n]``: the numbers from 0 on. `n` is known at compile time.
range_of = ops.constexpr(lambda n: Tensor(np.arange(n, dtype=np.int64)), name="mindspore_replay_range_of")

#: ``(number) -> int64 []`` of a number that is known at compile time.
int64 = ops.constexpr(lambda number: Tensor(number, ms.int64), name="mindspore_replay_int64")

_places = ops.constexpr(lambda first, last: Tensor(np.arange(first, last)), name="mindspore_replay_places")


def item(vector, i):
    """Return the element ``[]`` of a vector, at a place that is known at compile time."""
    return gather(vector, int64(i), 0)


def column(matrix, i):
    """Return a column of a matrix, at a place that is known at compile time."""
    return gather(matrix, int64(i), 1)


def columns(matrix, first, last):
    """Return the columns from a first one up to a last one, not included. Both are known at compile time."""
    return gather(matrix, _places(first, last), 1)


def normal(priority):
    """Return priorities as they are stored: a subnormal one counts as 0."""
    return ops.select(priority < LEAST_NORMAL, zeros_like(priority), priority)


def named_in_graph(steps, batch):
    """Return the tuple of a sample's parts as a dict, made in these steps.

    MindSpore confuses the items of a dict made of an operator's outputs with the operator's inputs. So this returns an
    explicit tuple.
    """
    parts = ()
    for part in batch:
        parts = (*parts, part)
    for j in range(len(steps)):
        keys, places = steps[j]
        values = ()
        for i in range(len(places)):
            values = (*values, parts[places[i]])
        parts = (*parts, values) if keys is None else (*parts, make_dict(keys, values))
    return parts[-1]
