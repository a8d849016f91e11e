"""Processes insert into a buffer in a folder and are killed; no row may be torn, no acknowledged one lost.

Writers attach to the folder, without MindSpore, and insert single rows, batches and whole episodes, set priorities and
sample, with a pause of `--pause` seconds after each insertion. Every 100 ms one of them is killed by SIGKILL and
replaced. The learner samples in a compiled graph and sets priorities; it is killed too, every few seconds, and opens
the folder again. Each row carries its writer, a number and a checksum of all its columns, which every reader verifies.
A writer notes each insertion that has returned. After each death this process checks the state and all rows: of
each writer, all rows noted are stored, from its oldest one on. The time is divided among the buffers; with `--deaths`,
one's share ends when so many writers and a learner have died.
"""

import argparse
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_replay import attach, host

from . import rows
from .rows import checksum

NAMES = ["writer", "number", "payload", "priority", "checksum"]
SHAPES: list[tuple[int, ...]] = [(), (), (512,), (), ()]
TYPES = ["int32", "int64", "float32", "float32", "int64"]
CAPACITY, BATCH = 1024, 16
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("ReplayBuffer", {}),
    "prioritized": ("PrioritizedReplayBuffer", {}),
    "sequence": ("SequenceReplayBuffer", {"sequence_length": 3, "pad_end": True, "priorities": host.Priorities()}),
}
#: Seconds between two deaths of writers, and between two of the learner once it runs.
WRITER_LIVES, LEARNER_LIVES = 0.1, 3.0


def make_rows(writer: int, numbers: Sequence[int], random: np.random.Generator) -> list[np.ndarray]:
    rows = []
    for number in numbers:
        payload = random.random(512, np.float32)
        row = [np.int32(writer), np.int64(number), payload, np.float32(random.random())]
        rows.append([*row, np.int64(checksum([*row, None]))])
    return [np.stack(column) for column in zip(*rows)]


def torn(columns: Sequence[np.ndarray]) -> int:
    """Return the number of rows whose checksum is wrong."""
    return sum(checksum(row) != row[-1] for row in zip(*columns))


def notes_of(folder: Path) -> np.ndarray:
    """Return the number of the last row that each writer knows to be stored, in memory that processes share."""
    with open(folder / "notes", "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0), np.int64)


def write(folder: Path, kind: str, writer: int, pause: float) -> None:
    """Insert until killed."""
    buffer, notes, random = attach(folder / "rows", sample_size=8), notes_of(folder), np.random.default_rng()
    while True:
        n = int(random.integers(1, 9))
        numbers = range(notes[writer] + 1, notes[writer] + 1 + n)
        rows = make_rows(writer, numbers, random)
        extra: dict[str, Any] = {}
        if kind == "sequence":
            extra["end"] = np.arange(n) == n - 1
        if kind != "uniform":
            extra["priority"] = rows[3]
        buffer.insert(rows, **extra)
        notes[writer] = numbers[-1]
        if random.random() < 0.3 and buffer.can_sample():
            batch = buffer.sample(as_dict=True)
            if kind != "sequence" and torn([batch[name] for name in NAMES]):
                raise SystemExit("a writer drew a torn row")
            if kind != "uniform":
                buffer.update_priorities(batch["indices"], random.random(8, np.float32))
        time.sleep(pause)


def learn(folder: Path, kind: str) -> None:
    """Make or open the buffer, and sample in a compiled graph until killed."""
    import mindspore as ms

    import mindspore_replay

    name, arguments = KINDS[kind]
    cls = getattr(mindspore_replay, name)
    if (folder / "rows").exists():
        buffer = cls.open(folder / "rows")
    else:
        buffer = cls(BATCH, CAPACITY, SHAPES, TYPES, names=NAMES, storage=folder / "rows", **arguments)
    new_priorities = ms.Tensor(np.linspace(0.1, 1, BATCH), ms.float32)

    @ms.jit
    def step():  # type: ignore[no-untyped-def]
        batch = buffer.sample()
        if kind != "uniform":
            buffer.update_priorities(batch[0], new_priorities)
        return batch

    while True:
        if not buffer.can_sample():
            time.sleep(0.01)
            continue
        columns = [part.asnumpy() for part in step()][-len(NAMES) :]
        if kind == "sequence":
            columns = [column.reshape(-1, *column.shape[2:]) for column in columns]
            columns = [column[columns[4] != 0] for column in columns]  # without padding
        if torn(columns):
            raise SystemExit("the learner drew a torn row")
        (folder / "learns").touch()


class Soak:
    """A learner and writers on a folder, and the checks of their rows."""

    def __init__(self, folder: Path, kind: str, writers: int, pause: float) -> None:
        self.folder, self.kind, self.writers, self.pause = folder, kind, writers, pause
        self.faults: list[str] = []
        self.writer_deaths = self.learner_deaths = self.checks = 0
        (folder / "notes").write_bytes(np.full(writers, -1, np.int64).tobytes())
        self.notes = notes_of(folder)
        self.learner = self.start("learn")
        while not (folder / "rows").exists():
            self.look()
            time.sleep(0.05)
        self.processes = [self.start("write", writer, self.pause) for writer in range(writers)]
        self.buffer = attach(folder / "rows")

    def start(self, role: str, *more: Any) -> subprocess.Popen:
        command = [sys.executable, "-m", __spec__.name, role, *map(str, (self.folder, self.kind, *more))]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})

    def look(self) -> None:
        """Note processes that ended by themselves."""
        for process in [self.learner, *getattr(self, "processes", [])]:
            if process.poll() not in (None, -signal.SIGKILL):
                self.faults.append(f"a process ended with {process.returncode}")
                raise RuntimeError("a process ended")

    def kill(self, process: subprocess.Popen) -> None:
        process.kill()
        process.wait()

    def check(self) -> None:
        self.checks += 1
        noted = self.notes.copy()
        self.buffer.check_valid()
        rows = len(self.buffer)
        if rows == 0:
            return
        columns = self.buffer.get_item(np.arange(-rows, 0))
        if wrong := torn(columns):
            self.faults.append(f"{wrong} torn rows")
        for writer in range(self.writers):
            numbers = columns[1][columns[0] == writer]
            lost = set(range(numbers[0], noted[writer] + 1)) - set(numbers.tolist()) if numbers.size else ()
            if lost:
                self.faults.append(f"writer {writer} lost rows {sorted(lost)[:9]}")

    def run(self, seconds: float, deaths: float) -> dict[str, Any]:
        end, next_learner = time.monotonic() + seconds, None
        random = np.random.default_rng(0)
        try:
            while time.monotonic() < end and not self.faults:
                if self.writer_deaths >= deaths and self.learner_deaths:
                    break
                time.sleep(WRITER_LIVES)
                self.look()
                writer = int(random.integers(self.writers))
                self.kill(self.processes[writer])
                self.writer_deaths += 1
                self.check()
                self.processes[writer] = self.start("write", writer, self.pause)
                if next_learner is None and (self.folder / "learns").exists():
                    next_learner = time.monotonic() + LEARNER_LIVES
                if next_learner is not None and time.monotonic() > next_learner:
                    self.kill(self.learner)
                    self.learner_deaths += 1
                    self.check()
                    (self.folder / "learns").unlink(missing_ok=True)
                    self.learner, next_learner = self.start("learn"), None
        except (RuntimeError, ValueError) as error:
            self.faults.append(str(error))
        finally:
            for process in [self.learner, *self.processes]:
                self.kill(process)
        self.check()
        return {
            "writer_deaths": self.writer_deaths,
            "learner_deaths": self.learner_deaths,
            "checks": self.checks,
            "noted": int((self.notes + 1).sum()),
            "faults": self.faults if (self.notes + 1).any() else [*self.faults, "no writer inserted a row"],
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    rows.add_options(parser, KINDS, list(KINDS))
    parser.add_argument("--deaths", type=float, default=math.inf)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.0)


def run(options: argparse.Namespace) -> int:
    def soak(kind: str, seconds: float) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            return Soak(Path(folder), kind, options.writers, options.pause).run(seconds, options.deaths)

    return rows.run_each(options, soak)


if __name__ == "__main__":  # a process that is killed
    role, path, kind, *numbers = sys.argv[1:]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    write(Path(path), kind, int(numbers[0]), float(numbers[1])) if role == "write" else learn(Path(path), kind)
