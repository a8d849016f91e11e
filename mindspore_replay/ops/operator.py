"""An operator of a buffer for compiled graphs, which calls a kernel."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import Tensor, ops

from ..columns import TYPES, Columns
from ..store.base.length_groups import arguments_of
from ..store.kernels.signatures import INPUT, OUTPUT, STATE, Item
from . import native
from .state import State

#: Outputs that count what an operator did.
COUNTS = ("invalid", "removed", "ended")


class KernelOperator:
    """``(inputs) -> outputs``, as in a signature of csrc/signatures.h, on the state of one buffer.

    A subclass has a `__call__` for its number of inputs. MindSpore never frees an object, or anything it refers to, if
    a compiled graph calls its method with keywords, defaults or ``*inputs``.

    Args:
        kernel (ops.Custom): The kernel.
        front (tuple): Its constant arguments, which are the first.
        counts (bool): Whether the output is a count, which a kernel returns as ``[1]`` and the operator as ``[]``.
    """

    def __init__(self, kernel: ops.Custom, front: tuple[object, ...], counts: bool) -> None:
        self.kernel, self.front, self.counts = kernel, front, counts

    def result(self, output):
        """Return the output."""
        return ops.reshape(output, ()) if self.counts else output


class RowSpecs(NamedTuple):
    """Shapes and dtypes of the rows that an operator gives."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


def delivered(columns: Columns, whole: bool) -> RowSpecs:
    """Return the rows of all columns: of those that differ in length the lengths first, then padded rows.

    Args:
        columns (Columns): The columns.
        whole (bool): Whether there is room for the longest row, not only for ``sample_length`` items.
    """
    shapes = list(columns.shapes)
    for i, group in columns.group_of.items():
        shapes[i] = (group.longest if whole else group.sampled, *shapes[i][1:])
    groups = len(columns.length_groups)
    return RowSpecs((*((),) * groups, *shapes), (*("int32",) * groups, *columns.dtypes))


@ms.jit_class
class SingleRow:
    """``(rows) -> row``: converts a kernel's output for an index ``[]``, with scalars of shape ``[]``."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self.shapes = shapes

    def __call__(self, rows):
        """Return the row, with scalars of shape ``[]``."""
        single = ()
        for i in range(len(self.shapes)):
            single = (*single, rows[i] if len(self.shapes[i]) > 0 else self.scalar(rows[i]))
        return single

    def scalar(self, row):
        """Return the element of a Tensor ``[1]``. MindSpore has no Reshape for bfloat16 on the CPU."""
        if row.dtype == ms.bfloat16:
            return ops.cast(ops.reshape(ops.cast(row, ms.float32), ()), ms.bfloat16)
        return ops.reshape(row, ())


@ms.jit_class
class OperatorOfRows(KernelOperator):
    """An operator on a tuple of inputs, among them one for each column."""

    def __call__(self, inputs):
        """Call the kernel with the constant arguments and these inputs."""
        return self.kernel(*self.front, *inputs)


@ms.jit_class
class Nullary(KernelOperator):
    """An operator without inputs."""

    def __call__(self):
        """Call the kernel with the constant arguments."""
        return self.result(self.kernel(*self.front))


@ms.jit_class
class Unary(KernelOperator):
    """An operator of one input."""

    def __call__(self, first):
        """Call the kernel with the constant arguments and this input."""
        return self.result(self.kernel(*self.front, first))


@ms.jit_class
class Binary(KernelOperator):
    """An operator of two inputs."""

    def __call__(self, first, second):
        """Call the kernel with the constant arguments and these inputs."""
        return self.result(self.kernel(*self.front, first, second))


def operator(
    name: str,
    state: State,
    groups: Collection[str],
    columns: Columns,
    constants: Mapping[str, Sequence[Tensor] | Tensor] | None = None,
    outputs: Sequence[tuple[tuple[int, ...], str]] = (),
    fields: Sequence[int] | None = None,
) -> KernelOperator:
    """Make an operator of the class for its inputs.

    Args:
        name (str): Name of the operator.
        state (State): The state, which the operator changes in place.
        groups (Collection[str]): The optional groups of the state that the buffer has.
        columns (Columns): The columns.
        constants (Mapping[str, Union[Tensor, Sequence]]): Constant inputs, and the columns if only some are used.
        outputs (Sequence[tuple]): Shape and dtype of each output of the plan.
        fields (Union[Sequence[int], None]): The columns of the rows that it takes or gives, if rows differ in length.
            Their lengths come before them. Default: ``None``.
    """
    items = native.signature(name).present(groups)
    front, inputs = _front(items, state, constants or {})
    returned = [item for item in items if item.role == OUTPUT]
    counts, kernel_name, rows = returned[0].name in COUNTS, f"replay_{name}", delivered(columns, name == "read")
    if fields is not None:
        own = len(outputs) - len(fields) if outputs else len(returned) - 1  # that are no rows
        before = len(front) if name == "insert" else len(front) + len(inputs) + own
        front = (
            Tensor(arguments_of(columns.length_groups, fields, before)),
            state.head,
            state.random_state,
            *state.arenas,
            *front,
        )
        kernel_name, outputs = f"replay_{name}_items", _with_lengths(outputs, own, columns, fields)
    types = _types(returned, rows, outputs)
    shapes = _shapes(inputs, returned, len(front), rows, outputs)
    kernel = native.custom(kernel_name, shapes, types[0] if _is_one(returned) else types)
    return (OperatorOfRows if name == "insert" else (Nullary, Unary, Binary)[len(inputs)])(kernel, front, counts)


def _with_lengths(
    outputs: Sequence[tuple[tuple[int, ...], str]], own: int, columns: Columns, fields: Sequence[int]
) -> Sequence[tuple[tuple[int, ...], str]]:
    """Return the outputs of a plan with lengths behind the first `own`, before those of these columns."""
    lengths = []
    for group in columns.length_groups if outputs else ():
        shape, _ = outputs[own + fields.index(group.column)]
        lengths.append((shape[: len(shape) - len(columns.shapes[group.column])], "int32"))
    return [*outputs[:own], *lengths, *outputs[own:]]


def _front(items: Sequence[Item], state: State, constants: Mapping[str, Any]) -> tuple[tuple[Any, ...], list[Item]]:
    """Return the constant arguments, then the items of the inputs."""
    front: list[Any] = []
    inputs = []
    for item in items:
        if item.role == STATE:
            front += constants.get("columns", state.columns) if item.name == "columns" else [getattr(state, item.name)]
        elif item.role == INPUT and item.name in constants:
            front.append(constants[item.name])
        elif item.role == INPUT:
            inputs.append(item)
    return tuple(front), inputs


def _is_one(returned: Sequence[Item]) -> bool:
    """Return True if the operator returns one Tensor instead of a tuple."""
    return len(returned) == 1 and returned[0].is_one


def _types(returned: Sequence[Item], rows: RowSpecs, outputs: Sequence[tuple[Any, str]]) -> tuple[Any, ...]:
    types: list[Any] = []
    for item in returned:
        several = {"rows": rows.dtypes, "outputs": [dtype for _, dtype in outputs]}
        types += (TYPES[dtype] for dtype in several.get(item.name, [item.dtype]))
    return tuple(types)


def _shapes(
    inputs: Sequence[Item], returned: Sequence[Item], first: int, rows: RowSpecs, outputs: Sequence[tuple[Any, str]]
) -> Callable[..., Any]:
    """Return a function from the shapes of all arguments to those of the outputs.

    A scalar has shape ``(1,)``: MindSpore turns outputs of shape ``()`` into Python numbers.
    """

    def infer(*shapes: Sequence[int]) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
        leads = {item.extents: tuple(shape) for item, shape in zip(inputs, shapes[first:])}
        leads |= {("m",): tuple(leads.get(("2m",), ())[:1])}
        found: list[tuple[int, ...]] = []
        for item in returned:
            if item.name == "outputs":
                found += (shape for shape, _ in outputs)
            elif item.name == "rows":
                found += ((*leads[item.extents], *shape) for shape in rows.shapes)
            else:
                found.append(leads[item.extents] if item.extents in leads else (int(item.extents[0]),))
        return found[0] or (1,) if _is_one(returned) else tuple(shape or (1,) for shape in found)

    return infer
