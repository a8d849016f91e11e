"""Rows of any length: against a slow twin, with wrong implementations that it rejects, and the errors."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from any_length import CAPACITY, COLUMNS, LONGEST, joined, row, run

from mindspore_replay.host import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpochReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    attach,
    load,
    save,
)
from mindspore_replay.store import call as calling
from mindspore_replay.views import NStep


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_of_the_twin(seed: int):
    run(seed, lambda: ReplayBuffer(1, CAPACITY, **COLUMNS))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("is_attached", [False, True])
def test_rows_in_a_folder_are_those_of_the_twin(seed: int, is_attached: bool, tmp_path: Path):
    learner = PrioritizedReplayBuffer(1, CAPACITY, **COLUMNS, storage=tmp_path / "rows")
    if not is_attached:
        run(seed, lambda: learner, 60)
        again = PrioritizedReplayBuffer.open(tmp_path / "rows", verify=True)
        assert again.size() == len(again.get_item(np.arange(again.size()))[0])
        again.close()
    else:

        class Attached:
            def __init__(self) -> None:
                self.attached = attach(tmp_path / "rows")
                self.reset = learner.reset

            def __getattr__(self, name: str) -> Any:
                return getattr(self.attached, name)

        run(seed, Attached, 60)
        learner.close()


CSRC = Path(calling.__file__).parents[1] / "csrc"
#: Lines of the kernel, and what stands in their place in one that is wrong.
WRONG = {
    "evicts too late": ("row(before).offset < tail - arena.items", "row(before).offset + 1 < tail - arena.items"),
    "crosses the end": ("if (end % items + rows[i].length > items) end += items - end % items;", ""),
    "forgets the gap": ("rows[i].offset = end;", "rows[i].offset = end - (i == 0 ? end % 2 : 0);"),
    "evicts none": ("if (rest > 0) Evict(", "if (rest > 99) Evict("),
    "stores no items": ("std::memcpy(in ? items : other, in ? other : items", "if (!in) std::memcpy(other, items"),
}


def built(wrong: str, folder: Path) -> ctypes.CDLL:
    """Return the kernel with a wrong line."""
    for name in ("core/items.h", "cpu/items.cc"):
        text = (CSRC / name).read_text(encoding="utf-8")
        (folder / name).parent.mkdir()
        (folder / name).write_text(text.replace(*WRONG[wrong]))
    library = CSRC.parent / "_kernels.akg_kernel_meta.so"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-I", folder, "-I", CSRC, folder / "cpu" / "items.cc", library]
    subprocess.run([*command, f"-Wl,-rpath,{CSRC.parent}", "-o", folder / "wrong.so"], check=True)
    return ctypes.CDLL(str(folder / "wrong.so"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="wrong kernels have to be built, with g++")
@pytest.mark.parametrize("wrong", WRONG)
def test_the_twin_rejects_wrong_kernels(wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert any(
        WRONG[wrong][0] in (CSRC / name).read_text(encoding="utf-8") for name in ("core/items.h", "cpu/items.cc")
    )
    kernel = ctypes.cast(built(wrong, tmp_path).replay_insert_items, ctypes.c_void_p).value
    right = calling._kernel
    monkeypatch.setattr(calling, "_kernel", lambda name: kernel if name == "replay_insert_items" else right(name))
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        run(0, lambda: ReplayBuffer(1, CAPACITY, **COLUMNS))


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("second", range(9))
def test_a_row_begins_at_each_slot(first: int, second: int):
    buffer = ReplayBuffer(1, 9, [(None,)], ["int32"], max_length=8, items=9)
    if first == 0 and second == 0:
        buffer.insert([[]])
    for n in (first % 9, second % 9, 4, 5):
        if n <= 8:
            buffer.insert([np.arange(n, dtype=np.int32)])
            lengths, items = buffer.get_item(-1)
            assert lengths == n
            assert items.tolist() == list(range(n))
            buffer.check_valid()
    # All the rows that are left are whole.
    for i in range(buffer.size()):
        n, items = buffer.get_item(i)
        assert items.tolist() == list(range(n))


@pytest.mark.parametrize("cut", ["first", "random"])
def test_padded_samples_are_cut(cut: str):
    more = {**COLUMNS, "items": 2000, "sample_length": 3, "cut": cut}
    buffer = ReplayBuffer(400, 400, **more).insert(joined([row(k, 5) for k in range(400)]))
    batch = buffer.sample(as_dict=True)
    assert batch["tokens"].shape == (400, 3)
    assert batch["log_probs"].shape == (400, 3, 2)
    assert (batch["tokens_lengths"] == 3).all()
    first = batch["tokens"][:, 0] % 100
    assert (np.diff(batch["tokens"]) == 1).all()
    assert (batch["log_probs"][:, 0, 0] == batch["reward"]).all()
    counts = np.bincount(first, minlength=3)
    if cut == "first":
        assert counts.tolist() == [400, 0, 0]
    else:
        assert (abs(counts - 400 / 3) < 5 * np.sqrt(400 * 2 / 9)).all()
    same = ReplayBuffer(400, 400, **more)
    state = buffer.state_dict()
    same.load_state_dict(state)
    for one, other in zip(buffer.sample(), same.sample()):
        np.testing.assert_array_equal(one, other)


def test_a_packed_sample_is_the_padded_one():
    padded, packed = (
        PrioritizedReplayBuffer(8, 50, **{**COLUMNS, "items": 100}).insert(
            joined([row(k, k % 6) for k in range(20)]), priority=np.arange(20.0)
        )
        for _ in range(2)
    )
    one, other = padded.sample(as_dict=True), packed.sample_packed(as_dict=True)
    for name in ("indices", "weights", "reward"):
        np.testing.assert_array_equal(one[name], other[name])
    for name in ("tokens", "log_probs", "flags"):
        kind = "flags" if name == "flags" else "tokens"
        lengths, offsets = one[f"{kind}_lengths"], other[f"{kind}_offsets"]
        assert offsets.dtype == np.int32
        assert np.diff(offsets).tolist() == lengths.tolist()
        for i, n in enumerate(lengths):
            np.testing.assert_array_equal(one[name][i, :n], other[name][offsets[i] : offsets[i + 1]])
    longest = padded.sample(longest=True, as_dict=True)
    assert longest["tokens"].shape[1] == longest["tokens_lengths"].max()


def test_a_packed_sample_keeps_to_its_items():
    buffer = ReplayBuffer(8, 50, **{**COLUMNS, "items": 100})
    buffer.insert(joined([row(k, 1 + k % 5) for k in range(20)]))
    sizes = []
    for _ in range(50):
        batch = buffer.sample_packed(max_items=12, as_dict=True, with_indices=True)
        assert len(set(batch["indices"].tolist())) == len(batch["indices"]) >= 1
        assert batch["tokens_offsets"][-1] <= 12
        assert batch["flags_offsets"][-1] <= 12
        sizes.append(len(batch["indices"]))
    _, uses, _ = buffer.info(np.arange(20))
    assert uses.sum() == sum(sizes)
    assert len(set(sizes)) > 1
    with pytest.raises(ValueError, match=re.escape("'max_items' must be in [5, ")):
        buffer.sample_packed(max_items=4)
    once = ReplayBuffer(1, 50, **COLUMNS, max_use=1).insert(row(1, 2))
    with pytest.raises(ValueError, match="'max_items' needs rows that can be drawn again, or a queue"):
        once.sample_packed(max_items=12)


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_a_queue_keeps_what_does_not_fit(order: str):
    queue = ReplayQueue(4, 50, **{**COLUMNS, "items": 200}, order=order)
    queue.insert(joined([row(k, 1 + k % 5) for k in range(40)]))
    seen: list[float] = []
    while queue.can_sample():
        batch = queue.sample_packed(max_items=9, as_dict=True)
        total = batch["flags_offsets"][-1]
        assert total <= 9
        seen += batch["reward"].tolist()
        following = 1 + (seen[-1] + (1 if order == "fifo" else -1)) % 5
        assert len(batch["reward"]) == 4 or total + min(following + 1, 5) > 9
    assert seen == sorted(seen, reverse=order == "lifo")
    assert 40 - len(seen) == queue.eligible() < 4


def test_a_queue_waits_for_room_in_items():
    queue = ReplayQueue(2, 50, [(None,)], ["int32"], max_length=8, items=20)
    for k in range(2):
        queue.insert([np.full(8, k, np.int32)])
    with pytest.raises(RuntimeError, match="there must be room for 1 row, but got room for too few items"):
        queue.insert([np.full(5, 2, np.int32)])
    queue.insert([np.full(4, 2, np.int32)])
    assert queue.size() == 3
    assert not queue.limiter.can_insert()
    queue.sample()
    assert queue.limiter.can_insert(2)
    assert not queue.limiter.can_insert(3)
    queue.insert([[np.full(8, 3, np.int32), np.full(8, 4, np.int32)]])
    queue.check_valid()
    assert queue.sample()[1][:, 0].tolist() == [2, 3]


def test_offsets_are_named_and_columns_keep_their_names():
    lengths: dict[str, Any] = {"max_length": 4, "items": 32}
    for names, own in (("tokens", "arm_lengths"), "offsets"), (("arm_lengths", "tokens"), "offsets"):
        buffer = ReplayBuffer(1, 8, [(None,), ()], ["int32", "float32"], names=names, **lengths)
        buffer.insert([np.arange(3, dtype=np.int32), 0.5])
        assert list(buffer.sample_packed(as_dict=True)) == [own, *names]
    names = ("arm_lengths", "tokens")
    buffer = ReplayBuffer(1, 8, [(None,), (None,)], ["int32", "int32"], names=names, **lengths)
    buffer.insert([np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)])
    assert list(buffer.sample_packed(as_dict=True)) == ["arm_lengths_offsets", "tokens_offsets", *names]


def test_late_columns_share_lengths(tmp_path: Path):
    for storage in (None, tmp_path / "rows"):
        buffer = ReplayBuffer(2, 9, **{**COLUMNS, "items": 60}, late=["log_probs", "reward"], storage=storage)
        rows = [row(k, k) for k in range(4)]
        handles = buffer.insert({key: [r[key] for r in rows] for key in ("tokens", "flags")}, with_indices=True)
        assert not buffer.can_sample()
        assert buffer.update(handles, {"log_probs": [r["log_probs"] for r in rows]}) == 0
        assert buffer.eligible() == 0
        with pytest.raises(
            ValueError, match=re.escape("but got 3 items of column 'log_probs' for the row 2, which has 2")
        ):
            buffer.update(2, {"log_probs": rows[3]["log_probs"]})
        assert buffer.update([*handles, 50], {"reward": [*range(4), 9]}) == 1
        batch = buffer.sample(as_dict=True)
        for i, k in enumerate(batch["reward"]):
            assert (batch["log_probs"][i, : int(k)] == k).all()
            assert batch["tokens_lengths"][i] == k
        if storage is None:
            new = np.full((3, 2), 8, np.float32)
            assert buffer.update([3, 77, 3], {"log_probs": [new - 1, new, new]}) == 1
            np.testing.assert_array_equal(buffer.get_item(3, as_dict=True)["log_probs"], new)
            assert buffer.update(3, {"tokens": np.full(3, 5, np.int32)}) == 0
            assert buffer.get_item(3, as_dict=True)["tokens"].tolist() == [5, 5, 5]
        else:
            with pytest.raises(RuntimeError, match="in a folder are written once"):
                buffer.update(3, {"tokens": np.full(3, 5, np.int32)})
            buffer.close()


def test_groups_are_of_whole_episodes():
    more = {**COLUMNS, "shapes": [(None,), (), (None, 2), ()], "types": ["int32", "float32", "float32", "int32"]}
    more = {**more, "items": 60, "names": ["tokens", "reward", "log_probs", "prompt"]}
    buffer = EpisodeReplayBuffer(1, 20, max_episode_length=3, **more)
    for k in range(11):
        one = {**row(k, k % 4), "prompt": k // 3}
        del one["flags"]
        buffer.insert(one, end=k % 3 == 2)
    batch = buffer.sample_groups("prompt", 3, 3, as_dict=True)
    assert sorted(batch["prompt"][:, 0].tolist()) == [0, 1, 2]  # the fourth is not whole
    assert batch["mask"].all()
    assert (batch["tokens_lengths"] == batch["reward"] % 4).all()
    assert batch["tokens"].shape == (3, 3, LONGEST)
    lengths = buffer.sample(as_dict=True)["tokens_lengths"]
    assert lengths.shape == (1, 3)


@pytest.mark.parametrize("cls", [ReplayBuffer, ElasticReplayBuffer, EpochReplayBuffer, ReplayQueue])
def test_a_checkpoint_has_all_items(cls: Any, tmp_path: Path):
    buffer = cls(2, 9, **{**COLUMNS, "items": 60}).insert(joined([row(k, k % 6) for k in range(9)]))
    save(buffer, tmp_path / "file.safetensors")
    again = load(tmp_path / "file.safetensors")
    assert again.shapes == ((None,), (), (None, 2), (None,))
    for one, other in zip(buffer.sample(), again.sample()):
        np.testing.assert_array_equal(one, other)


def test_a_damaged_state_is_refused():
    buffer = ReplayBuffer(2, 9, **{**COLUMNS, "items": 60}).insert(joined([row(k, k % 6) for k in range(9)]))
    state = buffer.state_dict()
    for slot, place, value in ((3, 0, 0), (3, 1, 6), (0, 0, -1), (8, 0, 70)):
        bad = {**state, "column.tokens": state["column.tokens"].copy()}
        bad["column.tokens"][slot, place] = value
        with pytest.raises(
            ValueError, match="the offsets and lengths of column 'tokens' must be those of rows one behind"
        ):
            buffer.load_state_dict(bad)


def test_samples_of_windows_are_padded():
    buffer = SequenceReplayBuffer(4, 20, [(None,)], ["int32"], sequence_length=2, max_length=5, items=50, pad_end=True)
    buffer.insert([[np.full(k % 4, k, np.int32) for k in range(7)]], end=[False] * 6 + [True])
    indices, mask, lengths, items = buffer.sample()
    assert items.shape == (4, 2, 5)
    assert lengths.shape == (4, 2)
    assert (lengths == (indices[:, None] + [0, 1]) % 4 * mask).all()
    with pytest.raises(ValueError, match="'sample_packed' needs samples of single rows, but got windows of steps"):
        buffer.sample_packed()


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"max_length": None}, ValueError, "need 'max_length', the items of the longest row, and 'items'"),
        ({"items": 4}, ValueError, r"'items' must be in \[5, "),
        ({"items": {"tokens": 20}}, ValueError, r"'items' must hold one value for the columns \['flags'\]"),
        ({"share_lengths": [("tokens", "reward")]}, ValueError, "only those whose shape begins with None"),
        ({"share_lengths": [("tokens", "flags"), ("flags",)]}, ValueError, "must hold each column once"),
        ({"late": ["flags"]}, ValueError, "must share the lengths of one that is not late, but 'flags' does not"),
        ({"cut": "last"}, ValueError, "'cut' must be"),
        ({"sample_length": 6}, ValueError, r"'sample_length' must be in \[1, 5\]"),
        ({"shapes": [(), (), (2,), ()]}, ValueError, "need a column whose shape begins with None"),
        ({"shapes": [(2, None), (), (None, 2), (None,)]}, TypeError, "must be a tuple of ints, but got"),
        ({"compress": ["log_probs"]}, ValueError, "cannot be used with 'compress', which stores rows of one length"),
        ({"views": [NStep(2, 0.9)]}, ValueError, "cannot be used with 'views', which join steps of one length: pad"),
    ],
)
def test_wrong_declarations_are_errors(changed: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        ReplayBuffer(1, CAPACITY, **{**COLUMNS, **changed})


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        (
            {"tokens": np.zeros(6, np.int32)},
            ValueError,
            "longer than max_length=5, but got 6 items. Nothing was stored",
        ),
        ({"tokens": np.zeros(2, np.int64)}, TypeError, "column 'tokens': expected int32, but got int64"),
        ({"tokens": np.zeros(2, np.int32)}, ValueError, r"share their lengths, but got \[2\] and \[3\]"),
        (
            {"log_probs": np.zeros((3, 3), np.float32)},
            ValueError,
            r"column 'log_probs': expected \(n, 2\), but got \(3, 3\)",
        ),
        ({"reward": [1.0, 2.0]}, ValueError, "column 'reward'"),
    ],
)
def test_wrong_rows_are_errors(changed: dict[str, Any], error: type[Exception], words: str):
    buffer = ReplayBuffer(1, CAPACITY, **COLUMNS).insert(row(0, 3))
    with pytest.raises(error, match=words):
        buffer.insert({**row(1, 3), **changed})
    assert buffer.size() == 1
    with pytest.raises(ValueError, match="the rows of one call may have items=17 items in column 'tokens', but got 20"):
        buffer.insert(joined([row(k, 5) for k in range(4)]))
    with pytest.raises(ValueError, match="must hold the 4 items of all rows, or padded rows"):
        buffer.insert({**row(1, 3), "reward": [1.0]}, lengths={"tokens": [4], "flags": [4]})
    assert buffer.size() == 1


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ValueError, match="cannot be used with a reservoir"):
        ReservoirReplayBuffer(1, 9, [(None,)], ["int32"])
    plain = ReplayBuffer(1, 9, [()], ["int32"]).insert([1])
    for call in (plain.sample_packed, lambda: plain.sample(longest=True), lambda: plain.insert([[1, 2]], lengths=[2])):
        with pytest.raises(ValueError, match="a column whose shape begins with None"):
            call()


PLAIN = {**COLUMNS, "shapes": [(None,), (None, 2), ()], "types": ["int32", "float32", "float32"], "items": 23}
PLAIN["names"] = ["tokens", "log_probs", "reward"]
#: Classes and options for random operations, with all that draws, keeps and evicts rows.
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "uniform": (ReplayBuffer, {}),
    "limits": (ReplayBuffer, {"max_use": 2, "max_staleness": 3}),
    "late": (ReplayBuffer, {"late": ["reward"]}),
    "by priority": (PrioritizedReplayBuffer, {}),
    "largest held": (PrioritizedReplayBuffer, {"default_priority": "largest_held"}),
    "newest": (ElasticReplayBuffer, {"window": 4}),
    "epochs": (EpochReplayBuffer, {"last": "pad"}),
    "epochs of sequences": (EpochReplayBuffer, {"sequence_length": 2}),
    "queue": (ReplayQueue, {}),
    "queue that evicts": (ReplayQueue, {"when_full": "evict", "order": "lifo"}),
    "queue of sequences": (ReplayQueue, {"sequence_length": 2}),
    "late in a queue": (ReplayQueue, {"late": ["log_probs", "reward"]}),
    "sequences": (SequenceReplayBuffer, {"sequence_length": 2, "burn_in": 2}),
    "padded sequences": (SequenceReplayBuffer, {"sequence_length": 3, "burn_in": 1, "pad_end": True, "num_envs": 2}),
    "episodes": (EpisodeReplayBuffer, {"max_episode_length": 3}),
}


#: Errors of operations that a state does not allow.
EXPECTED = re.compile("there must be room for|no episode may have more|'sample_size'|sample_size=|a sample needs")


class Operations:
    """Random operations on a buffer, whose rows hold their numbers."""

    def __init__(self, kind: str, seed: int) -> None:
        cls, options = KINDS[kind]
        self.random, self.made, self.drawn, self.late = np.random.default_rng(seed), 0, 0, options.get("late", [])
        self.buffer = cls(2, 12, **{**PLAIN, **options, "seed": seed})

    def insert(self) -> None:
        n = self.buffer.num_envs * int(self.random.integers(1, 3))
        rows = joined([row(self.made + i, int(self.random.integers(0, 6))) for i in range(n)])
        rows["tokens"] = [tokens // 100 for tokens in rows["tokens"]]
        end = {"end": self.random.random(n) < 0.5} if self.buffer.has_episodes else {}
        self.buffer.insert({name: rows[name] for name in PLAIN["names"] if name not in self.late}, **end)
        self.made += n

    def sample(self) -> None:
        batch = self.buffer.sample(as_dict=True)
        lengths = batch["tokens_lengths" if "tokens_lengths" in batch else "lengths"]
        there = np.arange(LONGEST) < lengths[..., None]
        assert (batch["tokens"] == np.where(there, batch["reward"][..., None], 0)).all()
        assert (batch["log_probs"] == batch["tokens"][..., None]).all()
        self.drawn += 1

    def sample_packed(self) -> None:
        if self.buffer.spec.options.plan.reaches_out:
            return
        batch = self.buffer.sample_packed(as_dict=True)
        expected = np.repeat(batch["reward"], np.diff(batch["offsets"]))
        assert (batch["tokens"] == expected).all()
        assert (batch["log_probs"] == expected[:, None]).all()

    def change(self) -> None:
        if not self.made:
            return
        handles = np.arange(max(self.made - 14, 0), self.made)
        self.buffer.delete(self.random.choice(handles, 2))
        self.buffer.advance(int(self.random.integers(2)))
        if self.buffer.spec.prioritized:
            self.buffer.update_priorities(handles[:3], self.random.random(len(handles[:3])))

    def complete(self) -> None:
        for i in range(len(self.buffer)):
            number = self.made - len(self.buffer) + i
            lengths = {"log_probs": np.full((int(self.buffer.get_item(i)[0]), 2), number, np.float32), "reward": number}
            self.buffer.update(number, {name: lengths[name] for name in self.late})


@pytest.mark.parametrize("kind", KINDS)
def test_random_operations_leave_a_valid_state(kind: str):
    for seed in range(2):
        made = Operations(kind, seed)
        actions = [made.insert, made.insert, made.sample, made.sample_packed, made.change]
        actions += [made.complete, made.complete] if made.late else []
        for _ in range(150):
            try:
                actions[made.random.integers(len(actions))]()
            except (RuntimeError, ValueError) as error:
                if not EXPECTED.search(str(error)):
                    raise
            made.buffer.check_valid()
        assert made.drawn > 5
