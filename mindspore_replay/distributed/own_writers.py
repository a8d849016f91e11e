"""The writers in the learner's process: the learner sends their rows, and awaits them."""

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

from .exchange import Exchange
from .writer import Schema, ShardWriter

#: Seconds between two looks at the shards while rows wait for them, or the limiter lets nothing be sampled.
POLL = 0.005


class OwnWriters:
    """Makes writers, and lands their rows.

    Args:
        exchange (Exchange): Asks the shards.
        schema (Schema): What they take.
        batch (int): As for `ShardWriter`.
        in_flight (int): As for `ShardWriter`.

    Attributes:
        busy (set[OwnWriter]): Those that have rows which have not landed.
    """

    def __init__(self, exchange: Exchange, schema: Schema, batch: int, in_flight: int) -> None:
        self.exchange, self.schema, self.batch, self.in_flight = exchange, schema, batch, in_flight
        self.busy: set[OwnWriter] = set()
        self._each: list[OwnWriter] = []
        self._next = -1
        self._inserting = threading.RLock()
        #: Comes before the lock of a writer, and `Exchange`'s after it.
        self.landing = threading.RLock()

    def make(self, shard: int) -> "OwnWriter":
        """Make a writer that begins with this shard."""
        return OwnWriter(self, shard)

    def insert(self, exp: Any, **more: Any) -> None:
        """Insert by one writer a shard: the next begins when one has sent what it collected."""
        with self._inserting:
            if not self._each:
                self._each = [self.make(link.number) for link in self.exchange.links.all]
            if self._next < 0 or not self._each[self._next].collected:
                self._next = (self._next + 1) % len(self._each)
            self._each[self._next].insert(exp, **more)

    def land(self) -> None:
        """Send what is collected, and wait until it has landed, if it can."""
        with self.landing:
            while going := {writer.shard for writer in list(self.busy) if not writer.has_landed(POLL)}:
                reports = self.exchange.reports()
                going &= {link.number for link in reports}
                held = {link.number for link, told in reports.items() if told.inserted + told.wanted > link.allowed}
                # Those that wait for samples, or whose shard does not answer, are left on their way.
                if not going or (going <= held and not self.exchange.takes_back):
                    return

    @property
    def on_their_way(self) -> int:
        """Rows that have not landed, but for those of episodes that go on."""
        return sum(writer.on_their_way for writer in list(self.busy))


class OwnWriter(ShardWriter):
    """One in the learner's process: while it waits the shards are looked after, or nobody might grant it anything.

    The learner sends its rows and awaits them, in whichever thread. In another process it is a `ShardWriter`.
    """

    def __init__(self, group: OwnWriters, shard: int) -> None:
        actors = [link.actor for link in group.exchange.links.all]
        super().__init__(actors, shard, group.schema, group.batch, group.in_flight)
        self._group = group
        self._using = threading.RLock()

    def insert(self, exp: Any, **more: Any) -> "OwnWriter":
        """Collect rows, and send what is enough, while no other thread uses the writer."""
        with self._in_turn():
            self._group.busy.add(self)
            super().insert(exp, **more)
        return self

    def flush(self) -> "OwnWriter":
        """Send what is collected and wait until it has landed, while no other thread uses the writer."""
        with self._in_turn():
            super().flush()
        return self

    def send(self) -> None:
        """Send what is collected, while no other thread uses the writer."""
        with self._using:
            super().send()

    def landed(self, seconds: float) -> bool:
        """Return True if all that was sent has landed, or does in so many seconds."""
        with self._using:
            return super().landed(seconds)

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        with self._group.landing:  # who awaits all rows comes before more of them
            pass
        with self._using:
            yield

    def has_landed(self, seconds: float) -> bool:
        """Send what is collected, if there is room; whether all has landed, or does in so many seconds."""
        if not self._using.acquire(timeout=seconds):  # another thread inserts, and may itself wait for samples
            return False
        try:
            self._group.exchange.outdated = True
            self.landed(0.0)
            if self.has_room:
                self.send()
            if not self.landed(seconds) or self.on_their_way:
                return False
            if not self.collected:
                self._group.busy.discard(self)
            return True
        finally:
            self._using.release()

    def _arrived(self, ref: Any, seconds: float | None) -> bool:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while not super()._arrived(ref, POLL):
            if time.monotonic() > deadline:
                return False
            self._group.exchange.reports()
        return True
