"""The Parameters that hold a buffer's state: how they are made, overwritten and checked."""

import weakref
from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from ..columns import numpy_type, type_name
from ..ops import native
from ..ops.eager import wait_for_work
from ..ops.sum_tree import build_weights


def state_parameter(name: str, value: Any) -> Parameter:
    """A Parameter that no optimizer touches, with nothing in it for single rows."""
    parameter = Parameter(Tensor(value), name=name, requires_grad=False)
    parameter.whole = True
    return parameter


def is_whole(parameter: Parameter) -> bool:
    """Whether `state_parameter` made it, so that it holds nothing for single rows."""
    return getattr(parameter, "whole", False)


def times_loaded(parameter: Parameter) -> int:
    """How often ``set_data`` has given the Parameter other values, since `load_in_place`."""
    return getattr(parameter, "loads", 0)


def load_in_place(parameter: Parameter) -> None:
    """Makes ``set_data``, by which checkpoints are loaded, write into the memory that is there.

    MindSpore would give the Parameter other memory, and a compiled graph may go on reading what it first read.
    """
    reference = weakref.ref(parameter)

    def set_data(data: Any, slice_shape: bool = False) -> Parameter:
        own: Any = reference()
        own.loads = times_loaded(own) + 1
        if not (isinstance(data, Tensor) and data.dtype == own.dtype and data.shape == own.shape):
            return Parameter.set_data(own, data, slice_shape)
        wait_for_work()
        overwrite(own, data.asnumpy())
        return own

    parameter.set_data = set_data


def overwrite(parameter: Parameter, array: np.ndarray | np.generic) -> None:
    """Gives a Parameter other values of the same shape and dtype."""
    if native.host_memory():
        parameter.asnumpy()[...] = array  # this is the Parameter's own memory
    else:
        data = Tensor(np.asarray(array, numpy_type(parameter.dtype)))
        if parameter.dtype == ms.bfloat16:  # MindSpore's operator does not take it
            Parameter.set_data(parameter, data)
        else:
            ops.assign(parameter, data)


def check_layout(cls_name: str, state: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, np.ndarray]:
    """The arrays for these Parameters out of a saved state, or a ValueError that lists every one that does not fit."""
    arrays = {key: np.asarray(state[key]) for key in parameters if key in state}
    for key, array in arrays.items():
        if parameters[key].dtype == ms.bfloat16 and array.dtype == "V2":  # what a NumPy file makes of bfloat16
            arrays[key] = array.view(numpy_type(ms.bfloat16))
    wrong = []
    for key, parameter in parameters.items():
        expected = f"{type_name(parameter.dtype)} {tuple(parameter.shape)}"
        got = f"{arrays[key].dtype.name} {arrays[key].shape}" if key in arrays else "nothing"
        if got != expected:
            wrong.append(f"{key!r}: expected {expected}, but got {got}")
    unknown = sorted(set(state) - set(parameters) - {"version", "capacity"})
    if unknown:
        wrong.append(f"unknown keys {unknown}")
    if wrong:
        raise ValueError(
            f"For '{cls_name}', 'state_dict' must be that of a buffer with the same columns. {'; '.join(wrong)}."
        )
    return arrays


def check_cursors(cls_name: str, capacity: int, cursors: Mapping[str, np.ndarray]) -> None:
    """Raises a ValueError if ``head``, ``count`` and ``serials`` contradict each other."""
    head, count = int(cursors["head"]), int(cursors["count"])
    inserted, base = (int(serial) for serial in cursors["serials"])
    since_reset = inserted - base
    if base < 0 or since_reset < 0 or count != min(since_reset, capacity) or head != (since_reset - count) % capacity:
        raise ValueError(
            f"For '{cls_name}', the cursors must describe a ring of capacity {capacity}: count = min(inserted - base, "
            f"capacity) and head = (inserted - base - count) % capacity, but got head={head}, count={count}, "
            f"inserted={inserted}, base={base}."
        )


def check_reservoir(cls_name: str, capacity: int, state: Mapping[str, np.ndarray]) -> None:
    """Raises a ValueError if cursors and ``row_serials`` contradict each other."""
    head, count = int(state["head"]), int(state["count"])
    inserted, base = (int(serial) for serial in state["serials"])
    if head != 0 or base < 0 or count != min(inserted - base, capacity):
        raise ValueError(
            f"For '{cls_name}', the cursors must describe a reservoir of capacity {capacity}: head = 0 and count = "
            f"min(inserted - base, capacity), but got head={head}, count={count}, inserted={inserted}, base={base}."
        )
    stored = state["row_serials"][:count]
    first = (stored - base < capacity) & (stored - base != np.arange(count))
    if count and (stored.min() < base or stored.max() >= inserted or first.any() or np.unique(stored).size < count):
        raise ValueError(
            f"For '{cls_name}', 'row_serials' must be different numbers from {base} to {inserted - 1}, and each of the "
            f"first {capacity} of them in its own slot, but got {stored}."
        )


def check_slots(cls_name: str, state: Mapping[str, np.ndarray]) -> None:
    """Raises a ValueError if a weighted reservoir does not name its rows by slots, or their clocks cannot be."""
    count, (now, fresh) = int(state["count"]), state["clock"].tolist()
    clocks = state["insertion_clocks"][:count]
    if state["slot_serials"].tolist() != [count, 0] or fresh != 0 or now < 0 or ((clocks < 0) | (clocks > now)).any():
        raise ValueError(
            f"For '{cls_name}', 'slot_serials' must be [{count}, 0], 'clock' [now, 0], and 'insertion_clocks' from 0 "
            f"to now, but got {state['slot_serials'].tolist()}, {[now, fresh]} and {clocks.tolist()}."
        )


def check_times(cls_name: str, capacity: int, state: Mapping[str, np.ndarray]) -> None:
    """Raises a ValueError if the rows' clocks contradict their order in the ring."""
    wrong = []
    inserted, count = int(state["serials"][0]), int(state["count"])
    if not (state["clock"][0] >= 0 and inserted - count <= state["clock"][1] <= inserted):
        wrong.append(f"'clock' is {state['clock'].tolist()}, with {count} rows stored of {inserted} inserted")
    slots = (int(state["head"]) + np.arange(count)) % capacity
    times = np.array([0, *state["insertion_clocks"][slots], state["clock"][0]])
    if (np.diff(times) < 0).any():
        wrong.append("'insertion_clocks' fall from an older row to a newer one, or are not from 0 to the clock")
    if wrong:
        raise ValueError(f"For '{cls_name}', the clocks must be those of its rows: {'; '.join(wrong)}.")


def check_weights(
    cls_name: str, capacity: int, state: Mapping[str, np.ndarray], eligible: np.ndarray, alpha: float, epsilon: float
) -> None:
    """Raises a ValueError if the tree is not that of its leaves, or a leaf is not the weight of its row."""
    leaves = state["weights"][:capacity]
    wrong = []
    if not np.array_equal(state["weights"], build_weights(leaves)):
        wrong.append("the tree of 'weights' is not that of its leaves")
    priorities = state["priorities"]
    normal = np.where(priorities < np.finfo(np.float32).tiny, 0.0, priorities.astype(np.float64))
    expected = (normal + epsilon) ** alpha * eligible
    different = np.flatnonzero(~np.isclose(leaves, expected, rtol=1e-6, atol=0))
    if different.size:
        slot = different[0]
        wrong.append(f"the weight in slot {slot} must be {expected[slot]}, but got {leaves[slot]}")
    if not (state["max_priority"] >= max(1, priorities.max()) and np.isfinite(state["max_priority"])):
        wrong.append(f"'max_priority' is {state['max_priority']}, less than a priority")
    if (state["counts"] < 0).any():
        wrong.append(f"'counts' is {state['counts'].tolist()}, with a number below zero")
    if wrong:
        raise ValueError(f"For '{cls_name}', the weights must be those of its rows: {'; '.join(wrong)}.")
