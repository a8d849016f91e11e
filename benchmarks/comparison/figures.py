"""What is read from the results of a comparison: medians, ratios, and figures with their units."""

from typing import Any

import numpy as np

from .cases import CASES, Case
from .environments import LIMIT, OURS
from .rounds import Result

CaseResults = dict[str, Result]


def middle(result: Result) -> float:
    return float(np.median(result.values))


def best_peer(results: CaseResults) -> str | None:
    """Return the fastest peer that is neither this project nor the machine's limit."""
    peers = [name for name, result in results.items() if result.values and name not in (OURS, LIMIT)]
    return min(peers, key=lambda name: middle(results[name]), default=None)


def ratio(results: CaseResults, name: str) -> float | None:
    """Return the best peer's cost over that of `name`: above 1, `name` is the better one."""
    best = best_peer(results)
    if best is None or not results[name].values:
        return None
    return middle(results[best]) / middle(results[name])


def shown(case: Case, seconds: float) -> str:
    if case.unit == "bytes":
        return f"{seconds:,.0f} bytes"
    if case.unit == "steps/s":
        return f"{1 / seconds:,.0f} steps/s"
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def measured(report: dict[str, Any]) -> list[tuple[Case, CaseResults]]:
    """Return the cases of a report, in the order of `CASES`."""
    found = report["cases"]
    return [
        (case, {name: Result(**values) for name, values in found[case.name].items()})
        for case in CASES
        if case.name in found
    ]
