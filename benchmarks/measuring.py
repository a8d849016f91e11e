"""What the benchmarks share: interleaved rounds, and their medians against limits."""

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np

from mindspore_replay import kernel_status

MICRO = 1e6


def arguments(description: str) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds (default: 31)")
    parser.add_argument("--json", help="also write the figures of every round to this file")
    return parser


def once(function: Callable[[], Any], repeat: int) -> float:
    """Seconds of one call, as the mean of `repeat` in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - start) / repeat


def measure(timers: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every case in every round, the cases interleaved, after as many rounds to warm up."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    for i in range(2 * rounds):
        for name, timer in timers.items():
            seconds = timer()
            if i >= rounds:
                times[name].append(seconds)
    return times


def show(report: Mapping[str, list[float]], limits: Mapping[str, float], path: str | None) -> None:
    """Prints each figure's median and quartiles, against its limit if it has one; writes all rounds to a file."""
    print(f"MindSpore {ms.__version__}, Python {platform.python_version()}, backend {kernel_status().backend}")
    for name, values in report.items():
        low, middle, high = np.percentile(values, (25, 50, 75))
        limit = f"   limit {limits[name]:g}: {'met' if middle <= limits[name] else 'NOT met'}" if name in limits else ""
        unit = "  " if " / " in name else "us"
        print(f"{name:50s} {middle:12.2f} {unit} [{low:.2f}, {high:.2f}]{limit}")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
