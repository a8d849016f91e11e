"""The examples run as a user runs them, in short."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(script: str, *arguments: object) -> str:
    """What a script prints; its error output on failure."""
    command = [sys.executable, str(ROOT / "examples" / script), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def history(folder: Path) -> dict:
    return json.loads((folder / "history.json").read_text())


def test_dqn_trains_and_resumes(tmp_path: Path):
    output = run("dqn.py", "--steps", 1600, "--out", tmp_path)
    assert "mean return of 100 greedy episodes" in output
    first = history(tmp_path)
    assert len(first["episodes"]) >= 10
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    output = run("dqn.py", "--steps", 2400, "--out", tmp_path, "--resume")
    assert output.startswith("2400 steps")
    second = history(tmp_path)
    assert second["episodes"][: len(first["episodes"])] == first["episodes"]
    assert 1600 < second["episodes"][-1][0] <= 2400


@pytest.mark.parametrize(
    "options",
    [("--mode", "pynative"), ("--backend", "composite"), ("--num-envs", "1")],
    ids=["pynative", "composite", "one environment"],
)
def test_dqn_options(tmp_path: Path, options: tuple[str, ...]):
    output = run("dqn.py", "--steps", 1040, "--out", tmp_path, *options)
    assert output.startswith("1040 steps")


def test_msrl_style_trainer():
    output = run("msrl_style_dqn.py", "--episodes", 3)
    assert "mean return of the first 20 episodes" in output
