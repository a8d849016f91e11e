"""Times functions so that the figures can be compared: warm, and interleaved."""

import time
from collections.abc import Callable, Mapping
from typing import Any

#: Microseconds a second.
MICRO = 1e6


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
