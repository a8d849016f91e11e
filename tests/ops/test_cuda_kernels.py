"""The CUDA kernel library as nvcc builds it, and what the page on GPUs says of it.

The kernels themselves are tested by the program gpu_check, which `benchmarks/gpu` builds.
"""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT

import mindspore_replay

PACKAGE = Path(mindspore_replay.__file__).parent


def exports(path: Path) -> set[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" T (replay_\w+)", out))


@pytest.mark.skipif(not (shutil.which("nvcc") and shutil.which("nm")), reason="there is no nvcc, or no nm")
def test_the_library_that_nvcc_builds():
    path = PACKAGE / "_kernels_cuda.akg_kernel_meta.so"
    note = path.with_suffix(".txt")
    assert path.exists(), note.read_text(encoding="utf-8") if note.exists() else "nothing was built"
    ctypes.CDLL(str(path))
    of_locks = {"close", "hold", "let_go", "replace", "share", "unshare"}
    of_files = {"checksum", "checksums", "guard", "end_guard", "repair", "watch"}
    of_logs = {"copy_differences", "take_changes"}
    of_items = {"pieces", "insert_items", "read_items", "sample_items", "sample_groups_items"}
    of_limits = {"begin_block", "count", "end_block", "limit", "may_go", "mode", "sleep", "wake_all"}
    of_host = {
        f"replay_{function}" for function in of_locks | of_files | of_logs | of_items | of_limits
    }  # for memory of the host
    assert exports(path) == exports(PACKAGE / "_kernels.akg_kernel_meta.so") - of_host | {"replay_take_failure"}


def test_what_the_page_says():
    page = (ROOT / "docs" / "appendix" / "gpu.md").read_text(encoding="utf-8")
    files = [path for path in (ROOT / "mindspore_replay" / "csrc").rglob("*.*") if path.is_file()]
    sources = {path.name: path.read_text(encoding="utf-8") for path in files}
    statuses = {int(value) for value in re.findall(r"^  k\w+ = (\d+),(?! +// CPU:)", sources["status.h"], re.MULTILINE)}
    table = page.split("| status |")[1].split("\n\n")[0]
    assert {int(value) for value in re.findall(r"^\| (\d+)", table, re.MULTILINE)} == statuses - {0}
    limits = {"device.cuh": "kMostColumns", "sample_kernels.cu": "kMostOutputs", "shuffle.cuh": "kMostInBlock"}
    columns, outputs, draws = (re.findall(rf"{name} = (\d+);", sources[file])[0] for file, name in limits.items())
    section = page.split("## Limits of a launch\n")[1].split("\n## ")[0]
    counts = re.findall(r"\b(\d+) (columns|outputs|rows)\b", " ".join(section.split()))
    assert counts == [(columns, "columns"), (outputs, "outputs"), (draws, "rows")]
