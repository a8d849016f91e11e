"""Buffers from configurations in DI-engine's keys, and the page that explains them."""

import math
import re
from typing import Any

import numpy as np
import pytest
from mindspore import nn
from pages import tables
from places import ROOT

import mindspore_replay
from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    Priorities,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    create_buffer,
)
from mindspore_replay import di_engine as theirs
from mindspore_replay.buffers.making import get_buffer_cls
from mindspore_replay.config import di_engine
from mindspore_replay.store.spec.parts import Expiry

PAGE = ROOT / "docs" / "coming_from" / "di_engine.md"
COLUMNS = {"data_shape": [()], "data_type": ["int32"], "sample_size": 1, "seed": 0}
ONE = COLUMNS | {"replay_buffer_size": 8}
PPG = {
    "multi_buffer": True,
    "policy": {"replay_buffer_size": 100, "max_use": 10},
    "value": {"replay_buffer_size": 1000, "max_use": 100},
}
PPG_TYPES = {"policy": {"type": "priority"}, "value": {"type": "priority"}}


# The defaults.


@pytest.mark.parametrize(
    ("cls", "kind", "made", "more"),
    [
        (theirs.NaiveReplayBuffer, "naive", ReplayBuffer, {}),
        (theirs.AdvancedReplayBuffer, "advanced", PrioritizedReplayBuffer, {}),
        (theirs.DequeBufferWrapper, "deque", ReplayBuffer, {}),
        (theirs.EpisodeReplayBuffer, "episode", EpisodeReplayBuffer, {"max_episode_length": 4}),
        (theirs.SequenceReplayBuffer, "sequence", SequenceReplayBuffer, {"sequence_length": 4}),
    ],
)
def test_all_defaults_of_a_buffer(cls: Any, kind: str, made: type, more: dict[str, Any]):
    create = {"type": kind, "import_names": ["ding.data.buffer.deque_buffer_wrapper"]}
    buffer = create_buffer(COLUMNS | cls.default_config() | more, create)
    assert (type(buffer), buffer.capacity) == (made, cls.config["replay_buffer_size"])
    assert (buffer.limiter, buffer.spec.parts.limits) == (None, Expiry())
    assert buffer.spec.priorities == (Priorities(beta_steps=100_000) if made is PrioritizedReplayBuffer else None)


# Several buffers.


@pytest.mark.parametrize(("types", "cls"), [(None, ReplayBuffer), (PPG_TYPES, PrioritizedReplayBuffer)])
def test_the_two_buffers_of_ppg(types: Any, cls: type):
    buffers = create_buffer(COLUMNS | PPG, types)
    assert {name: type(buffer) for name, buffer in buffers.items()} == {"policy": cls, "value": cls}
    limits = {name: (buffer.capacity, buffer.spec.parts.limits.max_use) for name, buffer in buffers.items()}
    assert limits == {"policy": (100, 10), "value": (1000, 100)}
    assert PPG["policy"] == {"replay_buffer_size": 100, "max_use": 10}  # the inputs are unchanged


def test_common_keys():
    """A key beside multi_buffer applies to all without a key of that meaning; seeds count up."""
    config = COLUMNS | {
        "multi_buffer": True,
        "capacity": 50,
        "sample_size": 4,
        "type": "priority",
        "a": {},
        "b": {"replay_buffer_size": 7, "number": 2, "type": "naive"},
        "c": {"params": {"sample_size": 3}},
        "d": {"seed": 9},
    }
    buffers = create_buffer(config)
    assert list(buffers) == ["a", "b", "c", "d"]
    assert [type(buffer) for buffer in buffers.values()] == [
        PrioritizedReplayBuffer,
        nn.CellList,
        PrioritizedReplayBuffer,
        PrioritizedReplayBuffer,
    ]
    every = [buffers["a"], *buffers["b"], buffers["c"], buffers["d"]]
    assert [type(buffer) for buffer in buffers["b"]] == [ReplayBuffer] * 2
    assert [(buffer.capacity, buffer.sample_size) for buffer in every] == [(50, 4), (7, 4), (7, 4), (50, 3), (50, 4)]
    states = [
        ReplayBuffer(1, 1, [()], ["int32"], seed=seed).random_state.asnumpy().tolist() for seed in (0, 1, 2, 3, 9)
    ]
    assert [buffer.random_state.asnumpy().tolist() for buffer in every] == states


def test_several_buffers_in_the_other_family():
    buffers = create_buffer(COLUMNS | {"multi_type_replaybuffer": True, "a": {"capacity": 3}}, {"a": {"type": "deque"}})
    assert (type(buffers["a"]), buffers["a"].capacity) == (ReplayBuffer, 3)
    assert type(create_buffer(ONE | {"multi_buffer": False})) is ReplayBuffer


def test_types_of_create_config():
    assert type(create_buffer(ONE, {"type": "priority"})) is PrioritizedReplayBuffer
    assert type(create_buffer(ONE | {"type": "priority"}, {"type": "priority"})) is PrioritizedReplayBuffer
    assert type(create_buffer(ONE, {})) is ReplayBuffer


# Keys.


@pytest.mark.parametrize(
    ("name", "cls", "more"),
    [
        ("uniform", ReplayBuffer, {}),
        ("naive", ReplayBuffer, {}),
        ("deque", ReplayBuffer, {}),
        ("prioritized", PrioritizedReplayBuffer, {}),
        ("priority", PrioritizedReplayBuffer, {}),
        ("advanced", PrioritizedReplayBuffer, {}),
        ("sequence", SequenceReplayBuffer, {"sequence_length": 2}),
        ("episode", EpisodeReplayBuffer, {"max_episode_length": 4}),
        ("reservoir", ReservoirReplayBuffer, {}),
        ("elastic", ElasticReplayBuffer, {"window": 5}),
    ],
)
def test_every_name(name: str, cls: type, more: dict[str, Any]):
    buffer = create_buffer(ONE | more | {"type": name})
    assert (type(buffer), buffer.capacity) == (cls, 8)


@pytest.mark.parametrize(
    ("key", "value", "attribute", "expected"),
    [
        ("replay_buffer_size", 30, "capacity", 30),
        ("max_use", 3, "max_use", 3),
        ("max_use", math.inf, "max_use", None),
        ("max_staleness", 2, "max_staleness", 2),
        ("max_staleness", 2.0, "max_staleness", 2),
        ("max_staleness", math.inf, "max_staleness", None),
        ("alpha", 0.3, "alpha", 0.3),
        ("priority_power_factor", 0.3, "alpha", 0.3),
        ("priority_power_factor", 1.0, "alpha", 1.0),
        ("beta", 0.7, "beta", 0.7),
        ("IS_weight_power_factor", 0.7, "beta", 0.7),
        ("anneal_step", 50, "beta_steps", 50),
        ("IS_weight_anneal_train_iter", 1e5, "beta_steps", 100_000),
        ("priority_IS_weight", False, "beta", 0.0),
        ("priority_IS_weight", True, "beta", 0.4),
        ("deepcopy", True, "capacity", 8),
        ("enable_track_used_data", True, "capacity", 8),
        ("name", "policy", "capacity", 8),
        ("cfg_type", "AdvancedReplayBufferDict", "capacity", 8),
    ],
)
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "params"])
def test_a_key(key: str, value: Any, attribute: str, expected: Any, inside: bool):
    config = {"type": "priority"} | ONE | {key: value}
    buffer = create_buffer({"params": config} if inside else config)
    assert type(buffer) is PrioritizedReplayBuffer
    holders = buffer.spec.priorities, buffer.spec.parts.limits, buffer
    assert next(getattr(holder, attribute) for holder in holders if hasattr(holder, attribute)) == expected


def test_no_importance_weights():
    keys = {"priority": True, "priority_IS_weight": False, "beta_steps": 3, "IS_weight_power_factor": 0.4}
    buffer = create_buffer(ONE | keys | {"sample_size": 8})
    buffer.insert([np.arange(8, dtype=np.int32)], priority=np.arange(1, 9))
    for _ in range(3):
        weights = buffer.sample()[1]
        assert weights.asnumpy().tolist() == [1] * 8
    assert buffer.beta.asnumpy().tolist() == [0]


@pytest.mark.parametrize(
    "named", [None, "deque", "naive", "priority", "advanced", ReplayBuffer, PrioritizedReplayBuffer]
)
@pytest.mark.parametrize(("priority", "cls"), [(False, ReplayBuffer), (True, PrioritizedReplayBuffer)])
def test_priority_decides(named: Any, priority: bool, cls: type):
    config = ONE | ({} if named is None else {"type": named}) | {"priority": priority}
    assert get_buffer_cls(config) is cls
    strength = {key: 0.5 for key in ("alpha", "beta")} | {"anneal_step": 3}
    assert type(create_buffer(config | strength)) is cls


def test_no_importance_weights_of_a_plain_buffer():
    assert type(create_buffer(ONE | {"priority_IS_weight": False, "IS_weight_power_factor": 0.4})) is ReplayBuffer


def test_priority_of_sequences():
    config = ONE | {"type": "sequence", "sequence_length": 2, "priority_power_factor": 0.3}
    buffer = create_buffer(config | {"priority": True})
    assert buffer.spec.priorities == Priorities(alpha=0.3)
    assert create_buffer(config | {"priority": False}).prioritized is False
    del config["priority_power_factor"]
    assert create_buffer(config | {"priorities": {"alpha": 0.3}}).spec.priorities == Priorities(alpha=0.3)


@pytest.mark.parametrize(
    ("controller", "ratio", "min_size", "error_buffer"),
    [
        ({"push_sample_rate_limit": {"max": 4, "min": 0.5}}, [0.25, 2], 3, 1.75),
        ({"push_sample_rate_limit": {"max": 0.01}, "window_seconds": 9}, [100, math.inf], 3, 101.5),
        ({"push_sample_rate_limit": {"min": 1}, "sample_min_limit_ratio": 2.5}, [0, 1], 8, 1.5),
        ({"sample_min_limit_ratio": 2}, [0, math.inf], 6, 1.5),
    ],
)
def test_rates(controller: dict[str, Any], ratio: list[float], min_size: int, error_buffer: float):
    config = COLUMNS | {"capacity": 9, "sample_size": 3, "num_envs": 2, "thruput_controller": controller}
    limiter = create_buffer(config).limiter
    np.testing.assert_allclose(limiter.rule, [*ratio, min_size, error_buffer, 1])


def test_a_single_loop_with_rates_does_not_hang():
    controller = {"push_sample_rate_limit": {"max": 2, "min": 0.5}, "sample_min_limit_ratio": 2}
    buffer = create_buffer(COLUMNS | {"capacity": 9, "sample_size": 3, "thruput_controller": controller})
    buffer.limiter.timeout = 0
    with pytest.raises(TimeoutError, match="3 rows could not be sampled"):
        buffer.sample()
    for _ in range(50):
        buffer.sample() if bool(buffer.can_sample()) else buffer.insert([1])
    limiter = buffer.limiter
    assert (limiter.inserted, limiter.sampled) == (33, 51)


def test_no_rates():
    for controller in (None, {}, {"window_seconds": 5}, {"push_sample_rate_limit": {"min": 0}}):
        assert create_buffer(ONE | {"thruput_controller": controller}).limiter is None


def test_keys_without_a_counterpart_may_say_what_is_done():
    nothing = {"priority_max_limit": math.inf, "replay_buffer_start_size": 0, "min_sample_ratio": 1.0}
    for imported in ((), ["ding.data.buffer.deque_buffer_wrapper"]):
        assert type(create_buffer(ONE | nothing | {"import_names": imported})) is ReplayBuffer
    assert type(create_buffer(ONE | {"priority_max_limit": 1000})) is ReplayBuffer


def test_an_elastic_buffer_begins_with_the_window_of_the_first_step():
    default = {"type": "elastic", "replay_buffer_size": 9, "deepcopy": False, "periodic_thruput_seconds": 60}
    config = COLUMNS | default | {"enable_track_used_data": False, "sample_size": 2}
    for size, window in (lambda step: 3 + step, 3), (lambda step: 1e6, 9), (None, 9):
        buffer = create_buffer(config | {"set_buffer_size": size})
        assert type(buffer) is ElasticReplayBuffer
        assert buffer.window.asnumpy()[0] == window
    prioritized = create_buffer(config | {"set_buffer_size": lambda step: 4, "priority": True, "alpha": 0.3})
    assert prioritized.spec.priorities == Priorities(alpha=0.3)
    assert type(create_buffer(ONE | {"set_buffer_size": None})) is ReplayBuffer


# Classes of users.


class Tagged(PrioritizedReplayBuffer):
    """Takes two keys of DI-engine itself."""

    def __init__(self, *args: Any, name: list[int], monitor: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tag = name, monitor


def test_a_class_with_keys_of_its_own():
    config = ONE | {"type": Tagged, "name": [1], "monitor": 3, "priority_power_factor": 0.2}
    for more in ({}, {"priority": True}):
        buffer = create_buffer(config | more)
        assert (buffer.tag, buffer.spec.priorities.alpha, buffer.capacity) == (([1], 3), 0.2, 8)
    with pytest.raises(ValueError, match="'priority' is False, but 'Tagged' draws by it"):
        create_buffer(config | {"priority": False})


# The page.


def tables_of(heading: str) -> list[list[list[str]]]:
    """Return the rows of the tables of a section, without their heads."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [table[2:] for table in tables(section)]


def test_the_page_has_every_key():
    (table,) = tables_of("Keys")
    keys = [key for row in table for key in re.findall(r"`(\w+)`", row[0])]
    shared = ["type", "multi_buffer", "max_use", "max_staleness", "alpha", "beta"]
    assert sorted(keys) == sorted([*shared, *di_engine.KEYS])
    meant = {key: row[2] for row in table for key in re.findall(r"`(\w+)`", row[0])}
    assert all(meant[key].startswith(f"`{argument}`") for key, argument in di_engine.RENAMED.items())
    assert [key for key in di_engine.REFUSED if "refused" not in meant[key].lower()] == []
    assert sorted(key for key in meant if meant[key].startswith("No effect")) == sorted(di_engine.IGNORED)


def test_the_page_names_what_there_is():
    classes, methods = tables_of("Classes")
    (middleware,) = tables_of("Middleware")
    cells = [row[1] for row in [*classes, *methods, *middleware]]
    public = set(mindspore_replay.__all__)
    named = {name for cell in cells for name in re.findall(r"`([A-Z]\w+)", cell)}
    assert named - public == set()
    called = {name for cell in cells for name in re.findall(r"`([a-z]\w+)\(", cell)}
    places = [getattr(mindspore_replay, name) for name in public]
    assert {name for name in called - {"len"} if not any(hasattr(place, name) for place in places)} == set()
    assert {len(row) for row in [*classes, *middleware]} == {3}
    assert {len(row) for row in methods} == {2}


def test_the_page_leads_somewhere():
    for path in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / path).is_file()


def test_a_limit_that_is_none_is_no_key_that_a_reservoir_must_know():
    columns = COLUMNS | {"capacity": 9, "type": "reservoir"}
    buffer = create_buffer({**columns, "max_staleness": float("inf"), "max_use": float("inf")})
    assert buffer.spec.parts.limits == Expiry()
    with pytest.raises(ValueError, match="unknown keys: 'max_staleness'"):
        create_buffer({**columns, "max_staleness": 7})
