"""Buffers on MindSpore's device target GPU: the back end is real, the device and the kernels are emulated."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import emulated_gpu
import mindspore as ms
import pytest
from places import TESTS


@pytest.fixture(scope="module")
def environment(emulated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if not ms.__version__.startswith("2.10"):
        pytest.skip(f"the device is emulated for MindSpore 2.10, and this is {ms.__version__}")
    if not (shutil.which("nm") and shutil.which("objdump")):
        pytest.skip("there are no binutils, which read what MindSpore's libraries ask of CUDA")
    return {**os.environ, **emulated_gpu.build(tmp_path_factory.mktemp("gpu"), emulated)}


def run(environment: dict[str, str], *command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command], env=environment, cwd=TESTS.parent, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[:3000]
    return result.stdout


def test_the_tests_of_the_ring(environment: dict[str, str]):
    names = "pynative-native-eager and not reset and not twin"
    command = ["-m", "pytest", "-n", "0", "-v", "-p", "no:cacheprovider", "-p", "emulated_gpu", "--device", "GPU"]
    out = run(
        {**environment, "PYTHONPATH": str(TESTS / "support")},
        *command,
        str(TESTS / "buffers" / "test_replay.py"),
        "-k",
        names,
    )
    assert int(re.findall(r"(\d+) passed", out)[0]) >= 12, out[-500:]


def test_all_kinds_of_buffers_give_what_they_give_on_the_cpu(environment: dict[str, str]):
    script = str(TESTS / "support" / "gpu_calls.py")
    on_gpu, on_cpu = (run(environment, script, device).splitlines() for device in ("GPU", "CPU"))
    assert on_gpu == on_cpu
    assert on_gpu[-1] == "failed True True"
    assert len(on_gpu) > 90
