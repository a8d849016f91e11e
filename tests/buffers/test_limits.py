"""Use limits, staleness and deletion by hand; `test_twin.py` has random operations, also of composite operators."""

from typing import Any

import numpy as np
import pytest
from faces import Face
from model import stack

from mindspore_replay import ReplayBuffer
from mindspore_replay.store.base.late import MOST_USES

COLUMNS: dict[str, Any] = {"shapes": [(2,), ()], "types": ["float32", "int32"], "names": ["pair", "number"]}


def rows(*serials: int) -> dict[str, np.ndarray]:
    """Return rows with these numbers in every field."""
    columns = stack([(np.array([n, -n], np.float32), np.array(n, np.int32)) for n in serials])
    return dict(zip(COLUMNS["names"], columns))


def eligible(face: Face) -> list[int]:
    """Return the handles of the rows with positive weight, from the state alone."""
    face.buffer.check_valid()
    state = face.buffer.state_dict()
    head, count, inserted = int(state["head"]), int(state["count"]), int(state["serials"][0])
    slots = [(head + row) % face.buffer.capacity for row in range(count)]
    return [inserted - count + row for row, slot in enumerate(slots) if state["weights"][slot] > 0]


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_any_number_of_rows_go_stale_at_once(backend: str):
    """Some of them were deleted before, and the ring wraps: all stale rows are removed, and no others.

    The rows come from a native buffer, so that a composite one compiles only the graphs of the clock.
    """
    capacity, columns = 130, {"shapes": [()], "types": ["int32"], "max_staleness": 3, "seed": 0}
    native, buffer = (ReplayBuffer(1, capacity, **columns, backend=name) for name in ("native", backend))
    face, start = Face(buffer), 0
    for stale in (1, 63, 64, 65, 128, capacity):
        numbers = np.arange(start, start + capacity, dtype=np.int32)
        native.insert([numbers[:stale]])
        if stale < capacity:
            assert int(native.delete([start, start + stale // 2])) == min(stale, 2)
            native.advance(2).insert([numbers[stale:]])
        buffer.load_state_dict(native.state_dict())
        buffer.advance(2 if stale < capacity else 4)
        assert eligible(face) == list(range(start + stale, start + capacity))
        buffer.advance(2)
        assert eligible(face) == []
        start += capacity
        native.load_state_dict(buffer.state_dict())


def test_a_plain_buffer_keeps_no_weights():
    buffer = ReplayBuffer(2, 6, [()], ["int32"], seed=0)
    state = set(buffer.state_dict())
    assert state == {"version", "capacity", "column.0", "head", "count", "serials", "random_state"}
    for options in ({"weighted": True}, {"max_use": 1}, {"max_staleness": 0}):
        weighted = ReplayBuffer(2, 6, [()], ["int32"], seed=0, **options)
        more = {"weights", "priorities", "max_priority", "use_counts", "insertion_clocks", "clock", "counts"}
        assert set(weighted.state_dict()) == state | more
        assert weighted.nbytes > buffer.nbytes


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_use_counts_end_at_the_largest(backend: str):
    buffer = ReplayBuffer(4, 4, [()], ["int32"], weighted=True, seed=0, backend=backend)
    buffer.insert([[1, 2, 3, 4]])
    buffer.use_counts.asnumpy()[...] = MOST_USES - 1
    found = np.concatenate([buffer.sample()[0].asnumpy() - 1 for _ in range(3)])
    times = np.bincount(found, minlength=4)
    assert times.max() > 1
    assert (buffer.info(range(4))[1].asnumpy() == MOST_USES - (times == 0)).all()
    assert MOST_USES == 2**31 - 1 - 2**16
