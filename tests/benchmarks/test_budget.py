"""The check of the instruction counts, on made-up figures: accepted and rejected ones."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

SCRIPT = ROOT / "benchmarks" / "budget.py"
KERNELS = {"replay_insert", "replay_sample"}
COUNTS = {"replay_insert: 1 row": 1000, "replay_insert: 64 rows": 2000, "replay_sample: 64 rows": 5000}
TOOLS = {
    "compiler": "GCC: (Debian) 12.2.0",
    "valgrind": "valgrind-3.19.0",
    "C library": "glibc 2.36",
    "processor": "x86",
}


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("budget", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("change", [-50, -49, 0, 49, 50])
def test_within_five_percent(script: ModuleType, change: int) -> None:
    counted = {**COUNTS, "replay_insert: 1 row": 1000 + change}
    assert script.faults(COUNTS, counted, KERNELS) == {}


def test_too_many(script: ModuleType) -> None:
    counted = {**COUNTS, "replay_insert: 1 row": 1051}
    assert script.faults(COUNTS, counted, KERNELS) == {"replay_insert: 1 row": "more than 5% above the budget"}


def test_too_few(script: ModuleType) -> None:
    counted = {**COUNTS, "replay_insert: 64 rows": 1899}
    wrong = script.faults(COUNTS, counted, KERNELS)
    assert wrong == {"replay_insert: 64 rows": "more than 5% below the budget: lower it with --update"}


def test_missing_and_unknown(script: ModuleType) -> None:
    counted = {name.replace("1 row", "one row"): number for name, number in COUNTS.items()}
    assert script.faults(COUNTS, counted, KERNELS) == {
        "replay_insert: 1 row": "no such workload: remove it from the budget with --update",
        "replay_insert: one row": "not in the budget: add it with --update",
    }


def test_a_kernel_without_a_workload(script: ModuleType) -> None:
    wrong = script.faults(COUNTS, COUNTS, KERNELS | {"replay_samp"})  # part of the name of another
    assert wrong == {"replay_samp": "a kernel without a workload in tests/csrc/budget.cc"}


def test_the_profile_is_read(script: ModuleType) -> None:
    """Callgrind's file has a part for each workload, and one for the end."""
    parts = [("Client Request: replay_insert: 1 row", 1000), ("Client Request: replay_sample: by a, b", 77)]
    text = "# callgrind format\nversion: 1\n"
    for number, (trigger, total) in enumerate([*parts, ("Program termination", 0)]):
        text += f"part: {number}\n\ndesc: Trigger: {trigger}\n\nevents: Ir\nsummary: 0\n\n"
        text += f"fn=(1) f\n1 {total}\n\ntotals: {total}\n"
    assert script.parse(text) == {"replay_insert: 1 row": 1000, "replay_sample: by a, b": 77}


@pytest.fixture
def run(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return the exit code of the script with these figures in place of a build and a count."""
    monkeypatch.setattr(script, "BUDGET", tmp_path / "budget.json")
    script.BUDGET.write_text(json.dumps({"tools": TOOLS, "instructions": COUNTS}), encoding="utf-8")
    monkeypatch.setattr(script, "build", lambda folder, built: folder / "_kernels.so")
    monkeypatch.setattr(script, "kernels", lambda library: KERNELS)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")

    def run_with(counted: dict[str, int], *options: str, **tools: str) -> int:
        monkeypatch.setattr(script, "count", lambda folder, library: counted)
        monkeypatch.setattr(script, "tools", lambda library: {**TOOLS, **tools})
        return int(script.main(options))

    return run_with


def test_the_exit_code_and_the_table(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COUNTS) == 0
    assert "3 workloads, faults: 0" in capsys.readouterr().out
    assert run({**COUNTS, "replay_sample: 64 rows": 6000}) == 1
    table = capsys.readouterr().out
    assert "3 workloads, faults: 1" in table
    row = next(line for line in table.splitlines() if line.startswith("replay_sample: 64 rows"))
    assert row.split()[3:7] == ["5000", "6000", "+20.0%", "more"]


def test_another_compiler_is_named(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COUNTS, compiler="GCC: (Debian) 13.1.0") == 0
    named = "compiler: the budget is that of GCC: (Debian) 12.2.0, this is GCC: (Debian) 13.1.0; compared all the same"
    assert named in capsys.readouterr().out


def test_update(script: ModuleType, run: Callable[..., int]) -> None:
    counted = {"replay_insert: 1 row": 500, "replay_sample: new": 7}
    assert run(counted) == 1
    assert run(counted, "--update", valgrind="valgrind-3.20.0") == 0
    made = json.loads(script.BUDGET.read_text(encoding="utf-8"))
    assert made == {"tools": {**TOOLS, "valgrind": "valgrind-3.20.0"}, "instructions": counted}
    assert run(counted) == 0


def test_without_valgrind(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="valgrind is not installed: install the package valgrind"):
        script.main([])


def test_the_budget_is_whole(script: ModuleType) -> None:
    made = json.loads(script.BUDGET.read_text(encoding="utf-8"))
    assert set(made["tools"]) == set(TOOLS)
    assert min(made["instructions"].values()) > 0
    source = (SCRIPT.parents[1] / "tests" / "csrc" / "budget.cc").read_text(encoding="utf-8")
    for kernel in {name.partition(":")[0] for name in made["instructions"]}:
        assert f'"{kernel}"' in source or f'"{kernel.removeprefix("replay_")}"' in source
