"""What limits insertions and samples, as numbers, and the messages of those that wait."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..base.checks import MAX_CAPACITY, any_number, check_size, no_room
from ..rows.calls import Calls
from ..spec.options import Options

#: Seconds after which a wait is logged.
PATIENCE = 10.0
#: Relative rounding error that is allowed for in sums of samples, as in csrc/waits.h.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Account:
    """The rule and the counts of a limiter, as numbers. `RateLimiter` documents them."""

    #: Class to name in messages, and a note on rows that wait for late columns, as `QueueAccount` has them.
    name: ClassVar[str] = "RateLimiter"
    pending: ClassVar[str] = ""
    #: Calls that end a wait besides insertions and samples, for the messages of a timeout and of a long wait.
    ways_out: ClassVar[tuple[str, str]] = (
        ", or call its disable() while you fill the buffer",
        ", or calls disable() or change()",
    )
    low: float
    high: float
    min_size: float
    error: float
    enabled: float
    inserted: int
    sampled: int
    counted: int
    counted_samples: int

    def settings(self, last: str = ", ") -> str:
        """Return the settings as arguments of the class, with `last` before the last one."""
        ratio = f"{self.low:g}" if self.low == self.high else f"({self.low:g}, {self.high:g})"
        return f"samples_per_insert={ratio}, min_size={self.min_size:g}{last}error_buffer={self.error:g}"

    def counts(self) -> str:
        """Return counts and settings, for a message."""
        return f"{self.inserted} were inserted and {self.sampled} sampled, with {self.settings(' and ')}"

    def can_help(self, operation: str) -> bool:
        """Return True: the other side can end the wait."""
        return True


@dataclass(frozen=True)
class QueueAccount:
    """Counts of what a queue can deliver, and its room.

    Args:
        name (str): Class to name in messages.
        capacity (int): Most rows stored.
        valid (int): Rows, or sequences, that can be delivered.
        room (float): Rows that can be inserted, infinite if they evict others.
        pending (str): A note on rows that wait for late columns. Default: ``""``.
        longest (int): The longest rows whose items fit, if rows differ in length. Default: `MAX_CAPACITY`.
        items (str): How many items the next row may have. Default: ``""``.
    """

    name: str
    capacity: int
    valid: int
    room: float
    pending: str = ""
    longest: int = field(default=MAX_CAPACITY, repr=False)
    items: str = ""
    ways_out: ClassVar[tuple[str, str]] = ("", "")

    @classmethod
    def of(cls, calls: Calls, options: Options) -> "QueueAccount":
        """Return the account of a queue with these `Options`. The caller must hold the lock of the `Calls`."""
        room = calls.room() if options.never_evicts_valid else math.inf
        keeps_items = options.length_groups and options.never_evicts_valid
        of_items = (calls.room_for_longest(), calls.room_in_items()) if keeps_items else ()
        return cls(options.cls_name, options.capacity, calls.deliverable(), room, calls.pending_note(), *of_items)

    def available(self, operation: str) -> int:
        """Return the rows that can be sampled, or the room for new ones."""
        return self.valid if operation == "sample" else int(min(self.room, self.longest))

    def counts(self) -> str:
        """Return the numbers, for a message."""
        room = "" if math.isinf(self.room) else f" and room for {self.room:g} rows"
        items = f", with {self.items} for the next row" if self.items else ""
        return f"{self.valid} are stored that were not sampled yet,{room} of capacity={self.capacity}{items}"

    def can_help(self, operation: str) -> bool:
        """Return True if the other side can end the wait: samples for an insertion, insertions for a sample."""
        return not self.pending or (self.valid if operation == "insert" else self.room) > 0

    def check_room(self, rows: int) -> None:
        """Raise a ValueError if there is never room for so many rows."""
        if rows > self.capacity and not math.isinf(self.room):
            raise ValueError(
                f"For '{self.name}', an insertion must have at most capacity={self.capacity} rows, since none may be "
                f"evicted, but got {rows}."
            )

    def no_room(self, rows: int) -> RuntimeError:
        """Return the error for an insertion that does not wait for room."""
        return no_room(self.name, rows, int(self.room), self.capacity, self.pending, self.items)


_PAST = {"insert": "inserted", "sample": "sampled"}


def _counted(rows: int) -> str:
    return f"{rows} {'row' if rows == 1 else 'rows'}"


def why_not(operation: str, rows: int, seconds: float, now: Account | QueueAccount) -> str:
    """Return the message of a timeout."""
    way_out = "sample rows" if operation == "insert" else "insert rows"
    first = f" First {way_out}{now.ways_out[0]}." if now.can_help(operation) else ""
    return (
        f"For '{now.name}', {_counted(rows)} could not be {_PAST[operation]} within {seconds:g} s: "
        f"{now.counts()}.{first}{now.pending}"
    )


def why_so_long(operation: str, rows: int, now: Account | QueueAccount) -> str:
    """Return the message of a long wait."""
    other, ask = ("samples", "limiter.can_insert") if operation == "insert" else ("inserts", "the buffer's can_sample")
    return (
        f"For '{now.name}', {_counted(rows)} could not be {_PAST[operation]} for {PATIENCE:g} s: {now.counts()}. The "
        f"wait ends when another thread or process {other} rows{now.ways_out[1]}. In a single loop call {ask}() "
        f"before. A timeout makes a long wait an error.{now.pending}"
    )


def check_room(low: float, high: float, error: float, n: int, batch: int, usual: Sequence[int] = (1, 1)) -> None:
    """Raise a ValueError if insertions of n rows and samples of a batch could wait for each other."""
    if low > 0 and math.isfinite(high) and low * n + batch > 2 * error * (1 + ROUNDING):
        n, batch = max(n, usual[0]), max(batch, usual[1])
        raise ValueError(
            f"For 'RateLimiter', 'error_buffer' must be at least {(low * n + batch) / 2:g} for insertions of {n} and "
            f"samples of {batch} rows with samples_per_insert={low:g}, but got {error:g}: insertions and samples "
            "could wait for each other forever."
        )


def checked_rule(ratio: object, min_size: object, error_buffer: object) -> list[float]:
    """Return low, high, `min_size` and `error_buffer`. Raise a TypeError or ValueError if they are not valid."""
    pair = list(ratio) if isinstance(ratio, Sequence) and not isinstance(ratio, str) else [ratio, ratio]
    if len(pair) != 2:
        raise ValueError(f"For 'RateLimiter', 'samples_per_insert' must be a number or two, but got {ratio!r}.")
    low, high = (any_number("RateLimiter", "samples_per_insert", value) for value in pair)
    if not (0 <= low <= high and high > 0 and math.isfinite(low)):
        raise ValueError(
            "For 'RateLimiter', 'samples_per_insert' must be positive, or the fewest and the most samples with 0 <= "
            f"low <= high, high above 0 and low finite, but got {ratio!r}."
        )
    error = any_number("RateLimiter", "error_buffer", error_buffer)
    if not 1 <= error < math.inf:
        raise ValueError(f"For 'RateLimiter', 'error_buffer' must be finite and at least 1, but got {error_buffer}.")
    return [low, high, check_size("RateLimiter", "min_size", min_size), error]
