"""The check of the instruction counts, on made-up figures: accepted and rejected ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

KERNELS = {"replay_insert", "replay_sample"}
COUNTS = {"replay_insert: 1 row": 1000, "replay_insert: 64 rows": 2000, "replay_sample: 64 rows": 5000}
TOOLS = {
    "compiler": "GCC: (Debian) 12.2.0",
    "valgrind": "valgrind-3.19.0",
    "C library": "glibc 2.36",
    "processor": "x86",
}


@pytest.fixture
def budget(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("budget")


ONE, MANY = "replay_insert: 1 row", "replay_insert: 64 rows"
#: Counts that differ from the budget, more kernels, and the faults.
CASES: list[tuple[dict[str, int], set[str], dict[str, str]]] = [
    *(({ONE: 1000 + change}, set(), {}) for change in (-50, -49, 0, 49, 50)),
    ({ONE: 1051}, set(), {ONE: "more than 5% above the budget"}),
    ({MANY: 1899}, set(), {MANY: "more than 5% below the budget: lower it with --update"}),
    ({"replay_insert: one row": 1}, set(), {"replay_insert: one row": "not in the budget: add it with --update"}),
    # part of the name of another
    ({}, {"replay_samp"}, {"replay_samp": "a kernel without a workload in tests/csrc/budget.cc"}),
]


@pytest.mark.parametrize(("changed", "more", "faults"), CASES)
def test_faults(budget: ModuleType, changed: dict[str, int], more: set[str], faults: dict[str, str]) -> None:
    assert budget.faults(COUNTS, COUNTS | changed, KERNELS | more) == faults


def test_a_workload_that_is_gone(budget: ModuleType) -> None:
    counted = {name: COUNTS[name] for name in COUNTS if name != ONE}
    assert budget.faults(COUNTS, counted, KERNELS) == {ONE: "no such workload: remove it from the budget with --update"}


def test_the_profile_is_read(budget: ModuleType) -> None:
    """Callgrind's file has a part for each workload, and one for the end."""
    parts = [("Client Request: replay_insert: 1 row", 1000), ("Client Request: replay_sample: by a, b", 77)]
    text = "# callgrind format\nversion: 1\n"
    for number, (trigger, total) in enumerate([*parts, ("Program termination", 0)]):
        text += f"part: {number}\n\ndesc: Trigger: {trigger}\n\nevents: Ir\nsummary: 0\n\n"
        text += f"fn=(1) f\n1 {total}\n\ntotals: {total}\n"
    assert budget.parse(text) == {"replay_insert: 1 row": 1000, "replay_sample: by a, b": 77}


@pytest.fixture
def run(budget: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return the exit code of the script with these figures in place of a build and a count."""
    monkeypatch.setattr(budget, "BUDGET", tmp_path / "budget.json")
    budget.BUDGET.write_text(json.dumps({"tools": TOOLS, "instructions": COUNTS}), encoding="utf-8")
    monkeypatch.setattr(budget, "build", lambda folder, built: folder / "_kernels.akg_kernel_meta.so")
    monkeypatch.setattr(budget, "kernels", lambda library: KERNELS)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")

    def run_with(counted: dict[str, int], *options: str, **tools: str) -> int:
        monkeypatch.setattr(budget, "count", lambda folder, library: counted)
        monkeypatch.setattr(budget, "tools", lambda library: {**TOOLS, **tools})
        return int(budget.main(options))

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


def test_update(budget: ModuleType, run: Callable[..., int]) -> None:
    counted = {"replay_insert: 1 row": 500, "replay_sample: new": 7}
    assert run(counted) == 1
    assert run(counted, "--update", valgrind="valgrind-3.20.0") == 0
    made = json.loads(budget.BUDGET.read_text(encoding="utf-8"))
    assert made == {"tools": {**TOOLS, "valgrind": "valgrind-3.20.0"}, "instructions": counted}
    assert run(counted) == 0


def test_without_valgrind(budget: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="valgrind is not installed: install the package valgrind"):
        budget.main([])


def test_the_budget_is_whole(budget: ModuleType) -> None:
    made = json.loads(budget.BUDGET.read_text(encoding="utf-8"))
    assert set(made["tools"]) == set(TOOLS)
    assert min(made["instructions"].values()) > 0
    source = (ROOT / "tests" / "csrc" / "budget.cc").read_text(encoding="utf-8")
    for kernel in {name.partition(":")[0] for name in made["instructions"]}:
        operator = kernel.removeprefix("replay_").removesuffix("_items")
        assert f'"{kernel}"' in source or f'"{operator}"' in source
