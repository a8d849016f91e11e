"""Runs cases: a process for each peer, timed in turns, A B C A B C, so that all meet the same state of the machine."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import Case
from .environments import HERE, Installation

#: Seconds before a question counts as unanswered.
PATIENCE = 900.0
#: Minimum seconds of a turn, which repeats an operation until then.
TURN = 0.05
#: Seconds to rest after the turn of a peer that works ahead, while it prepares for its next.
REST = 0.5
#: Total seconds of a peer's turns in one case; a peer with longer turns gets fewer rounds, but at least this many.
BUDGET, FEWEST = 20.0, 3


class PeerError(Exception):
    """A peer's process ended, did not answer in time, or answered with an error."""


@dataclass
class Result:
    """The result of one peer in one case."""

    #: Seconds of one operation in each round, or the one figure of a case that is no timing.
    values: list[float] = field(default_factory=list)
    note: str = ""
    missing: str = ""  # why there are no values


@dataclass(frozen=True)
class Question:
    """A question whose answer is figures, computed by the peer."""

    name: str
    title: str  # of the table that it belongs to
    head: str  # what the head of a column says beside the name of a figure
    ask: dict[str, Any]
    usual: bool = True  # asked unless the command names others


@dataclass
class Figures:
    """The figures of a table."""

    values: dict[str, dict[str, list[float]]]
    missing: dict[str, str]


class PeerProcess:
    """A peer's process, and the questions to it."""

    def __init__(self, name: str, installation: Installation, environments: Path, files: Path) -> None:
        module = f"comparison.{installation.module}"
        python = installation.python(environments)
        more = [] if installation.requirements else os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self._log = open(files / f"{name.replace(' ', '_')}.log", "a+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(python), "-m", module, *installation.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=files,
            # Threads that spin while they wait would take time from the peer whose turn it is.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(HERE.parent), *more]),
                "OMP_WAIT_POLICY": "PASSIVE",
                "GLOG_v": "3",
            },
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the answer to a question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(self._last_words()) from None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            self.close()
            raise PeerError(f"no answer to {question['ask']!r} in {PATIENCE:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _last_words(self) -> str:
        code = self._process.wait(10)
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return f"its process ended with {code}: {lines[-1] if lines else 'it wrote nothing'}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # a question that nobody read
                    stream.close()


class Runner:
    """Keeps the processes, and measures cases with them."""

    def __init__(self, installations: dict[str, Installation], environments: Path, files: Path) -> None:
        self._installations = installations
        self._places = environments, files
        self._processes: dict[str, PeerProcess] = {}
        self.versions: dict[str, dict[str, str]] = {}
        #: Peers that cannot be installed or started, with the reason.
        self.missing: dict[str, str] = {}

    def __enter__(self) -> "Runner":
        for name in self._installations:
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()

    def _start(self, name: str) -> None:
        try:
            process = PeerProcess(name, self._installations[name], *self._places)
        except RuntimeError as error:
            self.missing[name] = str(error)
            return
        try:
            self.versions[name] = process.ask(ask="versions")["versions"]
            self._processes[name] = process
        except PeerError as error:
            process.close()
            self.missing[name] = str(error)

    def run(self, case: Case, rounds: int) -> dict[str, Result]:
        names = [name for name, place in self._installations.items() if not place.only or case.work in place.only]
        results = {name: Result(missing=self.missing.get(name, "")) for name in names}
        ready: dict[str, tuple[int, int]] = {}
        ahead = set()
        for name in [name for name in names if name in self._processes]:
            result = results[name]
            with _told(result):
                answer = self._processes[name].ask(ask="prepare", case=case.name)
                if "not_offered" in answer:
                    result.missing = answer["not_offered"]
                elif case.unit == "bytes":
                    result.values = [self._processes[name].ask(ask="fact")["fact"]]
                else:
                    result.note = answer["note"]
                    ready[name] = self._turns(name, rounds, answer["least"])
                    if answer["least"] > 1:
                        ahead.add(name)
        for turn in range(rounds):
            for name, (turns, repeat) in ready.items():
                if turn < turns and not results[name].missing:
                    with _told(results[name]):
                        results[name].values.append(self._seconds(name, repeat))
                    if name in ahead:
                        time.sleep(REST)
        self._release()
        return results

    def measure(self, questions: Sequence[Question], rounds: int, seconds: float) -> Figures:
        """Return the figures of every peer for the questions of a table, each asked in every round."""
        found = Figures({name: {} for name in self._processes}, dict(self.missing))
        skipped: set[tuple[str, str]] = set()
        for _ in range(rounds):
            for question in questions:
                for name in [name for name in self._processes if (name, question.name) not in skipped]:
                    try:
                        answer = self._processes[name].ask(ask="measure", **question.ask, seconds=seconds)
                    except PeerError as error:
                        print(f"  {error}", file=sys.stderr, flush=True)
                        answer = {"not_offered": f"failed: {error}"}
                    if "not_offered" in answer:
                        skipped.add((name, question.name))
                        if answer["not_offered"]:
                            found.missing[name] = answer["not_offered"]
                        continue
                    for key, value in answer["figures"].items():
                        head = f"{key}, {question.head}" if question.head else key
                        found.values[name].setdefault(head, []).append(value)
        self._release()
        return found

    def _seconds(self, name: str, repeat: int) -> float:
        if repeat > 1:  # memory that was idle during the turns of others is slow at first
            self._processes[name].ask(ask="time", repeat=repeat)
        answer = self._processes[name].ask(ask="time", repeat=repeat)
        return answer["seconds"] / repeat / answer["each"]

    def _turns(self, name: str, rounds: int, least: int) -> tuple[int, int]:
        """Return the turns of a peer, and the operations of each turn; measuring them also warms up."""
        self._processes[name].ask(ask="time", repeat=least)  # the first operations may be slow
        repeat = least
        while True:
            start = time.perf_counter()
            self._processes[name].ask(ask="time", repeat=repeat)
            taken = time.perf_counter() - start
            if taken >= TURN:
                return min(rounds, max(FEWEST, int(BUDGET / taken))), repeat
            repeat = max(repeat + 1, min(int(repeat * TURN / taken * 1.2), repeat * 10))

    def _release(self) -> None:
        """Free the memory of the case; restart a process that is gone, for the next case."""
        for name in list(self._processes):
            try:
                self._processes[name].ask(ask="release")
            except PeerError:
                self._processes.pop(name).close()
                self._start(name)


@contextlib.contextmanager
def _told(result: Result) -> Iterator[None]:
    """Store an error of a peer as the reason why its result is missing."""
    try:
        yield
    except PeerError as error:
        print(f"  {error}", file=sys.stderr, flush=True)
        result.values.clear()
        result.missing = f"failed: {error}"
