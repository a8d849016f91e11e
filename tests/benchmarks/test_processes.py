"""The benchmark of other processes: a short run with this project alone, and its table."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

pytestmark = pytest.mark.cpu_only("a program that runs on the CPU")

SCRIPT = ROOT / "benchmarks" / "processes.py"


def test_one_writer_inserts(tmp_path: Path):
    command = [sys.executable, SCRIPT, "insert", "--peers", "mindspore_replay", "--writers", "1", "--rounds", "2"]
    command += ["--seconds", "0.1", "--folder", tmp_path, "--json", tmp_path / "found.json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "| mindspore_replay |" in ended.stdout
    figures = json.loads((tmp_path / "found.json").read_text())["results"]["mindspore_replay"]
    assert {name: len(values) for name, values in figures.items()} == {"us a row, 1 writing": 2, "rows/s, 1 writing": 2}
    one, together = (values[0] for values in figures.values())
    assert one * together == pytest.approx(1e6)


def test_every_program_is_there(script: Callable[[str], ModuleType]):
    processes = script("processes")
    for place in [*processes.INSERT.values(), *processes.LARGER.values()]:
        assert (SCRIPT.parent / "comparison" / place.package / f"{place.module}.py").exists()
        assert not place.requirements or place.files()


def test_a_table_has_medians_and_names_who_is_missing(script: Callable[[str], ModuleType]):
    text = script("processes").table(
        {"a": {"us": [3.0, 1.25, 9.0], "rows/s": [1000.0, 2500.4]}, "b": {"us": [400.0]}, "c": "lost"}
    )
    assert text.splitlines() == [
        "| | us | rows/s |",
        "|---|---|---|",
        "| a | 3 | 1,750 |",
        "| b | 400 |  |",
        "",
        "c: lost",
    ]
