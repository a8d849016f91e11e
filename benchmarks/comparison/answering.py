"""A peer's side: a process that prepares cases and times them on request, or measures figures of its own.

A question is one line of JSON on standard input, an answer one line on standard output:

    {"ask": "versions"}                                   {"versions": {"cpprb": "11.0.0", ...}}
    {"ask": "prepare", "case": "insert_1"}                {"note": "...", "least": 1} or {"not_offered": "why"}
    {"ask": "time", "repeat": 1000}                       {"seconds": 0.0012, "each": 1}, of all repetitions
    {"ask": "fact"}                                       {"fact": 28231.0}, for cases that are no timing
    {"ask": "measure", "writers": 2, "seconds": 1.0}      {"figures": {"rows/s": 1810.0}} or {"not_offered": "why"}
    {"ask": "release"}                                    {}

Output of libraries goes to standard error.
"""

import ctypes
import gc
import importlib.metadata
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .cases import CASES, Case, batch_of, in_turn, priorities_of, single_rows


class NotOfferedError(Exception):
    """The library does not support a case; the text says what is missing."""


@dataclass
class Work:
    """A prepared case.

    Args:
        once (Callable): One operation; for the unit ``"bytes"`` it returns the figure.
        wait (Callable): Returns when the operations so far are done, for asynchronous ones.
        each (int): Operations per call of `once`, for compiled loops.
        minus (Callable): The same without the operation, whose time is subtracted: an empty compiled loop.
        note (str): Facts that a reader needs about this library's method.
        least (int): Minimum operations of a turn. A library that works ahead needs many, or a turn would find results
            that were computed during those of others.
    """

    once: Callable[[], Any]
    wait: Callable[[], Any] = lambda: None
    each: int = 1
    minus: Callable[[], Any] | None = None
    note: str = ""
    least: int = 1

    def seconds(self, repeat: int) -> float:
        """Return the seconds that `repeat` calls take together."""
        taken = _seconds(self.once, self.wait, repeat)
        return taken if self.minus is None else taken - _seconds(self.minus, self.wait, repeat)


def _seconds(function: Callable[[], Any], wait: Callable[[], Any], repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    wait()
    return time.perf_counter() - start


#: The part of a library that a kind of work needs.
PARTS = {
    **dict.fromkeys(("insert", "sample"), "filled"),
    **dict.fromkeys(("prioritized_insert", "prioritized_sample", "prioritized_update"), "prioritized"),
    **dict.fromkeys(("files_insert", "files_sample"), "in_files"),
    **dict.fromkeys(("frames_bytes", "frames_sample"), "frames"),
    **{"n_step": "with_returns", "save": "saving", "load": "loading"},
}


class Peer:
    """A library. For each `Case.work` it supports, a subclass has a method that takes the case and returns a `Work`, or
    the parts of which the methods here make one.

    Full buffers, `capacity` rows of `batch_of(case.schema, ...)` or the nearest to it: ``filled(case)``,
    ``prioritized(case)``, ``in_files(case)``, ``frames(case)``, ``with_returns(case)``. What is timed, as functions:
    ``adding(buffer, case)`` of a row, ``extending(buffer, rows)``, ``drawing(buffer, case)``; by priority
    ``adding_by_priority(buffer, case)`` of a pair of row and priority, ``updating(buffer, case, priorities)``;
    ``saving(buffer, path)``, ``loading(buffer, path)``. ``bytes_of(buffer)`` is a number.
    """

    #: Packages whose versions are reported.
    packages: tuple[str, ...] = ()
    #: Why it does not support a kind of work, where it has a reason of its own.
    lacks: Mapping[str, str] = {}
    #: Facts that a reader needs about the library's method for a case or a kind of work.
    notes: Mapping[str, str] = {}
    #: True if its operations compile into a loop.
    compiles = False

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def prepare(self, case: Case) -> Work:
        if case.compiled and not self.compiles:
            raise NotOfferedError("it is called from Python only")
        method = getattr(type(self), case.work, None)
        part = PARTS.get(case.work, "") if method is getattr(Peer, case.work, None) else ""
        if method is None or (part and not hasattr(self, part)):
            raise NotOfferedError(self.lacks.get(case.work, "it has nothing for this"))
        work: Work = method(self, case)
        return replace(work, note=work.note or self.notes.get(case.name) or self.notes.get(case.work, ""))

    def row(self, row: dict[str, Any]) -> Any:
        """Return a row as `adding` takes it, which is not timed."""
        return row

    def insertion(self, buffer: Any, case: Case) -> Work:
        """One row or a batch."""
        if case.batch > 1:
            return Work(self.extending(buffer, batch_of(case.schema, case.batch)))
        return Work(in_turn(self.adding(buffer, case), list(map(self.row, case.single_rows()))))

    def insert(self, case: Case) -> Work:
        return self.insertion(self.filled(case), case)

    def sample(self, case: Case) -> Work:
        return Work(self.drawing(self.filled(case), case))

    def files_insert(self, case: Case) -> Work:
        return self.insertion(self.in_files(case), case)

    def files_sample(self, case: Case) -> Work:
        return Work(self.drawing(self.in_files(case), case))

    def prioritized_insert(self, case: Case) -> Work:
        rows = list(map(self.row, single_rows(case.schema)))
        pairs = list(zip(rows, priorities_of(len(rows)).tolist(), strict=True))
        return Work(in_turn(self.adding_by_priority(self.prioritized(case), case), pairs))

    def prioritized_sample(self, case: Case) -> Work:
        return Work(self.drawing(self.prioritized(case), case))

    def prioritized_update(self, case: Case) -> Work:
        return Work(self.updating(self.prioritized(case), case, priorities_of(case.batch)))

    def frames_bytes(self, case: Case) -> Work:
        buffer = self.frames(case)
        return Work(lambda: self.bytes_of(buffer) / case.capacity)

    def frames_sample(self, case: Case) -> Work:
        return Work(self.drawing(self.frames(case), case))

    def n_step(self, case: Case) -> Work:
        buffer = self.with_returns(case)
        rows = list(map(self.row, single_rows(case.schema)))
        insert, draw = in_turn(self.adding(buffer, case), rows), self.drawing(buffer, case)
        return Work(lambda: (insert(), draw()))

    def save(self, case: Case) -> Work:
        return Work(self.saving(self.filled(case), self.folder / "buffer"))

    def load(self, case: Case) -> Work:
        buffer, path = self.filled(case), self.folder / "buffer"
        self.saving(buffer, path)()
        return Work(self.loading(buffer, path))

    @property
    def folder(self) -> Path:
        """Return an empty folder for the files of a case, on the disk of the working directory."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(dir=Path.cwd())
        return Path(self._folder.name)

    def release(self) -> None:
        """Free all memory still held; called after each case."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _free() -> None:
    """Return memory to the system, so that peers do not fill it together."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def serve(answers: Mapping[str, Callable[..., Mapping[str, Any]]]) -> None:
    """Answer questions until standard input ends: each by the function of its name, from its other entries."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            reply = answers[question.pop("ask")](**question)
        except NotOfferedError as reason:
            reply = {"not_offered": str(reason)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def versions(packages: Sequence[str]) -> dict[str, dict[str, str]]:
    return {"versions": {name: importlib.metadata.version(name) for name in packages}}


class Library:
    """A library in a comparison whose figures it computes itself: ``measure(**question)`` returns them by name."""

    packages: Sequence[str]

    def release(self) -> None:
        """End all processes, and free the memory."""


def figures(library: Any) -> None:
    def release() -> dict[str, Any]:
        library.release()
        _free()
        return {}

    serve(
        {
            "versions": lambda: versions(library.packages),
            "measure": lambda **question: {"figures": library.measure(**question)},
            "release": release,
        }
    )


def answer(peer: Peer, of: Sequence[Case] = CASES) -> None:
    cases = {case.name: case for case in of}
    prepared: list[Work] = []

    def prepare(case: str) -> dict[str, Any]:
        work = peer.prepare(cases[case])
        prepared[:] = [replace(work, wait=os.sync) if cases[case].on_disk else work]
        return {"note": work.note, "least": work.least}

    def timed(repeat: int) -> dict[str, Any]:
        os.sync()  # no turn pays for what an earlier one has left to write
        return {"seconds": prepared[0].seconds(repeat), "each": prepared[0].each}

    def release() -> dict[str, Any]:
        prepared.clear()
        peer.release()
        _free()
        return {}

    serve(
        {
            "versions": lambda: versions(("numpy", *peer.packages)),
            "prepare": prepare,
            "time": timed,
            "fact": lambda: {"fact": float(prepared[0].once())},
            "release": release,
        }
    )
