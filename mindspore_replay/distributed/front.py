"""The calls of a sharded buffer from Python, which become messages to its shards, and the writers of its process."""

import contextlib
import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mindspore import Tensor

from ..mindspore_api import share
from ..store.faces.front import LimitedFront
from ..store.kernels import library
from ..store.kernels.locks import Block, Event, Held, Locks
from ..store.rows.calls import BaseCalls
from ..store.rows.inputs import NewRows, as_handles_for, as_priorities, as_values
from ..store.spec.needs import too_few_rows
from ..store.spec.spec import BufferSpec
from .configuration import most_starts
from .exchange import Exchange, Link
from .shard import Drawn, Report, shards_of
from .writer import InsertionFront, ShardWriter, bits

_Result = TypeVar("_Result")

#: Seconds between two requests to the shards while rows are in transit, or the limiter blocks samples.
_POLL = 0.005


class Piece(NamedTuple):
    """The rows of a batch that one shard delivers."""

    places: np.ndarray  # positions in the batch, ascending, int64 [n]
    answer: Drawn  # its rows, of which the first n are used
    factor: float  # a row's probability over its weight: the shard's share of the batch, over its total at the draw


class ShardCalls(BaseCalls):
    """What the rows in shards can be asked for, and the writers of this process, whose rows `land` before.

    A batch takes one round trip: the shares of the shards follow from their latest reports. The appendix on shards says
    what becomes of reports that are outdated. `rng` chooses shards, and `writer` makes a writer that begins with one.
    """

    def __init__(
        self, exchange: Exchange, spec: BufferSpec, rng: np.random.Generator, writer: Callable[..., ShardWriter]
    ) -> None:
        self.exchange, self.rng, self.writer = exchange, rng, partial(writer, own=self)
        self._weighs = spec.options.plan.draw == "priority"
        self._repeats = spec.options.plan.max_use is None  # rows drawn for nothing are not used up
        self._steady = False
        self._begin(spec)
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
        clone._begin(spec)  # noqa: SLF001  the same class
        return clone

    def _begin(self, spec: BufferSpec) -> None:
        self.spec, self.plan, columns = spec, spec.options.plan, spec.columns
        #: Dtype of each output; shards send the bits of bfloat16 as uint16.
        self._types = [columns.numpy_type(dtype) for _, dtype in self.plan.specs(columns)]
        self._outputs: tuple[Callable[[], np.ndarray], ...] | None = None

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
        batch = self.draw((exchange.beta or 0.0) if beta is None else beta)
        exchange.samples += 1
        exchange.sampled += self.plan.n
        if exchange.beta is not None:
            exchange.beta = min(exchange.beta + self.plan.beta_step, 1.0)
        return tuple(batch)

    def draw(self, beta: float) -> list[Tensor]:
        """Draw a batch. Rows that a shard does not deliver in time are drawn from the others."""
        plan, pieces, left = self.plan, list[Piece](), np.arange(self.plan.n)
        reports, final = self._totals()
        while left.size:
            self._check_enough(reports, 1 if any(len(piece.places) for piece in pieces) else plan.needed)
            how = "once" if not plan.replace else "strata" if self._weighs else "replace"
            chosen = choose(self.rng, [report.total for report in reports.values()], left.size, how)
            asked = {link: left[chosen == i] for i, link in enumerate(reports)}
            answers = self.exchange.ask({link: ("draw", len(places)) for link, places in asked.items()})
            answers = {link: part for link, part in answers.items() if part.before.identity == reports[link].identity}
            again = not final and self._misses_rows(reports, {link: part.before for link, part in answers.items()})
            if not again:
                pieces += self._pieces(reports, asked, answers)
                left = np.setdiff1d(left, np.concatenate([piece.places for piece in pieces] or [left[:0]]))
            if again or (left.size and not plan.replace):  # a row delivered before must not be drawn again
                left, pieces = np.arange(plan.n), []
            reports, final = self.exchange.latest(), final or again
        return self._merged(pieces, beta)

    def _totals(self) -> tuple[dict[Link, Report], bool]:
        """Return the reports to draw by, and whether they are new. New ones are requested only if needed."""
        reports = self.exchange.latest()
        usable = (self._repeats or all(r.total for r in reports.values())) if self._weighs else self._steady
        if usable and not self.exchange.outdated and _eligible(reports) >= self.plan.needed:
            return reports, False
        now = self.exchange.reports()
        same = {link: report.total for link, report in now.items()} == {k: one.total for k, one in reports.items()}
        self._steady = same and self._repeats
        return now, True

    def _misses_rows(self, reports: Mapping[Link, Report], before: Mapping[Link, Report]) -> bool:
        """Return True if changed totals made some rows impossible to draw, or gave them a wrong probability."""
        if not self._repeats:
            return False
        if len(before) == len(reports) and _eligible(before) < self.plan.needed:
            return True
        if self._weighs:
            return any(report.total and not reports[link].total for link, report in before.items())
        self._steady = all(report.total == reports[link].total for link, report in before.items())
        return not self._steady

    def _check_enough(self, reports: Mapping[Link, Report], needed: int) -> None:
        if not reports:
            raise self.exchange.no_answer()
        if _eligible(reports) < needed:
            counts = self.plan, self.spec.has_handles, _eligible(reports), sum(r.rows for r in reports.values())
            raise too_few_rows("ShardedReplay", *counts, place=f" in the {len(reports)} shards that answer")

    def _pieces(
        self, reports: Mapping[Link, Report], asked: Mapping[Link, np.ndarray], answers: Mapping[Link, Drawn]
    ) -> list[Piece]:
        whole = sum(reports[link].total for link, part in answers.items() if part.before.total)
        return [
            Piece(
                asked[link][: len(part.parts[0]) if part.parts else 0],
                part,
                reports[link].total / whole / part.before.total,
            )
            for link, part in answers.items()
            if reports[link].total and part.before.total
        ]

    def _merged(self, pieces: Sequence[Piece], beta: float) -> list[Tensor]:
        used = [piece for piece in pieces if len(piece.places)]
        if self._outputs is None:
            parts = used[0].answer.parts
            self._outputs = tuple(library.calls.Output((self.plan.n, *p.shape[1:]), p.dtype) for p in parts)
        batch = [make() for make in self._outputs]
        probabilities = np.empty(self.plan.n)
        for piece in used:
            rows, answer = piece.places, piece.answer
            places = slice(rows[0], rows[-1] + 1) if len(rows) == rows[-1] - rows[0] + 1 else rows
            for target, part in zip(batch, answer.parts):
                target[places] = part
            if self._weighs:
                probabilities[places] = piece.factor * answer.weights[: len(rows)]
        if self._weighs:
            smallest = probabilities.min()
            if self.plan.by_buffer:
                smallest = min([smallest, *(piece.factor * piece.answer.before.least for piece in pieces)])
            batch[1][...] = importance(probabilities, smallest, beta)
        return [share(part.view(dtype)) for part, dtype in zip(batch, self._types)]

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


def _invalid(handles: np.ndarray, answers: Sequence[tuple[np.ndarray, Any]]) -> np.ndarray:
    """Return the number of handles that shards skipped, or that no shard answered for. Shape ``[]``, int32."""
    return np.array(handles.size - sum(len(rows) - int(skipped) for rows, skipped in answers), np.int32)


def _rows_of(arrays: object, rows: np.ndarray) -> object:
    """Return these rows of an array, or of each in a list or dict."""
    if isinstance(arrays, dict):
        return {key: array[rows] for key, array in arrays.items()}
    return [array[rows] for array in arrays] if isinstance(arrays, list) else np.asarray(arrays)[rows]


def _eligible(reports: Mapping[Link, Report]) -> int:
    return sum(report.eligible for report in reports.values())


def choose(rng: np.random.Generator, totals: Sequence[float], rows: int, how: str) -> np.ndarray:
    """Choose the shard of each row of a batch by their totals, of which one at least is above zero. Int64 ``[rows]``.

    `how` is ``"strata"``, one row from each of `rows` equal parts of the total weight; ``"replace"``, each row
    independently; or ``"once"``: `totals` count rows, and none is drawn twice.
    """
    weights = np.asarray(totals, np.float64)
    if how == "once":
        counts = rng.multivariate_hypergeometric(weights.astype(np.int64), rows, method="marginals")
        return rng.permutation(np.repeat(np.arange(len(counts)), counts))
    points = rng.random(rows)
    if how == "strata":
        points = (np.arange(rows) + points) / rows
    bounds = np.cumsum(weights)
    last = np.flatnonzero(weights)[-1]  # rounding may put a point on the upper bound
    return np.minimum(np.searchsorted(bounds, points * bounds[-1], side="right"), last)


def importance(probabilities: np.ndarray, smallest: float, beta: float) -> np.ndarray:
    r"""Compute importance weights :math:`(P_\min / P_i)^\beta` from the probabilities of rows, float32 ``[B]``."""
    return ((smallest / probabilities) ** beta).astype(np.float32)
