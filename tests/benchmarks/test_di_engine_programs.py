"""The benchmark with DI-engine's own programs: what it reads of their output, and its command line."""

import subprocess
import sys
from pathlib import Path

from places import ROOT

SCRIPT = ROOT / "benchmarks" / "di_engine.py"
sys.path.insert(0, str(SCRIPT.parent))

import di_engine  # noqa: E402


def test_a_row_of_the_table(tmp_path: Path):
    lines = [(0, "0)\t", 9.375), (30, "8064)   ", 70.2)]
    text = "\\n".join(f"Evaluation: Train Iter({i}) Env Step({steps}Episode Return({mean})" for i, steps, mean in lines)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '{text}'\n")
    python.chmod(0o755)
    row = di_engine.run(python, "r2d2", "DI-engine", 3, 60, tmp_path)
    assert row.startswith("| r2d2 | DI-engine | 3 | reached | 70.2 | 30 | 8064 | ")
    python.write_text("#!/bin/sh\nexit 5\n")
    assert "| exit code 5 | 0.0 |  |  |" in di_engine.run(python, "ppg", "DI-engine", 0, 60, tmp_path)


def test_an_unknown_pipeline_is_refused(tmp_path: Path):
    command = [sys.executable, str(SCRIPT), "dqn", "--environment", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pipelines are dqn_deque, dqn_naive" in done.stderr
