"""Closing buffers, and opening and flushing those in folders."""

import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from ..ops.eager import wait_for_work
from ..store.base.gone import Gone, Living
from ..store.base.mixins import mixin
from ..store.faces.place import flush, open_buffer
from ..store.folder.folder import Folder
from ..store.kernels.locks import Block, Event
from ..store.rows.calls import Calls
from ..store.spec.registry import find
from .front import BufferFront

_Opened = TypeVar("_Opened", bound="InFolder")


@mixin
class InFolder:
    """The methods of a buffer whose rows are in a folder."""

    _calls: Calls
    _front: BufferFront
    _outer_lock: contextlib.AbstractContextManager[object]
    _lock: threading.RLock
    #: Set when the buffer is closed, which ends the waits of its limiter.
    _closing: Event
    #: Files that hold the rows; ``None`` for memory.
    _folder: Folder | None
    #: The buffers on the same rows, which are closed together.
    _on_these_rows: Living

    @classmethod
    def open(
        cls: type[_Opened], folder: str | os.PathLike[str], *, views: Sequence[Any] | None = None, verify: bool = False
    ) -> _Opened:
        """Open the buffer in a folder, made with ``storage=folder``, with all rows whose insertion had returned.

        The random sequence continues. An operation that a dead process left unfinished is completed or undone. If the
        machine stopped before `close`, the buffer is restored as of its last `flush`, without rows changed later. A
        warning counts these.

        Args:
            folder (Union[str, PathLike]): The folder.
            views (Union[Sequence, None]): The buffer's views, required if one contains Python code, such as
                `HindsightRelabel`. Other views are read from the folder. Default: ``None``.
            verify (bool): Whether to check all rows unchanged since the last `flush`, and remove those that fail their
                checksums, with a warning. Default: ``False``, to check only after the machine stopped.

        Returns:
            Buffer: A buffer of this class, or of any class if this is `Buffer`.

        Raises:
            FileNotFoundError: If there is no such folder.
            ValueError: If the folder contains something else, a damaged buffer, or one of a newer version of this
                library or of another class, or if `views` do not fit.
            RuntimeError: If the buffer is open in another learner, or with `verify` in any other process.
            OSError: If this process may not write to the folder.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).close()
            ...     buffer = ReplayBuffer.open(f"{parent}/rows")
            ...     print(*buffer.get_item(0))
            ...     buffer.close()
            7
        """
        return open_buffer(cls, folder, views, verify, find)

    def flush(self, *, every: float | None = None, rows: int | None = None) -> None:
        """Write the buffer in the folder to the disk, so that its present state survives a loss of power.

        Rows updated or overwritten later may be lost. See [processes](../processes.md). Other threads and processes
        continue while the disk writes.

        Args:
            every (Union[float, None]): Also flush in a thread every so many seconds until `close`. 0 stops it. Default:
                ``None``, no change.
            rows (Union[int, None]): Let that thread also flush once so many rows were inserted since the last flush. It
                looks 100 times a second. Default: ``None``, only `every` counts.

        Raises:
            RuntimeError: If the buffer is not in a folder, or was closed.
            ValueError: If `every` is no number, or negative, or `rows` is no positive integer.
            FileNotFoundError: If the folder was deleted. The rows are then in memory only.
            OSError: If the disk could not be written. Later calls fail too, since its contents are unknown.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).flush()  # from here on a loss of power loses nothing
            ...     buffer.close()
        """
        with self._lock, self._calls.kernels_kept_out():  # not of a closed buffer
            pass
        wait_for_work()
        flush(type(self).__name__, self._folder, every, rows)

    def close(self) -> None:
        """Free the memory of the rows. If the buffer is in a folder, flush and release the folder instead.

        Afterwards another learner can open the folder. Methods of this buffer and of attached processes raise a
        RuntimeError, also where they wait for a limiter. So do compiled graphs. With the composite backend they find
        the buffer empty. Buffers made by `with_sample_size` close too. A GPU's memory is freed with the object. A
        second call does nothing.

        Raises:
            FileNotFoundError: If the folder was deleted. The buffer is still open: `save` its rows elsewhere. A second
                call gives them up.
            OSError: If the disk could not be written. The buffer is closed nevertheless.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).close()
            >>> ReplayBuffer(1, 4, [()], ["int32"]).insert([7]).close()
        """
        if isinstance(self._calls, Gone):  # closed, or left to the process from which this one was forked
            return
        with self._lock:
            if isinstance(self._calls, Gone):
                return
            wait_for_work()
            with Block(self._calls.close, self._mark_closed):
                pass

    def _mark_closed(self, succeeded: bool) -> None:
        """Let all methods raise errors, unless the buffer is still open after an error."""
        if succeeded or (self._folder is not None and not self._folder.is_learner):
            self._closing.set()
            way_out = "make another" if self._folder is None else "open its folder again"
            closed = Gone(type(self).__name__, f"the buffer was closed: {way_out}")
            for buffer in [*(other for other in self._on_these_rows if other is not self), self]:
                vars(buffer)["_outer_lock"] = buffer._front.calls = vars(buffer)["_calls"] = closed
