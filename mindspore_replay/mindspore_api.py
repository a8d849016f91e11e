"""Unstable parts of MindSpore that this package uses: private names, and names that move between versions.

Each comes with the reason, the public alternative if there is one, and a test that reports which is gone. No other
module uses private names of MindSpore.

Functions are MindSpore's own, without a Python wrapper, since each call of a buffer waits and gets several addresses.
Times were measured with MindSpore 2.10 on a CPU.
"""

import importlib
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

_NOTHING = object()


def _look_up(place: str) -> object:
    """Look up ``module:attribute.attribute``; return `_NOTHING` if it does not exist."""
    module, _, attributes = place.partition(":")
    try:
        found: object = importlib.import_module(module)
    except ImportError:
        return _NOTHING
    for attribute in filter(None, attributes.split(".")):
        found = getattr(found, attribute, _NOTHING)
    return found


def _find(name: str, *places: str) -> Any:
    """Return the first of these places that exists. Newer versions come first."""
    for place in places:
        found = _look_up(place)
        if found is not _NOTHING:
            return found
    gone = " and ".join(place.replace(":", ".") for place in places)
    raise ImportError(
        f"mindspore_api.{name}: {gone} is gone in MindSpore {ms.__version__}. Give 'mindspore_api.py' its new place."
    )


# ---- Tensors and memory ----


#: ``(tensor) -> int``: the address of its memory on the CPU. Public: `Tensor.data_ptr`, a wrapper that takes 0.2 us
#: more. In MindSpore 2.7 a Tensor has no address before a graph has used it.
address: Callable[[Tensor], int] = (
    (lambda tensor: tensor.asnumpy().ctypes.data)
    if ms.__version__.startswith("2.7")
    else _find("address", "mindspore._c_expression:TensorPy._data_ptr")
)

#: ``(array) -> Tensor`` that shares a contiguous array's memory. Public: `mindspore.from_numpy`, a wrapper that takes 1
#: to 3 us more.
share: Callable[[np.ndarray], Tensor] = _find("share", "mindspore._c_expression:TensorPy.from_numpy")

#: ``() -> None``: waits for operators in flight. Public: `mindspore.runtime.synchronize`, which does not work on CPUs:
#: its first call there returns at once, and later ones take 0.4 us more.
wait: Callable[[], None] = _find(
    "wait",
    "mindspore.graph.api:_pynative_executor._executor.sync",
    "mindspore.common.api:_pynative_executor._executor.sync",  # up to 2.8
)

# ---- The compiler ----

#: In compiled bodies, returns whether a value is known at compile time. No public name.
isconstant: Callable[[object], bool] = _find("isconstant", "mindspore.ops.functional:isconstant")

#: ``(names, values) -> dict`` in compiled bodies, of a constant tuple of names. No public name.
make_dict: Callable[[tuple[str, ...], tuple[Tensor, ...]], dict[str, Tensor]] = _find(
    "make_dict", "mindspore.ops.functional:make_dict"
)

#: The parser's function that mistakes a bare statement ``a.insert(...)`` for a list's method. No public switch.
EXPAND_STATEMENT = "expand_expr_statement"
#: The parser's functions that return the target of ``+=`` in place, and of a plain assignment.
IN_PLACE_TARGET, PLAIN_TARGET = "get_ast_augassign_namespace_symbol", "get_ast_namespace_symbol"


def find_parser() -> ModuleType | None:
    """Return the module in which the compiler looks up the parser's functions; ``None`` if it is not found."""
    for name in ("mindspore.graph._parse", "mindspore._extends.parse"):  # the latter up to 2.8
        if callable(_look_up(f"{name}:{EXPAND_STATEMENT}")):
            return importlib.import_module(name)
    return None


def adds_in_place() -> bool:
    """Return True if ``+=`` in compiled code changes a Tensor in place, by a private switch that is read once."""
    parser = find_parser()
    switch = parser and _look_up(f"{parser.__name__}.compile_config:JIT_ENABLE_AUGASSIGN_INPLACE")
    return switch == "1"


# ---- ms.jit(capture_mode="trace") ----

#: The module with the state of tracing. No public name.
jit_contexts: ModuleType = _find("jit_contexts", "mindspore.graph.jit_context", "mindspore.common.jit_context")


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
    tracer = _tracer()
    if tracer is not None:
        _end_trace(tracer, jit_contexts.jit_context())
        raise RuntimeError(
            "A replay buffer cannot be used in ms.jit(capture_mode='trace'), which would run its methods only while it "
            "traces. Use capture_mode='ast', the default, or 'bytecode'."
        )


def _tracer() -> ModuleType | None:
    """Return MindSpore's module in which the current thread is tracing a function; ``None`` if it is not tracing."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("mindspore.") and name.endswith(".jit_trace"):
            return sys.modules[name]
        frame = frame.f_back
    return None


def _end_trace(tracer: ModuleType, context: Any) -> None:
    """End the trace, since MindSpore would continue recording after an exception, and drop the unfinished graph."""
    if context.is_nested():
        jit_contexts.set_jit_context(None)
        return
    phase = context.phase
    tracer._jit_trace_end(0)
    tracer._trace_compile_cache.discard(phase)


# ---- Seeds ----

#: The module of the global seed. Public: `set_seed` and `get_seed`, but `set_seed` resets all generators, and the
#: number of seeds that operators have taken has no public name.
_seeds: Any = _find("seeds", "mindspore.common.seed")


def global_seeds() -> tuple[int | None, dict[tuple[Any, ...], int]]:
    """Return MindSpore's global seed, and the seeds that operators have taken, by operator and its own seed."""
    return _seeds._GLOBAL_SEED, _seeds._KERNEL_SEED


def set_global_seeds(seed: int | None, taken: dict[tuple[Any, ...], int]) -> None:
    """Set the global seed and the seeds that operators have taken, without resetting any generator."""
    _seeds._GLOBAL_SEED = seed
    _seeds._KERNEL_SEED = taken


# ---- For mindspore_replay.compat: parts that MindSpore RL 0.7 needs changed and that have no public name ----

#: The module that MindSpore RL imports operators from.
INNER_OPERATORS = "mindspore.ops.operations._rl_inner_ops"
#: The module that its TensorArray imports from `mindspore.ops.operations`; newer versions lack it.
TENSOR_ARRAY = "_tensor_array"
#: The method that sets a Cell as an attribute of a Cell, and rejects names of methods.
SET_CELL = "_set_attr_for_cell"


def cells_of(cell: nn.Cell) -> dict[str, Any]:
    """Return the dict of a Cell's sub-cells, which may be changed; `nn.Cell.name_cells` returns a copy."""
    return vars(cell).get("_cells") or {}


def reserve_cell(cell: nn.Cell, name: str) -> None:
    """Add an empty entry for a sub-cell, since names that have an entry are not rejected."""
    cell._cells.setdefault(name, None)


#: Place of the functions that `set_context` calls for each key.
CONTEXT_SETTERS = "mindspore.context._Context.setters"


def context_setters() -> dict[str, Any] | None:
    """Return the functions that `set_context` calls, by key; ``None`` if not found."""
    setters = _look_up(CONTEXT_SETTERS.replace("context.", "context:", 1))
    return setters if isinstance(setters, dict) else None


def context_parameter(key: str) -> Any:
    """Return MindSpore's number of a key of `set_context`; ``None`` if not found."""
    parameter = _look_up(f"mindspore.context:ms_ctx_param.{key}")
    return None if parameter is _NOTHING else parameter


# ---- What a new MindSpore has moved ----


def moved() -> list[str]:
    """Return a line for each private name that is gone; an import fails for those that it looks up.

    Returns:
        list[str]: Lines such as ``mindspore_api.SET_CELL: mindspore.nn.Cell._set_attr_for_cell is gone``.
    """
    parser = find_parser()
    in_parser = parser.__name__ if parser else "mindspore.graph._parse"
    contexts = jit_contexts.__name__
    tracer = contexts.replace("jit_context", "jit_trace")
    places = {
        "EXPAND_STATEMENT": [f"{in_parser}:{EXPAND_STATEMENT}"],
        "PLAIN_TARGET": [f"{in_parser}:{PLAIN_TARGET}"],
        "IN_PLACE_TARGET": [f"{in_parser}:{IN_PLACE_TARGET}"] * adds_in_place(),
        "adds_in_place": [f"{in_parser}.compile_config:JIT_ENABLE_AUGASSIGN_INPLACE"],
        "jit_contexts": [f"{contexts}:{name}" for name in ("_jit_context", "jit_context", "set_jit_context")],
        "refuse_trace": [f"{tracer}:{name}" for name in ("_jit_trace_end", "_trace_compile_cache")],
        "global_seeds": [f"{_seeds.__name__}:{name}" for name in ("_GLOBAL_SEED", "_KERNEL_SEED")],
        "INNER_OPERATORS": [INNER_OPERATORS],
        "SET_CELL": [f"mindspore.nn:Cell.{SET_CELL}"],
        "CONTEXT_SETTERS": [CONTEXT_SETTERS.replace("context.", "context:", 1)],
        "context_parameter": ["mindspore.context:ms_ctx_param.enable_graph_kernel"],
    }
    return [
        f"mindspore_api.{name}: {place.replace(':', '.')} is gone in MindSpore {ms.__version__}"
        for name, needed in places.items()
        for place in needed
        if _look_up(place) is _NOTHING
    ]
