"""Measures rows in and out of a sharded buffer, by shards and writers, against the replay actors of Ray's RLlib.

    python benchmarks/sharded.py [--rounds 5] [--seconds 1.0] [--json FILE]
    python benchmarks/sharded.py --start    # what the process of a shard without rows costs

Every process is on this machine. *In*: writers, each a process, insert batches of 64 rows as fast as they land. *Out*:
one learner draws prioritized batches of 256. Rows are those of CartPole (41 bytes) or hold two frames (14 kB). RLlib's
replay actors are its `PrioritizedReplayBuffer` as a Ray actor, as in its Ape-X: a writer calls `add`, the learner asks
each actor for its part of the batch and concatenates the parts; the choice of parts and the weights of the whole are
left open. RLlib needs ``pip install "ray[rllib]" "pyarrow<20"``; without it the peer is left out.

Rounds are interleaved; medians are printed. Then the cost of a batch, piece by piece: an empty call of an actor, the
draw on its shard, serializing and deserializing it, and merging.
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from mindspore_replay import PrioritizedReplayBuffer
from mindspore_replay.distributed import ShardedReplay
from mindspore_replay.distributed.cluster import connect

BATCH, SEND, IN_FLIGHT, CAPACITY = 256, 64, 2, 40_000
COLUMNS: dict[str, tuple[list[list[int]], list[str]]] = {
    "CartPole": ([[4], [], [], [4], []], ["float32", "int32", "float32", "float32", "bool"]),
    "frames": ([[84, 84], [], [], [84, 84], []], ["uint8", "int32", "float32", "uint8", "bool"]),
}
SHARDS, WRITERS = (1, 2, 4), (1, 2, 4)


def batch_of(kind: str, rows: int) -> list[np.ndarray]:
    return [np.ones((rows, *shape), dtype) for shape, dtype in zip(*COLUMNS[kind], strict=True)]


class Writer:
    """A process that inserts: `insert` a batch, and return the number of rows `landed`."""

    def run(self, seconds: float) -> float:
        before, start = self.landed(), time.perf_counter()
        while time.perf_counter() - start < seconds:
            self.insert()
        return (self.landed() - before) / (time.perf_counter() - start)


class Ours:
    """A `ShardedReplay`."""

    name = "mindspore_replay"

    def __init__(self, kind: str, shards: int, ray: Any) -> None:
        shapes, types = COLUMNS[kind]
        capacity = CAPACITY if kind == "CartPole" else CAPACITY // 10
        config = {"type": "prioritized", "capacity": capacity, "sample_size": BATCH, "data_shape": shapes}
        self.replay = ShardedReplay({**config, "data_type": types, "seed": 0}, shards, batch=SEND, in_flight=IN_FLIGHT)

    def writer(self, shard: int, kind: str) -> tuple[Any, ...]:
        """Return the class of a writer's actor, and its arguments."""
        return OurWriter, self.replay.writer(shard), kind

    def sample(self) -> int:
        return int(self.replay.sample()[0].shape[0])

    def close(self) -> None:
        self.replay.close()


class OurWriter(Writer):
    """Inserts batches by a `ShardWriter`."""

    def __init__(self, writer: Any, kind: str) -> None:
        self.writer, self.rows = writer, batch_of(kind, SEND)

    def insert(self) -> None:
        self.writer.insert(self.rows)

    def landed(self) -> int:
        return self.writer.flush().inserted


class RLlib:
    """Replay actors of RLlib."""

    name = "RLlib"

    def __init__(self, kind: str, shards: int, ray: Any) -> None:
        from ray.rllib.utils.replay_buffers import PrioritizedReplayBuffer as Buffer

        self.ray = ray
        capacity = (CAPACITY if kind == "CartPole" else CAPACITY // 10) // shards
        make = ray.remote(num_cpus=0)(Buffer)
        self.actors = [make.remote(capacity=capacity, storage_unit="timesteps", alpha=0.6) for _ in range(shards)]

    def writer(self, shard: int, kind: str) -> tuple[Any, ...]:
        return RLlibWriter, self.actors[shard], kind

    def sample(self) -> int:
        parts = self.ray.get([actor.sample.remote(BATCH // len(self.actors), beta=0.4) for actor in self.actors])
        whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return len(whole["weights"])

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)


class RLlibWriter(Writer):
    """Calls `add`, with as many batches in flight as ours."""

    def __init__(self, actor: Any, kind: str) -> None:
        self.actor, self.kind, self.batch = actor, kind, None
        self.sent: deque[Any] = deque()
        self.rows = 0

    def insert(self) -> None:
        import ray
        from ray.rllib.policy.sample_batch import SampleBatch

        if self.batch is None:
            self.batch = SampleBatch({str(i): column for i, column in enumerate(batch_of(self.kind, SEND))})
        while len(self.sent) >= IN_FLIGHT:
            ray.get(self.sent.popleft())
            self.rows += SEND
        self.sent.append(self.actor.add.remote(self.batch))

    def landed(self) -> int:
        import ray

        ray.get(list(self.sent))
        self.rows += SEND * len(self.sent)
        self.sent.clear()
        return self.rows


def rows_in(ray: Any, writers: list[Any], seconds: float) -> float:
    return sum(ray.get([writer.run.remote(seconds) for writer in writers]))


def rows_out(store: Any, seconds: float) -> float:
    rows, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        rows += store.sample()
    return rows / (time.perf_counter() - start)


def per_call(function: Callable[[], Any], calls: int = 200) -> float:
    times = []
    for i in range(calls + 20):
        start = time.perf_counter()
        function()
        if i >= 20:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


class Nothing:
    """An actor that does nothing."""

    def call(self) -> None:
        return None


def pieces(ray: Any, kind: str) -> dict[str, float]:
    """Return the seconds of each piece of a batch of 256 from two shards, and of 64 rows sent to one."""
    from ray._private.worker import global_worker

    ours = Ours(kind, 2, ray)
    writers = [ours.replay.writer(shard) for shard in range(2)]
    for writer in writers:
        for _ in range(20):
            writer.insert(batch_of(kind, SEND))
        writer.flush()
    shapes, types = COLUMNS[kind]
    local = PrioritizedReplayBuffer(sample_size=BATCH // 2, capacity=2000, shapes=shapes, types=types, seed=0)
    for _ in range(20):
        local.insert(batch_of(kind, SEND))
    sample = [part.asnumpy() for part in local.sample()]
    nothing = [ray.remote(Nothing).remote() for _ in range(2)]
    ray.get([one.call.remote() for one in nothing])
    context = global_worker.get_serialization_context()
    ref, out = ray.put(sample), [np.empty((BATCH, *part.shape[1:]), part.dtype) for part in sample]

    def merge() -> None:
        for whole, part in zip(out, sample):
            whole[: BATCH // 2] = part
            whole[BATCH // 2 :] = part

    found = {
        "sample": per_call(ours.replay.sample, 100),
        "report": per_call(ours.replay._exchange.reports, 100),
        "empty call of 2 actors": per_call(lambda: ray.get([one.call.remote() for one in nothing])),
        "submit a call": per_call(lambda: nothing[0].call.remote()),
        "draw 128 rows in a process": per_call(local.sample),
        "serialize them": per_call(lambda: context.serialize(sample).to_bytes()),
        "put them": per_call(lambda: ray.put(sample), 60),
        "get them": per_call(lambda: ray.get(ref)),
        "merge 256 rows": per_call(merge),
        "insert 64 rows and wait": per_call(lambda: writers[0].insert(batch_of(kind, SEND)).flush(), 100),
        "insert 64 rows in a process": per_call(lambda: local.insert(batch_of(kind, SEND))),
    }
    assert all(not part.flags.writeable for part in ray.get(ref)), "arrays come without a copy, so they are read-only"
    ours.close()
    return found


def stores(kind: str, shards: int, ray: Any) -> list[Any]:
    made: list[Any] = [Ours(kind, shards, ray)]
    try:
        made.append(RLlib(kind, shards, ray))
    except ImportError as error:
        print(f"RLlib is left out: {error}")
    return made


def cost_of_process(_: object) -> tuple[float, float, bool]:
    """Return the processor seconds and the resident MB of this process, and whether it has MindSpore."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return used.ru_utime + used.ru_stime, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, "mindspore" in sys.modules


def start(ray: Any) -> None:
    """Start one shard a few times, and print the medians of what its process costs."""
    config = {"type": "prioritized", "capacity": 1000, "sample_size": 1, "data_shape": [[]], "data_type": ["float32"]}
    found = []
    for _ in range(6):
        begin = time.perf_counter()
        with ShardedReplay(config, num_shards=1) as replay:
            seconds = time.perf_counter() - begin
            found.append((seconds, *ray.get(replay._exchange.all[0].actor.__ray_call__.remote(cost_of_process))))
    seconds, cpu, memory, has_mindspore = (sorted(column)[2] for column in zip(*found[1:]))
    print(f"ready after {seconds:.2f} s, {cpu:.2f} s of processor time, {memory:.0f} MB, MindSpore: {has_mindspore}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default: 1)")
    parser.add_argument("--json", help="also write all figures to this file")
    parser.add_argument("--start", action="store_true", help="measure what it costs to start a shard instead")
    arguments = parser.parse_args()
    ray = connect()
    if arguments.start:
        return start(ray)
    report: dict[str, Any] = {}
    for kind in COLUMNS:
        for shards in SHARDS:
            both = stores(kind, shards, ray)
            writers: dict[str, list[Any]] = {store.name: [] for store in both}
            for store, i in itertools.product(both, range(max(WRITERS))):
                cls, *own = store.writer(i % shards, kind)
                writers[store.name].append(ray.remote(num_cpus=0)(cls).remote(*own))
            for store in both:
                rows_in(ray, writers[store.name], 0.5)  # fill and warm up
            for i in range(arguments.rounds):
                for number in WRITERS:
                    for store in both[:: 1 if i % 2 else -1]:
                        key = f"{kind}, in, {shards} shards, {number} writers, {store.name}"
                        rate = rows_in(ray, writers[store.name][:number], arguments.seconds)
                        report.setdefault(key, []).append(rate)
                for store in both[:: 1 if i % 2 else -1]:
                    key = f"{kind}, out, {shards} shards, {store.name}"
                    report.setdefault(key, []).append(rows_out(store, arguments.seconds))
            for store in both:
                store.close()
            for writer in itertools.chain(*writers.values()):
                ray.kill(writer)
    print(f"{'rows a second, median':56s}")
    for key, values in report.items():
        print(f"{key:56s} {statistics.median(values):12,.0f}   [{min(values):,.0f}, {max(values):,.0f}]")
    report["pieces"] = {kind: pieces(ray, kind) for kind in COLUMNS}
    for kind, found in report["pieces"].items():
        print(f"{kind}: microseconds")
        for key, seconds in found.items():
            print(f"    {key:32s} {seconds * 1e6:10.0f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return None


if __name__ == "__main__":
    main()
