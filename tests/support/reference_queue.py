"""A slow queue with the rules of `ReplayQueue`, over lists."""

from collections.abc import Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """A row: its serial number, its step in the episode, and whether it ends it."""

    serial: int
    step: int
    end: bool


class QueueTwin:
    """A queue of rows, or of sequences of `length` steps.

    Args:
        capacity (int): Most rows.
        length (Union[int, None]): Steps of a sequence; ``None`` for single rows.
        stride (int): Steps from start to start.
        burn_in (int): Steps before a start.
        pad_end (bool): Whether a sequence may extend beyond the end of its episode.
        num_envs (int): Environments that insert in step.
        order (str): ``"fifo"`` or ``"lifo"``.
        when_full (str): ``"block"`` or ``"evict"``.
    """

    def __init__(
        self,
        capacity: int,
        length: int | None = None,
        stride: int = 1,
        burn_in: int = 0,
        pad_end: bool = False,
        num_envs: int = 1,
        order: str = "fifo",
        when_full: str = "block",
    ) -> None:
        self.capacity, self.length, self.stride, self.burn_in = capacity, length, stride, burn_in
        self.pad_end, self.num_envs, self.order, self.when_full = pad_end, num_envs, order, when_full
        self.steps: list[Step] = []
        self.inserted = 0
        self.delivered: set[int] = set()
        self.deleted: set[int] = set()

    def insert(self, ends: Sequence[bool]) -> bool:
        """Insert a row for each flag; return False if there is no room for them."""
        if self.when_full == "block" and len(ends) > self.room():
            return False
        last = {step.serial % self.num_envs: step for step in self.steps}
        for end in ends:
            before = last.get(self.inserted % self.num_envs)
            number = 0 if before is None or before.end else before.step + 1
            step = Step(self.inserted, number, end)
            last[self.inserted % self.num_envs] = step
            self.steps.append(step)
            self.inserted += 1
        self.steps = self.steps[-self.capacity :]
        return True

    def starts(self) -> list[int]:
        """Return the serial numbers at which undelivered samples start, in order."""
        return [step.serial for step in self.steps if step.serial not in self.delivered and self._is_start(step)]

    def window(self, start: int) -> list[int | None]:
        """Return the serial numbers of the steps of a sequence; ``None`` for those that are not there."""
        by_serial = {step.serial: step for step in self.steps}
        first = by_serial[start]
        window: list[int | None] = []
        for offset in range(-self.burn_in, self.length or 1):
            serial = start + offset * self.num_envs
            there = by_serial.get(serial)
            same = there is not None and there.step == first.step + offset
            window.append(serial if same and not self._ended(start, serial) else None)
        return window

    def sample(self, n: int) -> list[int] | None:
        """Deliver n starts, or return None if there are fewer."""
        starts = self.starts()
        if len(starts) < n:
            return None
        chosen = starts[:n] if self.order == "fifo" else starts[-n:][::-1]
        self.delivered |= set(chosen)
        return chosen

    def room(self) -> int:
        """Return the rows that can be inserted without losing one that may still be delivered."""
        if not self.steps:
            return self.capacity
        oldest = self.steps[0].serial
        open_rows = ((self.length or 1) - 1) * self.num_envs
        needed = [start - self.burn_in * self.num_envs for start in self.starts()]
        needed.append(self.inserted - open_rows - (self.burn_in * self.num_envs if self.length else 0))
        return self.capacity - len(self.steps) + max(min(needed) - oldest, 0)

    def _is_start(self, step: Step) -> bool:
        if step.serial in self.deleted:
            return False
        if self.length is None:
            return True
        by_serial = {one.serial: one for one in self.steps}
        past = min(self.burn_in, step.step)
        for offset in range(-past, 0):
            serial = step.serial + offset * self.num_envs
            if serial not in by_serial or serial in self.deleted:
                return False
        ends = False  # the window reaches the end of its episode
        for offset in range(self.length):
            serial = step.serial + offset * self.num_envs
            if serial not in by_serial or serial in self.deleted:
                return False
            if by_serial[serial].end:
                ends, whole = True, offset == self.length - 1
                break
        else:
            whole = True
        if not whole and not self.pad_end:
            return False
        return step.step % self.stride == 0 or (ends and not self.pad_end)

    def _ended(self, start: int, serial: int) -> bool:
        """Return True if the episode of a start ends before a row after it."""
        by_serial = {step.serial: step for step in self.steps}
        return any(by_serial[s].end for s in range(start, serial, self.num_envs))
