"""Measures checkpoints: what a save costs beside plain files, its memory, and whether rows are better in a folder.

    python benchmarks/checkpoints.py cost [--rounds 7] [--disk DISK]
    python benchmarks/checkpoints.py memory|place [--gigabytes 0.25 1 4] [--new 10000] [--rounds 3] [--disk DISK]

- ``cost``: saving and loading 1 GB, a plain file of the same bytes, and checksums and `fsync` alone, in turns.
- ``memory``: the largest growth of the resident set while a buffer is saved and loaded, and speeds beside a plain file
  of the same bytes, written with `fsync`, or read after the system has dropped it from its cache. Needs Linux.
- ``place``: seconds of `TrainingCheckpoint.save` after `--new` frames, with a full buffer in memory, which is written
  whole, and with one in a folder, which is flushed; on an idle machine, and beside processes that write to the same
  disk or keep every core busy.

Before each measurement the system writes what it still holds for the disk.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from isal import isal_zlib
from measuring import measure

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer, TrainingCheckpoint, host, load, save

CHUNK, FRAME = 1 << 23, (84, 84)
ROW_BYTES = 84 * 84 + 4 + 4 + 1
FRAMES: dict[str, Any] = {"shapes": [FRAME, (), (), ()], "types": ["uint8", "int32", "float32", "bool"], "seed": 0}
#: Programs that a measurement runs beside, as many as there are cores.
BESIDE = {
    "idle": "",
    "beside writers": "import os\nwhile True:\n with open(NAME, 'wb') as f: f.write(bytes(1 << 26)); os.fsync(f)",
    "beside busy cores": "while True: pass",
}


def plain_write(arrays: Sequence[np.ndarray], path: Path, synchronize: bool = True) -> float:
    """Return the seconds to write these bytes, to the disk if `synchronize`."""
    start = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for array in arrays:
            view = memoryview(array).cast("B")
            while len(view):
                view = view[file.write(view[:CHUNK]) :]
        if synchronize:
            os.fsync(file.fileno())
    return time.perf_counter() - start


def plain_read(path: Path) -> float:
    """Return the seconds to read a file into new memory."""
    start = time.perf_counter()
    memory = np.empty(path.stat().st_size, np.uint8)
    with open(path, "rb", buffering=0) as file:
        for i in range(0, memory.size, CHUNK):
            file.readinto(memory[i : i + CHUNK].data)
    return time.perf_counter() - start


def forget(path: Path) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds_of(call: Callable[[], Any], path: Path | None = None) -> float:
    """Return the seconds of a call, before which the system writes what it holds for the disk, and remove a file."""
    os.sync()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    if path:
        path.unlink()
    return seconds


def insert_frames(buffer: Any, rows: int) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (4096, *FRAME), np.uint8)
    for begin in range(0, rows, len(frames)):
        n = min(len(frames), rows - begin)
        buffer.insert([frames[:n], np.arange(n, dtype=np.int32), np.zeros(n, np.float32), np.zeros(n, np.bool_)])


# What a save costs.


def cost(folder: Path, rounds: int) -> None:
    buffer: Any = ReplayBuffer(sample_size=64, capacity=10**6, shapes=[(125,)] * 2, types=["float32"] * 2, seed=0)
    for _ in range(10):
        buffer.insert([np.random.default_rng(i).random((10**5, 125), np.float32) for i in range(2)])
    columns, path, saved = [column.asnumpy() for column in buffer.buffer], folder / "file", folder / "saved"
    save(buffer, saved)
    unsafe_save = unittest.mock.patch("os.fsync", new=abs)(save)
    ways = {
        "a plain file": lambda: seconds_of(lambda: plain_write(columns, path, synchronize=False), path),
        "a plain file and fsync": lambda: seconds_of(lambda: plain_write(columns, path), path),
        "save": lambda: seconds_of(lambda: save(buffer, path), path),
        "save without fsync": lambda: seconds_of(lambda: unsafe_save(buffer, path), path),
        "read a plain file": lambda: seconds_of(lambda: plain_read(saved)),
        "load into a new buffer": lambda: seconds_of(lambda: load(saved)),
        "load into a buffer that exists": lambda: seconds_of(lambda: load(saved, buffer=buffer)),
        "the checksums alone": lambda: seconds_of(lambda: [isal_zlib.crc32(column) for column in columns]),
    }
    print("| 1 GB | median | quartiles |\n|---|---|---|")
    for name, seconds in measure(ways, rounds).items():
        low, middle, high = np.percentile(seconds, (25, 50, 75))
        print(f"| {name} | {middle:.2f} s | {low:.2f} to {high:.2f} s |")


# Its memory.


def resident(field: str) -> int:
    """Return bytes of the resident set: ``VmRSS`` is the current value, ``VmHWM`` the maximum."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def memory(folder: Path, gigabytes: float) -> None:
    buffer: Any = PrioritizedReplayBuffer(32, int(gigabytes * 1e9) // ROW_BYTES, **FRAMES)
    insert_frames(buffer, buffer.capacity)
    path, frames = folder / "buffer.safetensors", buffer.buffer[0].asnumpy().reshape(-1)
    calls = {
        "save": (lambda: save(buffer, path), lambda: plain_write([frames], folder / "plain")),
        "load": (lambda: load(path), lambda: plain_read(folder / "plain")),
    }
    print("| | memory added, of the buffer's | MB/s | plain file, MB/s |\n|---|---|---|---|")
    for name, (call, plainly) in calls.items():
        plain = seconds_of(plainly)
        forget(path) if name == "load" else None
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the maximum
        before = resident("VmRSS")
        seconds = seconds_of(call)
        added = (resident("VmHWM") - before) / buffer.nbytes
        speeds = f"{buffer.nbytes / 1e6 / seconds:.0f} | {frames.nbytes / 1e6 / plain:.0f}"
        print(f"| {name} {buffer.nbytes / 1e9:.2f} GB | {added:.3f} | {speeds} |")
        forget(folder / "plain")


# Where rows are better.


@contextlib.contextmanager
def beside(program: str, folder: Path) -> Iterator[None]:
    """Let a program run on every core during the block."""
    commands = [f"NAME = {str(folder / f'other {i}')!r}\n{program}" for i in range(os.cpu_count() or 1) if program]
    running = [subprocess.Popen([sys.executable, "-c", command]) for command in commands]
    try:
        time.sleep(2.0 if running else 0.0)
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def place(folder: Path, sizes: Sequence[float], new: int, rounds: int) -> None:
    print(f"| GB of frames | state of the machine | in memory: written whole | in a folder: {new} new rows flushed |")
    print("|---|---|---|---|")
    for size in sizes:
        sized: dict[str, Any] = {"sample_size": 32, "capacity": int(size * 1e9) // ROW_BYTES, **FRAMES}
        with contextlib.closing(host.ReplayBuffer(**sized, storage=folder / "rows")) as stored:
            buffers = host.ReplayBuffer(**sized), stored
            checkpoints = [TrainingCheckpoint(folder / f"run {i}", buffer=one) for i, one in enumerate(buffers)]
            for buffer, checkpoint in zip(buffers, checkpoints):
                insert_frames(buffer, buffer.capacity)
                checkpoint.save()
            for state, program in BESIDE.items():
                taken: list[list[float]] = [[], []]
                with beside(program, folder):
                    for _ in range(rounds):
                        for buffer, checkpoint, seconds in zip(buffers, checkpoints, taken):
                            os.sync() if state == "idle" else None
                            insert_frames(buffer, new)
                            start = time.perf_counter()
                            checkpoint.save()
                            seconds.append(time.perf_counter() - start)
                            forget(folder / "run 0")
                texts = [f"{statistics.median(one):.2f} s ({min(one):.2f} to {max(one):.2f})" for one in taken]
                print(f"| {size:g} | {state} | {' | '.join(texts)} |", flush=True)
        for path in [*(folder / "rows").iterdir(), *folder.glob("run *")]:
            path.unlink()
        (folder / "rows").rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure checkpoints.")
    parser.add_argument("command", choices=["cost", "memory", "place"])
    parser.add_argument("--disk", help="a folder on the disk to measure (default: that of temporary files)")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds (default: 3)")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.25, 1.0, 4.0], help="sizes of the buffers")
    parser.add_argument("--new", type=int, default=10_000, help="rows between two checkpoints (default: 10000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        calls = {
            "cost": lambda: cost(Path(folder), options.rounds),
            "memory": lambda: memory(Path(folder), options.gigabytes[-1]),
            "place": lambda: place(Path(folder), options.gigabytes, options.new, options.rounds),
        }
        calls[options.command]()


if __name__ == "__main__":
    main()
