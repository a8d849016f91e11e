"""A buffer and its slow twin: each operation goes to both, and all that can be seen of them must be equal."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from any_length import CAPACITY, ITEMS, KINDS_OF_LENGTHS, LEADER, LONGEST, padded, plain
from checks import legal_handles
from faces import Face
from flat import flat
from model import Model
from model_views import sample_of, window_of
from twin_kinds import DRAWS, KINDS, Kind, views_of

import mindspore_replay
from mindspore_replay import attach

Row = dict[str, Any]


class Pair:
    """A buffer and its twin.

    Args:
        kind (Union[str, Kind]): A key of `KINDS`, or a kind.
        module: The package, or its `host`. Default: the package.
        seed (int): Chooses the operations. Default: ``0``.
        folder (Path): Where files go, and the rows too if `in_folder`.
        face (type): How the buffer is called.
        wrong (dict): Options of a wrong twin. Default: ``None``, for the right one.
        options: Further ones of the buffer.
    """

    def __init__(
        self,
        kind: str | Kind,
        module: Any = mindspore_replay,
        seed: int = 0,
        folder: Path = Path(),
        in_folder: bool = False,
        face: type[Face] = Face,
        wrong: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.kind = KINDS[kind] if isinstance(kind, str) else kind
        self.cls, of_kind, columns = self.kind
        self.any_length, self.names = self.kind.any_length, columns["names"]
        #: The first column of each kind of lengths, of each column of any length, and the memory for items.
        self.kinds_of_lengths = list(KINDS_OF_LENGTHS) if self.any_length else []
        self.leader, self.items = (LEADER, ITEMS) if self.any_length else ({}, {})
        self.given = {"sample_size": DRAWS, "capacity": CAPACITY, **columns, "seed": seed, **options, **of_kind}
        self.options = {name: value for name, value in (self.given | (wrong or {})).items() if value is not None}
        self.views = self.given.get("views")
        if self.views:
            self.given["views"] = views_of(self.views)
        self.module, self.face_class, self.drawn, self.folder = module, face, 0, folder
        storage = {"storage": folder / "rows"} if in_folder else {}
        self.face = self.faced(self.make(self.given["capacity"], self.items, **storage))
        self.twin = Model(self.cls, self.options.pop("sample_size"), **self.options)
        self.late = list(of_kind.get("late", ()))

    def make(self, capacity: int, items: dict[str, int], **more: Any) -> Any:
        """Make a buffer of the kind, of these sizes."""
        sizes = {"capacity": capacity, **({"items": items} if items else {})}
        return getattr(self.module, self.cls)(**flat(**self.given | sizes | more))

    def faced(self, buffer: Any) -> Face:
        return self.face_class(buffer, None if buffer.folder is None else attach(buffer.folder, timeout=0))

    @property
    def buffer(self) -> Any:
        return self.face.buffer

    # Rows in.

    def new_rows(self, n: int) -> list[Row]:
        return [self.kind.row(self.twin.inserted + i) for i in range(n)]

    def insert(
        self, ends: Sequence[Any], finals: Any = None, priority: Any = None, rows: Any = None, **given: Any
    ) -> bool:
        """Insert one row for each flag; return False if both refuse them."""
        if self.twin.has_episodes:
            given["end"] = np.array(ends, bool)
            given["final"] = np.zeros(len(ends), bool) if finals is None else np.array(finals, bool)
        if self.twin.prioritized and priority is not None:
            given["priority"] = priority
        return self.put(self.new_rows(len(ends)) if rows is None else rows, 2, **given)

    def steps(self, n: int, *ends: int) -> "Pair":
        """Insert n rows one by one; those at these positions are ends."""
        for i in range(n):
            self.insert([i in ends])
        return self

    def put(self, rows: Sequence[Row], way: int, **given: Any) -> bool:
        """Insert rows in a form; return False if both refuse them, which changes nothing."""
        twin, terminated = self.twin, self.terminated(rows)
        exp, lengths_of = self.passed(rows, way)
        words = None
        if any(sum(len(row[name]) for row in rows) > size for name, size in twin.items.items()):
            words = "items in column"
        elif not twin.has_room(rows):
            words = "room"
        elif twin.has_episodes and not twin.fits(given["end"], given["final"], terminated):
            words = "max_episode_length|no episode may have more"
        if words is not None:
            if self.face.is_free:
                with raises(words):
                    self.face.insert(exp, **lengths_of, **given)
            return False
        expected = list(range(twin.inserted, twin.inserted + len(rows)))
        if self.face.is_free and len(rows) == 1 and way == 0:
            exp = {name: value[0] for name, value in exp.items()}
            given = {name: value[0] for name, value in given.items()}
        assert self.face.insert(exp, **lengths_of, **given) == (expected if self.face.weighted else [])
        flags = {f"{name}s": np.atleast_1d(given.pop(name)) for name in ("end", "final") if name in given}
        twin.insert(rows, **given, **flags, terminated=terminated)
        return True

    def terminated(self, rows: Sequence[Row]) -> list[bool] | None:
        """Return which rows say that they have terminated, if a view asks for it."""
        return [bool(row["terminated"]) for row in rows] if self.views else None

    def passed(self, rows: Sequence[Row], way: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return rows as lists of arrays, as items one behind the other, or padded; without late columns."""
        names = [name for name in self.names if name not in self.late]
        if not self.any_length:
            return {name: np.stack([row[name] for row in rows]) for name in names}, {}
        if way == 0:
            return {name: [row[name] for row in rows] for name in names}, {}
        lengths = {name: np.array([len(row[name]) for row in rows]) for name in self.kinds_of_lengths}
        if way == 1:
            exp = {name: np.concatenate([np.atleast_1d(row[name]) for row in rows]) for name in names}
            return exp, {"lengths": lengths}
        return {name: padded([row[name] for row in rows], name, LONGEST, 7) for name in names}, {"lengths": lengths}

    # Samples.

    def sample(self, **given: Any) -> dict[str, np.ndarray] | None:
        """Draw a sample, the same from both; return None if there are too few rows."""
        twin, bounds = self.twin, given.get("sample_range", (None, None))
        if not twin.can_draw(bounds):
            if self.face.is_free:
                with raises("a sample needs|could not be sampled"):
                    self.face.sample(**given)
            return None
        if (beta := given.get("beta")) is not None:  # it is that of this call alone
            beta, twin.beta = twin.beta, beta
        handles, weights = twin.delivered(twin.draw(bounds))
        if beta is not None:
            twin.beta = min(beta + (1 - twin.first_beta) / twin.beta_steps, 1.0) if twin.beta_steps else beta
        batch = self.face.sample(**given)
        self.compare(batch, handles, weights, "longest" if given.get("longest") else "padded")
        return batch  # type: ignore[no-any-return]

    # Changes.

    def update_priorities(self, handles: Sequence[int], values: Any) -> int:
        invalid = self.face.update_priorities(handles, np.float32(values))
        assert invalid == self.twin.update(handles, values)
        return invalid

    def write_terminated(self, handles: Sequence[int], terminated: Sequence[bool]) -> None:
        """Update the column of terminations, on which ends of episodes depend."""
        values = {"terminated": list(map(np.bool_, terminated))}
        assert self.face.update(handles, values) == self.twin.write_terminated(handles, terminated)
        for handle, value in zip(handles, values["terminated"]):
            record = self.twin.record_of(handle)
            if record is not None and not record.deleted:
                record.row = record.row | {"terminated": value}

    def delete(self, *handles: int) -> int:
        deleted = self.face.delete(handles)
        assert deleted == self.twin.delete(handles)
        return deleted

    def advance(self, steps: int = 1) -> None:
        self.face.advance(steps)
        self.twin.advance(steps)

    def info(self, handles: Sequence[int]) -> None:
        got = (array.tolist() for array in plain(self.buffer.info(np.array(handles))))
        assert list(zip(*got, strict=True)) == self.twin.info(handles)

    def end_episodes(self) -> int:
        ended = self.face.end_episodes()
        assert ended == self.twin.end_episodes()
        return ended

    def reset(self) -> None:
        self.buffer.reset()
        self.twin.reset()

    # Comparisons.

    def legal(self) -> list[int]:
        """Return the handles of the valid starts, on which both agree."""
        self.check()
        assert legal_handles(self.buffer) == [record.serial for record in self.twin.records if self.twin.weight(record)]
        return self.twin.legal()

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
        masks = [[serial is not None for serial in one] for one in windows]
        if self.views:
            masks = self.compare_views(batch, handles)
        if "mask" in batch:
            expected = [one[0] for one in masks] if twin.single else masks
            assert batch["mask"].tolist()[: len(handles)] == expected
            assert not batch["mask"][len(handles) :].any()
        if twin.whole:
            assert batch["lengths"].tolist() == list(map(sum, masks))
        if not self.views:
            windows += [[None] * len(twin.steps)] * padding
            self.compare_columns(batch, windows, form, not twin.single)

    def compare_views(self, batch: dict[str, np.ndarray], handles: list[int]) -> list[list[bool]]:
        """Check what views show; return the masks."""
        goals = self.twin.goals or [None] * len(handles)
        if self.twin.single:
            starts = map(self.twin.record_of, handles)
            fields = [sample_of(self.twin, start, self.views, goal) for start, goal in zip(starts, goals)]
            masks = [[True]] * len(handles)
        else:
            windows = [window_of(self.twin, handle, self.views, goal) for handle, goal in zip(handles, goals)]
            masks, fields = [mask.tolist() for mask, _ in windows], [field for _, field in windows]
        assert batch.keys() - {"indices", "weights", "mask", "lengths"} == fields[0].keys()
        for name in fields[0]:
            assert_equal(batch[name], np.stack([field[name] for field in fields]), name)
        return masks

    def compare_columns(
        self, batch: dict[str, np.ndarray], windows: Sequence[Sequence[int | None]], form: str, with_steps: bool
    ) -> None:
        shape = (len(windows), len(windows[0])) if with_steps else (len(windows),)
        serials = [serial for one in windows for serial in one]
        content = [None if serial is None else self.row(serial) for serial in serials]
        cuts = {kind: self.cuts(kind, content, batch, form, shape) for kind in self.kinds_of_lengths}
        blank = self.kind.row(0, 0, 0) if self.any_length else self.kind.row(0)
        for name in self.names:
            rows = [np.zeros_like(blank[name]) if row is None else row[name] for row in content]
            if name not in self.leader:
                expected = np.stack(rows)
                expected = expected.reshape(*shape, *expected.shape[1:])
            else:
                parts = [row[start : start + n] for row, (start, n) in zip(rows, cuts[self.leader[name]], strict=True)]
                expected = np.concatenate(parts)
                if form != "packed":
                    expected = padded(parts, name, self.width(name, parts, form))
                    expected = expected.reshape(*shape, *expected.shape[1:])
            assert_equal(batch[name], expected, name)

    def row(self, serial: int) -> Row:
        record = self.twin.record_of(serial)
        assert record is not None
        return record.row  # type: ignore[no-any-return]

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
        twin, buffer = self.twin, self.buffer
        buffer.check_valid()
        present, size = [record.serial for record in twin.records], twin.size
        assert len(buffer) == size
        assert {*self.face.can_sample()} == {twin.can_sample()}
        assert {*self.face.full()} == {twin.is_full(self.kind.row(0, LONGEST, LONGEST))}
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
        twin = self.twin
        assert int(self.buffer.eligible()) == len(twin.eligible())
        assert state["weights"][: twin.capacity].tolist() == expected["leaves"]
        for name in ("counts", "clock", *(["max_priority", "beta"] if twin.prioritized else [])):
            assert state[name].tolist() == expected[name], name
        for name in {"priorities", "insertion_clocks", "use_counts", "steps", "flags"} & expected.keys():
            if name != "use_counts" or not self.late:  # which also say which rows wait
                assert state[name][slots].tolist() == np.array(expected[name])[slots].tolist(), name
        # As many each time, since a graph may have to be compiled for each number.
        handles = [-1, twin.inserted, max(twin.inserted - twin.size - 1, -1), *(row.serial for row in twin.records)]
        self.info(np.resize(handles, twin.capacity + 3).tolist())

    def compare_rows(self, rows: dict[str, np.ndarray], present: Sequence[int]) -> None:
        """Check rows as they are read."""
        content = [self.row(serial) for serial in present]
        for name in self.names:
            got, column = rows[name][: len(present)], [row[name] for row in content]
            if name in self.leader:
                lengths = rows[f"{self.leader[name]}_lengths"][: len(present)]
                assert lengths.tolist() == list(map(len, column))
                assert_equal(got, padded(column, name, got.shape[1]), name)
            else:
                assert_equal(got, np.stack(column), name)


def assert_equal(got: np.ndarray, expected: np.ndarray, name: str) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
    assert np.array_equal(got, expected), (name, got.tolist(), expected.tolist())


@contextlib.contextmanager
def raises(words: str) -> Iterator[None]:
    """Expect an error with words."""
    try:
        yield
    except (RuntimeError, TimeoutError, ValueError) as error:
        assert re.search(words, str(error)), error  # noqa: PT017
    else:
        raise AssertionError(f"expected an error with {words!r}")


# Hand-worked scripts.

#: Letters of `play`, and the flags of their rows.
_ROWS = {".": (False, False), "e": (True, False), "f": (False, True), "b": (True, True)}


def play(pair: Pair, script: str) -> None:
    """Apply a script to a buffer and its twin; check the valid starts after each part, and a sample at the end.

    Parts are separated by ``|``: operations, a colon, and the handles of the valid starts that must be there then, such
    as ``0 2-4``. A number inserts so many steps, one after the other; a word of letters a step with a row for each
    environment: ``.`` is one without a flag, ``e`` an end, ``f`` a final row, ``b`` both. ``d5`` deletes row 5, ``a``
    advances the clock, and ``r`` resets.
    """
    for part in script.split("|"):
        operations, _, starts = part.partition(":")
        for operation in operations.split():
            if operation.isdecimal():
                for _ in range(int(operation)):
                    pair.insert([False] * pair.twin.num_envs)
            elif operation[0] == "d":
                pair.delete(int(operation[1:]))
            elif operation in ("a", "r"):
                (pair.advance if operation == "a" else pair.reset)()
            else:
                pair.insert(*zip(*(_ROWS[letter] for letter in operation)))
        ranges = (handles.split("-") for handles in starts.split())
        assert pair.legal() == [handle for ends in ranges for handle in range(int(ends[0]), int(ends[-1]) + 1)], part
    pair.sample()
    pair.check()
