"""The rows that the limiter of a learner lets its shards insert, counted in one process."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from .cluster import NAMESPACE, ray_module

#: Seconds that the name of a learner may take to become free after it has ended.
_FREE = 10.0
#: Name of the actor of a learner whose shards have this name.
PLACE = "{}/learner"


class Quota:
    """Lets shards insert rows, each in turn.

    A learner tells which processes of shards answer, how many rows of each it has counted, and how many more its
    limiter allows. What a process began beyond that is in progress. So neither rows lost with a process count, nor what
    this actor forgets when its own process dies.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counted: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        #: By process, in turn: the rows that it has inserted, and those that it wants to insert.
        self._waiting: dict[int, tuple[int, int]] = {}
        self._room = self._missing = 0.0

    def take(self, process: int, inserted: int, rows: int) -> bool:
        """Wait until a process may insert rows. Return False if the learner says meanwhile that it does not answer."""
        with self._changed:
            self._waiting[process] = inserted, rows
            self._changed.wait_for(lambda: process not in self._waiting or self._next() == process)
            if self._waiting.pop(process, None) is None:
                return False
            self._begun[process] = inserted + rows
            self._changed.notify_all()
            return True

    def _next(self) -> int | None:
        """Return the process whose turn it is, or ``None`` if it has to wait or none wants to insert."""
        for process, (inserted, rows) in self._waiting.items():
            begun = self._begun | {process: inserted}
            in_progress = sum(all_rows - self._counted.get(key, 0) for key, all_rows in begun.items())
            return process if in_progress < self._missing or in_progress + rows <= self._room else None
        return None

    def allow(self, counted: Mapping[int, int], room: float, missing: float) -> list[int]:
        """Allow rows beyond those that the learner has counted.

        Args:
            counted (Mapping[int, int]): Rows that it has counted, by process that answers.
            room (float): How many more may be inserted.
            missing (float): How many more must be inserted before its limiter's `min_size`. An insertion that begins
                before does not wait.

        Returns:
            list[int]: The processes that have to wait.
        """
        with self._changed:
            self._counted, self._room, self._missing = dict(counted), room, missing
            self._begun = {process: max(rows, self._begun.get(process, 0)) for process, rows in counted.items()}
            self._waiting = {process: wanted for process, wanted in self._waiting.items() if process in counted}
            self._changed.notify_all()
            return list(self._waiting) if self._next() is None else []


# As `ray.method(concurrency_group="take")`, in a module that imports no Ray.
Quota.take.__ray_concurrency_group__ = "take"  # type: ignore[attr-defined]


def claim(name: str, shards: int) -> Any:
    """Reserve the shards of a name for this learner, and count what they may insert. They have one learner at a time.

    Returns:
        ActorHandle: The actor of a `Quota`. It ends with the handle, or the learner's process.

    Raises:
        RuntimeError: If another learner has it.
    """
    make = ray_module().remote(num_cpus=0, max_restarts=-1, concurrency_groups={"take": 2 * shards})(Quota)
    place, deadline = make.options(namespace=NAMESPACE, name=PLACE.format(name)), time.monotonic() + _FREE
    while True:
        try:
            return place.remote()
        except ValueError:  # the name is taken
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"For 'ShardedReplay', the shards of a 'name' must have one learner, but another one uses {name!r}."
                    " End it or call its close(), which ends the shards too, or use another 'name'. Processes that "
                    "only insert need no learner: pass them a writer()."
                ) from None
            time.sleep(0.1)
