"""Patches of MindSpore: `install` applies them, `uninstall` reverts them."""

import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import nn, ops

from .. import mindspore_api
from . import arrays, handles, operators
from .removed_operators import removed_operator

_OPERATIONS = "mindspore.ops.operations"
_INNER = mindspore_api.INNER_OPERATORS
_CORE = "mindspore_rl.core"

_RINGS = ("BufferAppend", "BufferGetItem", "BufferSample")
_HANDLES = (
    *(f"PriorityReplayBuffer{name}" for name in ("Create", "Destroy", "Push", "Sample", "Update")),
    *(f"ReservoirReplayBuffer{name}" for name in ("Create", "Destroy", "Push", "Sample")),
)
_REMOVED = (
    *("BatchAssign", "DiscountedReturn", "EnvCreate", "EnvReset", "EnvStep", "MuxReceive", "MuxSend"),
    *(f"TensorsQueue{name}" for name in ("Clear", "Close", "Create", "Get", "Put", "Size")),
)
_ARRAYS = tuple(f"TensorArray{name}" for name in ("", "Clear", "Close", "Read", "Size", "Stack", "Write"))
_REMOVED_OF_ARRAYS = "TensorArrayGather"


class Patch(NamedTuple):
    """One change of MindSpore: its name, the object that is added or replaced, and its purpose.

    Examples:
        >>> from mindspore_replay.compat import install, uninstall
        >>> patch = next(patch for patch in install() if patch.name == "logsumexp")
        >>> print(patch.target, patch.purpose)
        mindspore.ops.logsumexp CQL calls it with axis, which is now called dim
        >>> uninstall()
    """

    name: str
    target: str
    purpose: str


class _Change(NamedTuple):
    """A patch, and the attribute of a module or class, or the key of a dict, that it sets."""

    patch: Patch
    owner: object
    key: str
    value: object


_NOTHING = object()
#: The changes that are applied, each with the value before it.
_applied: list[tuple[_Change, object]] = []


def _get(owner: object, key: str) -> object:
    return (owner if isinstance(owner, dict) else vars(owner)).get(key, _NOTHING)


def _set(owner: object, key: str, value: object) -> None:
    if isinstance(owner, dict):
        if value is _NOTHING:
            del owner[key]
        else:
            owner[key] = value
    elif value is _NOTHING:
        delattr(owner, key)
    else:
        setattr(owner, key, value)


def install() -> tuple[Patch, ...]:
    """Make MindSpore RL 0.7, with its source unchanged, run on this MindSpore.

    Only missing or conflicting names are changed. A second call changes nothing, nor does importing this package.

    Returns:
        tuple[Patch, ...]: The patches now applied, each with name, target and purpose.

    Examples:
        >>> from mindspore_replay.compat import install, uninstall
        >>> patches = install()
        >>> print(patches[0].target)
        mindspore.ops.operations.BufferAppend
        >>> uninstall()
    """
    if not _applied:
        for change in list(_changes()):
            _applied.append((change, _get(change.owner, change.key)))
            _set(change.owner, change.key, change.value)
    return tuple(dict.fromkeys(change.patch for change, _ in _applied))


def uninstall() -> None:
    """Revert `install`. Graphs compiled in between are not changed.

    Examples:
        >>> from mindspore_replay.compat import install, uninstall
        >>> first = install()
        >>> uninstall()
        >>> print(install() == first, uninstall())
        True None
    """
    while _applied:
        change, before = _applied.pop()
        _set(change.owner, change.key, before)


def _changes() -> Iterator[_Change]:
    mindspore_api.need_compat()
    operations, inner = importlib.import_module(_OPERATIONS), importlib.import_module(_INNER)
    yield from _replay(operations, operators, _RINGS, "MindSpore RL's UniformReplayBuffer is built on it")
    yield from _replay(inner, handles, _HANDLES, "MindSpore RL's Priority- and ReservoirReplayBuffer are built on it")
    for name in _REMOVED:
        if not hasattr(inner, name):
            patch = Patch(name, f"{_INNER}.{name}", "imported by MindSpore RL; raises when it is called")
            yield _Change(patch, inner, name, removed_operator(name))
    yield from _old_path()
    yield from _tensor_array(operations)
    yield from _buffers_attribute()
    yield from _augmented_assignment()
    yield from _graph_kernels()
    yield from _logsumexp()
    yield from _tensor_type()
    yield from _overflow()


def _replay(module: ModuleType, source: ModuleType, names: tuple[str, ...], purpose: str) -> Iterator[_Change]:
    """Replace operators. MindSpore up to 2.7 still has them, but with wrong kernels."""
    for name in names:
        yield _Change(Patch(name, f"{module.__name__}.{name}", purpose), module, name, getattr(source, name))


def _old_path() -> Iterator[_Change]:
    """Add the module of MindSpore RL 0.5's `ReplayBuffer`, and its parents if MindSpore RL is not installed."""
    path = f"{_CORE}.replay_buffer"
    patch = Patch("ReplayBuffer", f"{path}.ReplayBuffer", "its place in MindSpore RL 0.5")
    names = [path] if "mindspore_rl" in sys.modules or find_spec("mindspore_rl") else ["mindspore_rl", _CORE, path]
    modules = [ModuleType(name) for name in names]
    for module in modules[:-1]:
        module.__path__ = []
    buffers = importlib.import_module(f"{__package__}.mindspore_rl")
    vars(modules[-1])["ReplayBuffer"] = buffers.UniformReplayBuffer
    for name, module in zip(names, modules):
        yield _Change(patch, sys.modules, name, module)


def _tensor_array(operations: ModuleType) -> Iterator[_Change]:
    array = mindspore_api.TENSOR_ARRAY
    name = f"{_OPERATIONS}.{array}"
    if not hasattr(operations, array) and find_spec(name) is None:
        patch = Patch(array, name, "MindSpore RL's TensorArray is built on it")
        module = ModuleType(name, "Stands in for a module that MindSpore no longer has.")
        vars(module).update({operator: getattr(arrays, operator) for operator in _ARRAYS})
        vars(module)[_REMOVED_OF_ARRAYS] = removed_operator(_REMOVED_OF_ARRAYS)
        yield _Change(patch, operations, array, module)
        yield _Change(patch, sys.modules, name, module)


class _BuffersAttribute:
    """`nn.Cell.buffers`: the sub-cell of this name if there is one, else the method."""

    def __init__(self, method: FunctionType) -> None:
        self.method = method

    def __get__(self, cell: nn.Cell | None, owner: type | None = None) -> object:
        cells = mindspore_api.cells_of(cell) if cell is not None else {}
        return cells["buffers"] if "buffers" in cells else self.method.__get__(cell, owner)


def _buffers_attribute() -> Iterator[_Change]:
    method, set_cell = vars(nn.Cell).get("buffers"), vars(nn.Cell)[mindspore_api.SET_CELL]
    if method is None:
        return

    def set_attr_for_cell(self: nn.Cell, name: str, value: nn.Cell) -> None:
        if name == "buffers":
            mindspore_api.reserve_cell(self, name)
        set_cell(self, name, value)

    patch = Patch("buffers", "mindspore.nn.Cell.buffers", "MSRL keeps its buffer as self.buffers, the name of a method")
    yield _Change(patch, nn.Cell, "buffers", _BuffersAttribute(method))
    yield _Change(patch, nn.Cell, mindspore_api.SET_CELL, set_attr_for_cell)


def _augmented_assignment() -> Iterator[_Change]:
    """Patch the function that the compiler calls for each statement: MindSpore reads its switch once in a process."""
    parser: Any = mindspore_api.find_parser()
    function = mindspore_api.IN_PLACE_TARGET
    if mindspore_api.adds_in_place():
        purpose = "trainers add with += to their constants, which compiled code would change for good"
        patch = Patch("augmented assignment", f"{parser.__name__}.{function}", purpose)
        yield _Change(patch, parser, function, getattr(parser, mindspore_api.PLAIN_TARGET))


def _graph_kernels() -> Iterator[_Change]:
    """Add a setter of the key: `set_context` looks for one first, and finds none of MindSpore's."""
    key = "enable_graph_kernel"
    setters, parameter = mindspore_api.context_setters(), mindspore_api.context_parameter(key)
    if key in setters:
        return

    def set_graph_kernels(owner: Any, value: bool) -> None:
        on_cpu = ms.get_context("device_target") == "CPU"
        if value and on_cpu:
            text = "'enable_graph_kernel' stays False on the CPU: trainers fail with it or are slower."
            warnings.warn(f"For 'set_context', {text}", stacklevel=4)
        owner.set_param(parameter, value and not on_cpu)

    patch = Patch(key, mindspore_api.CONTEXT_SETTERS, "train.py of C51, DDPG and others set it on the CPU")
    yield _Change(patch, setters, key, set_graph_kernels)


def _logsumexp() -> Iterator[_Change]:
    function = ops.logsumexp
    if "axis" in inspect.signature(function).parameters:
        return

    def logsumexp(input, dim=None, keepdim=False, *, axis=None, keep_dims=False):
        return function(input, dim if axis is None else axis, keepdim or keep_dims)

    patch = Patch("logsumexp", "mindspore.ops.logsumexp", "CQL calls it with axis, which is now called dim")
    yield _Change(patch, ops, "logsumexp", logsumexp)


def _tensor_type() -> Iterator[_Change]:
    """Patch ``__instancecheck__`` of the class, so that the object may be the second argument of isinstance."""
    metaclass = type(ms.tensor_type)
    if not isinstance(ms.tensor_type, type):
        purpose = "MAPPO asks isinstance(x, mstype.tensor_type), which was a class"
        patch = Patch("tensor_type", f"{metaclass.__module__}.{metaclass.__name__}.__instancecheck__", purpose)
        yield _Change(patch, metaclass, "__instancecheck__", lambda self, value: isinstance(value, type(self)))


_on_cpu = ops.constexpr(lambda: ms.get_context("device_target") == "CPU")


def _overflow() -> Iterator[_Change]:
    """Patch the search for overflows in gradients: MindSpore treats a CPU as a first-generation Ascend."""
    cell, method = nn.TrainOneStepWithLossScaleCell, "get_overflow_status"
    theirs = vars(cell)[method]

    def get_overflow_status(self, status, compute_output):
        if not _on_cpu():
            return theirs(self, status, compute_output)
        finite = True
        for gradient in compute_output:
            finite = ops.logical_and(finite, ops.isfinite(gradient).all())
        return ops.logical_not(finite)

    patch = Patch("overflow", f"mindspore.nn.{cell.__name__}.{method}", "Dreamer scales its loss, also on the CPU")
    yield _Change(patch, cell, method, get_overflow_status)
