"""The script that kills processes on a folder, in a short run, and its detection of faults."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ROOT

pytestmark = pytest.mark.cpu_only("a program that runs on the CPU")

SCRIPT = ROOT / "benchmarks" / "soak_processes.py"


@pytest.mark.slow
def test_no_row_is_torn_or_lost(tmp_path: Path):
    command = [sys.executable, SCRIPT, "--seconds", "30"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [result["kind"] for result in found] == ["uniform", "prioritized", "sequence"]
    for result in found:
        assert result["faults"] == []
        assert min(result["writer_deaths"], result["checks"]) >= 9
        assert result["noted"] > 1000


class Rows:
    """Rows as the script reads them."""

    def __init__(self, columns: list[np.ndarray]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def check_valid(self) -> None:
        pass

    def get_item(self, _: Any) -> list[np.ndarray]:
        return self.columns


@pytest.mark.parametrize("fault", ["", "torn", "lost"])
def test_the_script_notices(monkeypatch: pytest.MonkeyPatch, fault: str):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import soak_processes

    soak = soak_processes.Soak.__new__(soak_processes.Soak)
    columns = soak_processes.make_rows(0, range(5, 10), np.random.default_rng(0))
    if fault == "torn":
        columns[2][3, 17] += 1
    elif fault == "lost":
        columns = [np.delete(column, 4, 0) for column in columns]
    vars(soak).update(writers=1, faults=[], checks=0, notes=np.array([9]), buffer=Rows(columns))
    soak.check()
    assert soak.faults == {"": [], "torn": ["1 torn rows"], "lost": ["writer 0 lost rows [9]"]}[fault]
