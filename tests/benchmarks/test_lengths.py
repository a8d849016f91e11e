"""The benchmark of rows that differ in length: a short run without other libraries, and what it gives them."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

pytestmark = pytest.mark.cpu_only("a program that runs on the CPU")

SCRIPT = ROOT / "benchmarks" / "lengths.py"


def test_a_round(tmp_path: Path):
    arguments = [sys.executable, SCRIPT, "--peers", "memory", "list", "--rounds", "1", "--json", tmp_path / "found"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "| a list in the process |" in ended.stdout
    found = json.loads((tmp_path / "found").read_text())
    for peer in found["peers"].values():
        assert list(peer["figures"]) == [
            "bytes a byte",
            "rows/s put one by one",
            "rows/s put by 256",
            "rows/s drawn by 8",
        ]
        assert all(value > 0 for values in peer["figures"].values() for value in values)
    assert set(found["packed"]) == {"128", "512", "2048"}


def test_lengths_are_log_normal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    program = importlib.import_module("comparison.processes.lengths")
    drawn = program.lengths(20_000, np.random.default_rng(3))
    assert abs(np.median(drawn) - 500) < 20
    assert 1 <= drawn.min() < 50
    assert drawn.max() == 4096
    assert abs(np.log(drawn[drawn < 4096]).std() - 0.8) < 0.05
