"""What a buffer is follows from its class and arguments alone, and goes through JSON."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
from flat import flat
from kinds import KINDS

from mindspore_replay import (
    Buffer,
    FrameStack,
    HindsightRelabel,
    NStep,
    ReplayBuffer,
    ReplayQueue,
    SequenceReplayBuffer,
    host,
)
from mindspore_replay.store.spec.described import read, spec_of
from mindspore_replay.store.spec.parts import Parts, Uniform

COLUMNS = [(3,), ()], ["float32", "bool"]
NAMES = ["observation", "terminated"]


def through_json(spec: Any) -> Any:
    return read(json.loads(json.dumps(spec.to_json())), spec.seed)


def assert_same(first: Any, second: Any) -> None:
    assert first.options == second.options
    assert all(getattr(first, it) == getattr(second, it) for it in ("bookkeeping", "fields", "public_class"))
    assert (first.columns.late, first.columns.compressed) == (second.columns.late, second.columns.compressed)
    assert first.to_json() == second.to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_through_json(kind: str):
    spec = KINDS[kind].make(2, 16, *COLUMNS, names=NAMES, seed=3).spec
    assert_same(spec, through_json(spec))
    assert_same(spec, pickle.loads(pickle.dumps(through_json(spec))))
    assert "reason" not in spec.to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_that_of_the_buffer(kind: str):
    more = {"names": NAMES, "num_envs": 1, "late": [0], "seed": 3}
    if "reservoir" in kind:
        del more["num_envs"]
    options = {key: value for key, value in KINDS[kind].options.items() if key not in ("compress", "backend")} | more
    arguments = {"sample_size": 2, "capacity": 16, "shapes": COLUMNS[0], "types": COLUMNS[1], **options}
    arguments = flat(**arguments)
    spec = spec_of(KINDS[kind].cls, arguments)  # type: ignore[arg-type]
    assert_same(spec, KINDS[kind].cls(**arguments).spec)


def test_other_sizes():
    spec = host.ReplayBuffer(2, 16, *COLUMNS).spec
    assert spec.resized(5).options.plan.n == 5
    assert spec.resized(5).arguments() == {**spec.arguments(), "sample_size": 5}
    assert spec.resized(17).options.rows_to_wait_for == 16
    with pytest.raises(ValueError, match="For 'ReplayBuffer', 'sample_size' must be at most 16"):
        host.ReplayBuffer(2, 16, *COLUMNS, replace=False).spec.resized(17)


def test_views_go_through_json():
    names, types = ["observation", "reward", "terminated"], ["float32", "float32", "bool"]
    views = [NStep(2, 0.9), FrameStack(3)]
    spec = host.SequenceReplayBuffer(
        2, 64, [(), (), ()], types, sequence_length=4, names=names, views=views, burn_in=1
    ).spec
    assert_same(spec, through_json(spec))


def test_a_view_with_a_function_is_described_without_it():
    view = HindsightRelabel("future", 0.8, np.subtract)
    names = ["achieved_goal", "desired_goal", "reward"]
    spec = ReplayBuffer(2, 16, [()] * 3, ["float32"] * 3, names=names, views=[view]).spec
    again = through_json(spec)
    assert again.options == spec.options
    assert (again.achieved_goal, again.incomplete) == ("achieved_goal", spec.incomplete)
    assert spec.to_json()["reason"] == "HindsightRelabel holds what no file can: Python code"


def test_a_class_of_ones_own_keeps_its_name():
    class Own(SequenceReplayBuffer):
        def __init__(self) -> None:
            super().__init__(2, 16, *COLUMNS, sequence_length=3)

    spec = Own().spec
    assert (spec.to_json()["class"], spec.public_class) == ("Own", "SequenceReplayBuffer")
    assert spec.to_json()["reason"] == "Own is no class of mindspore_replay"
    assert through_json(spec).options == spec.options
    with pytest.raises(ValueError, match="For 'Own', the constructor must be that of a public class"):
        spec_of(Own, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class": "Other"}, "there is no class 'Other'"),
        ({"capacity": 0}, "For 'ReplayBuffer', 'capacity' must be in"),
        ({"arguments": {"sample_size": 2}}, "'shapes' and 'types', or 'columns', are required"),
        ({"arguments": {"views": [{"view": "RateLimiter", "arguments": {}}]}}, "the view RateLimiter is no class of"),
    ],
)
def test_wrong_json(change: dict[str, Any], message: str):
    spec = host.ReplayBuffer(2, 16, *COLUMNS).spec
    with pytest.raises((TypeError, ValueError), match=message):
        read({**spec.to_json(), **change})


def test_a_folder_needs_a_constructor_that_can_be_repeated(tmp_path: Any):
    class Newest(Buffer):
        def __init__(self, storage: Any) -> None:
            super().__init__(2, 16, *COLUMNS, Parts(Uniform()), storage=storage)

    with pytest.raises(ValueError, match=r"For 'Newest', storage='.*' needs a class derived from a public one"):
        Newest(tmp_path / "rows")


def test_a_queue_keeps_its_timeout():
    spec = ReplayQueue(2, 16, *COLUMNS, timeout=0.25).spec
    assert spec.arguments()["timeout"] == 0.25
    assert spec.to_json()["arguments"]["timeout"] == 0.25
