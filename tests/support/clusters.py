"""A Ray cluster of this machine, and helpers that tests of sharded buffers run in its processes."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from ray import cloudpickle
from scipy.stats import chi2

from mindspore_replay.distributed import ShardedReplay, ShardWriter

# Ray's processes cannot import the tests' modules.
cloudpickle.register_pickle_by_value(__import__(__name__))

WIDTH = 300
#: Seconds before a test gives up waiting; no correct program takes as long on a busy machine.
PATIENCE = 600.0


def config(kind: str = "uniform", **more: Any) -> dict[str, Any]:
    """Return the configuration of two shards, whose rows hold a number, and the number again, wide enough to be torn.

    Timeouts are long: a machine that runs tests is busy.
    """
    return {
        "type": kind,
        "capacity": 200,
        "sample_size": 8,
        "names": ["number", "wide"],
        "data_shape": [[], [WIDTH]],
        "data_type": ["int32", "int32"],
        "shards": {"number": 2, "timeout": 60.0},
        "seed": 0,
        **more,
    }


def rows(numbers: Iterable[int]) -> list[np.ndarray]:
    """Return rows with these numbers."""
    column = np.fromiter(numbers, np.int32)
    return [column, np.repeat(column[:, None], WIDTH, 1)]


def fill(replay: ShardedReplay, shard: int, numbers: Iterable[int], **more: Any) -> None:
    """Insert rows into one shard."""
    replay.writer(shard).insert(rows(numbers), **more).flush()


def numbers_of(batch: Any) -> np.ndarray:
    """Return the numbers of rows; check that each row is whole."""
    number, wide = (part.asnumpy() for part in batch[-2:])
    np.testing.assert_array_equal(wide, np.repeat(number[..., None], WIDTH, -1))
    return number


def assert_distribution(draws: np.ndarray, weights: dict[int, float]) -> None:
    """Check by chi-square that numbers are drawn by weight; a right sampler fails once in ten thousand times."""
    numbers = np.array(list(weights))
    expected = np.array(list(weights.values())) / sum(weights.values()) * draws.size
    assert expected.min() >= 25, f"{draws.size} draws are too few"
    counts = (draws.reshape(-1, 1) == numbers).sum(0)
    assert counts.sum() == draws.size, f"numbers that cannot be: {set(draws.flat) - set(numbers)}"
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < chi2.ppf(0.9999, len(numbers) - 1), f"{statistic}: {counts} instead of {expected}"


def process_of(replay: ShardedReplay, shard: int) -> int:
    """Return the process number of a shard."""
    link = replay._exchange.all[shard]
    return replay._ray.get(link.actor.__ray_call__.remote(lambda _: os.getpid()))


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Poll until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.05)


class Writing:
    """A process that inserts rows with ascending numbers, a few at a time."""

    def __init__(self, writer: ShardWriter, first: int, last: int, modulo: int, priorities: int = 0) -> None:
        self.writer, self.first, self.last = writer, first, last
        self.modulo, self.priorities = modulo, priorities
        self.next = first

    def run(self, seconds: float, at_once: int = 5) -> int:
        """Insert for some time, or until the last number is in. Return the next number."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.next < self.last:
            self.step(at_once)
        self.writer.flush()
        return self.next

    def step(self, at_once: int) -> None:
        """Insert once."""
        numbers = np.arange(self.next, min(self.next + at_once, self.last), dtype=np.int32) % self.modulo
        more = {"priority": 1.0 + numbers % self.priorities} if self.priorities else {}
        wide = np.repeat(numbers[:, None], 300, 1)
        self.writer.insert([numbers, wide], **more)
        self.next += len(numbers)

    def landed(self) -> int:
        """Return the rows that have landed."""
        return self.writer.inserted

    def lost(self) -> int:
        """Return the rows that were lost."""
        return self.writer.lost

    def place(self) -> int:
        """Return the shard."""
        return self.writer.shard

    def process(self) -> int:
        return os.getpid()
