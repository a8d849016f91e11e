"""Sequences of steps: valid starts, and the content of samples. `test_statistics.py` has the frequency of each start.

The sweeps run on the native kernels from Python; `test_twin.py` has random operations.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import FIXED
from checks import legal_handles, same_states
from faces import Compiled
from mindspore import Tensor
from pairs import Pair, play
from twin_kinds import Kind

from mindspore_replay import SequenceReplayBuffer
from mindspore_replay.store.kernels.state import eligible
from mindspore_replay.store.kernels.tree import build_weights

SHAPES, TYPES = [(2,), ()], ["float32", "int32"]
PLAIN: dict[str, Any] = {"alpha": 1.0, "epsilon": 0.0, "prioritized": True}
KINDS: dict[str, dict[str, Any]] = {"uniform": {}, "prioritized": PLAIN}
KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def sequences(capacity: int, length: int, draws: int = 1, **options: Any) -> Pair:
    """Return a buffer of sequences and its twin."""
    of = {"sequence_length": length, **options}
    return Pair(Kind("SequenceReplayBuffer", of, FIXED), sample_size=draws, capacity=capacity)


# Valid starts, hand-worked, for the buffer and its twin, as `play` tells them. Handles are row numbers.

PAD: dict[str, Any] = {"pad_end": True}
STARTS: dict[str, tuple[int, int, dict[str, Any], str]] = {
    "the newest row completes a sequence": (8, 4, {}, "3: | 1: 0 | 1: 0-1 | 3: 0-4 | 1: 1-5 | 20: 21-25"),
    "a sequence may end with the episode": (16, 4, {}, "5 e 4: 0-2 6"),
    "padding reaches beyond the end of a finished episode": (16, 4, PAD, "5 e 3: 0-5 | e: 0-9 | e: 0-10"),
    "an episode that is too short": (16, 4, {}, "2 e 5 e: 3-5"),
    "an episode that is too short, padded": (16, 4, PAD, "2 e 5 e: 0-8"),
    "no start of an unfinished episode depends on its end": (16, 3, {"stride": 4}, "7: 0 4 | 1: 0 4 | e: 0 4 6"),
    # Steps before an episode are padding; row 1 is the oldest: row 3 would burn in from row 0.
    "burn-in": (8, 2, {"burn_in": 3}, "8: 0-6 | 1: 4-7 | 1: 5-8"),
    "burn-in of a second episode": (8, 2, {"burn_in": 3}, "7 e 5: 8-11 | 3: 8-14 | 1: 12-15"),
    "a deleted row takes every window that holds it": (
        16,
        3,
        {"burn_in": 2},
        "12: 0-9 | d5: 0-2 8 9 | d5: 0-2 8 9 | 3: 0-2 8-12 | 7: 8-19",
    ),
    "a deleted row does not reach into other episodes": (
        16,
        3,
        {"burn_in": 2},
        "4 e 4 e 5: 0-2 5-7 10-12 | d9: 0-2 5 6 10-12 | d10: 0-2 5 6",
    ),
    "the newest row is deleted before its windows are complete": (16, 3, PAD, "4: 0 1 | d3: 0 | 3: 0 4 | e: 0 4-7"),
    "a deleted end, padded": (16, 4, {"burn_in": 1} | PAD, "5 e: 0-5 | d5: 0 1"),
    "a deleted row before the end, padded": (16, 4, {"burn_in": 1} | PAD, "5 e d2: 4 5"),
    "a final row is the last step and no start": (16, 3, {}, "3 f 2: 0 1"),
    "a final row, padded, and an episode of one": (16, 3, PAD, "3 f f: 0-2"),
    "a final row of sequences of one step": (16, 1, {}, "2 f: 0 1"),
    "a stale row takes every window that holds it": (
        16,
        2,
        {"burn_in": 1, "max_staleness": 1},
        "4 a 4: 0-6 | a: 5 6 | e 2: 5-7 9 | a: 9 | a:",
    ),
    "reset forgets episodes too": (8, 3, {"burn_in": 2, "stride": 2}, "5 e 5 r: | 3: 11 | 4: 11 13 15"),
    "environments whose number does not divide the capacity": (
        8,
        2,
        {"num_envs": 3},
        "... .e.: 0-2 | ..e: 1-3 5 | ...: 5-7 | eee: 7 9-11 | d13: 7 9 11",
    ),
    "a window as long as the ring": (13, 13, {}, "13: 0 | 1: 1"),
    "a burn-in as long as the ring": (13, 10, {"burn_in": 3, "stride": 5}, "30: 20"),
    "a window as long as the ring of three environments": (39, 13, {"num_envs": 3}, "15: 6-8"),
}


@KIND
@pytest.mark.parametrize("case", STARTS)
def test_valid_starts(case: str, kind: dict[str, Any]):
    capacity, length, options, script = STARTS[case]
    play(sequences(capacity, length, **options, **kind), script)


@pytest.mark.parametrize(
    ("length", "stride", "pad_end", "starts"),
    [
        (3, 1, False, [0, 1, 2, 3, 4, 5]),
        (3, 2, False, [0, 2, 4, 5]),  # 5 is the start from which the sequence just reaches the end
        (3, 3, False, [0, 3, 5]),
        (3, 4, False, [0, 4, 5]),
        (3, 5, False, [0, 5]),
        (3, 6, False, [0, 5]),
        (3, 8, False, [0, 5]),
        (3, 100, False, [0, 5]),
        (8, 3, False, [0]),
        (1, 3, False, [0, 3, 6, 7]),
        (3, 2, True, [0, 2, 4, 6]),
        (3, 3, True, [0, 3, 6]),
        (3, 7, True, [0, 7]),
        (3, 8, True, [0]),
        (9, 5, True, [0, 5]),
    ],
)
def test_strides_in_an_episode_of_eight_steps(length: int, stride: int, pad_end: bool, starts: list[int]):
    options = {"stride": stride, "pad_end": pad_end}
    assert sequences(16, length, **options).steps(8, 7).legal() == starts
    # The same in the middle of a ring, after an episode of three steps and before a running one.
    pair = sequences(16, length, **options).steps(19, 2, 10)
    inside = [handle - 3 for handle in pair.legal() if 3 <= handle < 11]
    assert inside == starts


def test_the_burn_in_of_the_first_steps_is_zero_and_masked():
    pair = sequences(8, 2, burn_in=3).steps(5, 0)  # an episode of one step, then four of another
    assert pair.legal() == [1, 2, 3]
    seen = {}
    while len(seen) < 3:
        batch = pair.sample()
        assert batch is not None
        seen[int(batch["indices"][0])] = batch["mask"][0].tolist(), batch["reward"][0].tolist()
    assert seen == {
        1: ([False, False, False, True, True], [0, 0, 0, 1, 2]),
        2: ([False, False, True, True, True], [0, 0, 1, 2, 3]),
        3: ([False, True, True, True, True], [0, 1, 2, 3, 4]),
    }


@KIND
def test_a_used_up_start_takes_only_itself(kind: dict[str, Any]):
    pair = sequences(16, 3, burn_in=2, max_use=2, **kind).steps(8)
    assert pair.legal() == [0, 1, 2, 3, 4, 5]
    counts = dict.fromkeys(range(6), 0)
    while counts[3] < 2:
        sample = pair.sample()
        assert sample is not None
        counts[int(sample["indices"][0])] += 1
        assert pair.legal() == [handle for handle in counts if counts[handle] < 2]
    assert pair.update_priorities([3, 3], [1.0, 2.0]) == 2 if pair.twin.prioritized else True
    pair.info([2, 3, 4, 9])
    # Rows inserted now become starts as usual, even if earlier rows were used up.
    pair.steps(2)
    assert pair.legal() == [handle for handle in (*counts, 6, 7) if counts.get(handle, 0) < 2]


def test_deliveries_of_a_start_are_counted_and_those_of_the_steps_in_its_window_are_not():
    pair = sequences(16, 3, stride=3, max_use=5).steps(3, 2)
    for _ in range(4):
        pair.sample()
    assert pair.buffer.info([0, 1, 2])[1].asnumpy().tolist() == [4, 0, 0]
    pair.sample()
    assert (pair.legal(), pair.sample()) == ([], None)


def test_a_used_up_row_that_is_deleted_then_takes_its_windows_too():
    pair = sequences(16, 2, max_use=1).steps(6)
    first = pair.sample()
    assert first is not None
    used = int(first["indices"][0])
    assert pair.legal() == [handle for handle in range(5) if handle != used]
    pair.delete(used)
    assert pair.legal() == [handle for handle in range(5) if handle not in (used - 1, used)]


def test_priorities_of_rows_at_which_no_sample_starts_yet_or_any_more_are_kept():
    pair = sequences(8, 3, burn_in=1, **PLAIN).steps(8)
    assert pair.legal() == [0, 1, 2, 3, 4, 5]
    assert (
        pair.update_priorities([0, 1, 5, 6, 7, 8, -1], [2.0, 3.0, 4.0, 5.0, 6.0, 50.0, 50.0]) == 2
    )  # 6 and 7 are not complete
    pair.steps(1)  # evicts row 0: row 1 has no burn-in any more
    assert pair.legal() == [2, 3, 4, 5, 6]
    assert pair.buffer.state_dict()["weights"][6] == 5
    pair.delete(4)  # in the windows of 2, 3, 4 and 5
    assert pair.legal() == [6]
    assert pair.update_priorities([0, 1, 2, 3, 4, 5, 6], [9.0] * 7) == 2  # evicted, and deleted
    pair.check()
    state = pair.buffer.state_dict()
    assert float(state["max_priority"]) == 9
    assert state["weights"][:8].tolist() == [0, 0, 0, 0, 0, 0, 9, 0]
    assert state["priorities"].tolist() == [6, 9, 9, 9, 1, 9, 9, 6]  # row 8 has the largest priority of that time


def test_priorities_of_rows_that_are_no_start_change_no_weight():
    """Those off the stride, and final rows."""
    for pad_end, legal in ((False, [0, 3, 5]), (True, [0, 3, 6])):
        pair = sequences(13, 3, stride=3, pad_end=pad_end, **PLAIN).steps(7)
        pair.insert([False], [True])
        assert pair.legal() == legal
        assert pair.update_priorities(list(range(8)), [7.0] * 8) == 0
        assert pair.legal() == legal
        assert float(pair.buffer.weights.asnumpy()[:13].sum()) == 21


def test_a_start_gets_the_priority_that_its_row_was_inserted_with_once_it_is_complete():
    pair = sequences(8, 3, **PLAIN)
    for priority in (5.0, 6.0, 7.0, 8.0):
        pair.insert([False], priority=priority)
    assert pair.buffer.state_dict()["weights"][:4].tolist() == [5, 6, 0, 0]
    pair.insert([False] * 3, priority=[1.0, 2.0, 3.0])
    pair.insert([True])  # with the largest priority so far
    assert pair.buffer.state_dict()["weights"][:8].tolist() == [5, 6, 7, 8, 1, 2, 0, 0]
    pair.check()
    pair.insert([False] * 3, priority=0.0)  # has weight zero, and is a valid start that can get a weight again
    assert pair.twin.legal() == [3, 4, 5, 8]
    assert legal_handles(pair.buffer) == [3, 4, 5]
    assert pair.update_priorities([8, 9], [4.0, 3.0]) == 0
    assert pair.legal() == [3, 4, 5, 8]
    pair.steps(1)
    assert pair.buffer.state_dict()["weights"][:2].tolist() == [4, 3]


@KIND
@pytest.mark.parametrize("n", [13, 14, 26, 40])
def test_a_batch_longer_than_the_capacity(kind: dict[str, Any], n: int):
    pair = sequences(13, 3, burn_in=1, stride=2, **kind).steps(5)
    pair.insert([i % 9 == 8 for i in range(n)])
    pair.check()
    oldest = pair.twin.inserted - 13
    assert len(pair.legal()) >= 3
    assert min(pair.legal()) >= oldest
    pair.steps(3)
    pair.check()
    pair.sample()


def test_a_batch_goes_on_with_an_episode_and_the_next_goes_on_with_it():
    pair = sequences(13, 4).steps(2)
    pair.insert([False, True, False, False])  # four steps, then two
    assert pair.legal() == [0]
    pair.insert([False, False])
    assert pair.legal() == [0, 4]
    assert pair.buffer.state_dict()["steps"][:8].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_one_flag_for_the_step_of_all_environments():
    pair, other = (sequences(12, 2, num_envs=3, seed=seed) for seed in (1, 2))
    for end in (False, True, False):
        pair.insert([end] * 3)
        other.buffer.insert(other.passed(other.new_rows(3), 2)[0], end=end)
    assert pair.buffer.state_dict()["steps"].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert pair.buffer.state_dict()["flags"].tolist() == other.buffer.state_dict()["flags"].tolist()
    assert legal_handles(pair.buffer) == legal_handles(other.buffer) == [0, 1, 2]


# The sweep: all combinations of sizes.

ADD = (3, 4, 9, 13)
STRIDES, CAPACITIES = (1, 2, 3, 4, 5), (13, 16, 26, 39)


def sweep() -> Iterator[tuple[int, int, int, int, bool, bool]]:
    """Yield all strides, capacities and numbers of environments, each with burn-in and without, padded and not."""
    for (i, stride), (j, capacity), (k, envs) in itertools.product(*map(enumerate, (STRIDES, CAPACITIES, (1, 3)))):
        for burn_in in (0, 2):
            pad_end = (i + j + k + burn_in // 2) % 2 == 0
            yield stride, capacity, envs, burn_in, pad_end, bool((i // 2 + j + burn_in // 2) % 2)


def feed(pair: Pair, rng: np.random.Generator, steps: int, often: float) -> None:
    """Insert steps of each environment, of which this share are ends or final rows; with priorities, if there are."""
    n = steps * pair.twin.num_envs
    flags = rng.choice(3, n, p=[1 - often, 0.7 * often, 0.3 * often])
    pair.insert(flags == 1, flags == 2, rng.integers(1, 5, n).astype(np.float32))


def check_starts(pair: Pair, rng: np.random.Generator, delete: float) -> None:
    """Check valid starts and a sample; perhaps again after rows were deleted."""
    assert legal_handles(pair.buffer) == pair.twin.legal()
    pair.sample()
    if rng.random() < delete:
        pair.delete(*(pair.twin.inserted - rng.integers(1, pair.twin.capacity, 2)).tolist())
        check_starts(pair, rng, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 3, 4, 9, 13])
def test_sweep(length: int):
    """Valid starts and samples are those of the twin, for all sizes, wraps included."""
    rng = np.random.default_rng(length)
    ran = 0
    for place, (stride, capacity, envs, burn_in, pad_end, prioritized) in enumerate(sweep()):
        options = {"stride": stride, "num_envs": envs, "burn_in": burn_in, "pad_end": pad_end}
        options |= PLAIN if prioritized else {}
        if (length + burn_in) * envs > capacity:
            with pytest.raises(
                ValueError, match=f"'capacity' must be at least {(length + burn_in) * envs}, .*{capacity}"
            ):
                sequences(capacity, length, **options)
            continue
        starts = capacity if pad_end else capacity - (length - 1) * envs  # the maximum
        pair, steps = sequences(capacity, length, min(2, starts), **options), ADD[(place + length) % 4]
        for _ in range(-(-2 * capacity // (envs * steps))):
            feed(pair, rng, steps, 0.2)
            check_starts(pair, rng, 0.5 * steps / 13)
        pair.check()
        ran += 1
    assert ran >= 35


@pytest.mark.parametrize("length", [17, 20, 33])
def test_long_windows(length: int):
    """Episodes longer and shorter than the windows, in rings hardly longer than a window and in longer ones."""
    rng = np.random.default_rng(length)
    for capacity, burn_in, pad_end in itertools.product((length + 9, 3 * length - 2), (0, 9), (False, True)):
        options = {"burn_in": burn_in, "stride": 3, "pad_end": pad_end} | (PLAIN if pad_end else {})
        pair = sequences(capacity, length, 2, **options)
        for _ in range(6 * capacity // 10):
            feed(pair, rng, 10, 1 / length)
            check_starts(pair, rng, 0.1)


# Saving, and invalid states.


def tampered(state: dict[str, Any], key: str, place: Any, value: Any) -> dict[str, Any]:
    other = {name: array.copy() for name, array in state.items()}
    other[key][place] = value
    return other


def fitting(buffer: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state with the weights that such rows imply."""
    state["weights"] = build_weights(np.where(eligible(buffer.options, state), 1.0, 0.0))
    return state


def test_states_that_cannot_be_are_refused():
    pair = sequences(13, 3).steps(20, 11)
    pair.delete(17)
    state = pair.buffer.state_dict()
    slot = {handle: handle % 13 for handle in range(7, 20)}
    not_following = "the rows must form episodes: 'steps' are not consecutive in the rows of a stream"
    flags = "'flags' are none that rows have, or a deleted row counts as live"
    wrong = [
        ("steps", slot[15], 9, not_following),
        ("steps", slot[12], 12, not_following),  # after an end
        ("steps", slice(None), np.arange(13), not_following),
        ("flags", slot[14], 1, not_following),  # an end in the middle of an episode
        ("flags", slot[11], 0, not_following),
        ("steps", slot[7], -1, not_following),
        ("use_counts", slot[17], 0, flags),
        ("flags", slot[15], 4, flags),
        ("flags", slot[15], 16, flags),
        ("flags", slot[15], 8, "a row that a final row must follow is followed by none"),
        ("flags", slot[19], 2, "a row with only an observation is not the last of its episode"),
    ]
    for key, place, value, message in wrong:
        other = tampered(state, key, place, value)
        with pytest.raises(ValueError, match=r"the (weights|rows) must"):
            pair.buffer.load_state_dict(other)
        with pytest.raises(ValueError, match=message):
            pair.buffer.load_state_dict(fitting(pair.buffer, other))
        assert same_states(pair.buffer, state)
    for key, place, value in (("weights", slot[16], 1.0), ("weights", slot[9], 0.0), ("flags", slot[17], 0)):
        with pytest.raises(ValueError, match="the weights must be those of its rows"):
            pair.buffer.load_state_dict(tampered(state, key, place, value))
        assert same_states(pair.buffer, state)
    pair.check()


def test_a_state_of_other_windows_is_refused():
    state = sequences(13, 3).steps(20).buffer.state_dict()
    for other in (sequences(13, 4), sequences(13, 3, burn_in=1), sequences(13, 3, stride=2)):
        with pytest.raises(ValueError, match="the weights must be those of its rows"):
            other.buffer.load_state_dict(state)


# Flags and samples, by input form.


def test_flags_in_a_graph():
    buffer = make(sample_size=1, sequence_length=2, names=["x", "y"])
    calls = Compiled(buffer)
    x, y = Tensor([1, 2], ms.float32), Tensor(3, ms.int32)
    calls.insert(x, y), calls.insert(x, y, end=True)
    assert int(calls.insert(x, y, end=False, final=True)) == 3
    yes, no = Tensor(True), Tensor(False)
    for end, final in ((no, no), (yes, no), (no, yes), (yes, yes)):
        calls.insert(x, y, end=end, final=final).asnumpy()
    xs, ys = Tensor(np.ones((2, 2), np.float32)), Tensor([1, 2], ms.int32)
    calls.insert(xs, ys, final=Tensor([False, True])).asnumpy()
    state = buffer.state_dict()
    assert state["flags"][:9].tolist() == [0, 1, 3, 0, 1, 3, 3, 0, 3]
    assert state["steps"][:9].tolist() == [0, 1, 0, 0, 1, 0, 0, 0, 1]
    buffer.check_valid()


def test_importance_weights_are_those_of_the_starts():
    pair = sequences(13, 3, 4, **PLAIN, beta=0.5)
    pair.insert([False] * 8, priority=[1.0, 4.0, 16.0, 4.0, 1.0, 1.0, 100.0, 100.0])
    for beta in (None, 0.0, 1.0, 0.25):
        handles, weights, *_ = (part.asnumpy() for part in pair.buffer.sample(beta=beta))
        of = {0: 1.0, 1: 4.0, 2: 16.0, 3: 4.0, 4: 1.0, 5: 1.0}
        drawn = np.array([of[handle] for handle in handles.tolist()])
        expected = (drawn.min() / drawn) ** (0.5 if beta is None else beta)
        np.testing.assert_allclose(weights, expected, rtol=1e-6)


# Errors.


def make(**options: Any) -> SequenceReplayBuffer:
    arguments = {"sample_size": 2, "capacity": 13, "shapes": SHAPES, "types": TYPES, "sequence_length": 3, "seed": 0}
    return SequenceReplayBuffer(**(arguments | {"backend": "native"} | options))


def test_the_least_capacity():
    assert make(sequence_length=13, sample_size=1).capacity == 13
    assert make(sequence_length=11, burn_in=2).capacity == 13
    assert make(sequence_length=2, burn_in=2, num_envs=3).capacity == 13


@pytest.mark.parametrize(
    ("most", "ends", "options"), [(10, False, {}), (8, False, {"num_envs": 2}), (12, True, {"pad_end": True})]
)
def test_the_largest_sample_is_what_a_full_buffer_can_give(most: int, ends: bool, options: dict[str, Any]):
    """With replacement a sample may be larger, and `can_sample` waits for as many starts as there can be."""
    with pytest.raises(ValueError, match="'sample_size' must be at most"):
        make(sample_size=most + 1, capacity=12, replace=False, **options)
    buffer, envs = make(sample_size=most + 9, capacity=12, **options), options.get("num_envs", 1)
    for _ in range(12 // envs):
        assert not buffer.can_sample()
        buffer.insert([np.zeros((envs, 2), np.float32), np.zeros(envs, np.int32)], end=ends)
    assert buffer.can_sample()


X, Y = np.zeros(2, np.float32), np.array(1, np.int32)


def test_a_name_of_bookkeeping_that_no_sample_has():
    assert "weights" in make(names=["x", "weights"]).insert(
        [np.zeros((9, 2), np.float32), np.zeros(9, np.int32)]
    ).sample(as_dict=True)
