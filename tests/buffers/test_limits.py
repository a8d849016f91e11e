"""Use limits, staleness and deletion by hand; `test_twin.py` has random operations, also of composite operators."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from faces import Face, face_of
from model import stack

from mindspore_replay import ReplayBuffer, host
from mindspore_replay.store.base.late import MOST_USES

Make = Callable[..., Any]

COLUMNS: dict[str, Any] = {"shapes": [(2,), ()], "types": ["float32", "int32"], "names": ["pair", "number"]}
#: A row has six deliveries at most and is stale after five steps. Weights are the square roots of priorities.
LIMITS: dict[str, Any] = {"max_use": 6, "max_staleness": 5}
ROOTS: dict[str, Any] = {"alpha": 0.5, "beta": 0.5, "beta_steps": 4, "epsilon": 0.0}
CLASSES = pytest.mark.parametrize("cls", ["ReplayBuffer", "PrioritizedReplayBuffer"])


def rows(*serials: int) -> dict[str, np.ndarray]:
    """Return rows with these numbers in every field."""
    columns = stack([(np.array([n, -n], np.float32), np.array(n, np.int32)) for n in serials])
    return dict(zip(COLUMNS["names"], columns))


def insert_pairs(face: Face, first: int, last: int) -> None:
    """Insert rows `first` to `last`, two at a time."""
    for serial in range(first, last, 2):
        face.insert(rows(serial, serial + 1))


def drawn(face: Face) -> list[int]:
    """Return the handles of a sample; check that handles and rows belong together."""
    batch = face.sample()
    handles = batch["indices"].tolist()
    for name, column in rows(*handles).items():
        np.testing.assert_array_equal(batch[name], column)
    return handles  # type: ignore[no-any-return]


def eligible(face: Face) -> list[int]:
    """Return the handles of the rows with positive weight, from the state alone."""
    face.buffer.check_valid()
    state = face.buffer.state_dict()
    head, count, inserted = int(state["head"]), int(state["count"]), int(state["serials"][0])
    slots = [(head + row) % face.buffer.capacity for row in range(count)]
    return [inserted - count + row for row, slot in enumerate(slots) if state["weights"][slot] > 0]


def build(cls: str, draws: int, **options: Any) -> Face:
    """Make a buffer of six rows on arrays."""
    return Face(getattr(host, cls)(draws, 6, **COLUMNS, seed=0, **options))


@CLASSES
def test_each_row_is_delivered_as_often_as_max_use_says(cls: str):
    for max_use in (1, 2, 5):
        face = build(cls, 1, max_use=max_use)
        insert_pairs(face, 0, 4)
        seen: list[int] = []
        while face.status()[2]:
            seen += drawn(face)
        assert sorted(seen) == sorted([0, 1, 2, 3] * max_use)
        assert [uses for _, uses, _ in face.info([0, 1, 2, 3])] == [max_use] * 4
        assert (eligible(face), face.status()) == ([], (4, False, False))


@CLASSES
def test_staleness_alone(cls: str):
    """A row is stale when the clock is more than max_staleness past its insertion."""
    face = build(cls, 2, max_staleness=2)
    insert_pairs(face, 0, 2)
    face.advance(1)
    insert_pairs(face, 2, 4)
    for steps, ages, left in (
        (1, [2, 2, 1, 1], [0, 1, 2, 3]),
        (0, [2, 2, 1, 1], [0, 1, 2, 3]),
        (1, [3, 3, 2, 2], [2, 3]),
    ):
        face.advance(steps)
        assert ([age for *_, age in face.info([0, 1, 2, 3])], eligible(face)) == (ages, left)
    assert set(drawn(face) + drawn(face)) <= {2, 3}
    face.advance(100)
    assert (eligible(face), face.status()) == ([], (4, False, False))
    insert_pairs(face, 4, 6)
    assert eligible(face) == [4, 5]
    at_once, never = build(cls, 2, max_staleness=0), build(cls, 2, max_use=50)
    for other, stay in ((at_once, []), (never, [0, 1])):
        insert_pairs(other, 0, 2)
        other.advance(1)
        assert eligible(other) == stay


def test_deletion_alone(make: Make):
    """A row counts once; invalid handles are skipped; `size` and `get_item` still see the row."""
    face = make("ReplayBuffer", 2, 6, **COLUMNS, **LIMITS)
    insert_pairs(face, 0, 6)
    assert face.delete([1, 4, 1, 4]) == 2
    assert face.delete([1, 4, 6, -1]) == 0
    assert (eligible(face), face.status()) == ([0, 2, 3, 5], (6, True, True))
    assert {handle for _ in range(4) for handle in drawn(face)} <= {0, 2, 3, 5}
    assert face.get_item([1, 4])[1].tolist() == [1, 4]
    assert face.delete([0, 2, 3, 3]) == 3
    assert face.status() == (6, True, False)


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


def test_priorities_are_written_for_their_rows_alone(make: Make):
    """Updates of rows that were deleted, used up, stale, evicted or never inserted are skipped and counted."""
    face = make("PrioritizedReplayBuffer", 2, 6, **COLUMNS, **ROOTS, **LIMITS)
    insert_pairs(face, 0, 2)
    face.advance(3)
    insert_pairs(face, 2, 6)
    assert face.delete([3, 3, 3, 3]) == 1
    face.advance(3)  # rows 0 and 1 are stale
    assert eligible(face) == [2, 4, 5]
    assert face.update_priorities([0, 1, 3, 6], np.float32([50] * 4)) == 4
    assert face.update_priorities([4, 3, 1, 4], np.float32([2, 50, 50, 3])) == 2
    assert [priority for priority, *_ in face.info([0, 1, 2, 3])] == [1, 1, 1, 1]
    assert [priority for priority, *_ in face.info([4, 5, 6, -1])] == [3, 1, 0, 0]
    assert eligible(face) == [2, 4, 5]
    insert_pairs(face, 6, 8)  # evicts rows 0 and 1, with the largest priority that a valid row was given
    assert face.update_priorities([0, 1, 0, 1], np.float32([50] * 4)) == 4
    assert [priority for priority, *_ in face.info([6, 7, 4, 5])] == [3, 3, 3, 1]


def test_too_few_eligible_rows(tmp_path: Any):
    for way in ("arrays", "Tensors", "attached"):
        face = face_of(way, tmp_path, "ReplayBuffer", 2, 6, **COLUMNS, max_use=3)
        insert_pairs(face, 0, 6)
        assert face.delete([0, 1, 2, 3, 4]) == 5
        assert face.status() == (6, True, False)
        assert drawn(face) == [5, 5]  # with replacement one row is enough
        face.delete([5])
        before = face.buffer.state_dict()
        for bounds in ((None, None), (0, 4)):
            with pytest.raises(RuntimeError, match=r"needs at least 1 eligible row, but got 0 .*of 6 stored"):
                face.sample(sample_range=bounds)
        assert all(np.array_equal(array, before[name]) for name, array in face.buffer.state_dict().items())
        insert_pairs(face, 6, 8)
        assert set(face.sample(sample_range=(3, 6))["indices"].tolist()) <= {6, 7}


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
    buffer = ReplayBuffer(4, 4, shapes=[()], types=["int32"], weighted=True, seed=0, backend=backend)
    buffer.insert([[1, 2, 3, 4]])
    buffer.use_counts.asnumpy()[...] = MOST_USES - 1
    found = np.concatenate([buffer.sample()[0].asnumpy() - 1 for _ in range(3)])
    times = np.bincount(found, minlength=4)
    assert times.max() > 1
    assert (buffer.info(range(4))[1].asnumpy() == MOST_USES - (times == 0)).all()
    assert MOST_USES == 2**31 - 1 - 2**16
