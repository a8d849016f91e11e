"""Ray in this process, for tests that need no other: a shard is an object with a thread for insertions."""

import concurrent.futures
import contextlib
import math
import pickle
import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mindspore_replay.distributed import cluster, exchange, sharded, writer
from mindspore_replay.distributed.shard import Shard


class RayError(Exception):
    """Any error of Ray."""


class ActorDiedError(RayError):
    """What a call of an actor that was killed raises."""


class Died(BaseException):
    """The end of the process of a shard, which another one replaces."""


class TaskError(RayError):
    """What Ray raises for an error in an actor."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class Actor:
    """A shard that gets and gives copies: insertions run in one thread, other methods in the caller's, in turn."""

    def __init__(self, sent: list[str], *arguments: Any) -> None:
        self._sent = sent
        self._arguments, self._killed, self._lock = pickle.dumps(arguments), False, threading.RLock()
        self._shard, self._stopped = Shard(*arguments), list[Any]()
        self._is_stopped = self._has_died = False
        self._insertions: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._insert_all, daemon=True).start()

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._send(method, arguments))

    def _send(self, method: str, given: tuple[Any, ...]) -> Future[Any]:
        """Call a method, and return what its answer will be."""
        answer: Future[Any] = Future()
        self._sent.append(given[1] if method.startswith("answer") else method)
        arguments = pickle.dumps([one.result() if isinstance(one, Future) else one for one in given])
        if self._killed:
            answer.set_exception(ActorDiedError())
        elif self._is_stopped:
            self._stopped.append((answer, method, arguments))
        elif method == "insert":
            self._insertions.put((answer, method, arguments))
        else:
            with self._lock:
                self._call(answer, method, arguments)
        return answer

    def _go_on(self) -> None:
        """Answer the calls since it was stopped."""
        self._is_stopped = False
        for answer, method, arguments in self._stopped:
            self._call(answer, method, arguments)

    def _insert_all(self) -> None:
        """Insert in the order of the calls."""
        for call in iter(self._insertions.get, None):
            self._call(*call)

    def _call(self, answer: Future[Any], method: str, arguments: bytes) -> None:
        """Call a method now."""
        try:
            if self._has_died:
                raise Died
            answer.set_result(pickle.loads(pickle.dumps(getattr(self._shard, method)(*pickle.loads(arguments)))))
        except Died:
            self._shard, self._has_died = Shard(*pickle.loads(self._arguments)), False
            if hasattr(getattr(Shard, method), "__ray_max_task_retries__"):
                self._call(answer, method, arguments)
            else:
                answer.set_exception(RayError("the process has died"))
        except BaseException as error:
            answer.set_exception(TaskError(error))

    def _end(self) -> None:
        """End its thread."""
        self._killed = True
        self._shard.grant(math.inf)
        self._insertions.put(None)


class LocalRay:
    """What this package uses of the module ``ray``; `sent` holds the methods of all calls."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=TaskError, RayActorError=ActorDiedError, ActorDiedError=ActorDiedError
    )

    def __init__(self) -> None:
        self.sent: list[str] = []

    def remote(self, **_: Any) -> Any:
        """Return what makes actors of a class."""
        return lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=partial(Actor, self.sent)))

    def wait(
        self, answers: Iterable[Future[Any]], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Future[Any]], list[Future[Any]]]:
        """Wait for one answer, or for all."""
        answers = list(answers)
        when = concurrent.futures.ALL_COMPLETED if num_returns > 1 else concurrent.futures.FIRST_COMPLETED
        done = concurrent.futures.wait(answers, timeout, when).done
        return [one for one in answers if one in done], [one for one in answers if one not in done]

    def get(self, answers: Any, timeout: float | None = None) -> Any:
        """Return an answer, or a list of them."""
        return [self.get(one, timeout) for one in answers] if isinstance(answers, list) else answers.result(timeout)

    def kill(self, actor: Actor) -> None:
        """End an actor."""
        actor._end()


@contextlib.contextmanager
def in_this_process() -> Iterator[LocalRay]:
    """Let sharded buffers use this Ray during the block."""
    ray = LocalRay()
    with pytest.MonkeyPatch.context() as patch:
        for module in (cluster, exchange, writer):
            patch.setattr(module, "ray_module", lambda: ray)
        for module in (exchange, writer):
            patch.setattr(module, "session", lambda: ray)
        patch.setattr(sharded, "connect", lambda: ray)
        yield ray
