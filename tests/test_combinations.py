"""The guard of `conftest.py`: a run fails unless each test with the fixture `combination` ran in all eight."""

import subprocess
import sys
from collections.abc import Callable
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


@pytest.fixture
def suite(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a folder with the guard and a test, which is left out in one combination."""

    def write(skipped: str) -> Path:
        conftest = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
        (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
        (tmp_path / "test_some.py").write_text(SUITE.format(skipped=skipped), encoding="utf-8")
        return tmp_path

    return write


def test_a_run_in_every_combination_passes(suite: Callable[[str], Path], capsys: pytest.CaptureFixture[str]):
    """In this process, which has imported MindSpore."""
    folder = suite("")
    options = ["-q", "-n", "0", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    assert pytest.main([*options, str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "8 passed" in printed
    assert "not run in every combination" not in printed


def test_a_run_that_lacks_a_combination_fails(suite: Callable[[str], Path]):
    """The tests of one run may be spread over processes."""
    folder = suite("graph-composite-compiled")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-o",
        f"pythonpath={Path(__file__).parent}",
        str(folder),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    assert result.returncode != 0, result.stdout + result.stderr
    assert "not run in every combination: {'test_some.py::test_in_combinations': " in result.stdout
