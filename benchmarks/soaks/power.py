"""Cuts the power of buffers in folders; no flushed row may be lost, none torn.

The first builds folders from the versions of their pages, as `tests/support/power_cuts.py` says, over all kinds of
buffers in turn. The second makes an ext4 file system in a file, lets a process insert and flush there, ends all of the
file system's writes at a random moment (``EXT4_IOC_SHUTDOWN``, without its log), kills the process, and mounts it anew.
The third runs the training of ``docs/checkpoints.md``, as `tests/support/harmed_training.py` says.
"""

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from mindspore_replay.host import PrioritizedReplayBuffer
from mindspore_replay.store.folder import folder as folder_module

#: The request of ext4 that ends all writes, as `_IOR('X', 125, uint32)`, and its flag to leave the log as it is.
SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2
CAPACITY, ROW = 5000, 600
AT_ONCE = 20
SUPPORT = Path(__file__).resolve().parents[2] / "tests" / "support"


def each_opening_is_in_another_run() -> None:
    """Let this process take each opening for the first after a stop of the machine."""
    folder_module._this_boot = lambda: np.frombuffer(os.urandom(40), np.uint8)


def trainings(n: int, seed: int) -> int:
    """Run n trainings that are harmed, and return the number of those that did not end as they should."""
    wrong, script = 0, SUPPORT / "harmed_training.py"
    for i in range(n):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as parent:
            command = [sys.executable, str(script), parent, "200", str(seed + i), "right"]
            found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["right"]
        wrong += bool(found["fault"])
        print(f"training {seed + i}: {found}", flush=True)
    return wrong


def simulated(n: int, seed: int) -> int:
    sys.path.insert(0, str(SUPPORT))
    from power_cuts import CASES, cuts

    wrong = 0
    each = -(-n // (10 * len(CASES)))
    for i in range(10):
        for j, kind in enumerate(CASES):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as parent:
                faults = [fault for fault in cuts(kind, each, Path(parent), seed + 1000 * i + j) if fault]
            for fault in faults:
                print(f"{kind}, seed {seed + 1000 * i + j}: {fault}", flush=True)
            wrong += len(faults)
        print(f"{(i + 1) * each * len(CASES)} cuts, {wrong} faults", flush=True)
    return wrong


def write(folder: Path, notes: Path) -> None:
    """Insert, update and flush until killed; note how many rows were inserted when a flush returned."""
    if folder.exists():
        buffer = PrioritizedReplayBuffer.open(folder)
    else:
        shapes, types = [(), (ROW,)], ["int64", "int64"]
        buffer = PrioritizedReplayBuffer(8, CAPACITY, shapes, types, names=["number", "payload"], storage=folder)
    inserted, random = int(buffer.arrays["serials"][0]), np.random.default_rng()
    while True:
        for _ in range(random.integers(1, 20)):
            numbers = inserted + np.arange(AT_ONCE)
            buffer.insert([numbers, np.repeat(numbers[:, None], ROW, 1)])
            inserted += AT_ONCE
            buffer.update_priorities(buffer.sample()[0], random.random(8))
        buffer.flush()
        notes.with_suffix(".new").write_text(str(inserted))
        notes.with_suffix(".new").replace(notes)


def real(n: int) -> tuple[int, int]:
    """Shut a file system down n times under load; return the number of faults, and of rows that were torn."""
    wrong = torn = 0
    with tempfile.TemporaryDirectory() as parent:
        image, where, notes = (Path(parent) / name for name in ("image", "mounted", "notes"))
        where.mkdir()
        with image.open("wb") as file:
            file.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        mount = ["mount", "-o", "loop", image, where]
        subprocess.run(mount, check=True)
        random = np.random.default_rng(0)
        for _ in range(n):
            notes.write_text("-1")
            process = os.fork()
            if process == 0:
                with contextlib.suppress(OSError, RuntimeError):  # of the disk that fails
                    write(where / "rows", notes)
                os._exit(0)
            while notes.read_text() == "-1":
                time.sleep(0.01)
            time.sleep(0.3 * random.random())
            acknowledged = int(notes.read_text())  # a flush in progress may return after the end of all writes
            with open(where / "rows" / "header", "rb") as file:
                fcntl.ioctl(file, SHUTDOWN, WITHOUT_LOG.to_bytes(4, "little"))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            subprocess.run(["umount", where], check=True)
            subprocess.run(mount, check=True)
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                buffer = PrioritizedReplayBuffer.open(where / "rows")
            buffer.check_valid()
            arrays, inserted = buffer.arrays, int(buffer.arrays["serials"][0])
            number, payload = arrays["column.number"], arrays["column.payload"]
            kept = np.flatnonzero(arrays["weights"][:CAPACITY] > 0)
            torn += len(buffer) - len(kept)
            wrong += inserted < acknowledged or bool((payload[kept] != number[kept, None]).any())
            overwritten = int(arrays["counts"][3])
            print(f"flushed {acknowledged}, found {inserted}, removed so far {overwritten}, {wrong} faults", flush=True)
            buffer._front.calls.detach()
            del buffer, arrays, number, payload
        subprocess.run(["umount", where], check=True)
    return wrong, torn


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=int, metavar="N", help="shut a file system down so many times instead")
    parser.add_argument("--trainings", type=int, metavar="N", help="harm N trainings instead")


def run(options: argparse.Namespace) -> int:
    if options.trainings is not None:
        return int(trainings(options.trainings, options.seed) > 0)
    each_opening_is_in_another_run()
    warnings.filterwarnings("ignore", ".*the machine was restarted")
    if options.real is not None:
        wrong, torn = real(options.real)
        print(f"{options.real} cuts, {wrong} faults; {torn} torn rows were removed")
        return int(wrong > 0)
    return int(simulated(options.cuts, options.seed) > 0)
