"""The guard of `conftest.py`: a run fails unless each test with the fixture `way_to_call` ran in all four."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faces import WAYS, missing
from places import TESTS

FOUR = set(WAYS)

SUITE = """
import pytest

def test_in_ways(way_to_call):
    if {skipped!r} == way_to_call:
        pytest.skip("left out on purpose")
"""


def test_the_guard_finds_what_did_not_run():
    assert len(FOUR) == 4
    ran = {"whole": FOUR, "part": FOUR - {"graph"}, "skipped": set[str]()}
    assert missing(ran) == {"part": ["graph"], "skipped": sorted(FOUR)}


@pytest.fixture
def suite(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a folder with the guard and a test, which is skipped in one way."""

    def write(skipped: str) -> Path:
        conftest = (TESTS / "conftest.py").read_text(encoding="utf-8")
        (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
        (tmp_path / "test_some.py").write_text(SUITE.format(skipped=skipped), encoding="utf-8")
        return tmp_path

    return write


def run_here(folder: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the tests of a folder in this process, which has imported MindSpore; return the code and what is printed."""
    given = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    given += ["-o", f"pythonpath={TESTS / 'support'}"]
    code = pytest.main([*given, *options, str(folder)])
    return code, capsys.readouterr().out


def test_a_run_that_lacks_a_way_fails(suite: Callable[[str], Path], capsys: pytest.CaptureFixture[str]):
    """The tests run in another process than the guard."""
    code, printed = run_here(suite("attached"), "-n", "1", capsys=capsys)
    assert code != 0, printed
    assert "not run in every way: {'test_some.py::test_in_ways': " in printed


def test_a_device_that_is_not_there_ends_the_run_with_one_line(suite: Callable[[str], Path]):
    folder = suite("")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--device", "Ascend", "-p", "no:cacheprovider"]
    command += ["-o", f"pythonpath={TESTS / 'support'}", str(folder)]
    environment = {**os.environ, "GLOG_v": "4"}  # MindSpore logs the devices that it looked for
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=environment)
    if result.returncode == 0:
        pytest.skip("there is such a device")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    assert line.startswith("ERROR: --device Ascend: Unsupported device target Ascend.")
