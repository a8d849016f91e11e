"""The behaviour that DI-engine documents of its middleware."""

import sys
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest

from mindspore_replay.di_engine import (
    DequeBuffer,
    PriorityExperienceReplay,
    clone_object,
    group_sample,
    padding,
    sample_range_view,
    staleness_check,
    use_time_check,
)


def row_of(step=0):
    return {"obs": np.full(4, step, np.float32), "step": step}


def filled(size, rows, middleware, *arguments, meta=lambda step: None, objects=False, **more):
    buffer = DequeBuffer(size, objects=objects)
    buffer.use(middleware(buffer, *arguments, **more))
    for step in range(rows):
        buffer.push(row_of(step), meta(step))
    return buffer


def test_clone_object():
    buffer = DequeBuffer(10).use(clone_object())
    pushed = {"key": "v1"}
    buffer.push(pushed)
    pushed["key"] = "v0"
    buffer.sample(1)[0].data["key"] = "v2"
    assert buffer.sample(1)[0].data == {"key": "v1"}


def test_use_time_check(objects):
    buffer = filled(10, 6, use_time_check, max_use=2, objects=objects)
    assert [row.meta["use_count"] for row in buffer.sample(6)] == [1] * 6
    assert [row.meta["use_count"] for row in buffer.sample(6)] == [2] * 6
    assert buffer.count() == 0
    with pytest.raises(ValueError, match="too few in 0 rows"):
        buffer.sample(1)


def test_use_time_check_counts_indices_groups_and_repeated_rows(objects):
    buffer = DequeBuffer(10, objects=objects)
    buffer.use(use_time_check(buffer, max_use=3))
    rows = [buffer.push(row_of(step), {"group": step % 2}) for step in range(4)]
    buffer.sample(indices=[rows[0].index] * 2)
    assert buffer.sample(2, groupby="group")[0][0].meta["use_count"] in (1, 3)
    assert [row.data["step"] for row in buffer] == [1, 2, 3]
    again = buffer.sample(indices=[rows[1].index] * 3)  # it is used up by the second
    assert [row.data["step"] for row in again] == [1, 1, 1]
    assert buffer.count() == 2


def test_use_time_check_without_a_limit_counts():
    buffer = DequeBuffer(10)
    buffer.use(use_time_check(buffer))
    buffer.push(1)
    assert [buffer.sample(1)[0].meta["use_count"] for _ in range(3)] == [1, 2, 3]


def test_limits_of_two_views_are_one():
    buffer = DequeBuffer(10)
    few, many = buffer.view(), buffer.view()
    few.use(use_time_check(few, max_use=2))
    many.use(use_time_check(many, max_use=9))
    buffer.push(1)
    few.sample(1)
    many.sample(1)
    assert buffer.count() == 0


def test_a_limit_that_is_set_later_counts_from_then(objects):
    buffer = DequeBuffer(4, objects=objects)
    for step in range(6):
        buffer.push(row_of(step), {"step": step})
    buffer.delete(buffer[0].index)
    buffer.sample(3)
    buffer.use(use_time_check(buffer, max_use=1))
    assert [(row.data["step"], row.meta["step"], row.index) for row in buffer] == [(i, i, f"{i}") for i in (3, 4, 5)]
    with pytest.raises(KeyError, match="but got '2'"):
        buffer.get_by_index("2")
    assert buffer.update(buffer[0].index, row_of(9))
    assert sorted(row.data["step"] for row in buffer.sample(3)) == [4, 5, 9]
    assert buffer.count() == 0


def test_rows_keep_their_indices_age_and_priorities_when_middleware_comes_later(objects):
    buffer = DequeBuffer(4, objects=objects)
    buffer.use(staleness_check(buffer, max_staleness=4))
    rows = [buffer.push(row_of(i), {"train_iter_data_collected": i, "priority": 1.0 + i}) for i in range(6)]
    buffer.sample(1, train_iter_sample_data=7)
    buffer.use(PriorityExperienceReplay(buffer))
    drawn = buffer.sample(2, train_iter_sample_data=8)
    assert {(row.data["step"], row.index, row.meta["staleness"], row.meta["priority"]) for row in drawn} <= {
        (4, "4", 4, 5.0),
        (5, "5", 3, 6.0),
    }
    assert buffer.update(rows[5].index, None, {"priority": 0.0, "train_iter_data_collected": 5})
    assert not buffer.update(rows[3].index, None, {"priority": 9.0})
    assert buffer.push(row_of(6), {"train_iter_data_collected": 8}).index == "6"


def test_limits_that_a_graph_would_not_know_are_refused():
    buffer = DequeBuffer(4)
    buffer.use(use_time_check(buffer, max_use=3))
    buffer.push(row_of(1))
    replay = buffer.replay
    for late in use_time_check(buffer, 2), staleness_check(buffer, 2), PriorityExperienceReplay(buffer):
        with pytest.raises(RuntimeError, match="set limits and priorities before you read 'replay'"):
            buffer.use(late)
    view = buffer.view().use(use_time_check(buffer, 5))  # the smaller limit holds already
    assert view.replay is replay
    assert [view.sample(1)[0].meta["use_count"] for _ in range(3)] == [1, 2, 3]
    assert replay.eligible() == 0


def test_a_limit_that_is_none_leaves_the_rows(objects):
    buffer = DequeBuffer(4, objects=objects)
    row = buffer.push(row_of(1), {"step": 1})
    for bad in (use_time_check(buffer, 0), PriorityExperienceReplay(buffer, priority_power_factor=3.0)):
        with pytest.raises(ValueError, match="must be in"):
            buffer.use(bad)
    with pytest.raises(TypeError, match="'max_use' must be a number"):
        buffer.use(use_time_check(buffer, "3"))
    assert buffer.get_by_index(row.index).data["step"] == buffer.sample(1)[0].data["step"] == 1
    assert "priority_IS" not in buffer[0].meta
    assert buffer.push(row_of(2)).index == "1"


def test_rows_of_the_same_iteration_are_not_stale():
    buffer = DequeBuffer(4)
    buffer.use(staleness_check(buffer, max_staleness=0))
    buffer.push(1, {"train_iter_data_collected": 3})
    assert len(buffer.sample(1, train_iter_sample_data=3)) == 1
    with pytest.raises(ValueError, match="too few in 0 rows"):
        buffer.sample(1, train_iter_sample_data=4)


def test_a_window_that_is_used_up_leaves_all_other_rows():
    buffer = filled(6, 6, PriorityExperienceReplay)
    buffer.use(use_time_check(buffer, max_use=1))
    buffer.sample(2, sample_range=slice(-2, None))
    with pytest.raises(ValueError, match="too few"):
        buffer.sample(5)
    assert sorted(row.data["step"] for row in buffer.sample(4)) == [0, 1, 2, 3]  # a refused sample uses none


def test_staleness_check(objects):
    buffer = DequeBuffer(10, objects=objects)
    buffer.use(staleness_check(buffer, max_staleness=10))
    with pytest.raises(ValueError, match="train_iter_data_collected"):
        buffer.push(row_of())
    for _ in range(6):
        buffer.push(row_of(), meta={"train_iter_data_collected": 0})
    for clock in (9, 10):
        rows = buffer.sample(6, train_iter_sample_data=clock)
        assert [row.meta["staleness"] for row in rows] == [clock] * 6
    for _ in range(2):
        buffer.push(row_of(), meta={"train_iter_data_collected": 5})
    assert buffer.count() == 8
    with pytest.raises(ValueError, match="too few in 2 rows"):
        buffer.sample(6, train_iter_sample_data=11)
    assert [row.meta["staleness"] for row in buffer.sample(2, train_iter_sample_data=11)] == [6, 6]
    with pytest.raises(ValueError, match="needs train_iter_sample_data"):
        buffer.sample(1)


def test_a_row_from_a_later_iteration_than_the_last_sample():
    buffer = DequeBuffer(10)
    buffer.use(staleness_check(buffer))
    buffer.push(1, {"train_iter_data_collected": 100})
    assert buffer.sample(1, train_iter_sample_data=103)[0].meta["staleness"] == 3


def test_priorities(objects):
    buffer = filled(10, 10, PriorityExperienceReplay, meta=lambda step: {"priority": 2.0}, objects=objects)
    rows = buffer.sample(size=10, replace=False)
    for row in rows:
        assert {"priority", "priority_idx", "priority_IS"} <= set(row.meta)
        assert row.data["priority_IS"].tolist() == [1.0]
        row.meta["priority"] = 3.0
        assert buffer.update(row.index, row_of(), row.meta)
    row = buffer.sample(1)[0]
    assert row.meta["priority"] == 3.0
    buffer.delete(row.index)
    assert buffer.count() == 9
    assert not buffer.update(row.index, None, {"priority": 1.0})
    buffer.clear()
    assert buffer.count() == 0


def test_priorities_decide_who_is_drawn_and_how_much_a_row_weighs():
    buffer = DequeBuffer(4, objects=True)
    buffer.use(PriorityExperienceReplay(buffer, True, 0.5, 1.0))
    for name, priority in ("a", 1.0), ("b", 4.0), ("c", 9.0):
        buffer.push(name, {"priority": priority})
    counts = {"a": 0, "b": 0, "c": 0}
    weights = {}
    for _ in range(600):
        row = buffer.sample(1)[0]
        counts[row.data] += 1
        weights[row.data] = row.meta["priority_IS"]
    expected = {"a": 100, "b": 200, "c": 300}
    assert all(abs(counts[name] - expected[name]) < 5 * np.sqrt(expected[name]) for name in counts)
    assert not all(abs(counts[name] - 200) < 5 * np.sqrt(200) for name in counts)  # uniform draws would be
    assert weights == pytest.approx({"a": 1.0, "b": 1 / 2, "c": 1 / 3}, rel=1e-4)


def test_a_new_row_has_the_largest_priority_or_that_in_the_row():
    buffer = DequeBuffer(4)
    buffer.use(PriorityExperienceReplay(buffer))
    assert buffer.push(row_of()).meta["priority"] == 1.0
    row = {**row_of(1), "priority": 5.0}
    assert buffer.push(row).meta["priority"] == 5.0
    assert row["priority"] == 5.0  # the caller's row is as it was
    assert buffer.push(row_of(2), {"label": 1}).meta["priority"] == 5.0
    assert list(buffer[0].data) == list(buffer[1].data) == ["obs", "step"]


def test_more_samples_than_rows_by_priority():
    buffer = filled(4, 3, PriorityExperienceReplay, IS_weight=False)
    rows = buffer.sample(8)
    assert len(rows) == 8
    assert all("priority_IS" not in row.meta and "priority_IS" not in row.data for row in rows)


def test_priorities_that_are_none():
    buffer = DequeBuffer(4)
    buffer.use(PriorityExperienceReplay(buffer))
    with pytest.raises(ValueError, match=r"a priority must be finite and at least 0, but got -1\.0\.$"):
        buffer.push(row_of(), {"priority": -1.0})
    assert buffer.count() == 0
    row = buffer.push(row_of(), {"priority": 1.0})
    with pytest.raises(ValueError, match="a priority must be finite"):
        buffer.update(row.index, row_of(5), {"priority": -1.0})
    assert buffer[0].data["step"] == 0
    with pytest.raises(ValueError, match="'meta' must have a 'priority', but got None"):
        buffer.update(row.index, row_of(5))
    with pytest.raises(ValueError, match=r"'alpha' must be in \[0, 1\], but got 2"):
        DequeBuffer(4).use(PriorityExperienceReplay(buffer, priority_power_factor=2.0))


def test_beta_grows_to_one():
    buffer = filled(4, 2, PriorityExperienceReplay, True, 0.6, 0.5, 2, meta=lambda step: {"priority": 1.0 + 15 * step})
    ratio = (1 / 16) ** 0.6
    for beta in (0.5, 0.75, 1.0, 1.0):
        rows = buffer.sample(9)  # more than there are: still one sample, with one beta
        (weight,) = {row.meta["priority_IS"] for row in rows if row.data["step"] == 1}
        assert weight == pytest.approx(ratio**beta, rel=1e-4)


def test_group_sample():
    buffer = DequeBuffer(10).use(group_sample(size_in_group=3))
    for step in range(4):
        buffer.push(step, {"episode": 0})
    starts = {buffer.sample(1, groupby="episode")[0][0].data for _ in range(30)}
    assert starts == {0, 1}
    for ordered, most, found in (True, False, {0, 1, 2, 3}), (False, True, {0, 1, 2, 3}):
        other = buffer.view().use(group_sample(3, ordered, most))
        groups = [[row.data for row in other.sample(1, groupby="episode")[0]] for _ in range(40)]
        assert {group[0] for group in groups} == found
        assert all(group == sorted(group) for group in groups) is ordered
    with pytest.raises(ValueError, match="needs groupby"):
        buffer.sample(1)
    with pytest.raises(ValueError, match="a group must have 5 rows, but got 4"):
        buffer.view().use(group_sample(5, False)).sample(1, groupby="episode")


def test_padding():
    buffer = DequeBuffer(10).use(padding())
    for step in range(10):
        buffer.push(step, {"group": step & 5})
    groups = buffer.sample(4, groupby="group")
    assert [len(group) for group in groups] == [3] * 4
    assert all(len({row.meta["group"] for row in group}) == 1 for group in groups)
    assert len(buffer.sample(5)) == 5
    with pytest.raises(ValueError, match="'policy' must be 'random' or 'none', but got 'zero'"):
        padding("zero")


def test_padding_around_group_sample():
    buffer = DequeBuffer(10)
    buffer.use(padding(policy="none")).use(group_sample(size_in_group=5))
    for step in range(10):
        buffer.push(step, {"episode": int(step >= 4)})
    short, full = sorted(buffer.sample(2, groupby="episode"), key=lambda group: group[0].meta["episode"])
    assert [row.data for row in short] == [0, 1, 2, 3, None]
    assert (short[-1].index, short[-1].meta) == (None, None)
    assert len(full) == 5
    assert all(row.data is not None for row in full)


def test_sample_range_view():
    buffer = DequeBuffer(10)
    for name in "xxxxxyyyzz":
        buffer.push({"data": name})
    some, last = buffer.view(), buffer.view()
    some.use(sample_range_view(some, start=-5, end=-2))
    last.use(sample_range_view(last, start=-2))
    assert {some.sample(1)[0].data["data"] for _ in range(20)} == {"y"}
    assert {last.sample(1)[0].data["data"] for _ in range(20)} == {"z"}
    with pytest.raises(ValueError, match="'start' or 'end' must be given"):
        sample_range_view(buffer)


def test_the_newest_rows_by_priority():
    buffer = filled(10, 10, PriorityExperienceReplay, meta=lambda step: {"priority": 1.0 + step})
    assert {row.data["step"] for row in buffer.sample(30, sample_range=slice(-2, None))} == {8, 9}
    assert len({row.data["step"] for row in buffer.sample(30)}) > 2
    buffer.replay.set_window(4)
    assert {row.data["step"] for row in buffer.sample(30, sample_range=slice(-2, None))} == {8, 9}
    assert buffer.replay.window == 4
    with pytest.raises(ValueError, match=r"must be slice\(-n, None\) where priorities decide"):
        buffer.sample(1, sample_range=slice(0, 5))


ALL = {
    "priority": PriorityExperienceReplay,
    "sharper": lambda buffer: PriorityExperienceReplay(buffer, priority_power_factor=0.9),
    "use": lambda buffer: use_time_check(buffer, max_use=2),
    "age": lambda buffer: staleness_check(buffer, max_staleness=3),
}
SHOWN = {"priority": "priority", "sharper": "priority", "use": "use_count", "age": "staleness"}
STACKS = [(), ("priority",), ("sharper",), ("use",), ("age",), ("use", "age"), ("priority", "use", "age")]


def stacked(names, rows=3, objects=False, size=6):
    buffer = DequeBuffer(size, objects=objects)
    for name in names:
        buffer.use(ALL[name](buffer))
    for step in range(rows):
        meta = {"priority": 1.0 + step, "train_iter_data_collected": step // 4, "group": 0}
        buffer.push({"step": step}, meta)
    return buffer


def sample(buffer, names, *arguments, **more):
    return buffer.sample(*arguments, **more, **({"train_iter_sample_data": 2} if "age" in names else {}))


@pytest.mark.parametrize("names", STACKS, ids="+".join)
@pytest.mark.parametrize(
    "how",
    [
        {"size": 2},
        {"size": 2, "replace": True},
        {"size": 6, "replace": True},
        {"size": 2, "sample_range": slice(-2, None)},
        {"size": 4, "replace": True, "sample_range": slice(-2, None)},
        {"indices": ["0", "1", "0"]},
        {"size": 1, "groupby": "group"},
        {"size": 2, "groupby": "group", "replace": True},
    ],
    ids=str,
)
def test_a_sample_of_any_kind_says_what_is_known_of_its_rows(names, how, objects):
    buffer = stacked(names, objects=objects)
    drawn = sample(buffer, names, **how)
    assert len(drawn) == how.get("size", 3)
    rows = [row for one in drawn for row in (one if isinstance(one, list) else [one])]
    for row in rows:
        step = row.data["step"]
        known = {SHOWN[name]: row.meta[SHOWN[name]] for name in names}
        assert known.get("staleness", 2) == 2
        assert known.get("priority", 1.0 + step) == 1.0 + step
        if "use" in names and "priority" not in names:
            uses = sum(one.index == row.index for one in rows)
            assert 1 <= known["use_count"] <= max(uses, 2)
    assert len({id(row.meta) for row in rows}) == len(rows)


@pytest.mark.parametrize("names", [("use",), ("priority", "use"), ("priority", "use", "age")], ids="+".join)
def test_with_replacement_one_row_is_enough(names, objects):
    buffer = stacked(names, rows=1, objects=objects)
    assert [row.index for row in sample(buffer, names, 9, replace=True)] == ["0"] * 9
    assert buffer.count() == 0
    with pytest.raises(ValueError, match="too few in 0 rows"):
        sample(buffer, names, 1, replace=True)
    buffer = stacked(names, rows=4, objects=objects)
    drawn = sample(buffer, names, 40, replace=True, sample_range=slice(-2, None))
    assert {row.index for row in drawn} == {"2", "3"}
    assert buffer.count() == 2


@pytest.mark.parametrize("loading", STACKS, ids="+".join)
@pytest.mark.parametrize("saved", STACKS, ids="+".join)
def test_a_file_loads_behind_other_middleware(saved, loading, objects, tmp_path):
    """Into a new buffer, and into one whose rows are in a Cell."""
    buffer = stacked(saved, rows=9, objects=objects)
    buffer.delete(buffer[2].index)
    sample(buffer, saved, 2)
    buffer.save_data(tmp_path / "rows")
    for loaded in stacked(loading, 0, objects), stacked(loading, 4, objects):
        replay = loaded.replay if loaded.count() else None
        loaded.load_data(tmp_path / "rows")
        assert replay in (None, loaded.replay)
        loaded.table.buffer.check_valid()
        assert [(row.index, row.data["step"]) for row in loaded] == [(row.index, row.data["step"]) for row in buffer]
        row = sample(loaded, loading, 1)[0]
        assert all(SHOWN[name] in row.meta for name in loading)
        assert row.meta["priority"] == 1.0 + row.data["step"]
        newest = loaded.push({"step": 9}, {"priority": 3.0, "train_iter_data_collected": 2})
        assert newest.index == "9"


class Named:
    """A row that takes items by name, and is no dict."""

    def __init__(self):
        self.items = {"obs": 1}

    def __setitem__(self, key, value):
        self.items[key] = value


class Tree(Named):
    """One of another library's, whose values are tensors."""

    def __getitem__(self, key):
        return self.items[key]

    def keys(self):
        return self.items.keys()

    def __contains__(self, key):
        return key in self.items

    def pop(self, key):
        return self.items.pop(key)


class Foreign:
    """A tensor of another library."""

    def __init__(self, array):
        self.array = array


def test_any_row_that_takes_items_gets_its_weight(monkeypatch):
    named, tree, tensors = Named(), Tree(), Tree()
    tree["priority"], tensors["nested"] = 4.0, Tree()
    tensors.items["nested"]["obs"] = Foreign(None)
    rows = [named, tree, tensors, UserDict(obs=1), {"obs": "text"}, ["list"], "text", 5, np.zeros(2), (1,), None]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Foreign, from_numpy=Foreign))
    buffer = DequeBuffer(20)
    buffer.use(PriorityExperienceReplay(buffer))
    for row in rows:
        buffer.push(row)
    assert "priority" not in tree
    assert buffer[1].meta["priority"] == 4.0
    drawn = {row.index: row for row in buffer.sample(2000, replace=True)}
    assert len(drawn) == len(rows)
    for index, row in drawn.items():
        if int(index) >= 5:  # they take none
            assert str(row.data) == str(rows[int(index)])
            continue
        weight = (row.data.items if isinstance(row.data, Named) else row.data)["priority_IS"]
        assert isinstance(weight, Foreign) == (row.data is tensors)
        weight = getattr(weight, "array", weight)
        assert (weight.dtype, weight.tolist()) == (np.float32, [np.float32(row.meta["priority_IS"])])
    assert buffer._middleware[0].buffer_idx == {place: str(place) for place in range(len(rows))}
    buffer.delete("3")
    assert "3" not in buffer._middleware[0].buffer_idx.values()


def test_a_sampled_row_is_stored_again_with_its_columns(objects):
    buffer = stacked(("priority",), objects=objects)
    for row in [buffer.sample(1)[0] for _ in range(3)]:
        row.data["step"] += 10
        assert buffer.update(row.index, row.data, row.meta)
        again = buffer.push(dict(row.data), {"priority": 1.0})
        for index in row.index, again.index:
            assert buffer.get_by_index(index).data["step"] == row.data["step"]
    assert (buffer.table.layout is None) == objects


def test_errors_that_programs_for_di_engine_catch():
    aged, ranged = filled(4, 0, staleness_check), DequeBuffer(4)
    for call in (
        lambda: aged.push(row_of()),
        lambda: aged.sample(1, train_iter_sample_data=0, unroll_len=2),
        lambda: ranged.use(sample_range_view(ranged)),
        lambda: ranged.sample(),
        lambda: filled(4, 1, PriorityExperienceReplay).update("0", row_of()),
    ):
        for kind in ValueError, AssertionError:
            with pytest.raises(kind, match=r"^For '"):
                call()
