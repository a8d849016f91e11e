"""The limits of a buffer: the memory by which kernels decide whether rows may go in or out, and who waits for that."""

import ctypes
import mmap

import numpy as np

from ..base.structs import LIMITS
from . import library
from .call import Call
from .locks import Block, Held
from .memory import address, at_the_end, holding

#: What a call does with rows.
OPERATIONS = "insert", "sample"
#: What limits a buffer: nothing, a rule, or the rows and the room of a queue.
NO_LIMIT, BY_RULE, BY_ROWS = range(3)
#: What the calls of a thread mean: see `Mode` in csrc/waits.h.
_INSIDE, _WAITS = 1, 2
#: Where the first of some numbers is in the memory.
_RULE, _COUNTS, _IN_PROGRESS, _LARGEST, _USUAL, _KIND, _AWAITED = map(
    LIMITS.index, ("low", "inserted", "in_progress", "largest", "usual", "kind", "awaited")
)
#: The number of the rule that is 1 if it is enabled.
ENABLED = LIMITS.index("enabled")
#: The places of those that wait and the numbers of each, as in csrc/waits.h.
_PLACES, _OF_PLACE = 64, 3
SIZE = len(LIMITS) + _PLACES * _OF_PLACE


class Limits:
    """The limits of a buffer.

    Args:
        memory (Union[numpy.ndarray, None]): Their memory, int64 ``[SIZE]``. Default: ``None``, for new memory.
        head (Union[ctypes.c_void_p, None]): What kernels find them by, the address of the buffer's ``head``. Default:
            ``None``, for limits that no kernel finds.

    Attributes:
        rule (numpy.ndarray): Low, high, `min_size`, `error_buffer`, and whether it is enabled. Shape ``[5]``, float64.
        counts (numpy.ndarray): Rows inserted and sampled, and those of each that count for the ratio. Shape ``[4]``,
            int64, as `in_progress`.
        in_progress (numpy.ndarray): What blocks in progress add to the counts when they end.
        largest (numpy.ndarray): Rows of the largest insertion and sample that both sides can go on with. Shape ``[2]``,
            int64, as `usual`.
        usual (numpy.ndarray): Rows of those that are expected.
    """

    def __init__(self, memory: np.ndarray | None = None, head: ctypes.c_void_p | None = None) -> None:
        self._memory = memory = new_memory() if memory is None else memory
        self.rule = memory[_RULE:_COUNTS].view(np.float64)
        self.counts, self.in_progress = memory[_COUNTS:_IN_PROGRESS], memory[_IN_PROGRESS:_LARGEST]
        self.largest, self.usual, self._kind = memory[_LARGEST:_USUAL], memory[_USUAL:_KIND], memory[_KIND:_AWAITED]
        self._head = address(memory) if head is None else head
        self._library = library.loaded()
        if head is None:
            self._library.replay_limit(self._head, self._head, 0, *[None] * 4)
            self._end = library.extension().Undo(library.address_of("replay_unshare"), self._head.value or 0, memory)

    @property
    def kind(self) -> int:
        """What limits the buffer."""
        return int(self._kind[0])

    @kind.setter
    def kind(self, kind: int) -> None:
        self._kind[0] = kind

    def hold(self) -> Held:
        """Return a block that keeps kernels out."""
        return holding(self._head)

    # Who may go on.

    def may_go(self, operation: str, rows: int, available: int) -> bool:
        """Return True if rows may go in or out now. `available` are those of a queue, or its room."""
        number = OPERATIONS.index(operation)
        return bool(self._library.replay_may_go(self._head, number, ctypes.c_int64(rows), ctypes.c_int64(available)))

    def begin(self, operation: str, rows: int, available: int, block: np.ndarray, holds: bool) -> bool:
        """Begin a block if rows may go in or out now, and note it, int64 ``[5]``. Else this thread has to `sleep`.

        `holds` is whether the caller keeps all others out until it ends.
        """
        number, *sizes = OPERATIONS.index(operation), ctypes.c_int64(rows), ctypes.c_int64(available)
        status = self._library.replay_begin_block(self._head, number, *sizes, int(holds), address(block))
        return bool(status == library.OK)

    def end(self, rows: int, done: int, block: np.ndarray) -> None:
        """End a block, unless it has ended, and count so many of its rows."""
        self._library.replay_end_block(self._head, ctypes.c_int64(done), ctypes.c_int64(rows), address(block))

    def count(self, operation: str, rows: int) -> None:
        """Count rows that went in or out elsewhere."""
        self._library.replay_count(self._head, OPERATIONS.index(operation), ctypes.c_int64(rows))

    # Threads.

    def is_inside(self, operation: str) -> bool:
        """Return True if this thread is in a block."""
        return self._mode(operation, -1) == _INSIDE

    def leave(self, operation: str) -> None:
        """Note that this thread is in no block."""
        self._mode(operation, 0)

    def waiting(self, operation: str) -> Held:
        """Return a block in which calls that may not go on yet let this thread wait, by `sleep`."""
        return Block(lambda: self._mode(operation, _WAITS), lambda _: self.leave(operation))

    def _mode(self, operation: str, mode: int) -> int:
        return int(self._library.replay_mode(self._head, OPERATIONS.index(operation), mode))

    def sleep(self, seconds: float) -> None:
        """Sleep until this thread is woken, since the rows are there that it waits for; at most so many seconds."""
        self._library.replay_sleep(ctypes.c_int64(int(seconds * 1e9)))

    def wake(self) -> None:
        """Wake all that wait."""
        self._library.replay_wake_all(self._head)

    def awaited(self, operation: str) -> list[int]:
        """Return the rows for which insertions or samples wait."""
        places = self._memory[len(LIMITS) :].reshape(_PLACES, _OF_PLACE)
        turns = places[:, 2] >> 32
        return [rows for rows in places[turns == OPERATIONS.index(operation), 0].tolist() if rows]


def on_rows(head: ctypes.c_void_p, update: Call, block: mmap.mmap) -> Limits:
    """Make the limits of a buffer in a block of memory of this process, by a call of `update` for one row."""
    memory = new_memory()
    limits = Limits(memory, head)
    at_the_end(block, "replay_unshare", head, (memory, update))
    library.loaded().replay_limit(head, address(memory), *update.raw())
    return limits


def new_memory() -> np.ndarray:
    """Return memory for limits that limit nothing."""
    memory = np.zeros(SIZE, np.int64)
    forget(memory)
    return memory


def forget(memory: np.ndarray) -> None:
    """Forget what processes had in progress, and who waited."""
    memory[_IN_PROGRESS:_LARGEST] = memory[_AWAITED:] = 0
    memory[_LARGEST:_KIND] = np.maximum(memory[_LARGEST:_KIND], 1)
