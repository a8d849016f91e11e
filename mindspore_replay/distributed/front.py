"""The calls of a sharded buffer from Python, which become messages to its shards, and the writers of its process."""

import contextlib
import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from mindspore import Tensor

from ..mindspore_api import share
from ..store.faces.front import LimitedFront
from ..store.kernels.locks import Block, Event, Held, Locks
from ..store.rows.calls import BaseCalls
from ..store.rows.inputs import NewRows, as_handles_for, as_priorities, as_values
from ..store.spec.spec import BufferSpec
from .configuration import most_starts
from .drawing import Batches
from .exchange import Exchange
from .shard import shards_of
from .writer import InsertionFront, ShardWriter, bits

_Result = TypeVar("_Result")

#: Seconds between two requests to the shards while rows are in transit, or the limiter blocks samples.
_POLL = 0.005


def _invalid(handles: np.ndarray, answers: Sequence[tuple[np.ndarray, Any]]) -> np.ndarray:
    """Return the number of handles that shards skipped, or that no shard answered for. Shape ``[]``, int32."""
    return np.array(handles.size - sum(len(rows) - int(skipped) for rows, skipped in answers), np.int32)


class ShardCalls(BaseCalls):
    """What the rows in shards can be asked for, and the writers of this process, whose rows `land` before.

    `writer` makes one of the number of a shard.
    """

    def __init__(
        self, exchange: Exchange, batches: Batches, spec: BufferSpec, writer: Callable[..., ShardWriter]
    ) -> None:
        self.exchange, self.batches, self.spec = exchange, batches, spec
        self.writer = partial(writer, own=self)
        #: Held by a thread that draws a batch, or inserts.
        self.drawing, self._inserting = threading.RLock(), threading.RLock()
        #: Writers with rows that have not landed.
        self.busy: set[ShardWriter] = set()
        #: Those of the learner, one for each shard. The first inserted last.
        self._own = deque(self.writer(shard=link.number) for link in exchange.all)
        self._own.rotate(1)

    def resized(self, spec: BufferSpec) -> "ShardCalls":
        """Return an object on the same shards for another sample size."""
        clone = copy.copy(self)
        clone.batches, clone.spec = Batches(self.exchange, spec, self.batches.rng), spec
        return clone

    def insert(self, new: NewRows) -> None:
        """Insert into one shard until a batch is sent, then into the next."""
        with self._inserting:
            if not self._own[0].collected:
                self._own.rotate(-1)
            self._own[0].collect(new)

    def end_episodes(self) -> int:
        """End the open episodes of rows that `insert` collected."""
        with self._inserting:
            return sum(writer.end_episodes() for writer in self._own)

    def land(self) -> None:
        """Send the rows collected so far, and wait until the shards have inserted them.

        It does not wait for rows that the limiter holds back, or whose shard does not answer.
        """
        self.exchange.check_open()
        going = {writer: writer.inserted + writer.lost + writer.on_their_way for writer in list(self.busy)}
        self.exchange.outdated |= bool(going)
        while going := {writer: rows for writer, rows in going.items() if not writer.has_landed(rows, _POLL)}:
            answering = {link.number for link in self.exchange.reports()}
            if {writer.shard for writer in going} & answering <= self.exchange.blocked():
                return

    @property
    def on_their_way(self) -> int:
        """Rows of this process that have not landed, apart from those of open episodes."""
        return sum(writer.on_their_way for writer in list(self.busy))

    def _asked(self, method: str, handles: np.ndarray, *arguments: object) -> list[tuple[np.ndarray, Any]]:
        """Call a method of the shards that store these rows.

        Return, for each shard that answers, positions in `handles`, and the result for them.
        """
        shards, places, requests = shards_of(handles), {}, {}
        for link in self.exchange.alive():
            places[link] = rows = np.flatnonzero(shards == link.number)
            if rows.size:
                requests[link] = "call", method, handles[rows], *(_rows_of(argument, rows) for argument in arguments)
        return [(places[link], result) for link, result in self.exchange.ask(requests).items()]

    def count(self) -> int:
        """Return the number of rows stored in the shards that answer."""
        return sum(report.rows for report in self.exchange.reports().values())

    def eligible(self, bounds: tuple[int, int] | None = None) -> int:
        """Return the number of rows at which a sample may start, in the shards that answer."""
        return sum(report.eligible for report in self.exchange.reports().values())

    def rows_to_wait_for(self) -> int:
        """Return the number of eligible rows from which on `can_sample` is true."""
        spec, shards = self.spec, len(self.exchange.all)
        return min(spec.options.rows_to_wait_for, most_starts(spec, spec.capacity, shards))

    def clock(self) -> int:
        """Return the learner's clock."""
        return self.exchange.clock

    def sample(self, bounds: tuple[int, int] | None = None, beta: float | None = None) -> tuple[Tensor, ...]:
        """Draw a batch from all shards that answer."""
        exchange = self.exchange
        batch = self.batches.draw((exchange.beta or 0.0) if beta is None else beta)
        exchange.samples += 1
        exchange.sampled += self.spec.sample_size
        if exchange.beta is not None:
            exchange.beta = min(exchange.beta + self.spec.options.plan.beta_step, 1.0)
        return tuple(batch)

    def update(self, indices: object, values: object) -> np.ndarray:
        """Write columns of stored rows, and return the number of invalid handles."""
        handles, chosen, arrays = as_values(self.spec.columns, self.spec.options, indices, values)
        by_name = {self.spec.columns.names[i]: bits(array) for i, array in zip(chosen, arrays)}
        of_all = by_name if self.spec.columns.given_names else list(by_name.values())
        return _invalid(handles, self._asked("update", handles, of_all))

    def update_priorities(self, indices: object, priorities: object) -> np.ndarray:
        """Set the priorities of rows, and return the number of invalid handles."""
        handles, checked = as_priorities(self.spec.options, indices, priorities)
        answers = self._asked("update_priorities", handles, np.broadcast_to(checked, handles.shape))
        invalid = _invalid(handles, answers)
        self.exchange.invalid_handles += int(invalid)
        return invalid

    def delete(self, indices: object) -> np.ndarray:
        """Remove rows, and return their number."""
        handles = as_handles_for(self.spec.options, "delete", indices).reshape(-1)
        return np.array(sum(int(removed) for _, removed in self._asked("delete", handles)), np.int32)

    def info(self, indices: object) -> tuple[np.ndarray, ...]:
        """Return priorities, use counts and stalenesses of rows, with 0, -1, -1 for those that no shard answers for."""
        handles = as_handles_for(self.spec.options, "info", indices)
        parts = [np.full(handles.size, value, dtype) for value, dtype in ((0, "f4"), (-1, "i4"), (-1, "i8"))]
        for rows, answer in self._asked("info", handles.reshape(-1)):
            for part, values in zip(parts, answer):
                part[rows] = values
        return tuple(part.reshape(handles.shape) for part in parts)

    def advance(self, steps: int) -> None:
        """Advance the learner's clock. A shard that does not answer gets it with the next request."""
        self.exchange.clock += steps
        self.exchange.ask_all("report")

    def progress_of(self, operation: str) -> list[Any]:
        """Return numbers that change with each sample."""
        return [self.exchange.samples]

    def reset(self) -> None:
        """Remove all rows, in every shard that answers."""
        with self.drawing:
            self.exchange.reset()

    def check(self) -> None:
        """Raise a ValueError if the state of a shard that answers is inconsistent."""
        self.exchange.ask_all("call_all", "check_valid")


class ShardFront(InsertionFront, LimitedFront):
    """The calls of a learner on shards, of which one at a time draws a batch. Others wait for no lock."""

    calls: ShardCalls

    def __init__(self, calls: ShardCalls, spec: BufferSpec) -> None:
        LimitedFront.__init__(self, calls, spec, contextlib.nullcontext(), share, share)
        InsertionFront.__init__(self, spec, calls.insert, calls.clock)
        self.ready = self.ready_to_read = calls.land
        self.owner_of_limiter = calls.exchange

    @property
    def is_limited(self) -> bool:
        """True: samples take turns."""
        return True

    def turn_to_sample(self, stop: Event | None, rows: int | None = None) -> Held:
        """Wait until the limiter allows a sample, and no other thread draws one. End the wait once `stop` is set."""
        limiter, rows = self.limiter, rows or self.spec.sample_size
        self.calls.land()
        if limiter is not None and not limiter.lets_sample(rows):
            self.calls.exchange.reports()  # other processes may have inserted
        wait = contextlib.nullcontext() if limiter is None else limiter.turn("sample", rows, stop, poll=self._ask_again)
        return Locks(Block(lambda: None, self._regulate), wait, self.calls.drawing)

    def in_turn(self, operation: str, rows: int, call: Callable[[], _Result], decided: bool = True) -> _Result:
        """Return what a call returns that samples rows, when it may."""
        with self.turn_to_sample(None, rows):
            return super(LimitedFront, self).in_turn(operation, rows, call)

    def _regulate(self, succeeded: bool) -> None:
        if succeeded:
            self.calls.exchange.regulate()

    def _ask_again(self, seconds: float) -> None:
        """Ask the shards for new insertions, soon and within so many seconds."""
        time.sleep(min(seconds, _POLL))
        self.calls.land()
        self.calls.exchange.reports()


def _rows_of(arrays: object, rows: np.ndarray) -> object:
    """Return these rows of an array, or of each in a list or dict."""
    if isinstance(arrays, dict):
        return {key: array[rows] for key, array in arrays.items()}
    return [array[rows] for array in arrays] if isinstance(arrays, list) else np.asarray(arrays)[rows]
