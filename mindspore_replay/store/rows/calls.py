"""The calls from Python of a buffer, which a `Store` makes by kernels and compiled graphs make on any device."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from ..base.checks import MAX_CAPACITY
from ..base.length_groups import Packing
from ..base.mixins import mixin
from ..base.random import ALL_ROWS
from ..base.types import Arrays, Experience, Values
from ..kernels import state
from ..kernels.limits import Limits
from ..spec.epochs import OF_BATCHES, has_batch, progress
from ..spec.options import Options
from .inputs import NewRows

_Read = TypeVar("_Read")


class BaseCalls(Protocol):
    """What rows can be asked for, also those in shards: counts, samples and changes. The caller holds their lock.

    The methods accept users' arguments, except `sample` and `advance`.
    """

    def count(self) -> int:
        """Return the number of rows stored."""

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Return the number of rows at which a sample may start, in a slice of logical rows."""

    def rows_to_wait_for(self) -> int:
        """Return the number of eligible rows from which on `can_sample` is true."""

    def has_rows(self) -> bool:
        """Return True if as many rows are eligible as `can_sample` waits for."""
        return self.eligible() >= self.rows_to_wait_for()

    def clock(self) -> int:
        """Return the learner's clock."""

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> tuple[Any, ...]:
        """Draw a batch from a slice of logical rows."""

    def update(self, handles: Values, values: Experience) -> np.ndarray:
        """Write columns of stored rows, and return the number of invalid handles, int32 ``[]``."""

    def update_priorities(self, handles: Values, priorities: Values) -> np.ndarray:
        """Set the priorities of rows, and return the number of invalid handles, int32 ``[]``."""

    def delete(self, handles: Values) -> np.ndarray:
        """Remove rows, and return their number, int32 ``[]``."""

    def advance(self, steps: int) -> None:
        """Advance the learner's clock, and remove rows that became stale."""

    def info(self, handles: Values) -> tuple[np.ndarray, ...]:
        """Return priorities, use counts and stalenesses of rows."""

    def reset(self) -> None:
        """Remove all rows."""

    def progress_of(self, operation: str) -> list[Any]:
        """Return numbers that change with each insertion, or with each sample."""


@mixin
class Calls(BaseCalls, Protocol):
    """The operations on the rows of a buffer. The caller holds the lock of the buffer, except for the `try_` methods.

    A `try_` method handles simple cases. Otherwise it changes nothing and reports that, and the general method does the
    work or raises the error. Others accept users' arguments, except `insertion`, `sample` and `advance`.

    Methods with a body here read the state, or are right where there is no fast way and the rows are not shared.
    """

    #: How the rows are stored and drawn.
    options: Options

    def _arrays(self, *names: str) -> Arrays:
        """Return at least these arrays of the state, as far as the buffer has them."""

    def _between(self, read: Callable[[], _Read]) -> _Read:
        """Return what `read` finds between two operations."""
        return read()

    def clock(self) -> int:
        """Return the learner's clock."""
        return int(self._arrays("clock")["clock"][0])

    def usual_bounds(self) -> tuple[int, int]:
        """Return the range of logical rows to draw from by default."""
        return ALL_ROWS if self.options.window is None else (-int(self._arrays("window")["window"][0]), ALL_ROWS[1])

    def rows_to_wait_for(self) -> int:
        """Return the number of eligible rows from which on `can_sample` is true: not more than fit into the window."""
        wanted = self.options.rows_to_wait_for
        return wanted if self.options.window is None else min(wanted, -self.usual_bounds()[0])

    def room(self) -> int:
        """Return the number of rows that can be inserted without evicting one that can still be drawn."""
        return self._between(lambda: state.room(self.options, self._arrays(*state.ROOM)))

    def full(self) -> bool:
        """Return True if there is no room for another row: of a queue that keeps rows, beside those it has to keep."""
        return self.room() < 1 if self.options.never_evicts_valid else self.count() >= self.options.capacity

    def room_in_items(self) -> str:
        """Return how many items the next row may have, for a message, if rows differ in length."""
        return ""

    def sample_as(self, bounds: tuple[int, int] | None, beta: float | None, pack: Packing) -> tuple[Any, ...]:
        """Draw a batch as `sample` does, with rows that differ in length in some form."""
        return self.sample(bounds, beta)

    def room_for_longest(self) -> int:
        """Return the number of the longest rows whose items fit, if rows differ in length."""
        return MAX_CAPACITY

    def deliverable(self) -> int:
        """Return the number of samples that a queue can deliver now."""
        if not self.options.keeps_turn:
            return self.eligible()
        return self._between(lambda: state.deliverable(self.options, self._arrays(*state.OF_DELIVERIES)))

    def pending_note(self) -> str:
        """Return a sentence on the rows that wait for late columns, empty if there are none."""
        return self._between(lambda: state.pending_note(self.options, self._arrays(*state.ROOM)))

    @functools.cached_property
    def limits(self) -> Limits:
        """The limits of the rows."""
        return Limits()

    @property
    def try_insert(self) -> Callable[..., Any]:
        """``(exp, priority, end, final, version, with_indices)``: store rows that obviously fit.

        It returns True, or the rows' handles; False, and nothing is stored, if they do not.
        """
        return lambda *_: False

    @property
    def insertion(self) -> Callable[[NewRows], None]:
        """Store one row or a batch."""

    @property
    def first(self) -> int:
        """The handle of the first row of the last insertion."""

    @property
    def try_sample(self) -> Callable[[int], Any]:
        """``(skip)``: a batch drawn in the default way, without its first outputs, or an int if it is not drawn."""
        return lambda _: -1

    def try_sample_range(self, sample_range: object, skip: int) -> Any:
        """Draw a batch from a range as `sample` takes it, without its first outputs, or an int if it is not drawn."""
        return -1

    def read(self, index: Values) -> tuple[Any, ...]:
        """Return the rows at logical positions."""

    def check_update(self, handles: Values, values: Experience) -> None:
        """Raise the errors of `update`, and write nothing."""

    @property
    def try_update_priorities(self) -> Callable[[Any, Any], Any]:
        """``(handles, priorities)``: set priorities. The number of invalid handles, or an int if they are not set."""
        return lambda *_: -1

    def end_episodes(self) -> np.ndarray:
        """End the open episodes, and return their number, int32 ``[]``."""

    def sample_groups(self, column: int, ordered: bool, groups: int, size: int) -> tuple[Any, ...]:
        """Draw groups by a column of ints: a mask of the rows that exist, and the rows."""

    def begin_epoch(self) -> None:
        """End the epoch in progress: the next sample begins another."""

    def progress(self) -> list[list[int]]:
        """Return numbers that change with each sample, insertion and removal: first the state of the epoch."""
        return self._between(lambda: progress(self._arrays("epoch", "serials", "counts")))

    def progress_of(self, operation: str) -> list[Any]:
        """Return numbers that change with each insertion, or with each sample."""
        names = ("serials",) if operation == "insert" else ("random_state", "counts", "epoch")
        arrays = self._arrays(*names)
        return [arrays[name].tobytes() for name in names if name in arrays]

    def has_batch(self) -> bool:
        """Return True if the epoch in progress has another batch."""
        rule, n, capacity, names = self.options.epochs, self.options.plan.n, self.options.capacity, OF_BATCHES
        return self._between(lambda: has_batch(rule, n, capacity, self._arrays(*names)))

    def kernels_kept_out(self) -> contextlib.AbstractContextManager[None]:
        """Return a block in which only this thread changes the rows."""
        return contextlib.nullcontext()

    def sole_use(self, arrays: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
        """Return a block in which no process attaches to the rows, for a state that replaces them."""
        return contextlib.nullcontext()

    def begin_replacing(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Declare that all rows are about to be replaced, and return the state to write."""
        return arrays

    def close(self) -> None:
        """Give the memory of the rows back to the system."""
