"""`update` of rows of any length: an invalid handle is skipped and counted, and touches nothing."""

from typing import Any

import numpy as np
import pytest
from any_length import joined
from flat import flat

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


def row(number: int, n: int) -> dict[str, Any]:
    return {
        "tokens": np.full(n, number, np.int32),
        "log_probs": np.full((n, 2), number, np.float32),
        "flags": np.full(5 - n, number % 2 == 1),
        "reward": np.float32(number),
    }


def test_mixtures_update_rows_of_any_length():
    fixed = {**COLUMNS, "items": 40}
    sources = [host.ReplayBuffer(1, 6, **flat(**fixed)), host.PrioritizedReplayBuffer(1, 6, **flat(**fixed))]
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
