"""The steps of a call from Python on a buffer: convert the arguments once, wait, lock, call, and name the sample."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..base.checks import check_size, one_int, range_of
from ..base.gone import Gone, Living, forked, left_by_forks
from ..base.length_groups import Packing
from ..base.naming import named
from ..base.nested import NO_NAMES, Names
from ..base.random import ALL_ROWS
from ..base.schema import is_tensor
from ..base.types import Experience, Sample, Values
from ..folder.folder import Folder
from ..kernels.library import NOT_YET, TOO_FEW_ROWS, KernelError
from ..kernels.locks import Block, Event, Held, Locks
from ..rows.calls import BaseCalls, Calls
from ..rows.inputs import as_array, as_beta, as_new_rows, as_steps, is_empty
from ..rows.store import Store
from ..spec.epochs import BEGUN
from ..spec.needs import need_episodes, need_lengths, need_priorities, too_few_rows
from ..spec.parts import InOrder
from ..spec.spec import BufferSpec
from ..waits.limiter import RateLimiter, check_limiter, leave_buffer
from ..waits.rate_rule import QueueAccount
from ..waits.waiting import QueueLimiter, Turn, Waiting
from .groups import as_groups, names_of_groups, sampled_groups
from .place import flush

_Result = TypeVar("_Result")


def delivered(batch: Any) -> int:
    """Return the rows of a sample, which may be fewer than it waited for."""
    return len(batch[0])


class BaseFront:
    """The methods that Python calls of a buffer, and of one in shards, but for their fast ways.

    A subclass decides when a call may continue, and what it waits for.

    Args:
        calls (BaseCalls): What the rows can be asked for.
        spec (BufferSpec): What the buffer is.
        lock (ContextManager): Held during each call.
        share (Callable): Makes what users get of an array.
        count (Callable): Makes what users get of a number, int32 ``[]``.
        truth (Callable): Makes what users get of a bool, ``[]``. Default: a bool.
    """

    def __init__(
        self,
        calls: BaseCalls,
        spec: BufferSpec,
        lock: contextlib.AbstractContextManager[Any],
        share: Callable[[np.ndarray], Any],
        count: Callable[[np.ndarray], Any],
        truth: Callable[[np.ndarray], Any] = bool,
    ) -> None:
        self.calls, self.spec, self.lock = calls, spec, lock
        self.share, self.count, self.truth, self.has_handles = share, count, truth, spec.has_handles
        #: Whether rows may have to wait for others before them.
        self.keeps_turn = spec.options.keeps_turn
        #: Whether a sample comes without the rows' handles, unless they are asked for.
        self.drops_handles = self.has_handles and not spec.always_handles
        #: ``(batch, outputs before those of the plan) -> batch``: computes other goals in Python; ``None`` for none.
        self.relabel: Callable[[tuple[Any, ...], int], tuple[Any, ...]] | None = None

    #: Waits, in the lock, for what a call must not overtake; raises a RuntimeError if the buffer is closed.
    ready: Callable[[], None]
    #: The same for a call that changes nothing.
    ready_to_read: Callable[[], None]

    @property
    def is_limited(self) -> bool:
        """True if insertions and samples may have to wait."""
        raise NotImplementedError

    def in_turn(self, operation: str, rows: int, call: Callable[[], _Result], decided: bool = True) -> _Result:
        """Return what a call returns that inserts or samples rows, in the lock, when it may.

        Unless it is `decided` by a kernel whether it may, it waits before.
        """
        with self.lock:
            self.ready()
            return call()

    # Rows in and out.

    def sample(
        self, sample_range: object, beta: Values | None, as_dict: bool, with_indices: bool, pack: Packing | None = None
    ) -> Sample:
        """Draw a batch, of which the rows' handles are a part if asked for, or if every sample has them.

        `pack` is that of rows that differ in length, or ``None`` for the usual one.
        """
        spec = self.spec
        if pack is not None:
            need_lengths(spec.columns)
        given = None if beta is None else as_beta(spec.options, beta)
        names = spec.sample_names(as_dict, with_indices) if as_dict or with_indices else NO_NAMES
        if as_dict and pack is not None and pack.packed:
            own = spec.names_of_lengths  # not columns of that name
            names = Names(f"{name.removesuffix('lengths')}offsets" if name in own else name for name in names)
        bounds = None if sample_range is None else range_of(spec.cls_name, sample_range, ALL_ROWS[1])
        if self.is_limited:
            decided = pack is None or pack.max_items is None
            draw = functools.partial(self.draw_batch, bounds, given, pack)
            batch = self.in_turn("sample", spec.sample_size, draw, decided)
        else:
            with self.lock:
                self.ready()
                batch = self.draw_batch(bounds, given, pack)
        batch = self.relabelled(batch)
        if self.drops_handles and not with_indices:
            batch = batch[1:]
        return named(names, batch) if as_dict else batch

    def draw_batch(self, bounds: tuple[int, int] | None, beta: float | None, pack: Packing | None) -> tuple[Any, ...]:
        """Draw a batch with all of its bookkeeping, in the lock. Raise a RuntimeError if there are too few rows."""
        return self.calls.sample(bounds, beta)

    def relabelled(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a batch with all of its bookkeeping for other goals, if the buffer relabels samples."""
        return batch if self.relabel is None else self.relabel(batch, self.has_handles + self.spec.prioritized)

    # The state of rows.

    def update(self, indices: Values, values: Experience) -> Any:
        """Write columns of stored rows."""
        with self.lock:
            self.ready()
            return self.count(self.calls.update(indices, values))

    def update_priorities(self, indices: Values, priorities: Values) -> Any:
        """Set the priorities of rows."""
        need_priorities(self.spec.options, "update_priorities")
        with self.lock:
            self.ready()
            return self.count(self.calls.update_priorities(indices, priorities))

    def delete(self, indices: Values) -> Any:
        """Remove rows."""
        with self.lock:
            self.ready()
            return self.count(self.calls.delete(indices))

    def info(self, indices: Values) -> tuple[Any, ...]:
        """Return priority, use count and staleness of rows."""
        with self.lock:
            self.ready_to_read()
            priority, uses, staleness = map(self.share, self.calls.info(indices))
            return priority, uses, staleness

    def advance(self, steps: int) -> None:
        """Advance the learner's clock."""
        with self.lock:
            self.ready()
            self.calls.advance(as_steps(self.spec.options, steps, self.calls.clock))

    def reset(self) -> None:
        """Remove all rows."""
        with self.lock:
            self.ready()
            self.calls.reset()

    # Counts.

    def size(self) -> int:
        """Return the number of rows stored."""
        with self.lock:
            self.ready_to_read()
            return self.calls.count()

    def eligible(self) -> int:
        """Return the number of rows at which a sample may start."""
        with self.lock:
            self.ready()
            return self.calls.eligible()


class Front(BaseFront):
    """The methods of a buffer whose rows are in one place: they have an order, positions and episodes."""

    calls: Calls

    def insert(
        self,
        exp: Experience | None,
        priority: Values | None,
        end: Values,
        final: Values,
        version: Values | None,
        with_indices: bool,
    ) -> Any:
        """Store one row or a batch. Return the handles, or ``None``."""
        new = as_new_rows(self.spec.columns, self.spec.options, exp, priority, end, final, version, with_indices)

        def store() -> Any:
            self.calls.insertion(new)
            return self.share(new.batch.handles(self.calls.first)) if with_indices else None

        return self.in_turn("insert", new.batch.rows, store)

    def draw_batch(self, bounds: tuple[int, int] | None, beta: float | None, pack: Packing | None) -> tuple[Any, ...]:
        """Draw a batch with all of its bookkeeping, in the lock. Raise a RuntimeError if there are too few rows."""
        calls = self.calls
        if self.keeps_turn and (rows := self.available()) < self.spec.sample_size:
            raise self.too_few(rows)
        try:
            return calls.sample(bounds, beta) if pack is None else calls.sample_as(bounds, beta, pack)
        except KernelError as error:
            if error.status != TOO_FEW_ROWS:
                raise
            raise self.too_few(calls.eligible(bounds)) from None

    def available(self) -> int:
        """Return the number of rows that a sample may draw now: of a queue, those whose turn it is."""
        return self.calls.deliverable()

    def too_few(self, rows: int, cls_name: str | None = None, source: str = "") -> RuntimeError:
        """Return the error for a sample of more rows than are eligible; of a mixture's source, with both names."""
        spec, stored, pending = self.spec, self.calls.count(), self.calls.pending_note()
        name = cls_name or spec.cls_name
        return too_few_rows(name, spec.options.plan, spec.weighted, rows, stored, pending, source=source)

    def get_item(self, index: Values, as_dict: bool) -> Sample:
        """Read rows by logical position."""
        names = self.spec.row_names(as_dict)
        with self.lock:
            self.ready_to_read()
            rows = self._no_rows() if is_empty(index) else self.calls.read(index)
        return named(names, rows) if as_dict else rows

    def _no_rows(self) -> tuple[Any, ...]:
        """Return a batch of no rows, with the shapes and dtypes of any other."""
        columns = self.spec.columns
        shapes = ((0, *shape[1:]) if i in columns.group_of else shape for i, shape in enumerate(columns.shapes))
        empty = [np.zeros(0, np.int32) for _ in columns.length_groups]
        empty += (np.zeros((0, *shape), dtype) for shape, dtype in zip(shapes, columns.numpy_types))
        return tuple(map(self.share, empty))

    def rows(self, as_dict: bool) -> Sample:
        """Read all rows of a full buffer."""
        names, capacity = self.spec.row_names(as_dict), self.spec.capacity
        with self.lock:
            self.ready_to_read()
            try:
                rows = self.calls.read(np.arange(capacity))
                return named(names, rows) if as_dict else rows
            except IndexError:
                stored, full = self.calls.count(), self.calls.full()
        wait = "There are no items for more:" if full else "Wait until full() is true. Before that,"
        raise RuntimeError(
            f"For '{self.spec.cls_name}', 'rows' returns all capacity={capacity} rows, but got {stored} stored. {wait} "
            "get_item(range(len(buffer))) returns the stored rows, and datasets.to_npz writes them."
        )

    def full(self) -> bool:
        """Return True if there is no room for another row."""
        with self.lock:
            self.ready_to_read()
            return self.calls.full()

    def end_episodes(self) -> Any:
        """End all open episodes."""
        need_episodes(self.spec.options, "end_episodes")
        with self.lock:
            self.ready()
            return self.count(self.calls.end_episodes())

    # Groups and epochs.

    def sample_groups(self, given: tuple[Any, ...], as_dict: bool, array: Callable[[str], np.ndarray]) -> Any:
        """Draw groups, with the arguments of `as_groups`; `array` returns one of the state by its name."""
        groups = as_groups(self.spec, *given)
        names = names_of_groups(self.spec) if as_dict else NO_NAMES
        with self.lock:
            self.ready()
            batch = sampled_groups(self.calls, self.spec, groups, array)
        return named(names, batch) if as_dict else batch

    def checked_window(self, window: object) -> np.ndarray:
        """Return a number of newest rows to draw from, int64 ``[1]``. Raise an error if it is none."""
        name, options = self.spec.cls_name, self.spec.options
        if is_tensor(window) or isinstance(window, np.ndarray):
            window = one_int(name, "window", as_array(window))
        return np.array([check_size(name, "window", window, options.capacity, options.min_rows_to_sample)], np.int64)

    def begin_epoch(self) -> None:
        """End the epoch in progress: the next sample begins another."""
        with self.lock:
            self.ready()
            self.calls.begin_epoch()

    def batches(self) -> int:
        """Return the number of batches in an epoch over the rows that are stored now."""
        rule = self.spec.options.epochs
        assert rule is not None
        return rule.batches(self.eligible(), self.spec.sample_size)

    def minibatches(self, draw: Callable[[], Any]) -> Iterator[Any]:
        """Iterate over the batches that `draw` draws in a new epoch."""
        self.begin_epoch()
        left, sure = self.batches(), not self.spec.options.late
        while True:
            batch = draw()
            progress, left = self._progress(), left - 1
            yield batch
            sure = sure and self._progress() == progress  # else rows have come or gone meanwhile
            if not (left > 0 if sure else self._has_batch(progress[0][BEGUN])):
                break

    def _progress(self) -> list[list[int]]:
        with self.lock:
            self.ready()
            return self.calls.progress()

    def _has_batch(self, begun: int) -> bool:
        """Return True if the next sample is one of this epoch."""
        with self.lock:
            self.ready()
            return self.calls.progress()[0][BEGUN] == begun and self.calls.has_batch()


class LimitedFront(BaseFront):
    """Calls that wait for a limiter of this process, if there is one."""

    #: What has the limiter, which fronts may share.
    owner_of_limiter: Any

    @property
    def limiter(self) -> Waiting | None:
        """What insertions and samples wait for, or ``None`` for no waits."""
        return self.owner_of_limiter.limiter  # type: ignore[no-any-return]

    def can_sample(self) -> bool:
        """Return True if enough rows are eligible, and the limiter allows a sample now."""
        with self.lock:
            self.ready()
            has_rows = self.calls.has_rows()
        limiter = self.owner_of_limiter.limiter
        return has_rows and (limiter is None or limiter.lets_sample(self.spec.sample_size))

    def turn_to_sample(self, stop: Event | None, rows: int | None = None) -> Held:
        """Wait until the limiter allows a sample, which the block may draw. Raise a RuntimeError once `stop` is set."""
        limiter = self.limiter
        if limiter is None or not limiter.waits:
            return contextlib.nullcontext()
        return limiter.turn("sample", rows or self.spec.sample_size, stop)

    @property
    def is_limited(self) -> bool:
        """True if insertions and samples may have to wait."""
        limiter = self.limiter
        return limiter is not None and limiter.waits

    def reset(self) -> None:
        """Remove all rows, and restart the limiter."""
        super().reset()
        limiter = self.limiter
        if limiter is not None:
            limiter.restart()

    def take(self, operation: str, rows: int) -> Turn | None:
        """Return a turn to insert or sample rows, or ``None`` if they have not to wait."""
        limiter = self.limiter
        return limiter.take(operation, rows) if limiter is not None and limiter.waits and rows else None

    def in_turn(self, operation: str, rows: int, call: Callable[[], _Result], decided: bool = True) -> _Result:
        """Return what a call returns that inserts or samples rows, in the lock, when the limiter allows it."""
        self.ready()
        turn = self.take(operation, rows)
        if turn is None:
            try:
                return super().in_turn(operation, rows, call)
            except KernelError as error:  # rows, or room, of blocks in progress
                raise self.refused(operation, rows) if error.status == NOT_YET else error from None
        if decided and self.decides(operation):
            return turn.go(functools.partial(super().in_turn, operation, rows, call))
        with turn.taken(), self.lock, turn.watched(self.calls):
            self.ready()
            result = call()
            if operation == "sample":
                turn.done = delivered(result)
            return result

    def decides(self, operation: str) -> bool:
        """Return True if kernels decide whether rows may go in or out."""
        return False

    def refused(self, operation: str, rows: int) -> RuntimeError:
        """Return the error for rows that may not go in or out, and do not wait."""
        raise NotImplementedError


class SharedRows:
    """What buffers of several sample sizes on the same rows share.

    Args:
        folder (Union[Folder, None]): The folder of the rows, or ``None`` if they are in memory.
    """

    def __init__(self, folder: Folder | None) -> None:
        self.folder, self.lock, self.closed = folder, threading.RLock(), Event()
        #: What insertions and samples wait for, or ``None`` for no waits.
        self.limiter: Waiting | None = None
        #: The fronts of the buffers, which are closed together.
        self.fronts = Living()

    def check_open(self, cls_name: str) -> None:
        """Raise a RuntimeError if they were closed."""
        if self.closed.is_set():
            raise RuntimeError(f"For '{cls_name}', the buffer was closed: {self.way_out}.")

    @property
    def way_out(self) -> str:
        """What to do once they are closed."""
        return "make another" if self.folder is None else "open its folder again"


class LocalFront(LimitedFront, Front):
    """The calls of a buffer whose rows this process owns. Others, that are forked from it, `leave` them.

    Args:
        calls (Calls): What the rows can be asked for.
        spec (BufferSpec): What the buffer is.
        shared (SharedRows): What buffers of other sample sizes share with it.
        share, count, truth: As for `BaseFront`. Default: the array, an int, and a bool.
        wait (Callable): Waits for the work of a framework on the rows. Default: there is none.

    Attributes:
        outer_lock (ContextManager): The lock of calls from Python; in a folder, of all its processes.
        try_insert (Union[Callable, None]): Stores rows that obviously fit and may go in now, and returns True or their
            handles; else False. ``None`` before the first insertion.
    """

    #: A `Store`, or what runs compiled graphs in its place.
    calls: Any

    def __init__(
        self,
        calls: Calls,
        spec: BufferSpec,
        shared: SharedRows,
        share: Callable[[np.ndarray], Any] = lambda array: array,
        count: Callable[[np.ndarray], Any] = int,
        truth: Callable[[np.ndarray], Any] = bool,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(calls, spec, shared.lock, share, count, truth)
        self.shared = self.owner_of_limiter = shared
        self.ready = self.ready_to_read = wait
        self.try_insert: Any = None
        self.outer_lock: contextlib.AbstractContextManager[Any] = shared.lock
        if shared.folder is not None:
            self.outer_lock = Locks(shared.lock, calls.kernels_kept_out())
        shared.fronts.add(self)
        left_by_forks(self)

    @property
    def folder(self) -> Path | None:
        """The folder of the rows, or ``None`` if they are in memory."""
        folder = self.shared.folder
        return None if folder is None else folder.path

    # Limits.

    def begin_queue(self) -> None:
        """Let the calls of a queue wait for rows and for room."""
        sampler = self.spec.parts.sampler
        if isinstance(sampler, InOrder):
            self.shared.limiter = QueueLimiter(
                self, sampler.timeout, self.spec.cls_name, self.calls.limits, self.outer_lock
            )
            self.shared.limiter.owner = self.shared

    def set_limiter(self, limiter: RateLimiter | None) -> None:
        """Replace the limiter by one which counts the rows that are stored."""
        check_limiter(self.spec.cls_name, self.limiter, limiter, self.shared)
        self.ready()
        with self.outer_lock:
            if self.limiter is not limiter:
                leave_buffer(self.limiter)
            self.shared.limiter = limiter
            if limiter is not None:
                limiter.begin(self.calls.count(), self.spec.options)
                limiter.move_to(self.calls.limits, self.outer_lock)
                limiter.owner = self.shared

    def decides(self, operation: str) -> bool:
        """Return True if kernels decide whether rows may go in or out: they see no rows that others wait for."""
        return isinstance(self.calls, Store) and not (operation == "sample" and self.keeps_turn)

    def account(self) -> QueueAccount:
        """Return the rows that can be sampled, and the room for new ones."""
        with self.lock:
            self.ready()
            return QueueAccount.of(self.calls, self.spec.options)

    def refused(self, operation: str, rows: int) -> RuntimeError:
        """Return the error for rows that a queue has not, or has no room for, and that do not wait."""
        now = self.account()
        if operation == "insert":
            return now.no_room(rows)
        return self.too_few(now.valid - int(self.calls.limits.in_progress[1]))

    def available(self) -> int:
        """Return the number of rows that a sample may draw now: of a queue, those that its limiter counts."""
        limiter = self.limiter
        return limiter.account().valid if isinstance(limiter, QueueLimiter) else super().available()

    # Fast ways: kernels acquire the lock themselves, and keep to the limits.

    def begin_inserting(self) -> Callable[..., Any]:
        """Return `try_insert` from here on. A cached property would let all attributes be read slower."""
        self.try_insert = self.calls.try_insert
        return self.try_insert

    def sample(
        self, sample_range: object, beta: Values | None, as_dict: bool, with_indices: bool, pack: Packing | None = None
    ) -> Sample:
        """Draw a batch, as `BaseFront.sample` does."""
        plain = beta is None and self.relabel is None and pack is None and not self.keeps_turn
        if plain and (self.has_handles or not with_indices):
            names = self.spec.sample_names(as_dict, with_indices) if as_dict else NO_NAMES
            skip = self.drops_handles and not with_indices
            if sample_range is not None:
                batch = self.calls.try_sample_range(sample_range, skip)
            else:
                batch = self.calls.try_sample(skip)
            if type(batch) is tuple:
                return named(names, batch) if as_dict else batch
        return super().sample(sample_range, beta, as_dict, with_indices, pack)

    def update_priorities(self, indices: Values, priorities: Values) -> Any:
        """Set the priorities of rows."""
        invalid = self.calls.try_update_priorities(indices, priorities) if self.spec.prioritized else None
        return self.count(invalid) if type(invalid) is np.ndarray else super().update_priorities(indices, priorities)

    # The end.

    def leave(self) -> None:
        """Leave the rows to the process from which this one was forked."""
        gone: Any = forked(self.spec.cls_name, self.folder)
        self.calls = self.lock = self.outer_lock = gone
        self.try_insert = gone.fail
        if self.limiter is not None:
            self.limiter.leave(gone)

    def flush(self, every: float | None, rows: int | None) -> None:
        """Write the rows in the folder to the disk, as `place.flush` does."""
        if isinstance(self.calls, Gone):
            self.calls.fail()
        self.ready()
        flush(self.spec.cls_name, self.shared.folder, every, rows)

    def close(self) -> None:
        """Free the memory of the rows, or flush and release the folder."""
        if isinstance(self.calls, Gone):  # closed, or left to the process from which this one was forked
            return
        with self.lock:
            if isinstance(self.calls, Gone):
                return
            self.ready()
            with Block(self.calls.close, self._mark_closed):
                pass

    def _mark_closed(self, succeeded: bool) -> None:
        """Let all calls raise errors, unless the buffer is still open after an error."""
        folder = self.shared.folder
        if succeeded or (folder is not None and not folder.is_learner):
            self.shared.closed.set()
            closed: Any = Gone(self.spec.cls_name, f"the buffer was closed: {self.shared.way_out}")
            for front in [*(other for other in self.shared.fronts if other is not self), self]:
                front.outer_lock = front.calls = closed
