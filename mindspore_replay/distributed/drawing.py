"""Batches from all shards: the number of rows of each, their places in the batch, and their importance weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from mindspore import Tensor

from ..mindspore_api import share
from ..store.kernels import library
from ..store.spec.needs import too_few_rows
from ..store.spec.spec import BufferSpec
from .exchange import Exchange, Link
from .shard import Drawn, Report

_NAME = "ShardedReplay"


class Piece(NamedTuple):
    """The rows of a batch that one shard delivers."""

    places: np.ndarray  # positions in the batch, ascending, int64 [n]
    answer: Drawn  # its rows, of which the first n are used
    factor: float  # a row's probability over its weight: the shard's share of the batch, over its total at the draw


class Batches:
    """Draws batches, each in one round trip: the shares of the shards follow from their latest reports.

    A report may be outdated, since writers insert into a shard after it. With priorities, importance weights are
    computed from the actual probabilities, which the answers contain, so their expectation is that of new totals. A
    batch is drawn again only if a shard that reported no rows now has some. Without priorities a row's probability
    cannot be corrected, so a batch is drawn again if totals have changed. If totals change between batches, or if rows
    are removed by use, new totals are requested before a batch.
    """

    def __init__(self, exchange: Exchange, spec: BufferSpec, rng: np.random.Generator) -> None:
        self.exchange, self.plan, self.rng = exchange, spec.options.plan, rng
        plan, columns = self.plan, spec.columns
        #: Dtype of each output; shards send the bits of bfloat16 as uint16.
        self._types = [columns.numpy_type(dtype) for _, dtype in plan.specs(columns)]
        self._has_handles, self._weighs = spec.has_handles, plan.draw == "priority"
        self._repeats = plan.max_use is None  # rows drawn for nothing are not used up
        self._steady = False
        self._outputs: tuple[Callable[[], np.ndarray], ...] | None = None

    def draw(self, beta: float) -> list[Tensor]:
        """Draw a batch. Rows that a shard does not deliver in time are drawn from the others.

        Raises:
            RuntimeError: If there are too few rows, or no shard answers.
        """
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
            counts = self.plan, self._has_handles, _eligible(reports), sum(r.rows for r in reports.values())
            raise too_few_rows(_NAME, *counts, place=f" in the {len(reports)} shards that answer")

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
