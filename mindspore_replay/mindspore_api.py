"""Unstable parts of MindSpore that this package uses: private names, and names that move between versions.

Each is looked up once, when this module is imported, in the places where versions of MindSpore have had it. If it is in
none of them, something slower takes its place, or the first use raises an error: `NAMES` has what was found, and what
is done without it. No other module uses private names of MindSpore.

Functions are MindSpore's own, without a Python wrapper, since each call of a buffer waits and gets several addresses.
Times were measured with MindSpore 2.10 on a CPU.
"""

import importlib
import sys
from collections.abc import Callable
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from .store.base.checks import warn_caller

#: Versions of MindSpore that the tests have run with.
TESTED = ("2.7", "2.8", "2.9", "2.10")

_NOTHING = object()


class PrivateName(NamedTuple):
    """A private name of MindSpore: its places, newer ones first, where it was found, and what is done without it."""

    places: tuple[str, ...]
    found: str
    without: str

    def __str__(self) -> str:
        places = " or ".join(place.replace(":", ".") for place in self.places)
        return self.found.replace(":", ".") or f"there is no {places}: {self.without}"


#: What was looked up, by its name in this module.
NAMES: dict[str, PrivateName] = {}


def _look_up(place: str) -> object:
    """Look up ``module:attribute``. Return `_NOTHING` if it does not exist.

    ``Class().attribute`` is one that the class's constructor names. No object is made: MindSpore reads some of its
    settings when the first Cell is made, which the program may want to change until then.
    """
    module, _, attributes = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return _NOTHING
    for attribute in filter(None, attributes.split(".")):
        found = getattr(found, attribute.removesuffix("()"), _NOTHING)
        if attribute.endswith("()"):
            code = getattr(getattr(found, "__init__", None), "__code__", None)
            found = SimpleNamespace(**{str(name): name for name in code.co_consts + code.co_names} if code else {})
    return found


def _find(name: str, *places: str, without: str, instead: Callable[[], Any] = lambda: None) -> Any:
    """Return what is at the first of these places that exists, else what `instead` returns, and note it in `NAMES`."""
    for place in places:  # an old place may give a warning of MindSpore
        value = _look_up(place)
        if value is not _NOTHING:
            NAMES[name] = PrivateName(places, place, without)
            return value
    NAMES[name] = PrivateName(places, "", without)
    return instead()


def _module_of(name: str) -> ModuleType | None:
    """Return the module in which a name was found, or ``None``."""
    module = NAMES[name].found.partition(":")[0]
    return sys.modules[module] if module else None


def not_found() -> list[str]:
    """Return a line for each private name that this MindSpore lacks, with what is done without it."""
    return [f"mindspore_api.{name}: {found}" for name, found in NAMES.items() if not found.found]


def need(feature: str, *names: str) -> None:
    """Raise a RuntimeError if one of the names that something needs was not found."""
    gone = [NAMES[name].places[0].replace(":", ".") for name in names if not NAMES[name].found]
    if gone:
        raise RuntimeError(
            f"{feature} needs {' and '.join(gone)}, which MindSpore {ms.__version__} lacks. The versions that it was "
            f"tested with are {', '.join(TESTED)}."
        )


# ---- Tensors and memory ----


def _address_of_array(tensor: Tensor) -> int:
    return tensor.asnumpy().ctypes.data


#: ``(tensor) -> int``: the address of its memory on the CPU. Public: `Tensor.data_ptr`, from 2.10 on, a wrapper that
#: takes 0.2 us more. In MindSpore 2.7 a Tensor has no address before a graph has used it.
address: Callable[[Tensor], int] = _find(
    "address",
    "mindspore._c_expression:TensorPy._data_ptr",
    without="addresses are those of arrays, slower",
    instead=lambda: _address_of_array,
)
if ms.__version__.startswith("2.7"):
    address = _address_of_array

#: ``(array) -> Tensor`` that shares a contiguous array's memory. Public: `mindspore.from_numpy`, a wrapper that takes 1
#: to 3 us more.
share: Callable[[np.ndarray], Tensor] = _find(
    "share",
    "mindspore._c_expression:TensorPy.from_numpy",
    without="mindspore.from_numpy shares arrays, slower",
    instead=lambda: ms.from_numpy,
)


def _wait_for_operator() -> None:
    """Wait for an operator, which runs after those in flight. Takes 0.2 ms and more."""
    ops.zeros((), ms.int32).asnumpy()


#: ``() -> None``: waits for operators in flight. Public: `mindspore.runtime.synchronize`, which is not for CPUs: its
#: first call there logs an error and returns at once.
wait: Callable[[], None] = _find(
    "wait",
    "mindspore.graph.api:_pynative_executor._executor.sync",
    "mindspore.common.api:_pynative_executor._executor.sync",  # up to 2.8
    without="calls from Python wait by running an operator, slower",
    instead=lambda: _wait_for_operator,
)

#: The attribute by which `nn.Cell` reads its Parameters, which tells a buffer that MindSpore may use its memory.
PARAMETERS = "_params"
_find("PARAMETERS", f"mindspore.nn:Cell().{PARAMETERS}", without="every call from Python waits, slower")


def notices_reads(cell: nn.Cell, name: str) -> bool:
    """Return True if a Cell notices who reads this Parameter, so that calls need not wait before anybody has."""
    return bool(NAMES["PARAMETERS"].found) and name not in vars(cell)


def parameters_of(cell: nn.Cell) -> dict[str, Any]:
    """Return the Parameters of a Cell itself, by name, without being noticed."""
    return vars(cell)[PARAMETERS] if NAMES["PARAMETERS"].found else dict(cell.parameters_and_names(expand=False))


def give_parameters(cell: nn.Cell, parameters: dict[str, Any]) -> None:
    """Let a Cell have these Parameters too, by name."""
    for name, parameter in () if NAMES["PARAMETERS"].found else parameters.items():
        cell.insert_param_to_cell(name, parameter, check_name_contain_dot=False)
    parameters_of(cell).update(parameters)


# ---- The compiler ----


def _is_constant() -> ops.Primitive:
    primitive = ops.Primitive("IsConstant")
    primitive.set_const_prim(True)
    return primitive


#: In compiled bodies, returns whether a value is known at compile time. No public name.
isconstant: Callable[[object], bool] = _find(
    "isconstant",
    "mindspore.ops.functional:isconstant",
    without="it is made by the compiler's name",
    instead=_is_constant,
)

#: ``(names, values) -> dict`` in compiled bodies, of a constant tuple of names. No public name.
make_dict: Callable[[tuple[str, ...], tuple[Tensor, ...]], dict[str, Tensor]] = _find(
    "make_dict",
    "mindspore.ops.functional:make_dict",
    without="it is made by the compiler's name",
    instead=lambda: ops.Primitive("make_dict"),
)

_find(
    "EXACT",
    "mindspore._c_expression.amp:create_amp_strategy",
    without="under amp level 'auto' composite buffers round the sums of their weights",
)
_amp: Any = _module_of("EXACT")
_EXACT = None if _amp is None else _amp.create_amp_strategy(_amp.AmpLevel.AmpO0, ms.float32, [], [])


def exact(function: Callable[..., Any]) -> None:
    """Have a function and all that it calls compiled in their own dtypes, whatever amp level their caller has.

    Without that, a function that is first compiled while a Cell of level ``"auto"`` runs keeps its level for good.
    """
    if _EXACT is not None:
        function.amp_strategy = _EXACT  # type: ignore[attr-defined]


#: The parser's function that mistakes a bare statement ``a.insert(...)`` for a list's method. No public switch.
EXPAND_STATEMENT = "expand_expr_statement"
#: The parser's functions that return the target of ``+=`` in place, and of a plain assignment.
IN_PLACE_TARGET, PLAIN_TARGET = "get_ast_augassign_namespace_symbol", "get_ast_namespace_symbol"

_find(
    "EXPAND_STATEMENT",
    f"mindspore.graph._parse:{EXPAND_STATEMENT}",
    f"mindspore._extends.parse:{EXPAND_STATEMENT}",  # up to 2.8
    without="graphs refuse buffer.insert and buffer.update: write buffer.add(rows)",
)


def find_parser() -> ModuleType | None:
    """Return the module in which the compiler looks up the parser's functions, or ``None`` if it is not found."""
    return _module_of("EXPAND_STATEMENT")


# ---- ms.jit(capture_mode="trace") ----

_find(
    "jit_contexts",
    "mindspore.graph.jit_context:_jit_context",
    "mindspore.common.jit_context:_jit_context",  # up to 2.8
    without="every call from Python looks at its callers to find out whether it is traced, slower",
)


#: The module with the state of tracing, its `_jit_context`, which is ``None`` if nothing is traced. No public name.
jit_contexts: Any = _module_of("jit_contexts") or ModuleType("no_jit_context")
vars(jit_contexts).setdefault("_jit_context", True)  # perhaps

_find(
    "refuse_trace",
    "mindspore.graph.jit_trace:_jit_trace_end",
    "mindspore.common.jit_trace:_jit_trace_end",  # up to 2.8
    without="buffers refuse all calls while anything is traced, and the program cannot go on after that",
)


def wait_for_work() -> None:
    """Wait for operators in flight, so that memory may be accessed. Every call from Python begins with it.

    Raises:
        RuntimeError: If the call is being traced.
    """
    if jit_contexts._jit_context is not None:  # `jit_context()` takes 0.05 us more
        refuse_trace()
    wait()


def refuse_trace() -> None:
    """Raise a RuntimeError if the current thread is tracing a function.

    Tracing runs a function's Python code once and records its operators. A buffer's method would run as from Python,
    so it would act during tracing and never again. Recording its operators would not help: MindSpore runs them during
    tracing and once more in the graph, so the first rows would be stored twice.
    """
    if _is_traced():
        try:
            _end_trace(_module_of("refuse_trace"))
        except AttributeError:
            after = " MindSpore goes on tracing after this error: start the program anew."
        else:
            after = ""
        raise RuntimeError(
            "A replay buffer cannot be used in ms.jit(capture_mode='trace'), which would run its methods only while it "
            f"traces. Use capture_mode='ast', the default, or 'bytecode'.{after}"
        )


def _is_traced() -> bool:
    """Return True if the current thread is tracing a function. If that cannot be told, whether any thread is."""
    tracer = _module_of("refuse_trace")
    if tracer is None:
        return bool(NAMES["jit_contexts"].found)
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals is not vars(tracer):
        frame = frame.f_back
    return frame is not None


def _end_trace(tracer: Any) -> None:
    """End the trace, since MindSpore would continue recording after an exception, and drop the unfinished graph."""
    context = jit_contexts.jit_context()
    if context.is_nested():
        jit_contexts.set_jit_context(None)
        return
    phase = context.phase
    tracer._jit_trace_end(0)
    tracer._trace_compile_cache.discard(phase)


# ---- Seeds ----

# Public: `set_seed` and `get_seed`, but `set_seed` resets all generators, and the number of seeds that operators have
# taken has no public name.
for _name in ("_GLOBAL_SEED", "_KERNEL_SEED"):
    _find(_name, f"mindspore.common.seed:{_name}", without="TrainingCheckpoint raises an error")


def _seeds() -> Any:
    """Return the module of the global seed."""
    need("'TrainingCheckpoint'", "_GLOBAL_SEED", "_KERNEL_SEED")
    return _module_of("_GLOBAL_SEED")


def global_seeds() -> tuple[int | None, dict[tuple[Any, ...], int]]:
    """Return MindSpore's global seed, and the seeds that operators have taken, by operator and its own seed."""
    seeds = _seeds()
    return seeds._GLOBAL_SEED, seeds._KERNEL_SEED


def set_global_seeds(seed: int | None, taken: dict[tuple[Any, ...], int]) -> None:
    """Set the global seed and the seeds that operators have taken, without resetting any generator."""
    seeds = _seeds()
    seeds._GLOBAL_SEED, seeds._KERNEL_SEED = seed, taken


# ---- Cells ----

#: The method by which `nn.Cell.load_state_dict` of an owner lets a sub-cell load its own part.
LOAD = "_load_from_state_dict"
_find("LOAD", f"mindspore.nn:Cell.{LOAD}", without="nn.Cell.load_state_dict refuses Cells that hold a buffer")

_find("cells_of", "mindspore.nn:Cell()._cells", without="compat.install raises an error")


def cells_of(cell: nn.Cell) -> dict[str, Any]:
    """Return the sub-cells of a Cell by name: the dict of the Cell, which may be changed, or else a copy."""
    return vars(cell).get("_cells") or {} if NAMES["cells_of"].found else cell.name_cells()


# ---- For mindspore_replay.compat: parts that MindSpore RL 0.7 needs changed and that have no public name ----

#: The module that MindSpore RL imports operators from.
INNER_OPERATORS = "mindspore.ops.operations._rl_inner_ops"
#: The module that its TensorArray imports from `mindspore.ops.operations`; newer versions lack it.
TENSOR_ARRAY = "_tensor_array"
#: The method that sets a Cell as an attribute of a Cell, and rejects names of methods.
SET_CELL = "_set_attr_for_cell"
#: Place of the functions that `set_context` calls for each key.
CONTEXT_SETTERS = "mindspore.context._Context.setters"

_PARSER = NAMES["EXPAND_STATEMENT"].found.partition(":")[0] or "mindspore.graph._parse"
_SWITCH = f"{_PARSER}.compile_config:JIT_ENABLE_AUGASSIGN_INPLACE"


def adds_in_place() -> bool:
    """Return True if ``+=`` in compiled code changes a Tensor in place, by a private switch that is read once."""
    return _look_up(_SWITCH) == "1"


_COMPAT = {
    "INNER_OPERATORS": INNER_OPERATORS,
    "SET_CELL": f"mindspore.nn:Cell.{SET_CELL}",
    "CONTEXT_SETTERS": CONTEXT_SETTERS.replace("context.", "context:", 1),
    "context_parameter": "mindspore.context:ms_ctx_param.enable_graph_kernel",
    "adds_in_place": _SWITCH,
    **({"IN_PLACE_TARGET": f"{_PARSER}:{IN_PLACE_TARGET}"} if adds_in_place() else {}),
    "PLAIN_TARGET": f"{_PARSER}:{PLAIN_TARGET}",
}
for _name, _place in _COMPAT.items():
    _find(_name, _place, without="compat.install raises an error")


def need_compat() -> None:
    """Raise a RuntimeError if `compat.install` could not change all that MindSpore RL needs changed."""
    need("'compat.install'", "EXPAND_STATEMENT", "cells_of", *_COMPAT)


def reserve_cell(cell: nn.Cell, name: str) -> None:
    """Add an empty entry for a sub-cell, since names that have an entry are not rejected."""
    cell._cells.setdefault(name, None)


def context_setters() -> dict[str, Any]:
    """Return the functions that `set_context` calls, by key."""
    return _look_up(_COMPAT["CONTEXT_SETTERS"])  # type: ignore[return-value]


def context_parameter(key: str) -> Any:
    """Return MindSpore's number of a key of `set_context`."""
    return _look_up(f"mindspore.context:ms_ctx_param.{key}")


# ---- Versions ----

if (gone := not_found()) or ".".join(ms.__version__.split(".")[:2]) not in TESTED:
    warn_caller(
        f"mindspore_replay was tested with MindSpore {', '.join(TESTED)}, and this is {ms.__version__}. Of the private "
        f"names of MindSpore that it uses, {len(gone)} were not found{''.join(f'; {line}' for line in gone)}. "
        "`mindspore-replay doctor` checks that buffers work."
    )
