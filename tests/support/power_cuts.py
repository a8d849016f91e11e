"""Cuts of the power: what a disk may hold of a folder at some moment, built from what was written and when.

A `Disk` looks at the files of a folder after each operation, as the pages of mapped files are in memory then. Between
two moments at which a file is synchronized, the system may write each page, or each sector of 512 bytes, at any time
and in any order. So after a cut each of them is as it was at the last synchronization, or as it was at a later moment,
independently of all others; and one that was written in the middle of a copy is new up to some word and old behind it.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import flat
from kinds import KINDS, Kind, ends_every

from mindspore_replay import host
from mindspore_replay.store.base.late import pending
from mindspore_replay.store.folder import files as folder_files
from mindspore_replay.store.folder import folder as folder_module

PAGE, SECTOR, WORD = 4096, 512, 8
CAPACITY, BATCH = 24, 4
#: A number, which is that of its row times 16 plus the times it was updated, and the same number 75 times.
NAMES, SHAPES, TYPES = ["number", "payload"], [(), (75,)], ["int64", "int64"]

Sync = Callable[[Path], None]
CASES: dict[str, Kind] = {name: kind for name, kind in KINDS.items() if name != "compressed"}
_STEPS = KINDS["sequences by priority"]
CASES["two environments"] = _STEPS._replace(options={**_STEPS.options, "num_envs": 2})
CASES["late"] = KINDS["prioritized"]._replace(options={"late": ["late"]})
CASES["any length"] = KINDS["prioritized"]._replace(options={"max_length": 75, "items": 600})
CASES["late, sequences"] = _STEPS._replace(options={**_STEPS.options, "late": ["late"]})


class Disk:
    """What a disk may hold of a folder.

    Args:
        folder (Path): The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.versions: dict[str, list[np.ndarray]] = {}  # since the last synchronization, that one first

    def look(self) -> None:
        """Note the files as they are in memory."""
        for path in sorted(self.folder.iterdir()):
            found = np.fromfile(path, np.uint8)
            versions = self.versions.setdefault(path.name, [found])
            if not np.array_equal(found, versions[-1]):
                versions.append(found)

    def sync(self, name: str) -> None:
        """Note that a file is on the disk as it is in memory."""
        self.look()
        del self.versions[name][:-1]

    def cut(self, random: np.random.Generator, target: Path) -> None:
        """Write a folder that the disk may hold."""
        unit, newest = (PAGE, SECTOR)[random.integers(2)], random.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        in_the_middle = random.random() < 0.5
        target.mkdir()
        for name, versions in sorted(self.versions.items()):
            last = versions[-1].copy()
            padded = [np.append(v, np.zeros(-len(v) % unit, np.uint8)).reshape(-1, unit) for v in versions]
            for i in np.flatnonzero(np.logical_or.reduce([(v != padded[-1]).any(1) for v in padded])):
                j = len(padded) - 1 if random.random() < newest else int(random.integers(len(padded)))
                chosen = padded[j][i].copy()
                if in_the_middle and j and random.random() < 0.3:
                    words = WORD * int(random.integers(unit // WORD))
                    chosen[words:] = padded[j - 1][i][words:]
                part = last[i * unit : (i + 1) * unit]
                part[:] = chosen[: len(part)]
            last.tofile(target / name)


class Machine:
    """A buffer in a folder, and what is known of its flushes.

    Args:
        kind (str): One of `CASES`.
        parent (Path): An empty folder.
        random (numpy.random.Generator): Chooses what is done.
        syncs (Callable): Given the function that synchronizes a file, returns the one that a flush calls.
    """

    def __init__(self, kind: str, parent: Path, random: np.random.Generator, syncs: Callable[[Sync], Sync]) -> None:
        self.random, self.parent, self.made, self.syncs = random, parent, 0, syncs
        case = CASES[kind]
        self.cls = getattr(host, case.cls.__name__)
        late = "late" in case.options
        names, shapes, types = NAMES + ["late"] * late, SHAPES + [()] * late, TYPES + ["int64"] * late
        self.any_length = "max_length" in case.options
        shapes = [(), (None,)] if self.any_length else shapes
        self.disk = Disk(parent / "rows")
        self.states: dict[int, dict[str, np.ndarray]] = {}  # by the number of the flush
        self.changed: dict[int, np.ndarray] = {}  # slots whose rows have changed since then
        self.acknowledged, self.during_flush = -1, lambda: None
        with self.observed():
            arguments = {"names": names, "seed": int(random.integers(99)), "storage": parent / "rows"}
            self.buffer = self.cls(BATCH, CAPACITY, **flat(shapes, types, **arguments, **case.options))
            self.acknowledged = 0
        self.do_not_wait()

    def do_not_wait(self) -> None:
        """Let a queue raise an error if it has no room."""
        if self.buffer.limiter is not None:
            self.buffer.limiter.timeout = 0

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays in the folder."""
        return self.buffer._front.shared.folder.arrays  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Note flushes and synchronizations in the block, and cut the power between them."""
        next_flush = folder_module.Folder._next

        def next_and_note(*args: Any) -> Any:
            folder, (record, entry) = args[0], next_flush(*args)
            if folder.is_new or folder.path == self.disk.folder:  # not one that a cut left
                self.note(record.number, folder.arrays)
            return record, entry

        def sync_and_note(path: Path) -> None:
            self.disk.look()
            self.during_flush()
            self.disk.sync(path.name)

        syncs = self.syncs(sync_and_note)

        def sync_in_folder(file: Any) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
            if path.parent == self.disk.folder:
                syncs(path)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(folder_module.Folder, "_next", next_and_note)
            patched.setattr(folder_module, "_AT_ONCE", 2 * 76 * 8)
            patched.setattr(folder_module.time, "sleep", lambda _: self.between_checksums())
            patched.setattr(folder_files, "sync_open", sync_in_folder)
            yield

    def between_checksums(self) -> None:
        """Do something, perhaps, before a flush computes the next checksums."""
        if self.random.random() < 0.2:
            self.step()

    def note(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Note the state at a flush."""
        self.states[number] = {name: array.copy() for name, array in arrays.items()}
        self.changed[number] = np.zeros(CAPACITY, bool)

    def step(self) -> None:
        """Do something that changes rows, and note what the disk may hold then."""
        buffer, random = self.buffer, self.random
        arrays = self.arrays
        handles = int(arrays["serials"][0]) - random.integers(1, CAPACITY + 2, size=3)
        actions: list[Callable[[], Any]] = [self.insert, self.insert, self.insert, self.update]
        if buffer.can_sample():
            actions.append(buffer.sample)
        if "use_counts" in arrays:
            actions += [lambda: buffer.delete(handles[:1]), lambda: buffer.advance(1)]
        if "beta" in arrays:
            actions.append(lambda: buffer.update_priorities(handles, random.random(3, np.float32)))
        if buffer.has_episodes:
            actions.append(buffer.end_episodes)
        if random.random() < 0.1:
            actions = [self.reload]
        with contextlib.suppress(IndexError, RuntimeError):  # no row yet, no room, or too few rows
            actions[random.integers(len(actions))]()
        self.disk.look()
        for number in list(self.changed)[-2:]:
            if self.any_length:  # rows whose items others took
                slots, serials = self.stored(self.states[number]), self.states[number]["serials"][0]
                gone = arrays["serials"][0] - arrays["count"] - serials + len(slots)
                self.changed[number][slots[: max(gone, 0)]] = True
            for name, array in self.columns(arrays).items():
                before = self.states[number][name].reshape(CAPACITY, -1)
                self.changed[number] |= (array.reshape(CAPACITY, -1) != before).any(1)

    @staticmethod
    def columns(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the columns among arrays."""
        return {name: array for name, array in arrays.items() if name.startswith("column.")}

    def insert(self) -> None:
        """Insert some rows."""
        n = int(self.random.integers(1, 6)) * self.buffer.num_envs
        numbers = 16 * (1 + self.made + np.arange(n))
        self.made += n
        with contextlib.suppress(ValueError):  # too long an episode
            payload: Any = np.repeat(numbers[:, None], 75, 1)
            if self.any_length:
                payload = [row[: self.random.integers(0, 76)] for row in payload]
            self.buffer.insert([numbers, payload], **ends_every(self.buffer, 2, n))

    def update(self) -> None:
        """Update a row, or write what it lacks."""
        if self.any_length:
            return  # such rows are written once
        row = int(self.random.integers(max(len(self.buffer), 1)))
        number = self.buffer.get_item(row)[0]
        handle = int(self.arrays["serials"][0]) - len(self.buffer) + row
        if self.buffer.spec.options.reservoir:
            handle = int(self.arrays["row_serials"][row])
        if not self.buffer.spec.options.has_handles:
            self.buffer._front.calls.update([handle], [[number + 1], np.full((1, 75), number + 1)])
        elif "late" in self.buffer.names:
            self.buffer.update(handle, {"late": number})
        else:
            self.buffer.update(handle, {"number": number + 1, "payload": np.full(75, number + 1)})

    def reload(self) -> None:
        """Load a state with the same rows, which are older."""
        saved = self.buffer.state_dict()
        if "insertion_clocks" in saved:
            saved["insertion_clocks"][:] = 0
        self.buffer.load_state_dict(saved)

    def flush(self) -> None:
        """Flush the buffer."""
        with self.observed():
            self.buffer.flush()
        self.acknowledged = max(self.states)
        for known in (self.states, self.changed):
            for number in list(known)[:-2]:
                del known[number]

    # After a cut.

    def cut(self, name: str, may_go_on: bool = False) -> str:
        """Open a folder that the disk may hold, and return what is wrong with it; empty if nothing is.

        If `may_go_on`, it may be used from then on.
        """
        target = self.parent / name
        self.disk.cut(self.random, target)
        found, begun = list[Any](), folder_module.Folder._begun
        try:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(folder_module.Folder, "_begun", lambda *a: found.append(begun(*a)) or found[0])
                opened = self.cls.open(target)
        except ValueError as error:
            return f"it does not open: {error}"
        recovered = {name: array.copy() for name, array in opened._front.shared.folder.arrays.items()}
        fault = self.fault(opened, found[0].number)
        if may_go_on and not fault and self.random.random() < 0.2:
            opened, self.buffer, target = self.buffer, opened, self.disk.folder
            self.disk = Disk(self.buffer.folder)
            self.states, self.changed, self.acknowledged = {}, {}, self.buffer._front.shared.folder._last.number
            self.note(self.acknowledged, recovered)
            self.do_not_wait()
        opened._front.calls.detach()
        shutil.rmtree(target)
        return fault

    def fault(self, opened: Any, number: int) -> str:
        """Return what is wrong with a buffer that was opened as it was at a flush; empty if nothing is."""
        try:
            opened.check_valid()
        except ValueError as error:
            return f"its state is not valid: {error}"
        arrays = opened._front.shared.folder.arrays
        if number < self.acknowledged or number not in self.states:
            return f"it is that of flush {number}, and flush {self.acknowledged} had returned"
        expected, changed = self.states[number], self.changed[number]
        fault = (self.fault_of_slots if "use_counts" in arrays else self.fault_of_rows)(expected, arrays, changed)
        for name in ("serials", "random_state", "clock", "max_priority", "beta", "window", "shared.counts"):
            if not fault and name in arrays and not np.array_equal(arrays[name], expected[name]):
                emptied = name == "serials" and not arrays["count"] and arrays[name][0] == expected[name][0]
                fault = "" if emptied else f"{name} is {arrays[name]} instead of {expected[name]}"
        if fault or not opened.can_sample():
            return fault
        drawn = opened.sample(as_dict=True)
        torn = drawn["payload"] != drawn["number"][..., None]
        if self.any_length:
            torn &= np.arange(75) < drawn["lengths"][:, None]
        return "it gave a torn row" if torn.any() else ""

    @staticmethod
    def stored(arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Return the slots of rows, the oldest first."""
        return (int(arrays["head"]) + np.arange(int(arrays["count"]))) % CAPACITY

    def fault_of_slots(self, before: dict[str, np.ndarray], now: dict[str, np.ndarray], changed: np.ndarray) -> str:
        """Return what is wrong with rows that can be deleted."""

        def deleted(arrays: dict[str, np.ndarray]) -> np.ndarray:
            uses = arrays["use_counts"]
            gone = arrays["flags"] & 4 != 0 if "flags" in arrays else uses < 0
            return gone & ~pending(uses)

        if not np.array_equal(self.stored(before), self.stored(now)):
            return "other rows are stored"
        for slot in self.stored(before):
            if deleted(before)[slot]:
                if not deleted(now)[slot]:
                    return f"the deleted row in slot {slot} is back"
                continue
            if deleted(now)[slot]:
                if not changed[slot]:
                    return f"the flushed row in slot {slot} is lost"
                continue
            for name in (*self.columns(now), "priorities", "use_counts", "insertion_clocks", "steps", "flags"):
                if name in now and not np.array_equal(now[name][slot], before[name][slot]):
                    return f"{name} of slot {slot} is {now[name][slot]} instead of {before[name][slot]}"
        return ""

    def fault_of_rows(self, before: dict[str, np.ndarray], now: dict[str, np.ndarray], changed: np.ndarray) -> str:
        """Return what is wrong with rows that cannot be deleted."""

        def rows(arrays: dict[str, np.ndarray], slots: np.ndarray) -> list[bytes]:
            return [b"".join(column[slot].tobytes() for column in self.columns(arrays).values()) for slot in slots]

        slots = self.stored(before)
        found, flushed_rows = rows(now, self.stored(now)), rows(before, slots)
        if set(found) - set(flushed_rows):
            return "a row is torn, or newer than the flush"
        if set(rows(before, slots[~changed[slots]])) - set(found):
            return "a flushed row is lost"
        if "row_serials" not in now and len(set(found)) < len(found):
            return "a row is there twice"
        return ""


def cuts(
    kind: str, n: int, parent: Path, seed: int, syncs: Callable[[Sync], Sync] = lambda sync: sync
) -> Iterator[str]:
    """Use a buffer and cut the power n times; yield what is wrong after each cut, empty if nothing is."""
    random, faults, made = np.random.default_rng(seed), list[str](), 0
    machine = Machine(kind, parent, random, syncs)

    def cut(may_go_on: bool = False) -> None:
        nonlocal made
        if made < n and random.random() < 0.3:
            made += 1
            faults.append(machine.cut(f"cut{made}", may_go_on))

    machine.during_flush = cut
    try:
        while made < n:
            for _ in range(random.integers(1, 12)):
                machine.step()
                cut(may_go_on=True)
            if random.random() < 0.8:
                machine.flush()
            yield from faults
            faults.clear()
    finally:
        machine.buffer._front.calls.detach()
