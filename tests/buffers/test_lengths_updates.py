"""`update` of rows of any length: an invalid handle is skipped and counted, and touches nothing."""

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import joined
from mindspore import Tensor

import mindspore_replay
from mindspore_replay import host

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


def row(number: int, n: int) -> dict[str, Any]:
    return {
        "tokens": np.full(n, number, np.int32),
        "log_probs": np.full((n, 2), number, np.float32),
        "flags": np.full(5 - n, number % 2 == 1),
        "reward": np.float32(number),
    }


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
