"""Rows of any length: cases by hand, and the errors. A slow twin is in `test_twin.py`."""

from typing import Any

import numpy as np
import pytest
from any_length import COLUMNS, joined, row_of
from flat import flat

from mindspore_replay.host import ReplayBuffer, ReplayQueue


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("second", range(9))
def test_a_row_begins_at_each_slot(first: int, second: int):
    buffer = ReplayBuffer(1, 9, **flat([(None,)], ["int32"], max_length=8, items=9))
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
    queue = ReplayQueue(2, 50, **flat([(None,)], ["int32"], max_length=8, items=20))
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
        buffer = ReplayBuffer(1, 8, **flat([(None,), ()], ["int32", "float32"], names=names, **lengths))
        buffer.insert([np.arange(3, dtype=np.int32), 0.5])
        assert list(buffer.sample_packed(as_dict=True)) == [own, *names]
    names = ("arm_lengths", "tokens")
    buffer = ReplayBuffer(1, 8, **flat([(None,), (None,)], ["int32", "int32"], names=names, **lengths))
    buffer.insert([np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)])
    assert list(buffer.sample_packed(as_dict=True)) == ["arm_lengths_offsets", "tokens_offsets", *names]


def test_a_damaged_state_is_refused():
    buffer = ReplayBuffer(2, 9, **flat(**{**COLUMNS, "items": 60})).insert(
        joined([row_of(k, k % 6, 3) for k in range(9)])
    )
    state = buffer.state_dict()
    for slot, place, value in ((3, 0, 0), (3, 1, 6), (0, 0, -1), (8, 0, 70)):
        bad = {**state, "column.tokens": state["column.tokens"].copy()}
        bad["column.tokens"][slot, place] = value
        with pytest.raises(
            ValueError, match="the offsets and lengths of column 'tokens' must be those of rows one behind"
        ):
            buffer.load_state_dict(bad)
