"""Processes and threads that put rows, all at the same time."""

import multiprocessing
import multiprocessing.dummy
import time
from collections.abc import Callable, Sequence
from typing import Any

#: Seconds from a request to its begin, by which all writers have received it.
AHEAD = 0.1
#: Insertions between two looks at the clock.
EACH = 16

#: Puts some rows into the buffer, and returns their number when they are there.
Work = Callable[[], int]


def work_for(work: Work, start: float, seconds: float) -> tuple[int, float]:
    """Work from a time of the monotonic clock on; return the rows, and the seconds that they took."""
    time.sleep(max(0.0, start - time.monotonic()))
    begin, n = time.monotonic(), 0
    while (taken := time.monotonic() - begin) < seconds:
        n += work()
    return n, taken


def _write(make: Callable[..., Work], arguments: Sequence[Any], pipe: Any) -> None:
    """Work on request, until the request is to end."""
    work = make(*arguments)
    pipe.send("ready")
    while (request := pipe.recv()) is not None:
        pipe.send(work_for(work, *request))


class Team:
    """Writers as child processes or threads, started when they are needed first."""

    def __init__(self, make: Callable[..., Work], *arguments: Any, threads: bool = False) -> None:
        self._made = make, arguments
        self._context: Any = multiprocessing.dummy if threads else multiprocessing.get_context("spawn")
        self._writers: list[tuple[Any, Any]] = []
        self._working: list[Any] = []

    def begin(self, writers: int, seconds: float) -> float:
        """Let the first writers work at the same time; return when they begin."""
        started = []
        while len(self._writers) < writers:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_write, args=(*self._made, theirs))
            process.daemon = True
            process.start()
            theirs.close()  # the end of a process ends a wait for its answer
            self._writers.append((ours, process))
            started.append(ours)
        for pipe in started:
            pipe.recv()
        start = time.monotonic() + AHEAD
        self._working = [pipe for pipe, _ in self._writers[:writers]]
        for pipe in self._working:
            pipe.send((start, seconds))
        return start

    def end(self) -> list[tuple[int, float]]:
        return [pipe.recv() for pipe in self._working]

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let the first writers work at the same time; return rows and seconds of each."""
        self.begin(writers, seconds)
        return self.end()

    def close(self) -> None:
        for pipe, process in self._writers:
            pipe.send(None)
            process.join()
