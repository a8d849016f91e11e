"""Algorithm R: each row of the stream is equally likely to be kept.

`test_twin.py` compares the state with a slow twin, `test_statistics.py` rejects wrong reservoirs.
"""

from typing import Any

import mindspore as ms
import numpy as np
from checks import assert_frequencies, uniform
from model import Model

from mindspore_replay import ReservoirReplayBuffer


def make(backend: str, capacity: int = 5, sample_size: int = 3, **options: Any) -> ReservoirReplayBuffer:
    names = ["observation", "step", "even"]
    types = [ms.float32, ms.int64, "bool"]
    options = {"names": names, "seed": 7, **options}
    return ReservoirReplayBuffer(sample_size, capacity, [(2,), (), ()], types, backend=backend, **options)


def rows(first: int, n: int) -> list[np.ndarray]:
    """Return rows of a stream from `first` on."""
    steps = np.arange(first, first + n)
    return [np.stack([steps, -steps], 1).astype(np.float32), steps, steps % 2 == 0]


def kept(capacity: int, length: int, times: int) -> np.ndarray:
    """Return the positions in the stream of the rows kept, for each stream. Shape ``[times, capacity]``."""
    buffer = ReservoirReplayBuffer(1, capacity, [()], [ms.int64], seed=1, backend="native")
    found = []
    for _ in range(times):
        for first in range(0, length, 2):
            buffer.insert([np.arange(first, min(first + 2, length))])
        found.append(buffer.rows()[0].asnumpy())
        buffer.reset()
    return np.array(found)


def test_each_row_of_the_stream():
    """Includes the boundary cases: the last row that fills, the first that replaces."""
    assert_frequencies(kept(4, 9, 3000).ravel().tolist(), uniform(range(9)))


def test_each_slot_takes_each_later_row():
    slots = kept(4, 9, 3000)
    for slot in range(4):
        early = {step: 0.0 for step in range(4)} | {slot: 4 / 9}
        assert_frequencies(
            slots[:, slot].tolist(), {k: v for k, v in early.items() if v} | dict.fromkeys(range(4, 9), 1 / 9)
        )


def test_a_long_stream():
    """Serial numbers beyond 32 bits: places are drawn among all rows of the stream."""
    buffer = make("native")
    state = make("native").insert(rows(0, 5)).state_dict()
    state["serials"] = np.array([2**40, 0])
    buffer.load_state_dict(state)
    twin = Model("ReservoirReplayBuffer", 3, 5, seed=7)
    twin.inserted = 2**40
    places = [twin.place(2**40 + i) for i in range(100)]
    assert min(places) > 10**6  # so no row is kept
    assert max(places) > 2**39
    buffer.insert(rows(5, 100))
    assert buffer.rows()[1].asnumpy().tolist() == list(range(5))
    assert buffer.serials.asnumpy().tolist() == [2**40 + 100, 0]
