"""Statistics of a buffer's rows, computed from its state."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..store.late import pending
from ..store.state import COUNTS

#: Rows to process at once: few enough for the cache.
_BLOCK = 1 << 16
_AGE_BINS = 32
#: Bits of a float32 below the exponent and the first two of the mantissa: four bins for each doubling.
_BIN_SHIFT = 21
_ALL_BINS = 1 << (32 - _BIN_SHIFT - 1)
#: Priorities more than this many bins below the largest, a factor of 2^40, share the first bin.
_PRIORITY_BINS = 160


class Histogram(NamedTuple):
    """Numbers of values in K intervals.

    Attributes:
        edges (numpy.ndarray): Bounds of the intervals, ascending. Shape ``[K + 1]``, float64.
        counts (numpy.ndarray): Values from each bound up to the next. Shape ``[K]``, int64.
    """

    edges: np.ndarray
    counts: np.ndarray


class Statistics(NamedTuple):
    """Numbers and distributions by name.

    Attributes:
        values (dict[str, float]): Rows, counters, averages, minima and maxima.
        histograms (dict[str, Histogram]): ``priority``, ``age`` and ``staleness``.
    """

    values: dict[str, float]
    histograms: dict[str, Histogram]


def statistics_of(state: Mapping[str, np.ndarray]) -> Statistics:
    """Compute the statistics of one buffer, in one pass over the state of its rows.

    Counters count from the construction of the buffer, ``overwritten`` from its last `reset`: rows that were replaced,
    for a reservoir also rows that were not kept. Averages of use counts are over the rows stored; those of staleness
    (the learner's clock less the row's version), age (rows inserted since) and priority are over the rows that
    can be drawn, and so are the distributions.

    Args:
        state (Mapping[str, numpy.ndarray]): A buffer's `state_dict`; columns are not needed.

    Returns:
        Statistics: The available statistics. A buffer without weights has neither use counts nor staleness,
            and its `sampled` counts the padding of epochs too.
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
    known = _RowSums(state, rows)
    if weighted:
        values |= {"eligible": known.live, "invalid_handles": counts.pop("invalid"), **counts}
    if "beta" in state:
        values["beta"] = float(np.ravel(state["beta"])[0])
    return Statistics(values | known.values(), known.histograms())


def merged(shards: Mapping[int, Statistics]) -> Statistics:
    """Return the statistics of all shards together, and of each as ``shard_0/...``, with distributions.

    Numbers are added; of minima and maxima the overall one is taken; averages are over all rows, weighted by rows that
    can be drawn, or by rows stored for use counts.

    Args:
        shards (Mapping[int, Statistics]): Statistics of each shard by its number.

    Returns:
        Statistics: Values and distributions.
    """
    values: dict[str, float] = {}
    for key in dict.fromkeys(key for shard in shards.values() for key in shard.values):
        having = [shard.values for shard in shards.values() if key in shard.values]
        numbers = [one[key] for one in having]
        if key.endswith("_max"):
            values[key] = max(numbers)
        elif key.endswith("_min"):
            values[key] = min(numbers)
        elif key.endswith("_mean"):
            rows = [one["rows"] if key == "use_count_mean" else one.get("eligible", one["rows"]) for one in having]
            values[key] = sum(number * n for number, n in zip(numbers, rows)) / sum(rows)
        else:
            values[key] = sum(numbers)
    values |= {f"shard_{i}/{key}": value for i, shard in shards.items() for key, value in shard.values.items()}
    histograms = {f"shard_{i}/{key}": found for i, shard in shards.items() for key, found in shard.histograms.items()}
    return Statistics(values, histograms)


class _EqualParts:
    """A histogram of ints from 0 to `largest`, in intervals of equal size."""

    def __init__(self, largest: int) -> None:
        self.span = 1 + largest
        self.parts = min(_AGE_BINS, self.span)
        self.counts = np.zeros(self.parts, np.int64)

    def add(self, numbers: np.ndarray) -> None:
        """Count numbers."""
        self.counts += np.bincount(((numbers + 1) * self.parts - 1) // self.span, minlength=self.parts)

    def histogram(self) -> Histogram:
        """Return the numbers counted."""
        return Histogram((np.arange(self.parts + 1) * self.span // self.parts).astype(np.float64), self.counts)


class _RowSums:
    """Sums, extremes and distributions over the rows of a buffer, computed block by block.

    Until a ring is full its oldest row is in slot 0, so the rows stored are always in the first slots.
    """

    def __init__(self, state: Mapping[str, np.ndarray], rows: int) -> None:
        self.state, self.rows, self.live = state, rows, 0
        self.sums = dict.fromkeys(("use_count", "staleness", "age", "priority"), 0.0)
        self.largest = dict.fromkeys(self.sums, 0.0)
        self.smallest_priority = np.inf
        self.by_priority = np.zeros(_ALL_BINS, np.int64)
        oldest = int((self._newest() - state["row_serials"][:rows]).max()) if self._reservoir() else max(rows - 1, 0)
        self.parts = {"age": _EqualParts(oldest)}
        if "counts" in state:
            now = int(state["clock"][0])
            self.parts["staleness"] = _EqualParts(now - int(state["insertion_clocks"][:rows].min(initial=now)))
        for begin in range(0, rows, _BLOCK):
            self._add(slice(begin, min(begin + _BLOCK, rows)))

    def _reservoir(self) -> bool:
        return "row_serials" in self.state and self.rows > 0

    def _newest(self) -> int:
        return int(self.state["serials"][0]) - 1

    def _ages(self, block: slice) -> np.ndarray:
        """Return the number of rows inserted after each row. Shape ``[n]``, int64."""
        if self._reservoir():
            return self._newest() - self.state["row_serials"][block]
        newest = int(self.state["head"]) + self.rows - 1
        return (newest - np.arange(block.start, block.stop)) % int(self.state["capacity"])

    def _add(self, block: slice) -> None:
        state, ages = self.state, self._ages(block)
        if "counts" in state:
            uses = state["use_counts"][block]
            # The count of a removed row is stored as its complement.
            self._note("use_count", np.where(pending(uses), 0, np.maximum(uses, ~uses)))
            live = state["weights"][block] > 0
            ages = ages[live]
            self._distribute("staleness", state["clock"][0] - state["insertion_clocks"][block][live])
        self.live += ages.size
        self._distribute("age", ages)
        if "beta" in state:
            self._add_priorities(state["priorities"][block][live])

    def _add_priorities(self, priorities: np.ndarray) -> None:
        self._note("priority", priorities)
        self.smallest_priority = min(self.smallest_priority, priorities.min(initial=np.inf))
        self.by_priority += np.bincount((priorities + np.float32(0)).view(np.int32) >> _BIN_SHIFT, minlength=_ALL_BINS)

    def _distribute(self, name: str, numbers: np.ndarray) -> None:
        self._note(name, numbers)
        self.parts[name].add(numbers)

    def _note(self, name: str, numbers: np.ndarray) -> None:
        self.sums[name] += float(numbers.sum(dtype=np.float64))
        self.largest[name] = max(self.largest[name], numbers.max(initial=0).item())

    def values(self) -> dict[str, float]:
        """Return the averages, minima and maxima of the rows added."""
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
        """Return the distributions of the rows added."""
        if self.live == 0:
            return {}
        found = {name: part.histogram() for name, part in self.parts.items()}
        return found | {"priority": self._of_priorities()} if "beta" in self.state else found

    def _of_priorities(self) -> Histogram:
        """Return a histogram with four bins for each doubling, since priorities span orders of magnitude."""
        filled = np.flatnonzero(self.by_priority)
        last = int(filled[-1])
        first = max(int(filled[0]), last + 1 - _PRIORITY_BINS)
        counts = self.by_priority[first : last + 1].copy()
        counts[0] += self.by_priority[:first].sum()
        edges = (np.arange(first, last + 2, dtype=np.int32) << _BIN_SHIFT).view(np.float32).astype(np.float64)
        edges[0] = min(edges[0], self.smallest_priority)
        edges[-1] = min(edges[-1], np.finfo(np.float32).max)
        return Histogram(edges, counts)
