"""The behaviour that DI-engine documents of `DequeBuffer`, and what columns add to it."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_replay import ElasticReplayBuffer, ReplayBuffer
from mindspore_replay.di_engine import (
    Buffer,
    BufferedData,
    DequeBuffer,
    PriorityExperienceReplay,
    staleness_check,
    use_time_check,
)


def filled(size, rows, objects=False, **more):
    buffer = DequeBuffer(size, objects=objects, **more)
    for row in rows:
        buffer.push(row)
    return buffer


def data_of(rows):
    return [row.data for row in rows]


def steps_of(rows):
    return [row.data["step"] for row in rows]


def test_the_newest_rows_stay_and_are_drawn_once(objects):
    buffer = filled(10, [{"step": step} for step in range(20)], objects)
    assert isinstance(buffer, Buffer)
    assert (buffer.count(), len(buffer), buffer.size) == (10, 10, 10)
    assert sorted(steps_of(buffer.sample(10))) == list(range(10, 20))
    assert steps_of(buffer) == steps_of(buffer.storage) == list(range(10, 20))
    assert [buffer[0].data, buffer.get(-1).data] == [{"step": 10}, {"step": 19}]
    with pytest.raises(IndexError, match=r"must be in \[-10, 10\).*but got 10"):
        buffer.get(10)
    buffer.clear()
    assert (buffer.count(), list(buffer)) == (0, [])
    buffer.push({"step": 7})
    assert steps_of(buffer.sample(4, replace=True)) == [7] * 4


def test_draws_are_uniform_and_the_check_rejects_others():
    buffer = filled(10, range(10))
    counts = np.zeros(10)
    for _ in range(300):
        counts[data_of(buffer.sample(5))] += 1
    expected, sigma = 150, np.sqrt(300 * 0.25)
    assert (np.abs(counts - expected) < 5 * sigma).all()
    assert not (np.abs(np.r_[counts[:9], counts[9] - 100] - expected) < 5 * sigma).all()


def test_push_returns_the_row_with_its_index(objects):
    buffer = DequeBuffer(3, objects=objects)
    row = buffer.push({"step": 1}, {"episode": 5})
    assert isinstance(row, BufferedData)
    assert isinstance(row.index, str)
    assert (row.data, row.meta) == ({"step": 1}, {"episode": 5})
    assert buffer.get_by_index(row.index).meta == {"episode": 5}
    assert buffer.push({"step": 2}).meta == {}
    for _ in range(3):
        buffer.push({"step": 3})
    with pytest.raises(KeyError, match="'index' must be that of a stored row"):
        buffer.get_by_index(row.index)


def test_a_range_of_rows(objects):
    buffer = filled(10, [{"step": step} for step in range(12)], objects)
    assert sorted(steps_of(buffer.sample(5, sample_range=slice(5, 10)))) == list(range(7, 12))
    assert set(steps_of(buffer.sample(20, replace=True, sample_range=slice(-3, None)))) <= {9, 10, 11}
    assert sorted(steps_of(buffer.sample(3, sample_range=slice(0, None, 4)))) == [2, 6, 10]
    with pytest.raises(ValueError, match=r"must be 4 rows to sample, but got too few in 3 rows"):
        buffer.sample(4, sample_range=slice(7, None))
    buffer.delete([row.index for row in buffer][8:])  # positions are those of the rows that are left
    assert sorted(steps_of(buffer.sample(2, sample_range=slice(-2, None)))) == [8, 9]


def test_arguments_by_position():
    buffer = filled(10, range(10))
    for none in (False, None, [], ()):
        assert len(buffer.sample(5, none)) == len(buffer.sample(20, none, True)) - 15 == 5
    with pytest.raises(
        TypeError, match=r"must be a sequence of indices: write sample\(size, replace=True\), but got T"
    ):
        buffer.sample(5, True)


def test_positions_by_indices(objects):
    buffer = filled(4, [{"step": step} for step in range(6)], objects)
    buffer.delete("3")
    indices = buffer.indices
    assert [(row.index, indices.get(row.index)) for row in buffer] == [("2", 0), ("4", 1), ("5", 2)]
    assert (len(indices), indices.has("4"), indices.has("3"), indices.has("none")) == (3, True, False, False)
    with pytest.raises(KeyError, match="'index' must be that of a stored row, but got '3'"):
        indices.get("3")


def test_metas_by_key(tmp_path, objects):
    buffer = DequeBuffer(3, objects=objects)
    assert buffer.meta_index == {}
    buffer.meta_index = {"label": []}
    for step in range(4):
        buffer.push({"step": step}, {"label": step} if step % 2 else None)
    assert buffer.meta_index == buffer.view().meta_index == {"label": [1, None, 3]}
    buffer.update(buffer[0].index, meta={"label": 7, "group": 1})
    buffer.delete(buffer[1].index)
    buffer.sample(1, groupby="group")
    assert buffer.meta_index == {"label": [7, 3], "group": [1, None]}
    with pytest.raises(TypeError, match="does not support item assignment"):
        buffer.meta_index["other"] = []
    buffer.save_data(tmp_path / "rows")
    other = DequeBuffer(3)
    other.load_data(tmp_path / "rows")
    assert other.meta_index == buffer.meta_index


def test_rows_by_their_indices(objects):
    buffer = filled(10, [{"step": step} for step in range(10)], objects)
    chosen = buffer.sample(4)
    again = buffer.sample(indices=[row.index for row in chosen] + [chosen[0].index])
    assert steps_of(again) == [*steps_of(chosen), chosen[0].data["step"]]
    with pytest.raises(KeyError, match="'index' must be"):
        buffer.sample(indices=["none"])


def test_too_few_rows(objects, caplog):
    buffer = filled(10, [{"step": 0}, {"step": 1}], objects)
    with pytest.raises(ValueError, match="must be 3 rows to sample, but got too few in 2 rows"):
        buffer.sample(3)
    assert buffer.sample(3, ignore_insufficient=True) == []
    assert "must be 3 rows to sample" in caplog.text
    with pytest.raises(ValueError, match="too few in 0 rows"):
        DequeBuffer(3, objects=objects).sample(1)


def test_arguments_that_do_not_fit():
    buffer = filled(4, range(4))
    for arguments, error in [
        ({}, "'sample' needs 'size', or 'indices'"),
        ({"indices": []}, "'sample' needs 'size', or 'indices'"),
        ({"size": 0}, r"'size' must be in \[1, 2147483647\], but got 0"),
        ({"size": 2, "indices": [buffer[0].index]}, "as many as 'size'"),
        ({"indices": [buffer[0].index], "groupby": "a"}, "without 'groupby'"),
        ({"size": 1, "unroll_len": 2}, "needs 'groupby'"),
    ]:
        with pytest.raises(ValueError, match=error):
            buffer.sample(**arguments)
    with pytest.raises(TypeError, match="'sample_range' must be a slice"):
        buffer.sample(1, sample_range=(0, 2))
    with pytest.raises(TypeError, match="'size' must be an int"):
        DequeBuffer(2.5)
    with pytest.raises(TypeError, match="'meta' must be a dict"):
        buffer.push(1, meta=3)


def test_rows_that_come_again_are_copies():
    buffer = filled(1, [{"key": "origin"}])
    first, second = buffer.sample(2, replace=True)
    first.data["key"] = "new"
    assert second.data["key"] == "origin"
    assert buffer[0].data["key"] == "new"  # an object is the one that was pushed
    first, second = buffer.sample(indices=[buffer[0].index] * 2)
    first.data["key"] = "newer"
    assert second.data["key"] == "new"


class Other:
    """Another library's tensor, which only its own method copies."""

    def __init__(self, values):
        self.values = values

    def clone(self):
        return type(self)(list(self.values))

    def __array__(self):
        return np.array(self.values)

    def __deepcopy__(self, memo):
        raise AssertionError


class Tree:
    """Another library's tree of tensors, which takes long to copy."""

    __init__, clone, __deepcopy__ = Other.__init__, Other.clone, Other.__deepcopy__


def test_a_row_that_comes_again_has_tensors_of_its_own_and_the_same_objects():
    buffer = filled(1, [{"tensor": Other([1]), "tree": Tree([1]), "array": np.zeros(2)}], objects=True)
    first, second = buffer.sample(2, replace=True)
    first.data["tensor"].values.append(2)
    first.data["array"][0] = 1
    assert (second.data["tensor"].values, second.data["array"].tolist()) == ([1], [0, 0])
    assert second.data["tree"] is first.data["tree"]


def test_update(objects):
    buffer = filled(3, [{"step": step} for step in range(3)], objects)
    row = buffer.sample(1)[0]
    assert buffer.update(row.index, {"step": 9}, {"label": 1})
    assert buffer.get_by_index(row.index) == BufferedData({"step": 9}, row.index, {"label": 1})
    assert buffer.update(row.index, meta={})
    assert buffer.get_by_index(row.index).data == {"step": 9}
    assert not buffer.update("invalidindex", {"step": 0})
    buffer.delete(row.index)
    assert not buffer.update(row.index, {"step": 0})


def test_delete(objects):
    buffer = filled(100, [{"step": step} for step in range(40)], objects)
    deleted = buffer.sample(20)
    buffer.delete([row.index for row in deleted] + ["none"])
    buffer.delete(row.index for row in deleted)  # again
    for step in range(40, 50):
        buffer.push({"step": step})
    assert buffer.count() == len(buffer.storage) == 30
    assert (
        sorted(steps_of(buffer)) == sorted({*range(50)} - {*steps_of(deleted)}) == sorted(steps_of(buffer.sample(30)))
    )
    assert buffer[0].data["step"] == min({*range(50)} - {*steps_of(deleted)})


def test_groups(objects):
    buffer = DequeBuffer(3, objects=objects)
    for step, group in enumerate([1, 2, 2]):
        buffer.push({"step": step}, {"group": group})
    groups = sorted(steps_of(group) for group in buffer.sample(2, groupby="group"))
    assert groups == [[0], [1, 2]]
    buffer.push({"step": 3}, {"group": 2})
    assert [steps_of(group) for group in buffer.sample(1, groupby="group")] == [[1, 2, 3]]
    assert buffer.update(buffer[0].index, meta={"group": 1})
    assert sorted(steps_of(group) for group in buffer.sample(2, groupby="group")) == [[1], [2, 3]]
    buffer.delete(buffer[-1].index)
    assert sorted(steps_of(group) for group in buffer.sample(2, groupby="group")) == [[1], [2]]
    assert len(buffer.sample(5, groupby="group", replace=True)) == 5
    with pytest.raises(ValueError, match="must be 3 groups by 'group'"):
        buffer.sample(3, groupby="group")
    assert [len(group) for group in buffer.sample(1, groupby="nothing")] == [2]  # all have None


def test_windows_of_groups(objects):
    buffer = DequeBuffer(100, objects=objects)
    for step in range(10):
        for env in "ABC":
            buffer.push({"step": step}, {"env": env})
    starts = set()
    for _ in range(30):
        groups = buffer.sample(3, groupby="env", unroll_len=4)
        assert sorted({row.meta["env"] for group in groups for row in group}) == ["A", "B", "C"]
        for group in groups:
            assert len({row.meta["env"] for row in group}) == 1
            assert steps_of(group) == list(range(group[0].data["step"], group[0].data["step"] + 4))
            starts.add(group[0].data["step"])
    assert starts == set(range(7))
    sliced = DequeBuffer(100, sliced=True, objects=objects)
    for step in range(10):
        sliced.push({"step": step}, {"env": "A"})
    assert {sliced.sample(1, groupby="env", unroll_len=4)[0][0].data["step"] for _ in range(40)} == {0, 4, 6}


def test_groups_that_are_too_short_for_a_window():
    buffer = DequeBuffer(100)
    for env, rows in ("A", 3), ("B", 4), ("C", 5):
        for step in range(rows):
            buffer.push(step, {"env": env})
    with pytest.raises(ValueError, match="must be 3 groups"):
        buffer.sample(3, groupby="env", unroll_len=4)
    groups = buffer.sample(30, groupby="env", unroll_len=4, replace=True)
    assert {group[0].meta["env"] for group in groups} == {"B", "C"}
    assert all(data_of(group) == list(range(group[0].data, group[0].data + 4)) for group in groups)


class RateLimit:
    def __init__(self, most):
        self.left = most

    def __call__(self, action, chain, *args, **kwargs):
        if action != "push":
            return chain(*args, **kwargs)
        self.left -= 1
        return chain(*args, **kwargs) if self.left >= 0 else None


def add_10(action, chain, *args, **kwargs):
    rows = chain(*args, **kwargs)
    return [BufferedData(row.data + 10, row.index, row.meta) for row in rows] if action == "sample" else rows


def test_middleware_of_ones_own_and_views():
    buffer = filled(10, [0])
    view = buffer.view().use(RateLimit(5)).use(add_10)
    for i in range(10):
        view.push(i)
    assert (buffer.count(), view.count(), len(buffer._middleware)) == (6, 6, 0)
    assert all(row.data >= 10 for row in view.sample(5))
    assert all(row.data < 10 for row in buffer.sample(5))


def test_the_first_middleware_is_the_outermost_and_sees_all_actions():
    seen = []

    def named(name):
        def call(action, chain, *args, **kwargs):
            seen.append((name, action, args, kwargs))
            return chain(*args, **kwargs)

        return call

    buffer = DequeBuffer(4).use(named("a")).use(named("b"))
    row = buffer.push(1, meta={"x": 1})
    buffer.sample(1, replace=True)
    buffer.update(row.index, 2)
    buffer.delete(row.index)
    buffer.clear()
    actions = ["push", "sample", "update", "delete", "clear"]
    assert [(name, action) for name, action, _, _ in seen] == [(n, a) for a in actions for n in "ab"]
    assert seen[3][2:] == ((1,), {"replace": True})


def test_files(objects, tmp_path):
    buffer = DequeBuffer(10, objects=objects)
    for step in range(12):
        buffer.push({"step": step}, {"label": step})
    buffer.delete(buffer[3].index)
    buffer.save_data(tmp_path / "new" / "data.pkl")
    loaded = DequeBuffer(10, objects=objects)
    loaded.push({"step": 77})
    learners = loaded.replay.with_sample_size(4)
    loaded.load_data(str(tmp_path / "new" / "data.pkl"))
    assert list(loaded) == list(buffer)
    assert learners.eligible() == 9
    assert loaded.update(buffer[4].index, {"step": 100})
    assert loaded.push({"step": 12}).index == buffer.push({"step": 12}).index
    with pytest.raises(ValueError, match="the state must be of size 7, but got 10"):
        DequeBuffer(7).load_data(tmp_path / "new" / "data.pkl")


def test_a_state_of_other_columns_than_a_graph_draws_is_refused():
    buffer = filled(4, [{"step": 1}])
    other = filled(4, [{"step": 2.5}])
    assert not other.table.load_state_dict(buffer.table.state_dict())
    assert buffer.replay.names == ("step",)
    with pytest.raises(ValueError, match="the state must have the columns of 'replay', but got "):
        buffer.table.load_state_dict(filled(4, [{"step": 2.5}]).table.state_dict())
    assert steps_of(buffer) == steps_of(other) == [1]


def test_a_file_that_cannot_be_written_is_what_it_was(tmp_path):
    path, buffer = tmp_path / "data.pkl", DequeBuffer(4, objects=True)
    buffer.push("a")
    buffer.save_data(path)
    before = path.read_bytes()
    buffer.push(lambda: None)  # no pickle
    with pytest.raises((AttributeError, pickle.PicklingError)):
        buffer.save_data(path)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [before]


def test_columns_are_those_of_the_first_row():
    buffer = DequeBuffer(10)
    with pytest.raises(RuntimeError, match="made from the first row"):
        _ = buffer.replay
    first = {
        "obs": {"camera": np.zeros((2, 2), np.uint8), "joints": Tensor([1.0, 2.0], ms.float32)},
        "action": np.int32(3),
        "reward": 0.5,
        "done": False,
        "step": 1,
    }
    buffer.push(first)
    assert isinstance(buffer.replay, ReplayBuffer)
    assert buffer.replay.names == ("obs.camera", "obs.joints", "action", "reward", "done", "step")
    assert [str(dtype) for dtype in buffer.replay.types] == ["UInt8", "Float32", "Int32", "Float32", "Bool", "Int64"]
    row = buffer.sample(1)[0].data
    assert {key: type(value) for key, value in row.items()} == {
        "obs": dict,
        "action": np.int32,
        "reward": float,
        "done": bool,
        "step": int,
    }
    assert isinstance(row["obs"]["joints"], Tensor)
    np.testing.assert_array_equal(row["obs"]["joints"].asnumpy(), [1, 2])
    np.testing.assert_array_equal(row["obs"]["camera"], np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"obs": np.zeros(4, np.float32), "reward": 1.0}, r"\{'obs': \(3,\), 'reward': \(\)\} .*got \{'obs': \(4,\),"),
        ({"obs": np.zeros(3, complex), "reward": 1.0}, "column 'obs': expected float32, but got complex128"),
        ({"obs": np.zeros(3, np.float32), "reward": "x"}, "column 'reward': expected float32, but got "),
        ({"obs": np.zeros((1, 3), np.float32), "reward": 1.0}, r"but got \{'obs': \(1, 3\), 'reward': \(\)\}"),
        ({"obs": np.zeros(3, np.float32), "reward": [1.0, 2.0]}, r"but got \{'obs': \(3,\), 'reward': \(2,\)\}"),
        ({"obs": np.zeros(3, np.float32)}, r"of the first, but got \{'obs': \(3,\)\}"),
        ("text", "of the first, but got 'text'"),
    ],
)
def test_a_row_that_does_not_fit(row, error):
    """With columns that graphs may use it is an error. Otherwise all rows are objects, as with objects=True."""
    first = {"obs": np.zeros(3, np.float32), "reward": 1.0}
    buffer, used = filled(4, [first]), filled(4, [first])
    assert len(used.replay) == 1
    for call in used.push, lambda row: used.update(used[0].index, row):
        with pytest.raises((TypeError, ValueError), match=error) as caught:
            call(row)
        assert "Nothing was stored" in str(caught.value)
        assert "objects=True" in str(caught.value)
    assert (used.count(), len(used.replay), used[0].data["reward"]) == (1, 1, 1.0)
    with pytest.raises(RuntimeWarning, match=error):  # if warnings are errors, nothing is stored
        buffer.push(row)
    assert (buffer.count(), buffer.table.layout is None) == (1, False)
    updated = copy.deepcopy(buffer)
    with pytest.warns(RuntimeWarning, match=f"^For 'DequeBuffer', all rows are stored as objects .*{error}") as caught:
        buffer.push(row)
    buffer.push("another")
    assert [warning.filename for warning in caught] == [__file__]
    assert (buffer[0].data["reward"], buffer[0].data["obs"].tolist()) == (1.0, [0, 0, 0])
    assert buffer[1].data is row
    assert buffer[2].data == "another"
    with pytest.warns(RuntimeWarning, match=error):
        assert updated.update(updated[0].index, row)
    assert updated[0].data is row


@pytest.mark.parametrize("middleware", [(), (PriorityExperienceReplay,), (use_time_check, staleness_check)])
def test_columns_are_left_with_all_that_is_known_of_rows(middleware):
    """Draws, weights, uses, ages, indices and metas are those of a twin that kept its columns."""
    buffer = DequeBuffer(6)
    for one in middleware:
        buffer.use(one(buffer, *[3] * (one is not PriorityExperienceReplay)))
    when = {"train_iter_sample_data": 2} if staleness_check in middleware else {}
    for step in range(9):
        buffer.push({"step": step, "obs": {"x": 0.5}}, {"priority": 1.0 + step, "train_iter_data_collected": step // 4})
    buffer.delete(buffer[1].index)
    buffer.sample(3, **when)
    twin = copy.deepcopy(buffer)
    twin.push({"step": 9, "obs": {"x": 0.5}}, {"train_iter_data_collected": 2})
    with pytest.warns(RuntimeWarning, match="expected int64, but got object"):
        buffer.push({"step": None, "obs": {"x": 0.5}}, {"train_iter_data_collected": 2})
    for _ in range(4):
        drawn, of_twin = buffer.sample(2, **when), twin.sample(2, **when)
        for rows, others in (drawn, of_twin), (list(buffer), list(twin)):
            assert [(row.index, row.meta) for row in rows] == [(row.index, row.meta) for row in others]
            assert [row.data["step"] or 9 for row in rows] == steps_of(others)
            assert all(row.data["obs"] == {"x": 0.5} for row in rows)
        assert len(buffer) == len(twin)
    assert buffer.push("any", {"train_iter_data_collected": 2}).index == "10"


def test_keys_that_are_no_text_come_back():
    buffer = filled(4, [{0: 1.0, 1: {"x": 2.0}}])
    buffer.push({0: 3.0, 1: {"x": 4.0}})
    assert data_of(buffer) == [{0: 1.0, 1: {"x": 2.0}}, {0: 3.0, 1: {"x": 4.0}}]
    assert buffer.replay.names == ("0", "1.x")


def test_indices_that_are_none_of_this_buffer():
    buffer = filled(4, [1])
    for index in ("9" * 40, "1", "-1", "٣", "", 0, None):
        assert not buffer.update(index, 2)
        with pytest.raises(KeyError, match="'index' must be that of a stored row"):
            buffer.get_by_index(index)
        buffer.delete([index])
    assert data_of(buffer) == [1]


def test_what_a_sample_says_of_a_row_stays_with_it(objects):
    buffer = DequeBuffer(4, objects=objects)
    buffer.use(use_time_check(buffer)).use(PriorityExperienceReplay(buffer))
    buffer.push({"step": 1})
    buffer.sample(1)
    assert (buffer[0].meta["use_count"], buffer[0].meta["priority_IS"]) == (1, 1.0)


def test_keys_that_would_name_one_column_twice_are_those_of_an_object():
    row = {"a.b": 1, "a": {"b": 2}}
    assert filled(4, [row])[0].data is row


def test_a_state_is_that_of_its_time():
    buffer = filled(2, [{"step": 0}, {"step": 1}], objects=True)
    state = buffer.table.state_dict()
    for _ in range(2):
        buffer.push({"step": 2})
        buffer.table.load_state_dict(state)
        assert steps_of(buffer) == [0, 1]
        buffer[0].data["step"] = 9


def test_a_deep_copy_shares_nothing(objects):
    buffer = DequeBuffer(4, objects=objects)
    buffer.use(PriorityExperienceReplay(buffer)).use(use_time_check(buffer, 9)).use(staleness_check(buffer))
    for step in range(6):
        buffer.push({"step": step, "obs": np.full(2, step)}, {"train_iter_data_collected": 0})
    view = buffer.view()
    other, both = copy.deepcopy(buffer), copy.deepcopy([buffer, view])
    assert [row.index for row in other] == [row.index for row in buffer]
    drawn = other.sample(3, train_iter_sample_data=5)
    assert steps_of(drawn) == steps_of(buffer.sample(3, train_iter_sample_data=2))
    assert [row.meta["staleness"] for row in drawn] == [5, 5, 5]
    drawn[0].data["obs"][:] = 9
    other.update(drawn[0].index, meta={"priority": 9.0, "label": 1})
    other.push({"step": 6, "obs": np.full(2, 6)}, {"train_iter_data_collected": 5})
    assert steps_of(buffer) == [2, 3, 4, 5]
    assert all((row.data["obs"] == row.data["step"]).all() and "label" not in row.meta for row in buffer)
    both[1].delete(both[1][0].index)  # those that share rows do so still, and without middleware
    assert (len(both[0]), len(both[1]), len(view), len(both[1]._middleware)) == (3, 3, 4, 0)


def test_whole_numbers_fit_a_column_of_floats_and_not_the_other_way():
    buffer = filled(4, [{"reward": 1.0, "step": 0}])
    buffer.push({"reward": 2, "step": 1})
    assert buffer[-1].data == {"reward": 2.0, "step": 1}
    with pytest.warns(RuntimeWarning, match=r"column 'step': expected int64, but got the float 1\.5"):
        buffer.push({"reward": 2.0, "step": 1.5})
    assert data_of(buffer) == [{"reward": 1.0, "step": 0}, {"reward": 2.0, "step": 1}, {"reward": 2.0, "step": 1.5}]


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["pynative", "graph"])
def test_a_graph_draws_the_same_rows(mode):
    ms.set_context(mode=mode)

    class Learner(nn.Cell):
        def __init__(self, buffer):
            super().__init__()
            self.replay = buffer.replay.with_sample_size(4)

        @ms.jit
        def construct(self):
            batch = self.replay.sample(as_dict=True, with_indices=True)
            return batch["indices"], batch["obs"], batch["reward"]

    buffer = DequeBuffer(8)
    try:
        for step in range(10):
            buffer.push({"obs": np.full(3, step, np.float32), "reward": float(step)})
        learner = Learner(buffer)
        buffer.delete([row.index for row in buffer if row.data["reward"] < 6])
        indices, obs, reward = learner()
        rows = buffer.sample(indices=[str(index) for index in indices.asnumpy()])
        assert sorted(reward.asnumpy()) == [6, 7, 8, 9]
        np.testing.assert_array_equal([row.data["obs"] for row in rows], obs.asnumpy())
        np.testing.assert_array_equal([row.data["reward"] for row in rows], reward.asnumpy())
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.mark.parametrize("limits", [(), (PriorityExperienceReplay, use_time_check)])
def test_rows_are_held_on_arrays_until_a_graph_may_draw_them(limits, objects):
    ms.set_seed(1)
    buffer = DequeBuffer(6, objects=objects)
    for limit in limits:
        buffer.use(limit(buffer))
    for step in range(8):
        buffer.push({"step": step}, {"label": step})
    buffer.sample(3)
    other = copy.deepcopy(buffer)
    assert not isinstance(buffer.table.buffer, nn.Cell)
    assert buffer.replay is buffer.view().replay is buffer.table.buffer
    assert isinstance(buffer.replay, ElasticReplayBuffer if limits else ReplayBuffer)
    for _ in range(2):
        assert buffer.sample(4) == other.sample(4)
        assert buffer.push({"step": 8}) == other.push({"step": 8})
        assert [(row.index, row.meta) for row in buffer] == [(row.index, row.meta) for row in other]


def test_rows_that_a_graph_inserted_have_an_index_too():
    buffer = filled(4, [{"step": 0}])
    buffer.replay.insert([5])
    buffer.push({"step": 6}, {"label": 1})
    assert [(row.data["step"], row.index, row.meta) for row in buffer] == [
        (0, "0", {}),
        (5, "1", {}),
        (6, "2", {"label": 1}),
    ]


def test_threads_do_not_mix_rows():
    buffer = DequeBuffer(50)
    buffer.push({"a": 0, "b": np.zeros(20, np.int64)})

    def push():
        for i in range(150):
            buffer.push({"a": i, "b": np.full(20, i)}, {"a": i})

    def read():
        for _ in range(150):
            for row in buffer.sample(8, replace=True) + list(buffer):
                assert (row.data["b"] == row.data["a"]).all()
                assert row.meta.get("a", row.data["a"]) == row.data["a"]

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work) for work in (push, read)]:
            done.result()
