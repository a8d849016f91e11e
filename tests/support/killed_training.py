"""Saves a training run again and again, and is killed once at each point of a save.

    python killed_training.py FOLDER HOW ...

HOW is ``whole``, or a wrong way to save, to show that the check detects it: ``in-place`` overwrites the old file,
``removing`` removes the old file before it gives its name to the new one. Each kill is a fork of this process, which
imports MindSpore once. Prints, as JSON, what was found after each kill.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from mindspore import Parameter, Tensor, nn

from mindspore_replay import ReplayBuffer, TrainingCheckpoint
from mindspore_replay.checkpoint import saving
from mindspore_replay.store.base import gone

#: Rows of the first step.
FIRST = 60


class Numbers(nn.Cell):
    """A network, for the purposes of a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros(300, np.float32)), name="weight")


class Training:
    """A run whose every part holds its step."""

    def __init__(self, path: Path) -> None:
        self.network, self.rng = Numbers(), np.random.default_rng(0)
        self.buffer = ReplayBuffer(2, 64, [(200,)], ["float32"], seed=0)
        self.checkpoint = TrainingCheckpoint(path, network=self.network, buffer=self.buffer, rng=self.rng)
        self.step = 0

    def advance(self) -> None:
        self.step += 1
        self.network.weight.asnumpy()[...] = self.step
        self.buffer.insert([np.full((FIRST if self.step == 1 else 2, 200), self.step, np.float32)])
        self.buffer.sample()
        self.rng.random()

    def save(self) -> None:
        self.checkpoint.save(step=self.step)

    def found(self) -> int | None:
        """Return the step of the checkpoint if all parts have the same step."""
        values = self.checkpoint.load()
        if values is None:
            raise FileNotFoundError
        expected, other = values["step"], np.random.default_rng(0)
        other.random(expected)
        rows = self.buffer.get_item(range(int(self.buffer.size())))[0].asnumpy()[:, 0]
        steps = [1] * FIRST + [step for step in range(2, expected + 1) for _ in range(2)]
        right = [
            (self.network.weight.asnumpy() == expected).all(),
            rows.tolist() == steps,
            int(self.buffer.random_state.asnumpy()[1]) == 2 * expected,  # two numbers for each sample
            self.rng.random() == other.random(),
        ]
        return expected if all(right) else None


class Points:
    """Counts the disk operations of a save, and kills the process at one of these points."""

    def __init__(self, kill_at: int) -> None:
        self.count, self.kill_at = 0, kill_at

    def __call__(self) -> None:
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            self()
            result = function(*arguments, **options)
            self()
            return result

        return run

    def write(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def halves(chunks: Iterable[Any]) -> Iterator[Any]:
            for chunk in chunks:
                view = memoryview(chunk).cast("B")
                for part in (view[: len(view) // 2], view[len(view) // 2 :]):
                    self()
                    yield part
                self()

        return lambda file, chunks, *more: real(file, halves(chunks), *more)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in ("fsync", "replace", "unlink"):
                stack.enter_context(mock.patch.object(os, name, self.around(getattr(os, name))))
            stack.enter_context(mock.patch.object(saving, "write_all", self.write(saving.write_all)))
            yield


@contextlib.contextmanager
def in_place(path: Path, _function: str) -> Iterator[Any]:
    """Save without a temporary file, so not atomically."""
    with open(path, "wb", buffering=0) as file:
        yield file


@contextlib.contextmanager
def removing(path: Path, _function: str) -> Iterator[Any]:
    """Remove the old file before the new one has its name."""
    temporary = path.with_suffix(".tmp")
    with in_place(temporary, _function) as file:
        yield file
    os.unlink(path)
    os.replace(temporary, path)


WRONG = {"in-place": in_place, "removing": removing}


def killed_at(point: int, training: Training) -> bool:
    """Return True if a fork that saves reached this point and so was killed there."""
    gone._owned = gone.Living()  # the fork may use the buffer
    child = os.fork()
    if child == 0:
        try:
            with Points(point).watched():
                training.save()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the save failed"
    return os.WIFSIGNALED(status)


def main(folder: Path, how: str) -> dict[str, Any]:
    """Return what was found after a kill at each point and after none, a step or "damaged", and the files."""
    old, new = folder / "old", folder / "new"
    old.mkdir()
    path = new / "run.safetensors"
    new.mkdir()
    before, reader = Training(path), Training(path)
    for _ in range(2):
        before.advance()
        before.save()
    before.advance()
    shutil.copytree(new, old, dirs_exist_ok=True)
    patch = mock.patch.object(saving, "replacing", WRONG[how]) if how in WRONG else contextlib.nullcontext()
    found: list[Any] = []
    killed = True
    with patch:
        while killed and "damaged" not in found:
            shutil.rmtree(new)
            shutil.copytree(old, new)
            killed = killed_at(len(found), before)
            try:
                found.append(reader.found())
            except (FileNotFoundError, ValueError):
                found.append("damaged")
    return {"found": found, "files": sorted(entry.name for entry in new.iterdir())}


if __name__ == "__main__":
    results = {}
    for how in sys.argv[2:]:
        (folder := Path(sys.argv[1]) / how).mkdir()
        results[how] = main(folder, how)
    print(json.dumps(results))
