"""Refuses to run inside ``ms.jit(capture_mode="trace")``.

That mode runs a function's Python once and records the operators it meets. A buffer's method is then called as from
Python, so it would act while the function is traced and never again. To record its operators would not help: MindSpore
runs them while it traces and once more in the graph, so the first rows would be stored twice.
"""

import sys
from typing import Any, NoReturn

try:
    from mindspore.graph import jit_context as contexts  # MindSpore 2.9 and newer
except ImportError:
    from mindspore.common import jit_context as contexts


def _tracer() -> Any:
    """MindSpore's module in which the current thread is tracing a function; ``None`` if it traces none."""
    frame: Any = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("mindspore.") and name.endswith(".jit_trace"):
            return sys.modules[name]
        frame = frame.f_back
    return None


def refuse_trace() -> None:
    """Raises a RuntimeError if the current thread is tracing a function."""
    tracer = _tracer()
    if tracer is not None:
        _end(tracer, contexts.jit_context())
        _refuse()


def _end(tracer: Any, context: Any) -> None:
    """Ends the trace, since MindSpore would go on recording after an exception, and forgets the unfinished graph."""
    if context.is_nested():
        contexts.set_jit_context(None)
        return
    phase = context.phase
    tracer._jit_trace_end(0)
    tracer._trace_compile_cache.discard(phase)


def _refuse() -> NoReturn:
    raise RuntimeError(
        "A replay buffer cannot be used in ms.jit(capture_mode='trace'), which would run its methods only while it "
        "traces. Use capture_mode='ast', the default, or 'bytecode'."
    )
