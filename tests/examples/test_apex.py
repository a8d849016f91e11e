"""The example of Ape-X, on the cluster of the other tests of sharded buffers."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import ROOT
from programs import run_program
from safetensors import safe_open

from mindspore_replay import load_config


def run(*arguments: object) -> str:
    """Return the output of the example; its error output on failure."""
    result = run_program(ROOT / "examples" / "apex_dqn.py", *arguments)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def history(folder: Path) -> list[list[float]]:
    """Return the episodes of a run."""
    return json.loads((folder / "history.json").read_text())["episodes"]


def test_apex_learns_from_several_processes_and_resumes(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ADDRESS", cluster.get_runtime_context().gcs_address)
    limits = {"samples_per_insert": 32, "min_size": 300, "error_buffer": 1000, "timeout": 60}
    config = load_config(ROOT / "configs" / "apex_dqn_cartpole.yaml")
    config["replay_buffer"]["limiter"] = limits
    config["evaluation"] |= {"episodes": 10, "final_episodes": 10, "solved_at": -2000}
    config["learner"]["hidden"] = [16]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    options = "--config", tmp_path / "config.yaml", "--actors", 2, "--out", tmp_path
    output = run("--steps", 500, *options)
    assert "mean return of 10 greedy episodes" in output
    assert len(history(tmp_path)) >= 5
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    with safe_open(next(tmp_path.glob("save_*/shard_0.safetensors")), "numpy") as file:
        inserted, sampled = json.loads(file.metadata()["note"])["counts"][:2]
    assert 500 <= inserted < 600
    assert abs((inserted - 300) * 32 - sampled) < 1200
    output = run("--steps", 600, *options, "--resume")
    assert 600 <= int(output.split()[0]) < 700
    assert len(history(tmp_path)) > 5
