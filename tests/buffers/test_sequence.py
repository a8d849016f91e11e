"""Sequences of steps: valid starts, and the content of samples. `test_statistics.py` has the frequency of each start.

The sweeps run on the native kernels from Python; `test_twin.py` has random operations.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import FIXED
from checks import legal_handles, same_states
from faces import Compiled
from flat import flat
from mindspore import Tensor
from pairs import Pair, play
from twin_kinds import Kind
from twin_pairs import RandomPair

from mindspore_replay import SequenceReplayBuffer, host
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
    "a stride, and the start that just reaches the end": (32, 3, {"stride": 4}, "2 e 7 e 9: 0 3 7 8 11 15"),
    "a stride beyond the end": (16, 3, {"stride": 100}, "7 e: 0 5"),
    "a stride, padded": (32, 3, {"stride": 3} | PAD, "2 e 7 e 9: 0 3 6 9 11 14 17"),
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


def test_one_flag_for_the_step_of_all_environments():
    pair, other = (sequences(12, 2, num_envs=3, seed=seed) for seed in (1, 2))
    for end in (False, True, False):
        pair.insert([end] * 3)
        other.buffer.insert(other.passed(other.new_rows(3), 2)[0], end=end)
    assert pair.buffer.state_dict()["steps"].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert pair.buffer.state_dict()["flags"].tolist() == other.buffer.state_dict()["flags"].tolist()
    assert legal_handles(pair.buffer) == legal_handles(other.buffer) == [0, 1, 2]


# Sizes, wraps included.


def sizes() -> Iterator[dict[str, Any]]:
    """Yield lengths and strides, each with some capacity, number of environments and burn-in, padded and not."""
    lengths, strides = (1, 3, 4, 9, 13, 20), (1, 2, 3, 5)
    for i, (length, stride) in enumerate(itertools.product(lengths, strides)):
        envs, burn_in, pad_end = 1 + 2 * (i % 3 == 2), 2 * (i % 2), (i + i // 4) % 2 == 0
        capacity = max((13, 16, 26, 39)[i % 4], (length + burn_in) * envs)
        yield {"capacity": capacity, "sequence_length": length, "stride": stride, "num_envs": envs} | (
            {"burn_in": burn_in, "pad_end": pad_end} | (PLAIN if i % 4 > 1 else {})
        )


@pytest.mark.parametrize("options", list(sizes()), ids=str)
def test_random_operations_of_all_sizes(options: dict[str, Any], tmp_path: Path):
    pair = RandomPair(Kind("SequenceReplayBuffer", options, FIXED), host, 3, tmp_path, sample_size=1)
    pair.run(40)


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


# Errors.


def make(**options: Any) -> SequenceReplayBuffer:
    arguments = {"sample_size": 2, "capacity": 13, "shapes": SHAPES, "types": TYPES, "sequence_length": 3, "seed": 0}
    return SequenceReplayBuffer(**flat(**arguments | {"backend": "native"} | options))


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


def test_a_name_of_bookkeeping_that_no_sample_has():
    assert "weights" in make(names=["x", "weights"]).insert(
        [np.zeros((9, 2), np.float32), np.zeros(9, np.int32)]
    ).sample(as_dict=True)
