"""Processes killed within an operation on a buffer in a folder: no row is torn, no acknowledged one is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.cpu_only("rows in a folder are in host memory")

#: Operations that write numbers which are consistent in any order.
ONE_AFTER_THE_OTHER = {"sample by priority", "sample in epochs", "end episodes"}


def test_a_process_may_die_at_any_instruction(tmp_path: Path):
    program = ROOT / "tests" / "support" / "stepping.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    if "ptrace" in done.stderr and "Operation not permitted" in done.stderr:
        pytest.skip("this system does not let a process trace its child")
    assert done.returncode == 0, done.stderr
    found = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(found) == 29
    page = " ".join((ROOT / "docs" / "processes.md").read_text(encoding="utf-8").split())
    assert f"runs {len(found)} operations one instruction" in page
    assert f"{len(found) - len(ONE_AFTER_THE_OTHER)} of the {len(found)} operations leave states" in page
    for name, *counts in found:
        repaired, unrepaired, states = map(int, counts)
        assert (repaired, states >= 9) == (0, True), name
        assert (unrepaired > 0) == (name not in ONE_AFTER_THE_OTHER), name
