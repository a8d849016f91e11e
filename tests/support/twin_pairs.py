"""Random operations on buffers of every kind and their slow twins."""

import copy
from typing import Any

import numpy as np
from any_length import CAPACITY, LONGEST, plain
from faces import GROUPS, Face
from pairs import Pair, raises
from twin_kinds import DRAWS

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


class RandomPair(Pair):
    """A buffer and its twin, on which operations are chosen at random."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.random = np.random.default_rng(self.given["seed"])
        twin = self.twin
        more = {
            "update": 2 * len(self.late),
            "sample_groups": 3 * twin.whole,
            "advance": twin.max_staleness is not None,
        }
        self.actions = [name for name, times in ACTIONS.items() for _ in range(times + int(more.get(name, 0)))]

    def run(self, steps: int) -> None:
        """Do random operations, and check all after each."""
        for _ in range(steps):
            self.act()
        self.face.close()

    def act(self, *without: str) -> None:
        actions = [name for name in self.actions if name not in without]
        getattr(self, f"any_{actions[self.random.integers(len(actions))]}")()
        self.check()

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

    def any_insert(self) -> None:
        twin, most = self.twin, 4
        if not self.any_length and self.chance(0.1):
            most += self.given["capacity"]  # more than there is room for
        n = twin.num_envs * (int(self.random.integers(1, most)) if self.face.is_free else 2)
        lengths = self.random.integers(0, LONGEST + 1, (n, 2)) if self.chance(0.8) else np.full((n, 2), LONGEST)
        if not self.any_length:
            lengths[:] = 3, 2
        rows = [self.kind.row(twin.inserted + i, *map(int, lengths[i])) for i in range(n)]
        given: dict[str, Any] = {}
        if twin.has_episodes:
            given["end"], given["final"] = self.random.random(n) < 0.3, self.random.random(n) < 0.05
            if twin.whole and self.chance(0.7) and not twin.fits(given["end"], given["final"], self.terminated(rows)):
                given["end"][:] = True
        if twin.prioritized and (self.chance(0.6) or not self.face.is_free):
            given["priority"] = self.priorities(n)
        has_versions = self.face.weighted and getattr(self.buffer, "backend", None) != "composite"
        if has_versions and (self.chance(0.3) or not self.face.is_free):
            oldest = 2 + (twin.max_staleness or 1) * self.chance(0.5)
            given["version"] = np.maximum(twin.now - self.random.integers(0, oldest, n), 0)
        self.put(rows, int(self.random.integers(0, 3)) if self.face.is_free else 2, **given)

    def any_sample(self) -> None:
        given: dict[str, Any] = {}
        if self.cls == "ReplayBuffer" and self.chance(0.2):
            given["sample_range"] = [(-4, None), (1, 9), (0, 3)][self.random.integers(3)]
            if self.face.is_free:
                given["sample_range"] = tuple(self.random.integers(-8, 9, 2).tolist())
        elif self.twin.prioritized and self.chance(0.3):
            given["beta"] = float(self.random.integers(0, 3)) / 2
        if self.any_length and self.face.is_free and self.chance(0.3):
            given["longest"] = True
        self.sample(**given)

    def any_sample_of_another_size(self) -> None:
        if not self.face.is_free or self.twin.in_epochs:
            return
        twin, n = self.twin, int(self.random.integers(1, 5))
        draws, twin.draws = twin.draws, n
        if twin.can_draw() and (twin.window or n) >= n:
            handles, weights = twin.delivered(twin.draw())
            self.compare(Face(self.buffer.with_sample_size(n)).sample(), handles, weights, "padded")
        twin.draws = draws

    def any_sample_packed(self) -> None:
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
        counter = int(plain(self.buffer.state_dict()["random_state"])[1])
        assert counter > twin.counter
        twin.counter = counter
        self.compare(batch, *twin.delivered(rows), "packed")

    def any_sample_groups(self) -> None:
        if "group" not in self.names or not self.twin.whole or len(self.twin.groups("group")) < GROUPS[0]:
            return
        ordered = self.chance(0.5)
        windows: list[list[int | None]] = [
            [*(record.serial for record in group), *[None] * (GROUPS[1] - len(group))]
            for group in self.twin.sample_groups("group", *GROUPS, ordered)
        ]
        batch = self.face.sample_groups(ordered)
        assert batch["mask"].tolist() == [[serial is not None for serial in one] for one in windows]
        self.compare_columns(batch, windows, "padded", True)

    def any_update_priorities(self) -> None:
        if self.twin.prioritized:
            handles = self.handles()
            self.update_priorities(handles, self.priorities(len(handles)))

    def any_update(self) -> None:
        """Write late columns, or others; their items too, except in graphs."""
        if not self.face.weighted:
            return
        twin, handles = self.twin, self.handles()
        if self.views and not self.late and self.chance(0.7):
            self.write_terminated(handles, (self.random.random(len(handles)) < 0.5).tolist())
            return
        changeable = [name for name in ("reward", "tokens", "flags") if name in self.names]
        names = [name for name in (self.late or changeable) if self.chance(0.7)] or ["reward"]
        if self.late and self.chance(0.7):  # those that wait: else few rows would ever be complete
            handles = [record.serial for record in twin.records if twin.is_waiting(record)] or handles
            names = self.late
        found = [twin.record_of(handle) for handle in handles]
        in_folder = self.any_length and self.buffer.folder is not None
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
            row = self.kind.row(max(handle, 0), *lengths, changed=changed)
            rows.append({name: row[name] for name in names})
        values = {name: [row[name] for row in rows] for name in names}
        assert self.face.update(handles, values) == twin.write(handles, rows)

    def any_delete(self) -> None:
        handles = self.handles()[:2]
        if self.face.weighted and self.chance(0.6):
            self.delete(*handles)

    def any_advance(self) -> None:
        if self.face.weighted:
            self.advance(int(self.random.integers(0, (self.twin.max_staleness or 1) + 2)))  # so that many are stale

    def any_end_episodes(self) -> None:
        if self.twin.has_episodes and self.chance(0.5):
            self.end_episodes()

    def any_set_window(self) -> None:
        if self.twin.window is not None:
            self.twin.window = int(self.random.integers(DRAWS, self.twin.capacity + 1))
            self.buffer.set_window(self.twin.window)

    def any_begin_epoch(self) -> None:
        if self.twin.in_epochs and self.chance(0.3):
            self.buffer.begin_epoch()
            self.twin.begin_epoch()

    def any_reset(self) -> None:
        if self.chance(0.1):
            self.reset()

    def any_reload(self) -> None:
        """Let another buffer with the same rows take over."""
        if not self.face.is_free or self.chance(0.5):
            self.buffer.load_state_dict(self.buffer.state_dict())
        elif (folder := self.buffer.folder) is not None:
            if self.twin.has_episodes:  # no other process may continue them
                self.end_episodes()
                self.twin.of_others = self.twin.inserted
            self.face.close()
            verify, twin = self.chance(0.5), self.twin
            self.face = self.faced(type(self.buffer).open(folder, verify=verify))
            if verify:  # it is that of all rows then, until one is inserted
                twin.max_priority = max([twin.max_priority, *(record.priority for record in twin.records)])
        else:
            ways = [self.of_state, lambda: copy.deepcopy(self.buffer), self.of_file]
            ways += [] if self.twin.reservoir or self.given["capacity"] != CAPACITY else [self.of_file_of_other_sizes]
            self.face = self.faced(ways[self.random.integers(len(ways))]())

    def of_state(self) -> Any:
        made = self.make(self.twin.capacity, self.twin.items)
        made.load_state_dict(self.buffer.state_dict())
        return made

    def of_file(self) -> Any:
        self.module.save(self.buffer, self.folder / "file")
        return self.module.load(self.folder / "file")

    def of_file_of_other_sizes(self) -> Any:
        """Load the rows into a buffer of another capacity, and with room for other items; the newest rows stay."""
        self.module.save(self.buffer, self.folder / "file")
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
