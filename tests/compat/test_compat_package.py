"""MindSpore RL 0.7 itself, if installed: its source unchanged, its DQN runs and its buffer is whole."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from places import ROOT
from programs import run_program

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


PAGE = (ROOT / "docs" / "appendix" / "algorithms.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mindspore_rl", "astor", "gym")),
    reason="needs MindSpore RL: pip install mindspore_rl==0.7.0",
)


@pytest.mark.slow
def test_its_dqn_runs(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_program(tmp_path / "program.py")
    assert done.returncode == 0, done.stderr
    assert "Episode 3: loss is" in done.stdout


def test_the_page_has_a_row_for_each_algorithm():
    (folder,) = find_spec("mindspore_rl").submodule_search_locations
    algorithms = {path.parent.name for path in Path(folder, "algorithm").glob("*/__init__.py")}
    table = PAGE.split("| algorithm |")[1].split("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    names = [name for row in rows for name in row]
    assert sorted(names) == sorted(algorithms)
    assert set(re.findall(r"\b(\d+) algorithms\b", PAGE)) == {str(len(algorithms))}


@pytest.mark.slow
def test_the_program_of_the_page_starts_an_algorithm():
    command = [sys.executable, str(ROOT / "benchmarks" / "algorithms.py"), "double_dqn", "--episodes", "1"]
    assert " ".join(["python", *command[1:2]]).replace(f"{ROOT}/", "") in PAGE
    done = subprocess.run([*command, "--seconds", "250"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.match(r"\| `double_dqn` \| runs: .*1 episodes in \d+ s", done.stdout), done.stdout
