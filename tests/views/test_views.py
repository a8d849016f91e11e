"""Views: n-step returns, frame stacks and hindsight, alone and together, on single rows and on sequences."""

from typing import Any

import mindspore as ms
import numpy as np
import pytest

from mindspore_replay import (
    EpisodeReplayBuffer,
    FrameStack,
    HindsightRelabel,
    NStep,
    ReplayBuffer,
    SequenceReplayBuffer,
)


def test_n_step_returns_by_hand():
    names, types = ["observation", "reward", "terminated"], [ms.float32, ms.float32, ms.bool_]
    buffer = ReplayBuffer(1, 8, [()] * 3, types, names=names, views=[NStep(3, 0.5)], seed=0, backend="native")
    for step, reward in enumerate([1, 2, 4, 8, 16, 32]):
        buffer.insert([10.0 + step, float(reward), step == 4], end=step == 4)
    got = {}
    for i in range(5):
        got[i] = [float(part.asnumpy()[0]) for part in buffer.sample((i, i + 1))]
    assert got == {  # observation, return, terminated, next observation, discount
        0: [10, 1 + 1 + 1, 0, 13, 0.125],
        1: [11, 2 + 2 + 2, 0, 14, 0.125],
        2: [12, 4 + 4 + 4, 1, 0, 0],
        3: [13, 8 + 8, 1, 0, 0],
        4: [14, 16, 1, 0, 0],
    }
    with pytest.raises(RuntimeError, match="sample_size=1 eligible rows, but got 0"):
        buffer.sample((5, 6))  # its next observation has not come yet
    for step in range(6, 9):
        buffer.insert([10.0 + step, 1.0, False])
    got = [float(part.asnumpy()[0]) for part in buffer.sample((4, 5))]
    assert got == [15, 32 + 0.5 + 0.25, 0, 18, 0.125]


def test_n_step_columns_under_other_names_and_types():
    """Terminated may be a number, -0.0 is no end; observations are several columns, one of which has its own next."""
    names = ["x", "y", "next_y", "r", "done"]
    types = [ms.float32, ms.int32, ms.int32, ms.float64, ms.float32]
    view = NStep(2, 0.25, reward="r", terminated="done", observation=["x", "y"])
    buffer = ReplayBuffer(1, 8, [()] * 5, types, names=names, views=[view], seed=0, backend="native")
    for step, done in enumerate([-0.0, 0.0, -0.0, 0.5, 0.0, 0.0]):
        buffer.insert([float(step), 10 + step, 20 + step, 1.0, done], end=step == 3)
    got = [
        {name: part.asnumpy()[0] for name, part in buffer.sample((i, i + 1), as_dict=True).items()} for i in range(5)
    ]
    assert list(got[0]) == [*names, "next_x", "discount"]
    assert [row["r"] for row in got] == [1.25, 1.25, 1.25, 1, 1]
    assert [row["discount"] for row in got] == [0.0625, 0.0625, 0, 0, 0.25]
    assert [row["next_x"] for row in got] == [2, 3, 0, 0, 5]
    assert [row["next_y"] for row in got] == [21, 22, 23, 23, 24]
    assert [row["done"] for row in got] == [0, 0, 0.5, 0.5, 0]


# Frame stacks.


def test_frames_of_pixels_are_stored_once():
    names, types = ["observation", "action", "reward", "terminated"], ["uint8", "int32", "float32", "bool"]
    views = [FrameStack(4), NStep(3, 0.99)]
    buffer = ReplayBuffer(8, 200, [(84, 84), (), (), ()], types, names=names, views=views, seed=0)
    assert buffer.nbytes <= 1.05 * 84 * 84 * 200
    for step in range(230):
        buffer.insert([np.full((84, 84), step, np.uint8), step, 1.0, False], final=step % 37 == 36)
    batch = {name: part.asnumpy() for name, part in buffer.sample(as_dict=True).items()}
    for stack, following, action, reward in zip(
        *(batch[name] for name in ("observation", "next_observation", "action", "reward")), strict=True
    ):
        first, taken = action - action % 37, min(3, 36 - action % 37, 229 - action)
        for found, newest in ((stack, action), (following, action + taken)):
            wanted = [step if step >= first else 0 for step in range(newest - 3, newest + 1)]
            np.testing.assert_array_equal(found, np.broadcast_to(np.uint8(wanted)[:, None, None], (4, 84, 84)))
        assert reward == np.float32([1, 1.99, 1 + 0.99 + 0.99**2][taken - 1])


def test_stacks_of_steps_that_are_not_there_are_zeros():
    """Also at earlier frames of the stack."""
    schema: Any = {"shapes": [()], "types": [ms.int32], "names": ["observation"], "views": [FrameStack(2)], "seed": 0}
    for buffer in (
        SequenceReplayBuffer(1, 12, sequence_length=3, burn_in=1, pad_end=True, max_use=1, **schema),
        EpisodeReplayBuffer(1, 12, max_episode_length=4, max_use=1, **schema),
    ):
        for step in range(4):
            buffer.insert([10 + step], end=step in (0, 3))
        got = {}
        while buffer.can_sample():
            handle, *_, mask, stacks = (part.asnumpy() for part in buffer.sample())
            got[int(handle[0])] = mask[0].tolist(), stacks[0].tolist()
        if isinstance(buffer, EpisodeReplayBuffer):
            assert got == {
                0: ([True, False, False, False], [[0, 10], [0, 0], [0, 0], [0, 0]]),
                1: ([True, True, True, False], [[0, 11], [11, 12], [12, 13], [0, 0]]),
            }
        else:
            assert got == {
                0: ([False, True, False, False], [[0, 0], [0, 10], [0, 0], [0, 0]]),
                1: ([False, True, True, True], [[0, 0], [0, 11], [11, 12], [12, 13]]),
                2: ([True, True, True, False], [[0, 11], [11, 12], [12, 13], [0, 0]]),
                3: ([True, True, False, False], [[11, 12], [12, 13], [0, 0], [0, 0]]),
            }


# What views say.


F, B = ms.float32, ms.bool_
STEP = {"observation": ((2,), F), "reward": ((), F), "terminated": ((), B)}


def made(columns: dict[str, Any], views: Any, cls: Any = ReplayBuffer, *arguments: Any, **options: Any) -> Any:
    shapes, types = zip(*columns.values())
    names = {"names": list(columns)} | options
    return cls(1, names.pop("capacity", 12), shapes, types, *arguments, views=views, backend="native", seed=0, **names)


def distance(achieved: Any, goal: Any) -> Any:
    return -np.abs(achieved - goal).sum(-1)


def test_a_view_shows_its_arguments():
    assert repr(NStep(3, gamma=0.9)) == "NStep(n=3, gamma=0.9)"
    assert repr(FrameStack(4, observation=["a", "b"])) == "FrameStack(k=4, observation=('a', 'b'))"
    shown = "HindsightRelabel(strategy='future', ratio=0.8, reward_fn=distance, goal='g')"
    assert repr(HindsightRelabel("future", 0.8, distance, goal="g")) == shown


STACK = FrameStack(2)


def test_the_least_capacity():
    assert made(STEP, [FrameStack(5)], capacity=6).capacity == 6
    assert made(STEP, [NStep(12, 0.5)]).capacity == 12
    assert made(STEP, [FrameStack(5), NStep(2, 0.5)], capacity=6).has_episodes


def test_no_flag_for_a_buffer_whose_rows_know_no_episode():
    assert len(ReplayBuffer(1, 6, [()], [F], seed=0, backend="native").insert([1.0], end=False, final=False)) == 1


def test_names_that_a_dict_has_anyway():
    buffer = made({"observation": ((), F), "indices": ((), F)}, [STACK])
    for i in range(4):
        buffer.insert([float(i), 0.0])
    assert list(buffer.sample(as_dict=True)) == ["observation", "indices", "next_observation"]
    with pytest.raises(ValueError, match=r"'as_dict' needs columns with other names than \['indices'\]"):
        buffer.sample(as_dict=True, with_indices=True)


def test_stacks_so_many_that_several_threads_copy_them():
    """5 MB a sample: the same stacks as the samples of a buffer with smaller draws."""
    frames = np.random.default_rng(0).integers(0, 256, (300, 64, 64), np.uint8)
    ends = np.arange(1, 301) % 37 == 0
    batches = []
    for size in (160, 32):
        buffer = ReplayBuffer(
            size, 300, [(64, 64)], [ms.uint8], names=["observation"], views=[FrameStack(4)], seed=7, backend="native"
        )
        buffer.insert([frames], end=ends)
        drawn = [[part.asnumpy() for part in buffer.sample()] for _ in range(160 // size)]
        batches.append([np.concatenate(parts) for parts in zip(*drawn)])
    for many, few in zip(*batches):
        np.testing.assert_array_equal(many, few)
    assert [part.shape for part in batches[0]] == [(160, 4, 64, 64)] * 2
