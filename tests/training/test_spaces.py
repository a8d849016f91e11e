"""Columns for what environments give, from their spaces."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from mindspore_replay import Column, HindsightRelabel, ReplayBuffer, columns_of, host

BOX, PLACE = spaces.Box(0, 1, (3,), np.float32), spaces.Box(0, 255, (4, 4), np.uint8)


def columns(*given, **options):
    made = columns_of(*given, **options)
    return {
        name: (shape, dtype) for name, shape, dtype in zip(made["names"], made["shapes"], made["types"], strict=True)
    }


@pytest.mark.parametrize(
    ("space", "column"),
    [
        (BOX, ((3,), "float32")),
        (PLACE, ((4, 4), "uint8")),
        (spaces.Box(-1, 1, (), np.float16), ((), "float16")),
        (spaces.Box(-5, 5, (2,), np.int64), ((2,), "int64")),
        (spaces.Discrete(5, start=-2), ((), "int32")),
        (spaces.Discrete(2**31), ((), "int32")),
        (spaces.Discrete(2**31 + 1), ((), "int64")),
        (spaces.Discrete(5, start=-(2**31) - 1), ((), "int64")),
        (spaces.MultiDiscrete([3, 4]), ((2,), "int32")),
        (spaces.MultiDiscrete([3, 2**31], start=[0, 1]), ((2,), "int64")),
        (spaces.MultiBinary([2, 3]), ((2, 3), "int8")),
    ],
)
def test_each_space(space, column):
    expected = {
        **{"observation": column, "action": ((), "int32"), "reward": ((), "float32")},
        **{"next_observation": column, "terminated": ((), "bool")},
    }
    assert columns(space, spaces.Discrete(2)) == expected
    assert "next_observation" not in columns(space, spaces.Discrete(2), next_observation=False)
    sample = np.asarray(space.sample())
    assert (sample.astype(column[1]) == sample).all()
    assert sample.shape == column[0]


def test_nested_spaces_have_dotted_names():
    space = spaces.Dict(camera=spaces.Dict(left=PLACE, right=PLACE), joints=spaces.Tuple((BOX, spaces.Discrete(2))))
    made = columns(space, spaces.Tuple((spaces.Discrete(2), BOX)))
    observation = ["camera.left", "camera.right", "joints.0", "joints.1"]
    assert list(made) == [
        *(f"observation.{name}" for name in observation),
        *("action.0", "action.1", "reward"),
        *(f"next_observation.{name}" for name in observation),
        "terminated",
    ]
    assert made["next_observation.joints.0"] == ((3,), "float32")


def test_float64_becomes_float32_with_a_word():
    space = spaces.Dict(a=spaces.Box(0, 1, (2,), np.float64))
    with pytest.warns(
        UserWarning, match=r"\['observation.a', 'next_observation.a'\] are float64, and the columns float32"
    ):
        assert columns(space, BOX)["observation.a"] == ((2,), "float32")


def test_environments_and_vectors_of_them():
    envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    assert (
        columns(envs)
        == columns(gym.make("CartPole-v1"))
        == columns(BOX, spaces.Discrete(2)) | {name: ((4,), "float32") for name in ("observation", "next_observation")}
    )


@pytest.mark.parametrize("next_observation", [True, False])
def test_goals(next_observation):
    space = spaces.Dict(observation=BOX, achieved_goal=BOX, desired_goal=BOX)
    made = columns_of(space, BOX, next_observation=next_observation)
    view = HindsightRelabel("final", 1.0, lambda achieved, goal: (achieved == goal).all(-1) - 1.0)
    buffer = ReplayBuffer(1, 9, **made, views=[view])
    assert buffer.achieved_goal == ("next_observation.achieved_goal" if next_observation else "achieved_goal")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((3,), "'envs' must be a gymnasium environment or the observation space of one, but got 3"),
        ((BOX,), "'action_space' must be given with an observation space, but got None"),
        ((spaces.Dict(a=spaces.Text(4)), BOX), r"'observation.a' must be of a space .*, but got Text\("),
        ((BOX, spaces.Sequence(BOX)), r"'action' must be of a space .*, but got Sequence\("),
        ((BOX, spaces.OneOf([BOX, BOX])), r"'action' must be of a space .*, but got OneOf\("),
    ],
)
def test_spaces_without_a_fixed_shape(given, message):
    with pytest.raises(TypeError, match=message):
        columns_of(*given)


def test_spaces_of_one_name():
    with pytest.raises(ValueError, match=r"but got two with the name 'observation\.a\.b': rename the key with a dot"):
        columns_of(spaces.Dict({"a.b": BOX, "a": spaces.Dict(b=BOX)}), BOX)


def test_further_columns_come_last_and_have_names_of_their_own():
    space, action = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
    columns = columns_of(space, action, further={"truncated": ((), "bool"), "h": ((4,), "float32")})
    assert columns["names"][-3:] == ["terminated", "truncated", "h"]
    assert columns["shapes"][-2:] == [(), (4,)]
    assert columns["types"][-2:] == ["bool", "float32"]
    with pytest.raises(ValueError, match=r"'further' must have other names than the spaces, but got \['reward'\]"):
        columns_of(space, action, further={"reward": ((), "float32")})


def test_columns_to_which_options_are_added():
    envs = gym.make("CartPole-v1")
    lists, columns = columns_of(envs), columns_of(envs, as_columns=True)
    assert lists == {
        "names": list(columns),
        "shapes": [column.shape for column in columns.values()],
        "types": [column.dtype for column in columns.values()],
    }
    columns |= {"advantage": Column((), "float32", late=True), "reward": replace(columns["reward"], dtype="float64")}
    buffer = host.ReplayBuffer(1, 4, columns=columns)
    assert buffer.names == (*lists["names"], "advantage")
    assert buffer.types[2] == "float64"
    assert buffer.spec.columns.late == (5,)
