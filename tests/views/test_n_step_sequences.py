"""N-step returns at each step of sequences and episodes. `test_twin.py` has random operations."""

from typing import Any

import mindspore as ms
import pytest
from any_length import OWN_NEXT

from mindspore_replay import EpisodeReplayBuffer, NStep, SequenceReplayBuffer


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


@pytest.mark.parametrize("cls", [SequenceReplayBuffer, EpisodeReplayBuffer])
def test_what_a_sample_holds(cls: Any):
    length = 3 if cls is SequenceReplayBuffer else 5
    buffer = cls(2, 20, **schema(), **{KEYS[cls]: length}, views=[NStep(2, 0.5)])
    fields = buffer.spec.fields
    assert fields["reward"] == fields["next_observation"] == fields["discount"] == ((length,), "float32")
    assert list(fields) == ["observation", "reward", "terminated", "next_observation", "discount"]


KEYS = {SequenceReplayBuffer: "sequence_length", EpisodeReplayBuffer: "max_episode_length"}
