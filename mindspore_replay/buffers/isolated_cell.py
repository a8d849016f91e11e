"""Base class of Cells that keep names and dtypes independent of their owner."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from ..mindspore_api import NAMES, isconstant, need
from ..ops.eager import wait_for_work
from ..store.base.habits import wrong_sample
from ..store.base.mixins import mixin
from ..store.rows.inputs import as_array
from .compile_time import compile_time

#: Flags that mixed precision sets on a Cell and all its sub-cells, with the dtype that operators then compute in.
_PRECISIONS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


@mixin
class IsolatedCell:
    """A Cell whose Parameters keep their names and dtypes in any owner.

    A checkpoint uses the Cell's own names for its Parameters, and mixed precision of its owner, by ``to_float`` or
    ``amp``, does not cast its data. ``bool`` of it is True even if its length is 0.
    """

    def add_flags(self, **flags: object) -> nn.Cell:
        """Add flags as ``nn.Cell.add_flags`` does, except those of mixed precision."""
        columns = getattr(self, "columns", None)
        for flag, dtype in _PRECISIONS.items():
            if flags.pop(flag, False) and columns is not None:
                columns.owner_dtype = dtype
        return nn.Cell.add_flags(self, **flags)

    _OTHER_SIZE: str

    def _refuse_graph(self, misplaced, unknown):
        """Raise the error for arguments that `sample` does not have, while the graph is compiled."""
        if len(misplaced) + len(unknown) > 0:
            arguments = ()
            for value in misplaced:
                arguments = (*arguments, value if isconstant(value) else "...")
            self._refuse_arguments(arguments, tuple(unknown.keys()))

    @compile_time
    def _refuse_arguments(self, misplaced: tuple[Any, ...], unknown: tuple[str, ...]) -> bool:
        raise self._wrong_sample(misplaced, dict.fromkeys(unknown, ...))

    def _wrong_sample(self, misplaced: Sequence[Any], unknown: Mapping[str, Any]) -> TypeError:
        return wrong_sample(type(self).__name__, self, misplaced, unknown, self._OTHER_SIZE)

    def _len_graph(self):
        raise RuntimeError(
            "'len' of a buffer, and a loop over one, work only in Python: in a graph size() returns a Tensor, and "
            "sample() a batch."
        )

    def __bool__(self) -> bool:
        return True

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Iterate over the Parameters, each of which has the yielded name during its iteration."""
        for key, parameter in nn.Cell.parameters_and_names(self, name_prefix, expand):
            name, parameter.name = parameter.name, key
            try:
                yield key, parameter
            finally:
                if parameter.name == key:
                    parameter.name = name

    def _load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Check and load all arrays of the Cell and its sub-cells, by the names of the Parameters, or none."""
        raise NotImplementedError

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        _metadata: object,
        _strict: bool,
        missing_keys: list[str],
        _unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # Called by ``nn.Cell.load_state_dict`` of an owner, whose own way is to give each Parameter new memory.
        parameters = dict(self.parameters_and_names())
        arrays = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        if parameters and not arrays:
            missing_keys.extend(prefix + key for key, _ in self.parameters_and_names(expand=False))
        if not arrays or error_msgs or all(parameters.get(key) is value for key, value in arrays.items()):
            return
        wait_for_work()
        try:
            self._load_from_cell({key: as_array(value) for key, value in arrays.items()})
        except (RuntimeError, ValueError) as error:
            error_msgs.append(str(error))
        else:  # sub-cells have nothing left to load
            state_dict.update({prefix + key: parameter for key, parameter in parameters.items()})


def _refuse_loads(load: Any) -> Any:
    """Return ``nn.Cell.load_state_dict`` for a MindSpore that does not call `_load_from_state_dict`."""

    @functools.wraps(load)
    def load_state_dict(self: nn.Cell, *arguments: Any, **keywords: Any) -> Any:
        if any(hasattr(cell, "_load_from_cell") for _, cell in self.cells_and_names()):
            need("'load_state_dict' of a Cell that holds a buffer", "LOAD")
        return load(self, *arguments, **keywords)

    return load_state_dict


if not NAMES["LOAD"].found and hasattr(nn.Cell, "load_state_dict"):
    nn.Cell.load_state_dict = _refuse_loads(nn.Cell.load_state_dict)
