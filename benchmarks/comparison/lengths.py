"""Rows of two columns that differ in length, in one library: its rates of writing and reading, and its memory.

    python -m comparison.lengths memory|folder|list|torchrl|transfer_queue

Each row has tokens and their log-probabilities, of a length from a log-normal: the median is 500, the longest 4096. A
library holds 20,000 rows; new ones take the place of the oldest. Measured are rows a second, bytes of memory of the
library's processes for each byte of the rows, and packed batches of 256 rows beside a copy of as many bytes.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .answering import NotOfferedError, figures
from .rounds import Question

#: Rows that a library holds, and the longest; `lengths` has their logarithms' mean and deviation.
ROWS, LONGEST, MEDIAN, DEVIATION = 20_000, 4096, 500, 0.8
#: Different rows that are put again and again.
DIFFERENT = 1024
Row = tuple[np.ndarray, np.ndarray]
TITLE = "rows of two columns that differ in length"
QUESTIONS = [
    Question("memory", TITLE, "", {"what": "memory"}),
    Question("put_1", TITLE, "put one by one", {"what": "put", "size": 1}),
    Question("put_256", TITLE, "put by 256", {"what": "put", "size": 256}),
    Question("get_8", TITLE, "drawn by 8", {"what": "get"}),
    *(
        Question(f"packed_{n}", "packed batches of 256 rows", f"rows of {n} tokens", {"what": "packed", "tokens": n})
        for n in (128, 512, 2048)
    ),
]


def lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    return np.clip(rng.lognormal(np.log(MEDIAN), DEVIATION, count), 1, LONGEST).astype(int)


def rows(count: int) -> list[Row]:
    rng = np.random.default_rng(0)
    sizes = lengths(count, rng)
    return [(rng.integers(50_000, size=n, dtype=np.int32), rng.random(n, np.float32)) for n in sizes]


# A library holds `ROWS` rows, and new ones take the place of the oldest. `convert` returns a row as it takes it, which
# is not measured, `put` stores such rows, and `get` returns 8 random ones.


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


def fill(library: Any) -> float:
    """Put `ROWS` rows; return the bytes of memory for each byte of payload."""
    given = rows(256)
    library.put([library.convert(row) for row in given])  # what is made once
    before, payload, rng = resident(), 0, np.random.default_rng(1)
    for _ in range(ROWS // 256 - 1):
        batch = [given[i] for i in rng.integers(256, size=256)]
        library.put([library.convert(row) for row in batch])
        payload += sum(tokens.nbytes + logs.nbytes for tokens, logs in batch)
    return (resident() - before) / payload


def packed(tokens: int, rounds: int) -> float:
    """Return the rate of packed batches of 256 rows of so many tokens, as a part of that of a copy of their bytes."""
    from mindspore_replay.host import Column, ReplayBuffer

    ids = Column((None,), "int32", longest=tokens, items=4096 * tokens)
    columns = {"tokens": ids, "log_probs": Column((None,), "float32", lengths_of="tokens")}
    buffer = ReplayBuffer(256, 4096, columns=columns)
    flat = np.arange(4096 * tokens)
    buffer.insert([flat.astype(np.int32), flat.astype(np.float32)], lengths=np.full(4096, tokens))
    source, target = np.ones((4096, 2 * tokens), np.int32), np.empty((256, 2 * tokens), np.int32)
    first, times = iter(np.random.default_rng(0).integers(4096 - 256, size=2 * rounds)), {"packed": [], "copy": []}

    def copy() -> None:
        start = next(first)
        target[:] = source[start : start + 256]

    for i in range(2 * rounds):
        for name, call in {"packed": buffer.sample_packed, "copy": copy}.items():
            begin = time.perf_counter()
            call()
            if i >= rounds:
                times[name].append(time.perf_counter() - begin)
    return statistics.median(times["copy"]) / statistics.median(times["packed"])


LIBRARIES: dict[str, tuple[Callable[[str], Any], Sequence[str]]] = {
    "memory": (lambda folder: Ours("host"), Ours.packages),
    "folder": (lambda folder: Ours(f"{folder}/rows"), Ours.packages),
    "list": (lambda folder: Plain(), Plain.packages),
    "torchrl": (lambda folder: TorchRL(), TorchRL.packages),
    "transfer_queue": (lambda folder: TransferQueue(), TransferQueue.packages),
}


class Measured:
    """Measures one of them; fills it first."""

    def __init__(self, name: str) -> None:
        self._name, (self._make, self.packages) = name, LIBRARIES[name]
        self._library: Any = None

    def measure(self, what: str, seconds: float, size: int = 1, tokens: int = 0) -> dict[str, float]:
        if what == "packed":
            if self._name != "memory":
                raise NotOfferedError("")
            return {"of a copy's rate": packed(tokens, 200)}
        if self._library is None:
            self._folder = tempfile.TemporaryDirectory(dir="/dev/shm")
            self._library = self._make(self._folder.name)
            self._memory = fill(self._library)
            self._given = [self._library.convert(row) for row in rows(DIFFERENT)]
        if what == "memory":
            return {"bytes for a byte of rows": self._memory}
        done, begin = 0, time.perf_counter()
        while (taken := time.perf_counter() - begin) < seconds:
            if what == "get":
                self._library.get()
                done += 8
                continue
            first = done % DIFFERENT
            self._library.put(self._given[first : first + size])
            done += size
        return {"rows/s": done / taken}

    def release(self) -> None:
        """Forget the library; its processes end with this one."""
        self._library = self._given = None


if __name__ == "__main__":
    figures(Measured(sys.argv[1]))
