"""Nested rows in every front: they are stored under dotted names, and sampled and read nested."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_replay import MixedReplay, ReplayBuffer, attach, host

NAMES = ["observation.image", "observation.joints.0", "observation.joints.1", "action"]
SHAPES, TYPES = [(2,), (), (), ()], ["float32", "int32", "int32", "int32"]
COLUMNS = {"shapes": SHAPES, "types": TYPES, "names": NAMES, "weighted": True, "seed": 0}


def row(n):
    """Return rows whose values all tell their number."""
    numbers = np.arange(n, dtype=np.int32)
    image = np.repeat(numbers[:, None], 2, axis=1).astype(np.float32)
    return {"observation": {"image": image, "joints": (numbers, numbers + 100)}, "action": numbers + 1000}


def check(sample, rows):
    """Compare a nested dict of rows with `row`."""
    numbers = np.asarray(sample["action"]) - 1000
    assert numbers.shape == (rows,)
    observation = sample["observation"]
    assert list(observation) == ["image", "joints"]
    assert type(observation["joints"]) is tuple
    np.testing.assert_array_equal(np.asarray(observation["image"])[:, 1], numbers)
    np.testing.assert_array_equal(np.asarray(observation["joints"][0]), numbers)
    np.testing.assert_array_equal(np.asarray(observation["joints"][1]), numbers + 100)


def on_a_device():
    return ReplayBuffer(3, 8, **COLUMNS)


def on_arrays():
    return host.ReplayBuffer(3, 8, **COLUMNS)


@pytest.mark.parametrize("make", [on_a_device, on_arrays])
def test_rows_nest(make):
    buffer = make()
    handles = buffer.insert(row(8), with_indices=True)
    check(buffer.sample(as_dict=True), 3)
    check(buffer.rows(as_dict=True), 8)
    check(buffer.get_item([1, 5], as_dict=True), 2)
    assert int(buffer.update(np.asarray(handles)[:1], {"observation": {"joints": ([7], [8])}})) == 0
    observation = buffer.get_item(0, as_dict=True)["observation"]
    assert [int(x) for x in observation["joints"]] == [7, 8]
    assert float(observation["image"][0]) == 0


@pytest.mark.parametrize("make", [on_a_device, on_arrays])
def test_a_column_given_twice_is_refused(make):
    buffer = make()
    handles = buffer.insert(row(2), with_indices=True)
    with pytest.raises(ValueError, match=r"must be given once, but 'observation\.image' was given twice"):
        buffer.insert(row(2) | {"observation.image": np.ones((2, 2), np.float32)})
    with pytest.raises(ValueError, match=r"must be given once, but 'observation\.joints\.0' was given twice"):
        buffer.update(handles, {"observation": {"joints": ([7, 7],)}, "observation.joints.0": [8, 8]})
    assert buffer.size() == 2


def test_rows_nest_in_an_attached_buffer(tmp_path):
    buffer = ReplayBuffer(3, 8, storage=str(tmp_path / "rows"), **COLUMNS)
    attached = attach(tmp_path / "rows")
    attached.insert(row(8))
    check(attached.sample(as_dict=True), 3)
    check(attached.get_item([1, 5], as_dict=True), 2)
    check(buffer.rows(as_dict=True), 8)


def test_rows_nest_in_a_mixture():
    mixed = MixedReplay([(on_a_device().insert(row(8)), 0.5), (on_a_device().insert(row(8)), 0.5)], 4)
    sample = mixed.sample(as_dict=True)
    assert sample["source"].shape == (4,)
    check(sample, 4)


def test_rows_nest_in_a_graph():
    buffer = ReplayBuffer(3, 8, **COLUMNS)

    class Step(nn.Cell):
        def __init__(self):
            super().__init__()
            self.buffer = buffer

        def construct(self, observation, action):
            self.buffer.insert({"action": action, "observation": observation})
            sample = self.buffer.sample(as_dict=True, with_indices=True)
            joints = sample["observation"]["joints"]
            self.buffer.update(sample["indices"], {"observation": {"joints": (joints[0], joints[1])}})
            return sample, self.buffer.rows(as_dict=True), self.buffer.get_item(2, as_dict=True)["action"]

    rows = row(8)
    observation = {
        "image": Tensor(rows["observation"]["image"]),
        "joints": tuple(map(Tensor, rows["observation"]["joints"])),
    }
    sample, stored, action = Step()(observation, Tensor(rows["action"], ms.int32))
    check(sample, 3)
    check(stored, 8)
    assert action == 1002


def test_bookkeeping_and_a_group_of_columns_of_one_name_are_refused():
    buffer = ReplayBuffer(1, 4, [()], ["int32"], names=["indices.x"], weighted=True).insert([[1, 2]])
    with pytest.raises(ValueError, match=r"columns with other names than \['indices'\]"):
        buffer.sample(as_dict=True, with_indices=True)
