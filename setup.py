"""Builds the kernel libraries into the package. Everything else is in pyproject.toml."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-trapping-math", "-Wall", "-Wextra", "-pthread"]
FLAGS += ["-shared", "-fPIC", "-fvisibility=hidden"]
CUDA_FLAGS = ["-std=c++17", "-O3", "--fmad=false", "--expt-relaxed-constexpr", "-shared", "-cudart", "static"]
CUDA_FLAGS += ["-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall,-Wextra"]
#: Compute capabilities that code is made for where GPUs do not tell theirs: the first of each major version that nvcc
#: knows, whose code runs on all of that version. For newer GPUs there is code that the driver translates.
CUDA_KINDS = (70, 75, 80, 90)
CSRC = "mindspore_replay/csrc"
#: Libraries by a hash of what they are made of, the newest of them: another installation copies them.
KEPT, KEPT_LIBRARIES = Path("build", "compiled"), 12


class BuildKernels(build_ext):
    """Compiles the kernels, plain shared libraries without Python's headers, and the module that calls them.

    If one fails, the package is installed without it; a note beside the library's place states the reason.
    """

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def get_ext_filename(self, ext_name):
        if not ext_name.endswith(("_kernels", "_kernels_cuda")):  # works with and without the package prefix
            return super().get_ext_filename(ext_name)
        return os.path.join(*ext_name.split(".")) + ".akg_kernel_meta.so"  # store/kernels/library.py has the reason

    def build_extension(self, ext):
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        if ext is calls:
            made_by = [getattr(self.compiler, name, None) for name in sorted(self.compiler.executables)]
            made_by += [run([*self.compiler.compiler_so, "--version"]), numpy.__version__, sys.version]
            made_by += [ext.define_macros, ext.extra_compile_args]
            keep(ext, target, made_by, lambda: super(BuildKernels, self).build_extension(ext) or "")
            return
        reason = self.compile(ext, target) if ext is kernels else self.compile_cuda(ext, target)
        note = target.with_suffix(".txt")
        if reason:
            target.unlink(missing_ok=True)
            note.write_text(reason + "\n", encoding="utf-8")
        else:
            note.unlink(missing_ok=True)
        if reason and ext is kernels:
            self.warn(f"the native kernels are left out, the composite backend serves: {reason}")
        elif reason in (NO_GPU, NO_NVCC):
            print(f"the CUDA kernels are left out: {reason}")  # no warning: most machines have no GPU
        elif reason:
            self.warn(f"the CUDA kernels are left out, on a GPU the composite backend serves: {reason}")

    def compile(self, ext, target):
        """Return the reason why the library could not be built; empty if it was."""
        compiler = shlex.split(os.environ.get("CXX", "")) or [next(filter(shutil.which, ("g++", "c++", "clang++")), "")]
        if not compiler[0]:
            return "no C++ compiler was found (g++, c++, clang++ or $CXX)"
        return library(ext, target, compiler, FLAGS)

    def compile_cuda(self, ext, target):
        """Return the reason why the CUDA library could not be built; empty if it was. Takes minutes."""
        there = gpus()
        if not there and not os.environ.get("CUDAARCHS") and not os.environ.get("CUDACXX"):
            return NO_GPU
        home = os.environ.get("CUDA_HOME", "")  # MindSpore uses the same variable to find CUDA
        places = [*([f"{home}/bin/nvcc"] if home else []), "nvcc", CUDA_NVCC]
        compiler = shlex.split(os.environ.get("CUDACXX", "")) or [next(filter(None, map(shutil.which, places)), "")]
        if not compiler[0]:
            return NO_NVCC
        wrong, text = run([*compiler, "--help"])
        if wrong:
            return wrong
        threads = ["--threads", "0"] if "--threads" in text else []  # not before CUDA 11.2
        return library(ext, target, compiler, [*CUDA_FLAGS, *threads, *cuda_kinds(text, there)])

    def copy_extensions_to_source(self):
        """For an editable installation. Copies notes too, and removes what an earlier build left behind."""
        for old in Path("mindspore_replay").glob("_calls.*.so"):
            old.unlink()
        super().copy_extensions_to_source()
        for ext in (kernels, cuda_kernels):
            own = Path(self.get_ext_filename(ext.name))
            built = Path(self.build_lib, own)
            if not built.exists():
                own.unlink(missing_ok=True)
            note = built.with_suffix(".txt")
            if note.exists():
                shutil.copy(note, own.with_suffix(".txt"))
            else:
                own.with_suffix(".txt").unlink(missing_ok=True)

    def get_outputs(self):
        return [path for path in super().get_outputs() if os.path.exists(path)]


CUDA_NVCC = "/usr/local/cuda/bin/nvcc"
NO_GPU = "nvidia-smi found no GPU at installation; CUDAARCHS=all pip install -e . compiles them all the same"
NO_NVCC = f"no CUDA compiler was found ($CUDACXX, $CUDA_HOME/bin/nvcc, nvcc or {CUDA_NVCC})"


def run(command):
    """Return the reason why a compiler failed, empty if it did not; and its output."""
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"{command[0]} does not start: {error}", ""
    return (f"{command[0]} failed: {result.stderr.strip()[-2000:]}" if result.returncode else ""), result.stdout


def library(ext, target, compiler, flags):
    """Make a library, and return the reason why its compiler failed; empty if it did not."""
    more = [os.environ.get(f"NVCC_{place}_FLAGS") for place in ("PREPEND", "APPEND")]
    command = [*compiler, *flags, "-I", CSRC, *ext.sources, "-o", str(target)]
    return keep(ext, target, [compiler, flags, run([*compiler, "--version"]), more], lambda: run(command)[0])


def keep(ext, target, made_by, make):
    """Copy the library that the same commands made of the same sources, or make it, and keep a copy.

    Returns why it could not be made; empty if it is there.
    """
    digest = hashlib.sha256(repr(made_by).encode())
    for path in [*ext.sources, *headers]:
        digest.update(path.encode() + b"\0" + hashlib.sha256(Path(path).read_bytes()).digest())
    copy = KEPT / f"{digest.hexdigest()}.so"
    if copy.exists():
        os.utime(copy)
        shutil.copy(copy, target)
        return ""
    target.unlink(missing_ok=True)  # which an older source may have made
    reason = make()
    if not reason:
        KEPT.mkdir(parents=True, exist_ok=True)
        part = copy.with_suffix(f".{os.getpid()}")
        shutil.copy(target, part)
        part.replace(copy)
        for old in sorted(KEPT.glob("*.so"), key=os.path.getmtime)[:-KEPT_LIBRARIES]:
            old.unlink(missing_ok=True)
    return reason


def gpus():
    """Return the compute capabilities of the GPUs that are there."""
    found = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])[1]
    return sorted({int(major + minor) for major, minor in re.findall(r"^(\d+)\.(\d+)$", found, re.MULTILINE)})


def cuda_kinds(text, there):
    """Return options for the compute capabilities of $CUDAARCHS, the GPUs or else nvcc's help text; and newer GPUs."""
    # Of each major version the last one written, which is the lowest.
    first = {kind // 10: kind for kind in reversed(CUDA_KINDS) if re.search(rf"\bsm_{kind}\b", text)}
    asked = os.environ.get("CUDAARCHS", "")
    known = sorted(map(int, re.findall(r"\d+", asked)))
    if there and not asked and all(re.search(rf"\bsm_{kind}\b", text) for kind in there):  # none is newer than nvcc
        known = there
    known = known or sorted(first.values())
    options = [f"-gencode=arch=compute_{kind},code=sm_{kind}" for kind in known]
    return options + [f"-gencode=arch=compute_{kind},code=compute_{kind}" for kind in known[-1:]]


def sources(folder, suffix):
    return sorted(map(str, Path(CSRC, folder).glob(f"*{suffix}")))


headers = sorted(str(path) for suffix in ("h", "cuh") for path in Path(CSRC).rglob(f"*.{suffix}"))
kernels = Extension("mindspore_replay._kernels", sources("cpu", ".cc"), depends=headers, optional=True)
cuda_kernels = Extension("mindspore_replay._kernels_cuda", sources("cuda", ".cu"), depends=headers, optional=True)
# One module for all versions of Python. A build of Python without the lock has no such ABI yet.
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")
calls = Extension(
    "mindspore_replay._calls",
    [f"{CSRC}/python/calls.cc"],
    depends=headers,
    include_dirs=[CSRC, numpy.get_include()],
    define_macros=[("Py_LIMITED_API", "0x030A0000")] if STABLE_ABI else [],
    py_limited_api=STABLE_ABI,
    extra_compile_args=["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-pthread"],
    extra_link_args=["-pthread"],
    language="c++",
    optional=True,
)
setup(
    ext_modules=[kernels, cuda_kernels, calls],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if STABLE_ABI else {},
)
