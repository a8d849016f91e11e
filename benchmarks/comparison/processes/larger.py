"""Fills a buffer of Atari rows once and draws samples; the program of a peer calls `measure`.

Its arguments are the number of rows, the seconds of sampling, and a folder. It prints JSON: the memory that its
libraries take, whereupon it waits for a line, then a line after each part.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..cases import Schema

ATARI: Schema = {
    "observation": ((4, 84, 84), "uint8"),
    "action": ((), "int32"),
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
}
BATCH, SAMPLE = 64, 32

#: A batch of columns by name.
Rows = Mapping[str, np.ndarray]
#: Inserts a batch.
Insert = Callable[[Rows], Any]
#: Draws a sample; returns its observations and actions.
Sample = Callable[[], tuple[np.ndarray, np.ndarray]]


def _heap() -> int:
    """Return the bytes of the process that belong to no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def measure(make: Callable[[int, Path], tuple[Insert, Sample]]) -> None:
    """Run the program.

    Args:
        make (Callable): Makes a buffer of so many rows in a new folder; returns functions that insert a batch, and that
            draw a sample and return its observations and actions.
    """
    rows, seconds, folder = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    _say(heap=_heap())
    sys.stdin.readline()  # the limit is set now
    insert, sample = make(rows, folder)
    random = np.random.default_rng(0)
    batch: dict[str, np.ndarray] = {
        "observation": random.integers(0, 256, (BATCH, 4, 84, 84), np.uint8),
        "action": np.zeros(BATCH, np.int32),
        "reward": np.ones(BATCH, np.float32),
        "terminated": np.zeros(BATCH, bool),
    }
    numbers = batch["observation"].reshape(BATCH, -1)[:, :4].view(np.int32)  # each row carries its number twice
    start = time.perf_counter()
    for first in range(0, rows, BATCH):
        batch["action"][:] = numbers[:, 0] = np.arange(first, first + BATCH)
        insert(batch)
    _say(insert=rows / (time.perf_counter() - start))
    start, n, seen = time.perf_counter(), 0, set()
    while time.perf_counter() - start < seconds:
        observation, action = sample()
        found = np.ascontiguousarray(observation.reshape(SAMPLE, -1)[:, :4]).view(np.int32)[:, 0]
        if (found != action).any():
            raise SystemExit("a sample has rows that were not inserted")
        seen.update(found.tolist())
        n += SAMPLE
    _say(sample=n / (time.perf_counter() - start), distinct=len(seen))
    sys.stdout.flush()
    os._exit(0)  # without writing to the disk first: the folder is deleted
