"""Processes that are killed while they save: a whole file is always left.

    python killed_savers.py FOLDER HOW ...

A process is killed at a given point of its progress, so a busy machine does not matter: before the n-th line of Python
that a save runs, or by the kernel when a file has its n-th byte. MindSpore is imported once, and the killed processes
are forks of this one. HOW is ``save`` or ``incremental``, or a wrong way to save, to show that the check detects it:
``in-place`` overwrites the old file, ``removing`` removes the old file before it gives its name to the new one. Prints
the outcomes as JSON.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np

import mindspore_replay
from mindspore_replay import PrioritizedReplayBuffer, load, save
from mindspore_replay.checkpoint import saving

CAPACITY, WIDTH, BATCH = 1024, 128, 128
#: Lines of a save to be killed before: every line of the functions that rename, and this many of all.
CRITICAL = "replacing", "_sync_folder", "remove_increments", "removing"
SPREAD = 30
#: File sizes, in bytes, at which the process is killed. The full size is 60,000 at least.
BYTES = 1, 1000, 20_000, 50_000


def make_buffer() -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(
        sample_size=4,
        capacity=CAPACITY,
        shapes=[(), (WIDTH,)],
        types=["int64", "float32"],
        names=["number", "data"],
        seed=0,
    )


#: A function, a line, and its number of executions so far.
Line = tuple[str, int, int]
#: Files whose lines count.
TRACED = str(Path(mindspore_replay.__file__).parent / "checkpoint"), make_buffer.__code__.co_filename


def rows(first: int, count: int) -> list[np.ndarray]:
    """Return rows whose data follow from their numbers."""
    numbers = np.arange(first, first + count)
    return [numbers, (numbers[:, None] * 31 % 1009 + np.arange(WIDTH)).astype(np.float32)]


def insert(buffer: PrioritizedReplayBuffer) -> int:
    """Insert rows; return the number of rows inserted so far."""
    buffer.insert(rows(int(buffer.serials.asnumpy()[0]), BATCH))
    buffer.update_priorities(buffer.sample()[0], 2.0)
    return int(buffer.serials.asnumpy()[0])


def inserted_in(path: Path) -> int:
    """Load the file, check it, and return the number of rows that had been inserted."""
    buffer = load(path)
    buffer.check_valid()
    inserted, count = int(buffer.serials.asnumpy()[0]), int(buffer.size())
    for column, expected in zip(buffer.get_item(range(count)), rows(inserted - count, count)):
        np.testing.assert_array_equal(column.asnumpy(), expected)
    return inserted


@contextlib.contextmanager
def in_place(path: Path, _function: str) -> Iterator[Any]:
    """Save without a temporary file, so not atomically."""
    with open(path, "wb", buffering=0) as file:
        yield file


@contextlib.contextmanager
def removing(path: Path, _function: str) -> Iterator[Any]:
    """Remove the old file before the new one has its name."""
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb", buffering=0) as file:
        yield file
    path.unlink(missing_ok=True)
    temporary.rename(path)


WRONG = {"in-place": in_place, "removing": removing}


class Lines:
    """Records each line of a save with its number of executions, and kills the process before one of them.

    Attributes:
        run (list): Function, line, and its number of executions.
    """

    def __init__(self, last: Line | None = None) -> None:
        self.run: list[Line] = []
        self._last = last
        self._counts: Counter[tuple[str, int]] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line":
            line = frame.f_code.co_name, frame.f_lineno
            self._counts[line] += 1
            self.run.append((*line, self._counts[line]))
            if self.run[-1] == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def killed_at_byte(number: int) -> None:
    """Make the kernel end the process as soon as it writes more to a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))


def in_a_fork(work: Callable[[], None]) -> int:
    """Call `work` in another process; return the number of the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            work()
            failed = 0
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the process failed by itself"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def save_traced(buffer: PrioritizedReplayBuffer, path: Path, incremental: bool, lines: Lines) -> list[Line]:
    """Save, and return the lines that were run."""
    sys.settrace(lines)
    try:
        save(buffer, path, incremental=incremental)
    finally:
        sys.settrace(None)
    return lines.run


def prepare(buffer: PrioritizedReplayBuffer, path: Path, incremental: bool) -> int:
    """Restore buffer and folder to their state before each counted save; return the number of rows inserted."""
    for left_over in path.parent.glob("*.tmp"):
        left_over.unlink()
    load(path, buffer=buffer)
    if incremental:
        insert(buffer)
        save(buffer, path)
    return int(buffer.serials.asnumpy()[0])


def points(lines: list[Line]) -> list[Line | int]:
    """Return the points to kill a save that runs these lines: at bytes, at all lines around renames, at some others."""
    return [*BYTES, *(line for line in lines if line[0] in CRITICAL), *lines[:: len(lines) // SPREAD]]


def main(folder: str, how: str) -> dict[str, Any]:
    path, incremental = Path(folder) / "buffer.safetensors", how == "incremental"
    buffer = make_buffer()
    while not buffer.full():
        insert(buffer)
    save(buffer, path)
    result: dict[str, Any] = {"rounds": 0, "killed": 0, "damaged": 0, "old": 0, "new": 0, "in the middle": 0}
    with mock.patch.object(saving, "replacing", WRONG[how]) if how in WRONG else contextlib.nullcontext():
        for _ in range(2):  # the first save runs some lines that later ones do not
            prepare(buffer, path, incremental)
            insert(buffer)
            lines = save_traced(buffer, path, incremental, Lines())
        for point in points(lines):
            if how in WRONG and result["damaged"]:
                break  # that is enough
            old = prepare(buffer, path, incremental)

            def work(point: Line | int = point) -> None:
                insert(buffer)
                if isinstance(point, int):
                    killed_at_byte(point)
                    save(buffer, path, incremental=incremental)
                else:
                    save_traced(buffer, path, incremental, Lines(point))

            result["rounds"] += 1
            result["killed"] += in_a_fork(work) == (signal.SIGXFSZ if isinstance(point, int) else signal.SIGKILL)
            result["in the middle"] += any(entry.suffix == ".tmp" for entry in path.parent.iterdir())
            try:
                found = inserted_in(path)
            except (OSError, ValueError):
                result["damaged"] += 1
                save(buffer, path)
            else:
                result["old"] += found == old
                result["new"] += found == old + BATCH
    return result


if __name__ == "__main__":
    results = {}
    for how in sys.argv[2:]:
        with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
            results[how] = main(folder, how)
    print(json.dumps(results))
