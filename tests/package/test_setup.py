"""The installation of the CUDA kernels, with a script in place of nvcc."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("setuptools", reason="setup.py is run with the setuptools that are installed")


#: Lists the architectures that it supports, and writes its arguments to the library.
NVCC = """#!/bin/sh
if [ "$1" = --help ]; then echo "{help}"; exit; fi
{fail}
for last; do :; done
echo "$@" >"$last"
"""

HELPS = {
    "CUDA 11.1": "values: 'compute_35','compute_70','compute_86','sm_35','sm_70','sm_75','sm_80','sm_86'.",
    "CUDA 13": "--threads (-t) values: 'compute_75','sm_75','sm_80','sm_86','sm_89','sm_90','sm_90a','sm_100'.",
}
KINDS = {"CUDA 11.1": [70, 80], "CUDA 13": [75, 80, 90]}


def build(
    folder: Path, nvcc: str, at: str = "nvcc", variable: str = "CUDACXX", **others: str
) -> subprocess.CompletedProcess[str]:
    """Build the extensions into ``out``, with nvcc at a place given by a variable. Other compilers do nothing."""
    shutil.copytree(ROOT / "mindspore_replay" / "csrc", folder / "mindspore_replay" / "csrc")
    for name in ("setup.py", "pyproject.toml", "README.md", "mindspore_replay/_version.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "mindspore_replay" / "__init__.py").touch()
    (folder / at).parent.mkdir(parents=True, exist_ok=True)
    (folder / at).write_text(nvcc)
    (folder / at).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CUDA")}
    environment |= {variable: str(folder / at.removesuffix("/bin/nvcc")), "CXX": "true", "CC": "false", **others}
    command = [sys.executable, "-W", "ignore", "setup.py", "build_ext", "-b", "out"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def kinds_of(arguments: list[str]) -> list[int]:
    """Return the compute capabilities in nvcc's arguments; there is code for each, and PTX for the newest."""
    options = [argument for argument in arguments if argument.startswith("-gencode")]
    kinds = [int(option.rpartition("_")[2]) for option in options[:-1]]
    places = [*(f"code=sm_{kind}" for kind in kinds), f"code=compute_{kinds[-1]}"]
    assert options == [f"-gencode=arch=compute_{kind},{place}" for kind, place in zip([*kinds, kinds[-1]], places)]
    return kinds


@pytest.mark.parametrize("version", HELPS)
def test_code_for_each_kind_of_gpu_that_nvcc_knows(version: str, tmp_path: Path):
    result = build(tmp_path, NVCC.format(help=HELPS[version], fail=""))
    assert result.returncode == 0, result.stderr
    out = tmp_path / "out" / "mindspore_replay"
    arguments = (out / "_kernels_cuda.akg_kernel_meta.so").read_text().split()
    assert not (out / "_kernels_cuda.akg_kernel_meta.txt").exists()
    assert kinds_of(arguments) == KINDS[version]
    assert ("--threads" in arguments) == (version == "CUDA 13")
    assert sum(argument.endswith(".cu") for argument in arguments) == 2
    assert {"--fmad=false", "-shared", "static"} <= set(arguments)


@pytest.mark.parametrize(("asked", "kinds"), [("86", [86]), ("90;80", [80, 90])])
def test_code_for_the_kinds_that_are_asked_for(asked: str, kinds: list[int], tmp_path: Path):
    result = build(tmp_path, NVCC.format(help=HELPS["CUDA 13"], fail=""), CUDAARCHS=asked)
    assert result.returncode == 0, result.stderr
    assert (
        kinds_of((tmp_path / "out" / "mindspore_replay" / "_kernels_cuda.akg_kernel_meta.so").read_text().split())
        == kinds
    )


def test_the_nvcc_that_mindspore_looks_for(tmp_path: Path):
    """In the folder of CUDA_HOME, before any other."""
    result = build(tmp_path, NVCC.format(help=HELPS["CUDA 13"], fail=""), "cuda/bin/nvcc", "CUDA_HOME")
    assert result.returncode == 0, result.stderr
    assert "--fmad=false" in (tmp_path / "out" / "mindspore_replay" / "_kernels_cuda.akg_kernel_meta.so").read_text()


def test_an_error_is_kept_and_the_installation_goes_on(tmp_path: Path):
    result = build(tmp_path, NVCC.format(help=HELPS["CUDA 13"], fail="echo 'some error' >&2; exit 2"))
    assert result.returncode == 0, result.stderr
    out = tmp_path / "out" / "mindspore_replay"
    assert not (out / "_kernels_cuda.akg_kernel_meta.so").exists()
    reason = f"{tmp_path / 'nvcc'} failed: some error"
    assert (out / "_kernels_cuda.akg_kernel_meta.txt").read_text() == reason + "\n"
    said = "the CUDA kernels are left out, on a GPU the composite backend serves"
    assert f"{said}: {reason}" in result.stdout + result.stderr
