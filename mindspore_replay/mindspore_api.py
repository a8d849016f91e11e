"""All that this package uses of MindSpore without a promise: private names, and names that move between versions.

Each has its reason here, the public name that could serve where there is one, and a test that says which is gone. No
other module touches private names of MindSpore.

Functions are MindSpore's own, without Python around them: each call of a buffer waits, and asks for several addresses.
Times are those of 2.10 on a CPU.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import mindspore as ms
import numpy as np
from mindspore import Tensor

_NOTHING: Any = object()


def _look_up(place: str) -> Any:
    """Look up ``module:attribute.attribute``; gives nothing if it is not there."""
    module, _, attributes = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return _NOTHING
    for attribute in filter(None, attributes.split(".")):
        found = getattr(found, attribute, _NOTHING)
    return found


def _find(name: str, *places: str) -> Any:
    """Look up the first of these places that is there. The newest version's comes first."""
    for place in places:
        found = _look_up(place)
        if found is not _NOTHING:
            return found
    gone = " and ".join(place.replace(":", ".") for place in places)
    raise ImportError(
        f"mindspore_api.{name}: {gone} is gone in MindSpore {ms.__version__}. Give 'mindspore_api.py' its new place."
    )


# ---- Tensors and memory ----


def _host_address(tensor: Tensor) -> int:
    return tensor.asnumpy().ctypes.data


#: ``(tensor) -> int``: the address of its memory on the CPU. Public: `Tensor.data_ptr`, which calls it and takes 0.2 us
#: more. MindSpore 2.7 knows no address before a graph has used the Tensor.
address: Callable[[Tensor], int] = (
    _host_address
    if ms.__version__.startswith("2.7")
    else _find("address", "mindspore._c_expression:TensorPy._data_ptr")
)

#: ``(array) -> Tensor`` that shares a contiguous array's memory. Public: `mindspore.from_numpy`, which calls it and
#: takes 1 to 3 us more.
share: Callable[[np.ndarray], Tensor] = _find("share", "mindspore._c_expression:TensorPy.from_numpy")

#: ``() -> None``: waits for the operators in flight. Public: `mindspore.runtime.synchronize`, which is not for CPUs:
#: its first call there returns at once, and later ones take 0.4 us more.
wait: Callable[[], None] = _find(
    "wait",
    "mindspore.graph.api:_pynative_executor._executor.sync",
    "mindspore.common.api:_pynative_executor._executor.sync",  # up to 2.8
)

# ---- The compiler ----

#: Whether a value is known when a graph is compiled, for compiled bodies. No public name.
isconstant: Any = _find("isconstant", "mindspore.ops.functional:isconstant")

#: The parser's function that takes a bare statement ``a.insert(...)`` for a list's method. It has no public switch.
EXPAND_STATEMENT = "expand_expr_statement"
#: The parser's functions that name the target of ``+=`` in place, and of a plain assignment.
IN_PLACE_TARGET, PLAIN_TARGET = "get_ast_augassign_namespace_symbol", "get_ast_namespace_symbol"


def find_parser() -> ModuleType | None:
    """Return the module in which the compiler looks the parser's functions up, or ``None`` where it is not known."""
    for name in ("mindspore.graph._parse", "mindspore._extends.parse"):  # the latter up to 2.8
        if callable(_look_up(f"{name}:{EXPAND_STATEMENT}")):
            return importlib.import_module(name)
    return None


def adds_in_place() -> bool:
    """Return True if ``+=`` in compiled code changes a Tensor. The compiler reads this private switch once."""
    parser = find_parser()
    switch = parser and _look_up(f"{parser.__name__}.compile_config:JIT_ENABLE_AUGASSIGN_INPLACE")
    return switch == "1"


# ---- ms.jit(capture_mode="trace") ----

#: The module that knows whether a function is being traced. No public name.
jit_contexts: Any = _find("jit_contexts", "mindspore.graph.jit_context", "mindspore.common.jit_context")


def wait_for_work() -> None:
    """Wait for the operators in flight, so that memory may be touched. Every call from Python begins with it.

    Raises:
        RuntimeError: If the call is being traced.
    """
    if jit_contexts._jit_context is not None:  # `jit_context()` takes 0.05 us more
        refuse_trace()
    wait()


def refuse_trace() -> None:
    """Raise a RuntimeError if the current thread is tracing a function.

    Tracing runs a function's Python once and records the operators it meets. A buffer's method is then called as from
    Python, so it would act while the function is traced and never again. To record its operators would not help:
    MindSpore runs them while it traces and once more in the graph, so the first rows would be stored twice.
    """
    tracer = _tracer()
    if tracer is not None:
        _end_trace(tracer, jit_contexts.jit_context())
        _refuse()


def _tracer() -> Any:
    """MindSpore's module in which the current thread is tracing a function; ``None`` if it traces none."""
    frame: Any = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("mindspore.") and name.endswith(".jit_trace"):
            return sys.modules[name]
        frame = frame.f_back
    return None


def _end_trace(tracer: Any, context: Any) -> None:
    """End the trace, since MindSpore would go on recording after an exception, and forget the unfinished graph."""
    if context.is_nested():
        jit_contexts.set_jit_context(None)
        return
    phase = context.phase
    tracer._jit_trace_end(0)
    tracer._trace_compile_cache.discard(phase)


def _refuse() -> NoReturn:
    raise RuntimeError(
        "A replay buffer cannot be used in ms.jit(capture_mode='trace'), which would run its methods only while it "
        "traces. Use capture_mode='ast', the default, or 'bytecode'."
    )


# ---- Seeds ----

#: The module of the global seed. Public: `set_seed` and `get_seed`, but the former begins all generators anew, and how
#: often operators have taken a seed of their own nobody tells.
_seeds: Any = _find("seeds", "mindspore.common.seed")


def global_seeds() -> tuple[int | None, dict[tuple[Any, ...], int]]:
    """MindSpore's global seed, and the seeds that operators have taken from it, by operator and its own seed."""
    return _seeds._GLOBAL_SEED, _seeds._KERNEL_SEED


def set_global_seeds(seed: int | None, taken: dict[tuple[Any, ...], int]) -> None:
    """Set both, and begin no generator anew."""
    _seeds._GLOBAL_SEED = seed
    _seeds._KERNEL_SEED = taken


# ---- For mindspore_replay.compat, which runs MindSpore RL 0.7 unchanged on what no public name changes ----

#: The module that MindSpore RL imports operators from.
INNER_OPERATORS = "mindspore.ops.operations._rl_inner_ops"
#: The module that its TensorArray imports, that newer versions lack, below `mindspore.ops.operations`.
TENSOR_ARRAY = "_tensor_array"
#: The method by which a Cell takes a Cell as an attribute, and refuses the names of methods.
SET_CELL = "_set_attr_for_cell"


def cells_of(cell: Any) -> dict[str, Any]:
    """Return a Cell's Cells by attribute, for changes; `nn.Cell.name_cells` gives a copy, and a Cell to be has none."""
    return vars(cell).get("_cells") or {}


def reserve_cell(cell: Any, name: str) -> None:
    """Give a Cell's attribute a place, since what has one already is not refused."""
    cell._cells.setdefault(name, None)


#: Where `set_context` has a function for each key.
CONTEXT_SETTERS = "mindspore.context._Context.setters"


def context_setters() -> dict[str, Any] | None:
    """Return the functions by which `set_context` sets a key, by key; ``None`` where they are not known."""
    setters = _look_up(CONTEXT_SETTERS.replace("context.", "context:", 1))
    return None if setters is _NOTHING else setters


def context_parameter(key: str) -> Any:
    """MindSpore's number of a key of `set_context`; ``None`` where it is not known."""
    parameter = _look_up(f"mindspore.context:ms_ctx_param.{key}")
    return None if parameter is _NOTHING else parameter
