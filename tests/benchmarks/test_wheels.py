"""The benchmark of two wheels: each runs in isolation, in turns; and the selection of figures."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import json, sys, mindspore_replay
with open({log!r}, "a") as log:
    print(mindspore_replay.SPEED, file=log)
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open(options["--json"], "w") as file:
    json.dump({{options["--only"]: [mindspore_replay.SPEED] * int(options["--rounds"]), "nothing": [0]}}, file)
"""


def wheel(folder: Path, speed: float) -> Path:
    """Make a wheel of a package that contains only its speed."""
    folder.mkdir()
    path = folder / "mindspore_replay-0.1.0-py3-none-any.whl"
    about = "mindspore_replay-0.1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("mindspore_replay/__init__.py", f"SPEED = {speed}\n")
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: mindspore_replay\nVersion: 0.1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    return path


def test_wheels_take_turns(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wheels, log = script("wheels"), tmp_path / "log"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(log=str(log)))
    monkeypatch.setattr(wheels, "HERE", tmp_path)
    monkeypatch.setattr(wheels, "SCRIPTS", ("script.py",))
    speeds = {"old": 8.0, "new": 2.0}
    folders = {
        side: wheels.unpacked(wheel(tmp_path / f"{side} wheel", speed), tmp_path / side)
        for side, speed in speeds.items()
    }
    figures = wheels.measured(folders, rounds=3, only="insert", inner=2)
    assert log.read_text().split() == ["8.0", "2.0", "2.0", "8.0", "8.0", "2.0"]
    assert figures["old"] == {"insert": [8.0] * 3, "nothing": [0] * 3}
    lines = [line.split() for line in wheels.table(figures["old"], figures["new"]).splitlines()]
    assert lines[1:] == [["insert", "8.00", "2.00", "0.25"], ["nothing", "0.00", "0.00", "nan"]]


def test_a_script_that_fails_says_why(script: Any, tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"ended with 1:(?s:.*)no such thing"):
        script("wheels").python(tmp_path, "-c", "raise SystemExit('no such thing')")


def test_only_what_a_figure_needs_is_made(script: Any):
    measuring = script("measuring")
    cases = {name: lambda seconds=seconds: lambda: seconds for name, seconds in (("with", 5e-6), ("without", 2e-6))}
    cases["other"] = lambda: pytest.fail("nobody asked for it")
    figures = {"mine": measuring.less("with", "without"), "yours": measuring.micro("other")}
    found = measuring.measure_figures(cases, figures, "^mine", rounds=2)
    assert found == {"mine": pytest.approx([3.0, 3.0])}


@pytest.mark.parametrize(
    ("name", "cases", "figures"),
    [
        ("operators", "uniform_cases", "uniform_figures"),
        ("operators", "prioritized_cases", "prioritized_figures"),
        ("windows", "cases", "figures"),
    ],
)
def test_every_figure_has_its_cases(script: Any, name: str, cases: str, figures: str):
    module, asked = script(name), script("measuring")._Asked()
    for figure in getattr(module, figures)().values():
        figure(asked)
    assert set(asked) <= set(getattr(module, cases)())


def test_every_limit_is_of_a_figure(script: Any):
    operators, windows = script("operators"), script("windows")
    assert set(operators.LIMITS) <= {**operators.uniform_figures(), **operators.prioritized_figures()}.keys()
    assert set(windows.LIMITS) <= windows.figures().keys()
