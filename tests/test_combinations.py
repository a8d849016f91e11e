"""The guard of `conftest.py`: a run fails unless each test with the fixture `combination` ran in all eight."""

import subprocess
import sys
from pathlib import Path

import pytest
from drivers import COMBINATIONS, missing

EIGHT = {str(combination) for combination in COMBINATIONS}

SUITE = """
import pytest

def test_in_combinations(combination):
    if {skipped!r} == str(combination):
        pytest.skip("left out on purpose")
"""


def test_the_guard_finds_what_did_not_run():
    assert len(EIGHT) == 8
    ran = {"whole": EIGHT, "part": EIGHT - {"pynative-native-eager"}, "skipped": set[str]()}
    assert missing(ran) == {"part": ["pynative-native-eager"], "skipped": sorted(EIGHT)}


@pytest.mark.parametrize(("skipped", "workers"), [("", 0), ("graph-composite-compiled", 2)])
def test_a_run_that_lacks_a_combination_fails(tmp_path: Path, skipped: str, workers: int):
    tests = Path(__file__).parent
    (tmp_path / "conftest.py").write_text((tests / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_some.py").write_text(SUITE.format(skipped=skipped), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-o", f"pythonpath={tests}", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (result.returncode == 0) is (skipped == ""), result.stdout + result.stderr
    assert ("not run in every combination: {'test_some.py::test_in_combinations': " in result.stdout) is bool(skipped)
