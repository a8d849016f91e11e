"""A buffer's folder: its arrays as files that processes map into memory, and a header that describes them.

The folder holds ``header``, see `folder_header.py`; ``state``, with the arrays of the state, the lock and the journal;
``column.0``, ``column.1``, ..., with the rows; ``flushed.0`` and ``flushed.1``, see `flushed.py`; and ``owner``, which
the learner locks. Each process that uses the folder holds a shared lock on ``state``, and each that is attached one on
``column.0``.
"""

import contextlib
import ctypes
import errno
import math
import mmap
import os
import secrets
import shutil
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

try:
    import fcntl
except ImportError:  # on Windows, see `_need_linux`
    fcntl = None  # type: ignore[assignment]

from . import flushed, library, sharing, state
from .call import State
from .flushed import FILES, PAGE, Flushed, Record
from .folder_header import bad_folder, read_header, write_header
from .folder_layout import STATE, column_file, flushed_bytes, places_of, sizes_of
from .memory import memory_limit
from .recipe.spec import BufferSpec

_BOOT = "shared.boot"
_HEADER, _OWNER = "header", "owner"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Seconds for which a folder that is locked is tried again: a process that asks whether there is a learner locks it.
_LOCK_WAIT = 0.5

_opened: "weakref.WeakSet[Folder]" = weakref.WeakSet()


class Folder:
    """The files of a buffer, mapped into memory.

    Args:
        path (Path): The folder.
        spec (BufferSpec): What the buffer is.
        owner (Union[int, None]): Descriptor of the locked file of the learner; ``None`` in other processes.
        is_first (bool): Whether no other process uses the folder yet.
        is_new (bool): Whether it was just made.
        lock (int): Descriptor of the file that each user of the folder locks.
        verify (bool): Whether rows are checked also if the machine has not stopped. Default: ``False``.

    Attributes:
        arrays (dict[str, numpy.ndarray]): The state and the arrays of `sharing.layout`, by name.
    """

    def __init__(
        self,
        path: Path,
        spec: BufferSpec,
        owner: int | None,
        is_first: bool,
        lock: int,
        is_new: bool = False,
        verify: bool = False,
    ) -> None:
        self.path, self.spec, self.is_first, self.is_new = path, spec, is_first, is_new
        self._owner, self._lock, self._verify = owner, lock, verify
        places = places_of(spec)
        self._maps = {name: _mapped(path / name, size) for name, size in sizes_of(places).items()}
        pages = np.frombuffer(self._maps[STATE], np.uint8, flushed_bytes(places)).reshape(-1, PAGE)
        self._pages, self._flushed = pages, Flushed([np.frombuffer(self._maps[name], np.uint8) for name in FILES])
        self._last = Record()  # the last flush; the learner's alone
        self._flushing, self._fault = threading.Lock(), ""
        self._stops, self._notice = threading.Event(), ""
        self.arrays = {
            name: np.frombuffer(self._maps[at.file], at.dtype, math.prod(at.shape), at.start).reshape(at.shape)
            for name, at in places.items()
        }
        for mapped in self._maps.values():
            sharing.guard(mapped, self.arrays["head"])
        self.signals = sharing.Signals(self.arrays["shared.changes"])
        self._watched = os.open(path / _OWNER, os.O_RDONLY | os.O_CLOEXEC)
        self._users = os.open(path / column_file(0), os.O_RDWR | os.O_CLOEXEC)
        self._release = weakref.finalize(self, _close, os.getpid(), owner, (lock, self._watched, self._users))
        self._is_sole = False
        if owner is None:
            fcntl.flock(self._users, fcntl.LOCK_SH)
        _opened.add(self)

    @property
    def is_learner(self) -> bool:
        """True in the learner's process."""
        return self._owner is not None

    @property
    def closed(self) -> bool:
        """True if the learner has closed the buffer."""
        return bool(self.arrays["shared.closed"][0])

    def has_learner(self) -> bool:
        """Return True if a learner's process has the folder open."""
        if self._owner is not None:
            return True
        # The file itself: the folder may have been moved or deleted. Opened anew: a forked process shares `_watched`.
        with _open(f"/proc/self/fd/{self._watched}", os.O_RDONLY) as descriptor:
            return not _locked(descriptor, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def without_attached(self) -> Iterator[None]:
        """Let nobody attach during the block; only for the learner's process.

        Raises:
            RuntimeError: If somebody is attached.
        """
        self._is_sole = _locked(self._users, fcntl.LOCK_EX)
        self.check_sole_use()
        try:
            yield
        finally:
            self._is_sole = False
            fcntl.flock(self._users, fcntl.LOCK_UN)

    def check_sole_use(self) -> None:
        """Raise a RuntimeError unless the caller is in `without_attached`."""
        if not self._is_sole:
            raise RuntimeError(
                f"For '{self.spec.cls_name}', the rows in {self.path} cannot be replaced while somebody is attached "
                "to them: close the attached buffers first."
            )

    def is_beyond_memory(self) -> bool:
        """Return True if the columns are larger than a half of the memory that this process may use."""
        return sum(map(len, self._maps.values())) > memory_limit() // 2

    def share(self, state: State, check: Callable[[], None]) -> None:
        """Let kernels of this process use the folder's lock, and then other processes the folder.

        If no other process uses it yet, `check` raises an error for a damaged state, which is left as it is.
        """
        before = self._maps[STATE][:] if self.is_first and not self.is_new else None
        try:
            beyond = self.is_beyond_memory()
            stopped = before is not None and bool((self.arrays[_BOOT] != _this_boot()).any())
            record = self._begun(stopped)
            sharing.register(self.spec, self.arrays, state, self.is_first, beyond, self._maps[STATE])
            what = self._repaired(record, stopped) if stopped or self._verify else ""
            if before is not None:
                check()
        except BaseException:
            if before is not None:
                self._maps[STATE][:] = before
            raise
        if beyond:  # else a fault would read pages around a row, which push others out
            for name in set(self._maps) - {STATE}:
                self._maps[name].madvise(mmap.MADV_RANDOM)
        if self.is_first:
            self.arrays[_BOOT][:] = _this_boot()
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._notice = what
        if self.is_new:
            self.flush()

    def begin(self, function: str) -> None:
        """Let the learner, if this is its process, and attached processes change rows; warn of rows that are lost."""
        if self.is_learner:
            if self._last.closed:
                self.flush()  # a record that says so, before rows change
            self.arrays["shared.closed"][0] = 0
        if self._notice:
            warnings.warn(f"For '{function}', {self._notice}.", RuntimeWarning, stacklevel=4)

    def _begun(self, stopped: bool) -> Record:
        """Return the last flush. If the machine has stopped since, the state is that of the flush from here on."""
        if self.is_new or not (stopped or self._verify or self.is_learner):
            return Record()
        self._last, pages = self._flushed.newest()
        if self._last.number < 0:
            raise ValueError("neither of its files 'flushed.0' and 'flushed.1' is whole")
        if stopped:
            self._pages[:] = pages
            sharing.restart(self.arrays)
            self.arrays["shared.closed"][0] = self._last.closed
        return self._last

    def _repaired(self, since: Record, stopped: bool) -> str:
        """Remove rows that are not as they were at a flush, compute what follows from rows, and say what was lost."""
        arrays, options = self.arrays, self.spec.options
        state.check_places(options, arrays)
        with self._held():
            trusted = stopped and since.closed and not self._verify
            torn = np.empty(0, np.int64) if trusted else flushed.torn_rows(options, arrays, since)
            lost = flushed.described(arrays, options, torn)
            sharing.evict(arrays, flushed.remove_torn(options, arrays, torn))
            library.loaded().replay_repair(self._head())
        if not stopped or since.closed:
            return f"in {self.path} {lost}" if torn.size else ""
        return (
            f"the machine was started anew since {self.path} was last used, and it had not been closed: the buffer is "
            f"as it was at its last flush, with {int(arrays['count'])} rows"
            + f"; since they had been changed later, {lost}"
            * bool(torn.size)
        )

    def _head(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.arrays["head"].ctypes.data)

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Keep all processes from the arrays during the block; any thread may."""
        self._check(library.loaded().replay_hold(self._head()))
        try:
            yield
        finally:
            self._check(library.loaded().replay_let_go(self._head()))

    def _check(self, status: int) -> None:
        if status == library.NO_DISK:
            raise OSError(errno.EIO, f"For '{self.spec.cls_name}', {library.FAILURES[status]}: {self.path}")
        if status != library.OK:
            raise library.KernelError("replay_hold", status)

    def flush(self, closed: bool = False, unless: threading.Event | None = None) -> None:
        """Write everything to the disk; others go on meanwhile. The caller may hold the buffer.

        Args:
            closed (bool): Whether nobody changes rows until the next flush. Default: ``False``.
            unless (Union[threading.Event, None]): An event after which nothing is done. Default: ``None``.

        Raises:
            FileNotFoundError: If the folder was deleted.
            OSError: If the disk could not be written. What it has is not known then, so later flushes fail too.
        """
        with contextlib.ExitStack() as stack:
            with self._held():
                stack.enter_context(self._flushing)  # in this order: who holds the buffer may wait for a flush here
                if unless is not None and unless.is_set():
                    return
                arrays, number = self.arrays, self._last.number + 1
                flushed.note_changed_rows(self.spec.options, arrays, self._last)
                counts = int(arrays["serials"][0]), int(arrays["updates"][0])
                record = Record(number, int(closed), *counts, self._flushed.write(number, self._pages))
            folder = Path(os.readlink(f"/proc/self/fd/{self._watched}")).parent  # it may have been moved
            newest = FILES[number % 2]
            try:
                if self._fault:
                    raise OSError(errno.EIO, self._fault)
                for name in set(self._maps) - {STATE, *FILES}:
                    _sync(folder / name)
                if number == 0:
                    for path in (folder / _HEADER, folder / STATE, folder / _OWNER, folder, folder.parent):
                        _sync(path)
                self._flushed.record(record)
                _sync(folder / newest)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"For '{self.spec.cls_name}', the folder {folder} was deleted: its rows are lost when it is closed."
                ) from error
            except OSError as error:
                self._fault = error.strerror or str(error)
                raise OSError(
                    error.errno,
                    f"For '{self.spec.cls_name}', the folder {folder} could not be written to the disk: {self._fault}. "
                    "save() its rows elsewhere: what the disk has of them is not known",
                ) from error
            self._last = record

    def flush_every(self, seconds: float) -> None:
        """Flush in a thread of its own, until the folder is closed or this is called again; 0 ends it."""
        self._stops.set()
        self._stops = threading.Event()
        if seconds > 0:
            threading.Thread(target=_flush_often, args=(weakref.ref(self), self._stops, seconds), daemon=True).start()

    def close(self) -> None:
        """Give up the folder; the arrays stay mapped as long as something refers to them."""
        self._release()
        self._owner = None

    def forget_owner(self) -> None:
        """Leave the learner's lock to the process from which this one was forked."""
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


def create(path: str | os.PathLike[str], spec: BufferSpec) -> Folder:
    """Make the folder of a new, empty buffer.

    Raises:
        FileExistsError: If `path` exists and is no empty folder.
        OSError: If the disk has not enough space; then nothing is left behind.
        RuntimeError: If the system is not Linux.
    """
    _need_linux(spec.cls_name)
    cls_name, folder = spec.cls_name, Path(os.path.realpath(path))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"For '{cls_name}', 'storage' must name a new or empty folder, but {folder} exists. "
            f"{cls_name}.open({str(path)!r}) opens the buffer in it."
        )
    there = folder.exists()  # then its files are made in it, and the header last: a folder without one is refused
    making = folder if there else folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.tmp")
    sizes = sizes_of(places_of(spec))
    try:
        with contextlib.ExitStack() as undo:
            if not there:
                making.mkdir(mode=0o700, parents=True)
                undo.callback(shutil.rmtree, making, ignore_errors=True)
            for name, size in {**sizes, _OWNER: 0}.items():
                _allocate(making / name, size, undo)
            with contextlib.ExitStack() as stack:
                owner, lock = (_descriptor(making / name, stack) for name in (_OWNER, STATE))
                fcntl.flock(owner, fcntl.LOCK_EX)
                fcntl.flock(lock, fcntl.LOCK_EX)  # until `share`
                made = Folder(making, spec, owner, True, lock, is_new=True)
                stack.pop_all()  # it closes them itself
            undo.callback(made.close)
            state.initialize(spec.options, made.arrays)
            sharing.restart(made.arrays)
            undo.callback((making / _HEADER).unlink, missing_ok=True)
            write_header(making / _HEADER, spec)
            if not there:
                os.replace(making, folder)
            undo.pop_all()
    except OSError as error:
        text = (
            f"For '{cls_name}', the folder {folder} of {sum(sizes.values())} bytes could not be made: {error.strerror}"
        )
        raise OSError(error.errno, text) from error
    made.path = folder
    return made


def open_as_learner(path: str | os.PathLike[str], function: str, verify: bool = False) -> Folder:
    """Open the folder of a buffer as its only learner, perhaps only if all rows fit their checksums.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is not a whole folder of a buffer.
        RuntimeError: If another learner has it open.
        OSError: If this process may not write to it.
    """
    with _explained(path, function), contextlib.ExitStack() as stack:
        folder, spec = _checked(path, function)
        owner = _descriptor(folder / _OWNER, stack)
        deadline = time.monotonic() + _LOCK_WAIT
        while not _locked(owner, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"For '{function}', the buffer in {folder} is open in another learner: close it there."
                )
            time.sleep(0.01)
        return _shared(folder, spec, owner, stack, function, verify)


def open_to_attach(path: str | os.PathLike[str], function: str) -> Folder:
    """Open the folder of a buffer beside its learner; errors are those of `open_as_learner`."""
    with _explained(path, function), contextlib.ExitStack() as stack:
        return _shared(*_checked(path, function), None, stack, function)


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
    path: Path, spec: BufferSpec, owner: int | None, stack: contextlib.ExitStack, function: str, verify: bool = False
) -> Folder:
    """Lock the file that all users of a folder lock, and map its files; `stack` closes descriptors after an error."""
    lock = _descriptor(path / STATE, stack)
    is_first = _locked(lock, fcntl.LOCK_EX)
    if not is_first:
        if verify:
            raise RuntimeError(
                f"For '{function}', 'verify' must be False while others use the buffer in {path}: close them before."
            )
        fcntl.flock(lock, fcntl.LOCK_SH)
    folder = Folder(path, spec, owner, is_first, lock, verify=verify)
    stack.pop_all()  # it closes them itself
    return folder


def _descriptor(path: Path, stack: contextlib.ExitStack) -> int:
    """Open a file that the stack closes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    stack.callback(os.close, descriptor)
    return descriptor


def _need_linux(name: str) -> None:
    """Raise a RuntimeError on other systems: they lack robust locks, futexes, or both."""
    if sys.platform != "linux":
        raise RuntimeError(
            f"For '{name}', a buffer in a folder needs Linux, whose locks outlive the processes that hold them, but "
            f"this is {sys.platform}: keep the rows in memory, storage='host'."
        )


def _checked(path: str | os.PathLike[str], function: str) -> tuple[Path, BufferSpec]:
    """Return the folder and what its buffer is; raise an error if a file is missing or has another size."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"For '{function}', 'folder' must be a path, but got {path!r}.")
    _need_linux(function)
    folder = Path(os.path.realpath(path))
    if not folder.is_dir():
        raise FileNotFoundError(
            f"For '{function}', 'folder' must be that of a buffer, but there is no folder {folder}."
        )
    if not (folder / _HEADER).is_file():
        raise bad_folder(function, folder, f"has no file {_HEADER!r}")
    spec = read_header(folder, folder / _HEADER, function)
    for name, size in {**sizes_of(places_of(spec)), _OWNER: 0}.items():
        if (folder / name).is_symlink():
            raise bad_folder(function, folder, f"is not whole: its file {name!r} is a link to another")
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            got = "is missing" if found is None else f"has {found} bytes, not {size}"
            raise bad_folder(function, folder, f"is not whole: its file {name!r} {got}")
    return folder, spec


@contextlib.contextmanager
def _open(path: str | Path, flags: int) -> Iterator[int]:
    """Open a file during the block, which gets its descriptor."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mapped(path: Path, size: int) -> mmap.mmap:
    with _open(path, os.O_RDWR | os.O_NOFOLLOW) as descriptor:
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED)


def _allocate(path: Path, size: int, undo: contextlib.ExitStack) -> None:
    """Make a file of zeros, which `undo` deletes again.

    Its blocks are reserved: a full disk would later kill a process that writes to memory.
    """
    with _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
        undo.callback(path.unlink, missing_ok=True)
        if size:
            os.posix_fallocate(descriptor, 0, size)


def _sync(path: Path) -> None:
    """Write a file or a folder to the disk."""
    with _open(path, os.O_RDONLY) as descriptor:
        (os.fsync if path.is_dir() else os.fdatasync)(descriptor)


def _flush_often(reference: "weakref.ref[Folder]", stops: threading.Event, seconds: float) -> None:
    """Flush a folder now and then; a flush that fails is told in a warning, and is the last."""
    while not stops.wait(seconds):
        folder = reference()
        if folder is None:
            return
        try:
            folder.flush(unless=stops)
        except (OSError, library.KernelError) as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=1)
            return
        del folder


def _locked(descriptor: int, kind: int) -> bool:
    """Lock a file if it is free, and return True if so."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _close(process: int, owner: int | None, others: tuple[int, ...]) -> None:
    """Close the descriptors of files. In a forked process that of the learner's lock is closed already."""
    for descriptor in others:
        os.close(descriptor)
    if owner is not None and process == os.getpid():
        os.close(owner)


def _this_boot() -> np.ndarray:
    """Return the identity of this run of the machine. Shape ``[40]``, uint8."""
    text = _BOOT_ID.read_bytes()[:40] if _BOOT_ID.exists() else b"unknown"
    return np.frombuffer(text.ljust(40, b"\0"), np.uint8)


def _after_fork() -> None:
    for folder in _opened:
        folder.forget_owner()


if fcntl is not None:
    os.register_at_fork(after_in_child=_after_fork)
