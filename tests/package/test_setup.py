"""What an installation compiles, with scripts in place of compilers and of the tool that lists GPUs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("setuptools", reason="setup.py is run with the setuptools that are installed")


#: Lists the kinds of GPU that it supports, and writes its arguments to the library.
COMPILER = """#!/bin/sh
case "$*" in *--help) echo "{help}"; exit;; *--version) exit;; esac
{fail}
for last; do :; done
echo "$@" >"$last"
"""
HELPS = {
    "CUDA 11.1": "values: 'compute_35','compute_70','compute_86','sm_35','sm_70','sm_75','sm_80','sm_86'.",
    "CUDA 13": "--threads (-t) values: 'compute_75','sm_75','sm_80','sm_86','sm_89','sm_90','sm_90a','sm_100'.",
}
NVCC = COMPILER.format(help=HELPS["CUDA 13"], fail="")
#: Counts how often it compiles.
CXX = COMPILER.format(help="", fail="echo >>compilations")
WITHOUT_GPU = "nvidia-smi found no GPU at installation; CUDAARCHS=all pip install -e . compiles them all the same"


def build(
    folder: Path, nvcc: str = NVCC, at: str = "bin/nvcc", gpus: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Build the extensions into ``out``, where nvcc is at this place, on a machine with these GPUs."""
    shutil.copytree(ROOT / "mindspore_replay" / "csrc", folder / "mindspore_replay" / "csrc")
    for name in ("setup.py", "pyproject.toml", "README.md", "mindspore_replay/_version.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "mindspore_replay" / "__init__.py").touch()
    list_gpus = f"#!/bin/sh\nprintf '{gpus}'" if gpus else "#!/bin/sh\necho 'no driver' >&2; exit 9"
    for place, text in (("bin/nvcc", "exit 1"), (at, nvcc), ("cxx", CXX), ("bin/nvidia-smi", list_gpus)):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
        (folder / place).chmod(0o755)
    return build_again(folder, **variables)


def build_again(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build the extensions in a folder in which that was done before."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA", "NVCC"))}
    environment |= {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CXX": str(folder / "cxx"), "CC": "false"}
    command = [sys.executable, "-W", "ignore", "setup.py", "build_ext", "-b", "out"]
    result = subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def code_of(folder: Path) -> list[str]:
    """Return nvcc's arguments."""
    return (folder / "out" / "mindspore_replay" / "_kernels_cuda.akg_kernel_meta.so").read_text().split()


def kinds_of(arguments: list[str]) -> list[int]:
    """Return the compute capabilities in nvcc's arguments; there is code for each, and PTX for the newest."""
    options = [argument for argument in arguments if argument.startswith("-gencode")]
    kinds = [int(option.rpartition("_")[2]) for option in options[:-1]]
    places = [*(f"code=sm_{kind}" for kind in kinds), f"code=compute_{kinds[-1]}"]
    assert options == [f"-gencode=arch=compute_{kind},{place}" for kind, place in zip([*kinds, kinds[-1]], places)]
    return kinds


@pytest.mark.parametrize(
    ("version", "asked", "gpus", "kinds"),
    [
        ("CUDA 11.1", "all", "", [70, 80]),
        ("CUDA 13", "all", "8.9\\n", [75, 80, 90]),
        ("CUDA 13", "86", "", [86]),
        ("CUDA 13", "90;80", "8.9\\n", [80, 90]),
        ("CUDA 13", "", "8.9\\n8.6\\n8.9\\n", [86, 89]),
        ("CUDA 13", "", "10.0\\n", [100]),
        ("CUDA 13", "", "8.9\\n12.0\\n", [75, 80, 90]),  # one is newer than nvcc
    ],
)
def test_code_for_the_kinds_of_gpu_that_are_asked_for_or_there(
    version: str, asked: str, gpus: str, kinds: list[int], tmp_path: Path
):
    build(tmp_path, COMPILER.format(help=HELPS[version], fail=""), gpus=gpus, CUDAARCHS=asked)
    arguments = code_of(tmp_path)
    assert not (tmp_path / "out" / "mindspore_replay" / "_kernels_cuda.akg_kernel_meta.txt").exists()
    assert kinds_of(arguments) == kinds
    assert ("--threads" in arguments) == (version == "CUDA 13")
    assert sum(argument.endswith(".cu") for argument in arguments) == 2
    assert {"--fmad=false", "-shared", "static"} <= set(arguments)


def test_without_a_gpu_nvcc_waits_to_be_asked(tmp_path: Path):
    result = build(tmp_path)
    note = tmp_path / "out" / "mindspore_replay" / "_kernels_cuda.akg_kernel_meta.txt"
    assert not note.with_suffix(".so").exists()
    assert note.read_text() == f"{WITHOUT_GPU}\n"
    assert f"the CUDA kernels are left out: {WITHOUT_GPU}\n" in result.stdout
    for asked, kinds in (("all", [75, 80, 90]), ("86", [86])):
        build_again(tmp_path, CUDAARCHS=asked)
        assert kinds_of(code_of(tmp_path)) == kinds
    assert not note.exists()


@pytest.mark.parametrize(
    ("at", "variable", "gpus", "kinds"),
    [("mine", "CUDACXX", "", [75, 80, 90]), ("cuda/bin/nvcc", "CUDA_HOME", "8.0\\n", [80])],
)
def test_the_nvcc_of_a_variable_comes_before_others(
    at: str, variable: str, gpus: str, kinds: list[int], tmp_path: Path
):
    """CUDACXX asks for the kernels too; MindSpore itself looks for CUDA at CUDA_HOME."""
    build(tmp_path, NVCC, at, gpus, **{variable: str(tmp_path / at.removesuffix("/bin/nvcc"))})
    assert kinds_of(code_of(tmp_path)) == kinds


def test_what_was_compiled_is_not_compiled_again(tmp_path: Path):
    """Unless a source, a header, the command or the compiler is another; what went before stays."""
    library = tmp_path / "out" / "mindspore_replay" / "_kernels.akg_kernel_meta.so"

    def compilations(**variables: str) -> int:
        build_again(tmp_path, **variables)
        return len((tmp_path / "compilations").read_text().splitlines())

    build(tmp_path)
    first = library.read_text()
    sources = [tmp_path / "mindspore_replay" / "csrc" / name for name in ("cpu/items.cc", "core/ring.h")]
    shutil.rmtree(tmp_path / "out")
    for source in sources:
        source.touch()
    assert compilations() == 1
    assert library.read_text() == first
    texts = [source.read_text() for source in sources]
    for count, (source, text) in enumerate(zip(sources, texts), 2):
        source.write_text(text + "// more\n")
        assert compilations() == count
    assert compilations(CXX=f"{tmp_path / 'cxx'} -g") == 4
    assert library.read_text().startswith("-g ")
    (tmp_path / "cxx").write_text(CXX.replace("n) exit", "n) echo 13; exit"))
    assert compilations() == 5
    for path, text in zip([*sources, tmp_path / "cxx"], [*texts, CXX]):
        path.write_text(text)
    assert compilations() == 5
    assert library.read_text() == first


def test_the_libraries_that_are_kept_are_few(tmp_path: Path):
    """The newest, and those that were copied last."""
    build(tmp_path)
    (own,) = kept = list((tmp_path / "build" / "compiled").iterdir())
    for age in range(20):
        kept.append(own.with_name(f"{age}.so"))
        kept[-1].touch()
        os.utime(kept[-1], (age, age))
    os.utime(own, (0, 0))
    build_again(tmp_path)
    build_again(tmp_path, CXX=f"{tmp_path / 'cxx'} -g")
    left = set(own.parent.iterdir())
    assert left & set(kept) == {own, *kept[-10:]}
    assert len(left) == 12


def test_an_error_is_kept_and_the_installation_goes_on(tmp_path: Path):
    fails = COMPILER.format(help=HELPS["CUDA 13"], fail="echo 'some error' >&2; exit 2")
    result = build(tmp_path, fails, CUDAARCHS="80")
    note = tmp_path / "out" / "mindspore_replay" / "_kernels_cuda.akg_kernel_meta.txt"
    assert not note.with_suffix(".so").exists()
    reason = f"{tmp_path / 'bin' / 'nvcc'} failed: some error"
    assert note.read_text() == reason + "\n"
    said = "the CUDA kernels are left out, on a GPU the composite backend serves"
    assert f"{said}: {reason}" in result.stdout + result.stderr


def test_the_examples_require_what_the_extra_mindspore_requires():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (required,) = re.findall(r"^mindspore = \[(.*)\]$", text, re.MULTILINE)
    assert text.split("\nexamples = [\n    ")[1].startswith(f"{required},\n")
