"""The script that kills processes on a folder, in a short run, and its detection of faults."""

import argparse
import json
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.cpu_only("a program that runs on the CPU")


@pytest.fixture
def soak(script: Any) -> Any:
    return script("soaks.processes")


@pytest.mark.slow
def test_no_row_is_torn_or_lost(soak: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Learners die soon after their first sample. Writers leave them the processor to import MindSpore."""
    monkeypatch.setattr(soak, "LEARNER_LIVES", 0.1)
    monkeypatch.setattr(soak, "WRITER_LIVES", 0.5)
    parser = argparse.ArgumentParser()
    soak.add_options(parser)
    options = ["--deaths", "3", "--writers", "2", "--pause", "0.02", "--buffer", "sequence"]
    code = soak.run(parser.parse_args(options))
    output, errors = capfd.readouterr()
    assert code == 0, output + errors[-4000:]
    result = json.loads(output)
    assert (result["kind"], result["faults"], result["learner_deaths"]) == ("sequence", [], 1)
    assert result["writer_deaths"] >= 3
    assert result["checks"] == result["writer_deaths"] + 2  # one after each death, and one at the end
    assert result["noted"] > 0


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
def test_the_script_notices(soak: Any, fault: str):
    run = soak.Soak.__new__(soak.Soak)
    columns = soak.make_rows(0, range(5, 10), np.random.default_rng(0))
    if fault == "torn":
        columns[2][3, 17] += 1
    elif fault == "lost":
        columns = [np.delete(column, 4, 0) for column in columns]
    vars(run).update(writers=1, faults=[], checks=0, notes=np.array([9]), buffer=Rows(columns))
    run.check()
    assert run.faults == {"": [], "torn": ["1 torn rows"], "lost": ["writer 0 lost rows [9]"]}[fault]
