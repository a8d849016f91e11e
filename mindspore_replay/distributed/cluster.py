"""Ray's cluster: the connection to it, the processes of the shards, and which of them answer."""

import contextlib
import functools
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..store.base.optional import optional
from ..store.spec.spec import BufferSpec
from .shard import Report, Shard

#: If this environment variable is "0", Ray listens on the loopback address, not on the machine's address in a network.
_IN_A_NETWORK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
NAMESPACE = "mindspore_replay"


class RemoteMethod(Protocol):
    """A method of an actor."""

    def remote(self, *arguments: object) -> object:
        """Send a call, and return a reference to the answer."""


class ShardActor(Protocol):
    """The Ray actor of a `Shard`, of which other methods are called by name."""

    answers: RemoteMethod
    begin: RemoteMethod
    grant: RemoteMethod
    insert: RemoteMethod
    report: RemoteMethod
    settle: RemoteMethod


def ray_module() -> Any:
    """Import Ray. Raise an ImportError if it is not installed."""
    return optional("ray", "mindspore_replay.distributed", "ray", "Ray")


@functools.cache
def _connections() -> tuple[Any, Any]:
    """Return Ray's objects for a connection as a driver or worker, and for one of Ray Client."""
    return importlib.import_module("ray._private.worker").global_worker, importlib.import_module("ray.util.client").ray


def session() -> object:
    """Return an object that identifies the connection of this process to a cluster, or ``None`` without one.

    It never connects, as a call of an actor would. It runs for each row, so it avoids Ray's public functions (3 us).
    """
    worker, client = _connections()
    return client.get_context().client_worker if worker.mode is None else worker.node


def connect() -> Any:
    """Connect to Ray, and return its module.

    It connects to the cluster that the process uses, else to that of ``RAY_ADDRESS``, else to a new one on this machine
    that listens on the loopback address only.
    """
    if "ray" in sys.modules and ray_module().is_initialized():
        return ray_module()
    address = os.environ.get("RAY_ADDRESS", "")
    options: dict[str, Any] = {} if address else {"address": "local", "include_dashboard": False}
    alone = not address or address.startswith(("127.0.0.1:", "localhost:"))
    with _at_the_loopback_address() if alone else contextlib.nullcontext(), _away_from_other_sources():
        ray = ray_module()
        ray.init(namespace=NAMESPACE, **options)
    return ray


@contextlib.contextmanager
def _at_the_loopback_address() -> Iterator[None]:
    """Make Ray use the loopback address as that of this machine, here and in the processes that it starts."""
    before = os.environ.get(_IN_A_NETWORK)
    os.environ[_IN_A_NETWORK] = "0"
    try:
        constants: Any = importlib.import_module("ray._private.ray_constants")
        constants.ENABLE_RAY_CLUSTER = False  # the value of the variable, if it was imported before
        yield
    finally:
        if before is None:
            del os.environ[_IN_A_NETWORK]
        else:
            os.environ[_IN_A_NETWORK] = before


@contextlib.contextmanager
def _away_from_other_sources() -> Iterator[None]:
    """Start Ray from a folder without another copy of this package.

    Its processes look for modules in the current folder first. It may contain the package's sources, without built
    kernels.
    """
    package, here = Path(__file__).resolve().parents[1], Path.cwd()
    other = here / package.name
    if not other.is_dir() or other.samefile(package):
        yield
        return
    script = sys.argv[0]
    sys.argv[0] = os.path.abspath(script)  # Ray's processes look for modules beside the script too
    os.chdir(package.parent)
    try:
        yield
    finally:
        os.chdir(here)
        sys.argv[0] = script


#: Seconds that the name of a learner may take to become free after it has ended.
_FREE = 10.0
_NAME = "ShardedReplay"


class _Learner:
    """An actor owned by a learner: its name stays taken as long as the learner lives."""


def claim(name: str) -> object:
    """Reserve the shards of a name for this learner. They have one learner at a time.

    Returns:
        ActorHandle: The reservation. It ends with the handle, its process or the actor.

    Raises:
        RuntimeError: If another learner has it.
    """
    place = ray_module().remote(num_cpus=0)(_Learner).options(namespace=NAMESPACE, name=f"{name}/learner")
    deadline = time.monotonic() + _FREE
    while True:
        try:
            reservation: object = place.remote()
            return reservation
        except ValueError:  # the name is taken
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"For '{_NAME}', the shards of a 'name' must have one learner, but another one uses {name!r}. End "
                    "it or call its close(), which ends the shards too, or use another 'name'. Processes that only "
                    "insert need no learner: pass them a writer()."
                ) from None
            time.sleep(0.1)


def actors(
    specs: Sequence[BufferSpec], settings: Mapping[str, Any], resume: bool
) -> tuple[list[ShardActor], list[ShardActor]]:
    """Make the shards, or find those that run under the name. Return all, and those that were made."""
    shard_class = ray_module().remote(concurrency_groups={"write": 1}, max_restarts=-1)(Shard)
    options = {"scheduling_strategy": "SPREAD", **(settings.get("resources") or {})}
    name, folder = settings.get("name"), settings.get("folder")
    begun, new = [], []
    for i, spec in enumerate(specs):
        path = None if folder is None else f"{os.path.abspath(folder)}/shard_{i}.safetensors"
        if name is not None:
            options |= {"namespace": NAMESPACE, "lifetime": "detached", "name": f"{name}/shard_{i}"}
            with contextlib.suppress(ValueError):  # there is none
                begun.append(ray_module().get_actor(options["name"], NAMESPACE))
                continue
        begun.append(shard_class.options(**options).remote(spec, path, resume))
        new.append(begun[-1])
    return begun, new


logger = logging.getLogger("mindspore_replay.distributed")

#: Seconds between two attempts to reach a shard whose process has died.
_AGAIN = 0.2


class Link:
    """A client's view of a shard: its processes, its latest report, and the rows that it may still insert.

    Attributes:
        number (int): Its number.
        actor (ActorHandle): Its Ray actor.
        identity (int): Identifies its current process, or 0 before the first answer.
        lives (dict[int, int]): All its processes by identity, each with the number of processes before it.
        seen (int): Rows inserted into the current process, as far as known.
        allowed (float): Rows whose insertion into it was granted.
        grants (int): Number of grants sent to the current process.
        report (Union[Report, None]): The latest report of the current process.
    """

    def __init__(self, number: int, actor: ShardActor) -> None:
        self.number = number
        self.actor = actor
        self.identity = self.seen = self.grants = 0
        self.report: Report | None = None
        self.lives: dict[int, int] = {}
        self.allowed = 0.0
        #: The unanswered request; if the shard is dead, a request that its next process will answer.
        self.outstanding: object = None
        self.slow = self.dead = False
        self.tried = 0.0

    @property
    def answers(self) -> bool:
        """True if every request so far was answered."""
        return not (self.slow or self.dead)


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

    def __init__(self, actors: Iterable[ShardActor], timeout: float, place: object = None) -> None:
        self.all = [Link(i, actor) for i, actor in enumerate(actors)]
        self.timeout = timeout
        self.deaths = self.timeouts = 0
        self._ray, self._place = ray_module(), place
        self._session, self._closed = session(), False
        self._lock = threading.RLock()

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

    def end(self, actors: Iterable[ShardActor]) -> None:
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
        with self._lock:
            for link in self.all:
                if link.outstanding is not None:
                    self._look_after(link)
            return [link for link in self.all if link.answers]

    def ask(self, method: str, arguments: Mapping[Link, Sequence[object]], *, wait: bool = False) -> dict[Link, Any]:
        """Call a method of several shards, and return the answers that arrive in time.

        Args:
            method (str): The method of `Shard`.
            arguments (Mapping[Link, Sequence]): Its arguments for each shard.
            wait (bool): Whether to wait without a limit. Default: ``False``.

        Returns:
            dict[Link, Any]: Answers by shard.

        Raises:
            Exception: Any error that a shard raises.
        """
        self.check_open()
        asked = {link: link.identity for link in arguments}
        refs = {getattr(link.actor, method).remote(*own): link for link, own in arguments.items()}
        seconds = None if wait else self.timeout
        ready, late = self._ray.wait(list(refs), num_returns=len(refs), timeout=seconds) if refs else ([], [])
        self.check_open()  # another thread may have closed them
        answers = {}
        with self._lock:
            for ref in late:
                link = refs[ref]
                if asked[link] == link.identity and link.answers:
                    self.timeouts += 1
                    logger.warning("shard %d has not answered for %g s, the others continue", link.number, self.timeout)
                    link.slow, link.outstanding = True, ref
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

    def accept(self, link: Link, report: Report) -> bool:
        """Store a report unless there is a later one. Return False if it is of a replaced process."""
        with self._lock:
            if report.identity != link.identity:
                if report.identity in link.lives:
                    return False  # sent before the process was replaced
                if link.lives:
                    self._is_another(link, report)
                link.lives[report.identity] = len(link.lives)
                link.identity, link.report, link.grants = report.identity, None, 0
            if link.report is None or report.number > link.report.number:
                link.report = report
            if link.dead:
                link.dead, link.outstanding = False, None
            return True

    def _is_another(self, link: Link, report: Report) -> None:
        if not link.dead:
            self._count_death(link, "its process was replaced")
        link.seen, link.allowed = 0, 0.0
        nothing = "" if report.rows else ": it has no checkpoint"
        logger.warning("shard %d is there again, with %d rows%s", link.number, report.rows, nothing)

    def _count_death(self, link: Link, why: object) -> None:
        self.deaths += 1
        logger.warning("shard %d has died, the others continue: %s", link.number, str(why).splitlines()[0])

    def _has_died(self, link: Link, error: Exception) -> None:
        if not link.dead:
            self._count_death(link, error)
        link.dead, link.slow = True, False
        self._call_again(link)

    def _call_again(self, link: Link) -> None:
        link.tried = time.monotonic()
        link.outstanding = link.actor.report.remote()

    def _look_after(self, link: Link) -> None:
        """Check whether a shard that was slow or dead has answered."""
        if not self._ray.wait([link.outstanding], timeout=0)[0]:
            return
        try:
            answer = self._ray.get(link.outstanding)
        except self._ray.exceptions.RayTaskError:
            answer = None
        except self._ray.exceptions.RayError as error:
            if not link.dead:
                self._has_died(link, error)
            elif time.monotonic() - link.tried > _AGAIN:
                self._call_again(link)
            return
        link.outstanding = None
        if link.slow:
            logger.warning("shard %d answers again", link.number)
            link.slow = False
        if isinstance(answer, Report):
            self.accept(link, answer)
        elif link.dead:
            self._call_again(link)
