"""The part of the doctor's report that needs MindSpore: its private names, devices, and buffers in its graphs."""

import os
import re
import subprocess
import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from .. import mindspore_api
from ..buffers.replay import ReplayBuffer
from ..ops import native
from ..ops.status import kernel_status

#: Report for a device that MindSpore finds.
_THERE = {
    **dict.fromkeys(("CPU", "GPU"), "there: mindspore.set_device chooses it"),
    "Ascend": "there, but nothing has been run on it: see docs/devices.md",
}


def report(everything: bool) -> tuple[list[str], list[str], list[str]]:
    """Use buffers on both backends. Return two lines that say shortly what works, lines on it, and what does not work.

    `everything` lists private names of MindSpore even if none is missing.
    """
    status, tried, problems = kernel_status(), {}, mindspore_api.not_found()
    for backend in ("native", "composite"):
        wrong = _try(backend) if backend == "composite" or not status.reason else f"not in use: {status.reason}"
        tried[backend] = wrong or "insert and sample work, in a graph and from Python"
        if wrong and (native.on_cpu() or not wrong.startswith("not in use")):
            problems.append(f"the {backend} backend: {wrong}")
    direct = native.direct_calls(status.backend) or status.storage == "host"
    lines = ["kernels", *(f"  {line}" for line in str(status).splitlines()[2:])]
    lines.append(f"  calls from Python: {'of the kernels' if direct else 'by compiled graphs'}")
    lines += [f"  {backend} backend: {text}" for backend, text in tried.items()]
    if everything or mindspore_api.not_found():
        lines += ["private names of MindSpore", *(f"  {name}: {found}" for name, found in mindspore_api.NAMES.items())]
    kernels = f"kernels: {status.library or f'none, {status.reason}'}"
    return [kernels, f"backend: {status.backend}: {tried[status.backend]}"], lines, problems


def devices() -> list[str]:
    """Describe each kind of device, and the CUDA kernels beside the GPU. Takes seconds."""
    found, cuda = _devices(), kernel_status().cuda or "the CUDA kernels for one are built, and they load"
    return [f"  {device}: {text}" + (f"; {cuda}" if device == "GPU" else "") for device, text in found.items()]


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
        errors = re.findall(r"^\w*Error: ([^.]*)|Load dynamic library: \S* failed\. (.*)", result.stderr, re.MULTILINE)
        reason = "".join(errors[0]) if errors else "MindSpore does not say why"
        found[device] = f"not there: {reason}" if result.returncode else _THERE[device]
    return found


class _Step(nn.Cell):
    """Stores a row and samples it."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        super().__init__()
        self.buffer = buffer

    def construct(self, row):
        self.buffer.add([row])
        return self.buffer.sample()[0]


def _try(backend: str) -> str:
    """Use a small buffer, and return the error, or an empty string if there is none."""
    try:
        buffer: Any = ReplayBuffer(sample_size=4, capacity=8, shapes=[(2,)], types=["float32"], seed=0, backend=backend)
        buffer.insert([np.ones((3, 2), np.float32)])
        sampled = _Step(buffer)(Tensor(np.ones(2, np.float32))).asnumpy(), buffer.sample()[0].asnumpy()
        right = all(np.array_equal(batch, np.ones((4, 2))) for batch in sampled)
        return "" if right and int(buffer.size()) == 4 else "it gives wrong rows"
    except Exception as error:  # any error is the answer
        return f"{type(error).__name__}: {error}"
