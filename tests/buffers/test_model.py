"""The slow twin by hand: a stranger can follow each number. `test_twin.py` holds all kinds of buffers to it."""

from typing import Any

import numpy as np
from model import Model
from randomness import draw_slot


def test_a_ring():
    ring = Model("ReplayBuffer", 1, 3)
    ring.insert([10, 11, 12, 13])
    assert (ring.slots, ring.rows, ring.head, ring.size) == ([13, 11, 12], [11, 12, 13], 1, 3)
    ring.reset()
    ring.insert([14])
    assert (ring.slots, ring.rows, ring.head, ring.serials) == ([14, None, None], [14], 0, [5, 4])


def serials(twin: Model, sample_range: Any = (None, None)) -> list[int]:
    return [record.serial for record in twin.eligible(sample_range)]


def test_limits():
    twin = Model("ReplayBuffer", 2, 3, max_use=2, max_staleness=1)
    twin.insert([10, 11, 12, 13])
    assert (twin.slots, serials(twin), serials(twin, (1, 3))) == ([13, 11, 12], [3, 1, 2], [2, 3])
    assert (twin.delete([0, 2, 2, 9]), serials(twin)) == (1, [3, 1])
    twin.deliver([twin.records[0]] * 2)
    assert (serials(twin), twin.can_sample()) == ([3], False)
    assert twin.info([1, 2, 3, 4, 0]) == [(1.0, 2, 0), (1.0, 0, 0), (1.0, 0, 0), (0.0, -1, -1), (0.0, -1, -1)]
    twin.advance(1)
    twin.insert([14])  # replaces row 11, serial 1
    assert twin.state()["use_counts"] == [0, 0, ~0]
    twin.advance(1)
    assert (serials(twin), twin.oldest_fresh(), twin.state()["clock"]) == ([4], 4, [2, 4, 0])
    assert twin.state()["use_counts"] == [~0, 0, ~0]


def test_priorities():
    twin = Model("PrioritizedReplayBuffer", 2, 3, alpha=0.5, beta=0.5, beta_steps=4, epsilon=0.0)
    twin.insert([10, 11, 12], [4.0, 16.0, 9.0])
    assert twin.state()["leaves"] == [2, 4, 3]
    assert (twin.update([0, 1, 0, 7], [1.0, 1.0, 16.0, 99.0]), twin.max_priority) == (1, 16)
    assert twin.state()["leaves"] == [4, 1, 3]
    assert [draw_slot([4, 1, 3], target) for target in (0.1, 4, 4.1, 5, 5.1, 8)] == [0, 0, 1, 1, 2, 2]
    # SplitMix64 for the key of seed 0 gives targets in (0, 4] and (4, 8]: row 0 first, then one of the others.
    handles, importance, _ = twin.sample()
    assert handles[0] == 0
    assert importance == [{1: 0.5, 2: float(np.float32(0.75**0.5))}[handles[1]], 1.0]
    assert (twin.beta, twin.counter) == (0.625, 2)
    twin.insert([13])
    assert twin.state()["leaves"] == [4, 1, 3]
    assert (twin.records[-1].priority, twin.records[-1].serial) == (16, 3)


def test_sequences():
    twin = Model("SequenceReplayBuffer", 1, 8, sequence_length=3, burn_in=1, stride=2)
    twin.insert([(n,) for n in range(6)], ends=[n == 4 for n in range(6)])  # five steps, then one
    assert twin.legal() == [0, 2]
    twin.insert([(6,)])
    assert twin.legal() == [0, 2]
    twin.insert([(7,)], finals=[True])  # three steps; the last one only closes the episode
    assert twin.legal() == [0, 2, 5]
    twin.insert([(8,)])  # evicts row 0, which is not the burn-in of row 2
    assert twin.legal() == [2, 5]
    twin.insert([(9,)])  # evicts row 1, which is
    assert twin.legal() == [5]
    assert twin.window_of(5) == [None, (5,), (6,), (7,)]
    assert twin.state()["steps"] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert twin.state()["flags"] == [0, 0, 0, 0, 1, 0, 0, 3]
    assert (twin.delete([6, 6, 1]), twin.legal(), twin.state()["flags"][6]) == (1, [], 4)
    twin.reset()
    assert (twin.legal(), twin.state()["steps"], twin.state()["flags"]) == ([], [0] * 8, [0] * 8)


def test_episodes():
    twin = Model("EpisodeReplayBuffer", 1, 6, max_episode_length=3)
    assert [twin.fits(ends) for ends in ([0] * 3, [0] * 4, [0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 1])] == [1, 0, 1, 0]
    twin.insert([(n,) for n in range(5)], ends=[False, True, False, False, True])
    assert twin.legal() == [0, 2]
    twin.insert([(5,)])
    assert (twin.legal(), twin.fits([0, 0]), twin.fits([0, 0, 0])) == ([0, 2], True, False)
    twin.insert([(6,)], finals=[True])  # evicts row 0; a final row is the last step of an episode
    assert twin.legal() == [2, 5]
    assert twin.window_of(5) == [(5,), (6,), None]
    twin.insert([(7,)], finals=[True])  # an episode of a final row alone is not drawn
    assert twin.legal() == [2, 5]
    assert (twin.delete([3]), twin.legal()) == (1, [5])


def test_a_queue():
    twin = Model("ReplayQueue", 2, 4)
    twin.insert([0, 1, 2])
    assert (twin.sample(), twin.can_sample(), twin.room()) == (([0, 1], [0, 1]), False, 3)
    twin.insert([3, 4, 5])
    assert (twin.room(), twin.has_room([6]), twin.sample()) == (0, False, ([2, 3], [2, 3]))
    stack = Model("ReplayQueue", 1, 4, order="lifo", when_full="evict")
    stack.insert([0, 1, 2, 3, 4])
    assert [stack.sample()[0] for _ in range(4)] == [[4], [3], [2], [1]]


def test_epochs():
    twin = Model("EpochReplayBuffer", 2, 6)
    twin.insert(list(range(5)))
    twin.order_of_epoch = lambda key, size: [3, 0, 4, 1, 2][:size]  # type: ignore[method-assign]
    assert [twin.sample()[0] for _ in range(3)] == [[3, 0], [4, 1], [3, 0]]  # row 2 is left out
    twin.delete([4])
    assert twin.sample()[0] == [1, 2]


def test_items():
    """Each row has a whole place: the third does not fit behind the second, and takes the place of the first."""
    twin = Model("ReplayBuffer", 1, 9, items={"x": 10}, max_length=5)
    for length in (4, 4, 3):
        twin.insert([{"x": [0] * length}])
    assert [(record.serial, record.offsets["x"]) for record in twin.records] == [(1, 4), (2, 10)]


def test_late_columns():
    twin = Model("ReplayBuffer", 1, 4, late=["y"])
    twin.insert([{"x": n, "y": n} for n in range(3)])
    assert (twin.legal(), twin.write([1, 9], [{"y": 5}] * 2), twin.legal()) == ([], 1, [1])
