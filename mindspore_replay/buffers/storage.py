"""Places for a buffer's rows: the device, the host's memory, or a folder."""

import os
from typing import Any

import mindspore as ms

from ..ops import native
from ..store.library import library_for
from ..store.options import Options
from ..store.schema import Schema

DEVICE, HOST = "device", "host"


def checked_storage(cls_name: str, storage: Any) -> Any:
    """Return ``"device"``, ``"host"``, a path, or an opened `Folder`; raise a TypeError for anything else."""
    if isinstance(storage, (str, os.PathLike)):
        text = os.fspath(storage)
        if not text or (text not in (DEVICE, HOST) and text.lower() in (DEVICE, HOST)):
            raise ValueError(
                f"For '{cls_name}', 'storage' must be 'device', 'host' or the path of a folder, but got {storage!r}."
            )
        return storage
    if hasattr(storage, "header"):
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


def folder_of(buffer: Any, storage: Any, schema: Schema, options: Options) -> Any:
    """Return the `Folder` of a buffer; ``None`` if its rows are elsewhere."""
    if storage in (DEVICE, HOST):
        return None
    from ..checkpoint.description import describe_in_folder  # here since it describes all classes of buffers
    from ..store.folder import create
    from ..store.folder_header import Header, Sample

    schema_of_sample = buffer.sample_schema
    sample = Sample(
        schema_of_sample.bookkeeping,
        tuple(schema_of_sample.fields),
        schema_of_sample.always_handles,
        buffer.layout.hindsight is None,
    )
    header = Header(schema, options, sample, describe_in_folder(buffer))
    if hasattr(storage, "header"):
        if _comparable(storage.header) != _comparable(header):
            raise ValueError(
                f"For '{options.cls_name}', the buffer in {storage.path} must have the same columns and options: "
                f"expected {_comparable(header)}, but got {_comparable(storage.header)}."
            )
        return storage
    return create(storage, header)


def _comparable(header: Any) -> tuple[Any, ...]:
    """Return what must be equal for the same buffer: all but the seed, which a state replaces."""
    schema = header.schema
    return schema.shapes, schema.dtypes, schema.given_names, header.options._replace(seed=0), header.sample


@ms.jit_class
class NoOperators:
    """Operators of a buffer whose rows are not on the device: each raises an error when a graph is compiled."""

    def refuse(self, *_inputs):
        """Raise the error."""
        raise RuntimeError(
            "A compiled graph on this device cannot use a buffer with storage='host' or in a folder: call its methods "
            "from Python, and pass the samples to the graph."
        )

    insert = update = read = sample = finished = reset = update_priorities = delete = advance = info = refuse
    end_episodes = sample_groups = sums = summary = eligible = eligible_in = begin_epoch = refuse
