"""Emulates a machine with a GPU for MindSpore: CUDA's libraries by name, and the CUDA kernels on the host.

MindSpore 2.10 then accepts the device target ``GPU``, keeps Parameters in the memory of that device, and calls our
kernels on it. Its own CUDA kernels do not run there, so a graph may hold only our operators. As a plugin of pytest
(``-p emulated_gpu``) this makes the package use the emulated kernels as the CUDA kernel library.
"""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import mindspore as ms
from places import ROOT, TESTS

from mindspore_replay.store.kernels import library

_FOLDER = "MINDSPORE_REPLAY_EMULATED_KERNELS"
_RUNTIME = TESTS / "csrc" / "emulated_runtime.cc"
#: The version output of the nvcc of MindSpore's CUDA.
_NVCC = '#!/bin/sh\necho "Cuda compilation tools, release 11.6, V11.6.124"\n'

if _FOLDER in os.environ:
    library._FOLDER = Path(os.environ[_FOLDER])
    library.library_for.cache_clear()
    library.table.cache_clear()


def _read(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _stub(symbol: str) -> str:
    """Return a function that does nothing; one that creates an object returns an address that is not null."""
    if "Create" in symbol or "create" in symbol:
        return f'extern "C" int {symbol}(void **p) {{ static char place[64]; *p = place; return 0; }}'
    if symbol.endswith(("ErrorString", "ErrorName")):
        return f'extern "C" const char *{symbol}() {{ return "emulated"; }}'
    return f'extern "C" int {symbol}() {{ return 0; }}'


def _libraries(plugins: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Return the CUDA libraries that MindSpore's libraries need, and their functions."""
    needed, symbols = set(), set()
    for plugin in plugins:
        needed |= set(re.findall(r"NEEDED\s+(lib(?:cu|nvrtc)\S*\.so\S*)", _read("objdump", "-p", plugin)))
        symbols |= set(re.findall(r" U ((?:cu|nvrtc)\w+)", _read("nm", "-D", "--undefined-only", plugin)))
    return {name for name in needed if "cuda_ops" not in name}, symbols


def build(folder: Path) -> dict[str, str]:
    """Make the libraries, the CUDA kernels among them, in a new folder; return the environment that finds them."""
    plugin = Path(ms.__file__).parent / "lib" / "plugin"
    needed, symbols = _libraries([plugin / "libmindspore_gpu.so.11.6", plugin / "gpu" / "libcuda_ops.so.11"])
    own = set(re.findall(r"^CUDA (\w+)\(", _RUNTIME.read_text(encoding="utf-8"), re.MULTILINE))
    (folder / "names.cc").write_text("\n".join(map(_stub, sorted(symbols - own))) + "\n", encoding="utf-8")
    shared = ["g++", "-std=c++17", "-shared", "-fPIC"]
    kernels = folder / "kernels.akg_kernel_meta.so"
    flags = ["-ffp-contract=off", "-pthread", "-fvisibility=hidden", "-include", str(TESTS / "csrc/emulated_cuda.h")]
    sources = sorted(map(str, ROOT.glob("mindspore_replay/csrc/cuda/*.cu")))
    include = ["-I", str(ROOT / "mindspore_replay/csrc"), "-x", "c++"]
    subprocess.run([*shared, *flags, *include, *sources, "-o", str(kernels)], check=True)
    runtime = folder / "libemulated_runtime.so"
    subprocess.run([*shared, str(_RUNTIME), str(folder / "names.cc"), "-o", str(runtime)], check=True)
    link = ["-Wl,--no-as-needed", f"-L{folder}", "-lemulated_runtime", f"-Wl,-rpath,{folder}"]
    for name in needed:
        empty = ["-x", "c++", "/dev/null", "-x", "none"]
        subprocess.run([*shared, *empty, f"-Wl,-soname,{name}", *link, "-o", str(folder / name)], check=True)
    nvcc = folder / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(_NVCC, encoding="utf-8")
    nvcc.chmod(0o755)
    package = folder / "package"
    package.mkdir()
    (package / "_kernels_cuda.akg_kernel_meta.so").symlink_to(kernels)
    (package / "_kernels.akg_kernel_meta.so").symlink_to(library._FOLDER / "_kernels.akg_kernel_meta.so")
    path = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return {"CUDA_HOME": str(folder / "cuda"), "LD_LIBRARY_PATH": path, _FOLDER: str(package), "GLOG_v": "3"}
