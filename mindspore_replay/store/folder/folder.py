"""A buffer's folder: its arrays as files that processes map into memory, and a header that describes them.

The folder contains ``header``, see `header.py`; ``state``, with the arrays of the state, the lock and the
journal; ``columns``, with the rows; ``flushed.0`` and ``flushed.1``, see `flushed.py`; and ``owner``, which the learner
locks. Each process that uses the folder holds a shared lock on ``state``, and each that is attached one on ``columns``.
"""

import atexit
import errno
import functools
import math
import mmap
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..base.gone import Living
from ..kernels import library, state
from ..kernels.call import State
from ..kernels.locks import Block, Event, Held, finally_, on_failure
from ..kernels.memory import address, holding, memory_limit
from ..spec.spec import BufferSpec
from . import files as folder_files
from . import sharing, torn
from .files import fcntl, is_locked, mapped, opened
from .flushed import Flushed, Record
from .layout import COLUMNS, FILES, STATE, Place, sizes_of
from .torn import RowChecksums

_BOOT, _INODE = "shared.boot", "shared.inode"
#: Bytes of rows whose checksums are computed while others wait, and seconds in which they may go on after that.
_AT_ONCE, _PAUSE = 1 << 20, 1e-4
#: Seconds after which a thread looks again how many rows were inserted.
_LOOK = 0.01
#: Names of the files that hold what the buffer is, and that the learner locks.
HEADER, OWNER = "header", "owner"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_opened = Living()


class Folder:
    """The files of a buffer, mapped into memory.

    Args:
        path (Path): The folder.
        spec (BufferSpec): What the buffer is.
        places (Mapping[str, Place]): Where its arrays are in the files.
        owner (Union[File, None]): The locked file of the learner, or ``None`` in other processes.
        is_first (bool): Whether no other process uses the folder yet.
        is_new (bool): Whether it was just made.
        lock (File): The file that each user of the folder locks.
        verify (bool): Whether rows are checked also if the machine has not stopped. Default: ``False``.

    Attributes:
        arrays (dict[str, numpy.ndarray]): The state and the arrays of `sharing.layout`, by name.
    """

    def __init__(
        self,
        path: Path,
        spec: BufferSpec,
        places: Mapping[str, Place],
        owner: "library.calls.File | None",
        is_first: bool,
        lock: "library.calls.File",
        is_new: bool = False,
        verify: bool = False,
    ) -> None:
        self.path, self.spec, self.is_first, self.is_new = path, spec, is_first, is_new
        self._owner, self._lock, self._verify = owner, lock, verify
        self._maps = {name: mapped(path / name, size) for name, size in sizes_of(places).items()}
        self._last = Record()  # the last flush; the learner's alone
        self._flush, self._fault = _Flush(ended=True), ""
        self.gives_up = False  # whether the user was told that the disk may lack rows
        self._stops, self._notice = Event(), ""
        self.arrays: dict[str, np.ndarray] = {
            name: np.ndarray(at.shape, at.dtype, self._maps[at.file], at.start) for name, at in places.items()
        }
        self._head = address(self.arrays["head"])
        for memory in self._maps.values():
            sharing.guard(memory, self.arrays["head"])
        self._watched = opened(path / OWNER, os.O_RDONLY)
        self._users, *written = (opened(path / name, os.O_RDWR) for name in (COLUMNS, *FILES))
        self._files = lock, self._watched, self._users, *written
        files = {name: np.frombuffer(memory, np.uint8) for name, memory in self._maps.items()}
        self._checksums, self._row_bytes = RowChecksums(spec.options, self.arrays), spec.columns.row_bytes()
        self._flushed = Flushed(spec.options, places, self.arrays, files, written)
        self._held = holding(self._head, functools.partial(_fail, weakref.ref(self)))  # keeps all processes out
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
        return not is_locked(opened(f"/proc/self/fd/{self._watched.fileno()}", os.O_RDONLY), fcntl.LOCK_SH)

    def without_attached(self) -> Held:
        """Return a block in which no process attaches. Only for the learner's process.

        It raises a RuntimeError if a process is attached.
        """
        return Block(self._begin_sole_use, self._end_sole_use)

    def _begin_sole_use(self) -> None:
        self._is_sole = is_locked(self._users, fcntl.LOCK_EX)
        self.check_sole_use()

    def _end_sole_use(self, _: bool) -> None:
        self._is_sole = False
        fcntl.flock(self._users, fcntl.LOCK_UN)

    def check_sole_use(self) -> None:
        """Raise a RuntimeError unless the caller is in `without_attached`."""
        if not self._is_sole:
            raise RuntimeError(
                f"For '{self.spec.cls_name}', the rows in {self.path} cannot be replaced while attached buffers use "
                "them: close those first."
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
            stopped = self._stopped() if before is not None else ""
            record = self._begun(stopped)
            sharing.register(self.spec, self.arrays, state, self.is_first, beyond, self._maps[STATE])
            library.loaded().replay_watch(self._head, self._watched.fileno())
            repairs = self._repaired(record, stopped) if stopped or self._verify else ""
            if before is not None:
                check()
            if repairs and self._now().updates != record.updates:
                self.flush(bool(record.closed))  # rows have moved, and the last flush looks for them where they were
        except BaseException:
            if before is not None:
                self._maps[STATE][:] = before
            raise
        if beyond:  # else a fault would read pages around a row, which push others out
            self._maps[COLUMNS].madvise(mmap.MADV_RANDOM)
        if self.is_first:
            self.arrays[_BOOT][:], self.arrays[_INODE][:] = _this_boot(), os.fstat(self._lock.fileno()).st_ino
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._notice = repairs

    def begin(self, function: str) -> None:
        """Let the learner, if this is its process, and attached processes change rows. Warn of rows that are lost."""
        if self.is_learner:
            if self._last.closed:
                self.flush()  # a record that says so, before rows change
            self.arrays["shared.closed"][0] = 0
        if self._notice:
            warnings.warn(f"For '{function}', {self._notice}.", RuntimeWarning, stacklevel=4)

    def _stopped(self) -> str:
        """Return why the pages of the files may be of different times; an empty text if they are not."""
        if (self.arrays[_BOOT] != _this_boot()).any():
            return f"the machine was restarted since {self.path} was last used, and it had not been closed"
        if self.arrays[_INODE][0] != os.fstat(self._lock.fileno()).st_ino:
            return f"{self.path} is a copy of a folder that had not been closed"
        return ""

    def _begun(self, stopped: str) -> Record:
        """Return the last flush.

        If pages are of different times, or to verify a closed folder, the state is that of the flush from here on.
        """
        if self.is_new or not (stopped or self._verify or self.is_learner):
            return Record()
        self._last = self._flushed.read()
        if self._last.number < 0:
            raise ValueError("neither of its files 'flushed.0' and 'flushed.1' is whole")
        if self.is_learner:  # one that was killed may have left these in memory; the next flush replaces the one before
            self._flushed.sync()
            folder_files.sync(self.path.parent)
        if stopped or (self._verify and self._last.closed):
            self._flushed.restore()
            sharing.restart(self.arrays)
            self.arrays["shared.closed"][0] = self._last.closed
        return self._last

    def _repaired(self, since: Record, stopped: str) -> str:
        """Remove rows that changed after the flush, recompute what follows from rows, and report what was lost."""
        arrays, options = self.arrays, self.spec.options
        state.check_places(options, arrays)
        with self._held:
            trusted = stopped and since.closed and not self._verify
            slots = np.empty(0, np.int64) if trusted else torn.torn_rows(options, arrays, since)
            lost = torn.described(arrays, options, slots)
            sharing.evict(arrays, torn.remove_torn(options, arrays, slots))
            library.loaded().replay_repair(self._head)
        if not stopped or since.closed:
            return f"in {self.path} {lost}" if lost else ""
        return f"{stopped}: the buffer is as it was at its last flush, with {int(arrays['count'])} rows" + (
            f"; since they had been changed later, {lost}" if lost else ""
        )

    def flush(self, closed: bool = False, unless: Event | None = None) -> None:
        """Write everything to the disk. Others go on meanwhile. The caller may hold the buffer.

        Args:
            closed (bool): Whether no row changes until the next flush. Default: ``False``.
            unless (Union[Event, None]): An event after which nothing is done. Default: ``None``.

        Raises:
            FileNotFoundError: If the folder was deleted.
            OSError: If the disk could not be written. What it has is not known then, so later flushes fail too.
        """
        since, mine = self._noted(), _Flush()
        with mine.going:
            taken = self._taken(mine, closed, since, unless)
            if taken is None:
                return
            self.check_place()
            try:
                if self._fault:
                    raise OSError(errno.EIO, self._fault)
                self._write(*taken)
                mine.ended = True
            except OSError as error:
                if error.errno is None:  # the handler of a signal raised it
                    raise
                self._fault = error.strerror or str(error)
                raise OSError(
                    error.errno,
                    f"For '{self.spec.cls_name}', the folder {self.place()} could not be written to the disk: "
                    f"{self._fault}. save() its rows elsewhere: what the disk has of them is not known",
                ) from error

    def _taken(
        self, mine: "_Flush", closed: bool, since: Record, unless: Event | None
    ) -> tuple[Record, np.ndarray | None] | None:
        """Copy what changed for a flush, once no other is in progress, or return ``None`` if there is none to do."""
        while True:
            with self._held:  # else who holds the buffer could wait for a flush that waits for the buffer
                if unless is not None and unless.is_set():
                    return None
                last = self._flush
                if not last.going.locked():
                    self._flush = mine
                    if not last.ended:  # it was interrupted: what the disk has of it is not known
                        self._flushed.forget_log()
                    return self._next(closed, since)
            if last.thread == mine.thread:
                raise RuntimeError(
                    f"For '{self.spec.cls_name}', 'flush' needs the end of the flush in progress, but the handler of a "
                    "signal that interrupted that called it: let the handler set a flag, and flush later."
                )
            with last.going:
                pass

    def is_deleted(self) -> bool:
        """Return True if the folder was deleted."""
        return os.fstat(self._watched.fileno()).st_nlink == 0

    def check_place(self) -> None:
        """Raise a FileNotFoundError if the folder was deleted."""
        if self.is_deleted():
            raise FileNotFoundError(
                f"For '{self.spec.cls_name}', the folder {self.place()} was deleted: its rows are lost when the "
                "buffer is closed, unless save() writes them elsewhere before."
            )

    def place(self) -> Path:
        """Return where the folder is, which may have been moved."""
        return Path(os.readlink(f"/proc/self/fd/{self._watched.fileno()}")).parent

    def write_first(self) -> None:
        """Write all of a new folder except the header, before any other process can use it."""
        self._flushed.make_logs()
        self._write(*self._next(False, self._last))
        for name in (STATE, OWNER):
            folder_files.sync(self.path / name)

    def _noted(self) -> Record:
        """Compute the checksums of rows that changed, if they are many, without others having to wait for all.

        Returns:
            Record: When it began. Rows that changed later are left for the flush itself.
        """
        last, rows = self._last, max(_AT_ONCE // self._row_bytes, 1)
        if not self.has_unflushed(rows + 1) and self._now().updates == last.updates:
            return last
        with self._held:
            begin, changed = self._now(), self._checksums.changed(last)
        for first in range(0, len(changed), rows):
            with self._held:
                self._checksums.note(changed[first : first + rows])
            time.sleep(_PAUSE)
        return begin

    def _now(self) -> Record:
        return Record(inserted=int(self.arrays["serials"][0]), updates=int(self.arrays["updates"][0]))

    def _next(self, closed: bool, since: Record) -> tuple[Record, np.ndarray | None]:
        """Return the next flush, and its entry if the log has room for one. The caller must hold the buffer.

        Checksums are those of the rows at `since`, which this brings up to date.
        """
        last, changed = self._last, self._checksums.changed(self._last)
        self._checksums.note(changed if since is last else self._checksums.changed(since))
        record = self._now()._replace(number=self._flushed.next_number(), closed=int(closed))
        return record, self._flushed.take(record, changed)

    def _write(self, record: Record, entry: np.ndarray | None) -> None:
        """Write a flush to the disk."""
        if entry is not None:
            self._flushed.append(entry)
        else:
            folder_files.sync_open(self._users)
            self._flushed.begin(record)
        self._last = record

    def flush_every(self, seconds: float = 0, rows: int = 0) -> None:
        """Flush in a separate thread, until the folder is closed or this is called again.

        Args:
            seconds (float): After so many seconds. 0 for never. Default: ``0``.
            rows (int): After so many insertions of rows. 0 for never. Default: ``0``.
        """
        self._stops.set()
        self._stops = Event()
        if seconds or rows:
            args = weakref.ref(self), self._stops, seconds or math.inf, rows
            threading.Thread(target=_flush_often, args=args, daemon=True).start()

    def has_unflushed(self, rows: int) -> bool:
        """Return True if so many rows were inserted since the last flush."""
        return self._now().inserted - self._last.inserted >= rows

    def end(self, others_out: Held) -> None:
        """Flush, and end the use of the folder by all processes. `others_out` keeps them out.

        If the folder was deleted, or a signal interrupts this, all is as it was. A second call gives up the rows.
        """
        if not self.gives_up and self.is_deleted():
            self.gives_up = True
            self.check_place()
        with on_failure(self._begin_again):
            with others_out:
                self.arrays["shared.closed"][0] = 1
            library.loaded().replay_wake_all(self._head)
            self.flush_every()
            if not self.gives_up:
                self.flush(closed=True)

    def _begin_again(self) -> None:
        self.arrays["shared.closed"][0] = 0

    def close(self) -> None:
        """Give up the folder. The arrays stay mapped as long as something refers to them."""
        with finally_(self._close):
            pass

    def _close(self) -> None:
        for file in self._files:
            file.close()
        self.forget_owner()

    def forget_owner(self) -> None:
        """Give up the learner's lock, or leave it to the process from which this one was forked."""
        if self._owner is not None:
            self._owner.close()
            self._owner = None


class _Flush:
    """A flush of a thread: it holds `going` while it is in progress, and sets `ended` if it was not interrupted."""

    def __init__(self, ended: bool = False) -> None:
        self.going, self.ended, self.thread = threading.Lock(), ended, threading.get_ident()


def _fail(reference: "weakref.ref[Folder]", status: int) -> None:
    """Raise the error for a status of `replay_hold`."""
    folder = reference()
    if status == library.NO_DISK and folder is not None:
        raise OSError(errno.EIO, f"For '{folder.spec.cls_name}', {library.FAILURES[status]}: {folder.path}")
    raise library.KernelError("replay_hold", status)


def _flush_often(reference: "weakref.ref[Folder]", stops: Event, seconds: float, rows: int) -> None:
    """Flush a folder regularly. A failed flush is logged as a warning, and is the last."""
    due = time.monotonic() + seconds
    while not stops.wait(min(seconds, _LOOK) if rows else seconds):
        folder = reference()
        if folder is None:
            return
        if not rows or folder.has_unflushed(rows) or time.monotonic() >= due:
            try:
                folder.flush(unless=stops)
            except (OSError, library.KernelError) as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=1)
                return
            due = time.monotonic() + seconds
        del folder


def _this_boot() -> np.ndarray:
    """Return the identity of this run of the machine. Shape ``[40]``, uint8."""
    text = _BOOT_ID.read_bytes()[:40] if _BOOT_ID.exists() else b"unknown"
    return np.frombuffer(text.ljust(40, b"\0"), np.uint8)


@atexit.register
def _say_what_is_lost() -> None:
    for folder in _opened:
        told, rows = folder.gives_up, int(folder.arrays["count"])
        if folder.is_learner and rows and not told and folder.is_deleted():
            name, place = folder.spec.cls_name, folder.place()
            text = f"For '{name}', the folder {place} was deleted while its buffer was open: its {rows} rows are lost."
            warnings.warn(text, RuntimeWarning, stacklevel=1)


def _after_fork() -> None:
    for folder in _opened:
        folder.forget_owner()


if fcntl is not None:
    os.register_at_fork(after_in_child=_after_fork)
