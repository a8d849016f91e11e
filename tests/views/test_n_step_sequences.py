"""N-step returns at each step of sequences and episodes. `test_twin.py` has random operations."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from any_length import OWN_NEXT
from checks import same_states

from mindspore_replay import EpisodeReplayBuffer, FrameStack, NStep, ReplayBuffer, SequenceReplayBuffer
from mindspore_replay.store.rows.store import Store


def schema(own_next: bool = False) -> dict[str, Any]:
    columns = [0, 1, 2, 4] if own_next else [0, 1, 2]
    types = [ms.float32, ms.float32, ms.bool_, ms.bool_, ms.float32]
    return {
        "shapes": [()] * len(columns),
        "types": [types[i] for i in columns],
        "names": [OWN_NEXT["names"][i] for i in columns],
        "seed": 0,
    }


def drawn(buffer: Any) -> dict[int, dict[str, list[Any]]]:
    """Return each sequence that can be drawn, by the handle of its start."""
    found: dict[int, dict[str, list[Any]]] = {}
    while buffer.can_sample():
        batch = {name: value.asnumpy()[0] for name, value in buffer.sample(as_dict=True).items()}
        handle = int(batch.pop("indices"))
        found[handle] = {name: value.tolist() for name, value in batch.items()}
    return found


def test_by_hand():
    """The chain continues in the stored rows, ends with the episode, and uses the final observation as its last."""
    options: dict[str, Any] = {"sequence_length": 2, "burn_in": 1, "max_use": 1, "backend": "native"}
    buffer = SequenceReplayBuffer(1, 12, views=[NStep(2, 0.5)], **options, **schema())
    for step, reward in enumerate([1, 2, 4, 8]):
        buffer.insert([10.0 + step, float(reward), False])
    buffer.insert([14.0, 0.0, False], final=True)  # the observation after the truncated step
    for step, reward in enumerate([16, 32, 64]):
        buffer.insert([20.0 + step, float(reward), step == 1], end=step == 1)
    assert drawn(buffer) == {
        0: {
            "mask": [False, True, True],
            "observation": [0, 10, 11],
            "reward": [0, 1 + 1, 2 + 2],
            "terminated": [False, False, False],
            "next_observation": [0, 12, 13],
            "discount": [0, 0.25, 0.25],
        },
        1: {
            "mask": [True, True, True],
            "observation": [10, 11, 12],
            "reward": [1 + 1, 2 + 2, 4 + 4],
            "terminated": [False, False, False],
            "next_observation": [12, 13, 14],
            "discount": [0.25, 0.25, 0.25],
        },
        2: {
            "mask": [True, True, True],
            "observation": [11, 12, 13],
            "reward": [2 + 2, 4 + 4, 8],
            "terminated": [False, False, False],
            "next_observation": [13, 14, 14],
            "discount": [0.25, 0.25, 0.5],
        },
        3: {  # the final row begins no transition
            "mask": [True, True, False],
            "observation": [12, 13, 0],
            "reward": [4 + 4, 8, 0],
            "terminated": [False, False, False],
            "next_observation": [14, 14, 0],
            "discount": [0.25, 0.5, 0],
        },
        5: {
            "mask": [False, True, True],
            "observation": [0, 20, 21],
            "reward": [0, 16 + 16, 32],
            "terminated": [False, True, True],
            "next_observation": [0, 0, 0],
            "discount": [0, 0, 0],
        },
    }


@pytest.mark.parametrize("own_next", [False, True])
def test_a_deleted_row_ends_chains_and_not_the_sequence_before_it(own_next: bool):
    options: dict[str, Any] = {"sequence_length": 2, "views": [NStep(3, 0.5)], "max_use": 1, "backend": "native"}
    buffer = SequenceReplayBuffer(1, 12, **options, **schema(own_next))
    for step in range(5):
        buffer.insert([10.0 + step, 4.0, False, 90.0 + step][: len(buffer.names)])
    buffer.delete([3])
    rows = drawn(buffer)
    assert list(rows) in ([0, 1], [1, 0])
    assert rows[1]["mask"] == [True, own_next]  # without that row the next observation is not known
    assert rows[1]["reward"] == ([4 + 2, 4] if own_next else [4, 0])
    assert rows[1]["next_observation"] == ([92, 92] if own_next else [12, 0])
    assert rows[1]["discount"] == ([0.25, 0.5] if own_next else [0.5, 0])


def test_each_step_is_the_sample_of_a_row():
    """Equal to a buffer of single rows with the same rows, at every place of the ring."""
    rng = np.random.default_rng(7)
    given: dict[str, Any] = schema() | {"views": [NStep(3, 0.9), FrameStack(2)], "backend": "native"}
    sequences = SequenceReplayBuffer(4, 30, sequence_length=4, burn_in=2, pad_end=True, **given)
    rows = ReplayBuffer(1, 30, **given)
    compared = 0
    for step in range(120):
        row, end = [float(step + 1), float(rng.integers(9)), bool(rng.integers(2))], bool(rng.random() < 0.2)
        for buffer in (sequences, rows):
            buffer.insert(row, end=end)
        if not sequences.can_sample():
            continue
        batch = {name: value.asnumpy() for name, value in sequences.sample(as_dict=True).items()}
        oldest = step + 1 - int(rows.size())
        for b, t in zip(*np.nonzero(batch["mask"])):
            position = int(batch["indices"][b]) + t - 2 - oldest
            try:
                alone = rows.sample((position, position + 1), as_dict=True)
            except RuntimeError:  # the row of its older frame is gone: no sample starts there
                assert t < 2
                continue
            compared += 1
            for name, value in alone.items():
                np.testing.assert_array_equal(batch[name][b, t], value.asnumpy()[0], err_msg=name)
        for name in alone:
            assert not batch[name][~batch["mask"]].any()
    assert compared > 500


def test_a_store_gives_what_the_buffer_gives():
    """Without MindSpore in between."""
    made: dict[str, Any] = {"sequence_length": 3, "burn_in": 1, "views": [NStep(2, 0.5)], "backend": "native"}
    buffer = SequenceReplayBuffer(2, 20, **made, **schema())
    store = Store(buffer.columns, buffer.options)
    for step in range(33):
        row, end = [np.float32(step), np.float32(step % 5), step % 3 == 0], step % 7 == 6
        buffer.insert(row, end=end)
        store.insert(row, end=end)
        if not buffer.can_sample():
            continue
        for ours, theirs in zip(buffer.sample(), store.sample(), strict=True):
            assert ours.asnumpy().tobytes() == theirs.tobytes()
    state = store.state_dict()
    assert same_states({key: state[key] for key in buffer.state.state_parameters()}, state_of(buffer))


def state_of(buffer: Any) -> dict[str, np.ndarray]:
    return {key: parameter.asnumpy() for key, parameter in buffer.state.state_parameters().items()}


@pytest.mark.parametrize("cls", [SequenceReplayBuffer, EpisodeReplayBuffer])
def test_what_a_sample_holds(cls: Any):
    length = 3 if cls is SequenceReplayBuffer else 5
    buffer = cls(2, 20, **schema(), **{KEYS[cls]: length}, views=[NStep(2, 0.5)])
    fields = buffer.spec.fields
    assert fields["reward"] == fields["next_observation"] == fields["discount"] == ((length,), "float32")
    assert list(fields) == ["observation", "reward", "terminated", "next_observation", "discount"]


KEYS = {SequenceReplayBuffer: "sequence_length", EpisodeReplayBuffer: "max_episode_length"}
