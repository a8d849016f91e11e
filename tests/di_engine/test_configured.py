"""The behaviour that DI-engine documents of the buffers that configurations make."""

import copy
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mindspore_replay.di_engine import (
    AdvancedReplayBuffer,
    DequeBufferWrapper,
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    IBuffer,
    NaiveReplayBuffer,
    SequenceReplayBuffer,
    create_buffer,
    get_buffer_cls,
    monitors,
)
from mindspore_replay.training import JSONLinesSink


class Scalars:
    def __init__(self):
        self.added, self.flushed = [], False

    def add_scalar(self, tag, value, step):
        self.added.append((tag, value, step))

    def flush(self):
        self.flushed = True

    def __deepcopy__(self, memo):
        raise AssertionError("a SummaryWriter has threads")


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(monitors.time, "monotonic", lambda: self.now)


def rows_of(count, **more):
    return [{"obs": np.full(4, step), "step": step, **more} for step in range(count)]


def steps_of(rows):
    return [row["step"] for row in rows]


def ids_of(rows, priorities):
    keys = "replay_unique_id", "replay_buffer_idx"
    return {"priority": priorities, **{key: [row[key] for row in rows] for key in keys}}


def filled(cls, size, count, *arguments, **cfg):
    buffer = cls({"replay_buffer_size": size, **cfg}, *arguments)
    buffer.push(rows_of(count), 0)
    return buffer


@pytest.fixture(params=[NaiveReplayBuffer, AdvancedReplayBuffer])
def cls(request):
    return request.param


# All of them.


def test_a_configuration_has_attributes_and_defaults(cls):
    cfg = cls.default_config()
    cfg.replay_buffer_size = 64
    assert cfg["replay_buffer_size"] == 64
    assert cfg.cfg_type == f"{cls.__name__}Dict"
    buffer = cls(cfg, tb_logger=None, instance_name="test")
    assert isinstance(buffer, IBuffer)
    assert buffer.replay_buffer_size == 64
    assert cls.default_config().replay_buffer_size == {"naive": 10000, "advanced": 4096}[cfg.type]
    with pytest.raises(ValueError, match=r"keys of DI-engine's buffers, but got \['capacity'\]"):
        cls({"capacity": 5})
    with pytest.raises(TypeError, match="'cfg' must be a mapping"):
        cls(5)


def test_push(cls, objects):
    buffer = cls({"replay_buffer_size": 64, "objects": objects})
    for row in rows_of(100):
        buffer.push(row, 0)
    assert (buffer.count(), buffer.push_count) == (64, 100)
    buffer.push([], 0)
    for _ in range(3):
        buffer.push(rows_of(38), 0)
    assert (buffer.count(), buffer.push_count) == (64, 214)
    buffer.push(rows_of(80), 0)
    assert sorted(set(steps_of(buffer.sample(64, 0)))) <= list(range(16, 80))
    buffer.clear()
    assert (buffer.count(), buffer.sample(1, 0)) == (0, None)


def test_what_does_not_fit_is_refused_and_nothing_of_it_is_stored(cls):
    buffer = filled(cls, 8, 2)
    assert len(buffer.replay) == 2
    for call, error, text in [
        (
            lambda: buffer.push([*rows_of(2), {"obs": np.zeros(3)}], 0),
            ValueError,
            r"of the first, but got \{'obs': \(3,\)\}",
        ),
        (lambda: buffer.push([*rows_of(2), 5], 0), (TypeError, ValueError), "a row must be a dict.*, but got 5"),
        (lambda: buffer.sample(-1, 0), ValueError, r"'size' must be in \[0, 2147483647\], but got -1"),
        (lambda: buffer.sample(2.0, 0), TypeError, "'size' must be an int"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert (buffer.count(), buffer.push_count, len(buffer.replay), len(buffer.sample(2, 0))) == (2, 2, 2, 2)


def test_files_and_states(cls, objects, tmp_path):
    buffer, path = filled(cls, 8, 10, objects=objects), tmp_path / "new" / "rows.pkl"
    buffer.save_data(str(path))
    loaded, same, rows = (filled(cls, 8, 0, objects=objects) for _ in range(3))
    loaded.load_data(str(path))
    same.load_state_dict(buffer.state_dict(), deepcopy=True)
    rows.load_state_dict({"data": rows_of(3)})
    assert sorted(set(steps_of(loaded.sample(8, 0)))) == list(range(2, 10))
    assert (same.push_count, rows.count()) == (10, 3)
    assert steps_of(same.sample(8, 0)) == steps_of(buffer.sample(8, 0))


def test_a_deep_copy_is_another_buffer(cls):
    buffer = filled(cls, 8, 6, Scalars())
    other = copy.deepcopy(buffer)
    assert steps_of(other.sample(4, 0)) == steps_of(buffer.sample(4, 0))
    other.clear()
    assert (buffer.count(), other.count()) == (6, 0)


# Naive.


def test_naive_draws():
    buffer = NaiveReplayBuffer({"replay_buffer_size": 8})
    assert (buffer.sample(0, 0), buffer.sample(1, 0)) == ([], None)
    buffer.push(rows_of(8), 0)
    assert sorted(steps_of(buffer.sample(8, 0))) == list(range(8))
    assert buffer.sample(9, 0) is None
    assert len(buffer.sample(9, 0, replace=True)) == 9
    assert buffer.sample(0, 0) == []
    assert set(steps_of(buffer.sample(2, 0, sample_range=slice(-2, None)))) == {6, 7}
    assert buffer.sample(3, 0, sample_range=slice(-2, None)) is None
    buffer.update({"no_info": True})
    assert buffer.push_count == 8
    buffer.clear()
    assert buffer.push_count == 0


def test_naive_keeps_objects_and_copies_them_only_if_told():
    for deepcopy in False, True:
        buffer = NaiveReplayBuffer({"replay_buffer_size": 8, "deepcopy": deepcopy})
        row = {"text": ["a"]}
        buffer.push(row, 0)
        assert (buffer.sample(1, 0)[0] is row) is not deepcopy
        row["text"].append("b")
        assert buffer.sample(1, 0)[0] == {"text": ["a"] if deepcopy else ["a", "b"]}


def test_files_of_rows_that_left_are_deleted(tmp_path):
    buffer = NaiveReplayBuffer({"replay_buffer_size": 10, "enable_track_used_data": True})
    buffer.start()
    rows = [{"data_id": str(tmp_path / f"{i}")} for i in range(18)]
    for row in rows:
        open(row["data_id"], "w").close()
    with pytest.raises(TypeError, match="must be a dict with a 'data_id'"):
        buffer.push([*rows[:3], {"other": 1}], 0)
    assert buffer.count() == 0
    buffer.push(rows[:10], 0)
    buffer.push(rows[10:], 0)
    buffer.close()
    assert not any(os.path.exists(row["data_id"]) for row in rows)
    buffer.push({"data_id": str(tmp_path / "none")}, 0)
    buffer.close()
    assert buffer.count() == 0


def test_episodes():
    buffer = create_buffer({"type": "episode", "replay_buffer_size": 3})
    assert type(buffer) is EpisodeReplayBuffer
    buffer.push([rows_of(n) for n in (2, 5, 3, 4)], 0)
    assert buffer.episode_len == [5, 3, 4]
    assert len(buffer.sample(2, 0)) == 2


def test_elastic():
    buffer = create_buffer({"type": "elastic", "replay_buffer_size": 20, "set_buffer_size": lambda step: 3 + step})
    assert type(buffer) is ElasticReplayBuffer
    buffer.push(rows_of(20), 0)
    assert sorted(steps_of(buffer.sample(3, 0))) == [17, 18, 19]
    assert buffer.sample(4, 0) is None
    buffer.update(5)
    assert sorted(steps_of(buffer.sample(8, 0))) == list(range(12, 20))
    with pytest.raises(ValueError, match="'sample_range' must be None"):
        buffer.sample(1, 0, sample_range=slice(0, 2))
    with pytest.raises(TypeError, match="'set_buffer_size' must be a function"):
        ElasticReplayBuffer({})


def test_sequences_are_of_one_episode_of_500():
    buffer = create_buffer({"type": "sequence", "replay_buffer_size": 1500})
    assert type(buffer) is SequenceReplayBuffer
    buffer.push(rows_of(10), 0)
    assert buffer.sample(3, 4, 0) is None  # twelve rows
    assert {rows[0]["step"] for rows in buffer.sample(30, 8, 0, replace=True)} == {0, 1, 2}
    buffer.clear()
    buffer.push(rows_of(2300), 0)  # the oldest is the 801st, in the middle of an episode
    for rows in buffer.sample(7, 200, 0, replace=True):
        assert steps_of(rows) == list(range(rows[0]["step"], rows[0]["step"] + 200))
        assert rows[0]["step"] // 500 == rows[-1]["step"] // 500
    assert {steps_of(rows)[0] for rows in buffer.sample(20, 500, 0, replace=True)} == {1000, 1500}
    assert buffer.sample(1, 501, 0) is None


# Advanced.


def test_advanced_rows_say_who_they_are(objects):
    buffer = AdvancedReplayBuffer({"replay_buffer_size": 4, "objects": objects}, instance_name="demo")
    pushed = rows_of(6, collect_iter=3, priority=None)
    buffer.push(pushed, 6)
    rows = buffer.sample(4, cur_learner_iter=10)
    for row in rows:
        assert row["replay_unique_id"] == f"demo_{row['step']}"
        assert row["replay_buffer_idx"] == row["step"] % 4
        assert (row["IS"], row["priority"], row["use"], row["staleness"]) == (1.0, 1.0, 1, 7)
    assert set(pushed[0]) == {"obs", "step", "collect_iter", "priority"}  # the caller's rows are as they were
    buffer.push(rows, 7)  # what a sample added is not part of a row
    assert buffer.sample(1, 11)[0]["replay_unique_id"] in [f"demo_{i}" for i in range(6, 10)]


def test_advanced_update(objects):
    buffer = filled(AdvancedReplayBuffer, 64, 64, objects=objects)
    rows = {row["step"]: row for row in buffer.sample(64, 0)}
    chosen = [rows[step] for step in (1, 4, 8, 30, 63)]
    buffer.push(rows_of(8), 0)  # of these the first two are gone
    buffer.update(ids_of(chosen, [64.0, 60.0, 50.0, 34.0, 1.0]))
    found = {row["replay_buffer_idx"]: row["priority"] for _ in range(30) for row in buffer.sample(64, 0)}
    assert [found[place] for place in (1, 4, 8, 30, 63)] == [1.0, 1.0, 50.0, 34.0, 1.0]
    buffer.push({"obs": np.zeros(4, np.int64), "step": 0}, 0)
    buffer.push([{**one, "priority": priority} for one, priority in zip(rows_of(2), (2.0, None))], 0)
    assert buffer.replay.info([72, 73, 74])[0].asnumpy().tolist() == [50.0, 2.0, 50.0]  # the largest so far
    buffer.update({"replay_unique_id": [], "replay_buffer_idx": []})
    wrong = {"replay_unique_id": ["other_70", "buffer_70", "x"], "replay_buffer_idx": [6, 7, 0], "priority": [9.0] * 3}
    buffer.update(wrong)
    assert buffer.replay.info([70])[0].asnumpy() == 1.0
    with pytest.raises(ValueError, match="a priority must be finite and at least 0"):
        buffer.update(ids_of(chosen[2:], [1.0, -1.0, 1.0]))


def test_advanced_max_use(objects):
    buffer = filled(AdvancedReplayBuffer, 64, 64, max_use=2, objects=objects)
    uses = np.zeros(64, int)
    while (rows := buffer.sample(8, 0)) is not None:
        assert all(row["IS"] == 1.0 for row in rows)
        np.add.at(uses, [row["replay_buffer_idx"] for row in rows], 1)
        assert (uses >= 2).sum() == 64 - buffer.count()
    assert buffer.count() < 8


def test_advanced_max_staleness():
    buffer = AdvancedReplayBuffer({"replay_buffer_size": 64, "max_staleness": 5})
    buffer.push(rows_of(8, collect_iter=0) + rows_of(4, collect_iter=3), 0)
    assert {row["staleness"] for row in buffer.sample(12, 4)} == {4, 1}
    assert [buffer.sample(5, 5), buffer.count()] == [None, 4]  # as old as the limit is too old
    assert {row["staleness"] for row in buffer.sample(4, 7)} == {4}


def test_advanced_rows_without_an_iteration():
    buffer = filled(AdvancedReplayBuffer, 64, 3, max_staleness=1000)
    assert [row["staleness"] for row in buffer.sample(3, 500)] == [-1] * 3
    buffer = AdvancedReplayBuffer({"replay_buffer_size": 64})
    buffer.push({"step": [1, 2], "collect_iter": [4, 6]}, 0)
    assert buffer.sample(1, 9)[0]["staleness"] == 5


def test_advanced_beta():
    buffer = AdvancedReplayBuffer({"replay_buffer_size": 4, "beta": 0.5, "anneal_step": 4})
    assert (buffer.alpha, buffer.beta) == (0.6, 0.5)
    buffer.push(rows_of(4), 0)
    buffer.sample(2, 0)
    assert buffer.beta == pytest.approx(0.625)
    buffer.beta = 0.25
    assert buffer.beta == buffer.replay.beta == 0.25
    buffer.beta = 1.0
    assert buffer.beta == buffer.replay.beta == 1.0
    with pytest.raises(ValueError, match=r"'beta' must be in \[0, 1\], but got 2"):
        buffer.beta = 2
    with pytest.raises(ValueError, match=r"'alpha' must be in \[0, 1\]"):
        AdvancedReplayBuffer({"alpha": 3.0}).push(rows_of(1), 0)


def test_rows_that_come_again_are_copies():
    buffer = filled(AdvancedReplayBuffer, 4, 4, objects=True)
    first = buffer.sample(1, 0)[0]
    buffer.update(ids_of([first], [1e6]))
    rows = buffer.sample(4, 0)
    assert len({id(row) for row in rows}) == 4
    assert len({row["step"] for row in rows}) < 4


def test_throughput_is_controlled(monkeypatch, caplog):
    clock = Clock(monkeypatch)
    limits = {"push_sample_rate_limit": {"max": 2, "min": 0.5}, "window_seconds": 5, "sample_min_limit_ratio": 1.5}
    buffer = AdvancedReplayBuffer({"replay_buffer_size": 1000, "thruput_controller": limits})
    with caplog.at_level(logging.INFO, "mindspore_replay.di_engine"):
        buffer.push(rows_of(30), 0)
        assert all(buffer.sample(19, 0) for _ in range(3))
        assert buffer.sample(19, 0) is None  # 30 rows are too few for 76 sampled
        assert buffer.sample(21, 0) is None  # 30 stored are fewer than 1.5 times 21
        for _ in range(3):
            buffer.push(rows_of(30), 0)
    assert buffer.count() == 90  # 120 rows are too many for 57 sampled
    assert "buffer: refused a sample of 19 rows of 30" in caplog.text
    assert "buffer: refused 30 rows" in caplog.text
    clock.now = 60.0
    buffer.push(rows_of(1), 0)
    assert buffer.count() == 91


def test_counts_of_the_throughput_decay(monkeypatch):
    clock = Clock(monkeypatch)
    limits = {"push_sample_rate_limit": {"min": 1.0, "max": 2.0}, "window_seconds": 10}
    controller = monitors.Monitor({"thruput_controller": {**limits, "sample_min_limit_ratio": 1}}, None, "", "")
    controller.add(None, pushed=100, sampled=50)
    assert [
        controller.can_push(1),
        controller.can_push(0),
        controller.can_sample(50, True, 0),
        controller.can_sample(51, True, 0),
    ] == [False, True, True, False]
    clock.now = 10.0  # a hundredth is left
    assert [controller.can_push(1), controller.can_sample(1, True, 0)] == [False, False]
    clock.now = 40.0
    assert controller.can_push(1000)


# What is logged.


def test_attributes_of_the_last_samples_are_logged(caplog):
    scalars = Scalars()
    monitor = {"sampled_data_attr": {"average_range": 2, "print_freq": 2}}
    buffer = AdvancedReplayBuffer({"replay_buffer_size": 8, "monitor": monitor}, scalars, instance_name="agent")
    buffer.push(rows_of(4, collect_iter=0), 40)
    with caplog.at_level(logging.INFO, "mindspore_replay.di_engine"):
        for learner_iter in (1, 3, 4):
            buffer.sample(4, learner_iter)
    steps = {(tag, step): value for tag, value, step in scalars.added}
    names = ["use_avg", "use_max", "priority_avg", "priority_max", "priority_min", "staleness_avg", "staleness_max"]
    names.append("beta")
    assert {tag for tag, _ in steps} == {f"agent_{kind}/{name}" for kind in ("iter", "step") for name in names}
    assert (steps["agent_iter/staleness_avg", 1], steps["agent_iter/staleness_avg", 4]) == (1.0, 3.5)
    assert steps["agent_iter/staleness_max", 4] == 4
    assert steps["agent_step/use_avg", 40] == steps["agent_iter/use_avg", 4] == 2.5
    assert caplog.text.count("agent: use_avg") == 2
    buffer.close()
    assert scalars.flushed


def test_throughput_is_logged_by_seconds(monkeypatch):
    clock, scalars = Clock(monkeypatch), Scalars()
    buffer = NaiveReplayBuffer({"replay_buffer_size": 8, "periodic_thruput_seconds": 60}, scalars)
    buffer.push(rows_of(10), 0)
    buffer.sample(3, 0)
    assert scalars.added == []
    clock.now = 61.0
    buffer.sample(2, 0)
    names = {"pushed_in": 10, "sampled_out": 5, "removed": 2, "current_have": 8}
    assert scalars.added == [(f"buffer_sec/{name}", value, 0) for name, value in names.items()]
    clock.now = 130.0
    buffer.push(rows_of(1), 0)
    assert scalars.added[4:] == [
        ("buffer_sec/pushed_in", 1, 1),
        ("buffer_sec/sampled_out", 0, 1),
        ("buffer_sec/removed", 1, 1),
        ("buffer_sec/current_have", 8, 1),
    ]


def test_a_sink_of_a_monitor_takes_the_numbers(tmp_path):
    sink = JSONLinesSink(tmp_path / "log.jsonl")
    buffer = AdvancedReplayBuffer({"replay_buffer_size": 8}, sink)
    buffer.push(rows_of(4), 40)
    buffer.sample(4, 3)
    sink.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 40]
    assert lines[0]["buffer_iter/use_avg"] == lines[1]["buffer_step/use_avg"] == 1.0


def test_a_buffer_without_a_listener_logs_text_alone_and_makes_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    buffer = filled(AdvancedReplayBuffer, 8, 4)
    buffer.sample(2, 0)
    buffer.close()
    assert list(tmp_path.iterdir()) == []


# The others.


def test_deque_wrapper(tmp_path):
    scalars = Scalars()
    cfg = {"replay_buffer_size": 8, "priority": True, "priority_IS_weight": True, "max_use": 50}
    buffer = create_buffer({"type": "deque", **cfg}, tb_logger=scalars, exp_name="exp")
    assert type(buffer) is DequeBufferWrapper
    assert buffer.sample(4) is None
    buffer.push([{"step": step, "priority": 1.0 + step} for step in range(4)], cur_collector_envstep=4)
    rows = buffer.sample(4, 0)
    assert all({"step", "IS", "priority_IS"} == set(row) for row in rows)
    buffer.update({"priority": [5000.0] * 4})
    buffer.sample(4, 100)
    assert ("buffer_iter/priority_max", 1000.0, 100) in scalars.added
    assert {tag for tag, _, _ in scalars.added} == {
        f"buffer_iter/{name}" for name in ("use_count_avg", "priority_avg", "priority_max", "buffer_data_count")
    }
    assert buffer.count() == 4
    buffer.save_data(tmp_path / "rows.pkl")
    before = buffer.sample(4, 0)
    buffer.load_data(tmp_path / "rows.pkl")
    assert (buffer.count(), buffer.sample(4, 0)) == (4, before)
    assert DequeBufferWrapper.default_config().IS_weight_anneal_train_iter == 100000


def test_classes_by_name():
    names = {
        "naive": NaiveReplayBuffer,
        "advanced": AdvancedReplayBuffer,
        "priority": AdvancedReplayBuffer,
        "deque": DequeBufferWrapper,
        "elastic": ElasticReplayBuffer,
        NaiveReplayBuffer: NaiveReplayBuffer,
    }
    for name, cls in names.items():
        assert get_buffer_cls({"type": name, "import_names": ["os.path"]}) is cls
    with pytest.raises(ValueError, match=r"'type' must be a class or one of .*'deque'.*but got 'other'"):
        create_buffer({"type": "other"})


def test_threads(objects):
    buffer = filled(AdvancedReplayBuffer, 32, 32, objects=objects)

    def push():
        for _ in range(100):
            buffer.push(rows_of(5), 0)

    def learn():
        for _ in range(100):
            rows = buffer.sample(8, 0)
            assert all((row["obs"] == row["step"]).all() for row in rows)
            buffer.update(ids_of(rows, [1.0 + row["step"] for row in rows]))

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work) for work in (push, learn, learn)]:
            done.result()
    assert buffer.count() == 32
