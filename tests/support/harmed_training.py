"""Runs the training of a page through kills of its processes and cuts of the machine, at random moments.

    python harmed_training.py FOLDER HARMS SEED HOW ...

HOW is ``right``, the functions ``learn`` and ``act`` of ``docs/checkpoints.md``, or a wrong recipe of `WRONG`.
Learner and actor are forks of this process, which imports MindSpore once. Before and after each operation on files,
and before each call of the buffer, a fork waits until this process lets it go on, so a seed gives all orders. A fork is
killed while it waits, or in the middle of what it does next. A cut of the machine ends both, and leaves of folder and
checkpoint what the disk may hold. Prints, as JSON, for each HOW the fault that was found, empty if none was, and how
often what was harmed.
"""

import contextlib
import json
import logging
import os
import random
import shutil
import signal
import socket
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from places import ROOT
from power_cuts import Disk

from mindspore_replay import TrainingCheckpoint
from mindspore_replay.host import PrioritizedReplayBuffer
from mindspore_replay.store.faces.attached import AttachedBuffer
from mindspore_replay.store.folder import files as folder_files
from mindspore_replay.store.folder import folder as folder_module

_SAVE = "            checkpoint.save(step=step, weights=weights)\n"
_PUBLISH = '            actors.publish({"weights": weights}, version=step)\n'
_CONTINUE = "    number = int(buffer.get_item(-1)[0]) + 1 if buffer.size() else 0\n"
_INSERT = "        buffer.insert("
#: Wrong recipes: lines of the page, and what stands there instead.
WRONG: dict[str, dict[str, str]] = {
    "saved before flush": {_SAVE: f"            without_flush(lambda: {_SAVE.strip()})\n            buffer.flush()\n"},
    "published before saved": {_SAVE + _PUBLISH: _PUBLISH + _SAVE},
    "noted before rows": {
        _CONTINUE: "    number = noted(folder)\n",
        _INSERT: f"        note(folder, number + 1)\n{_INSERT}",
    },
}
#: Rows and steps for each time that the run is harmed, and at least.
EACH, FEWEST = 10, 40
TARGET = [1.0, -2.0, 3.0, -4.0]


def recipe(how: str) -> dict[str, Any]:
    """Return the functions of the page, or of a wrong recipe."""
    text = (ROOT / "docs" / "checkpoints.md").read_text().split("```python\n")[3].split("\n\n\nwith ")[0]
    for right, wrong in WRONG.get(how, {}).items():
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    functions = {"without_flush": without_flush, "noted": noted, "note": note}
    exec(compile(text, "checkpoints.md", "exec"), functions)
    return functions


def without_flush(save: Callable[[], None]) -> None:
    """Save a checkpoint without a flush of the folder."""
    with mock.patch.object(PrioritizedReplayBuffer, "flush"):
        save()


def note(folder: Path, number: int) -> None:
    """Write a number to a file, and wait for the disk."""
    with open(folder / "number.new", "w") as file:
        file.write(str(number))
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / "number.new", folder / "number")


def noted(folder: Path) -> int:
    """Return the number in the file."""
    return int((folder / "number").read_text()) if (folder / "number").exists() else 0


class Names:
    """What a disk may hold of a folder whose files are written, renamed and removed, but not changed.

    Args:
        folder (Path): The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now: dict[str, bytes | None] = {path.name: path.read_bytes() for path in self.files()}
        self.possible = [self.now]  # since the folder was synchronized, that first

    def files(self) -> list[Path]:
        """Return the files that are in the folder now."""
        return [path for path in self.folder.iterdir() if path.is_file()]

    def note(self, what: str, paths: list[Path]) -> None:
        """Note an operation that was done."""
        now = dict(self.now)
        if what == "fsync" and paths[0] == self.folder:
            self.possible = []
        elif paths[0].parent != self.folder or paths[-1].is_dir():
            return
        elif what == "fsync":
            now[paths[0].name] = paths[0].read_bytes()
        else:  # replaced or removed; what was not synchronized may be torn
            content = now.pop(paths[0].name, None)
            now |= {path.name: content for path in paths[1:]}
        self.now = now
        self.possible.append(now)

    def refresh(self) -> None:
        """Note what a killed process did without telling."""
        known, found = set(self.now.values()), {path.name: path.read_bytes() for path in self.files()}
        if found != self.now:
            self.now = {name: content if content in known else None for name, content in found.items()}
            self.possible.append(self.now)

    def cut(self, chance: random.Random) -> None:
        """Leave what the disk may hold."""
        for path in self.files():
            path.unlink()
        for name, content in chance.choice(self.possible).items():
            (self.folder / name).write_bytes(bytes(chance.randrange(100)) if content is None else content)


class Fork:
    """A fork of this process that runs a function, which waits at each of its points.

    Args:
        run (Callable): Given the function that tells of a point, and waits there.
    """

    def __init__(self, run: Callable[[Callable[..., None]], None]) -> None:
        self._socket, other = socket.socketpair()
        self._process = os.fork()
        if self._process == 0:
            self._socket.close()
            lines = other.makefile("rw")

            def tell(*point: Any) -> None:
                lines.write(json.dumps(point) + "\n")
                lines.flush()
                lines.readline()

            try:
                run(tell)
                tell("done")
            except BaseException:
                tell("failed", traceback.format_exc(limit=-3))
            os._exit(0)
        other.close()
        self._lines = self._socket.makefile("rw")

    def told(self) -> list[Any]:
        """Wait for its next point, and return it."""
        return json.loads(self._lines.readline())  # type: ignore[no-any-return]

    def go_on(self) -> None:
        """Let it go on."""
        self._lines.write("\n")
        self._lines.flush()

    def kill(self) -> None:
        """Kill it."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        self._lines.close()
        self._socket.close()


@contextlib.contextmanager
def points(tell: Callable[..., None], boot: int, seed: int) -> Iterator[None]:
    """Tell of operations on files and calls of buffers in the block."""
    chance = random.Random(seed)

    def telling(owner: Any, name: str, paths: Callable[..., list[str]]) -> Any:
        function = getattr(owner, name)

        def told(*args: Any, **options: Any) -> Any:
            tell(f"before {name}")
            if name == "sample" and chance.random() < 0.1:
                args[0].flush()  # as the thread does
            known = paths(*args)
            result = function(*args, **options)
            if known:
                tell(name, *known)
            return result

        return mock.patch.object(owner, name, told)

    def save_and_tell(checkpoint: Any, **values: Any) -> None:
        tell("saving")
        rows = checkpoint._in_folders[0].size()
        save(checkpoint, rows=rows, **values)
        tell("saved", values["step"], rows)

    def load_and_tell(checkpoint: Any) -> Any:
        state, buffer = load(checkpoint) or {"step": 0, "rows": 0}, checkpoint._in_folders[0]
        rows = buffer.size()
        numbers, _, _, versions = buffer.get_item(np.arange(rows)) if rows else np.zeros((4, 1))
        is_whole = bool((numbers == np.arange(max(rows, 1))).all())
        tell("loaded", state["step"], state.pop("rows"), rows, int(versions.max()), is_whole)
        return state if state["step"] else None

    save, load = TrainingCheckpoint.save, TrainingCheckpoint.load
    nothing, all_paths = lambda *_: [], lambda *paths: [*map(os.fspath, paths)]
    of_descriptor = lambda descriptor: [os.readlink(f"/proc/self/fd/{descriptor}")]  # noqa: E731
    of_file = lambda file: of_descriptor(file.fileno())  # noqa: E731
    with contextlib.ExitStack() as stack:
        for owner, name, paths in (
            (os, "fsync", of_descriptor),
            (os, "replace", all_paths),
            (os, "unlink", all_paths),
            (folder_files, "sync_open", of_file),
            (time, "sleep", nothing),
            (PrioritizedReplayBuffer, "sample", nothing),
            (PrioritizedReplayBuffer, "update_priorities", nothing),
            (AttachedBuffer, "insert", nothing),
        ):
            stack.enter_context(telling(owner, name, paths))
        stack.enter_context(mock.patch.object(TrainingCheckpoint, "save", save_and_tell))
        stack.enter_context(mock.patch.object(TrainingCheckpoint, "load", load_and_tell))
        this_boot = np.full(40, boot % 251, np.uint8)
        stack.enter_context(mock.patch.object(folder_module, "_this_boot", return_value=this_boot))
        yield


class Run:
    """A run, and what is known of it.

    Args:
        folder (Path): An empty folder.
        harms (int): How often it is harmed.
        seed (int): Chooses when, and what.
        how (str): The recipe.
    """

    def __init__(self, folder: Path, harms: int, seed: int, how: str) -> None:
        self.folder, self.harms, self.recipe = folder, harms, recipe(how)
        self.rows = self.steps = max(FEWEST, EACH * harms)
        self.chance, self.done, self.fault = random.Random(seed), Counter[str](), ""
        self.disk, self.names = Disk(folder / "rows"), Names(folder)
        self.has_folder = False  # whether the disk has the folder's name for certain
        self.forks: dict[str, Fork] = {}
        self.waiting: dict[str, list[Any]] = {}
        self.ended, self.published, self.saved, self.idle = set[str](), False, (0, 0), 0

    def start(self, name: str) -> None:
        """Start the learner or the actor."""
        boot, seed = self.done["machine"], self.chance.randrange(10**9)
        counts = (self.steps, self.rows) if name == "learn" else (self.rows,)

        def run(tell: Callable[..., None]) -> None:
            warnings.simplefilter("ignore")
            with points(tell, boot, seed):
                self.recipe[name](self.folder, *counts)

        self.forks[name] = Fork(run)
        self.waiting[name] = self.forks[name].told()
        self.note(*self.waiting[name])

    def stop(self, name: str) -> None:
        """Kill the learner or the actor."""
        self.forks.pop(name).kill()
        del self.waiting[name]

    def finish(self) -> str:
        """Run to the end, and return the fault."""
        harms = 0
        self.wait()
        self.start("learn")
        while self.forks and not self.fault:
            self.left -= self.counting
            if self.left < 0 and harms < self.harms:
                harms += 1
                self.harm()
                self.wait()
            self.advance()
        for name in list(self.forks):
            self.stop(name)
        return self.fault or self.fault_at_end()

    def wait(self) -> None:
        """Choose when the run is harmed next: after some points, or around the next save."""
        self.counting = self.chance.random() < 0.5
        self.left = self.chance.randrange(100 if self.counting else 30)

    def advance(self) -> None:
        """Let the learner or the actor go on to its next point."""
        name = self.chance.choice([*sorted(self.forks), *2 * ["learn"]])  # which has more points to a row
        if name not in self.forks:
            return
        fork, point = self.forks[name], self.waiting[name]
        if point[0] in ("done", "failed"):
            self.fault = f"{name} failed: {point[1]}" if point[0] == "failed" else self.fault
            self.stop(name)
            self.ended.add(name)
            return
        fork.go_on()
        self.waiting[name] = fork.told()
        self.note(*self.waiting[name])
        if self.published and "act" not in self.forks and "act" not in self.ended:
            self.start("act")

    def note(self, what: str, *facts: Any) -> None:
        """Note what a process told."""
        self.counting |= what == "saving"
        self.idle = self.idle + 1 if what == "before sleep" and "act" in self.ended else 0
        if self.idle > 100:
            self.fault = "the learner waits for rows, and the actor has ended"
        if self.disk.folder.exists():
            self.disk.look()
        if what == "sync_open":
            if Path(facts[0]).parent == self.disk.folder:
                self.disk.sync(Path(facts[0]).name)
        elif what in ("fsync", "replace", "unlink"):
            self.published |= facts[-1] == str(self.disk.folder / "weights")
            self.names.note(what, [Path(path) for path in facts])
            self.has_folder |= facts == (str(self.folder),) and self.disk.folder.exists()
        elif what == "saved":
            self.saved = (facts[0], facts[1])
        elif what == "loaded":
            step, counted, rows, version, is_whole = facts
            if (step, counted) < self.saved:
                self.fault = f"the checkpoint is of step {step} with {counted} rows, after one of {self.saved}"
            elif rows < counted:
                self.fault = f"the folder has {rows} rows, and the checkpoint counts {counted}"
            elif not is_whole:
                self.fault = "rows are missing, or there twice"
            elif version > step:
                self.fault = f"a row is of version {version}, and the learner is at step {step}"

    def harm(self) -> None:
        """Kill a process, or cut the machine."""
        what = self.chance.choice([*self.forks, "machine"])
        self.done[what] += 1
        if self.chance.random() < 0.5:  # in the middle of what comes next
            for name in self.forks if what == "machine" else [what]:
                if self.waiting[name][0] not in ("done", "failed"):
                    self.forks[name].go_on()
            time.sleep(self.chance.random() * 3e-4)
        for name in list(self.forks) if what == "machine" else [what]:
            self.stop(name)
        self.names.refresh()
        if what == "machine":
            self.cut()
        if "learn" not in self.forks | dict.fromkeys(self.ended):
            self.start("learn")

    def cut(self) -> None:
        """Leave what the disk may hold."""
        rows = self.disk.folder
        if rows.exists():
            self.disk.look()
            weights = {path: path.read_bytes() for path in rows.glob("weights*")}
            for name in [name for name in self.disk.versions if name.startswith("weights")]:
                del self.disk.versions[name]  # also of files that have another name now
            if self.has_folder or self.chance.random() < 0.5:
                self.disk.cut(np.random.default_rng(self.chance.randrange(10**9)), self.folder / "cut")
            shutil.rmtree(rows)
            if (self.folder / "cut").exists():
                os.replace(self.folder / "cut", rows)
                for path, content in weights.items():  # they are not synchronized
                    path.write_bytes(content[: self.chance.randrange(len(content) + 1)])
        self.names.cut(self.chance)
        self.disk, self.names = Disk(rows), Names(self.folder)
        self.ended, self.published = set(), False

    def fault_at_end(self) -> str:
        """Return how the end differs from that of a run that was not harmed; empty if it does not."""
        with contextlib.closing(PrioritizedReplayBuffer.open(self.folder / "rows")) as buffer:
            buffer.check_valid()
            state = TrainingCheckpoint(self.folder / "run.safetensors", buffer=buffer).load()
            numbers, x, y, _ = buffer.get_item(np.arange(buffer.size()))
        expected = np.arange(self.rows)
        if not np.array_equal(numbers, expected):
            missing, twice = np.setdiff1d(expected, numbers), len(numbers) - len(np.unique(numbers))
            return f"the rows {missing.tolist()} are missing, and {twice} are there twice"
        right = np.array([np.random.default_rng(number).normal(size=4) for number in expected])
        if not np.array_equal(x, right) or not np.array_equal(y, [row @ TARGET for row in right]):
            return "rows are torn"
        if state is None or state["step"] != self.steps or np.abs(state["weights"] - TARGET).max() > 1e-6:
            return f"it ended with {state}"
        left = [path.name for path in self.folder.iterdir() if path.name.endswith(".tmp")]
        return f"{left} are left behind" if left else ""


def main(parent: Path, harms: int, seed: int, how: str) -> dict[str, Any]:
    """Return the fault of a run, empty for none, and how often what was harmed."""
    parent.mkdir()
    run = Run(parent, harms, seed, how)
    return {"fault": run.finish(), "harmed": dict(run.done)}


if __name__ == "__main__":
    folder, harms, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    logging.disable()
    print(json.dumps({how: main(folder / how.replace(" ", "_"), harms, seed, how) for how in sys.argv[4:]}))
