"""The kernels that calls from Python use, and the arguments and results of each call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.random import ALL_ROWS
from ..base.schema import Schema
from ..spec.options import Options
from ..spec.plan import RELABELLED
from . import library
from .call import Array, Call, Tensors, fixed
from .signatures import INPUT, OUTPUT, OUTPUTS, ROWS, Item

#: For each kind of call, the operator, and the arguments that come with it in this order. All others stay the same.
_OPERATORS: dict[str, tuple[str, ...]] = {
    "sample": ("sample",),
    "sample_range": ("sample", "sample_range"),
    "sample_beta": ("sample", "sample_range", "given_beta"),
    "sample_groups": ("sample_groups", "options", "template"),
    "read": ("read", "index"),
    "update": ("update", "handles", "rows"),
    "update_priorities": ("update_priorities", "handles", "priority"),
    "delete": ("delete", "handles"),
    "info": ("info", "handles"),
    "advance": ("advance", "ticks"),
    "end_episodes": ("end_episodes",),
    "reset": ("reset",),
    "sums": ("sums", "ranges"),
}
#: Those that hold the guard. For the others, and for samples of rows that differ in length, the caller holds the
#: buffer's lock.
_GUARDED = ("sample", "sample_range", "update_priorities")

#: What an argument that comes with each call may be, as csrc/python/input.h has it.
Input = tuple[int, bool, bool, tuple[int, ...], np.dtype[Any], bool, Any]


def inputs_of(operator: str, names: Sequence[str], tensors: Tensors) -> list[Input]:
    """Return what a call may pass as these arguments of an operator, each one array."""
    items = {item.name: item for item in library.table("CPU")[1][operator].items}
    return [_input(items[name], tensors) for name in names]


def column_inputs(schema: Schema, tensors: Tensors) -> tuple[Input, ...]:
    """Return what a call may pass as the rows of each column."""
    return tuple(
        (1, False, True, schema.shapes[i], schema.numpy_types[i], dtype == "bfloat16", tensors.dtypes.get(dtype))
        for i, dtype in enumerate(schema.dtypes)
    )


def _input(item: Item, tensors: Tensors) -> Input:
    (axes, shape), or_one = _axes(item), item.extents[0].startswith("1|")
    dtype = "int8" if item.dtype == "any" else item.dtype
    return axes, or_one, False, shape, np.dtype(dtype), False, tensors.dtypes.get(dtype)


def _axes(item: Item) -> tuple[int, tuple[int, ...]]:
    """Return the number of axes of an argument that differ from call to call, and the shape of one without any."""
    size = item.extents[0].removesuffix("m") or "1"
    if not size.isdigit():  # a variable
        return len(item.extents), ()
    return 0, () if size == "1" else (int(size),)


#: A name of `_OPERATORS`; for ``"update"``, with the indices of the columns.
Key = str | tuple[str, tuple[int, ...]]


class Invocations(dict[Key, Callable[..., Any]]):
    """Functions that call kernels, each made when it is first used: methods of csrc/python/invocation.h.

    A function accepts the arguments and, optionally, the number of outputs to leave out. It returns a tuple of the
    outputs, or the only one that is neither rows nor a part of a sample, or an int, and nothing has changed, if the
    arguments do not fit or the kernel failed.

    Args:
        schema (Schema): The columns.
        options (Options): Options of the store.
        state (Mapping[str, Union[Array, Sequence[Array]]]): The arrays of the state, as arguments of kernels.
        tensors (Tensors): The Tensors that they accept and return.
    """

    def __init__(self, schema: Schema, options: Options, state: Mapping[str, Any], tensors: Tensors) -> None:
        super().__init__()
        self._schema, self._options, self._state, self._tensors = schema, options, state, tensors

    def __missing__(self, key: Key) -> Callable[..., Any]:
        name, chosen = key if isinstance(key, tuple) else (key, range(len(self._schema)))
        operator, *varying = _OPERATORS[name]
        items = library.table("CPU")[1][operator].present(self._options.groups)
        inputs = [item for argument in varying for item in items if item.name == argument]
        outputs = [item for item in items if item.role == OUTPUT]
        arguments = {**self._state, "columns": [self._state["columns"][i] for i in chosen]}
        for item in items:
            if item in inputs or item in outputs:
                arguments[item.name] = self._given(item, chosen)
            elif item.role == INPUT and item.name not in arguments:
                arguments[item.name] = fixed(self._constant(item.name, chosen))
        call = Call(operator, self._options.groups, arguments)
        tensors, is_single = self._tensors, len(outputs) == 1 and outputs[0].is_one
        # The caller computes with the outputs of relabelled samples, and makes Tensors of them.
        is_final = operator != "sample" or RELABELLED not in [output.kind for output in self._options.plan.outputs]
        share = tensors.share if is_final and not all(item.is_one for item in outputs) else None
        self[key] = library.calls.Invocation(
            tensors.guard if name in _GUARDED and not (operator == "sample" and self._options.length_groups) else None,
            call.direct,
            tuple(placed for item in inputs for placed in enumerate(self._inputs(item, chosen), call.place(item.name))),
            tuple(part for item in outputs for part in self._outputs(item, call)),
            is_single,
            share,
            tensors.cls,
            tensors.address_of,
        ).now
        return self[key]

    def operator(self, key: Key) -> str:
        """Return the operator of a call."""
        return _OPERATORS[key[0] if isinstance(key, tuple) else key][0]

    def _given(self, item: Item, chosen: Sequence[int]) -> Array | list[Array]:
        """Return an argument that differs from call to call."""
        schema, lead = self._schema, (1,) * _axes(item)[0]
        if item.name == OUTPUTS:
            return [Array(shape, dtype) for shape, dtype in self._options.plan.specs(schema)]
        if item.name == ROWS:
            return [Array((*lead, *schema.shapes[i]), schema.dtypes[i]) for i in chosen]
        return Array(lead or _axes(item)[1] or (1,), item.dtype.replace("any", "int8"))

    def _constant(self, name: str, chosen: Sequence[int]) -> np.ndarray:
        options = self._options
        if name in ("beta", "given_beta"):
            beta: np.ndarray = self._state["beta"].memory if "beta" in self._state else np.zeros(1)
            return beta
        makers: dict[str, Callable[[], np.ndarray]] = {
            "plan": options.plan.options,
            "powers": options.plan.powers,
            "sample_range": lambda: np.array(ALL_ROWS, np.int64),
            "max_staleness": options.stale_after,
            "written": lambda: options.written(chosen, counts=True),
            "flag": lambda: np.array([options.end_flags], np.uint8),
        }
        return makers[name]()

    def _inputs(self, item: Item, chosen: Sequence[int]) -> Sequence[Input]:
        if item.name != ROWS:
            return [_input(item, self._tensors)]
        inputs = column_inputs(self._schema, self._tensors)
        return [inputs[i] for i in chosen]

    def _outputs(self, item: Item, call: Call) -> list[tuple[Any, ...]]:
        schema, (axes, fixed) = self._schema, _axes(item)
        specs: list[tuple[tuple[int, ...], np.dtype[Any]]]
        if item.name == OUTPUTS:
            specs, axes = [(s, schema.numpy_type(dtype)) for s, dtype in self._options.plan.specs(schema)], 0
        elif item.name == ROWS:
            specs = list(zip(schema.shapes, schema.numpy_types))
        else:
            specs = [(fixed, np.dtype(item.dtype))]
        place = call.place(item.name)
        return [(place + k, axes, library.calls.Output(*spec)) for k, spec in enumerate(specs)]
