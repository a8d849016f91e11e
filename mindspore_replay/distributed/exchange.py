"""Messages between the learner and its shards: answers contain totals. Requests contain the learner's state."""

import contextlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..store.waits.limiter import RateLimiter
from .links import Link, Links
from .shard import Drawn, Report

_SERIAL_BITS, _LIFE_BITS, _SHARD_BITS = 40, 11, 12
MOST_SHARDS = 1 << _SHARD_BITS
LIVES = 1 << _LIFE_BITS


def joined(shard: int, life: int, handles: np.ndarray) -> np.ndarray:
    """Convert handles of a shard's buffer to handles of the whole, int64 ``[n]``. Invalid ones stay as they are.

    They are valid for one process of the shard, of which `life` counts the earlier ones.
    """
    place = ((shard << _LIFE_BITS) | (life % LIVES)) << _SERIAL_BITS
    return np.where(handles < 0, handles, handles | place)


def parted(handles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split handles into shard, life and handle in that process, int64 ``[n]``. The shard of invalid ones is -1."""
    place = handles >> _SERIAL_BITS
    shard = np.where(handles < 0, -1, place >> _LIFE_BITS)
    return shard, place & (LIVES - 1), handles & ((1 << _SERIAL_BITS) - 1)


class Exchange:
    """Sends requests to shards, keeps the latest report of each, and grants what the limiter allows.

    Args:
        links (Links): The shards.
        limiter (Union[RateLimiter, None]): Counts rows and samples.
        beta (Union[float, None]): First exponent of importance weights, or ``None`` without priorities.
        initial_priority (float): Largest priority of shards without rows.

    Attributes:
        samples (int): Batches drawn.
        sampled (int): Rows in them.
        inserted (int): Rows inserted, as reported.
        invalid_handles (int): Handles skipped by `update_priorities`.
        clock (int): The learner's clock.
        largest (float): Largest priority in any shard.
        outdated (bool): Whether rows of this process were inserted since all shards reported.
    """

    def __init__(self, links: Links, limiter: RateLimiter | None, beta: float | None, initial_priority: float) -> None:
        self.links, self.limiter = links, limiter
        self._first_beta = self.beta = beta
        self.samples = self.sampled = self.inserted = self.invalid_handles = self.clock = 0
        self._first_largest = self.largest = initial_priority
        self.outdated = self._takes_back = False
        self._turn, self._saving = 0, threading.Lock()
        links.learner_state = self.learner_state

    def learner_state(self) -> dict[str, Any]:
        """Return the learner's state, from which a later learner resumes."""
        names = "samples", "sampled", "clock", "largest", "beta"
        state: dict[str, Any] = {name: getattr(self, name) for name in names}
        state["saves"] = [link.saved for link in self.links.all]
        if self.limiter is not None:
            state["counts"] = self.limiter.arrays()["counts"].tolist()
            state["counted"] = {str(link.identity): link.counted for link in self.links.all}
        return state

    def resume(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of an earlier learner, and request reports from all shards."""
        if state:
            self.samples, self.sampled, self.beta = state["samples"], state["sampled"], state["beta"]
            self.clock, self.largest = state["clock"], state["largest"]
            if self.limiter is not None and "counts" in state:
                self.limiter.load_arrays({**self.limiter.arrays(), "counts": np.array(state["counts"])})
                for link in self.links.all:
                    link.counted = state["counted"].get(str(link.identity), 0)
        self.clock = max([self.clock, *(link.report.clock for link in self.links.all if link.report)])
        self.reports()

    def latest(self) -> dict[Link, Report]:
        """Return the latest report of each shard that answers."""
        return {link: link.report for link in self.links.alive() if link.report is not None}

    def reports(self) -> dict[Link, Report]:
        """Request a report from each shard, take back grants if others need them, and grant what may be inserted."""
        with self.links.lock:
            self.outdated, takes_back, self._takes_back = False, self._takes_back, False
            for link, report in self._ask_all("report", self.learner_state(), takes_back).items():
                if takes_back:  # no grant is on its way: the lock is held
                    link.allowed = report.allowed
            self.regulate()
            return self.latest()

    def advance(self, steps: int) -> None:
        """Advance the clock. A shard that does not answer gets it with the next request."""
        self.clock += steps
        self._ask_all("report", self.learner_state())

    def reset(self) -> None:
        """Remove all rows of the shards that answer, and reset clock, beta and largest priority."""
        self.clock, self.largest, self.beta = 0, self._first_largest, self._first_beta
        self._ask_all("reset")

    def _ask_all(self, method: str, *arguments: object) -> dict[Link, Report]:
        answers = self.links.ask(method, dict.fromkeys(self.links.alive(), arguments))
        return {link: report for link, report in answers.items() if self.note(link, report)}

    def draw(self, rows: Mapping[Link, int]) -> dict[Link, Drawn]:
        """Draw rows from each shard, possibly 0, in one round trip that also returns their reports."""
        state = self.learner_state()
        answers = self.links.ask("draw", {link: (n, state) for link, n in rows.items()})
        return {link: part for link, part in answers.items() if self.note(link, part.report)}

    def save(self, links: Sequence[Link]) -> None:
        """Let these shards write their files as one save. Files of the last save stay until all have written.

        If shards die meanwhile, the others write again, and the save has older files of those.
        """
        with self._saving:
            while links:
                number = time.time_ns()  # no two saves have the same number
                saves = [number if link in links else link.saved for link in self.links.all]
                state = {**self.learner_state(), "saves": saves}
                try:
                    done = list(self.links.ask("stage", dict.fromkeys(links, (state,)), wait=True))
                except Exception:
                    with contextlib.suppress(OSError, RuntimeError):  # remove what others have written
                        self.links.ask("settle", {link: (link.saved,) for link in links}, wait=True)
                    raise
                if len(done) == len(links):
                    for link in links:
                        link.saved = number
                    self.links.ask("settle", dict.fromkeys(links, (number,)), wait=True)
                    return
                links = done
        raise self.links.no_answer()

    def call(self, method: str, handles: np.ndarray, arguments: Sequence[object] = ()) -> list[tuple[np.ndarray, Any]]:
        """Call a method of the buffers that store the rows, with handles ``[n]`` and arrays, or lists or dicts of them.

        Return, for each shard that answers, positions in `handles`, and the result for them.
        """
        shard, life, local = parted(handles)
        calls, places = {}, {}
        for link in self.links.alive():
            last = len(link.lives) - 1
            rows = np.flatnonzero((shard == link.number) & (life == last % LIVES))
            if rows.size:
                mine = [_rows_of(argument, rows) for argument in arguments]
                calls[link], places[link] = (link.lives[last], method, local[rows], *mine), rows
        answers = self.links.ask("call", calls)
        for link, (report, _) in answers.items():
            self.note(link, report)
        return [(places[link], result) for link, (_, result) in answers.items() if result is not None]

    def note(self, link: Link, report: Report) -> bool:
        """Add the changes of a report to the counts. Return False if the report is of another process."""
        with self.links.lock:
            if not self.links.accept(link, report):
                return False
            assert link.report is not None
            new, link.counted = link.report.inserted - link.counted, link.report.inserted
            self.largest = max(self.largest, link.report.largest)
            self.inserted += new
            if new and self.limiter is not None:
                self.limiter.count_inserted(new)
            return True

    def regulate(self) -> None:
        """Grant rows that the limiter allows: to shards whose writers wait, each in turn, then to all alike."""
        with self.links.lock:
            reports = self.latest()
            links, n = list(reports), max(len(reports), 1)
            waiting = max([1, *(report.wanted for report in reports.values())])
            room = math.inf if self.limiter is None else self.limiter.allowance(waiting)
            granted = sum(link.allowed - link.counted for link in links)
            if math.isfinite(room):
                if math.isinf(granted):  # there was no limit until now
                    self._takes_back = True
                    self.reports()
                    return
                room = max(room - granted, 0)
            first = self._turn % n
            for i, link in enumerate(links[first:] + links[:first]):
                lacking = max(reports[link].inserted + reports[link].wanted - link.allowed, 0)
                if reports[link].wanted and lacking > room:  # the rest is for it, and it comes first next time
                    self._turn, self._takes_back = first + i, granted > 0
                    return
                self._grant(link, lacking)
                room -= lacking
            self._turn = first + 1
            for i, link in enumerate(links[first:] + links[:first]):
                self._grant(link, room // n + (i < room % n) if math.isfinite(room) else room)

    def _grant(self, link: Link, rows: float) -> None:
        if rows and math.isfinite(link.allowed):
            link.actor.grant.remote(rows)
            link.allowed += rows

    def blocked(self) -> set[int]:
        """Return the shards whose next rows the limiter holds back, though they may have what others do not use."""
        reports = {} if self._takes_back else self.latest()
        return {link.number for link, told in reports.items() if told.inserted + told.wanted > link.allowed}


def _rows_of(arrays: object, rows: np.ndarray) -> object:
    """Return these rows of an array, or of each in a list or dict."""
    if isinstance(arrays, dict):
        return {key: array[rows] for key, array in arrays.items()}
    return [array[rows] for array in arrays] if isinstance(arrays, list) else np.asarray(arrays)[rows]
