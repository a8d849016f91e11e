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


@pytest.mark.parametrize(("command", "word"), [("insert", "writing"), ("collect", "collecting")])
def test_one_process(tmp_path: Path, command: str, word: str):
    arguments = [sys.executable, SCRIPT, command, "--peers", "mindspore_replay", "--writers", "1", "--rounds", "2"]
    arguments += ["--seconds", "0.1", "--folder", tmp_path, "--json", tmp_path / "found.json"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "| mindspore_replay |" in ended.stdout
    figures = json.loads((tmp_path / "found.json").read_text())["results"]["mindspore_replay"]
    assert {name: len(values) for name, values in figures.items()} == {f"us a row, 1 {word}": 2, f"rows/s, 1 {word}": 2}
    one, together = (values[0] for values in figures.values())
    assert one * together == pytest.approx(1e6)


def test_every_program_is_there(script: Callable[[str], ModuleType]):
    processes = script("processes")
    for place in [*processes.INSERT.values(), *processes.COLLECT.values(), *processes.LARGER.values()]:
        assert (SCRIPT.parent / "comparison" / f"{place.module.replace('.', '/')}.py").exists()
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
