"""The CUDA kernels on an emulated device, as a library like the others."""

import shutil
import subprocess
from pathlib import Path

from places import ROOT

SOURCES = ("kernels", "sample_kernels")


def build_emulated(folder: Path) -> Path:
    """Build the CUDA kernels for the emulated device, which runs them on the host, as a library like the others."""
    library = folder / "_kernels_emulated.so"
    flags = ["-std=c++17", "-ffp-contract=off", "-pthread", "-shared", "-fPIC", "-fvisibility=hidden"]
    include = ["-include", str(ROOT / "tests/csrc/emulated_cuda.h"), "-I", str(ROOT / "mindspore_replay/csrc")]
    sources = [str(ROOT / "mindspore_replay/csrc/cuda" / f"{name}.cu") for name in SOURCES]
    compiler = shutil.which("g++") or "g++"
    subprocess.run([compiler, *flags, *include, "-x", "c++", *sources, "-o", str(library)], check=True)
    return library
