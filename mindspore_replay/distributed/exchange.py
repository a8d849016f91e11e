"""Messages between the learner and its shards: answers contain totals. Requests contain the clock and the quotas."""

import builtins
import contextlib
import math
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..store.spec.spec import BufferSpec
from ..store.waits.limiter import RateLimiter
from .cluster import Link, Links, ray_module
from .shard import Begun, Drawn, Report, other_run, save_number

_SERIAL_BITS, _LIFE_BITS, _SHARD_BITS = 40, 11, 12
MOST_SHARDS = 1 << _SHARD_BITS
LIVES = 1 << _LIFE_BITS


def joined(shard: int, life: int, handles: np.ndarray) -> np.ndarray:
    """Convert handles of a shard's buffer to handles of the whole. Invalid ones stay as they are.

    Args:
        shard (int): Number of the shard.
        life (int): Number of restarts of its process so far: a handle is valid for one process only.
        handles (numpy.ndarray): Its buffer's handles. Shape ``[n]``, int64.

    Returns:
        numpy.ndarray: Shape ``[n]``, int64. For shard 0 in its first process, equal to `handles`.
    """
    place = ((shard << _LIFE_BITS) | (life % LIVES)) << _SERIAL_BITS
    return np.where(handles < 0, handles, handles | place)


def parted(handles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split handles into shard, process number and handle in that process. The shard is -1 for an invalid handle.

    Args:
        handles (numpy.ndarray): Handles of the whole. Shape ``[n]``, int64.

    Returns:
        tuple[numpy.ndarray, ...]: Three arrays ``[n]``, int64.
    """
    place = handles >> _SERIAL_BITS
    shard = np.where(handles < 0, -1, place >> _LIFE_BITS)
    return shard, place & (LIVES - 1), handles & ((1 << _SERIAL_BITS) - 1)


#: Seconds to wait for the processes of the shards to start.
_START = 300.0
_NAME = "ShardedReplay"


class Exchange:
    """Sends requests to shards, keeps the latest report of each, and distributes the insertion quota among them.

    Args:
        links (Links): The shards.
        limiter (Union[RateLimiter, None]): Sets the quota.
        beta (Union[float, None]): First exponent of importance weights, or ``None`` without priorities.
        initial_priority (float): Largest priority of shards without rows.

    Attributes:
        samples (int): Batches drawn.
        sampled (int): Rows in them.
        inserted (int): Rows inserted, as reported.
        invalid_handles (int): Handles skipped by `update_priorities`.
        clock (int): The learner's clock.
        largest (float): Largest priority in any shard.
        takes_back (bool): Whether to withdraw unused quotas with the next request, since a writer is blocked.
        outdated (bool): Whether rows of this process were inserted since all shards reported.
    """

    def __init__(self, links: Links, limiter: RateLimiter | None, beta: float | None, initial_priority: float) -> None:
        self.links, self.limiter = links, limiter
        self._first_beta = self.beta = beta
        self.samples = self.sampled = self.inserted = self.invalid_handles = self.clock = 0
        self._first_largest = self.largest = initial_priority
        self.takes_back = self.outdated = False
        #: Identifies the run in files; and for each shard the number of its last save, 0 without one.
        self.run, self.saves = secrets.token_hex(8), [0] * len(links.all)
        self._turn = 0
        self._lock, self._saving = threading.RLock(), threading.Lock()

    def learner_state(self) -> dict[str, Any]:
        """Return the learner's state, from which a later learner resumes."""
        names = "samples", "sampled", "clock", "largest"
        learner_state: dict[str, Any] = {name: getattr(self, name) for name in names}
        learner_state |= {"run": self.run, "saves": self.saves}
        if self.beta is not None:
            learner_state["beta"] = self.beta
        if self.limiter is not None:
            learner_state["counts"] = self.limiter.arrays()["counts"].tolist()
            learner_state["seen"] = {str(link.identity): link.seen for link in self.links.all}
        return learner_state

    def resume(self, learner_state: Mapping[str, Any]) -> None:
        """Resume from the state of an earlier learner, and request reports from all shards."""
        if learner_state:
            self.samples, self.sampled = learner_state["samples"], learner_state["sampled"]
            self.clock, self.largest = learner_state["clock"], learner_state["largest"]
            self.beta = learner_state.get("beta")
            self.run, self.saves = learner_state["run"], list(learner_state["saves"])
            if self.limiter is not None and "counts" in learner_state:
                self.limiter.load_arrays({**self.limiter.arrays(), "counts": np.array(learner_state["counts"])})
                for link in self.links.all:
                    link.seen = learner_state["seen"].get(str(link.identity), 0)
        self.clock = max([self.clock, *(link.report.clock for link in self.links.all if link.report)])
        self.reports()

    def latest(self) -> dict[Link, Report]:
        """Return the latest report of each shard that answers."""
        return {link: link.report for link in self.links.alive() if link.report is not None}

    def reports(self) -> dict[Link, Report]:
        """Request a report from each shard, and distribute the insertion quota."""
        with self._lock:
            self.outdated = False
            self._ask_all("report", self.learner_state(), self.takes_back)
            return self.regulate()

    def advance(self, steps: int) -> None:
        """Advance the clock. A shard that does not answer gets it with the next request."""
        self.clock += steps
        self._ask_all("report", self.learner_state())

    def reset(self) -> None:
        """Remove all rows of the shards that answer, and reset clock, beta and largest priority."""
        with self._lock:
            self.clock, self.largest, self.beta = 0, self._first_largest, self._first_beta
            self._ask_all("reset")

    def _ask_all(self, method: str, *arguments: object) -> None:
        alive = self.links.alive()
        reports = self.links.ask(method, dict.fromkeys(alive, arguments))
        with self._lock:
            for link, report in reports.items():
                self._note(link, report)

    def draw(self, rows: Mapping[Link, int]) -> dict[Link, Drawn]:
        """Draw rows from each shard, possibly 0, in one round trip that also returns their reports."""
        arguments = self.learner_state(), self.takes_back
        answers = self.links.ask("draw", {link: (n, *arguments) for link, n in rows.items()})
        with self._lock:
            return {link: part for link, part in answers.items() if self._note(link, part.report)}

    def save(self, links: Sequence[Link]) -> None:
        """Let these shards write their files as one save. Files of the last save stay until all have written.

        If shards die meanwhile, the others write again, and the save has older files of those.
        """
        with self._saving:
            while links:
                number, before = time.time_ns(), self.saves  # no two saves of a run have the same number
                saves = [number if link in links else last for link, last in zip(self.links.all, before)]
                links = self._stage(links, {**self.learner_state(), "saves": saves})
                if saves.count(number) == len(links):
                    self.saves = saves
                    self.links.ask("settle", dict.fromkeys(links, (number,)), wait=True)
                    return
        raise self.links.no_answer()

    def _stage(self, links: Sequence[Link], state: dict[str, Any]) -> list[Link]:
        """Let these shards write staged files, and return those that have. After an error, all remove theirs."""
        before = self.saves
        arguments = {link: (state, before[link.number]) for link in links}
        try:
            return list(self.links.ask("stage", arguments, wait=True))
        except BaseException:
            with contextlib.suppress(RuntimeError):
                self.links.check_open()
                for link in links:
                    link.actor.settle.remote(before[link.number])
            raise

    def call(self, method: str, handles: np.ndarray, arguments: Sequence[object] = ()) -> list[tuple[np.ndarray, Any]]:
        """Call a method of the buffers that store the rows.

        Args:
            method (str): The method.
            handles (numpy.ndarray): Its first argument. Shape ``[n]``, int64.
            arguments (Sequence): The other arguments: arrays ``[n, ...]``, or a list or dict of such. Default: ``()``.

        Returns:
            list[tuple[numpy.ndarray, Any]]: For each shard that answers, positions in `handles`, and the result for
            them.
        """
        shard, life, local = parted(handles)
        calls, places = {}, {}
        for link in self.links.alive():
            identity = link.identity
            rows = np.flatnonzero((shard == link.number) & (life == link.lives.get(identity, -1) % LIVES))
            if rows.size:
                mine = [_rows_of(argument, rows) for argument in arguments]
                calls[link] = (identity, method, local[rows], *mine)
                places[link] = rows
        answers = self.links.ask("call", calls)
        with self._lock:
            for link, answer in answers.items():
                self._note(link, answer[0])
        return [(places[link], result) for link, (_, result) in answers.items() if result is not None]

    def _note(self, link: Link, report: Report) -> bool:
        """Add the changes of a report to the counts. Return False if the report is of a replaced process."""
        if not self.links.accept(link, report):
            return False
        assert link.report is not None
        latest = link.report
        self.largest = max(self.largest, latest.largest)
        new = latest.inserted - link.seen
        if new and self.limiter is not None:
            self.limiter.count_inserted(new)
        self.inserted += new
        link.seen = latest.inserted
        if latest.grants >= link.grants:  # else a grant, which `allowed` already includes, is on its way
            link.grants, link.allowed = latest.grants, latest.allowed
        return True

    # The insertion quota.

    def regulate(self) -> dict[Link, Report]:
        """Distribute the quota that the limiter allows, and return the latest reports, which it depends on."""
        with self._lock:
            room, idle = self._room(self.latest())
            if math.isfinite(room) and any(math.isinf(link.allowed) for link in self.latest()):
                self._ask_all("report", self.learner_state(), True)  # they had no limit until now
                room, idle = self._room(self.latest())
            reports = self.latest()
            self.takes_back = self._grant(reports, room) and idle
            return reports

    def _room(self, reports: Mapping[Link, Report]) -> tuple[float, bool]:
        """Return how many more rows may be granted, and whether some are granted but not used."""
        wanted = [report.wanted for report in reports.values()]
        limit = math.inf if self.limiter is None else self.limiter.allowance(max([1, *wanted]))
        if math.isinf(limit):
            return limit, False
        # A shard that does not answer may use its grant later; the others do not wait for that.
        granted = sum(link.allowed - link.seen for link in reports)
        return max(limit - granted, 0), granted > 0

    def _grant(self, reports: Mapping[Link, Report], room: float) -> bool:
        """Distribute the insertion quota: blocked writers first, round robin, then evenly.

        Returns:
            bool: Whether a writer remains blocked.
        """
        links = list(reports)
        if not links:
            return False
        if math.isinf(room):
            grants = {link: room for link in links if math.isfinite(link.allowed)}
        else:
            grants, room = dict.fromkeys(links, 0.0), int(room)
            turn = self._turn % len(links)
            for i, link in enumerate(links[turn:] + links[:turn]):
                lacking = max(reports[link].inserted + reports[link].wanted - link.allowed, 0)
                if reports[link].wanted and lacking > room:
                    self._turn = turn + i  # the rest is reserved for it, and it comes first next time
                    break
                grants[link] += lacking
                room -= lacking
            else:
                self._turn = turn + 1
                for i, link in enumerate(links[turn:] + links[:turn]):
                    grants[link] += room // len(links) + (i < room % len(links))
                room = math.inf
        for link, rows in grants.items():
            if rows:
                link.actor.grant.remote(rows)
                link.grants += 1
                link.allowed += rows
        return math.isfinite(room)


def begin(links: Links, specs: Sequence[BufferSpec], resume: bool, folder: str | None) -> tuple[int, dict[str, Any]]:
    """Wait until all shards have started, and let those that resume load the newest save that all have.

    Args:
        links (Links): The shards.
        specs (Sequence[BufferSpec]): What each is to hold.
        resume (bool): Whether new shards load a save.
        folder (Union[str, None]): Where saves are.

    Returns:
        tuple[int, dict]: Bytes of the rows, and the latest state of a learner, empty if there is none.

    Raises:
        FileExistsError: If new shards are not to resume, and the folder contains a save.
        FileNotFoundError: If new shards are to resume, and nothing was saved.
        ValueError: If no save there is one of as many shards, or shards have another description.
    """
    begun = _begun(links, specs)
    states, chosen = [shard.learner_state for shard in begun], _newest_of_all(begun)
    if any(shard.resumes for shard in begun):
        _check_resumable(begun, chosen)
    elif chosen and not any(states):
        raise other_run(folder)
    latest = max([*states, chosen], key=_age)
    if folder is not None:
        saves = chosen.get("saves", [0] * len(begun))
        latest |= {"saves": saves} if latest else {}
        links.ask("settle", {link: (saves[link.number],) for link in links.all}, wait=True)
    for link, report in links.ask("report", dict.fromkeys(links.all, ())).items():
        links.accept(link, report)
    return sum(shard.nbytes for shard in begun), latest


def _begun(links: Links, specs: Sequence[BufferSpec]) -> list[Begun]:
    ray = ray_module()
    calls = [link.actor.begin.remote(spec.to_json()) for link, spec in zip(links.all, specs)]
    _, late = ray.wait(calls, num_returns=len(calls), timeout=_START)
    if late:
        raise TimeoutError(
            f"For '{_NAME}', {len(late)} of {len(calls)} shards did not start within {_START:g} s. The cluster's "
            f"resources are {ray.cluster_resources()}"
        )
    try:
        return list(ray.get(calls))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError as error:
        raise _as_raised(str(error)) from None


def _as_raised(text: str) -> Exception:
    """Return the error at the end of a traceback, of its type if Python has that; without one, the last line."""
    name, words = "", text.strip().splitlines()[-1].strip()
    for found in re.finditer(r"(?m)^(?:\w+\.)*(\w+Error): ", text):
        name, words = found[1], text[found.end() :].strip()
    error_class = getattr(builtins, name, RuntimeError)
    if issubclass(error_class, UnicodeError):  # its constructor takes more than a message
        error_class = ValueError
    return error_class(f"For '{_NAME}', a shard could not start: {words}")


def _age(state: dict[str, Any]) -> tuple[int, int]:
    """Return the age of a state, to compare it with others: samples drawn before it, then the number of the save."""
    return state.get("samples", -1), max(state.get("saves", [0]))


def _newest_of_all(begun: Sequence[Begun]) -> dict[str, Any]:
    """Return the state of the learner in the newest save that all shards have, empty if there is none."""
    for state in sorted((state for shard in begun for state in shard.saves), key=save_number, reverse=True):
        if len(state["saves"]) == len(begun) and all(map(_has, begun, state["saves"])):
            return dict(state)
    return {}


def _has(shard: Begun, number: int) -> bool:
    return not number or number in map(save_number, shard.saves)


def _check_resumable(begun: Sequence[Begun], chosen: Mapping[str, Any]) -> None:
    """Raise an error if no save was chosen, or files are of another run too."""
    if not chosen and not any(shard.has_file for shard in begun):
        raise FileNotFoundError(f"For '{_NAME}', 'resume' needs a folder that save() has written to.")
    states = [state for shard in begun for state in shard.saves]
    number = len(max(states, key=save_number)["saves"]) if states else len(begun)
    if number != len(begun):
        raise ValueError(
            f"For '{_NAME}', 'num_shards' must be {number}, the number of shards that were saved, but got "
            f"{len(begun)}. Rows stay in their shards: resume with num_shards={number}."
        )
    runs = len({state["run"] for state in states})
    if runs > 1 or not chosen:
        why = f"they are of {runs} runs" if runs > 1 else "no save is there of all shards"
        raise ValueError(
            f"For '{_NAME}', the files in 'folder' must be of one save, but {why}: some are missing, or from another "
            "place. "
            "Resume from a copy of the folder, or begin in another one: load() reads each file there as a buffer."
        )


def _rows_of(arrays: object, rows: np.ndarray) -> object:
    """Return these rows of an array, or of each in a list or dict."""
    if isinstance(arrays, dict):
        return {key: array[rows] for key, array in arrays.items()}
    return [array[rows] for array in arrays] if isinstance(arrays, list) else np.asarray(arrays)[rows]
