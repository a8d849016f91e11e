"""Files and folders of rows of any length: other memory for items, rows that are too long, and what `verify` keeps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import flat

import mindspore_replay
from mindspore_replay import MixedReplay, TrainingCheckpoint, host
from mindspore_replay.checkpoint.files import Source

pytestmark = pytest.mark.cpu_only("rows of any length need the kernels of the CPU")

COLUMNS: dict[str, Any] = {
    "shapes": [(None,), (None, 2), (None,), ()],
    "types": ["int32", "bfloat16", "bool", "int32"],
    "names": ["tokens", "log_probs", "flags", "number"],
    "share_lengths": [("tokens", "log_probs")],
    "max_length": 5,
    "seed": 0,
}
ITEMS = {"tokens": 30, "flags": 24}
CAPACITY = 10
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("ReplayBuffer", {}),
    "largest held": ("PrioritizedReplayBuffer", {"default_priority": "largest_held"}),
    "late": ("ReplayBuffer", {"late": ["log_probs"]}),
    "newest": ("ElasticReplayBuffer", {}),
    "epochs": ("EpochReplayBuffer", {"last": "pad"}),
    "sequences": ("SequenceReplayBuffer", {"sequence_length": 2, "burn_in": 1}),
    "queue": ("ReplayQueue", {"when_full": "evict"}),
}


def lengths_of(number: int) -> tuple[int, int]:
    return number * 7 % 6, number * 5 % 4


def row(number: int) -> dict[str, Any]:
    tokens, flags = lengths_of(number)
    return {
        "tokens": np.full(tokens, number, np.int32),
        "log_probs": [[float(number), 0.5]] * tokens,
        "flags": np.full(flags, number % 2 == 1),
        "number": number,
    }


def make(case: str, module: Any = host, **changed: Any) -> Any:
    cls, options = CASES[case]
    return getattr(module, cls)(1, **flat(**{"capacity": CAPACITY, "items": ITEMS, **COLUMNS, **options, **changed}))


def insert(buffer: Any, first: int, n: int) -> None:
    for number in range(first, first + n):
        late = [COLUMNS["names"][i] for i in buffer.spec.columns.late]
        handle = buffer.insert({k: v for k, v in row(number).items() if k not in late}, with_indices=True)
        if late and number % 3:
            buffer.update(handle, {name: row(number)[name] for name in late})
        if buffer.spec.prioritized:
            buffer.update_priorities(handle, 1.0 + number)


def rows_of(buffer: Any) -> list[int]:
    """Return the numbers of the rows, after a comparison of their items."""
    buffer.check_valid()
    numbers = []
    for i in range(len(buffer)):
        got = buffer.get_item(i, as_dict=True)
        got = {k: v.asnumpy() if hasattr(v, "asnumpy") else v for k, v in got.items()}
        number = int(got["number"])
        assert (got["tokens_lengths"], got["flags_lengths"]) == lengths_of(number)
        assert (got["tokens"] == number).all()
        assert (got["flags"] == (number % 2 == 1)).all()
        numbers.append(number)
    return numbers


def fitting(numbers: list[int], capacity: int, items: dict[str, int]) -> list[int]:
    """Return the newest rows that fit, by a plain loop."""
    kept: list[int] = []
    for number in reversed(numbers):
        sums = np.sum([lengths_of(k) for k in [*kept, number]], axis=0)
        if len(kept) == capacity or sums[0] > items["tokens"] or sums[1] > items["flags"]:
            break
        kept.append(number)
    return kept[::-1]


@pytest.mark.parametrize("module", [host, mindspore_replay])
def test_each_way_to_load_accepts_other_memory(module: Any, tmp_path: Path):
    small = {"tokens": 12, "flags": 9}
    buffer, longer = make("uniform", module), make("queue", module)
    insert(buffer, 0, 23)
    insert(longer, 0, 24)
    expected = fitting(rows_of(buffer), CAPACITY, small)
    module.save({"a": buffer, "b": [longer]}, tmp_path / "several")
    others = {"a": make("uniform", module, items=small), "b": [make("queue", module, items=small)]}
    module.load(tmp_path / "several", buffer=others)
    assert rows_of(others["a"]) == expected
    assert rows_of(others["b"][0]) == fitting(rows_of(longer), CAPACITY, small)
    module.save(buffer, tmp_path / "file")
    for capacity in (4, 25):
        assert rows_of(module.load(tmp_path / "file", capacity=capacity)) == rows_of(buffer)[-capacity:]
    folder = make("uniform", module, items=small, storage=tmp_path / "folder")
    insert(folder, 0, 2)
    module.load(tmp_path / "file", buffer=folder)
    assert rows_of(folder) == expected
    folder.close()
    assert rows_of(module.ReplayBuffer.open(tmp_path / "folder", verify=True)) == expected


def test_a_run_and_a_mixture_go_on_with_other_memory(tmp_path: Path):
    small = {"tokens": 12, "flags": 9}
    made = [make("uniform", mindspore_replay, items=items) for items in (ITEMS, ITEMS, small, small)]
    for i in range(2):
        insert(made[i], 0, 23 + i)
    expected = [fitting(rows_of(one), CAPACITY, small) for one in made[:2]]
    saved, loaded = (MixedReplay([(one, 0.5) for one in pair], 2) for pair in (made[:2], made[2:]))
    TrainingCheckpoint(tmp_path / "run", replay=saved).save(step=1)
    TrainingCheckpoint(tmp_path / "run", replay=loaded).load()
    assert [rows_of(one) for one in made[2:]] == expected
    loaded.sample()


@pytest.mark.parametrize("module", [host, mindspore_replay])
def test_rows_longer_than_max_length_are_refused(module: Any, tmp_path: Path):
    buffer = make("uniform", module)
    insert(buffer, 0, 20)
    insert(buffer, 24, 1)  # the newest row has no tokens
    module.save(buffer, tmp_path / "file")
    other = make("uniform", module, max_length={"tokens": 3, "flags": 5})
    insert(other, 2, 1)
    before = other.state_dict()
    with pytest.raises(ValueError, match=r"^For 'load', 'longest' of column 'tokens' must be at least 5, the items of"):
        module.load(tmp_path / "file", buffer=other)
    with pytest.raises(ValueError, match="the offsets and lengths of column 'tokens' must be"):
        other.load_state_dict(buffer.state_dict())
    for name, array in other.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    short = make("uniform", module, capacity=1, max_length={"tokens": 3, "flags": 5})
    assert rows_of(module.load(tmp_path / "file", buffer=short)) == [24]


@pytest.mark.parametrize("items", [0, 5])
def test_files_with_other_numbers_of_items_are_refused(items: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    buffer, real = make("uniform"), Source.array
    insert(buffer, 0, 8)
    host.save(buffer, tmp_path / "file")
    short = ["items.tokens", "items.log_probs"][items > 0 :]  # those without items, or one of two that share lengths

    def array(source: Source, name: str, *given: Any) -> np.ndarray:
        found = real(source, name, *given)
        return found[:items] if name in short else found

    monkeypatch.setattr(Source, "array", array)
    with pytest.raises(ValueError, match=r"different numbers of items in the columns \['tokens', 'log_probs'\]"):
        host.load(tmp_path / "file", buffer=buffer)
    assert rows_of(buffer) == list(range(8))


@pytest.mark.parametrize("module", [host, mindspore_replay])
def test_a_state_with_rows_that_are_too_long_is_not_valid(module: Any):
    buffer = make("uniform", module)
    insert(buffer, 0, 5)
    references = buffer.state.state_arrays()["column.tokens"].asnumpy()
    references[3, 1] = 6
    with pytest.raises(ValueError, match="the offsets and lengths of column 'tokens' must be"):
        buffer.check_valid()


REMOVE = {
    "deleted": lambda buffer: buffer.delete([1, 3]),
    "stale": lambda buffer: buffer.advance(4),
    "used up": lambda buffer: [buffer.sample() for _ in range(3)],
}


@pytest.mark.parametrize("case", ["uniform", "sequences"])
@pytest.mark.parametrize("how", REMOVE)
@pytest.mark.parametrize("closed", [True, False])
def test_verify_keeps_removed_rows(case: str, how: str, closed: bool, tmp_path: Path):
    buffer = make(case, storage=tmp_path / "rows", max_use=1, max_staleness=3)
    insert(buffer, 0, 8)
    REMOVE[how](buffer)
    stored = rows_of(buffer)
    if closed:
        buffer.close()
    else:
        buffer.flush()
        buffer._front.calls.detach()  # as if the process were killed
    again = getattr(host, CASES[case][0]).open(tmp_path / "rows", verify=True)
    assert rows_of(again) == stored == list(range(8))
    if case == "sequences":
        again.end_episodes()
    insert(again, 8, 20)
    rows_of(again)
    again.close()


@pytest.mark.parametrize("what", ["column.tokens", "items.tokens", "items.log_probs"])
def test_verify_empties_removed_rows_that_are_damaged(what: str, tmp_path: Path):
    buffer = make("uniform", storage=tmp_path / "rows")
    insert(buffer, 0, 8)
    buffer.delete([1, 3])
    buffer.flush()
    references, array = buffer.arrays["column.tokens"], buffer.arrays[what]
    for slot in (1, 4):  # one was deleted
        offset, length = references[slot].tolist()
        array[slot if what == "column.tokens" else slice(offset, offset + length)] = 77
    buffer._front.calls.detach()  # as if the process were killed
    with pytest.warns(RuntimeWarning, match=r"1 rows that did not fit their checksums were removed, .* handles 4\.$"):
        buffer = host.ReplayBuffer.open(tmp_path / "rows", verify=True)
    lengths = [int(buffer.get_item(i)[0]) for i in range(8)]
    assert lengths == [0 if i in (1, 4) else lengths_of(i)[0] for i in range(8)]
    assert buffer.eligible() == 5
    buffer.check_valid()
    buffer.close()
