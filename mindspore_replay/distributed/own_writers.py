"""The writers of the learner's process, whose rows the learner itself sends and waits for."""

import contextlib
import math
import threading
import time
from collections.abc import Iterator

from ..store.rows.inputs import NewRows
from ..store.spec.spec import BufferSpec
from .exchange import Exchange
from .writer import ShardWriter

#: Seconds between two requests to the shards while rows are in transit, or the limiter blocks samples.
POLL = 0.005


class OwnWriters:
    """Makes writers, and waits until their rows have landed, that is, until the shards have inserted them.

    Args:
        exchange (Exchange): Sends requests to the shards.
        spec (BufferSpec): What the buffer of a shard is.
        batch (int): As for `ShardWriter`.
        in_flight (int): As for `ShardWriter`.
        timeout (Union[float, None]): As for `ShardWriter`.

    Attributes:
        busy (set[OwnWriter]): Writers with rows that have not landed.
    """

    def __init__(self, exchange: Exchange, spec: BufferSpec, batch: int, in_flight: int, timeout: float | None) -> None:
        self.exchange, self.batch = exchange, batch
        self.settings = spec, batch, in_flight, timeout
        self.busy: set[OwnWriter] = set()
        self._each: list[OwnWriter] = []
        self._next = -1
        self._inserting = threading.RLock()
        #: Lock order: this one, then that of a writer, then that of `Exchange`.
        self.landing = threading.RLock()

    def make(self, shard: int) -> "OwnWriter":
        """Make a writer that begins with this shard."""
        return OwnWriter(self, shard)

    def insert(self, new: NewRows) -> None:
        """Insert into one shard until a batch is sent, then into the next."""
        with self._inserting:
            if not self._each:
                self._each = [self.make(link.number) for link in self.exchange.links.all]
            if self._next < 0 or not self._each[self._next].collected:
                self._next = (self._next + 1) % len(self._each)
            self._each[self._next].collect(new)

    def end_episodes(self) -> int:
        """End the open episodes of rows that `insert` collected."""
        with self._inserting:
            return sum(writer.end_episodes() for writer in self._each)

    def land(self) -> None:
        """Send the collected rows, and wait until they have landed, unless they are blocked."""
        self.exchange.links.check_open()
        with self.landing:
            while going := {writer.shard for writer in list(self.busy) if not writer.has_landed(POLL)}:
                reports = self.exchange.reports()
                going &= {link.number for link in reports}
                blocked = {link.number for link, told in reports.items() if told.inserted + told.wanted > link.allowed}
                # Do not wait for rows that the limiter holds back, or whose shard does not answer.
                if not going or (going <= blocked and not self.exchange.takes_back):
                    return

    @property
    def on_their_way(self) -> int:
        """Rows that have not landed, apart from those of open episodes."""
        return sum(writer.on_their_way for writer in list(self.busy))


class OwnWriter(ShardWriter):
    """A writer in the learner's process. While it waits, it lets the exchange distribute the insertion quota.

    Any thread of the process may send its rows and wait for them. In another process it becomes a `ShardWriter`.
    """

    def __init__(self, group: OwnWriters, shard: int) -> None:
        actors = [link.actor for link in group.exchange.links.all]
        super().__init__(actors, shard, *group.settings)
        self._group = group
        self._using = threading.RLock()

    def _collect(self, new: NewRows) -> None:
        """Collect rows, and send a complete batch. Other threads wait."""
        with self._in_turn():
            self._group.busy.add(self)
            super()._collect(new)

    #: `OwnWriters` calls it with rows that are already checked.
    collect = _collect

    def end_episodes(self) -> int:
        """End the open episode of the collected rows. Other threads wait."""
        with self._in_turn():
            return super().end_episodes()

    def flush(self) -> "OwnWriter":
        """Send the collected rows and wait until they have landed. Other threads wait."""
        with self._in_turn():
            super().flush()
        return self

    def send(self) -> None:
        """Send the collected rows. Other threads wait."""
        self._check_open()
        with self._using:
            super().send()

    def _check_open(self) -> None:
        self._group.exchange.links.check_open()

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        self._check_open()
        with self._group.landing:  # a thread that waits for all rows has precedence
            pass
        with self._using:
            yield

    def has_landed(self, seconds: float) -> bool:
        """Send the collected rows if there is room. Return True if all have landed, now or within so many seconds."""
        if not self._using.acquire(timeout=seconds):  # another thread inserts, and may be waiting for samples itself
            return False
        try:
            self._group.exchange.outdated = True
            self._await_sent(0.0)
            if self.has_room:
                self.send()
            self._await_sent(seconds)
            if self.on_their_way:
                return False
            if not self.collected:
                self._group.busy.discard(self)
            return True
        finally:
            self._using.release()

    def _arrived(self, ref: object, seconds: float | None) -> bool:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while not super()._arrived(ref, POLL):
            self._check_open()
            if time.monotonic() > deadline:
                return False
            self._group.exchange.reports()
        return True

    def _await_sent(self, seconds: float) -> None:
        """Count rows that have landed, and wait so many seconds for each batch."""
        while self._sent and super()._arrived(self._sent[0][0], seconds):
            self._await_oldest()
