"""Places for a buffer's rows: the device, the host's memory, or a folder."""

import os
from typing import Any

import mindspore as ms

from ..ops import native
from ..store.folder import create
from ..store.library import library_for
from ..store.plan import DISCOUNT, RETURN

DEVICE, HOST = "device", "host"

_INSTEAD = "call its methods from Python, and pass the samples to the graph."
#: The errors of graphs that use a buffer of which they cannot reach the rows.
GRAPHS_OF_HOST = f"A compiled graph on this device cannot use a buffer with storage='host' or in a folder: {_INSTEAD}"
GRAPHS_OF_COMPRESSED = f"A compiled graph cannot use a buffer with compressed columns: {_INSTEAD}"


def checked_storage(cls_name: str, storage: Any) -> Any:
    """Return ``"device"``, ``"host"``, a path, or an opened `Folder`; raise a TypeError for anything else."""
    if isinstance(storage, (str, os.PathLike)):
        text = os.fspath(storage)
        if not text or (text not in (DEVICE, HOST) and text.lower() in (DEVICE, HOST)):
            raise ValueError(
                f"For '{cls_name}', 'storage' must be 'device', 'host' or the path of a folder, but got {storage!r}."
            )
        return storage
    if hasattr(storage, "spec"):
        return storage
    raise TypeError(
        f"For '{cls_name}', 'storage' must be 'device', 'host' or the path of a folder, but got {storage!r}."
    )


def backend_of(cls_name: str, storage: Any, backend: str) -> str:
    """Return the backend for rows at this place; raise an error if there is none."""
    if storage == DEVICE:
        return native.choose_backend(backend, cls_name)
    reason = library_for("CPU").reason
    if backend == "composite" or reason:
        why = reason or "but got backend='composite'"
        raise ValueError(f"For '{cls_name}', storage={_shown(storage)} needs the kernels of the CPU: {why}.")
    return native.choose_backend(backend, cls_name) if native.on_cpu() else "native"


def _shown(storage: Any) -> str:
    return repr(os.fspath(getattr(storage, "path", storage)))


def folder_of(buffer: Any, storage: Any) -> Any:
    """Return the `Folder` of a buffer; ``None`` if its rows are elsewhere."""
    if storage in (DEVICE, HOST):
        return None
    spec = buffer.spec
    if spec.kind is None:
        raise ValueError(f"For '{spec.cls_name}', storage={_shown(storage)} needs a class derived from a public one.")
    if not hasattr(storage, "spec"):
        return create(storage, spec)
    if storage.spec.to_json() != spec.to_json():
        raise ValueError(
            f"For '{spec.cls_name}', the buffer in {storage.path} must have the same columns and options: expected "
            f"{spec.to_json()}, but got {storage.spec.to_json()}."
        )
    return storage


def check_compressed(buffer: Any, storage: Any) -> None:
    """Raise a ValueError if a buffer cannot have its compressed columns."""
    name, columns, plan = buffer.options.cls_name, buffer.columns, buffer.options.plan
    if not buffer._direct:
        raise ValueError(
            f"For '{name}', 'compress' needs the kernels of the CPU, with backend='native' and, on another device, "
            f"storage='host', but got backend={buffer.backend!r} and storage={_shown(storage)}."
        )
    if storage not in (DEVICE, HOST):
        raise ValueError(
            f"For '{name}', 'compress' needs the memory of this process, since rows in a folder are all of one size, "
            f"but got storage={_shown(storage)}."
        )
    if buffer.layout.hindsight is not None:
        raise ValueError(
            f"For '{name}', 'compress' must be empty with HindsightRelabel, which computes rewards from rows."
        )
    used = {output.column for output in plan.outputs if output.kind in (RETURN, DISCOUNT)} & set(columns.compressed)
    if used:
        raise ValueError(
            f"For '{name}', 'compress' must leave out columns that a view computes with, but got "
            f"{[columns.names[i] for i in sorted(used)]}."
        )


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
