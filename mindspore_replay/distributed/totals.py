"""Combines the statistics of several shards into those of one buffer."""

from collections.abc import Mapping

from ..training.statistics import Statistics


def merged(parts: Mapping[int, Statistics]) -> Statistics:
    """Return the statistics of all shards together, and of each as ``shard_0/...``, with distributions.

    Numbers are added; of minima and maxima the overall one is taken; averages are over all rows, weighted by rows that
    can be drawn, or by rows stored for use counts.

    Args:
        parts (Mapping[int, Statistics]): Statistics of each shard by its number.

    Returns:
        Statistics: Values and distributions.
    """
    values: dict[str, float] = {}
    for key in dict.fromkeys(key for part in parts.values() for key in part.values):
        having = [part.values for part in parts.values() if key in part.values]
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
    values |= {f"shard_{i}/{key}": value for i, part in parts.items() for key, value in part.values.items()}
    histograms = {f"shard_{i}/{key}": found for i, part in parts.items() for key, found in part.histograms.items()}
    return Statistics(values, histograms)
