"""Buffers of every kind beside their slow twin, and random operations on both."""

import contextlib
import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from any_length import CAPACITY, ITEMS, KINDS_OF_LENGTHS, LEADER, LONGEST, NAMES, padded, plain, row_of
from faces import GROUPS, Face
from model import Model
from model_rows import Views
from twin_kinds import DRAWS, KINDS

from mindspore_replay import attach

Row = dict[str, Any]


class Pair:
    """A buffer and its twin. Each operation goes to both, and all that can be seen of them must be equal.

    Args:
        kind (str): A key of `KINDS`.
        module: The package, or its `host`.
        seed (int): Chooses the operations.
        folder (Path): Where files go, and the rows too if `in_folder`.
        face (type): How the buffer is called.
        wrong (dict): Options of a wrong twin. Default: ``None``, for the right one.
        options: Further ones of the buffer.
    """

    def __init__(
        self,
        kind: str,
        module: Any,
        seed: int,
        folder: Path,
        in_folder: bool = False,
        face: type[Face] = Face,
        wrong: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.kind = KINDS[kind]
        self.cls, of_kind, self.any_length = self.kind
        self.random = np.random.default_rng(seed)
        #: The first column of each kind of lengths, of each column of any length, and the memory for items.
        self.kinds_of_lengths = list(KINDS_OF_LENGTHS) if self.any_length else []
        self.leader, self.items = (LEADER, ITEMS) if self.any_length else ({}, {})
        self.given = {"capacity": CAPACITY, **self.kind.columns, "seed": seed, **options, **of_kind}
        self.module, self.face_class, self.drawn, self.folder = module, face, 0, folder
        storage = {"storage": folder / "rows"} if in_folder else {}
        self.face = self.faced(self.make(self.given["capacity"], self.items, **storage))
        of_twin = {"sample_size": DRAWS, **self.given, **(wrong or {})}
        self.options = {name: value for name, value in of_twin.items() if value is not None}
        if "views" in self.options:
            self.options["views"] = Views(frames=2, terminated=False)
        self.twin = Model(self.cls, self.options.pop("sample_size"), **self.options)
        self.late = list(of_kind.get("late", ()))

    def make(self, capacity: int, items: dict[str, int], **more: Any) -> Any:
        """Make a buffer of the kind, of these sizes."""
        sizes = {"capacity": capacity, **({"items": items} if items else {})}
        return getattr(self.module, self.cls)(DRAWS, **(self.given | sizes | more))

    def faced(self, buffer: Any) -> Face:
        return self.face_class(buffer, None if buffer.folder is None else attach(buffer.folder, timeout=0))

    # Choices.

    def chance(self, p: float) -> bool:
        return bool(self.random.random() < p)

    def handles(self) -> list[int]:
        """Return handles, most of stored rows, some of them twice."""
        newest = self.twin.inserted
        return (newest - self.random.integers(-1, self.twin.size + 3, 4)).tolist()  # type: ignore[no-any-return]

    def priorities(self, n: int) -> np.ndarray:
        return self.random.choice(np.float32([0.0, 0.1, 0.25, 1, 2, 9]), n)

    # Operations.

    def insert(self) -> None:
        twin, most = self.twin, 4
        if not self.any_length and self.chance(0.1):
            most += self.given["capacity"]  # more than there is room for
        n = twin.num_envs * (int(self.random.integers(1, most)) if self.face.is_free else 2)
        lengths = self.random.integers(0, LONGEST + 1, (n, 2)) if self.chance(0.8) else np.full((n, 2), LONGEST)
        lengths = lengths if self.any_length else np.tile([3, 2], (n, 1))
        rows = [row_of(twin.inserted + i, *map(int, lengths[i])) for i in range(n)]
        given: dict[str, Any] = {}
        if twin.has_episodes:
            given["end"], given["final"] = self.random.random(n) < 0.3, self.random.random(n) < 0.05
            if twin.whole and self.chance(0.7) and not twin.fits(given["end"], given["final"]):
                given["end"][:] = True
        if twin.prioritized and (self.chance(0.6) or not self.face.is_free):
            given["priority"] = self.priorities(n)
        has_versions = self.face.weighted and getattr(self.face.buffer, "backend", None) != "composite"
        if has_versions and (self.chance(0.3) or not self.face.is_free):
            given["version"] = np.maximum(twin.now - self.random.integers(0, 3, n), 0)
        words = None
        if any(sum(len(row[name]) for row in rows) > size for name, size in twin.items.items()):
            words = "items in column"
        elif not twin.has_room(rows):
            words = "room"
        elif twin.has_episodes and not twin.fits(given["end"], given["final"]):
            words = "max_episode_length|no episode may have more"
        way = int(self.random.integers(0, 3)) if self.face.is_free else 2
        exp, lengths_of = self.passed(rows, way)
        if words is not None:
            if self.face.is_free:
                with raises(words):
                    self.face.insert(exp, **lengths_of, **given)
            return
        expected = list(range(twin.inserted, twin.inserted + n))
        if self.face.is_free and n == 1 and way == 0:
            exp = {name: value[0] for name, value in exp.items()}
            given = {name: value[0] for name, value in given.items()}
        assert self.face.insert(exp, **lengths_of, **given) == (expected if self.face.weighted else [])
        flags = {f"{name}s": np.atleast_1d(given.pop(name)) for name in ("end", "final") if name in given}
        twin.insert(rows, **given, **flags)

    def passed(self, rows: Sequence[Row], way: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return rows as lists of arrays, as items one behind the other, or padded; without late columns."""
        names = [name for name in NAMES if name not in self.late]
        if not self.any_length:
            return {name: np.stack([row[name] for row in rows]) for name in names}, {}
        if way == 0:
            return {name: [row[name] for row in rows] for name in names}, {}
        lengths = {name: np.array([len(row[name]) for row in rows]) for name in self.kinds_of_lengths}
        if way == 1:
            exp = {name: np.concatenate([np.atleast_1d(row[name]) for row in rows]) for name in names}
            return exp, {"lengths": lengths}
        return {name: padded([row[name] for row in rows], name, LONGEST, 7) for name in names}, {"lengths": lengths}

    def sample(self) -> None:
        twin, given = self.twin, {}
        if self.cls == "ReplayBuffer" and self.chance(0.2):
            given["sample_range"] = [(-4, None), (1, 9), (0, 3)][self.random.integers(3)]
            if self.face.is_free:
                given["sample_range"] = tuple(self.random.integers(-8, 9, 2).tolist())
        elif twin.prioritized and self.chance(0.3):
            given["beta"] = float(self.random.integers(0, 3)) / 2
        longest = self.any_length and self.face.is_free and self.chance(0.3)
        if not twin.can_draw(given.get("sample_range", (None, None))):
            if self.face.is_free:
                with raises("a sample needs|could not be sampled"):
                    self.face.sample(**given)
            return
        if (beta := given.get("beta")) is not None:  # it is that of this call alone
            beta, twin.beta = twin.beta, beta
        handles, weights = twin.delivered(twin.draw(given.get("sample_range", (None, None))))
        if beta is not None:
            twin.beta = min(beta + (1 - twin.first_beta) / twin.beta_steps, 1.0) if twin.beta_steps else beta
        batch = self.face.sample(**given, **({"longest": True} if longest else {}))
        self.compare(batch, handles, weights, "longest" if longest else "padded")

    def sample_of_another_size(self) -> None:
        if not self.face.is_free or self.cls in ("EpochReplayBuffer",):
            return
        twin, n = self.twin, int(self.random.integers(1, 5))
        draws, twin.draws = twin.draws, n
        if twin.can_draw() and (twin.window or n) >= n:
            handles, weights = twin.delivered(twin.draw())
            other = Face(self.face.buffer.with_sample_size(n))
            self.compare(other.sample(), handles, weights, "padded")
        twin.draws = draws

    def sample_packed(self) -> None:
        twin = self.twin
        if not (self.face.is_free and self.any_length) or twin.has_episodes:
            return
        most = int(self.random.integers(LONGEST, 2 * LONGEST)) if self.chance(0.6) else None
        if most is not None and (twin.in_epochs or (twin.max_use is not None and not twin.in_turn)):
            with raises("'max_items' needs rows that can be drawn again"):
                self.face.sample_packed(most)
        elif not twin.can_draw():
            with raises("a sample needs|could not be sampled"):
                self.face.sample_packed(most)
        elif most is None or twin.in_turn:
            handles, weights = twin.delivered(twin.draw(max_items=most))
            self.compare(self.face.sample_packed(most), handles, weights, "packed")
        else:
            self.follow(self.face.sample_packed(most), most)

    def follow(self, batch: dict[str, np.ndarray], most: int) -> None:
        """Check a batch with a bound on its items, whose rows the buffer chose, and deliver them from the twin."""
        twin, handles = self.twin, batch["indices"].tolist()
        rows = [record for handle in handles if (record := twin.record_of(handle))]
        assert set(rows) <= set(twin.eligible())
        assert len(set(handles)) == len(handles) == twin.fitting(rows, most) > 0
        assert len(handles) <= twin.draws
        counter = int(plain(self.face.buffer.state_dict()["random_state"])[1])
        assert counter > twin.counter
        twin.counter = counter
        self.compare(batch, *twin.delivered(rows), "packed")

    def sample_groups(self) -> None:
        if self.cls != "EpisodeReplayBuffer":
            return
        ordered = self.chance(0.5)
        if len(self.twin.groups("group")) < GROUPS[0]:
            return
        groups = self.twin.sample_groups("group", *GROUPS, ordered)
        windows: list[list[int | None]] = [
            [*(record.serial for record in group), *[None] * (GROUPS[1] - len(group))] for group in groups
        ]
        batch = self.face.sample_groups(ordered)
        assert batch["mask"].tolist() == [[serial is not None for serial in one] for one in windows]
        self.compare_columns(batch, windows, "padded", True)

    def update_priorities(self) -> None:
        if not self.twin.prioritized:
            return
        handles = self.handles()
        values = self.priorities(len(handles))
        assert self.face.update_priorities(handles, values) == self.twin.update(handles, values)

    def update(self) -> None:
        """Write late columns, or others; their items too, except in graphs."""
        if not self.face.weighted:
            return
        twin, handles = self.twin, self.handles()
        names = [name for name in (self.late or ["reward", "tokens", "flags"]) if self.chance(0.7)] or ["reward"]
        if self.late and self.chance(0.7):  # those that wait: else few rows would ever be complete
            handles = [record.serial for record in twin.records if twin.is_waiting(record)] or handles
            names = self.late
        found = [twin.record_of(handle) for handle in handles]
        in_folder = self.any_length and self.face.buffer.folder is not None
        if in_folder:  # items in a folder are written once
            once = [name for name in names if name in self.leader]
            wait = [r is None or twin.is_gone(r) or set(once) <= r.missing for r in found]
            handles = [handle for handle, may in zip(handles, wait) if may] if once else handles
        if not handles:
            return
        changed = 0 if in_folder else int(self.random.integers(0, 3))
        rows = []
        for handle in handles:
            record = twin.record_of(handle)
            lengths = [len(record.row[name]) if record else 2 for name in self.kinds_of_lengths] or [3, 2]
            row = row_of(max(handle, 0), *lengths, changed=changed)
            rows.append({name: row[name] for name in names})
        values = {name: [row[name] for row in rows] for name in names}
        assert self.face.update(handles, values) == twin.write(handles, rows)

    def delete(self) -> None:
        handles = self.handles()[:2]
        if self.face.weighted and self.chance(0.6):
            assert self.face.delete(handles) == self.twin.delete(handles)

    def advance(self) -> None:
        if self.face.weighted:
            steps = int(self.random.integers(0, 3))
            self.face.advance(steps)
            self.twin.advance(steps)

    def end_episodes(self) -> None:
        if self.twin.has_episodes and self.chance(0.5):
            assert self.face.end_episodes() == self.twin.end_episodes()

    def set_window(self) -> None:
        if self.twin.window is not None:
            self.twin.window = int(self.random.integers(DRAWS, self.twin.capacity + 1))
            self.face.buffer.set_window(self.twin.window)

    def begin_epoch(self) -> None:
        if self.twin.in_epochs and self.chance(0.3):
            self.face.buffer.begin_epoch()
            self.twin.begin_epoch()

    def reset(self) -> None:
        if self.chance(0.1):
            self.face.buffer.reset()
            self.twin.reset()

    def reload(self) -> None:
        """Let another buffer with the same rows take over."""
        if not self.face.is_free or self.chance(0.5):
            self.face.buffer.load_state_dict(self.face.buffer.state_dict())
        elif (folder := self.face.buffer.folder) is not None:
            if self.twin.has_episodes:  # no other process may continue them
                assert self.face.end_episodes() == self.twin.end_episodes()
            self.face.close()
            verify, twin = self.chance(0.5), self.twin
            self.face = self.faced(type(self.face.buffer).open(folder, verify=verify))
            if verify:  # it is that of all rows then, until one is inserted
                twin.max_priority = max([twin.max_priority, *(record.priority for record in twin.records)])
        else:
            ways = [self.of_state, lambda: copy.deepcopy(self.face.buffer), self.of_file]
            ways += [] if self.twin.reservoir or self.given["capacity"] != CAPACITY else [self.of_file_of_other_sizes]
            self.face = self.faced(ways[self.random.integers(len(ways))]())

    def of_state(self) -> Any:
        made = self.make(self.twin.capacity, self.twin.items)
        made.load_state_dict(self.face.buffer.state_dict())
        return made

    def of_file(self) -> Any:
        self.module.save(self.face.buffer, self.folder / "file")
        return self.module.load(self.folder / "file")

    def of_file_of_other_sizes(self) -> Any:
        """Load the rows into a buffer of another capacity, and with room for other items; the newest rows stay."""
        self.module.save(self.face.buffer, self.folder / "file")
        capacity, more = (int(n) for n in self.random.integers((8, -8), (13, 9)))
        items = {name: size + more for name, size in self.items.items()}
        made = self.make(capacity, items)
        self.module.load(self.folder / "file", buffer=made)
        state, present = plain(made.state_dict()), len(made)
        slots = (int(state["head"]) + np.arange(present)) % capacity
        self.twin.fit(capacity, items)
        for name in items:
            for record, offset in zip(self.twin.records, state[f"column.{name}"][slots, 0].tolist(), strict=True):
                record.offsets[name] = offset
        return made

    # Comparisons.

    def compare(self, batch: dict[str, np.ndarray], handles: list[int], weights: list[float], form: str) -> None:
        """Check a sample."""
        twin = self.twin
        steps = [twin.steps_of(handle) for handle in handles]
        windows = [[None if record is None else record.serial for record in one] for one in steps]
        padding = twin.draws - len(handles)
        self.drawn += 1
        if form == "packed" and not twin.in_epochs:
            padding = 0
        if "indices" in batch:
            assert batch["indices"].tolist()[: len(handles)] == handles
        if twin.prioritized:
            assert batch["weights"].tolist() == weights
        if "mask" in batch:
            mask = [[serial is not None for serial in one] for one in windows]
            mask = [one[0] for one in mask] if twin.single else mask  # type: ignore[misc]
            assert batch["mask"].tolist()[: len(handles)] == mask
            assert not batch["mask"][len(handles) :].any()
        if twin.whole:
            assert batch["lengths"].tolist() == [sum(serial is not None for serial in one) for one in windows]
        windows += [[None] * len(twin.steps)] * padding
        self.compare_columns(batch, windows, form, not twin.single)

    def compare_columns(
        self, batch: dict[str, np.ndarray], windows: Sequence[Sequence[int | None]], form: str, with_steps: bool
    ) -> None:
        shape = (len(windows), len(windows[0])) if with_steps else (len(windows),)
        serials = [serial for one in windows for serial in one]
        content = [None if serial is None else self.row(serial) for serial in serials]
        cuts = {kind: self.cuts(kind, content, batch, form, shape) for kind in self.kinds_of_lengths}
        for name in NAMES:
            if f"next_{name}" in batch:  # stacks, which are compared elsewhere
                continue
            rows = [np.zeros_like(self.blank[name]) if row is None else row[name] for row in content]
            if name not in self.leader:
                expected = np.stack(rows)
                expected = expected.reshape(*shape, *expected.shape[1:])
            else:
                parts = [row[start : start + n] for row, (start, n) in zip(rows, cuts[self.leader[name]], strict=True)]
                expected = np.concatenate(parts)
                if form != "packed":
                    expected = padded(parts, name, self.width(name, parts, form))
                    expected = expected.reshape(*shape, *expected.shape[1:])
            assert (batch[name].dtype, batch[name].shape) == (expected.dtype, expected.shape), name
            np.testing.assert_array_equal(batch[name], expected, err_msg=name)

    def row(self, serial: int) -> Row:
        record = self.twin.record_of(serial)
        assert record is not None
        return record.row  # type: ignore[no-any-return]

    @property
    def blank(self) -> Row:
        return row_of(0, 0, 0) if self.any_length else row_of(0, 3, 2)

    def sampled(self, kind: str) -> int:
        return int(self.options.get("sample_length", {}).get(kind, LONGEST))

    def width(self, name: str, parts: Sequence[np.ndarray], form: str) -> int:
        return max(map(len, parts)) if form == "longest" else self.sampled(self.leader[name])

    def cuts(
        self, kind: str, content: Sequence[Row | None], batch: dict[str, np.ndarray], form: str, shape: tuple[int, ...]
    ) -> list[tuple[int, int]]:
        """Return the first item and the number of items of each row, which the twin cuts."""
        lengths = np.array([0 if row is None else len(row[kind]) for row in content])
        if form == "packed":
            assert batch[f"{kind}_offsets"].tolist() == [0, *np.cumsum(lengths).tolist()]
        if form != "padded":
            return [(0, int(n)) for n in lengths]
        cut = np.minimum(lengths, self.sampled(kind))
        got = batch[f"{kind}_lengths"]
        assert (got.dtype, got.shape, got.reshape(-1).tolist()) == (np.int32, shape, cut.tolist())
        at_random = self.options.get("cut") == "random" and self.sampled(kind) < LONGEST
        starts = self.twin.cut((lengths - cut).tolist()) if at_random else [0] * len(content)
        return list(zip(starts, cut.tolist(), strict=True))

    def check(self) -> None:
        """Check all that can be seen of the rows stored."""
        twin, buffer = self.twin, self.face.buffer
        buffer.check_valid()
        present, size = [record.serial for record in twin.records], twin.size
        assert len(buffer) == size
        assert {*self.face.can_sample()} == {twin.can_sample()}
        assert {*self.face.full()} == {twin.is_full(row_of(0, LONGEST, LONGEST))}
        state, expected = plain(buffer.state_dict()), twin.state()
        assert (int(state["head"]), int(state["count"]), *state["serials"].tolist()) == (twin.head, size, *twin.serials)
        assert state["random_state"].tolist() == twin.random_state
        slots = [twin.slot(record) for record in twin.records]
        if self.face.weighted:
            self.check_weights(state, expected, slots)
        for name in twin.items:
            offsets = [record.offsets[name] for record in twin.records]
            assert state[f"column.{name}"][slots, 0].tolist() == offsets
        if size:
            rows = plain(buffer.get_item(np.resize(np.arange(size), twin.capacity), as_dict=True))
            self.compare_rows(rows, present)

    def check_weights(self, state: dict[str, np.ndarray], expected: dict[str, Any], slots: Sequence[int]) -> None:
        """Check the state of the rows."""
        twin, buffer = self.twin, self.face.buffer
        assert int(buffer.eligible()) == len(twin.eligible())
        assert state["weights"][: twin.capacity].tolist() == expected["leaves"]
        for name in ("counts", "clock", *(["max_priority", "beta"] if twin.prioritized else [])):
            assert state[name].tolist() == expected[name], name
        for name in {"priorities", "insertion_clocks", "use_counts", "steps", "flags"} & expected.keys():
            if name != "use_counts" or not self.late:  # which also say which rows wait
                assert state[name][slots].tolist() == np.array(expected[name])[slots].tolist(), name
        # As many each time, since a graph may have to be compiled for each number.
        handles = [-1, twin.inserted, max(twin.inserted - twin.size - 1, -1), *(row.serial for row in twin.records)]
        handles = np.resize(handles, twin.capacity + 3).tolist()
        got = plain(buffer.info(np.array(handles)))
        assert [tuple(one) for one in zip(*(array.tolist() for array in got), strict=True)] == twin.info(handles)

    def compare_rows(self, rows: dict[str, np.ndarray], present: Sequence[int]) -> None:
        """Check rows as they are read."""
        for i, serial in enumerate(present):
            content = self.row(serial)
            for name in NAMES:
                got = rows[name][i]
                if name in self.leader:
                    n = rows[f"{self.leader[name]}_lengths"][i]
                    assert n == len(content[name])
                    assert not got[n:].any()
                    got = got[:n]
                np.testing.assert_array_equal(got, content[name], err_msg=f"{name} of {serial}")

    def run(self, steps: int) -> None:
        """Do random operations."""
        names = [name for name, times in ACTIONS.items() for _ in range(times)]
        names += ["update"] * 2 * len(self.late) + ["sample_groups"] * 3 * self.twin.whole
        for _ in range(steps):
            getattr(self, names[self.random.integers(len(names))])()
            self.check()
        self.face.close()


#: Operations, and how often each is done.
ACTIONS = {
    "insert": 7,
    "sample": 7,
    "sample_of_another_size": 1,
    "sample_packed": 3,
    "sample_groups": 1,
    "update_priorities": 2,
    "update": 3,
    "delete": 2,
    "advance": 1,
    "end_episodes": 1,
    "set_window": 1,
    "begin_epoch": 1,
    "reset": 1,
    "reload": 1,
}


@contextlib.contextmanager
def raises(words: str) -> Any:
    """Expect an error with words."""
    try:
        yield
    except (RuntimeError, TimeoutError, ValueError) as error:
        assert re.search(words, str(error)), error  # noqa: PT017
    else:
        raise AssertionError(f"expected an error with {words!r}")
