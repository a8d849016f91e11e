"""Reports versions, the machine, devices and kernels, and checks that buffers work. A bug report needs all of it.

Examples:
  mindspore-replay doctor
  mindspore-replay doctor --all
"""

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .. import host
from .._version import __version__
from ..store.base.optional import install_command, wrong_numpy
from ..store.kernels import library

#: Optional packages by the extra that installs them.
_OPTIONAL = {
    "examples": ("gymnasium", "matplotlib", "PyYAML", "tqdm"),
    "monitor": ("rich", "tensorboardX"),
    "datasets": ("minari", "h5py"),
    "ray": ("ray",),
    "compress": ("lz4",),
}

#: Variables of the environment that change what MindSpore and the kernels do.
_VARIABLES = ("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "GLOG_v", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA")

#: What needs no MindSpore.
_WITHOUT_MINDSPORE = (
    "these work without it: mindspore_replay.host with all its buffers, attach, save, load, configurations and "
    "datasets; mindspore-replay inspect; the process of a shard"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option of the command."""
    parser.add_argument("--all", action="store_true", help="list the private names of MindSpore that the package uses")


def run(options: argparse.Namespace) -> int:
    """Print the report, and return 1 if anything does not work, else 0."""
    problems, lines, devices = list(_other_copies()), [_WITHOUT_MINDSPORE], None
    on_arrays = _try_host()
    problems += [f"mindspore_replay.host: {on_arrays}"] if on_arrays else []
    arrays = f"buffers on arrays: {on_arrays or 'insert and sample work'}"
    kernels, there = library.library_for("CPU"), f"MindSpore {_version('mindspore')}"
    short = [f"kernels: {kernels.path or f'none, {kernels.reason}'}", f"backend: none, without MindSpore; {arrays}"]
    try:
        from . import mindspore_report
    except ModuleNotFoundError as error:
        if error.name != "mindspore":
            raise
        there = f"MindSpore is not installed; buffers in graphs need it: {install_command('mindspore')}"
    except Exception as error:  # one that it finds on the machine, such as another NumPy or a missing library
        text = f"MindSpore is installed and cannot be imported: {type(error).__name__}: {error}"
        problems.append(wrong_numpy() or text)
    else:
        short, lines, wrong = mindspore_report.report(options.all)
        problems += [*filter(None, [wrong_numpy()]), *wrong]
        devices = mindspore_report.devices
    verdict = f"{len(problems)} problem{'s' * (len(problems) > 1)}" if problems else "all is well"
    print("\n".join([*short, there, f"NumPy {np.__version__}", verdict]), flush=True)
    for problem in problems:
        print(f"PROBLEM: {problem}", file=sys.stderr, flush=True)
    print(f"\nmindspore_replay {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(f"scipy {_version('scipy') or 'is not installed'}")
    print(f"imported from {Path(__file__).parents[1]}")
    print("\n".join([arrays, *lines, "machine", *(f"  {line}" for line in _machine())]))
    if devices is not None:
        print("\n".join(["devices", *devices()]))
    print("optional packages")
    for extra, names in _OPTIONAL.items():
        for name in names:
            print(f"  {name} {_version(name) or f'is not there: {install_command(extra)}'}")
    return 1 if problems else 0


def _try_host() -> str:
    """Use a small buffer on arrays, and return the error, or an empty string if there is none."""
    try:
        buffer = host.ReplayBuffer(sample_size=4, capacity=8, shapes=[(2,)], types=["float32"], seed=0)
        rows = buffer.insert([np.ones((4, 2), np.float32)]).sample()[0]
        return "" if np.array_equal(rows, np.ones((4, 2))) else "it gives wrong rows"
    except Exception as error:  # any error is the answer
        return f"{type(error).__name__}: {error}"


def _machine() -> list[str]:
    """Describe processors, memory, graphics cards, and what the environment sets."""
    names = re.findall(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    sizes = re.findall(r"^Mem(?:Total|Available):\s*(\d+)", _text(Path("/proc/meminfo")), re.MULTILINE)
    lines = [f"processor: {names[0] if names else platform.machine()}, {os.cpu_count()} cores"]
    if len(sizes) == 2:
        lines.append("memory: {:.1f} GiB, {:.1f} GiB of it available".format(*(int(kb) / 2**20 for kb in sizes)))
    lines += [f"graphics card: {card}" for card in _cards()] or ["graphics card: nvidia-smi finds none"]
    return lines + [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _cards() -> list[str]:
    """Return name, driver and memory of each card that NVIDIA's tool finds."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    result = subprocess.run(command, capture_output=True, text=True)
    return [] if result.returncode else result.stdout.splitlines()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _other_copies() -> Iterator[str]:
    """Report that the package which is imported is not the installed one, here or in a prompt or script here."""
    used, here = Path(__file__).parents[1], Path.cwd() / "mindspore_replay"
    installed = next(library.other_copies(), None)
    if installed is not None:
        yield library.shadowing(used, installed)
    if here.resolve() != used and (here / "__init__.py").exists():
        yield f"for a prompt or script in this folder, {library.shadowing(here, used)}"
