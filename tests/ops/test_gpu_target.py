"""Buffers on MindSpore's device target GPU: the back end is real, the device and the kernels are emulated."""

import os
import re
import runpy
import shutil
import subprocess
import sys

import emulated_gpu
import mindspore as ms
import pytest
from places import TESTS


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if not ms.__version__.startswith("2.10"):
        pytest.skip(f"the device is emulated for MindSpore 2.10, and this is {ms.__version__}")
    lacking = [program for program in ("g++", "nm", "objdump") if shutil.which(program) is None]
    if lacking:
        pytest.skip(f"programs that make the emulated device are not installed: {lacking}")
    return {**os.environ, **emulated_gpu.build(tmp_path_factory.mktemp("gpu"))}


#: Runs tests, and then the script of calls.
PROGRAM = """
import runpy, sys, pytest
script, *arguments = sys.argv[1:]
code = pytest.main(arguments)
print("end of tests", flush=True)
sys.argv[1:] = ["GPU"]
runpy.run_path(script, run_name="__main__")
sys.exit(code)
"""
CALLS = str(TESTS / "support" / "gpu_calls.py")
CHOSEN = "Tensors or native or axis or copies"


@pytest.fixture(scope="module")
def on_gpu(environment: dict[str, str]) -> list[str]:
    """Return what tests of the ring and the script of calls print."""
    options = ["-n", "0", "-v", "-p", "no:cacheprovider", "-p", "emulated_gpu", "--device", "GPU"]
    tests = [str(TESTS / "buffers" / "test_replay.py"), "-k", CHOSEN]
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, CALLS, *options, *tests],
        env={**environment, "PYTHONPATH": os.pathsep.join([str(TESTS / "support"), *sys.path])},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    failures = re.findall(r"^(?:E  |FAILED|ERROR).*", result.stdout, re.MULTILINE)
    assert result.returncode == 0, "\n".join(failures) + result.stderr[:3000]
    return result.stdout.split("end of tests\n")


def test_the_tests_of_the_ring(on_gpu: list[str]):
    assert int(re.findall(r"(\d+) passed", on_gpu[0])[0]) >= 5, on_gpu[0][-500:]


def test_all_kinds_of_buffers_give_what_they_give_on_the_cpu(
    on_gpu: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    mode = ms.get_context("mode")
    monkeypatch.setattr(sys, "argv", [CALLS, "CPU"])
    try:
        runpy.run_path(CALLS, run_name="__main__")
    finally:
        ms.set_context(mode=mode)
    on_gpu, on_cpu = on_gpu[1].splitlines(), capsys.readouterr().out.splitlines()
    assert on_gpu == on_cpu
    assert on_gpu[-1] == "failed True True"
    assert len(on_gpu) > 90
