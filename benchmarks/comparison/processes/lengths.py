"""Rows of two columns that differ in length, in one library: its rates of writing and reading, and its memory.

    python -m comparison.processes.lengths memory|folder|list|torchrl|transfer_queue

Reads questions from standard input, `put_1`, `put_256`, `get_8` or `memory`, a line each, and answers with a line of
JSON: rows a second, or bytes of memory for each byte of payload; the first line has the versions.
"""

import importlib.metadata
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

#: Rows that a library holds, and the longest; `lengths` has their logarithms' mean and deviation.
ROWS, LONGEST, MEDIAN, DEVIATION = 20_000, 4096, 500, 0.8
#: Different rows that are put again and again, and seconds of a measurement.
DIFFERENT, SECONDS = 1024, 1.0
Row = tuple[np.ndarray, np.ndarray]


def lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    """Return lengths from a log-normal."""
    return np.clip(rng.lognormal(np.log(MEDIAN), DEVIATION, count), 1, LONGEST).astype(int)


def rows(count: int) -> list[Row]:
    """Return rows of random tokens and log-probabilities."""
    rng = np.random.default_rng(0)
    sizes = lengths(count, rng)
    return [(rng.integers(50_000, size=n, dtype=np.int32), rng.random(n, np.float32)) for n in sizes]


class Library(Protocol):
    """A library under test. It holds `ROWS` rows, and new ones take the place of the oldest."""

    packages: Sequence[str]

    def convert(self, row: Row) -> Any:
        """Return a row as the library takes it; this is not measured."""

    def put(self, batch: list[Any]) -> None:
        """Store rows that `convert` has made."""

    def get(self) -> Any:
        """Return 8 random rows."""


class Ours:
    """This project's buffer on arrays, in memory or in a folder in shared memory. 8 rows come packed."""

    packages = ("mindspore_replay", "numpy")

    def __init__(self, storage: str) -> None:
        from mindspore_replay.host import Column, ReplayBuffer

        items = int(1.02 * lengths(ROWS, np.random.default_rng(0)).sum())
        self.buffer = ReplayBuffer(
            8,
            ROWS,
            columns={
                "tokens": Column((None,), "int32", longest=LONGEST, items=items),
                "log_probs": Column((None,), "float32", lengths_of="tokens"),
            },
            storage=storage,
        )

    def convert(self, row: Row) -> Row:
        return row

    def put(self, batch: list[Row]) -> None:
        if len(batch) == 1:
            self.buffer.insert(list(batch[0]))
        else:
            self.buffer.insert([[tokens for tokens, _ in batch], [logs for _, logs in batch]])

    def get(self) -> Any:
        return self.buffer.sample_packed()


class Plain:
    """A list of rows in this process, which keeps the arrays that it gets. 8 rows are packed by NumPy."""

    packages = ("numpy",)

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.next, self.rng = 0, np.random.default_rng(0)

    def convert(self, row: Row) -> Row:
        return row[0].copy(), row[1].copy()

    def put(self, batch: list[Row]) -> None:
        for row in batch:
            if len(self.rows) < ROWS:
                self.rows.append(row)
            else:
                self.rows[self.next] = row
                self.next = (self.next + 1) % ROWS

    def get(self) -> Any:
        drawn = [self.rows[i] for i in self.rng.integers(len(self.rows), size=8)]
        offsets = np.cumsum([0, *(len(tokens) for tokens, _ in drawn)], dtype=np.int32)
        return offsets, np.concatenate([t for t, _ in drawn]), np.concatenate([logs for _, logs in drawn])


class TorchRL:
    """torchrl's `LazyStackStorage`, which keeps the tensors that it gets. 8 rows are a lazy stack, without a copy."""

    packages = ("torchrl", "tensordict", "torch")

    def __init__(self) -> None:
        import torch
        from tensordict import TensorDict
        from torchrl.data import LazyStackStorage, ReplayBuffer

        torch.set_num_threads(1)
        self.buffer = ReplayBuffer(storage=LazyStackStorage(ROWS), batch_size=8)
        self.make, self.tensor = TensorDict, torch.from_numpy

    def convert(self, row: Row) -> Any:
        return self.make({"tokens": self.tensor(row[0]).clone(), "log_probs": self.tensor(row[1]).clone()}, [])

    def put(self, batch: list[Any]) -> None:
        if len(batch) == 1:
            self.buffer.add(batch[0])
        else:
            self.buffer.extend(batch)

    def get(self) -> Any:
        return self.buffer.sample()


class TransferQueue:
    """TransferQueue's `SimpleStorage`, one node, two storage units, as by default. 8 rows come as nested tensors."""

    packages = ("TransferQueue", "ray", "torch")

    def __init__(self) -> None:
        import ray
        import torch
        import transfer_queue
        from tensordict import TensorDict

        torch.set_num_threads(1)
        ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)  # its actors wait for a CPU each
        transfer_queue.init()
        self.queue, self.make, self.tensor = transfer_queue, TensorDict, torch.from_numpy
        self.nested = torch.nested.as_nested_tensor
        self.jagged = torch.jagged
        self.keys: list[str] = []
        self.count, self.rng = 0, np.random.default_rng(0)

    def convert(self, row: Row) -> Any:
        return tuple(map(self.tensor, row))

    def put(self, batch: list[Any]) -> None:
        keys = [str(self.count + i) for i in range(len(batch))]
        self.count += len(batch)
        if len(batch) == 1:
            self.queue.kv_put(keys[0], "rows", {"tokens": batch[0][0], "log_probs": batch[0][1]})
        else:
            columns = {
                name: self.nested([row[i] for row in batch], layout=self.jagged)
                for i, name in enumerate(("tokens", "log_probs"))
            }
            self.queue.kv_batch_put(keys, "rows", self.make(columns, [len(batch)]))
        self.keys += keys
        if len(self.keys) > ROWS + 256:  # it has no ring: make room, in larger calls, as it is quickest
            self.queue.kv_clear(self.keys[:256], "rows")
            del self.keys[:256]

    def get(self) -> Any:
        drawn = self.rng.choice(len(self.keys), 8, replace=False)
        return self.queue.kv_batch_get([self.keys[i] for i in drawn], "rows")


def resident() -> int:
    """Return the bytes of memory of this process and of all that it started; what several share counts once."""
    total, waiting = 0, [os.getpid()]
    while waiting:
        place = Path(f"/proc/{waiting.pop()}")
        try:
            waiting += map(int, (place / "task" / place.name / "children").read_text().split())
            sizes = (place / "smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) << 10 for line in sizes if line.startswith("Pss:"))
    return total


def measures(library: Library) -> Iterator[tuple[str, Callable[[], float]]]:
    """Return what is measured, by name."""
    given = [library.convert(row) for row in rows(DIFFERENT)]

    def put(size: int) -> float:
        done, begin = 0, time.perf_counter()
        while (taken := time.perf_counter() - begin) < SECONDS:
            first = done % DIFFERENT
            library.put(given[first : first + size])
            done += size
        return done / taken

    def get() -> float:
        done, begin = 0, time.perf_counter()
        while (taken := time.perf_counter() - begin) < SECONDS:
            library.get()
            done += 8
        return done / taken

    yield "put_1", lambda: put(1)
    yield "put_256", lambda: put(256)
    yield "get_8", get


def fill(library: Library) -> float:
    """Put `ROWS` rows; return the bytes of memory for each byte of payload."""
    given = rows(256)
    library.put([library.convert(row) for row in given])  # what is made once
    before, payload, rng = resident(), 0, np.random.default_rng(1)
    for _ in range(ROWS // 256 - 1):
        batch = [given[i] for i in rng.integers(256, size=256)]
        library.put([library.convert(row) for row in batch])
        payload += sum(tokens.nbytes + logs.nbytes for tokens, logs in batch)
    return (resident() - before) / payload


def main(kind: str) -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        library: Library = {
            "memory": lambda: Ours("host"),
            "folder": lambda: Ours(f"{folder}/rows"),
            "list": Plain,
            "torchrl": TorchRL,
            "transfer_queue": TransferQueue,
        }[kind]()
        memory, answers = fill(library), dict(measures(library))
        versions = {name: importlib.metadata.version(name) for name in library.packages}
        print(json.dumps({"memory": memory, "versions": versions}), file=replies, flush=True)
        for line in sys.stdin:
            print(json.dumps(answers[line.strip()]()), file=replies, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
