"""Processes that save all the time and are killed while they do: what is left is always a whole file.

    python killed_savers.py FOLDER HOW=ROUNDS ...

MindSpore is imported once, and the processes that are killed are forks of this one. HOW is ``save``, ``incremental``,
or ``in-place``: a writer that writes over the old file, to show that the check finds it out. Prints, as JSON, what
came of each.
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from mindspore_replay import PrioritizedReplayBuffer, load, save
from mindspore_replay.checkpoint import writer

CAPACITY, WIDTH, BATCH = 4096, 128, 512


def make_buffer() -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(
        sample_size=4,
        capacity=CAPACITY,
        shapes=[(), (WIDTH,)],
        types=["int64", "float32"],
        names=["number", "data"],
        seed=0,
    )


def rows(first: int, count: int) -> list[np.ndarray]:
    """Rows whose data follow from their numbers."""
    numbers = np.arange(first, first + count)
    return [numbers, (numbers[:, None] * 31 % 1009 + np.arange(WIDTH)).astype(np.float32)]


def save_forever(buffer: PrioritizedReplayBuffer, path: Path, incremental: bool) -> None:
    while True:
        buffer.insert(rows(int(buffer.serials.asnumpy()[0]), BATCH))
        buffer.update_priorities(buffer.sample()[0], 2.0)
        save(buffer, path, incremental=incremental)


def inserted_in(path: Path) -> int:
    """Loads the file, checks it, and says how many rows had been inserted."""
    buffer = load(path)
    buffer.check_valid()
    inserted, count = int(buffer.serials.asnumpy()[0]), int(buffer.size())
    for column, expected in zip(buffer.get_item(range(count)), rows(inserted - count, count)):
        np.testing.assert_array_equal(column.asnumpy(), expected)
    return inserted


@contextlib.contextmanager
def in_place(path: Path, _function: str) -> Iterator[Any]:
    """A writer that is not atomic."""
    with open(path, "wb", buffering=0) as file:
        yield file


def kill_one(buffer: PrioritizedReplayBuffer, path: Path, incremental: bool, seconds: float) -> None:
    """Forks a process that saves, and kills it."""
    started, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(says, b"!")
            save_forever(buffer, path, incremental)
        finally:
            os._exit(1)
    os.read(started, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(started)
    os.close(says)
    assert os.WIFSIGNALED(status), "the process ended by itself"


def main(folder: str, rounds: int, how: str) -> dict[str, Any]:
    path = Path(folder) / "buffer.safetensors"
    patch = mock.patch.object(writer, "replacing", in_place) if how == "in-place" else contextlib.nullcontext()
    generator = random.Random(0)
    buffer = make_buffer()
    buffer.insert(rows(0, BATCH))
    save(buffer, path)
    start = time.perf_counter()
    save(buffer, path)
    longest = max(0.06, 4 * (time.perf_counter() - start))  # so that on any machine some are killed while they write
    result: dict[str, Any] = {"rounds": 0, "damaged": 0, "in the middle": 0, "inserted": [], "incremental files": 0}
    with patch:
        for _ in range(rounds):
            if how == "in-place" and result["damaged"] == 2:
                break  # that is enough to say
            kill_one(buffer, path, how == "incremental", generator.uniform(0.0, longest))
            result["rounds"] += 1
            result["in the middle"] += any(entry.suffix == ".tmp" for entry in path.parent.iterdir())
            result["incremental files"] += sum(entry.suffix[1:].isdigit() for entry in path.parent.iterdir())
            try:
                result["inserted"].append(inserted_in(path))
            except ValueError:
                result["damaged"] += 1
                save(buffer, path)
            else:
                load(path, buffer=buffer)
    return result


if __name__ == "__main__":
    results = {}
    for argument in sys.argv[2:]:
        how, rounds = argument.split("=")
        with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
            results[how] = main(folder, int(rounds), how)
    print(json.dumps(results))
