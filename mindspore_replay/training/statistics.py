"""Statistics of a buffer's rows, from its state."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..store.state import COUNTS

#: Rows that are looked at together: few enough to stay in the cache.
_BLOCK = 1 << 16
_AGE_BINS = 32
#: Bits of a float32 below the exponent and the first two of the mantissa: four bins for each doubling.
_BIN_SHIFT = 21
_ALL_BINS = 1 << (32 - _BIN_SHIFT - 1)
#: Priorities that many bins below the largest, which are smaller by a factor of 2^40, share the first bin.
_PRIORITY_BINS = 160


class Histogram(NamedTuple):
    """Numbers of values in each of K intervals.

    Attributes:
        edges (numpy.ndarray): Bounds of the intervals, ascending. Shape ``[K + 1]``, float64.
        counts (numpy.ndarray): Values from each bound up to the next. Shape ``[K]``, int64.
    """

    edges: np.ndarray
    counts: np.ndarray


class Statistics(NamedTuple):
    """Numbers and distributions by name.

    Attributes:
        values (dict[str, float]): Rows, counters, averages and extremes.
        histograms (dict[str, Histogram]): ``priority`` and ``age``.
    """

    values: dict[str, float]
    histograms: dict[str, Histogram]


def statistics_of(state: Mapping[str, np.ndarray]) -> Statistics:
    """Return the numbers of one buffer, in one pass over what is known of its rows.

    Counters count from when the buffer was made, ``overwritten`` from its last `reset`: rows that were replaced, in a
    reservoir also those that it did not keep. Averages of use counts are over the rows that are stored; those of
    staleness (steps of the learner's clock since the insertion), age (rows inserted since) and priority are over the
    rows that may be drawn, as are the distributions.

    Args:
        state (Mapping[str, numpy.ndarray]): A buffer's `state_dict`; the columns are not looked at.

    Returns:
        Statistics: What can be said. A buffer without weights has neither use counts nor staleness.
    """
    rows = int(state["count"])
    inserted, base = (int(serial) for serial in state["serials"])
    weighted = "counts" in state
    counts = dict(zip(COUNTS, state["counts"].tolist())) if weighted else {"drawn": int(state["random_state"][1])}
    values: dict[str, float] = {
        "rows": rows,
        "capacity": int(state["capacity"]),
        "inserted": inserted,
        "sampled": counts.pop("drawn"),
        "overwritten": inserted - base - rows,
    }
    known = _Rows(state, rows)
    if weighted:
        values |= {"eligible": known.live, "dead_handles": counts.pop("dead"), **counts}
    if "beta" in state:
        values["beta"] = float(np.ravel(state["beta"])[0])
    return Statistics(values | known.values(), known.histograms())


class _Rows:
    """Sums, extremes and distributions over the rows of a buffer, a block of rows at a time.

    As long as a ring is not full its oldest row lies in slot 0, so the rows stored are always the first ones.
    """

    def __init__(self, state: Mapping[str, np.ndarray], rows: int) -> None:
        self.state, self.rows, self.live = state, rows, 0
        self.sums = dict.fromkeys(("use_count", "staleness", "age", "priority"), 0.0)
        self.largest = dict.fromkeys(self.sums, 0.0)
        self.smallest_priority = np.inf
        self.by_age = np.zeros(_AGE_BINS, np.int64)
        self.by_priority = np.zeros(_ALL_BINS, np.int64)
        # Ages are below the span; they fall into so many equal parts of it.
        self.span = 1 + (int((self._newest() - state["row_serials"][:rows]).max()) if self._reservoir() else rows - 1)
        self.parts = min(_AGE_BINS, self.span)
        for begin in range(0, rows, _BLOCK):
            self._add(slice(begin, min(begin + _BLOCK, rows)))

    def _reservoir(self) -> bool:
        return "row_serials" in self.state and self.rows > 0

    def _newest(self) -> int:
        return int(self.state["serials"][0]) - 1

    def _ages(self, block: slice) -> np.ndarray:
        """Count the rows inserted after each. Shape ``[n]``, int64."""
        if self._reservoir():
            return self._newest() - self.state["row_serials"][block]
        newest = int(self.state["head"]) + self.rows - 1
        return (newest - np.arange(block.start, block.stop)) % int(self.state["capacity"])

    def _add(self, block: slice) -> None:
        state, ages = self.state, self._ages(block)
        if "counts" in state:
            uses = state["use_counts"][block]
            self._note("use_count", np.maximum(uses, ~uses))  # of a removed row the complement is kept
            live = state["weights"][block] > 0
            ages = ages[live]
            self._note("staleness", state["clock"][0] - state["insertion_clocks"][block][live])
        self.live += ages.size
        self._note("age", ages)
        self.by_age[: self.parts] += np.bincount(((ages + 1) * self.parts - 1) // self.span, minlength=self.parts)
        if "beta" in state:
            self._add_priorities(state["priorities"][block][live])

    def _add_priorities(self, priorities: np.ndarray) -> None:
        self._note("priority", priorities)
        self.smallest_priority = min(self.smallest_priority, priorities.min(initial=np.inf))
        self.by_priority += np.bincount((priorities + np.float32(0)).view(np.int32) >> _BIN_SHIFT, minlength=_ALL_BINS)

    def _note(self, name: str, numbers: np.ndarray) -> None:
        self.sums[name] += float(numbers.sum(dtype=np.float64))
        self.largest[name] = max(self.largest[name], numbers.max(initial=0).item())

    def values(self) -> dict[str, float]:
        """Averages and extremes of what there is."""
        names = [("age", self.live)]
        if "counts" in self.state:
            names = [("use_count", self.rows), ("staleness", self.live), *names]
        if "beta" in self.state:
            names.append(("priority", self.live))
        found: dict[str, float] = {}
        for name, number in names:
            if number:
                found |= {f"{name}_mean": self.sums[name] / number, f"{name}_max": self.largest[name]}
        if np.isfinite(self.smallest_priority):
            found["priority_min"] = float(self.smallest_priority)
        return found

    def histograms(self) -> dict[str, Histogram]:
        """Return the distributions of what there is."""
        if self.live == 0:
            return {}
        edges = np.arange(self.parts + 1) * self.span // self.parts
        found = {"age": Histogram(edges.astype(np.float64), self.by_age[: self.parts])}
        return found | {"priority": self._of_priorities()} if "beta" in self.state else found

    def _of_priorities(self) -> Histogram:
        """Bins whose widths double every four, as priorities are spread over orders of magnitude."""
        filled = np.flatnonzero(self.by_priority)
        last = int(filled[-1])
        first = max(int(filled[0]), last + 1 - _PRIORITY_BINS)
        counts = self.by_priority[first : last + 1].copy()
        counts[0] += self.by_priority[:first].sum()
        edges = (np.arange(first, last + 2, dtype=np.int32) << _BIN_SHIFT).view(np.float32).astype(np.float64)
        edges[0] = min(edges[0], self.smallest_priority)
        edges[-1] = min(edges[-1], np.finfo(np.float32).max)
        return Histogram(edges, counts)
