"""Shared by the benchmarks: interleaved rounds, and their medians against limits."""

import argparse
import json
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np

from mindspore_replay import kernel_status

#: Microseconds in a second.
MICRO = 1e6
#: Prepares a case; returns a function that measures seconds per operation.
Case = Callable[[], Callable[[], float]]
#: Seconds by case, one number per round.
Times = Mapping[str, list[float]]
#: A reported figure, one number per round.
Figure = Callable[[Times], list[float]]


def once(function: Callable[[], Any], repeat: int) -> float:
    """Return the seconds of one call, as the mean of `repeat` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - start) / repeat


def measure(timers: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every case in every round, interleaved, after as many rounds of warm-up.

    The warm-up is needed because MindSpore tunes the number of threads of a graph in its first fifty calls.
    """
    times: dict[str, list[float]] = {name: [] for name in timers}
    for i in range(2 * rounds):
        for name, timer in timers.items():
            seconds = timer()
            if i >= rounds:
                times[name].append(seconds)
    return times


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds (default: 31)")
    parser.add_argument("--json", help="also write the figures of every round to this file")
    parser.add_argument("--only", default="", metavar="REGEX", help="only figures whose name matches (default: all)")
    return parser


def micro(name: str) -> Figure:
    """Return the figure of a case in microseconds."""
    return lambda times: [seconds * MICRO for seconds in times[name]]


def less(name: str, nothing: str) -> Figure:
    """Return the figure by which a case takes longer than another, in microseconds."""
    return lambda times: [(a - b) * MICRO for a, b in zip(times[name], times[nothing], strict=True)]


def ratio(above: Figure, below: Figure) -> Figure:
    """Return the ratio of two medians."""
    return lambda times: [statistics.median(above(times)) / statistics.median(below(times))]


class _Asked(dict):
    """Stands in for the times of cases, each another number, and records which were used."""

    def __missing__(self, name: str) -> list[float]:
        self[name] = [len(self) + 1.0]
        return self[name]


def measure_figures(
    cases: Mapping[str, Case], figures: Mapping[str, Figure], only: str, rounds: int
) -> dict[str, list[float]]:
    """Measure the figures whose name matches, by round. Prepares and times only the cases that they need."""
    chosen = {name: figure for name, figure in figures.items() if re.search(only, name)}
    asked = _Asked()
    for figure in chosen.values():
        figure(asked)
    times = measure({name: case() for name, case in cases.items() if name in asked}, rounds)
    return {name: figure(times) for name, figure in chosen.items()}


def show(report: Mapping[str, list[float]], limits: Mapping[str, float], path: str | None) -> None:
    """Print each figure's median and quartiles, against its limit if it has one; write all rounds to a file."""
    print(f"MindSpore {ms.__version__}, Python {platform.python_version()}, backend {kernel_status().backend}")
    for name, values in report.items():
        low, middle, high = np.percentile(values, (25, 50, 75))
        limit = f"   limit {limits[name]:g}: {'met' if middle <= limits[name] else 'NOT met'}" if name in limits else ""
        unit = "  " if " / " in name else "us"
        print(f"{name:50s} {middle:12.2f} {unit} [{low:.2f}, {high:.2f}]{limit}")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
