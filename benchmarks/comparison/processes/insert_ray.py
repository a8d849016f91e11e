"""Ray: an actor that holds a ring of NumPy arrays, and actors that insert into it, one row for each call."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import ray

from ..cases import CARTPOLE
from ..peers.numpy_ring import Ring
from .team import AHEAD, CAPACITY, Held, inserting, serve, work_for


@ray.remote(num_cpus=0)
class Holder(Ring):
    """A process with the rows."""

    def stored(self) -> int:
        """Return the number of rows."""
        return self.size


@ray.remote(num_cpus=0)
class Writer:
    """A process that inserts."""

    def work(self, holder: Any, start: float, seconds: float) -> tuple[int, float]:
        """Insert for some seconds."""
        return work_for(inserting(lambda row: ray.get(holder.insert.remote(row))), start, seconds)


class Team:
    """Writers as actors."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder
        self._writers: list[Any] = []

    def work(self, writers: int, seconds: float) -> list[tuple[int, float]]:
        """Let the first writers work at the same time; return rows and seconds of each."""
        while len(self._writers) < writers:
            self._writers.append(Writer.remote())
            ray.get(self._writers[-1].work.remote(self._holder, time.monotonic(), 0.1))
        start = time.monotonic() + AHEAD
        running = [writer.work.remote(self._holder, start, seconds) for writer in self._writers[:writers]]
        return ray.get(running)

    def close(self) -> None:
        """End Ray."""
        ray.shutdown()


@contextlib.contextmanager
def hold() -> Iterator[Held]:
    """Make the buffer."""
    ray.init(include_dashboard=False, log_to_driver=False)
    holder = Holder.remote(CARTPOLE, CAPACITY)
    yield Team(holder), lambda: ray.get(holder.stored.remote())


if __name__ == "__main__":
    serve(["ray", "numpy"], hold)
