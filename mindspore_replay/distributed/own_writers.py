"""The writers of the learner's process, whose rows the learner itself sends and waits for."""

import threading
from typing import Any

from ..store.rows.inputs import NewRows
from .exchange import Exchange
from .writer import ShardWriter

#: Seconds between two requests to the shards while rows are in transit, or the limiter blocks samples.
POLL = 0.005


class OwnWriters:
    """Makes writers, and waits until their rows have landed, that is, until the shards have inserted them.

    Args:
        exchange (Exchange): Sends requests to the shards.
        *settings (Any): The arguments of a `ShardWriter` from `spec` to `timeout`.

    Attributes:
        busy (set[ShardWriter]): Writers with rows that have not landed.
    """

    def __init__(self, exchange: Exchange, *settings: Any) -> None:
        self.exchange = exchange
        self._settings = *settings, self
        self.busy: set[ShardWriter] = set()
        self._each: list[ShardWriter] = []
        self._next = -1
        self._inserting = threading.RLock()

    def make(self, shard: int) -> ShardWriter:
        """Make a writer that begins with this shard."""
        return ShardWriter([link.actor for link in self.exchange.links.all], shard, *self._settings)

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
        """Send the rows collected so far, and wait until they have landed.

        It does not wait for rows that the limiter holds back, or whose shard does not answer.
        """
        exchange = self.exchange
        exchange.links.check_open()
        going = {writer: writer.inserted + writer.lost + writer.on_their_way for writer in list(self.busy)}
        exchange.outdated |= bool(going)
        while going := {writer: rows for writer, rows in going.items() if not writer.has_landed(rows, POLL)}:
            answering = {link.number for link in exchange.reports()}
            if {writer.shard for writer in going} & answering <= exchange.blocked():
                return

    @property
    def on_their_way(self) -> int:
        """Rows that have not landed, apart from those of open episodes."""
        return sum(writer.on_their_way for writer in list(self.busy))
