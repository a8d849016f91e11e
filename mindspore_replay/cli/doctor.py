"""Reports versions, the machine, devices and kernels, and checks that buffers work. A bug report needs all of it.

Examples:
  mindspore-replay doctor
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

#: Optional packages, and the extra that installs each.
_OPTIONAL = {
    "gymnasium": "examples",
    "matplotlib": "examples",
    "PyYAML": "examples",
    "tqdm": "examples",
    "rich": "monitor",
    "tensorboardX": "monitor",
    "minari": "datasets",
    "h5py": "datasets",
    "ray": "ray",
    "lz4": "compress",
}

#: Variables of the environment that change what MindSpore and the kernels do.
_VARIABLES = ("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "GLOG_v", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA")


#: What needs no MindSpore.
_WITHOUT_MINDSPORE = (
    "these work without it: mindspore_replay.host with all its buffers, attach, save, load, configurations and "
    "datasets; mindspore-replay inspect and convert; the process of a shard"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options."""


def run(_options: argparse.Namespace) -> int:
    """Print the report, and return 1 if anything does not work, else 0."""
    print(f"mindspore_replay {__version__}, Python {platform.python_version()}, {platform.platform()}")
    for name in ("mindspore", "numpy", "scipy"):
        print(f"{name} {_version(name) or 'is not installed'}")
    print(f"imported from {Path(__file__).parents[1]}")
    problems = list(_other_copies())
    print("machine")
    print("\n".join(f"  {line}" for line in _machine()))
    print("without MindSpore")
    wrong = _try_host()
    print(f"  buffers on arrays: {wrong or 'insert and sample work'}")
    problems += [f"mindspore_replay.host: {wrong}"] if wrong else []
    try:
        from . import mindspore_report
    except ModuleNotFoundError as error:
        if error.name != "mindspore":
            raise
        print(f"MindSpore is not installed\n  {_WITHOUT_MINDSPORE}")
        print(f"  buffers in graphs, and all else, need it: {install_command('mindspore')}")
    except Exception as error:  # one that it finds on the machine, such as another NumPy or a missing library
        text = f"MindSpore is installed and cannot be imported: {type(error).__name__}: {error}"
        problems.append(wrong_numpy() or text)
    else:
        problems += filter(None, [wrong_numpy()])
        problems += mindspore_report.report()
    print("optional packages")
    for name, extra in _OPTIONAL.items():
        print(f"  {name} {_version(name) or f'is not there: {install_command(extra)}'}")
    for problem in problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    print("all is well" if not problems else f"{len(problems)} problems")
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
    memory = [
        int(kb) / 2**20
        for kb in re.findall(r"^Mem(?:Total|Available):\s*(\d+)", _text(Path("/proc/meminfo")), re.MULTILINE)
    ]
    lines = [f"processor: {names[0] if names else platform.machine()}, {os.cpu_count()} cores"]
    if len(memory) == 2:
        lines.append(f"memory: {memory[0]:.1f} GiB, {memory[1]:.1f} GiB of it available")
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
