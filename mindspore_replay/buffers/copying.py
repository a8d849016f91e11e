"""Copies of buffers in the memory of this process."""

import copy
import re
from collections.abc import Mapping
from typing import Any

from mindspore import Parameter, nn

from ..mindspore_api import cells_of
from ..store.faces.front import SharedRows
from ..store.rows.store import Store
from ..store.waits.limiter import RateLimiter
from .compile_time import names_in
from .parameters import overwrite

#: Attributes that never change, which a copy shares, and those that it makes anew.
_SHARED = {"spec", "columns", "names", "shapes", "types", "layout", "options", "_check", "_zero", "_flag_values"}
_OWN = {"updates", "compressed", "_front", "_block", "_watched", "_sizes", "_guard"}


def keep_names(cls_name: str, parameters: Mapping[str, Parameter], copies: Mapping[str, Parameter]) -> None:
    """Copy the names that an owner gave the Parameters. Without an owner each object keeps its names."""
    for key, parameter in copies.items():
        name = parameters[key].name
        if not re.match(rf"{cls_name}_\d+\.", name):
            parameter.name = name


def deep_copy(buffer: Any, memo: dict[Any, Any]) -> Any:
    """Make an independent buffer with the same rows, random state and options, and a copy of the limiter.

    It has no folder. Buffers that `with_sample_size` made on the same rows are so in a copy of their owner too.
    """
    front = buffer._front
    rows = "rows", id(front.shared)
    if rows in memo:
        memo[id(buffer)] = clone = memo[rows].with_sample_size(buffer.sample_size)
        return clone
    with front.lock:
        memo[id(buffer)] = memo[rows] = clone = _without_limiter(buffer, memo)
        clone._front.begin_queue()
        if isinstance(buffer.limiter, RateLimiter):
            clone.limiter = copy.deepcopy(buffer.limiter, memo)
        elif buffer.limiter is not None:
            clone.limiter.timeout = buffer.limiter.timeout
    return clone


def _without_limiter(buffer: Any, memo: dict[Any, Any]) -> Any:
    cls: Any = type(buffer)
    clone = cls.__new__(cls)
    nn.Cell.__init__(clone)
    for key in vars(buffer).keys() - vars(clone).keys() - _OWN - names_in(cls):
        value = vars(buffer)[key]
        clone.__dict__[key] = value if key in _SHARED else copy.deepcopy(value, memo)
    shared = SharedRows(None)
    calls = clone._make_state(shared)
    _copy_state(buffer, clone, calls)
    clone._make_front(calls, shared)
    own = dict(clone.parameters_and_names(expand=False))
    for name, parameter in dict(buffer.parameters_and_names(expand=False)).items():
        if name not in own:  # of a subclass, as are sub-cells
            clone.insert_param_to_cell(name, copy.deepcopy(parameter, memo), check_name_contain_dot=False)
    for name, cell in cells_of(buffer).items():
        clone.insert_child_to_cell(name, copy.deepcopy(cell, memo))
    keep_names(type(buffer).__name__, buffer.state.state_parameters(), clone.state.state_parameters())
    return clone


def _copy_state(buffer: Any, clone: Any, calls: Store | None) -> None:
    with buffer.state.snapshot(columns=True) as arrays:
        if calls is not None:  # nothing of MindSpore, which may wait for graphs that wait for a folder
            for key, array in calls.arrays.items():
                if key in clone.compressed:
                    clone.compressed[key].load_checked(arrays[key])
                else:
                    array[...] = arrays[key]
        else:
            for key, parameter in clone.parameters_and_names():
                overwrite(parameter, arrays[key])
