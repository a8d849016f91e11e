"""What it costs one library that rows survive a loss of power, beside SQLite at the same promise.

    python -m comparison.durable folder|priority|memory|flushed|mapped|sqlite

Measured are the microseconds to insert one CartPole row after the other, and 256 pairs of Atari frames ten times a
second (145 MB a second), by the clock and of the processor, in a buffer that a thread flushes every second or in one
that nobody flushes; rows a second, and milliseconds, with all rows on the disk after each 1, 100 and 10,000; and the
seconds to open a full buffer after a stop of the machine and after a death alone. SQLite commits where a buffer is
flushed, in a table of one blob a row, with a write-ahead log and `synchronous=FULL`.

Files are in the working directory, which must be on a disk: one in memory has nothing to flush.
"""

import os
import sqlite3
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .answering import Library, NotOfferedError, figures
from .rounds import Question

CAPACITY = 100_000
NAMES = ["observation", "action", "reward", "next_observation", "terminated"]
Columns = tuple[list[Any], list[str]]
CARTPOLE: Columns = [(4,), (), (), (4,), ()], ["float32", "int32", "float32", "float32", "bool"]
ATARI: Columns = [(84, 84, 4), (84, 84, 4), (), ()], ["uint8", "uint8", "int32", "float32"]
SIZES = {"small": (CARTPOLE, CAPACITY, 1, 0.0), "frames": (ATARI, 4096, 256, 0.1)}
#: Rows of a buffer of one int64 whose opening is measured on request alone.
LARGE = 100_000_000
TO_DISK, OPEN = "rows on the disk", "a full buffer is opened"


QUESTIONS = [
    Question("insert_small", "one CartPole row after the other", "", {"what": "insert", "size": "small"}),
    Question("insert_frames", "256 Atari pairs, ten times a second", "", {"what": "insert", "size": "frames"}),
    *(Question(f"disk_{n}", TO_DISK, f"after each {n:,}", {"what": "disk", "each": n}) for n in (1, 100, 10_000)),
    Question("open", OPEN, "1,000,000 CartPole rows", {"what": "opening", "rows": 1_000_000}),
    Question("open_large", OPEN, f"{LARGE:,} rows of one int64", {"what": "opening", "rows": LARGE}, False),
]


def rows_of(columns: Columns, n: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [(255 * random.random((n, *shape))).astype(dtype) for shape, dtype in zip(*columns)]


class Ours:
    """A buffer in memory or in a folder, uniform or by priority, flushed by a thread each second or not."""

    packages = ("mindspore_replay", "numpy")
    inserts = True

    def __init__(self, name: str) -> None:
        from mindspore_replay import host

        self._name, self._cls = name, host.PrioritizedReplayBuffer if name == "priority" else host.ReplayBuffer

    def _make(self, columns: Columns, capacity: int, folder: Path) -> Any:
        return self._cls(1, capacity, *columns, storage="host" if self._name == "memory" else folder / "rows")

    def inserting(self, columns: Columns, capacity: int, folder: Path) -> tuple[Any, Any]:
        if self._name == "priority":
            raise NotOfferedError("")
        buffer = self._make(columns, capacity, folder)
        return buffer.insert, buffer.flush if self._name == "flushed" else None

    def to_disk(self, folder: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
        if self._name not in ("folder", "priority"):
            raise NotOfferedError("")
        buffer, row = self._make(CARTPOLE, CAPACITY, folder), [column[0] for column in rows_of(CARTPOLE, 1)]
        return lambda: buffer.insert(row), buffer.flush

    def opening(self, rows: int, folder: Path) -> dict[str, float]:
        """Fill a folder, whose learner then dies; open it."""
        if self._name not in ("folder", "priority"):
            raise NotOfferedError("")
        columns: Columns = ([()], ["int64"]) if rows == LARGE else CARTPOLE
        buffer, chunk = self._make(columns, rows, folder), rows_of(columns, min(rows, 100_000))
        for first in range(0, rows, 100_000):
            buffer.insert([column[: rows - first] for column in chunk])
        begin = time.perf_counter()
        buffer.flush()
        found = {"s, first flush": time.perf_counter() - begin}
        begin = time.perf_counter()
        buffer.insert([column[0] for column in chunk]).flush()
        found["s, flush of one more row"] = time.perf_counter() - begin
        buffer._front.calls.detach()
        del buffer
        for name, stopped in (("after a stop", True), ("after a death", False)):
            clock, processor = self._opened(folder / "rows", stopped)
            found |= {f"s, {name}": clock, f"s of the processor, {name}": processor}
        return found

    @staticmethod
    def _opened(folder: Path, stopped: bool) -> tuple[float, float]:
        from mindspore_replay.store.faces.local import LocalBuffer
        from mindspore_replay.store.folder import folder as folder_module

        boot = folder_module._this_boot
        if stopped:
            folder_module._this_boot = lambda: np.frombuffer(os.urandom(40), np.uint8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begin, processor = time.perf_counter(), time.process_time()
            buffer: Any = LocalBuffer.open(folder)
            seconds = time.perf_counter() - begin, time.process_time() - processor
        folder_module._this_boot = boot
        buffer._front.shared.folder.arrays["shared.boot"][:] = boot()
        buffer._front.calls.detach()
        return seconds


class Mapped:
    """Columns in one mapped file of NumPy, which has no promise at all, flushed by a thread each second."""

    packages = ("numpy",)

    def inserting(self, columns: Columns, capacity: int, folder: Path) -> tuple[Any, Any]:
        if columns is CARTPOLE:
            raise NotOfferedError("")
        rows = np.dtype([(str(i), dtype, shape) for i, (shape, dtype) in enumerate(zip(*columns))])
        mapped, following = np.memmap(folder / "mapped", rows, "w+", shape=(capacity,)), 0

        def insert(batch: list[np.ndarray]) -> None:
            nonlocal following
            n = len(batch[0])
            for name, values in zip(rows.names or (), batch):
                mapped[name][following : following + n] = values
            following = (following + n) % capacity

        return insert, mapped.flush


class SQLite:
    """A blob a row."""

    packages = ()

    def to_disk(self, folder: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
        base = sqlite3.connect(folder / "sqlite", isolation_level=None)
        base.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
        base.execute("CREATE TABLE r (i INTEGER PRIMARY KEY, b)")
        base.execute("BEGIN")
        blob, numbers = b"".join(column.tobytes() for column in rows_of(CARTPOLE, 1)), iter(range(1 << 60))

        def commit() -> None:
            base.execute("COMMIT")
            base.execute("BEGIN")

        return lambda: base.execute("INSERT OR REPLACE INTO r VALUES (?, ?)", (next(numbers) % CAPACITY, blob)), commit


class Measured(Library):
    """Measures one of them, each time in a new folder."""

    def __init__(self, name: str) -> None:
        others = {"mapped": Mapped, "sqlite": SQLite}
        self._library: Any = others[name]() if name in others else Ours(name)
        self.packages = self._library.packages

    def measure(self, what: str, seconds: float, size: str = "", each: int = 0, rows: int = 0) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=".") as place:
            folder = Path(place).resolve()
            method = {"insert": "inserting", "disk": "to_disk", "opening": "opening"}[what]
            if not hasattr(self._library, method):
                raise NotOfferedError("")
            if what == "opening":
                return self._library.opening(rows, folder)
            if what == "disk":
                return self._disk(*self._library.to_disk(folder), each, seconds)
            columns, capacity, n, pause = SIZES[size]
            insert, flush = self._library.inserting(columns, capacity, folder)
            batch = [column[0] if n == 1 else column for column in rows_of(columns, n)]
            for _ in range(2 * capacity // n):
                insert(batch)
            return self._insert(lambda: insert(batch), flush, max(3.0, seconds), pause)

    @staticmethod
    def _insert(insert: Callable[[], Any], flush: Any, seconds: float, pause: float) -> dict[str, float]:
        """Insert; a thread flushes every second."""
        stops, spent, n, each = threading.Event(), 0.0, 0, 1 if pause else 1000

        def often() -> None:
            while flush is not None and not stops.wait(1.0):
                flush()

        thread = threading.Thread(target=often)
        thread.start()
        begin, processor = time.perf_counter(), time.process_time()
        while time.perf_counter() - begin < seconds:
            before = time.perf_counter()
            for _ in range(each):
                insert()
            spent += time.perf_counter() - before
            n += each
            time.sleep(pause)
        processor = time.process_time() - processor
        stops.set()
        thread.join()
        return {"us": 1e6 * spent / n, "us of the processor": 1e6 * processor / n}

    @staticmethod
    def _disk(insert: Callable[[], Any], write: Callable[[], Any], each: int, seconds: float) -> dict[str, float]:
        """Insert rows, and bring them to the disk after each so many."""
        rows, spent, begin = 0, 0.0, time.perf_counter()
        while rows == 0 or time.perf_counter() - begin < seconds:
            for _ in range(each):
                insert()
            rows += each
            before = time.perf_counter()
            write()
            spent += time.perf_counter() - before
        return {"rows/s": rows / (time.perf_counter() - begin), "ms": 1e3 * spent / (rows / each)}


if __name__ == "__main__":
    figures(Measured(sys.argv[1]))
