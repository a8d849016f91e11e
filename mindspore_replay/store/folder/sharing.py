"""A buffer whose arrays are in memory shared by processes: its lock and its repair. See csrc/shared.h."""

import ctypes
import mmap
import secrets
from collections.abc import Iterable

import numpy as np

from ..base.schema import Schema
from ..base.structs import JOURNAL, JOURNAL_AT
from ..base.types import Arrays
from ..kernels import library, limits
from ..kernels.call import Array, Call, State
from ..kernels.memory import address, at_the_end
from ..spec.spec import BufferSpec

#: The arrays in shared memory besides the state: the lock and the journal, laid out as in csrc/shared.h; the run of the
#: machine that used them last, and the inode of the file ``state``; whether the learner has closed the buffer; and the
#: limits, as in csrc/waits.h.
_LAYOUT: dict[str, tuple[tuple[int, ...], str]] = {
    "shared.journal": ((26,), "int64"),
    "shared.boot": ((40,), "uint8"),
    "shared.inode": ((1,), "uint64"),
    "shared.closed": ((1,), "int32"),
    "shared.limits": ((limits.SIZE,), "int64"),
}
#: Elements of the journal: what is 1 while the lock is held, and after its holder died; the oldest row's serial number;
#: and the slot of the undo row. The value of the second if no row is stored, and of the third if there is no undo row.
_BUSY, _OLDEST, _SLOT = (JOURNAL_AT + JOURNAL.index(name) for name in ("busy", "oldest", "slot"))
_NO_ROWS, _NO_SLOT = 2**63 - 1, -1


def layout(schema: Schema, capacity: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of each array besides the state, by name.

    They are the journal, the undo row, and ``checksums``, those of the rows at the last flush.
    """
    undo = {f"undo.{name}": (shape, dtype) for name, shape, dtype in _columns(schema)}
    return _LAYOUT | {"checksums": ((capacity,), "uint32")} | undo


def restart(arrays: Arrays) -> None:
    """Set the journal to a state between two operations, and forget what processes had in progress."""
    inserted = int(arrays["serials"][0])
    arrays["shared.journal"][_BUSY : _SLOT + 1] = 0, inserted, inserted - int(arrays["count"]), _NO_SLOT
    limits.forget(arrays["shared.limits"])


def evict(arrays: Arrays, rows: int) -> None:
    """Record that the oldest rows are gone. The caller must hold the buffer, and have it repaired."""
    if rows and "row_serials" in arrays:  # a reservoir, of which all are gone
        arrays["shared.journal"][_OLDEST] = _NO_ROWS
    else:
        arrays["shared.journal"][_OLDEST] += rows


def is_busy(arrays: Arrays) -> bool:
    """Return True if an operation is in progress, or its process died within it."""
    return bool(arrays["shared.journal"][_BUSY])


def register(
    spec: BufferSpec, arrays: Arrays, state: State, is_first: bool, beyond_memory: bool, memory: mmap.mmap
) -> None:
    """Let kernels of this process lock a buffer's arrays for all processes, as long as the memory is mapped.

    The first process makes the lock again, and completes or undoes the operation that a dead process began. Files
    `beyond_memory` are larger than memory. Raise a KernelError if the lock cannot be made.
    """
    row = [Array(shape, dtype, arrays[f"undo.{name}"]) for name, shape, dtype in _columns(spec.columns)]
    call = Call("update", spec.options.groups, {**state, "rows": row, "written": Array((2,), "int64")})
    call.let_arrays_go()  # which keep the memory that keeps the call
    at_the_end(memory, "replay_unshare", address(arrays["head"]), call)  # which the library uses
    journal, writer = address(arrays["shared.journal"]), ctypes.c_int64(secrets.randbits(62))
    limited = address(arrays["shared.limits"])
    status = library.loaded().replay_share(journal, writer, int(is_first), int(beyond_memory), limited, *call.raw())
    if status != library.OK:
        raise library.KernelError("replay_share", status)


def guard(memory: mmap.mmap, head: np.ndarray) -> None:
    """Let a page that the disk cannot read or write be an error of the buffer, as long as the memory is mapped."""
    at_the_end(memory, "replay_end_guard", address(head))
    begin = address(np.frombuffer(memory, np.uint8))
    library.loaded().replay_guard(begin, ctypes.c_int64(len(memory)), address(head))


def _columns(schema: Schema) -> Iterable[tuple[str, tuple[int, ...], str]]:
    stored = schema.references
    return zip(stored.names, stored.shapes, stored.stored_dtypes)
