"""Measures the checkpoint of a large buffer: memory while it is saved and loaded, and speed against plain files.

    python benchmarks/checkpoint_memory.py [--gigabytes 4] [--folder FOLDER]

Saving and loading run in processes of their own. Memory is the largest resident set since the call began, with and
without the memory that the process needed before it had a buffer. Speeds are for the same bytes, written to the disk
with `fsync` or read into new memory after the system has dropped the file from its cache. Needs Linux.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_replay import PrioritizedReplayBuffer, load, save

CHUNK = 1 << 23
FRAME = (84, 84)
ROW_BYTES = 84 * 84 + 4 + 4 + 1


def resident(field: str) -> int:
    """Return bytes of the resident set: ``VmRSS`` is the current value, ``VmHWM`` the maximum."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def measured(call: Callable[[], Any]) -> tuple[float, int, int]:
    """Return the seconds of a call, the largest resident set since it began, and its growth."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the maximum
    before = resident("VmRSS")
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    return seconds, resident("VmHWM"), resident("VmHWM") - before


def report(what: str, nbytes: int, seconds: float, peak: int, growth: int, before: int, plain: float) -> None:
    """Print one line of figures."""
    print(
        f"{what}: {nbytes / 1e9:.2f} GB in {seconds:.1f} s, {nbytes / 1e6 / seconds:.0f} MB/s, plain file "
        f"{nbytes / 1e6 / plain:.0f} MB/s, ratio {plain / seconds:.2f}; peak memory {peak / nbytes:.3f} of the buffer, "
        f"{(peak - before) / nbytes:.3f} without the process itself, {growth / 1e6:.0f} MB more than before the call",
        flush=True,
    )


def forget(path: Path) -> None:
    """Drop a file from the system's cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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


def save_one(path: Path, nbytes: int) -> None:
    """Fill a buffer with random frames and save it."""
    before = resident("VmRSS")
    rows = nbytes // ROW_BYTES
    buffer = PrioritizedReplayBuffer(
        sample_size=32, capacity=rows, shapes=[FRAME, (), (), ()], types=["uint8", "int32", "float32", "bool"], seed=0
    )
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (4096, *FRAME), np.uint8)
    for begin in range(0, rows, len(frames)):
        n = min(len(frames), rows - begin)
        buffer.insert([frames[:n], np.arange(n, dtype=np.int32), np.zeros(n, np.float32), np.zeros(n, np.bool_)])
    column = buffer.buffer[0].asnumpy().reshape(-1)
    plain = path.with_suffix(".plain")
    seconds = plain_write([column], plain) * buffer.nbytes / column.nbytes
    plain.unlink()
    report("save", buffer.nbytes, *measured(lambda: save(buffer, path)), before, seconds)


def load_one(path: Path) -> None:
    """Load the buffer."""
    before = resident("VmRSS")
    forget(path)
    plain = plain_read(path)
    forget(path)
    loaded: list[Any] = []
    figures = measured(lambda: loaded.append(load(path)))
    report("load", loaded[0].nbytes, *figures, before, plain)


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and speed of checkpoints.")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the buffer (default: 4)")
    parser.add_argument("--folder", help="where to write (default: the system's folder for temporary files)")
    parser.add_argument("--only", choices=["save", "load"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only == "save":
        save_one(Path(options.folder) / "buffer.safetensors", int(options.gigabytes * 1e9))
    elif options.only == "load":
        load_one(Path(options.folder) / "buffer.safetensors")
    else:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for only in ("save", "load"):
                size = ["--gigabytes", str(options.gigabytes)]
                subprocess.run([sys.executable, __file__, *size, "--folder", folder, "--only", only], check=True)


if __name__ == "__main__":
    main()
