"""Queues of one library: how many rows a second go from writers to a learner, and how long the learner's draws take.

    python -m comparison.queues ours|buffer|private|plain|echo|reverb|torchrl|large|table|shared

Writers put rows as fast as they can, one by one or by 64, and wait where there is no room. A learner draws 64 rows at a
time; from the last three nobody draws. Rows are made before, in the form that the library takes.
"""

import multiprocessing
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .answering import NotOfferedError, figures
from .cases import CARTPOLE, Schema, batch_of, row_bytes, single_rows
from .rounds import Question
from .team import EACH, Team

BATCH, CAPACITY, LARGE = 64, 1024, 100_000
#: 41 bytes, and 28,233.
SCHEMAS: dict[str, Schema] = {
    "small": CARTPOLE,
    "frames": {
        "observation": ((84, 84, 4), "uint8"),
        "action": ((), "int32"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
    },
}
#: Seconds after which rows count, and of the learner's step between two draws whose time is measured.
WARM, STEP = 0.3, 0.001
#: Unconfirmed items of a dm-reverb writer; the default of its older writer.
IN_FLIGHT = 25
#: Most writers of a library whose processes need hundreds of MB.
MOST = 2


def _questions() -> list[Question]:
    found = []
    for where, writers in (("processes", "actors"), ("threads", "threads")):
        for rows, schema in SCHEMAS.items():
            for by, words in ((1, "one by one"), (BATCH, f"by {BATCH}")):
                table = f"rows of {row_bytes(schema):,} bytes, put {words} by {where}"
                for n in (1, 2, 4):
                    ask = {"what": "rate", "where": where, "rows": rows, "by": by, "writers": n}
                    found.append(
                        Question(
                            f"{writers}_{rows}_by_{by}_{n}", table, f"{n} {writers if n > 1 else writers[:-1]}", ask
                        )
                    )
    found.append(Question("one_thread", "in one thread, where nothing has to wait", "", {"what": "calls"}))
    for n in (2, 16, 128):
        ask = {"what": "latency", "writers": n}
        found.append(Question(f"learner_beside_{n}", f"the learner beside {n} writers that never rest", "", ask))
    return found


QUESTIONS = _questions()
INSERTED = "processes that insert single rows into one buffer"
INSERT = [Question(f"insert_{n}", INSERTED, f"{n} writing", {"what": "insert", "writers": n}) for n in (1, 2, 4)]


# A queue under test is made for rows of a schema, for writers in processes or threads, and for rows or batches of 64.
# Its `draw` waits for 64 rows, and `put` puts what `form` makes of a row or batch, from the learner's thread. `writer`
# returns a function that a writer calls to get its own `put`, and its arguments.


# What writers put: functions of a module, which other processes can import.


def as_dict(row: Mapping[str, Any], schema: Schema) -> Any:
    return row


def as_arrays(row: Mapping[str, Any], schema: Schema) -> dict[str, np.ndarray]:
    return {name: np.asarray(row[name], dtype) for name, (_, dtype) in schema.items()}


def as_tuple(row: Mapping[str, Any], schema: Schema) -> tuple[Any, ...]:
    return tuple(row.values())


def as_tensors(row: Mapping[str, Any], schema: Schema) -> Any:
    from tensordict import TensorDict

    return TensorDict(as_arrays(row, schema), [BATCH] if np.ndim(row["reward"]) else [])


def items_of(form: Callable[..., Any], rows: str, n: int, by: int) -> list[Any]:
    schema = SCHEMAS[rows]
    return [form(row, schema) for row in ([batch_of(schema, by)] if by > 1 else single_rows(schema, n))]


def work(form: Callable[..., Any], rows: str, by: int, make: Callable[..., Callable[[Any], Any]], *where: Any) -> Any:
    """Return the work of a writer: to put `EACH` rows, or a batch."""
    put, items = make(*where), items_of(form, rows, EACH, by)

    def once() -> int:
        for item in items:
            put(item)
        return len(items) * by

    return once


# The libraries.


def attached(folder: str) -> Callable[[Any], Any]:
    from mindspore_replay import attach

    return attach(folder).insert


class Ours:
    """`ReplayQueue` on arrays: in memory, or in a folder in shared memory to which writers attach."""

    packages, form = ("mindspore_replay", "numpy"), as_dict
    waits, capacity = True, CAPACITY

    def __init__(self, rows: str, where: str, by: int) -> None:
        from mindspore_replay import host

        self._files = tempfile.TemporaryDirectory(dir="/dev/shm")
        self._folder = f"{self._files.name}/rows" if where == "processes" else ""
        shapes, types = map(list, zip(*SCHEMAS[rows].values()))
        columns = {"names": list(SCHEMAS[rows]), "storage": self._folder or "host"}
        if self.waits:
            self._buffer: Any = host.ReplayQueue(BATCH, self.capacity, shapes, types, timeout=None, **columns)
        else:
            self._buffer = host.ReplayBuffer(BATCH, self.capacity, shapes, types, seed=0, **columns)
            self._buffer.insert(batch_of(SCHEMAS[rows], self.capacity))
        self.draw, self.put = self._buffer.sample, self._buffer.insert

    def writer(self) -> tuple[Any, ...]:
        return (attached, self._folder) if self._folder else (lambda: self.put,)

    def close(self) -> None:
        self._buffer.close()
        self._files.cleanup()


class OursWithoutWaits(Ours):
    """`ReplayBuffer`: nobody waits, and rows are drawn at random."""

    waits = False


class OursLarge(OursWithoutWaits):
    """The same with as many rows as buffers have into which rows are only inserted."""

    capacity = LARGE


class OursInPrivate(OursWithoutWaits):
    """The same, but the learner draws from a buffer of its own, that nobody writes to."""

    def __init__(self, rows: str, where: str, by: int) -> None:
        super().__init__(rows, where, by)
        self._own = OursWithoutWaits(rows, "threads", by)
        self.draw = self._own.draw


def put_of(items: Any) -> Callable[[Any], Any]:
    """Return the method of a queue, which may be another process's; what nobody gets is dropped at the end."""
    if not isinstance(items, queue.Queue):
        items.cancel_join_thread()
    return items.put


class Plain:
    """The standard library's queue, of threads or processes; single rows are stacked, and a batch is an item."""

    packages, form = ("numpy",), as_tuple

    def __init__(self, rows: str, where: str, by: int) -> None:
        size = max(CAPACITY // by, 1)
        self._items: Any = queue.Queue(size)
        if where == "processes":
            self._items = multiprocessing.get_context("spawn").Queue(size)
        self._by, self.put = by, put_of(self._items)

    def draw(self) -> Any:
        if self._by > 1:
            return self._items.get()
        return [np.stack(column) for column in zip(*(self._items.get() for _ in range(BATCH)))]

    def writer(self) -> tuple[Any, ...]:
        return put_of, self._items

    def close(self) -> None:
        pass


def echo_client(port: int, rows: str) -> Callable[[Any], Any]:
    from echo import TcpClient

    schema = SCHEMAS[rows]
    return TcpClient("localhost", port, as_arrays(single_rows(schema, 1)[0], schema)).send


class Echo:
    """echo: a `Server` in the learner's process; writers send by TCP, threads submit."""

    packages, form = ("id-echo", "numpy"), as_arrays

    def __init__(self, rows: str, where: str, by: int) -> None:
        from echo import Server, TcpTransport

        if by > 1:
            raise NotOfferedError("it takes one row a call")
        self._rows, self._where = rows, where
        example = as_arrays(single_rows(SCHEMAS[rows], 1)[0], SCHEMAS[rows])
        self._server = Server(example, BATCH, TcpTransport(port=0) if where == "processes" else None)
        if where == "processes":
            self._server.start()
        self.draw, self.put = self._server.sample, self._server.submit

    def writer(self) -> tuple[Any, ...]:
        return (echo_client, self._server.port, self._rows) if self._where == "processes" else (lambda: self.put,)

    def close(self) -> None:
        self._server.close()


def reverb_writer(port: int, in_flight: int = IN_FLIGHT) -> Callable[[Any], Any]:
    import reverb

    client = reverb.Client(f"localhost:{port}")
    writer = client.trajectory_writer(1)

    def put(row: Any) -> None:
        writer.append(row)
        writer.create_item("table", 1.0, {name: column[-1] for name, column in writer.history.items()})
        writer.flush(in_flight)

    put.client = client  # type: ignore[attr-defined]  # as long as it is used
    return put


class Reverb:
    """dm-reverb: a `Table.queue`, clients of its server, and a dataset that draws ahead. A batch is an item."""

    packages, form = ("dm-reverb", "tensorflow", "numpy"), as_arrays

    def __init__(self, rows: str, where: str, by: int) -> None:
        import reverb
        import tensorflow as tf

        each = (by,) if by > 1 else ()
        specs = {name: tf.TensorSpec(each + shape, dtype, name) for name, (shape, dtype) in SCHEMAS[rows].items()}
        self._server = reverb.Server([reverb.Table.queue("table", max(CAPACITY // by, 1), signature=specs)])
        data = reverb.TrajectoryDataset.from_table_signature(
            f"localhost:{self._server.port}", "table", max_in_flight_samples_per_worker=2 * BATCH // by
        )
        self._batches = iter((data if by > 1 else data.batch(BATCH)).as_numpy_iterator())
        self.put = reverb_writer(self._server.port)

    def draw(self) -> Any:
        return next(self._batches)

    def writer(self) -> tuple[Any, ...]:
        return reverb_writer, self._server.port

    def close(self) -> None:
        self._server.stop()


class ReverbTable(Reverb):
    """A `Table` of the newest rows. A row is there when its insertion returns."""

    def __init__(self, rows: str, where: str, by: int) -> None:
        import reverb

        selectors, limiter = (reverb.selectors.Uniform(), reverb.selectors.Fifo()), reverb.rate_limiters.MinSize(1)
        self._server = reverb.Server([reverb.Table("table", *selectors, LARGE, limiter)])

    def writer(self) -> tuple[Any, ...]:
        return reverb_writer, self._server.port, 0


def torchrl_buffer(buffer: Any) -> Callable[[Any], Any]:
    import torch

    torch.set_num_threads(1)
    return buffer.add


class TorchRLShared:
    """torchrl: a shared `ReplayBuffer` of memory-mapped tensors in /dev/shm, passed to other processes."""

    packages, form = ("torchrl", "tensordict", "torch"), as_tensors

    def __init__(self, rows: str, where: str, by: int) -> None:
        from torchrl.data import LazyMemmapStorage, ReplayBuffer

        self._files = tempfile.TemporaryDirectory(dir="/dev/shm")
        storage = LazyMemmapStorage(LARGE, scratch_dir=f"{self._files.name}/rows")
        self._buffer = ReplayBuffer(storage=storage, batch_size=BATCH, shared=True)
        self._buffer.add(items_of(as_tensors, rows, 1, 1)[0])  # makes the files

    def writer(self) -> tuple[Any, ...]:
        return torchrl_buffer, self._buffer

    def close(self) -> None:
        self._files.cleanup()


class TorchRL:
    """torchrl: a `ReplayBuffer` that consumes what it samples. It does not wait, so both sides look again and again."""

    packages, form = ("torchrl", "tensordict", "torch"), as_tensors

    def __init__(self, rows: str, where: str, by: int) -> None:
        import torch
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        if where == "processes":
            raise NotOfferedError("other processes do not learn what its sampler has consumed")
        torch.set_num_threads(1)
        self._buffer = ReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=BATCH, consume_after_n_samples=1)
        self._by = by

    def put(self, row: Any) -> None:
        while len(self._buffer) + self._by > CAPACITY:
            time.sleep(0)
        self._buffer.extend(row) if self._by > 1 else self._buffer.add(row)

    def draw(self) -> Any:
        while len(self._buffer) < BATCH:
            time.sleep(0)
        return self._buffer.sample()

    def writer(self) -> tuple[Any, ...]:
        return (lambda: self.put,)

    def close(self) -> None:
        pass


LIBRARIES: dict[str, Any] = {
    "ours": Ours,
    "buffer": OursWithoutWaits,
    "private": OursInPrivate,
    "large": OursLarge,
    "plain": Plain,
    "echo": Echo,
    "reverb": Reverb,
    "table": ReverbTable,
    "shared": TorchRLShared,
    "torchrl": TorchRL,
}


class Measured:
    """Measures one of them; keeps writers and queue for the next question of the same kind."""

    def __init__(self, cls: Any) -> None:
        self._cls, self.packages = cls, cls.packages
        self._key: tuple[Any, ...] = ()

    def _prepare(self, rows: str = "small", where: str = "processes", by: int = 1) -> None:
        if self._key == (rows, where, by):
            return
        self.release()
        self._queue = self._cls(rows, where, by)
        self._team = Team(work, self._cls.form, rows, by, *self._queue.writer(), threads=where == "threads")
        self._own = items_of(self._cls.form, rows, BATCH, by)
        self._key = rows, where, by

    def release(self) -> None:
        if self._key:
            self._key = ()
            self._team.close()
            self._queue.close()
            del self._queue, self._team

    def _beside(self, writers: int, seconds: float, draw: Callable[[bool], Any]) -> list[tuple[int, float]]:
        """Draw until all writers have ended; return rows and seconds of each.

        The argument of `draw` is True while the measurement lasts.
        """
        start = self._team.begin(writers, WARM + seconds) + WARM
        ended: list[tuple[int, float]] = []
        drawn, put = threading.Event(), self._queue.put

        def end() -> None:
            ended.extend(self._team.end())
            time.sleep(0.1)
            for row in self._own:  # the last draw waits for more rows
                if not drawn.is_set():
                    put(row)

        threading.Thread(target=end, daemon=True).start()
        while not ended:
            draw(start < time.monotonic() < start + seconds)
        drawn.set()
        return ended

    def rate(self, seconds: float, rows: str, where: str, by: int, writers: int) -> dict[str, float]:
        if issubclass(self._cls, OursWithoutWaits):
            raise NotOfferedError("")
        self._prepare(rows, where, by)
        drawn: list[bool] = []

        def draw(counts: bool) -> None:
            self._queue.draw()
            drawn.append(counts)

        self._beside(writers, seconds, draw)
        rate = BATCH * sum(drawn) / seconds
        return {"MB/s": rate * row_bytes(SCHEMAS[rows]) / 1e6} if rows == "frames" else {"rows/s": rate}

    def insert(self, seconds: float, writers: int) -> dict[str, float]:
        """Insert, while nobody draws."""
        self._prepare()
        self._team.work(writers, WARM)
        rates = [rows / lasted for rows, lasted in self._team.work(writers, seconds)]
        return {"us a row": 1e6 * statistics.mean(1 / rate for rate in rates), "rows/s": sum(rates)}

    def calls(self, seconds: float) -> dict[str, float]:
        """Put 64 rows and draw them, in one thread."""
        self._prepare(where="threads")
        puts, draws, put, draw, own = [], [], self._queue.put, self._queue.draw, self._own
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            for row in own:
                put(row)
            between = time.perf_counter()
            draw()
            puts.append((between - begin) / BATCH * 1e6)
            draws.append((time.perf_counter() - between) * 1e6)
        return {"us to put a row": statistics.median(puts), "us to draw 64": statistics.median(draws)}

    def latency(self, seconds: float, writers: int) -> dict[str, float]:
        if writers > MOST and self._cls in (Reverb, TorchRL):
            raise NotOfferedError("so many processes of it need too much memory")
        self._prepare()
        taken: list[float] = []

        def draw(counts: bool) -> None:
            begin = time.perf_counter()
            self._queue.draw()
            if counts:
                taken.append((time.perf_counter() - begin) * 1e6)
            time.sleep(STEP)

        rates = [rows / lasted for rows, lasted in self._beside(writers, 2 * seconds, draw)]
        middle, late, mean = statistics.median(taken), float(np.percentile(taken, 99)), statistics.mean(rates)
        return {
            "median us": middle,
            "p99 us": late,
            "p99 / median": late / middle,
            "rows/s put": sum(rates),
            "slowest writer / mean": min(rates) / mean,
            "fastest writer / mean": max(rates) / mean,
        }

    def measure(self, what: str, seconds: float, **question: Any) -> Mapping[str, float]:
        return getattr(self, what)(seconds, **question)


if __name__ == "__main__":
    figures(Measured(LIBRARIES[sys.argv[1]]))
