"""Buffers from configurations: a dict in MindSpore RL's keys, or a YAML file.

`test_di_engine.py` covers DI-engine's keys.
"""

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

import mindspore_replay
from mindspore_replay import Column, Priorities, ReplayBuffer, UniformReplayBuffer, create_buffer, load_config
from mindspore_replay.buffers.making import get_buffer_cls
from mindspore_replay.config.configuration import BUFFER_TYPES

CONFIG = {
    "type": "uniform",
    "capacity": 100,
    "sample_size": 8,
    "data_shape": [(4,), (), (4,)],
    "data_type": [ms.float32, ms.int32, ms.bool_],
}


class MyBuffer(ReplayBuffer):
    """A user's class."""


class FreeBuffer(ReplayBuffer):
    """A user's class that takes any argument."""

    def __init__(self, **kwargs: Any) -> None:
        self.extra = kwargs.pop("extra")
        super().__init__(**kwargs)


def changed(**changes: Any) -> dict[str, Any]:
    """Return the configuration with these keys, without those that are None."""
    return {key: value for key, value in (CONFIG | changes).items() if value is not None}


def test_a_buffer():
    buffer = create_buffer(CONFIG)
    assert type(buffer) is ReplayBuffer
    assert (buffer.capacity, buffer.sample_size) == (100, 8)
    assert buffer.shapes == ((4,), (), (4,))
    assert buffer.types == (ms.float32, ms.int32, ms.bool_)


def test_defaults():
    buffer = create_buffer({key: CONFIG[key] for key in ("sample_size", "capacity", "data_shape", "data_type")})
    assert (type(buffer), buffer.num_envs) == (ReplayBuffer, 1)
    sampler = buffer.spec.parts.sampler
    assert (sampler.replace, sampler.ordered, buffer.names) == (True, False, None)


def test_shapes_and_types_by_the_names_of_the_arguments():
    theirs = {key: value for key, value in CONFIG.items() if key not in ("data_shape", "data_type")}
    own = {"shapes": CONFIG["data_shape"], "types": CONFIG["data_type"]}
    buffer = create_buffer(theirs | own)
    assert (buffer.shapes, buffer.types) == (create_buffer(CONFIG).shapes, create_buffer(CONFIG).types)
    several = create_buffer(CONFIG | {"multi_buffer": True, "value": {"shapes": [(7,)], "types": [np.float32]}})
    assert (several["value"].shapes, several["value"].types) == (((7,),), (ms.float32,))


def test_columns_and_priorities_of_a_file(tmp_path: Path):
    """As records, or with their fields by name, as a file has them."""
    text = """
type: sequence
capacity: 100
sample_size: 4
sequence_length: 3
priorities: {alpha: 0.9, default_priority: largest_held}
columns:
  tokens: {shape: [null], dtype: int32, longest: 5, items: 600, sample_length: 2, cut: random}
  reward: {shape: [], dtype: float32, late: true}
"""
    (tmp_path / "buffer.yaml").write_text(text)
    config = load_config(tmp_path / "buffer.yaml")
    columns = {
        "tokens": Column((None,), "int32", longest=5, items=600, sample_length=2, cut="random"),
        "reward": Column((), ms.float32, late=True),
    }
    priorities = Priorities(alpha=0.9, default_priority="largest_held")
    for given in (config, config | {"columns": columns, "priorities": priorities}):
        found = create_buffer(given).spec.arguments()
        assert found["priorities"] == priorities
        assert found["columns"] == {**columns, "reward": Column((), "float32", late=True)}
    for wrong, words in (
        ({"columns": {"a": {"shape": []}}}, r"'columns.a' lacks \['dtype'\]"),
        (
            {"columns": {"a": {"shape": [], "dtype": "int32", "lat": True}}},
            "'columns.a.lat' .the nearest is 'columns.a.late'",
        ),
        ({"columns": [{"dtype": "int32"}]}, r"'columns.0' lacks \['shape'\]"),
        ({"priorities": {"alfa": 1.0}}, "'priorities.alfa' .the nearest is 'priorities.alpha'"),
    ):
        with pytest.raises(ValueError, match=f"For 'create_buffer', .*{words}"):
            create_buffer(config | wrong)


def test_sequences_and_episodes():
    sequences = create_buffer(
        changed(type="sequence", sequence_length=5, params={"burn_in": 2, "priorities": {"alpha": 0.5}})
    )
    assert type(sequences) is mindspore_replay.SequenceReplayBuffer
    assert (sequences.sequence_length, sequences.burn_in, sequences.prioritized) == (5, 2, True)
    episodes = create_buffer(changed(type="episode", max_episode_length=50))
    assert type(episodes) is mindspore_replay.EpisodeReplayBuffer
    assert episodes.max_episode_length == 50


@pytest.mark.parametrize("name", [ReplayBuffer, UniformReplayBuffer])
def test_a_type_by_class(name: Any):
    assert get_buffer_cls({"type": name}) is ReplayBuffer
    assert type(create_buffer(changed(type=name))) is ReplayBuffer


def test_a_class_of_the_users():
    assert get_buffer_cls({"type": MyBuffer}) is MyBuffer
    assert type(create_buffer(changed(type=MyBuffer, seed=3))) is MyBuffer
    buffer = create_buffer(changed(type=FreeBuffer, extra=5))
    assert (type(buffer), buffer.extra, buffer.capacity) == (FreeBuffer, 5, 100)


def test_params():
    """MindSpore RL puts capacity and sample_size there."""
    config = changed(capacity=None, sample_size=None, params={"capacity": 50, "sample_size": 4, "ordered": True})
    buffer = create_buffer(config)
    assert (buffer.capacity, buffer.sample_size, buffer.spec.parts.sampler.ordered) == (50, 4, True)
    assert create_buffer(changed(params=None)).capacity == 100
    assert create_buffer(changed(params={})).capacity == 100


def test_other_arguments_of_the_class():
    buffer = create_buffer(changed(names=["x", "y", "z"], replace=False, num_envs=2, backend="composite", seed=1))
    replace = buffer.spec.parts.sampler.replace
    assert (buffer.names, replace, buffer.num_envs, buffer.backend) == (("x", "y", "z"), False, 2, "composite")


def test_several_buffers():
    buffers = create_buffer(changed(number=3, seed=5))
    assert isinstance(buffers, nn.CellList)
    assert [type(buffer) for buffer in buffers] == [ReplayBuffer] * 3
    expected = [ReplayBuffer(1, 1, [()], ["int32"], seed=5 + i).random_state.asnumpy().tolist() for i in range(3)]
    assert [buffer.random_state.asnumpy().tolist() for buffer in buffers] == expected
    names = [parameter.name for parameter in buffers.get_parameters()]
    assert len(set(names)) == len(names) == 3 * 7
    unseeded = create_buffer(changed(number=2))
    assert unseeded[0].random_state.asnumpy().tolist() != unseeded[1].random_state.asnumpy().tolist()


def test_several_types():
    config = {
        "multi_type_replaybuffer": True,
        "policy": changed(type=MyBuffer, capacity=10),
        "value": changed(number=2),
        "expert": changed(number=2),
    }
    buffers = create_buffer(config)
    assert list(buffers) == ["policy", "value", "expert"]
    assert (type(buffers["policy"]), buffers["policy"].capacity) == (MyBuffer, 10)
    assert [buffer.capacity for buffer in buffers["value"]] == [100, 100]
    names = [parameter.name for name in ("value", "expert") for buffer in buffers[name] for parameter in buffer.buffer]
    assert len(set(names)) == len(names) == 12


def test_the_configuration_is_left_as_it_is():
    config = changed(params={"seed": 1}, number=2)
    before = {**config, "params": dict(config["params"])}
    create_buffer(config)
    assert config == before


YAML = """
replay_buffer:
  type: uniform
  capacity: 20
  sample_size: 2
  data_shape: [[4], [], [1]]
  data_type: [float32, int32, bool]
  seed: 3
other: [1, 2]
"""


def test_yaml(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_text(YAML, encoding="utf-8")
    config = load_config(path)
    assert config == load_config(str(path))
    assert config["other"] == [1, 2]
    buffer = create_buffer(config["replay_buffer"])
    assert (buffer.capacity, buffer.shapes, buffer.types) == (20, ((4,), (), (1,)), (ms.float32, ms.int32, ms.bool_))
    buffer.insert([np.zeros(4, np.float32), 1, np.array([True])])
    assert buffer.size() == 1


def test_the_docstring_names_all_types():
    assert [name for name in BUFFER_TYPES if f'``"{name}"``' not in str(get_buffer_cls.__doc__)] == []


@pytest.mark.parametrize(("content", "name"), [("- 1\n- 2", "list"), ("text", "str"), ("", "NoneType")])
def test_yaml_that_holds_no_mapping(tmp_path: Path, content: str, name: str):
    path = tmp_path / "config.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^For 'load_config', .*config.yaml must hold a mapping, but got {name}.$"):
        load_config(path)


def test_yaml_that_is_not_there(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"nothing.yaml"):
        load_config(tmp_path / "nothing.yaml")


def test_a_part_of_several_may_have_the_name_of_the_part():
    assert list(create_buffer({"multi_buffer": True, "replay_buffer": CONFIG})) == ["replay_buffer"]
