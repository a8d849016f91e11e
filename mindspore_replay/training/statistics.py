"""Statistics of a buffer's rows, computed from its state."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..store.base.late import pending
from ..store.base.ring import stored_spans
from ..store.base.structs import COUNTS

_AGE_BINS = 32
#: Bits of a float32 below the exponent and the first two of the mantissa: four bins for each doubling.
_BIN_SHIFT = 21
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
    """Compute the statistics of one buffer from the state of its rows.

    Counters count from the construction of the buffer, ``overwritten`` from its last `reset`: rows that were replaced,
    for a reservoir also rows that were not kept. Averages of use counts are over the rows stored. Those of staleness
    (the learner's clock less the row's version), age (rows inserted since) and priority are over the rows that
    can be drawn, and so are the distributions.

    Args:
        state (Mapping[str, numpy.ndarray]): A buffer's `state_dict`. Columns are not needed.

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
    of_rows, ranges = _numbers(state, rows)
    if weighted:
        values |= {"eligible": of_rows["age"].size, "invalid_handles": counts.pop("invalid"), **counts}
    if "beta" in state:
        values["beta"] = float(np.ravel(state["beta"])[0])
    for name, numbers in of_rows.items():
        if numbers.size:
            mean = float(numbers.sum(dtype=np.float64)) / numbers.size
            values |= {f"{name}_mean": mean, f"{name}_max": numbers.max().item()}
    if not of_rows["age"].size:
        return Statistics(values, {})
    histograms = {name: _in_equal_parts(of_rows[name], span) for name, span in ranges.items()}
    if "priority" in of_rows:
        values["priority_min"] = float(of_rows["priority"].min())
        histograms["priority"] = _by_doublings(of_rows["priority"])
    return Statistics(values, histograms)


def _numbers(state: Mapping[str, np.ndarray], rows: int) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the use count of each row, and the numbers of those that can be drawn, and bounds above some of these."""
    weighted, newest = "counts" in state, int(state["serials"][0]) - 1
    spans = stored_spans(state, int(state["capacity"]))

    def stored(name: str) -> np.ndarray:
        return np.concatenate([state[name][span] for span in spans])

    live = (stored("weights") > 0).nonzero()[0] if weighted else np.arange(rows)
    if "row_serials" in state:
        serials = stored("row_serials")
        ages, ranges = newest - serials[live], {"age": newest + 1 - int(serials.min(initial=newest))}
    else:
        ages, ranges = rows - 1 - live, {"age": max(rows, 1)}
    if not weighted:
        return {"age": ages}, ranges
    uses, clocks, now = stored("use_counts"), stored("insertion_clocks"), int(state["clock"][0])
    ranges["staleness"] = now + 1 - int(clocks.min(initial=now))
    # The count of a removed row is stored as its complement.
    found = {"use_count": np.where(pending(uses), 0, np.maximum(uses, ~uses)), "staleness": now - clocks[live]}
    return found | {"age": ages} | ({"priority": stored("priorities")[live]} if "beta" in state else {}), ranges


def merged(shards: Mapping[int, Statistics]) -> Statistics:
    """Return the statistics of all shards together, and of each as ``shard_0/...``, with distributions.

    Numbers are added. Of minima and maxima the overall one is taken. Averages are over all rows, weighted by rows that
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


def _in_equal_parts(numbers: np.ndarray, span: int) -> Histogram:
    """Return a histogram of ints from 0 up to `span`, in intervals of equal size."""
    parts = min(_AGE_BINS, span)
    counts = np.bincount(((numbers + 1) * parts - 1) // span, minlength=parts)
    return Histogram((np.arange(parts + 1) * span // parts).astype(np.float64), counts)


def _by_doublings(priorities: np.ndarray) -> Histogram:
    """Return a histogram with four bins for each doubling, since priorities span orders of magnitude."""
    found = np.bincount((priorities + np.float32(0)).view(np.int32) >> _BIN_SHIFT)
    last = len(found) - 1
    first = max(int(found.nonzero()[0][0]), last + 1 - _PRIORITY_BINS)
    counts = found[first:].copy()
    counts[0] += found[:first].sum()
    edges = (np.arange(first, last + 2, dtype=np.int32) << _BIN_SHIFT).view(np.float32).astype(np.float64)
    edges[0] = min(edges[0], priorities.min())
    edges[-1] = min(edges[-1], np.finfo(np.float32).max)
    return Histogram(edges, counts)
