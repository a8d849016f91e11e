"""`update` of rows of any length: an invalid handle is skipped and counted, and touches nothing."""

import itertools
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import joined
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import attach, host

pytestmark = pytest.mark.cpu_only("rows of any length need the kernels of the CPU")

#: Two columns that share lengths, one with its own, and one of fixed length.
COLUMNS: dict[str, Any] = {
    "shapes": [(None,), (None, 2), (None,), ()],
    "types": ["int32", "float32", "bool", "float32"],
    "names": ["tokens", "log_probs", "flags", "reward"],
    "max_length": 5,
    "items": {"tokens": 24, "flags": 40},
    "share_lengths": [("tokens", "log_probs")],
    "seed": 0,
}
CAPACITY = 6
#: Buffers with each way in which a row becomes invalid, and columns that are late.
KINDS: dict[str, dict[str, Any]] = {
    "uniform": {"cls": "ReplayBuffer", "max_use": 1, "max_staleness": 3},
    "late": {"cls": "ReplayBuffer", "max_use": 2, "max_staleness": 3, "late": ["log_probs", "reward"]},
    "by priority": {"cls": "PrioritizedReplayBuffer", "max_staleness": 2},
    "sequences": {"cls": "SequenceReplayBuffer", "sequence_length": 2, "max_use": 1, "max_staleness": 3},
    "queue": {"cls": "ReplayQueue", "when_full": "evict", "max_staleness": 3},
    "late in a queue": {"cls": "ReplayQueue", "when_full": "evict", "late": ["log_probs"]},
}
PLACES = ["host", "Cell", "folder", "attached"]


def row(number: int, n: int) -> dict[str, Any]:
    return {
        "tokens": np.full(n, number, np.int32),
        "log_probs": np.full((n, 2), number, np.float32),
        "flags": np.full(5 - n, number % 2 == 1),
        "reward": np.float32(number),
    }


class Updates:
    """Random operations on a buffer and on a list of its rows; `options` are those of the buffer."""

    def __init__(self, kind: str, place: str, folder: Path, seed: int) -> None:
        options = dict(KINDS[kind])
        cls, self.late = options.pop("cls"), options.get("late", [])
        module: Any = mindspore_replay if place == "Cell" else host
        storage = {"storage": folder} if place in ("folder", "attached") else {}
        self.learner = getattr(module, cls)(1, CAPACITY, **COLUMNS, **options, **storage)
        self.buffer = attach(folder) if place == "attached" else self.learner
        self.once = bool(storage)  # items are written once
        self.random, self.rows, self.missing = np.random.default_rng(seed), [], []
        self.invalid = self.written = 0

    def insert(self) -> None:
        numbers = np.arange(len(self.rows), len(self.rows) + self.random.integers(1, 3))
        rows = [row(int(number), int(self.random.integers(0, 6))) for number in numbers]
        self.rows += rows
        self.missing += [set(self.late) for _ in rows]
        self.buffer.insert({name: [r[name] for r in rows] for name in COLUMNS["names"] if name not in self.late})

    def sample(self) -> None:
        if self.buffer.can_sample():
            self.buffer.sample()

    def delete(self) -> None:
        self.buffer.delete(self.random.integers(0, len(self.rows) + 1, 2))

    def advance(self) -> None:
        self.buffer.advance()

    def valid(self) -> set[int]:
        """Return the handles that `update` has to accept: those for which an update of a fixed column has effect."""
        stored = range(len(self.rows) - len(self.buffer), len(self.rows))
        arrays = self.learner.state_dict()
        uses, flags = arrays["use_counts"], arrays.get("flags", np.zeros(CAPACITY, np.uint8))
        slots = {handle: handle % CAPACITY for handle in stored}
        of_episodes = "flags" in arrays
        pending = {handle for handle in stored if uses[slots[handle]] < -(2**31) + 2**16}
        gone = {h for h in stored if (flags[slots[h]] & 4 if of_episodes else uses[slots[h]] < 0)}
        return set(stored) - (gone - pending)

    def update(self) -> None:
        n, made = int(self.random.integers(1, 7)), len(self.rows)
        handles = self.random.integers(max(made - 7, -1), made + 2, n).tolist()
        names = [name for name in COLUMNS["names"] if self.random.random() < 0.5] or ["reward"]
        valid = self.valid()
        if self.once:  # of the columns that differ, only late ones that all these rows lack
            live = [h for h in handles if h in valid]
            names = [x for x in names if x == "reward" or all(x in self.missing[h] for h in live)] or ["reward"]
        new = [row(100 + made + i, len(self.rows[h]["tokens"]) if 0 <= h < made else 1) for i, h in enumerate(handles)]
        invalid = int(self.buffer.update(handles, {name: [r[name] for r in new] for name in names}))
        assert invalid == sum(handle not in valid for handle in handles)
        self.invalid, self.written = self.invalid + invalid, self.written + n - invalid
        for handle, values in zip(handles, new):
            if handle in valid:
                self.rows[handle].update({name: values[name] for name in names})
                self.missing[handle] -= set(names)

    def check(self) -> None:
        self.buffer.check_valid()
        if not len(self.buffer):
            return
        first = len(self.rows) - len(self.buffer)
        for i, expected in enumerate(self.rows[first:]):
            got = self.buffer.get_item(i, as_dict=True)
            for name in expected.keys() - self.missing[first + i]:
                value = got[name].asnumpy() if isinstance(got[name], Tensor) else got[name]
                np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize(("kind", "place"), [*itertools.product(KINDS, PLACES)])
def test_an_invalid_handle_touches_nothing(kind: str, place: str, tmp_path: Path):
    for seed in range(2):
        made = Updates(kind, place, tmp_path / f"rows{seed}", seed)
        actions = [made.insert, made.insert, made.sample, made.delete, made.advance, made.update, made.update]
        made.insert()
        for _ in range(120):
            if (action := actions[made.random.integers(7)]) != made.advance or "max_staleness" in KINDS[kind]:
                action()
            made.check()
        assert min(made.invalid, made.written) > 12
        if hasattr(made.learner, "close"):
            made.learner.close()


@pytest.mark.parametrize("storage", [None, "folder"])
def test_a_removed_row_among_others_does_not_stop_an_update(storage: str | None, tmp_path: Path):
    place = None if storage is None else tmp_path / "rows"
    for late, items in ((["log_probs"], 24), (["log_probs", "reward"], 6)):  # 6 items: older rows are evicted
        columns = {**COLUMNS, "items": items, "storage": place and place / f"{items}"}
        buffer = host.ReplayBuffer(1, 50, **columns, late=late)
        rows = [row(k, 3) for k in range(4)]
        for one in rows:
            buffer.insert({name: value for name, value in one.items() if name not in late})
            buffer.delete([0])
        new = {name: [one[name] for one in rows] for name in late}
        assert buffer.update([0, 1, 2, 3], new) == (1 if items == 24 else 2)
        assert buffer.eligible() == (3 if items == 24 else 2)
        buffer.close()


def test_mixtures_update_rows_of_any_length():
    fixed = {**COLUMNS, "items": 40}
    sources = [host.ReplayBuffer(1, 6, **fixed), host.PrioritizedReplayBuffer(1, 6, **fixed)]
    for i, source in enumerate(sources):
        source.insert(joined([row(10 * i + k, 1 + k) for k in range(3)]))
    sources[1].delete([2])
    mixed = host.MixedReplay([(source, 0.5) for source in sources], sample_size=2)
    new = [np.full(n, 7, np.int32) for n in (1, 2, 3, 4)]
    assert mixed.update([0, 1, 1, 0], [0, 1, 2, 9], {"tokens": new}) == 2
    assert [source.get_item(k)[2].tolist() for source in sources for k in range(3)] == [
        [7],
        [1, 1],
        [2, 2, 2],
        [10],
        [7, 7],
        [12, 12, 12],
    ]
    with pytest.raises(ValueError, match="rows keep their lengths, but got 2 items of column 'tokens' for the row 0"):
        mixed.update([0, 1], [1, 0], {"tokens": new[1:2] * 2})
    assert sources[0].get_item(1)[2].tolist() == [1, 1]


def test_graphs_skip_invalid_handles():
    buffer = mindspore_replay.ReplayBuffer(1, 4, **COLUMNS)
    buffer.insert(joined([row(k, 2) for k in range(6)]))
    buffer.delete([3])

    @ms.jit
    def update(handles, reward):
        return buffer.update(handles, {"reward": reward})

    invalid = update(Tensor([1, 3, 4, 4, 9, -1]), Tensor(np.arange(50, 56, dtype=np.float32)))
    assert int(invalid) == 4
    assert [float(buffer.get_item(i, as_dict=True)["reward"]) for i in range(4)] == [2, 3, 53, 5]
    assert int(buffer.counts.asnumpy()[4]) == 3


@pytest.mark.parametrize("module", [host, mindspore_replay])
def test_wrong_values_change_nothing(module: Any):
    buffer = module.ReplayBuffer(1, 9, **COLUMNS).insert(joined([row(k, 2) for k in range(3)]))
    before = buffer.state_dict()
    two = np.int32([1, 2])
    for handles, tokens, words in (
        ([0, 1], [two, two, two], r"of column 'tokens' a list of 2, but got a list of 3"),
        ([0], two, r"of column 'tokens' a list of 1, but got one row"),
        (0, [two], r"of column 'tokens' one row, but got a list of 1"),
        ([0, 1], [two, two[:1]], "rows keep their lengths, but got 1 items of column 'tokens' for the row 1, "),
        ([0, 1], [two, np.zeros(9, np.int32)], "rows keep their lengths, but got 9 items"),
        ([0, 1], [two, None], "the rows of a column must have one dtype"),
        (0, None, "expected int32, but got object"),
        (0, 5, r"expected \(n,\), but got \(\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            buffer.update(handles, {"reward": np.zeros(np.shape(handles), np.float32), "tokens": tokens})
    for name, array in buffer.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("module", [host, mindspore_replay])
@pytest.mark.parametrize("tokens", [None, 5, [[1, 2], None], [None, [1, 2]], [[1], 5], [None, None], np.array(None)])
def test_rows_that_are_none_are_refused(module: Any, tokens: Any):
    buffer = module.ReplayBuffer(1, 8, [(None,), ()], ["int32", "int32"], names=["t", "n"], max_length=4, items=40)
    for exp in ([tokens, 1], {"t": tokens, "n": [1, 2]}):
        with pytest.raises((TypeError, ValueError), match=r"^For 'ReplayBuffer', .*[cC]olumn 't'"):
            buffer.insert(exp)
    assert len(buffer) == 0
