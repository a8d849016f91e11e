"""Processes that insert rows, or collect them, and the answers of the program that holds the buffer.

    {"ask": "versions"}                               {"versions": {"numpy": "1.26.4", ...}}
    {"ask": "work", "writers": 2, "seconds": 1.0}     {"rows": [900, 910], "seconds": [1.0, 1.0], "stored": 1810}
    {"ask": "end"}                                    {}

Questions are lines of standard input, answers lines of standard output; other output goes to standard error.
"""

import importlib.metadata
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..cases import CARTPOLE, single_rows

CAPACITY = 100_000
#: Seconds from a request to its begin, by which all writers have received it.
AHEAD = 0.1
#: Insertions between two looks at the clock.
EACH = 16

#: Puts some rows into the buffer, and returns their number when they are there.
Work = Callable[[], int]


def inserting(insert: Callable[[Mapping[str, Any]], Any]) -> Work:
    """Return work that inserts single rows."""
    rows = single_rows(CARTPOLE, EACH)

    def work() -> int:
        for row in rows:
            insert(row)
        return EACH

    return work


def work_for(work: Work, start: float, seconds: float) -> tuple[int, float]:
    """Work from a time of the monotonic clock on; return the rows, and the seconds that they took."""
    time.sleep(max(0.0, start - time.monotonic()))
    begin, n = time.monotonic(), 0
    while (taken := time.monotonic() - begin) < seconds:
        n += work()
    return n, taken


def _write(make: Callable[..., Work], arguments: Sequence[Any], pipe: Any) -> None:
    """Work on request, until the other end of the pipe is closed."""
    work = make(*arguments)
    work()
    pipe.send("ready")
    while True:
        try:
            start, seconds = pipe.recv()
        except EOFError:
            return
        pipe.send(work_for(work, start, seconds))


class Writers(Protocol):
    """Several processes that work."""

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let the first writers work at the same time; return rows and seconds of each."""

    def close(self) -> None:
        """End the processes."""


#: Writers of a buffer, and a function that returns the number of its rows.
Held = tuple[Writers, Callable[[], int]]


class Team:
    """Writers as child processes, started when they are needed first.

    Args:
        make (Callable): Returns the work; called in the writer's process.
        arguments: Arguments of `make`.
    """

    def __init__(self, make: Callable[..., Work], *arguments: Any) -> None:
        self._made = make, arguments
        self._pipes: list[Any] = []
        self._processes: list[Any] = []

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let the first writers work at the same time; return rows and seconds of each."""
        context = multiprocessing.get_context("spawn")
        while len(self._pipes) < writers:
            ours, theirs = context.Pipe()
            process = context.Process(target=_write, args=(*self._made, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
            ours.recv()
        start = time.monotonic() + AHEAD
        for pipe in self._pipes[:writers]:
            pipe.send((start, seconds))
        return [pipe.recv() for pipe in self._pipes[:writers]]

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self._pipes, self._processes):
            pipe.close()
            process.join()


def serve(packages: Sequence[str], hold: Callable[[], AbstractContextManager[Held]]) -> None:
    """Answer until asked to end.

    Args:
        packages (Sequence[str]): Packages whose versions are reported.
        hold (Callable): Makes the buffer.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with hold() as (writers, stored):
        for line in sys.stdin:
            question = json.loads(line)
            reply: dict[str, Any] = {}
            try:
                if question["ask"] == "versions":
                    reply = {"versions": {name: importlib.metadata.version(name) for name in packages}}
                elif question["ask"] == "work":
                    rows, seconds = zip(*writers.work(question["writers"], question["seconds"]))
                    reply = {"rows": rows, "seconds": seconds, "stored": stored()}
                else:
                    writers.close()
            except Exception as error:
                traceback.print_exc()
                reply = {"error": f"{type(error).__name__}: {error}"}
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
