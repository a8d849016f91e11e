"""Places for a buffer's rows: the device, the host's memory, or a folder."""

from collections.abc import Callable
from typing import NoReturn

import mindspore as ms

from ..ops import native
from ..store.base.schema import Schema
from ..store.faces import place
from ..store.faces.place import DEVICE, HOST, Storage
from ..store.kernels.library import library_for
from ..store.spec.spec import BufferSpec

_INSTEAD = "call its methods from Python, and pass the samples to the graph"
#: The errors of graphs that use a buffer of which they cannot reach the rows.
GRAPHS_OF_HOST = (
    f"A compiled graph on this device cannot use a buffer with storage='host' or in a folder: {_INSTEAD}, or make it "
    "with storage='device'."
)


#: What no kernel of another device serves: its name in messages, and whether a buffer has it.
_ONLY_ON_CPU: tuple[tuple[str, Callable[[BufferSpec], object]], ...] = (
    ("compress=True", lambda spec: spec.columns.compressed),
    ("a column whose shape begins with None", lambda spec: spec.columns.length_groups),
    ("late=True in a queue", lambda spec: spec.options.keeps_turn and not native.on_cpu()),
)


def _only_on_cpu(spec: BufferSpec) -> str | None:
    return next((feature for feature, is_used in _ONLY_ON_CPU if is_used(spec)), None)


def default_storage(spec: BufferSpec, backend: str) -> str:
    """Return the default storage: the device, unless kernels could use the rows only in the host's memory."""
    fits = native.runs_on_device() and (native.on_cpu() or _only_on_cpu(spec) is None)
    return DEVICE if fits or backend == "composite" else HOST


def need_kernels(cls_name: str, trait: str, got: str) -> NoReturn:
    """Raise the ValueError for what the composite backend does not serve."""
    raise ValueError(
        f"For '{cls_name}', {trait} needs kernels, with backend='native' or, on a device without them, storage='host', "
        f"its default, but got {got}. The composite backend serves single rows, drawn uniformly or by priority."
    )


def backend_of(spec: BufferSpec, storage: Storage, backend: str) -> str:
    """Return the backend for rows at this place. Raise an error if there is none that serves such a buffer."""
    name, feature = spec.cls_name, spec.needs_kernels
    if storage != DEVICE:
        reason = library_for("CPU").reason
        if backend == "composite" or reason:
            why = reason or "but got backend='composite'"
            raise ValueError(f"For '{name}', storage={place.shown(storage)} needs the kernels of the CPU: {why}.")
        return native.choose_backend(backend, name) if native.on_cpu() else "native"
    reason = native.why_not()
    chosen = backend if backend != "auto" else "composite" if reason else "native"
    got = f"backend={chosen!r} and storage={place.shown(storage)}"
    if (only := _only_on_cpu(spec)) and not native.direct_calls(chosen):
        raise ValueError(
            f"For '{name}', {only} needs the kernels of the CPU, with backend='native' and, on another device, "
            f"storage='host', but got {got}."
        )
    if feature and chosen == "composite":
        need_kernels(name, feature, got if backend == "composite" else f"{got}, since {reason}")
    return native.choose_backend(backend, name)


def refusal(columns: Schema) -> str | None:
    """Return the error of graphs that use a buffer with such columns, or ``None`` if they can."""
    return f"A compiled graph cannot use a buffer with compressed columns: {_INSTEAD}." if columns.compressed else None


@ms.jit_class
class NoOperators:
    """Operators of a buffer whose rows no graph can reach: each raises an error when a graph is compiled.

    Args:
        reason (str): The message.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def refuse(self, *_inputs):
        """Raise the error."""
        raise RuntimeError(self.reason)

    insert = update = read = sample = draw = reset = update_priorities = delete = advance = info = refuse
    end_episodes = sample_groups = sums = summary = eligible = eligible_in = begin_epoch = count = refuse
