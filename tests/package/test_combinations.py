"""The guard of `conftest.py`: a run fails unless each test with the fixture `combination` ran in all eight."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from drivers import COMBINATIONS, missing
from places import TESTS

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
    """Return a function that writes a folder with the guard and a test, which one combination skips."""

    def write(skipped: str) -> Path:
        conftest = (TESTS / "conftest.py").read_text(encoding="utf-8")
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
    """The tests run in other processes than the guard."""
    folder = suite("graph-composite-compiled")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "1",
        "-o",
        f"pythonpath={TESTS / 'support'}",
        str(folder),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    assert result.returncode != 0, result.stdout + result.stderr
    assert "not run in every combination: {'test_some.py::test_in_combinations': " in result.stdout


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


MARKED = """
import pytest

@pytest.mark.cpu_only("it looks there")
def test_on_the_cpu():
    pass

def test_anywhere():
    pass
"""


#: Runs the tests once for each device; MindSpore is kept from looking for it.
RUNS = """
import sys
import mindspore
import pytest
mindspore.set_device = print
for device in ("CPU", "GPU"):
    pytest.main([*sys.argv[1:], "--device", device])
    print("end of", device)
"""


def test_cpu_only_tests_are_skipped_on_other_devices(suite: Callable[[str], Path]):
    folder = suite("")
    (folder / "test_some.py").write_text(MARKED, encoding="utf-8")
    command = [sys.executable, "-c", RUNS, "-q", "-rs", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-o", f"pythonpath={TESTS / 'support'} {folder}", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    on_cpu, rest = result.stdout.split("end of CPU")
    on_gpu = rest.split("end of GPU")[0]
    skipped = "runs on the CPU only: it looks there"
    assert "2 passed" in on_cpu, result.stdout + result.stderr
    assert skipped not in on_cpu
    assert "1 passed, 1 skipped" in on_gpu, result.stdout + result.stderr
    assert skipped in on_gpu
