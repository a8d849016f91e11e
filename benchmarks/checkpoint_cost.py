"""Measures what saving and loading 1 GB cost beside a plain file, and what checksums and `fsync` cost alone.

    python benchmarks/checkpoint_cost.py [--rounds 9] [--folder FOLDER]

Ways are timed in turns. Before each the system writes what it still holds for the disk.
"""

import argparse
import contextlib
import os
import tempfile
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_memory import plain_read, plain_write
from isal import isal_zlib
from measuring import measure

from mindspore_replay import ReplayBuffer, load, save

ROWS = 1_000_000


def full() -> Any:
    """Return a full buffer of 1 GB."""
    buffer = ReplayBuffer(sample_size=64, capacity=ROWS, shapes=[(125,), (125,)], types=["float32"] * 2, seed=0)
    rows = [np.random.default_rng(i).random((ROWS // 10, 125), np.float32) for i in range(2)]
    for _ in range(10):
        buffer.insert(rows)
    return buffer


def timed(call: Callable[[], Any], path: Path | None = None) -> Callable[[], float]:
    """Return a function that measures a call in seconds, and removes the file."""

    def seconds() -> float:
        os.sync()
        start = time.perf_counter()
        call()
        taken = time.perf_counter() - start
        if path:
            path.unlink()
        return taken

    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what saving and loading 1 GB cost.")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds (default: 9)")
    parser.add_argument("--folder", help="a folder on the disk to measure (default: one for temporary files)")
    options = parser.parse_args()
    buffer = full()
    columns = [column.asnumpy() for column in buffer.buffer]

    def save_without_fsync() -> None:
        with unittest.mock.patch("os.fsync"):
            save(buffer, path)

    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)), "file")
        saved = path.with_name("saved")
        save(buffer, saved)
        ways = {
            "a plain file": timed(lambda: plain_write(columns, path, synchronize=False), path),
            "a plain file and fsync": timed(lambda: plain_write(columns, path), path),
            "save": timed(lambda: save(buffer, path), path),
            "save without fsync": timed(save_without_fsync, path),
            "read a plain file": timed(lambda: plain_read(saved)),
            "load into a new buffer": timed(lambda: load(saved)),
            "load into a buffer that exists": timed(lambda: load(saved, buffer=buffer)),
            "the checksums alone": timed(lambda: [isal_zlib.crc32(column) for column in columns]),
        }
        print("| 1 GB | median | quartiles |\n|---|---|---|")
        for name, seconds in measure(ways, options.rounds).items():
            low, middle, high = np.percentile(seconds, (25, 50, 75))
            print(f"| {name} | {middle:.2f} s | {low:.2f} to {high:.2f} s |")


if __name__ == "__main__":
    main()
