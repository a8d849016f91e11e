"""Checks of arguments that several methods share, and of the parts that a method needs in a buffer."""

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from ..columns import numpy_type
from ..mindspore_api import isconstant
from ..store.checks import need_episodes, need_priorities, need_weights
from ..store.inputs import as_handles, as_priority, check_length
from .attributes import Attributes
from .compile_time import compile_time


class Arguments(Attributes):
    """Checks of handles and priorities, in graphs and from Python, and of the parts that a method needs."""

    def _handles_graph(self, indices):
        if not self.has_handles:
            raise RuntimeError("For a buffer without weights, there are no 'indices'. Make it with weighted=True.")
        if not isinstance(indices, Tensor):
            raise TypeError("In a graph, 'indices' must be a Tensor of ints: pass a Tensor.")
        self._check_handles(indices.dtype, indices.shape)
        return ops.reshape(ops.cast(indices, ms.int64), (-1,))

    @compile_time
    def _check_handles(self, dtype: Any, shape: tuple[int, ...]) -> bool:
        self._handles(np.zeros(shape, numpy_type(dtype)))
        return True

    def _handles(self, indices: Any) -> np.ndarray:
        return as_handles(type(self).__name__, indices)

    def _as_priority(self, priority, rows):
        if isinstance(priority, Tensor):
            self._check_priority(priority.dtype, priority.shape, rows)
        elif not isinstance(priority, (bool, int, float)):
            raise TypeError("In a graph, priorities must be a Tensor or a number: pass a Tensor.")
        elif isconstant(priority):
            self._check_priority_number(priority)
        return ops.cast(priority, ms.float32)

    @compile_time
    def _check_priority(self, dtype: Any, shape: tuple[int, ...], rows: int) -> bool:
        check_length(type(self).__name__, as_priority(type(self).__name__, np.ones(shape, numpy_type(dtype))), rows)
        return True

    @compile_time
    def _check_priority_number(self, priority: Any) -> bool:
        as_priority(type(self).__name__, priority)
        return True

    def _need_weights(self, method: str) -> None:
        need_weights(type(self).__name__, self.weighted, method)

    def _need_priorities(self, method: str) -> None:
        need_priorities(type(self).__name__, self.prioritized, method)

    def _need_episodes(self, what: str) -> None:
        need_episodes(type(self).__name__, self.has_episodes, what)
