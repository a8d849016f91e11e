"""Shares of a batch among several sources."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..store.faces.mixture import ROUNDING
from .primitives import gather, int64, item
from .random import random_bits, unit_interval


@ms.jit_class
class PickRows:
    """``(ratios [m], state) -> source [n] int32, index [n] int64``: rows of m batches of n rows each.

    From each batch `exact_counts` rows are taken, in order, at equal distances, beginning at a random row: each row is
    equally likely, and rows of neighbouring strata stay apart. Changes the state.

    Args:
        n (int): Rows.
        sources (int): ``m``.
    """

    def __init__(self, n: int, sources: int) -> None:
        self.n, self.sources = n, sources
        self.size = Tensor(n, ms.float64)
        self.rounding = Tensor(ROUNDING, ms.float64)
        self.position = Tensor(np.arange(n), ms.int64)
        self.first = Tensor(np.eye(1, sources)[0], ms.int64)

    def __call__(self, ratios, state):
        """Choose the source and the row for each row of the batch."""
        total = item(ops.cumsum(ratios, 0), self.sources - 1)
        counts = ops.cast(ops.floor(ratios / total * self.size + self.rounding), ms.int64)
        ends = ops.cumsum(counts, 0)
        counts = counts + self.first * (int64(self.n) - item(ends, self.sources - 1))
        ends = ops.cumsum(counts, 0)
        source = ops.searchsorted(ends, self.position, right=True)
        bits, advanced = random_bits(state, self.sources)
        taken = gather(counts, source, 0)
        place = self.position - gather(ends, source, 0) + taken
        offset = gather(unit_interval(bits), source, 0)
        points = (ops.cast(place, ms.float64) + offset) * self.size / ops.cast(taken, ms.float64)
        index = ops.cast(ops.ceil(points), ms.int64) - int64(1)
        ops.assign(state, advanced)
        return ops.cast(source, ms.int32), ops.clamp(index, int64(0), int64(self.n - 1))
