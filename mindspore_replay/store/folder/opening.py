"""Folders of buffers: made, and opened by a learner or an attached process."""

import contextlib
import glob
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..kernels import library, state
from ..kernels.locks import on_failure
from ..spec.spec import BufferSpec
from . import files as folder_files
from . import sharing
from .files import allocate, is_locked, opened_plainly
from .folder import HEADER, OWNER, Folder, fcntl
from .header import bad_folder, read_header, write_header
from .layout import STATE, Place, places_of, sizes_of

#: Seconds for which a folder that is locked is tried again: a process that asks whether there is a learner locks it.
_LOCK_WAIT = 0.5


def create(path: str | os.PathLike[str], spec: BufferSpec) -> Folder:
    """Make the folder of a new, empty buffer.

    Raises:
        FileExistsError: If `path` exists and is no empty folder.
        OSError: If the disk has not enough space. Then nothing is left behind.
        RuntimeError: If the system is not Linux.
    """
    _need_linux(spec.cls_name)
    cls_name, folder = spec.cls_name, Path(os.path.realpath(path))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"For '{cls_name}', 'storage' must name a new or empty folder, but {folder} exists. "
            f"{cls_name}.open({str(path)!r}) opens the buffer in it."
        )
    exists = folder.exists()  # then its files are made in it, and the header last: a folder without one is refused
    making = folder if exists else folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.tmp")
    places = places_of(spec)
    sizes = sizes_of(places)

    files: list[library.calls.File | Folder] = []

    def undo() -> None:
        for one in files:
            one.close()
        if exists:
            for name in (HEADER, OWNER, *sizes):
                (making / name).unlink(missing_ok=True)
        else:
            shutil.rmtree(making, ignore_errors=True)

    try:
        with on_failure(undo):
            if not exists:
                _remove_unfinished(folder)
                making.mkdir(mode=0o700, parents=True)
            allocate(making / OWNER, 0)
            files.append(owner := opened_plainly(making / OWNER))
            fcntl.flock(owner, fcntl.LOCK_EX)
            for name, size in sizes.items():
                allocate(making / name, size)
            files.append(lock := opened_plainly(making / STATE))
            fcntl.flock(lock, fcntl.LOCK_EX)  # until `share`
            files.append(new := Folder(making, spec, places, owner, True, lock, is_new=True))
            state.initialize(spec.options, new.arrays)
            sharing.restart(new.arrays)
            new.write_first()
            write_header(making / HEADER, spec)
            for path in (making / HEADER, making):
                folder_files.sync(path)
            if not exists:
                os.replace(making, folder)
                folder_files.sync(folder.parent)
    except OSError as error:
        text = (
            f"For '{cls_name}', the folder {folder} of {sum(sizes.values())} bytes could not be made: {error.strerror}"
        )
        raise OSError(error.errno, text) from error
    new.path = folder
    return new


def open_as_learner(path: str | os.PathLike[str], function: str, verify: bool = False) -> Folder:
    """Open the folder of a buffer as its only learner, perhaps only if all rows fit their checksums.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is not a whole folder of a buffer.
        RuntimeError: If another learner has it open.
        OSError: If this process may not write to it.
    """
    with _explained(path, function):
        folder, spec, places = _checked(path, function)
        owner = opened_plainly(folder / OWNER)
        with on_failure(owner.close):
            deadline = time.monotonic() + _LOCK_WAIT
            while not is_locked(owner, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"For '{function}', the buffer in {folder} is open in another learner: close it there."
                    )
                time.sleep(0.01)
            return _shared(folder, spec, places, owner, function, verify)


def open_to_attach(path: str | os.PathLike[str], function: str) -> Folder:
    """Open the folder of a buffer beside its learner. Errors are those of `open_as_learner`."""
    with _explained(path, function):
        return _shared(*_checked(path, function), None, function)


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str], function: str) -> Iterator[None]:
    """Say in errors of the system what was to be opened."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # one of `_checked`
            raise
        where = f": {error.filename}" if error.filename else ""
        text = f"For '{function}', the folder {os.fspath(path)} could not be opened: {error.strerror}{where}"
        raise OSError(error.errno, text) from error


def _shared(
    path: Path,
    spec: BufferSpec,
    places: Mapping[str, Place],
    owner: "library.calls.File | None",
    function: str,
    verify: bool = False,
) -> Folder:
    """Lock the file that all users of a folder lock, and map its files."""
    lock = opened_plainly(path / STATE)
    with on_failure(lock.close):
        is_first = is_locked(lock, fcntl.LOCK_EX)
        if not is_first:
            if verify:
                raise RuntimeError(
                    f"For '{function}', 'verify' must be False while others use the buffer in {path}: close them first."
                )
            fcntl.flock(lock, fcntl.LOCK_SH)
        return Folder(path, spec, places, owner, is_first, lock, verify=verify)


def _remove_unfinished(folder: Path) -> None:
    """Remove what processes that died left of this folder before it had its name."""
    for other in folder.parent.glob(f"{glob.escape(folder.name)}.{'[0-9a-f]' * 16}.tmp"):
        with contextlib.suppress(OSError):
            owner = opened_plainly(other / OWNER)
            if is_locked(owner, fcntl.LOCK_EX):
                shutil.rmtree(other)


def _need_linux(name: str) -> None:
    """Raise a RuntimeError on other systems: they lack robust locks, futexes, or both."""
    if sys.platform != "linux":
        raise RuntimeError(
            f"For '{name}', a buffer in a folder needs Linux, whose locks outlive the processes that hold them, but "
            f"this is {sys.platform}: keep the rows in memory, storage='host'."
        )


def _checked(path: str | os.PathLike[str], function: str) -> tuple[Path, BufferSpec, dict[str, Place]]:
    """Return the folder, its buffer and its arrays' places. Raise an error if a file is missing or has another size."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"For '{function}', 'folder' must be a path, but got {path!r}.")
    _need_linux(function)
    folder = Path(os.path.realpath(path))
    if not folder.is_dir():
        raise FileNotFoundError(
            f"For '{function}', 'folder' must be that of a buffer, but there is no folder {folder}."
        )
    if (folder / HEADER).is_symlink() or not (folder / HEADER).is_file():
        raise bad_folder(function, folder, f"has no file {HEADER!r}")
    spec = read_header(folder, folder / HEADER, function)
    places = places_of(spec)
    for name, size in {**sizes_of(places), OWNER: 0}.items():
        if (folder / name).is_symlink():
            raise bad_folder(function, folder, f"is not whole: its file {name!r} is a link to another")
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            got = "is missing" if found is None else f"has {found} bytes, not {size}"
            raise bad_folder(function, folder, f"is not whole: its file {name!r} {got}")
    return folder, spec, places
