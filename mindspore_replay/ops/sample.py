"""A uniform sample: slots are drawn and their rows gathered, natively in one launch."""

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from . import native
from .random import CompositeDraw
from .ring import CompositeGather


@ms.jit_class
class CompositeSample:
    """``(columns, head, count, state, sample_range [2]) -> rows``, each ``[n, *F]``. Changes the random state."""

    def __init__(self, n: int, capacity: int, replace: bool, ordered: bool, types: Sequence[Any]) -> None:
        self.draw = CompositeDraw(n, capacity, replace, ordered)
        self.gather = CompositeGather(types)

    def __call__(self, columns, head, count, state, sample_range):
        return self.gather(columns, self.draw(state, head, count, sample_range))


@ms.jit_class
class NativeSample:
    """``(columns, head, count, state, sample_range [2]) -> rows``, each ``[n, *F]``. Changes the random state."""

    def __init__(self, n: int, capacity: int, replace: bool, ordered: bool, types: Sequence[Any]) -> None:
        self.options = Tensor(np.array([capacity, replace, ordered], np.int64))
        k = len(types)
        self.sample = native.custom(
            "replay_sample_uniform", lambda *shapes: tuple((n, *shape[1:]) for shape in shapes[:k]), tuple(types)
        )

    def __call__(self, columns, head, count, state, sample_range):
        return self.sample(*columns, head, count, state, sample_range, self.options)
