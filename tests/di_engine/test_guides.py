"""The programs of DI-engine's guides to buffers, and to several buffers, with the import changed.

What is not a buffer there, such as the task, its middleware, the collector and the learner, is stood in for by the part
of each that uses one.
"""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mindspore_replay import MixedReplay
from mindspore_replay.di_engine import (
    AdvancedReplayBuffer,
    Buffer,
    DequeBuffer,
    PriorityExperienceReplay,
    clone_object,
    create_buffer,
    group_sample,
    use_time_check,
)

CFG = SimpleNamespace(
    policy=SimpleNamespace(learn=SimpleNamespace(batch_size=4), collect=SimpleNamespace(unroll_len=1))
)


class Task:
    """Runs its parts in turn on one context."""

    def __init__(self):
        self.parts = []

    def use(self, part):
        self.parts.append(part)

    def run(self, steps, **context):
        for step in range(steps):
            ctx = SimpleNamespace(step=step, **context)
            for part in self.parts:
                part(ctx)
        return ctx


def data_pusher(cfg, buffer_, group_by_env=False):
    def push(ctx):
        for row in ctx.rows:
            meta = {"env": row["env"]} if group_by_env else None
            buffer_.push(row, meta) if group_by_env else buffer_.push(row)

    return push


def sqil_data_pusher(cfg, buffer_, expert):
    def push(ctx):
        for row in ctx.rows:
            buffer_.push({**row, "reward": 1.0 if expert else 0.0})

    return push


def OffPolicyLearner(cfg, learn_mode, buffer_):  # noqa: N802
    size, unroll_len = cfg.policy.learn.batch_size, cfg.policy.collect.unroll_len

    def learn(ctx):
        if isinstance(buffer_, Buffer) and unroll_len > 1:
            groups = buffer_.sample(size, groupby="env", unroll_len=unroll_len, replace=True)
            ctx.train_data = [[row.data for row in group] for group in groups]
        elif isinstance(buffer_, Buffer):
            ctx.train_data = [row.data for row in buffer_.sample(size)]
        else:
            rows = [row for one, share in buffer_ for row in one.sample(int(size * share))]
            ctx.train_data = [row.data for row in rows]

    return learn


def rows_of(count):
    return [{"obs": np.full(4, step, np.float32), "env": step % 2} for step in range(count)]


def test_basics():
    buffer = DequeBuffer(size=10)
    for _ in range(10):
        buffer.push("a", meta={})
    buffered_data = buffer.sample(3, replace=False)
    data = [d.data for d in buffered_data]
    assert data == ["a"] * 3


def test_online_training():
    buffer, task = DequeBuffer(size=10), Task()
    task.use(data_pusher(CFG, buffer))
    task.use(OffPolicyLearner(CFG, None, buffer))
    assert len(task.run(3, rows=rows_of(4)).train_data) == 4
    assert buffer.count() == 10


def test_expert_data():
    task = Task()
    buffer = DequeBuffer(size=10)
    expert_buffer = DequeBuffer(size=10)
    task.use(sqil_data_pusher(CFG, buffer_=buffer, expert=False))
    task.use(sqil_data_pusher(CFG, buffer_=expert_buffer, expert=True))
    task.use(OffPolicyLearner(CFG, None, [(buffer, 0.5), (expert_buffer, 0.5)]))
    assert [row["reward"] for row in task.run(3, rows=rows_of(4)).train_data] == [0.0, 0.0, 1.0, 1.0]
    mixed = MixedReplay([(buffer.replay, 0.5), (expert_buffer.replay, 0.5)], 4)  # the same in a graph
    assert sorted(mixed.sample(as_dict=True)["reward"].asnumpy()) == [0.0, 0.0, 1.0, 1.0]


def test_priority_sampling():
    buffer = DequeBuffer(size=10)
    buffer.use(PriorityExperienceReplay(buffer, IS_weight=True))
    for _ in range(10):
        buffer.push("a", meta={"priority": 2.0})
    buffered_data = buffer.sample(3)
    assert [d.meta["priority_IS"] for d in buffered_data] == [1.0] * 3


def test_sample_cloning():
    buffer = DequeBuffer(size=10)
    buffer.use(clone_object())
    buffer.push(["a"])
    buffer.sample(1)[0].data.append("b")
    assert buffer.sample(1)[0].data == ["a"]


def test_group_sampling():
    buffer = DequeBuffer(size=10)
    buffer.push("a", {"episode": 1})
    buffer.push("b", {"episode": 2})
    buffer.push("c", {"episode": 2})
    grouped_data = buffer.sample(2, groupby="episode")
    assert sorted([d.data for d in group] for group in grouped_data) == [["a"], ["b", "c"]]


def test_group_sampling_by_environment():
    cfg = SimpleNamespace(policy=SimpleNamespace(learn=CFG.policy.learn, collect=SimpleNamespace(unroll_len=3)))
    buffer, task = DequeBuffer(size=10), Task()
    task.use(data_pusher(cfg, buffer, group_by_env=True))
    task.use(OffPolicyLearner(cfg, None, buffer))
    for sequence in task.run(2, rows=rows_of(8)).train_data:
        assert len(sequence) == 3
        assert len({row["env"] for row in sequence}) == 1


def test_group_sample():
    buffer = DequeBuffer(size=10)
    buffer.use(group_sample(size_in_group=3, ordered_in_group=True))
    for step in range(10):
        buffer.push(step, {"episode": step % 2})
    groups = [[d.data for d in group] for group in buffer.sample(2, groupby="episode")]
    assert all(group == list(range(group[0], group[0] + 6, 2)) for group in groups)


def test_deletion_of_rows_that_were_used_often():
    buffer = DequeBuffer(size=10)
    buffer.use(use_time_check(buffer, max_use=2))
    for step in range(4):
        buffer.push(step)
    assert [d.meta["use_count"] for d in buffer.sample(4)] == [1] * 4
    assert [d.meta["use_count"] for d in buffer.sample(4)] == [2] * 4
    assert buffer.count() == 0


MAIN = {
    "exp_name": "cartpole_ppg",
    "env": {"collector_env_num": 8, "evaluator_env_num": 5, "n_evaluator_episode": 5, "stop_value": 195},
    "policy": {
        "cuda": False,
        "model": {"obs_shape": 4, "action_shape": 2},
        "learn": {"update_per_collect": 5, "batch_size": 64, "learning_rate": 0.001},
        "collect": {"n_sample": 128, "unroll_len": 1, "discount_factor": 0.9, "gae_lambda": 0.95},
        "eval": {"evaluator": {"eval_freq": 40}},
        "other": {
            "replay_buffer": {
                "multi_buffer": True,
                "policy": {"replay_buffer_size": 100, "max_use": 10},
                "value": {"replay_buffer_size": 1000, "max_use": 100},
            }
        },
    },
}
CREATE = {
    "env": {"type": "cartpole", "import_names": ["dizoo.classic_control.cartpole.envs.cartpole_env"]},
    "env_manager": {"type": "base"},
    "policy": {"type": "ppg"},
    "replay_buffer": {"policy": {"type": "priority"}, "value": {"type": "priority"}},
}


def compiled(main, create):
    """Return the configuration of the buffers as DI-engine merges it: defaults, then those two, and a name each."""
    merged = {"multi_buffer": True}
    for name in ("policy", "value"):
        user = main["policy"]["other"]["replay_buffer"][name]
        default = AdvancedReplayBuffer.default_config()
        merged[name] = type(default)(default, create["replay_buffer"][name], user, {"name": name})
    return merged


@pytest.mark.parametrize("objects", [False, True])
def test_two_buffers_of_ppg(objects):
    cfg = compiled(MAIN, CREATE)
    for name in ("policy", "value"):
        cfg[name]["objects"] = objects
    assert cfg["policy"].monitor.periodic_thruput.seconds == 60
    policy_buffer = AdvancedReplayBuffer(cfg["policy"], None, "policy")
    value_buffer = AdvancedReplayBuffer(cfg["value"], None, "value")
    batch_size, envstep, trained = {"policy": 64, "value": 64}, 0, 0
    for train_iter in range(0, 15, 5):
        new_data = [{"obs": np.full(4, step, np.float32), "collect_iter": train_iter} for step in range(128)]
        envstep += len(new_data)
        policy_buffer.push(new_data, cur_collector_envstep=envstep)
        value_buffer.push(new_data, cur_collector_envstep=envstep)
        assert (policy_buffer.count(), value_buffer.count()) == (100, 128)
        for i in range(MAIN["policy"]["learn"]["update_per_collect"]):
            policy_data = policy_buffer.sample(batch_size["policy"], train_iter + i)
            value_data = value_buffer.sample(batch_size["value"], train_iter + i)
            if policy_data is not None and value_data is not None:
                trained += 1
                assert {row["staleness"] for row in policy_data + value_data} == {i}
        policy_buffer.clear()
        value_buffer.clear()
    assert trained == 15
    made = create_buffer(cfg)
    assert [(name, one.replay_buffer_size, one.cfg.max_use) for name, one in made.items()] == [
        ("policy", 100, 10),
        ("value", 1000, 100),
    ]


def test_no_mindspore_until_a_graph_may_draw():
    program = """
import sys
from mindspore_replay.di_engine import AdvancedReplayBuffer

buffer = AdvancedReplayBuffer({"replay_buffer_size": 8, "max_use": 5})
buffer.push([{"step": step} for step in range(8)], 8)
rows = buffer.sample(4, 0)
buffer.update({"priority": [2.0] * 4, **{key: [row[key] for row in rows] for key in rows[0]}})
assert "mindspore" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
