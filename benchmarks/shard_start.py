"""What a shard costs: time until its process is ready, processor time until then, and memory of a shard without rows.

Run it with ``python benchmarks/shard_start.py``. Ray's cluster and the learner's first buffer are made before.
"""

import os
import resource
import sys
import time

from mindspore_replay.distributed import ShardedReplay
from mindspore_replay.distributed.cluster import connect


def cost_of_process(_: object) -> tuple[float, float, bool]:
    """Return the processor seconds and the resident MB of this process, and whether it has MindSpore."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return used.ru_utime + used.ru_stime, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, "mindspore" in sys.modules


def main() -> None:
    """Start one shard a few times, and print the medians."""
    config = {"type": "prioritized", "capacity": 1000, "sample_size": 1, "data_shape": [[]], "data_type": ["float32"]}
    ray = connect()
    found = []
    for _ in range(6):
        start = time.perf_counter()
        with ShardedReplay(config, num_shards=1) as replay:
            seconds = time.perf_counter() - start
            found.append((seconds, *ray.get(replay._links.all[0].actor.__ray_call__.remote(cost_of_process))))
    seconds, cpu, memory, has_mindspore = (sorted(column)[2] for column in zip(*found[1:]))
    print(f"ready after {seconds:.2f} s, {cpu:.2f} s of processor time, {memory:.0f} MB, MindSpore: {has_mindspore}")


if __name__ == "__main__":
    main()
