"""Places for the rows of a buffer: the device, the memory of the host, or a folder."""

import difflib
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar

from ..base.checks import check_bool, need
from ..folder.folder import Folder
from ..folder.header import bad_folder
from ..folder.opening import create, open_as_learner
from ..kernels.library import KernelError
from ..kernels.limits import BY_RULE, Limits
from ..kernels.locks import on_failure
from ..kernels.memory import address
from ..spec.plan import DISCOUNT, RETURN
from ..spec.spec import BufferSpec

_Opened = TypeVar("_Opened")

DEVICE, HOST = "device", "host"
#: Values of ``storage`` that name no folder.
IN_MEMORY = (None, DEVICE, HOST)

#: ``"device"``, ``"host"``, the path of a folder to make, or an opened folder.
Storage = str | os.PathLike[str] | Folder


def checked_storage(cls_name: str, storage: Any, default: str) -> Storage:
    """Return the place of the rows, for ``None`` the default. Raise a TypeError or ValueError if it is none.

    A bare name is that of a folder only if there is one, and it is like no other place.
    """
    if storage is None:
        return default
    if isinstance(storage, Folder):
        return storage
    rule = "'storage' must be None, 'device', 'host' or the path of a folder"
    need(isinstance(storage, (str, os.PathLike)), TypeError, cls_name, rule, storage)
    text = os.fspath(storage)
    need(text, ValueError, cls_name, rule, storage)
    is_name = isinstance(storage, str) and storage not in IN_MEMORY and os.sep not in storage
    if is_name and (difflib.get_close_matches(text.lower(), (DEVICE, HOST)) or not os.path.isdir(text)):
        folder = os.path.join(".", text)
        raise ValueError(f"For '{cls_name}', {rule}, but got {storage!r}. For a folder write {folder!r}.")
    return storage  # type: ignore[no-any-return]


def shown(storage: Storage) -> str:
    """Return a place for a message."""
    return repr(os.fspath(storage.path if isinstance(storage, Folder) else storage))


def folder_of(spec: BufferSpec, storage: Storage) -> Folder | None:
    """Return the folder of a buffer, which is made if it is new, or ``None`` if its rows are elsewhere."""
    if storage in (DEVICE, HOST):
        return None
    if spec.public_class is None:
        raise ValueError(f"For '{spec.cls_name}', storage={shown(storage)} needs a class derived from a public one.")
    if not isinstance(storage, Folder):
        return create(storage, spec)
    if storage.spec.to_json() != spec.to_json():
        raise ValueError(
            f"For '{spec.cls_name}', the buffer in {storage.path} must have the same columns and options: expected "
            f"{spec.to_json()}, but got {storage.spec.to_json()}."
        )
    return storage


def check_compressed(spec: BufferSpec, storage: Storage) -> None:
    """Raise a ValueError if a buffer cannot have its compressed columns, if it has any."""
    name, columns = spec.cls_name, spec.columns
    if not columns.compressed:
        return
    if storage not in (DEVICE, HOST):
        raise ValueError(
            f"For '{name}', compress=True needs the memory of this process, since rows in a folder are all of one "
            f"size, but got storage={shown(storage)}."
        )
    if spec.layout.hindsight is not None:
        raise ValueError(
            f"For '{name}', no column may have compress=True with HindsightRelabel, which computes rewards from rows."
        )
    outputs = spec.options.plan.outputs
    used = {output.column for output in outputs if output.kind in (RETURN, DISCOUNT)} & set(columns.compressed)
    if used:
        raise ValueError(
            f"For '{name}', columns that a view computes with must not have compress=True, but got "
            f"{[columns.names[i] for i in sorted(used)]}."
        )


def open_buffer(
    cls: type[_Opened],
    folder: str | os.PathLike[str],
    views: Sequence[object] | None,
    verify: bool,
    find: Callable[[str], Any],
) -> _Opened:
    """Open the buffer in a folder as its learner, as `Buffer.open` does.

    Args:
        cls (type): The class whose `open` was called.
        folder (Union[str, PathLike]): The folder.
        views (Union[Sequence, None]): The buffer's views, if one contains Python code.
        verify (bool): Whether all rows are to be checked.
        find (Callable): Returns the class of a name.
    """
    function = f"{cls.__name__}.open"
    check_bool(function, "verify", verify)
    opened = open_as_learner(folder, function, verify)
    with on_failure(opened.close):
        spec, make = opened.spec, find(opened.spec.cls_name)
        if spec.foreign:
            raise ValueError(f"For '{function}', {opened.path} can only be attached to, since {spec.foreign}.")
        if not _is_class(make, cls):
            raise bad_folder(function, opened.path, f"holds a {spec.cls_name}")
        if views is None and spec.incomplete:
            raise ValueError(
                f"For '{function}', 'views' must be those that the buffer in {opened.path} was made with, since "
                f"{spec.incomplete}."
            )
        options = {} if views is None else {"views": views}
        try:
            buffer = make(capacity=spec.capacity, seed=0, storage=opened, **{**spec.arguments(), **options})
            buffer.check_valid()
            limits = Limits(opened.arrays["shared.limits"], address(opened.arrays["head"]))
            if limits.kind == BY_RULE:
                limiter = find("RateLimiter")(1, 1, 1)
                limiter.load_arrays({"rule": limits.rule, "counts": limits.counts})
                buffer.limiter = limiter
        except (ArithmeticError, AttributeError, KernelError, LookupError, TypeError, ValueError) as error:
            raise bad_folder(function, opened.path, f"is damaged: {error}") from error
        opened.begin(function)
    return buffer


def _is_class(found: object, cls: type[_Opened]) -> TypeGuard[Callable[..., Any]]:
    return isinstance(found, type) and issubclass(found, cls)


def flush(cls_name: str, folder: Folder | None, every: float | None, rows: int | None) -> None:
    """Flush the folder of a buffer, now and perhaps every so many seconds or rows, as `Buffer.flush` does."""
    if folder is None:
        raise RuntimeError(f"For '{cls_name}', 'flush' needs a buffer made with storage=folder.")
    if every is not None and (isinstance(every, bool) or not isinstance(every, (int, float)) or not every >= 0):
        raise ValueError(f"For '{cls_name}', 'every' must be a number of seconds >= 0, but got {every!r}.")
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise ValueError(f"For '{cls_name}', 'rows' must be an integer >= 1, but got {rows!r}.")
    folder.flush()
    if every is not None or rows is not None:
        folder.flush_every(every or 0, rows or 0)
