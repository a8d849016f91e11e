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
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from .. import mindspore_api
from .._version import __version__
from ..buffers.replay import ReplayBuffer
from ..ops import native
from ..ops.status import kernel_status
from ..store import library
from ..store.optional import install_command

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

#: Report for a device that MindSpore finds.
_THERE = {
    **dict.fromkeys(("CPU", "GPU"), "there: mindspore.set_device chooses it"),
    "Ascend": "there, but nothing has been run on it: see docs/devices.md",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options."""


def run(_options: argparse.Namespace) -> int:
    """Print the report; return 1 if anything does not work, else 0."""
    print(f"mindspore_replay {__version__}, Python {platform.python_version()}, {platform.platform()}")
    for name in ("mindspore", "numpy", "scipy"):
        print(f"{name} {_version(name) or 'is not installed'}")
    print(f"installed in {Path(__file__).parents[1]}")
    problems = mindspore_api.moved() + _problems_of_the_folder()
    if int(np.__version__.split(".")[0]) >= 2:
        problems.append(f"NumPy {np.__version__}: MindSpore is compiled against NumPy 1: pip install 'numpy<2'")
    print("machine")
    print("\n".join(f"  {line}" for line in _machine()))
    print("devices")
    for device, text in _devices().items():
        print(f"  {device}: {text}")
    print("kernels")
    status = kernel_status()
    print("\n".join(f"  {line}" for line in str(status).splitlines()))
    print(f"  CUDA kernels, for GPUs: {status.cuda or 'built, and they load'}")
    print(f"  calls from Python: {'of the kernels' if native.direct_calls(status.backend) else 'by compiled graphs'}")
    for backend in ("native", "composite"):
        wrong = _try(backend) if backend == "composite" or not status.reason else f"not in use: {status.reason}"
        print(f"  {backend} backend: {wrong or 'insert and sample work, in a graph and from Python'}")
        if wrong and (native.on_cpu() or not wrong.startswith("not in use")):
            problems.append(f"the {backend} backend: {wrong}")
    if not status.insert_statement:
        problems.append("the statement buffer.insert(rows) is not safe in a graph: write buffer.add(rows)")
    print("optional packages")
    for name, extra in _OPTIONAL.items():
        print(f"  {name} {_version(name) or f'is not there: {install_command(extra)}'}")
    for problem in problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    print("all is well" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


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


def _problems_of_the_folder() -> list[str]:
    """Report a source folder that a prompt or script here would import instead of this package."""
    here, used = Path.cwd() / "mindspore_replay", Path(__file__).parents[1]
    if here.resolve() == used or not (here / "__init__.py").exists() or library.has_kernels(here):
        return []
    return [f"for a prompt or script in this folder, {library.shadowing(here, used)}"]


def _devices() -> dict[str, str]:
    """Ask MindSpore about each kind of device.

    A separate process asks, since asking may change the device in use.
    """
    found = {}
    for device in _THERE:
        if device == ms.get_context("device_target"):
            found[device] = "in use"
            continue
        code = f"import mindspore; mindspore.set_device({device!r})"
        environment = {**os.environ, "GLOG_v": "3"}  # so that errors are logged
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        found[device] = _reason(device, result.stderr) if result.returncode else _THERE[device]
    return found


def _reason(device: str, error: str) -> str:
    """Summarize MindSpore's errors about a device in one line."""
    if device == "GPU" and not os.environ.get("CUDA_HOME"):
        return "not there: CUDA_HOME names no folder of CUDA, and MindSpore looks nowhere else"
    missing = re.findall(rf"(\S+) \(need by mindspore-{device.lower()}\) is not found", error)
    missing += re.findall(rf"Load dynamic library: \S*{device.lower()}\S* failed\. (.*)", error)
    told = re.findall(r"^\w*Error: ([^.]*)", error, re.MULTILINE)
    return f"not there: {', '.join(dict.fromkeys(missing)) or (told or ['MindSpore does not say why'])[-1]}"


class _Step(nn.Cell):
    """Stores a row and samples it."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer

    def construct(self, row):
        self.buffer.insert([row])
        return self.buffer.sample()[0]


def _try(backend: str) -> str:
    """Use a small buffer, and return the error; an empty string if there is none."""
    try:
        buffer: Any = ReplayBuffer(sample_size=4, capacity=8, shapes=[(2,)], types=["float32"], seed=0, backend=backend)
        buffer.insert([np.ones((3, 2), np.float32)])
        sampled = _Step(buffer)(Tensor(np.ones(2, np.float32))).asnumpy(), buffer.sample()[0].asnumpy()
        right = all(np.array_equal(batch, np.ones((4, 2))) for batch in sampled)
        return "" if right and int(buffer.size()) == 4 else "it gives wrong rows"
    except Exception as error:  # any error is the answer
        return f"{type(error).__name__}: {error}"
