"""What it costs that a buffer in a folder survives a loss of power, beside SQLite at the same promise.

    python benchmarks/durability.py [--folder DISK] [--rounds 5] [--rows 1000000] [--json FILE]
        [--torchrl PYTHON] [--reverb PYTHON]
    python benchmarks/durability.py --open 100000000 [--folder DISK]

Figures are medians of rounds in which each case runs once, one after the other:

- microseconds to insert one CartPole row after the other, and 256 pairs of Atari frames ten times a second (145 MB a
  second): in memory, in a folder, in one that a thread flushes every second, and in a mapped file of NumPy that a
  thread writes to the disk every second. Means by the clock, and of the processor with that of the thread;
- rows a second, and milliseconds a flush, with a flush after 1, 100 and 10,000 rows; SQLite commits where we flush, in
  a table of one blob a row, with a write-ahead log and `synchronous=FULL`;
- the same for torchrl and dm-reverb, if the interpreters of environments with them are given; see
  `comparison/processes/durable.py`;
- seconds to open a full buffer of `--rows` CartPole rows after a stop of the machine and after a death alone, by the
  clock and of the processor.

`--open` measures only how long it takes to open a full buffer of so many rows of one int64, uniform and by priority.

A folder on a file system in memory has nothing to flush: `--folder` must be on a disk.
"""

import argparse
import functools
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_replay.host import PrioritizedReplayBuffer, ReplayBuffer
from mindspore_replay.store.faces.local import LocalBuffer
from mindspore_replay.store.folder import folder as folder_module

CARTPOLE = [(4,), (), (), (4,), ()], ["float32", "int32", "float32", "float32", "bool"]
ATARI = [(84, 84, 4), (84, 84, 4), (), ()], ["uint8", "uint8", "int32", "float32"]
FLUSHES = (1, 100, 10_000)
#: Seconds that a case of a round takes at most, and one of insertion, which needs some flushes.
LONGEST, INSERTING = 0.5, 3.0
PEERS = Path(__file__).resolve().parent / "comparison" / "processes" / "durable.py"


def rows_of(columns: tuple[list[Any], list[str]], n: int) -> list[np.ndarray]:
    """Return n random rows."""
    random = np.random.default_rng(0)
    return [(255 * random.random((n, *shape))).astype(dtype) for shape, dtype in zip(*columns)]


def inserting(
    insert: Callable[[list[np.ndarray]], Any], flush: Callable[[], Any] | None, rows: list[np.ndarray], pause: float
) -> tuple[float, float]:
    """Return microseconds of an insertion, and of the processor; a thread flushes every second."""
    stops, spent, n, each = threading.Event(), 0.0, 0, 1 if pause else 1000

    def often() -> None:
        while flush is not None and not stops.wait(1.0):
            flush()

    thread = threading.Thread(target=often)
    thread.start()
    begin, processor = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < INSERTING:
        before = time.perf_counter()
        for _ in range(each):
            insert(rows)
        spent += time.perf_counter() - before
        n += each
        time.sleep(pause)
    processor = time.process_time() - processor
    stops.set()
    thread.join()
    return 1e6 * spent / n, 1e6 * processor / n


class Mapped:
    """Columns in one mapped file of NumPy, which has no promise at all.

    Args:
        path (Path): The file.
        columns (tuple): Shapes and dtypes.
        capacity (int): Rows.
    """

    def __init__(self, path: Path, columns: tuple[list[Any], list[str]], capacity: int) -> None:
        rows = np.dtype([(str(i), dtype, shape) for i, (shape, dtype) in enumerate(zip(*columns))])
        self.rows, self.next = np.memmap(path, rows, "w+", shape=(capacity,)), 0
        self.columns = [self.rows[name] for name in rows.names or ()]

    def insert(self, rows: list[np.ndarray]) -> None:
        """Copy rows, whose number divides the capacity."""
        n = len(rows[0])
        for column, values in zip(self.columns, rows):
            column[self.next : self.next + n] = values
        self.next = (self.next + n) % len(self.rows)


def flushing(insert: Callable[[int], None], flush: Callable[[], None], each: int) -> tuple[float, float]:
    """Return rows a second with a flush after each so many rows, and milliseconds of a flush."""
    rows, spent, begin = 0, 0.0, time.perf_counter()
    while rows == 0 or time.perf_counter() - begin < LONGEST:
        for _ in range(each):
            insert(rows)
            rows += 1
        before = time.perf_counter()
        flush()
        spent += time.perf_counter() - before
    return rows / (time.perf_counter() - begin), 1e3 * spent / (rows / each)


def peer(kind: str, python: str, parent: Path, each: int) -> tuple[float, float]:
    """Return what `flushing` does, of another library."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        command = [python, str(PEERS), kind, folder, str(each), str(LONGEST)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows, milliseconds = json.loads(next(line for line in lines if line.startswith("[")))
    return rows, milliseconds


def fill(cls: type[ReplayBuffer], folder: Path, columns: tuple[list[Any], list[str]], rows: int) -> None:
    """Make a folder with so many rows, whose learner died, and print how long its flushes take."""
    buffer: Any = cls(1, rows, *columns, storage=folder)  # type: ignore[call-arg, arg-type]
    chunk = rows_of(columns, min(rows, 100_000))
    for first in range(0, rows, 100_000):
        buffer.insert([column[: rows - first] for column in chunk])
    begin = time.perf_counter()
    buffer.flush()
    print(f"{cls.__name__}: first flush of {rows} rows: {time.perf_counter() - begin:.2f} s", flush=True)
    begin = time.perf_counter()
    buffer.insert([column[0] for column in chunk]).flush()
    print(f"{cls.__name__}: flush of one more row: {time.perf_counter() - begin:.3f} s", flush=True)
    buffer._front.calls.detach()


def opening(parent: Path, rows: int, rounds: int) -> None:
    """Print how long it takes to open a full buffer of so many rows."""
    for cls in (ReplayBuffer, PrioritizedReplayBuffer):
        fill(cls, parent / cls.__name__, ([()], ["int64"]), rows)
        for name, stopped in (("a stop", True), ("a death", False)):
            found = [opened(parent / cls.__name__, stopped) for _ in range(rounds)]
            clock, processor = (statistics.median(column) for column in zip(*found))
            print(f"{cls.__name__}: opened after {name}: {clock:.2f} s, {processor:.2f} s of the processor", flush=True)


def opened(folder: Path, stopped: bool) -> tuple[float, float]:
    """Return the seconds to open a folder, and those of the processor."""
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


def all_cases(parent: Path, rows: int, peers: Mapping[str, str]) -> dict[str, Callable[[], Any]]:
    """Return what is measured, by name."""
    measured: dict[str, Callable[[], Any]] = {}
    for name, columns, capacity, n, pause in (
        ("one CartPole row", CARTPOLE, 100_000, 1, 0.0),
        ("256 Atari pairs", ATARI, 4096, 256, 0.1),
    ):
        batch = [column[0] if n == 1 else column for column in rows_of(columns, n)]
        places = {"memory": "host", "folder": parent / f"plain {n}", "folder, flushed": parent / f"fl {n}"}
        buffers = {place: ReplayBuffer(1, capacity, *columns, storage=storage) for place, storage in places.items()}
        cases = {place: (b.insert, b.flush if "flushed" in place else None) for place, b in buffers.items()}
        if n > 1:
            mapped = Mapped(parent / "mapped", columns, capacity)
            cases["NumPy, flushed"] = mapped.insert, mapped.rows.flush
        for place, calls in cases.items():
            for _ in range(2 * capacity // n):
                calls[0](batch)
            title = f"us to insert {name}: {place}"
            measured[title] = functools.partial(inserting, *calls, batch, pause)
    one = [column[0] for column in rows_of(CARTPOLE, 1)]
    blob = b"".join(column.tobytes() for column in one)
    for each in FLUSHES:
        for cls in (ReplayBuffer, PrioritizedReplayBuffer):
            buffer = cls(1, 100_000, *CARTPOLE, storage=parent / f"{cls.__name__} {each}")
            measured[f"rows/s and ms a flush, after {each}: {cls.__name__}"] = lambda b=buffer, e=each: flushing(
                lambda _: b.insert(one), b.flush, e
            )
        for kind, python in peers.items():
            title = f"rows/s and ms to the disk, after {each}: {kind}"
            measured[title] = functools.partial(peer, kind, python, parent, each)
        base = sqlite3.connect(parent / f"{each}.sqlite", isolation_level=None)
        base.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE r (i INTEGER PRIMARY KEY, b)"
        )
        base.execute("BEGIN")

        def commit(base: sqlite3.Connection = base) -> None:
            base.execute("COMMIT")
            base.execute("BEGIN")

        def put(i: int, base: sqlite3.Connection = base) -> None:
            base.execute("INSERT OR REPLACE INTO r VALUES (?, ?)", (i % 100_000, blob))

        measured[f"rows/s and ms a flush, after {each}: SQLite"] = lambda p=put, c=commit, e=each: flushing(p, c, e)
    fill(PrioritizedReplayBuffer, parent / "big", CARTPOLE, rows)
    for name, stopped in (("a stop", True), ("a death", False)):
        measured[f"s to open {rows} rows after {name}"] = lambda s=stopped: opened(parent / "big", s)
    return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(description="Measure what durability costs.")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--torchrl", metavar="PYTHON")
    parser.add_argument("--reverb", metavar="PYTHON")
    parser.add_argument("--open", type=int, metavar="ROWS")
    args = parser.parse_args(arguments)
    if args.open:
        with tempfile.TemporaryDirectory(dir=args.folder) as parent:
            opening(Path(parent), args.open, args.rounds)
        return 0
    peers = {kind: python for kind, python in (("torchrl", args.torchrl), ("reverb", args.reverb)) if python}
    found: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory(dir=args.folder) as parent:
        measured = all_cases(Path(parent), args.rows, peers)
        for _ in range(args.rounds):
            for name, measure in measured.items():
                found.setdefault(name, []).append(measure())
    for name, values in found.items():
        medians = [statistics.median(column) for column in zip(*(v if isinstance(v, tuple) else (v,) for v in values))]
        print(name.ljust(70), *(f"{median:12,.3f}" for median in medians))
    if args.json:
        Path(args.json).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
