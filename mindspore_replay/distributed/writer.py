"""Writers: they send rows from any process to the shards of a sharded buffer."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..store.base.checks import LAST_CLOCK
from ..store.base.schema import is_tensor
from ..store.faces.methods import BufferMethods, describe
from ..store.rows.inputs import NewRows, as_new_rows, check_versions
from ..store.spec.episodes import END, FINAL, continues, marks_of
from ..store.spec.needs import need_episodes
from ..store.spec.spec import BufferSpec
from ..store.waits.rate_rule import PATIENCE
from .cluster import ray_module, session

logger = logging.getLogger("mindspore_replay.distributed")

#: Seconds between two looks at the shards by their learner.
_LOOK = 0.01


class InsertionFront:
    """Checks rows, and hands them to `store`, since they land later. `clock` returns the newest version of any."""

    def __init__(self, spec: BufferSpec, store: Callable[[NewRows], None], clock: Callable[[], int]) -> None:
        self.spec, self._store, self._clock = spec, store, clock

    def try_insert(self, *_: object) -> bool:
        """Return False: there is no faster way for rows that obviously fit."""
        return False

    def insert(self, *arguments: Any) -> None:
        """Check rows, and hand them on."""
        new = as_new_rows(self.spec.columns, self.spec.options, *arguments)
        with_indices = arguments[-1]
        if with_indices:
            raise RuntimeError(
                f"For '{self.spec.cls_name}', 'insert' cannot return handles: a shard stores the rows later."
            )
        if new.version is not None:
            check_versions(self.spec.cls_name, new.version, self._clock())
        self._store(new)


class ShardWriter:
    """Collects rows, and inserts them into one shard in batches.

    Make it with `ShardedReplay.writer`, and pass it to other Ray actors, each of which gets a separate copy. A batch is
    sent when `batch` rows are collected. With `in_flight` batches in transit, `insert` waits. Batches are inserted
    whole, in the order sent.

    If the buffer stores episodes, a batch grows until an episode ends, since batches of several writers alternate in a
    shard.

    If the shard's process dies, the batches in transit are lost. Later ones wait until it restarts, or go to the next
    shard if it does not. If the writer's process dies, its unsent rows are lost.

    Any thread of the process may use it. Others wait.

    Args:
        actors (Sequence[ActorHandle]): The shards.
        shard (int): Number of the shard to begin with.
        spec (BufferSpec): Columns, sizes and parts of a shard's buffer.
        batch (int): Rows to send at once.
        in_flight (int): Batches that may be in transit.
        timeout (Union[float, None]): Longest wait of an insertion for samples, in seconds, or ``None`` for no limit.
        own (Union[ShardCalls, None]): The calls of the learner's process, or ``None`` in another one.

    Attributes:
        shard (int): Number of the shard it inserts into.
        inserted (int): Rows inserted by the shards.
        lost (int): Rows in transit to a shard that died, or refused by a shard.
        waited (float): Seconds that `insert` and `flush` waited for the shard.

    Examples:
        >>> from mindspore_replay import create_buffer
        >>> config = {"type": "prioritized", "capacity": 1000, "sample_size": 4, "shapes": [()], "types": ["int32"]}
        >>> replay = create_buffer(config | {"shards": 2})
        >>> writer = replay.writer()  # give it to an actor of Ray; each gets a copy of its own
        >>> for step in range(100):
        ...     writer = writer.insert([step], priority=1.0)
        >>> print(writer.flush().inserted, writer.lost)
        100 0
        >>> replay.close()
    """

    spec: BufferSpec
    insert = add = BufferMethods.insert

    def __init__(
        self,
        actors: Sequence[Any],
        shard: int,
        spec: BufferSpec,
        batch: int,
        in_flight: int,
        timeout: float | None = None,
        own: Any = None,
    ) -> None:
        spec = spec.called("ShardWriter")
        describe(self, spec, InsertionFront(spec, self.collect, lambda: LAST_CLOCK))
        self.shard = shard
        self.inserted = self.lost = 0
        self.waited = 0.0
        self._actors, self._session, self._own = list(actors), session(), own
        self._batch, self._in_flight, self._timeout = self._settings = batch, in_flight, timeout
        self._lock = threading.RLock()
        #: Rows that are not sent yet: their number, and parts of them, by the numbers of columns and names of others.
        self.collected, self._parts = 0, list[dict[Any, np.ndarray]]()
        #: Batches in transit: an answer to come, rows, and the shard.
        self._sent: deque[tuple[Any, int, int]] = deque()
        #: After a lost batch, what the shard answers when it is there again. Ray sends later batches then, not before.
        self._there: Any = None

    def __reduce__(self) -> tuple[object, ...]:
        if self.collected or self._sent:
            raise TypeError(
                "For 'ShardWriter', a writer that is passed to another process must have no rows, but it has "
                f"{self.collected} collected and {self._in_transit} in transit: flush() it first."
            )
        return ShardWriter, (self._actors, self.shard, self.spec, *self._settings)

    def __repr__(self) -> str:
        return (
            f"ShardWriter(shard={self.shard}, inserted={self.inserted}, sent={self._in_transit}, "
            f"collected={self.collected}, lost={self.lost})"
        )

    def _check_open(self) -> None:
        """Raise a RuntimeError if the shards have ended. A call of one would start a cluster if Ray was shut down."""
        if self._own is not None:
            self._own.exchange.check_open()
        if session() is not self._session or not any(actor is not None for actor in self._actors):
            raise RuntimeError(
                "For 'ShardWriter', all shards have ended: their ShardedReplay was closed, or Ray was shut down. Make "
                "a new one, and a writer() of it."
            )

    def collect(self, new: NewRows) -> None:
        """Collect checked rows, and send a complete batch."""
        self._check_open()
        rows = new.batch.rows
        if rows == 0:
            return
        part: dict[Any, np.ndarray] = {}
        for i, (field, shape) in enumerate(zip(new.fields, self.spec.columns.shapes)):
            part[i] = bits(np.array(field.asnumpy() if is_tensor(field) else field)).reshape(rows, *shape)
        for key, given in (("priority", new.priority), ("ends", new.ends), ("version", new.version)):
            if given is not None:
                part[key] = np.array(np.broadcast_to(given, rows))
        with self._lock:
            if self._own is not None:
                self._own.busy.add(self)
            if self.collected and part.keys() != self._parts[-1].keys():
                self._send(self._whole())
                if self.collected:
                    raise ValueError(
                        "For 'ShardWriter', all rows of an episode must have a priority, or none of them, and the same "
                        "for a version."
                    )
            if self.collected + rows >= self._batch:
                self._await_room()  # before these rows are collected, so that a failed call can be repeated
            self._parts.append(part)
            self.collected += rows
            if self.collected >= self._batch:
                self._send(self._whole(waits=True))

    def _whole(self, waits: bool = False) -> int:
        """Return how many of the collected rows may be sent: all, or those of episodes that have ended.

        If it `waits`, the newest episode is kept while a final row may still follow.
        """
        rule = self.spec.options.rule
        if rule is None:
            return self.collected
        parts = list(self._parts)  # another thread may change them
        if not parts:
            return 0
        said, terminated = np.concatenate([part["ends"] for part in parts]), None
        if rule.terminated >= 0:
            terminated = np.concatenate([part[rule.terminated].reshape(-1) for part in parts]) != 0
        after = np.append(said[1:], np.uint8(FINAL if waits else 0))
        whole = np.flatnonzero(~continues(marks_of(rule, said, terminated), after))
        return int(whole[-1]) + 1 if whole.size else 0

    def _send(self, rows: int) -> None:
        if rows == 0:
            return
        self._await_room()
        whole = {key: np.concatenate([part[key] for part in self._parts]) for key in self._parts[0]}
        more = {key: array[:rows] for key, array in whole.items()}
        fields = [more.pop(i) for i in range(len(self.spec.columns.shapes))]
        if (ends := more.pop("ends", None)) is not None:
            more |= {"end": (ends & END) != 0, "final": (ends & FINAL) != 0}
        self._sent.append((self._insert(fields, rows, more), rows, self.shard))
        self.collected -= rows
        self._parts = [{key: array[rows:] for key, array in whole.items()}] if self.collected else []

    def _insert(self, *batch: object) -> object:
        return self._actors[self.shard].insert.remote(*batch, self._there)

    def _await_room(self) -> None:
        while len(self._sent) >= self._in_flight:
            self._await_oldest()

    def _await_oldest(self) -> None:
        """Wait for the oldest answer. A long wait is logged once."""
        self._check_open()
        (ref, rows, shard), start, seconds, said = self._sent[0], time.perf_counter(), 0.0, False
        limit = math.inf if self._timeout is None or self._there is not None else self._timeout
        look = PATIENCE if self._own is None else _LOOK
        try:
            while not ray_module().wait([ref], timeout=min(look, limit - seconds))[0]:
                seconds = time.perf_counter() - start
                self._check_open()
                if seconds >= limit:
                    raise TimeoutError(
                        f"For 'RateLimiter', {rows} rows could not be inserted within {limit:g} s; they are still in "
                        f"transit to shard {shard}. Sample rows first, or call disable() of the limiter while you fill "
                        "the buffer."
                    )
                if seconds >= PATIENCE and not said:
                    said = True
                    logger.warning(
                        "%d rows could not be inserted into shard %d for %g s: the wait ends when the learner samples, "
                        "if a limiter holds them back, or when the shard answers. A timeout of the limiter makes a "
                        "long wait an error.",
                        *(rows, shard, PATIENCE),
                    )
                if self._own is not None:
                    self._own.exchange.reports()  # which looks after the shards
        finally:
            self.waited += time.perf_counter() - start
        self._take_oldest()

    def _take_oldest(self) -> None:
        """Take the oldest answer, which is there."""
        ray, (ref, rows, shard) = ray_module(), self._sent.popleft()
        try:
            ray.get(ref)
            self.inserted, self._there = self.inserted + rows, None
        except ray.exceptions.RayTaskError as error:
            self.lost += rows
            raise error.cause from None
        except ray.exceptions.RayError as error:
            self.lost += rows
            logger.warning("shard %d has died, and %d rows on their way are lost", shard, rows)
            if shard != self.shard:
                return
            if isinstance(error, ray.exceptions.ActorDiedError):
                self._leave()
            else:
                self._there = self._actors[shard].report.remote()

    def _leave(self) -> None:
        """Go to the next shard, since this one will not restart."""
        self._actors[self.shard] = self._there = None
        left = [(self.shard + i) % len(self._actors) for i in range(len(self._actors))]
        self.shard = next((i for i in left if self._actors[i] is not None), self.shard)
        self._check_open()

    def end_episodes(self) -> int:
        """End the open episode of the collected rows. Its newest row becomes the last.

        If rows do not store next observations, that row is no longer sampled, as with `ReplayBuffer.end_episodes`.

        Returns:
            int: Episodes ended, 0 or 1.

        Raises:
            RuntimeError: If the buffer does not store episodes.
        """
        need_episodes(self.spec.options, "end_episodes")
        self._check_open()
        with self._lock:
            if self._whole() == self.collected:
                return 0
            self._parts[-1]["ends"][-1] |= END
            return 1

    def flush(self) -> "ShardWriter":
        """Send the collected rows, and wait until they are inserted.

        Rows of an open episode are kept until it ends.

        Returns:
            ShardWriter: The writer itself.

        Raises:
            TimeoutError: If too few rows are sampled within the limiter's timeout.
            RuntimeError: If no shard is left, for example after `close`.
        """
        with self._lock:
            self.send()
            while self._sent:
                self._await_oldest()
        return self

    def send(self) -> None:
        """Send the collected rows, without waiting until they are inserted."""
        self._check_open()
        with self._lock:
            self._send(self._whole())

    def has_landed(self, rows: int, seconds: float) -> bool:
        """Send the collected rows if there is room. Return True if so many rows, of all so far, landed or are lost.

        It waits so many seconds for each answer.
        """
        if not self._lock.acquire(timeout=seconds):  # another thread inserts, and may be waiting for samples itself
            return False
        try:
            for wait in (0.0, seconds):
                while self._sent and ray_module().wait([self._sent[0][0]], timeout=wait)[0]:
                    self._take_oldest()
                if len(self._sent) < self._in_flight:
                    self._send(self._whole())
            if self._own is not None and not (self._sent or self.collected):
                self._own.busy.discard(self)
            return self.inserted + self.lost >= rows
        finally:
            self._lock.release()

    @property
    def on_their_way(self) -> int:
        """Rows that are not inserted yet, apart from those of an open episode."""
        return self._in_transit + self._whole()

    @property
    def _in_transit(self) -> int:
        return sum(rows for _, rows, _ in list(self._sent))


def bits(array: np.ndarray) -> np.ndarray:
    """Return an array that a process without MindSpore can read: of bfloat16, which NumPy lacks, its bits as uint16."""
    return array.view(np.uint16) if array.dtype.kind == "V" else array
