"""The example whose actors share the buffer's memory with the learner."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import ROOT
from programs import run_program

from mindspore_replay import load_config

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")


def command(folder: Path, steps: int) -> list[Any]:
    """Return the script and the options of a run with two actors and short evaluations."""
    config = load_config(ROOT / "configs" / "actors_cartpole.yaml")
    config["replay_buffer"]["limiter"] |= {"samples_per_insert": 32, "min_size": 300, "error_buffer": 1000}
    config["evaluation"] |= {"every": 400, "episodes": 10, "final_episodes": 10}
    config["learner"]["hidden"] = [16]
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    options = ["--actors", 2, "--steps", steps, "--config", folder / "config.yaml", "--out", folder]
    return [ROOT / "examples" / "actors.py", *map(str, options)]


def test_actors_fill_the_buffer(tmp_path: Path):
    done = run_program(*command(tmp_path, 500))
    assert done.returncode == 0, done.stderr[-4000:]
    assert "mean return of 10 greedy episodes" in done.stdout
    steps = int(done.stdout.split(" steps, ")[0].split()[-1])
    assert 500 <= steps < 600
    assert len(json.loads((tmp_path / "history.json").read_text())["episodes"]) >= 5
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("killed", ["actor", "interrupt"])
def test_the_end_of_a_process_ends_all(tmp_path: Path, killed: str):
    program = [sys.executable, *command(tmp_path, 1_000_000)]
    learner = subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (tmp_path / "best.ckpt").exists():  # it learns
        assert time.monotonic() < deadline
        assert learner.poll() is None
        time.sleep(0.1)
    actors = [child for child in children(learner.pid) if "actor.py" in Path(f"/proc/{child}/cmdline").read_text()]
    assert len(actors) == 2
    if killed == "actor":
        subprocess.run(["kill", "-9", str(actors[1])], check=True)
    else:
        learner.send_signal(signal.SIGINT)
    _, errors = learner.communicate(timeout=300)
    assert learner.returncode != 0
    if killed == "actor":
        assert "RuntimeError: actor 1 ended with exit code -9\n" in errors, errors[-2000:]
    assert "actor.py" not in errors, errors[-2000:]  # no traceback of an actor
    while any(Path(f"/proc/{child}").exists() for child in actors):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_returns_are_read_whole(script: Any, tmp_path: Path):
    whole_lines = script("actors").whole_lines
    with open(tmp_path / "returns", "w") as written, open(tmp_path / "returns") as read:
        for text, expected in (("12.0\n3", ["12.0"]), ("4.0", []), ("\n5.0\n", ["34.0", "5.0"]), ("", [])):
            written.write(text)
            written.flush()
            assert whole_lines(read) == expected
