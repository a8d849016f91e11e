"""MindSpore RL 0.7 itself, where it is installed: its source unchanged, its DQN runs and its buffer is whole."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = """
from mindspore_replay.compat import install

install()

import mindspore as ms
from mindspore_rl.algorithm.dqn import config
from mindspore_rl.algorithm.dqn.dqn_session import DQNSession
from mindspore_rl.algorithm.dqn.dqn_trainer import DQNTrainer

ms.set_seed(0)
ms.set_context(mode=ms.GRAPH_MODE)
config.trainer_params.update(ckpt_path=".", num_evaluate_episode=1)
session = DQNSession()
session.run(class_type=DQNTrainer, episode=4)
buffer = session.msrl.buffers
rows = int(buffer.count)
assert type(buffer).__module__ == "mindspore_rl.core.uniform_replay_buffer"
assert rows > 1000  # the first thousand come from random actions
states, actions, rewards, next_states = (column.asnumpy() for column in buffer.buffer)
assert states[:rows].any(1).all() and not states[rows:].any()
assert (rewards[:rows] != 0).all() and set(actions[:rows].ravel()) == {0, 1}
inside = (states[1:rows] == next_states[: rows - 1]).all(1)
assert 0.8 < inside.mean() < 1  # rows in order: only where an episode ends does another state follow
"""


@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mindspore_rl", "astor", "gym")),
    reason="needs MindSpore RL: pip install mindspore_rl==0.7.0",
)
def test_its_dqn_runs(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Episode 3: loss is" in done.stdout
