"""The programs of DI-engine's guides to several buffers, with the import changed, and what is not a buffer left out."""

import subprocess
import sys

import numpy as np
import pytest

from mindspore_replay import MixedReplay
from mindspore_replay.di_engine import AdvancedReplayBuffer, DequeBuffer, create_buffer


def test_expert_data():
    """Of each buffer a share, row by row and in a graph."""
    buffer, expert_buffer = DequeBuffer(size=10), DequeBuffer(size=10)
    for one, reward in (buffer, 0.0), (expert_buffer, 1.0):
        for step in range(12):
            one.push({"obs": np.full(4, step, np.float32), "env": step % 2, "reward": reward})
    rows = [row for one in (buffer, expert_buffer) for row in one.sample(2)]
    assert [row.data["reward"] for row in rows] == [0.0, 0.0, 1.0, 1.0]
    mixed = MixedReplay([(buffer.replay, 0.5), (expert_buffer.replay, 0.5)], 4)
    assert sorted(mixed.sample(as_dict=True)["reward"].asnumpy()) == [0.0, 0.0, 1.0, 1.0]


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
