"""Checks of the arguments of graph bodies while a graph is compiled: those of calls from Python."""

from collections.abc import Callable
from typing import Any, NoReturn

import mindspore as ms
from mindspore import Tensor, ops

from ..mindspore_api import isconstant
from ..store.base.checks import range_of
from ..store.base.random import ALL_ROWS
from ..store.rows.inputs import as_beta, as_handles_for, as_positions, as_priorities, as_steps
from ..store.spec.needs import need_episodes, need_lengths
from ..store.spec.spec import BufferSpec
from .compile_time import MAPPING, NUMBER, TENSOR, compile_time, stand_in


def _check_sample(spec: BufferSpec, beta: Any, longest: bool, as_dict: bool, with_indices: bool) -> None:
    if longest:
        need_lengths(spec.columns)
        raise ValueError(
            f"For '{spec.cls_name}', the length of a sample is known when a graph is compiled, but got longest=True: "
            "leave it out, give the constructor 'sample_length', or call 'sample' from Python."
        )
    as_beta(spec.options, beta)
    spec.sample_names(as_dict, with_indices)


#: For a method, what checks its arguments.
_CHECKS: dict[str, Callable[..., object]] = {
    "advance": lambda spec, steps: as_steps(spec.options, steps, int),
    "delete": lambda spec, indices: as_handles_for(spec.options, "delete", indices),
    "end_episodes": lambda spec: need_episodes(spec.options, "end_episodes"),
    "get_item": lambda spec, index: as_positions(spec.cls_name, index),
    "info": lambda spec, indices: as_handles_for(spec.options, "info", indices),
    "sample": _check_sample,
    "sample_range": lambda spec, bounds: range_of(spec.cls_name, bounds, ALL_ROWS[1]),
    "update_priorities": lambda spec, indices, priorities: as_priorities(spec.options, indices, priorities),
}


class Arguments:
    """The methods by which graph bodies check and convert their arguments."""

    spec: BufferSpec

    @compile_time
    def _check_call(self, method: str, *known: object) -> bool:
        """Check what is known of a call's arguments."""
        _CHECKS[method](self.spec, *map(stand_in, known))
        return True

    def _known(self, value):
        """Return what is known of an argument at compile time: a constant, a dtype and shape, or its presence."""
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
