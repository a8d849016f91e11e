"""Messages between the learner and its shards: requests bring the learner's state, and answers that of the shard."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..store.spec.spec import BufferSpec
from ..store.waits.limiter import RateLimiter
from .cluster import ray_module, session
from .shard import LIVES, Begun, Report

logger = logging.getLogger("mindspore_replay.distributed")

#: Seconds to wait for the processes of the shards to start.
_START = 300.0
#: What a later learner continues with.
_STATE = "samples", "sampled", "clock", "largest", "beta"


class Link:
    """A learner's view of a shard, whose Ray actor is a `Shard`."""

    def __init__(self, number: int, actor: Any) -> None:
        self.number, self.actor = number, actor
        #: Of its current process: the identity, 0 before the first; rows inserted, as far as known; rows granted.
        self.identity, self.counted, self.allowed = 0, 0, 0.0
        #: The number of its last save, 0 without one.
        self.saved = 0
        #: The latest report of the current process.
        self.report: Report | None = None
        #: The request that it has not answered, ``None`` if it answers.
        self.ping: object = None
        self.is_dead = False

    def next_identity(self) -> int:
        """Return an identity for its next process: larger than any before, and one more by the bits in handles."""
        return max(time.time_ns(), self.identity // LIVES + 1) * LIVES + (self.identity + 1) % LIVES


class Exchange:
    """Sends requests to shards with a timeout, keeps the latest report of each, and grants what the limiter allows.

    `spec` is that of one buffer with the rows of all shards, and `place` what `claim` returned, if they have a name.
    """

    def __init__(
        self, actors: Sequence[Any], timeout: float, spec: BufferSpec, limiter: RateLimiter | None, place: Any = None
    ) -> None:
        self.all = [Link(i, actor) for i, actor in enumerate(actors)]
        self.timeout, self.limiter, self._place = timeout, limiter, place
        #: The exponent of importance weights, ``None`` without priorities, and the largest priority in any shard.
        self.beta, self.largest = self._first = spec.options.beta, spec.options.initial_priority
        #: Batches drawn, rows in them, rows inserted, as reported, and the learner's clock.
        self.samples = self.sampled = self.inserted = self.clock = 0
        #: Handles that `update_priorities` skipped, processes of shards that died, and answers that were late.
        self.invalid_handles = self.deaths = self.timeouts = 0
        #: Whether rows of this process were inserted since all shards reported.
        self.outdated = False
        self._closed, self._turns = False, list(self.all)
        self._ray, self._session, self.lock, self._saving = ray_module(), session(), threading.RLock(), threading.Lock()

    def check_open(self) -> None:
        """Raise a RuntimeError if the shards were closed or Ray was shut down: a call would start a new cluster."""
        if self._closed or session() is not self._session:
            cause = "its shards were ended by close()" if self._closed else "Ray was shut down, and with it the shards"
            raise RuntimeError(
                f"For 'ShardedReplay', {cause}. Make a new one. With resume=True it continues from the last save() to "
                "its folder."
            )

    def no_answer(self) -> RuntimeError:
        """Return the error for a call that needs a shard while none answers."""
        return RuntimeError(
            f"For 'ShardedReplay', none of the {len(self.all)} shards answers. They are being restarted: try again "
            "later."
        )

    def end(self, actors: Iterable[Any]) -> None:
        """End these shards and the learner's reservation. A second call does nothing."""
        closed, self._closed = self._closed, True
        if not closed and session() is self._session:
            for actor in [*actors, *([] if self._place is None else [self._place])]:
                self._ray.kill(actor)

    # The learner's state.

    def learner_state(self) -> dict[str, Any]:
        """Return the learner's state, from which a later learner resumes."""
        state: dict[str, Any] = {name: getattr(self, name) for name in _STATE}
        state["saves"] = [link.saved for link in self.all]
        if self.limiter is not None:
            state["counts"] = self.limiter.arrays()["counts"].tolist()
            state["counted"] = {str(link.identity): link.counted for link in self.all}
        return state

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of an earlier learner, of whose processes of shards the links have the identity."""
        for name in _STATE:
            setattr(self, name, state[name])
        if self.limiter is not None and "counts" in state:
            self.limiter.load_arrays({**self.limiter.arrays(), "counts": np.array(state["counts"])})
            for link in self.all:
                link.counted = state["counted"].get(str(link.identity), 0)

    # Requests.

    def alive(self) -> list[Link]:
        """Return the shards that answer. Those that did not are checked first: they may answer again."""
        self.check_open()
        with self.lock:
            for link in self.all:
                if link.ping is not None and self._ray.wait([link.ping], timeout=0)[0]:
                    self._meet(link)
            return [link for link in self.all if link.ping is None]

    def latest(self) -> dict[Link, Report]:
        """Return the latest report of each shard that answers."""
        return {link: link.report for link in self.alive() if link.report is not None}

    def ask_all(self, method: str, *arguments: object) -> dict[Link, Any]:
        """Ask all shards that answer for the same."""
        return self.ask(dict.fromkeys(self.alive(), (method, *arguments)))

    def ask(self, requests: Mapping[Link, Sequence[object]], *, wait: bool = False) -> dict[Link, Any]:
        """Let shards call a method, each with arguments of its own. Return the results that arrive in time.

        With `wait`, there is no limit. Any error that a shard raises is raised.
        """
        self.check_open()
        state, asked = self.learner_state(), {link: link.identity for link in requests}
        refs = {link.actor.answer.remote(state, *request): link for link, request in requests.items()}
        seconds = None if wait else self.timeout
        ready, late = self._ray.wait(list(refs), num_returns=len(refs), timeout=seconds) if refs else ([], [])
        self.check_open()  # another thread may have closed them
        results = {}
        with self.lock:
            for link in (refs[ref] for ref in late):
                if asked[link] == link.identity and link.ping is None:
                    self.timeouts += 1
                    logger.warning("shard %d has not answered for %g s, the others continue", link.number, self.timeout)
                    self._ping(link)
            for ref in ready:
                link = refs[ref]
                try:
                    report, result = self._ray.get(ref)
                    if self.note(link, report):
                        results[link] = result
                except self._ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except self._ray.exceptions.RayError as error:
                    if asked[link] == link.identity:
                        self._has_died(link, error)
        return results

    def note(self, link: Link, report: Report) -> bool:
        """Store a report, unless there is a later one, and count. Return False if another process sent it."""
        with self.lock:
            if report.identity != link.identity:
                if not 0 < report.identity < link.identity:  # else it was sent before the process was replaced
                    self._has_died(link, "its process was replaced")
                return False
            if link.report is None or report.number > link.report.number:
                link.report = report
                new, link.counted = report.inserted - link.counted, report.inserted
                self.largest = max(self.largest, report.largest)
                self.inserted += new
                if new and self.limiter is not None:
                    self.limiter.count_inserted(new)
            return True

    def begin(self, specs: Sequence[BufferSpec], new: Sequence[Any], resume: bool, folder: str | None) -> int:
        """Wait until all shards have started, and let those without rows load the newest save that all have.

        Those that are not `new` ran under the name. The learner resumes from the latest state of one. Return the bytes
        of the rows.
        """
        begun = _begun(self.all, specs, resume)
        chosen = _newest_of_all(begun)
        whole = next(filter(None, (shard.folder for shard in begun)), folder if chosen else "")
        if new and resume and not chosen:
            raise _not_resumable(begun, bool(whole))
        if new and whole and not resume:
            raise FileExistsError(
                f"For 'ShardedReplay', 'folder' must contain no shards of another run, but {whole} exists. Continue "
                "that run with resume=True, or name another folder."
            )
        for link, shard, number in zip(self.all, begun, chosen.get("saves", [0] * len(begun))):
            link.identity, link.saved = shard.identity or link.next_identity(), number
        if state := max([*(shard.learner_state for shard in begun), chosen], key=_age):
            self._resume(state)
        self.ask({link: ("resume", link.saved, link.identity, True) for link in self.all}, wait=True)
        for link, report in self.latest().items():
            link.allowed, self.clock = report.allowed, max(self.clock, report.clock)
        self.reports()
        return sum(shard.nbytes for shard in begun)

    def _has_died(self, link: Link, why: object) -> None:
        """Count a death unless it is counted, and ask the shard whether it is there."""
        if not link.is_dead:
            link.is_dead = True
            self.deaths += 1
            logger.warning("shard %d has died, the others continue: %s", link.number, str(why).splitlines()[0])
        if link.ping is None:
            self._ping(link)

    def _ping(self, link: Link) -> None:
        """Ask a shard whether it is there. A new process loads its last save."""
        resume = "resume", link.saved, link.next_identity()
        link.ping = link.actor.answer_once_there.remote(self.learner_state(), *resume)

    def _meet(self, link: Link) -> None:
        """Go on with the process of a shard that answers again, or begin with a new one."""
        try:
            report, _ = self._ray.get(link.ping)
        except self._ray.exceptions.RayTaskError as error:
            logger.warning("shard %d cannot load its last save: %s", link.number, error.cause)
            link.saved = 0
            self._ping(link)
            return
        except self._ray.exceptions.RayError as error:
            self._has_died(link, error)  # for good
            return
        if report.identity == link.identity:
            logger.warning("shard %d answers again", link.number)
        else:
            self._has_died(link, "its process was replaced")
            nothing = "" if report.rows else ": it has no checkpoint"
            logger.warning("shard %d is there again, with %d rows%s", link.number, report.rows, nothing)
            link.identity, link.counted, link.report = report.identity, 0, None
        link.allowed, link.ping, link.is_dead = report.allowed, None, False
        self.note(link, report)

    # Requests to all.

    def reset(self) -> None:
        """Remove all rows of the shards that answer, and reset clock, beta and largest priority."""
        self.clock, (self.beta, self.largest) = 0, self._first
        self.ask_all("call_all", "reset")

    def reports(self) -> dict[Link, Report]:
        """Request a report from each shard, and grant what may be inserted."""
        with self.lock:
            self.outdated = False
            self.ask_all("report")
            if not self.regulate():
                self.ask_all("take_back")
                for link, report in self.latest().items():
                    link.allowed = report.allowed  # no grant is on its way: the lock is held
                self.regulate()
            return self.latest()

    def regulate(self) -> bool:
        """Grant rows that the limiter allows: to shards whose writers wait, each in turn, then to all alike.

        Return False if a shard waits for rows that others have not used, which should be taken back.
        """
        with self.lock:
            reports = self.latest()
            waiting = max([1, *(report.wanted for report in reports.values())])
            room = math.inf if self.limiter is None else self.limiter.allowance(waiting)
            unused = sum(link.allowed - link.counted for link in reports)
            if math.isfinite(room):
                if math.isinf(unused):  # there was no limit until now
                    return False
                room = max(room - unused, 0)
            turns = [link for link in self._turns if link in reports]
            for link in turns:
                lacking = max(reports[link].inserted + reports[link].wanted - link.allowed, 0)
                if reports[link].wanted and lacking > room:  # the rest is for it, and it comes first next time
                    return unused == 0
                if reports[link].wanted:
                    self._turns.remove(link)
                    self._turns.append(link)
                self._grant(link, lacking)
                room -= lacking
            for i, link in enumerate(turns):
                self._grant(link, room // len(turns) + (i < room % len(turns)) if math.isfinite(room) else room)
            return True

    def _grant(self, link: Link, rows: float) -> None:
        if rows and math.isfinite(link.allowed):
            link.actor.grant.remote(rows)
            link.allowed += rows

    def blocked(self) -> set[int]:
        """Return the shards whose next rows the limiter holds back, though others have none to spare."""
        return {link.number for link, told in self.latest().items() if told.inserted + told.wanted > link.allowed}

    def save(self, links: Sequence[Link]) -> None:
        """Let these shards write their files as one save. Files of the last save stay until all have written.

        If shards die meanwhile, the others write again, and the save has older files of those.
        """
        with self._saving:
            while links:
                number = time.time_ns()  # no two saves have the same number
                saves = [number if link in links else link.saved for link in self.all]
                try:
                    done = list(self.ask(dict.fromkeys(links, ("stage", saves)), wait=True))
                except Exception:
                    with contextlib.suppress(OSError, RuntimeError):  # remove what others have written
                        self.ask({link: ("settle", link.saved) for link in links}, wait=True)
                    raise
                if len(done) == len(links):
                    for link in links:
                        link.saved = number
                    self.ask(dict.fromkeys(links, ("settle", number)), wait=True)
                    return
                links = done
        raise self.no_answer()


def _begun(links: Sequence[Link], specs: Sequence[BufferSpec], resume: bool) -> list[Begun]:
    ray = ray_module()
    calls = [link.actor.begin.remote(spec.to_json(), resume) for link, spec in zip(links, specs)]
    _, late = ray.wait(calls, num_returns=len(calls), timeout=_START)
    if late:
        raise TimeoutError(
            f"For 'ShardedReplay', {len(late)} of {len(calls)} shards did not start within {_START:g} s. The cluster's "
            f"resources are {ray.cluster_resources()}"
        )
    try:
        return list(ray.get(calls))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError as error:
        raise RuntimeError(f"For 'ShardedReplay', a shard could not start: {error}") from None


def _age(state: dict[str, Any]) -> tuple[int, int]:
    """Return the age of a state, to compare it with others: samples drawn before it, then the number of the save."""
    return state.get("samples", -1), max(state.get("saves", [0]))


def _newest_of_all(begun: Sequence[Begun]) -> dict[str, Any]:
    """Return the state of the learner in the newest save that all shards have, empty if there is none."""
    there = [{0, *(max(state["saves"]) for state in shard.saves)} for shard in begun]
    states = [state for shard in begun for state in shard.saves]
    for state in sorted(states, key=lambda state: max(state["saves"]), reverse=True):
        if len(state["saves"]) == len(begun) and all(number in own for number, own in zip(state["saves"], there)):
            return dict(state)
    return {}


def _not_resumable(begun: Sequence[Begun], has_files: bool) -> Exception:
    """Return the error for a folder without a save of all shards."""
    if not has_files:
        return FileNotFoundError("For 'ShardedReplay', 'resume' needs a folder that save() has written to.")
    number = max((len(state["saves"]) for shard in begun for state in shard.saves), default=len(begun))
    if number != len(begun):
        return ValueError(
            f"For 'ShardedReplay', 'num_shards' must be {number}, the number of shards that were saved, but got "
            f"{len(begun)}. Rows stay in their shards: resume with num_shards={number}."
        )
    return ValueError(
        "For 'ShardedReplay', the files in 'folder' must be of one save, but no save is there of all shards: some are "
        "missing, or from another place. Resume from a copy of the folder, or begin in another one: load() reads each "
        "file there as a buffer."
    )
