"""Times pieces of code so that figures can be compared: warm, and in turns."""

import time
from collections.abc import Callable, Mapping
from typing import Any

#: Microseconds of a second.
MICRO = 1e6


def once(function: Callable[[], Any], repeat: int) -> float:
    """Seconds of one call, as the mean of `repeat` in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - start) / repeat


def measure(timers: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every case in every round, the cases interleaved, after as many rounds to warm up.

    MindSpore tries out how many threads a graph is best run with for its first fifty calls.
    """
    times: dict[str, list[float]] = {name: [] for name in timers}
    for i in range(2 * rounds):
        for name, timer in timers.items():
            seconds = timer()
            if i >= rounds:
                times[name].append(seconds)
    return times
