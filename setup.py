"""Builds the kernel library into the package. Everything else stands in pyproject.toml."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-pthread"]
FLAGS += ["-shared", "-fPIC", "-fvisibility=hidden"]


class BuildKernels(build_ext):
    """Compiles the kernels, a plain shared library without Python's headers, and the module that calls them.

    Where either fails, the package goes without it.
    """

    def get_ext_filename(self, ext_name):
        if not ext_name.endswith("_kernels"):
            return super().get_ext_filename(ext_name)
        return os.path.join(*ext_name.split(".")) + ".so"

    def build_extension(self, ext):
        if ext is not kernels:
            super().build_extension(ext)
            return
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        reason = self.compile(ext, target)
        note = target.with_suffix(".txt")
        if reason:
            target.unlink(missing_ok=True)
            note.write_text(reason + "\n", encoding="utf-8")
            self.warn(f"the native kernels are left out, the composite backend serves: {reason}")
        else:
            note.unlink(missing_ok=True)

    def compile(self, ext, target):
        """Why the library could not be built; empty if it was."""
        compiler = shlex.split(os.environ.get("CXX", "")) or [next(filter(shutil.which, ("g++", "c++", "clang++")), "")]
        if not compiler[0]:
            return "no C++ compiler was found (g++, c++, clang++ or $CXX)"
        try:
            result = subprocess.run(
                [*compiler, *FLAGS, *ext.sources, "-o", str(target)], capture_output=True, text=True
            )
        except OSError as error:
            return f"the C++ compiler does not start: {error}"
        return "" if result.returncode == 0 else f"{compiler[0]} failed: {result.stderr.strip()[-2000:]}"

    def get_outputs(self):
        return [path for path in super().get_outputs() if os.path.exists(path)]


kernels = Extension(
    "mindspore_replay._kernels",
    [f"mindspore_replay/csrc/{name}.cc" for name in ("kernels", "weight_kernels", "time_kernels", "reservoir_kernels")],
    depends=[str(path) for path in Path("mindspore_replay/csrc").glob("*.h")],
    optional=True,
)
calls = Extension(
    "mindspore_replay._calls",
    ["mindspore_replay/csrc/calls.cc"],
    extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden"],
    language="c++",
    optional=True,
)
setup(ext_modules=[kernels, calls], cmdclass={"build_ext": BuildKernels})
