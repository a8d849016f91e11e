"""Closing buffers; opening and flushing those in folders."""

import contextlib
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, TypeVar

from ..ops.eager import wait_for_work
from ..store.calls import Calls
from ..store.folder import Folder
from ..store.mixins import mixin
from ..store.place import flush, open_buffer
from ..store.recipe.registry import find
from .front import BufferFront

_Opened = TypeVar("_Opened", bound="InFolder")


class _Closed:
    """Takes the place of the rows and of the lock of a closed buffer: whatever it is asked for, it raises an error."""

    def __init__(self, cls_name: str, way_out: str) -> None:
        self.__dict__.update(_cls_name=cls_name, _way_out=way_out)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"For '{self._cls_name}', the buffer was closed: {self._way_out}.")

    def __enter__(self) -> None:
        self.__getattr__("lock")

    def __exit__(self, *_: object) -> None:
        pass


@mixin
class InFolder:
    """The methods of a buffer whose rows are in a folder."""

    _calls: Calls
    _front: BufferFront
    _outer_lock: contextlib.AbstractContextManager[object]
    _lock: threading.RLock
    #: Set when the buffer is closed, which ends the waits of its limiter.
    _closing: threading.Event
    #: Files that hold the rows; ``None`` for memory.
    _folder: Folder | None
    #: The buffers on the same rows, which are closed together.
    _on_these_rows: "weakref.WeakSet[InFolder]"

    @classmethod
    def open(
        cls: type[_Opened], folder: str | os.PathLike[str], *, views: Sequence[Any] | None = None, verify: bool = False
    ) -> _Opened:
        """Open the buffer in a folder, which ``storage=folder`` made, with all rows whose insertion had returned.

        It continues the random sequence. If a process died within an operation, the operation is completed or undone.
        If the machine stopped before the buffer was closed, it is as it was at its last `flush`, without the rows that
        were changed later, and a warning says how many these are.

        Args:
            folder (Union[str, PathLike]): The folder.
            views (Union[Sequence, None]): The views that the buffer was made with, if one of them holds Python code, as
                `HindsightRelabel` does; else they are in the folder. Default: ``None``.
            verify (bool): Whether to check all rows that were not changed since the last `flush`, and to remove those
                that do not fit their checksums; a warning says which. Default: ``False``, only after the machine
                stopped.

        Returns:
            Buffer: A buffer of this class; of any class, if this is `Buffer`.

        Raises:
            FileNotFoundError: If there is no such folder.
            ValueError: If the folder holds something else, a damaged buffer, one of a newer version of this library or
                of another class, or `views` do not fit.
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

    def flush(self, *, every: float | None = None) -> None:
        """Write the buffer in the folder to the disk: it survives a loss of power as it is now.

        Rows that are changed after it, by `update` or by rows that overwrite them, may be lost; see
        [processes](../processes.md). Other threads and processes go on while the disk writes.

        Args:
            every (Union[float, None]): Seconds after which a thread flushes again, and so on until `close`; 0 ends it.
                Default: ``None``, which changes nothing.

        Raises:
            RuntimeError: If the buffer is not in a folder, or was closed.
            ValueError: If `every` is no number, or negative.
            FileNotFoundError: If the folder was deleted; the rows are in memory alone.
            OSError: If the disk could not be written. Later calls fail too, since what it has is not known.

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
        flush(type(self).__name__, self._folder, every)

    def close(self) -> None:
        """Free the memory of the rows; of a buffer in a folder, flush it and give up the folder instead.

        Another learner can open the folder then, and attached processes get a RuntimeError from then on, also those
        that wait for a limiter. The buffer cannot be used any more: methods raise a RuntimeError, and so do compiled
        graphs that use it; with the composite backend they find it empty. Buffers that `with_sample_size` made on its
        rows are closed with it. Memory of a GPU is freed when the object is. To close a buffer again does nothing.

        Raises:
            FileNotFoundError: If the folder was deleted; the buffer is closed all the same.

        Examples:
            >>> import tempfile
            >>> from mindspore_replay import ReplayBuffer
            >>> with tempfile.TemporaryDirectory() as parent:
            ...     buffer = ReplayBuffer(1, 4, [()], ["int32"], storage=f"{parent}/rows")
            ...     buffer.insert([7]).close()
            >>> ReplayBuffer(1, 4, [()], ["int32"]).insert([7]).close()
        """
        with self._lock:
            if isinstance(self._calls, _Closed):
                return
            wait_for_work()
            way_out = "make another" if self._folder is None else "open its folder again"
            try:
                self._calls.close()
            finally:
                self._closing.set()
                closed = _Closed(type(self).__name__, way_out)
                for buffer in list(self._on_these_rows):
                    vars(buffer)["_calls"] = vars(buffer)["_outer_lock"] = buffer._front.calls = closed
