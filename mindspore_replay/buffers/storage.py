"""Places for a buffer's rows: the device, the host's memory, or a folder."""

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


def default_storage(spec: BufferSpec, backend: str) -> str:
    """Return the default storage: the device, unless kernels could use the rows only in the host's memory."""
    by_kernel = backend != "composite" and spec.options.plan.by_kernel
    fits = native.runs_on_device() and (native.on_cpu() or not (spec.columns.compressed or spec.columns.kinds))
    return DEVICE if fits or not by_kernel else HOST


def backend_of(cls_name: str, storage: Storage, backend: str) -> str:
    """Return the backend for rows at this place. Raise an error if there is none."""
    if storage == DEVICE:
        return native.choose_backend(backend, cls_name)
    reason = library_for("CPU").reason
    if backend == "composite" or reason:
        why = reason or "but got backend='composite'"
        raise ValueError(f"For '{cls_name}', storage={place.shown(storage)} needs the kernels of the CPU: {why}.")
    return native.choose_backend(backend, cls_name) if native.on_cpu() else "native"


def refusal(columns: Schema) -> str | None:
    """Return the error of graphs that use a buffer with such columns, or ``None`` if they can."""
    return f"A compiled graph cannot use a buffer with compressed columns: {_INSTEAD}." if columns.compressed else None


def check_references(spec: BufferSpec, storage: Storage, backend: str, direct: bool) -> None:
    """Raise a ValueError if a buffer cannot have columns of references, if it has any."""
    compressed, differ = spec.columns.compressed, spec.columns.kinds
    if (compressed or differ) and not direct:
        what = "'compress'" if compressed else "a column whose shape begins with None"
        raise ValueError(
            f"For '{spec.cls_name}', {what} needs the kernels of the CPU, with backend='native' and, on another "
            f"device, storage='host', but got backend={backend!r} and storage={place.shown(storage)}."
        )
    place.check_compressed(spec, storage)


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
