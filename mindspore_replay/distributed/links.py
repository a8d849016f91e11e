"""Which shards answer: requests to them, their latest reports, and their deaths."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .cluster import ray_module, session
from .shard import Report

logger = logging.getLogger("mindspore_replay.distributed")

#: Seconds between two attempts to reach a shard whose process has died.
_AGAIN = 0.2


class Link:
    """A learner's view of a shard.

    Attributes:
        number (int): Its number.
        actor (ActorHandle): Its Ray actor, a `Shard`.
        lives (list[int]): The identities of all its processes, in turn.
        counted (int): Rows inserted into the current process, as far as known.
        allowed (float): Rows whose insertion into it was granted.
        saved (int): The number of its last save, 0 without one.
        report (Union[Report, None]): The latest report of the current process.
        ping (Union[ObjectRef, None]): The request that it has not answered, ``None`` if it answers.
    """

    def __init__(self, number: int, actor: Any) -> None:
        self.number, self.actor, self.counted, self.allowed, self.saved = number, actor, 0, 0.0, 0
        self.lives: list[int] = []
        self.report: Report | None = None
        self.ping: object = None
        self.is_dead, self.tried = False, 0.0

    @property
    def identity(self) -> int:
        """Identifies its current process, 0 before the first."""
        return self.lives[-1] if self.lives else 0


class Links:
    """Sends requests to shards with a timeout, and keeps track of those that do not answer.

    Args:
        actors (Iterable[ActorHandle]): The shards.
        timeout (float): Seconds to wait for an answer.
        place (Union[ActorHandle, None]): What `claim` returned. Default: ``None``, for shards without a name.

    Attributes:
        deaths (int): Processes of shards that died.
        timeouts (int): Answers that were late.
    """

    def __init__(self, actors: Iterable[Any], timeout: float, place: Any = None) -> None:
        self.all = [Link(i, actor) for i, actor in enumerate(actors)]
        self.timeout, self._place = timeout, place
        #: Returns the learner's state, which a shard gets that answers again.
        self.learner_state: Callable[[], Any] = lambda: None
        self.deaths = self.timeouts = 0
        self._ray, self._session, self._closed = ray_module(), session(), False
        self.lock = threading.RLock()

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

    def alive(self) -> list[Link]:
        """Return the shards that answer. Those that did not are checked first: they may answer again.

        Raises:
            RuntimeError: If they were closed.
        """
        self.check_open()
        with self.lock:
            for link in self.all:
                if link.ping is not None and self._ray.wait([link.ping], timeout=0)[0]:
                    self._look_after(link)
            return [link for link in self.all if link.ping is None]

    def ask(self, method: str, arguments: Mapping[Link, Sequence[object]], *, wait: bool = False) -> dict[Link, Any]:
        """Call a method of several shards with arguments for each, and return the answers that arrive in time.

        With `wait`, there is no limit. Any error that a shard raises is raised.
        """
        self.check_open()
        asked = {link: link.identity for link in arguments}
        refs = {getattr(link.actor, method).remote(*own): link for link, own in arguments.items()}
        seconds = None if wait else self.timeout
        ready, late = self._ray.wait(list(refs), num_returns=len(refs), timeout=seconds) if refs else ([], [])
        self.check_open()  # another thread may have closed them
        answers = {}
        with self.lock:
            for link in (refs[ref] for ref in late):
                if asked[link] == link.identity and link.ping is None:
                    self.timeouts += 1
                    logger.warning("shard %d has not answered for %g s, the others continue", link.number, self.timeout)
                    self._ping(link)
            for ref in ready:
                link = refs[ref]
                try:
                    answers[link] = self._ray.get(ref)
                except self._ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except self._ray.exceptions.RayError as error:
                    if asked[link] == link.identity:
                        self._has_died(link, error)
        return answers

    def begin(self, link: Link, report: Report) -> None:
        """Begin with a process of a shard, or go on with one that answers again."""
        with self.lock:
            if report.identity in link.lives:
                logger.warning("shard %d answers again", link.number)
            elif link.lives:
                self._count_death(link, "its process was replaced")
                nothing = "" if report.rows else ": it has no checkpoint"
                logger.warning("shard %d is there again, with %d rows%s", link.number, report.rows, nothing)
            if report.identity != link.identity:
                link.lives.append(report.identity)
                link.counted = 0
            link.report, link.allowed, link.ping, link.is_dead = report, report.allowed, None, False

    def accept(self, link: Link, report: Report) -> bool:
        """Store a report unless there is a later one. Return False if it is of another process."""
        with self.lock:
            if report.identity != link.identity:
                if report.identity not in link.lives:  # else it was sent before the process was replaced
                    self._has_died(link, "its process was replaced")
                return False
            if link.report is None or report.number > link.report.number:
                link.report = report
            return True

    def _has_died(self, link: Link, why: object) -> None:
        self._count_death(link, why)
        if link.ping is None:
            self._ping(link)

    def _count_death(self, link: Link, why: object) -> None:
        if not link.is_dead:
            link.is_dead = True
            self.deaths += 1
            logger.warning("shard %d has died, the others continue: %s", link.number, str(why).splitlines()[0])

    def _ping(self, link: Link) -> None:
        """Ask a shard whether it is there. A new process loads its last save."""
        link.tried, link.ping = time.monotonic(), link.actor.resume.remote(link.saved, self.learner_state())

    def _look_after(self, link: Link) -> None:
        """Take the answer of a shard that did not answer before."""
        try:
            self.begin(link, self._ray.get(link.ping))
            return
        except self._ray.exceptions.RayTaskError as error:
            logger.warning("shard %d cannot load its last save: %s", link.number, error.cause)
            link.saved = 0
        except self._ray.exceptions.RayError as error:
            self._count_death(link, error)
        if time.monotonic() - link.tried > _AGAIN:
            self._ping(link)
