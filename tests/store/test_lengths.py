"""Rows of any length: cases by hand, and the errors. A slow twin is in `test_lengths_twin.py`."""

from typing import Any

import numpy as np
import pytest
from any_length import CAPACITY, COLUMNS, joined, row_of

from mindspore_replay.host import ReplayBuffer, ReplayQueue, ReservoirReplayBuffer, SequenceReplayBuffer
from mindspore_replay.views import NStep


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


def test_a_damaged_state_is_refused():
    buffer = ReplayBuffer(2, 9, **{**COLUMNS, "items": 60}).insert(joined([row_of(k, k % 6, 3) for k in range(9)]))
    state = buffer.state_dict()
    for slot, place, value in ((3, 0, 0), (3, 1, 6), (0, 0, -1), (8, 0, 70)):
        bad = {**state, "column.tokens": state["column.tokens"].copy()}
        bad["column.tokens"][slot, place] = value
        with pytest.raises(
            ValueError, match="the offsets and lengths of column 'tokens' must be those of rows one behind"
        ):
            buffer.load_state_dict(bad)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"max_length": None}, ValueError, "need 'max_length', the items of the longest row, and 'items'"),
        ({"items": 4}, ValueError, r"'items' must be in \[5, "),
        ({"items": {"tokens": 20}}, ValueError, r"'items' must hold one value for the columns \['words', 'flags'\]"),
        ({"share_lengths": [("tokens", "reward")]}, ValueError, "only those whose shape begins with None"),
        ({"share_lengths": [("tokens", "words"), ("words",)]}, ValueError, "must hold each column once"),
        (
            {"late": ["words", "flags"]},
            ValueError,
            "must share the lengths of one that is not late, but 'words' does not",
        ),
        ({"cut": "last"}, ValueError, "'cut' must be"),
        ({"sample_length": 6}, ValueError, r"'sample_length' must be in \[1, 5\]"),
        ({"shapes": [(), (), (2,), (), (), ()]}, ValueError, "need a column whose shape begins with None"),
        ({"shapes": [(2, None), (), (None, 2), (None,), (None,), ()]}, TypeError, "must be a tuple of ints, but got"),
        ({"compress": ["logits"]}, ValueError, "cannot be used with 'compress', which stores rows of one length"),
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
        ({"logits": np.zeros((3, 3), np.float32)}, ValueError, r"column 'logits': expected \(n, 2\), but got \(3, 3\)"),
        ({"reward": [1.0, 2.0]}, ValueError, "column 'reward'"),
    ],
)
def test_wrong_rows_are_errors(changed: dict[str, Any], error: type[Exception], words: str):
    buffer = ReplayBuffer(1, CAPACITY, **COLUMNS).insert(row_of(0, 3, 2))
    with pytest.raises(error, match=words):
        buffer.insert({**row_of(1, 3, 2), **changed})
    assert buffer.size() == 1
    with pytest.raises(ValueError, match="the rows of one call may have items=29 items in column 'tokens', but got 30"):
        buffer.insert(joined([row_of(k, 5, 0) for k in range(6)]))
    with pytest.raises(ValueError, match="must hold the 4 items of all rows, or padded rows"):
        buffer.insert({**row_of(1, 3, 2), "reward": [1.0]}, lengths={"tokens": [4], "words": [4]})
    assert buffer.size() == 1


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ValueError, match="cannot be used with a reservoir"):
        ReservoirReplayBuffer(1, 9, [(None,)], ["int32"])
    plain = ReplayBuffer(1, 9, [()], ["int32"]).insert([1])
    for call in (plain.sample_packed, lambda: plain.sample(longest=True), lambda: plain.insert([[1, 2]], lengths=[2])):
        with pytest.raises(ValueError, match="a column whose shape begins with None"):
            call()
    windows = SequenceReplayBuffer(1, CAPACITY, **COLUMNS, sequence_length=2)
    with pytest.raises(ValueError, match="'sample_packed' needs samples of single rows, but got windows of steps"):
        windows.sample_packed()
    with pytest.raises(ValueError, match=r"'max_items' must be in \[5, "):
        ReplayBuffer(1, CAPACITY, **COLUMNS).insert(row_of(0, 3, 2)).sample_packed(max_items=4)
