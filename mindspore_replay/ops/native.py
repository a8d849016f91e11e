"""The kernel library for the current device target, and its custom operators for graphs."""

import contextlib
import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
from mindspore import ops

from ..store.base.checks import warn_caller
from ..store.kernels.library import FAILURES, OK, KernelError, Library, library_for, table
from ..store.kernels.signatures import Signature

_instances = itertools.count()
_LEGAL = "MS_CUSTOM_AOT_WHITE_LIST"


def _library() -> Library:
    """Return the library for the current device target."""
    return library_for(ms.get_context("device_target"))


def on_cpu() -> bool:
    """Return True if the device target is the CPU: Parameters are in host memory, which Python may read and write.

    On other devices ``asnumpy()`` is a copy, Python cannot use an address, and kernels run in compiled graphs only.
    """
    return ms.get_context("device_target") == "CPU"


def runs_on_device() -> bool:
    """Return True if buffers keep their rows on the device by default: on the CPU, and where native kernels run."""
    return on_cpu() or not why_not()


def direct_calls(backend: str) -> bool:
    """Return True if calls from Python run kernels directly on a buffer's memory, without a graph."""
    return backend == "native" and on_cpu()


def library_path() -> str:
    """Return the path of the kernel library for the current device target, empty if none loads."""
    return str(_library().path or "")


def why_not(device: str | None = None) -> str:
    """Return why native kernels cannot run on a device target, by default the current one, empty if they can.

    It does not check whether the machine has such a device.
    """
    return (_library() if device is None else library_for(device)).reason


def signature(operator: str) -> Signature:
    """Return the signature of an operator in the library for the current device target."""
    return table(ms.get_context("device_target"))[1][operator]


def choose_backend(backend: str, cls_name: str) -> str:
    """Return the backend, ``"native"`` or ``"composite"``, for `backend`. Raise an error if unavailable."""
    if backend not in ("auto", "native", "composite"):
        raise ValueError(
            f"For '{cls_name}', 'backend' must be one of 'auto', 'native', 'composite', but got {backend!r}."
        )
    reason = why_not()
    if backend == "native" and reason:
        raise RuntimeError(f"For '{cls_name}', backend='native' is not available: {reason}.")
    if backend == "auto":
        if reason and on_cpu():
            warn_caller(
                f"For '{cls_name}', the native kernels are not available. The composite backend is used instead: the "
                f"same rows, up to 500 times slower from Python. The reason: {reason}. Pass backend='composite' to "
                "avoid this warning."
            )
        return "composite" if reason else "native"
    return backend


_widening = threading.Lock()


@contextlib.contextmanager
def _legal(path: str) -> Iterator[None]:
    """Widen the folder that the environment allows operators to be from, if it does, to one that has this file too.

    Some programs set it to their own. MindSpore checks it when an operator is made, and again in C++ when a graph is
    compiled, where it takes the file by its name (`store.kernels.library`).
    """
    with _widening:
        before = os.environ.get(_LEGAL)
        if before is not None:
            os.environ[_LEGAL] = os.path.commonpath([os.path.realpath(before), os.path.realpath(path)])
        try:
            yield
        finally:
            if before is not None:
                os.environ[_LEGAL] = before


def custom(function: str, out_shapes: Callable[..., Any], out_types: object) -> ops.Custom:
    """Make the custom operator of a kernel, for compiled graphs. It may write to its Parameters.

    Args:
        function (str): Name of the kernel.
        out_shapes (Callable): Returns the output's shape, or a tuple of shapes, from the inputs' shapes.
        out_types (Union[mindspore.dtype, tuple[mindspore.dtype]]): The output's dtype, or a tuple of dtypes.
    """
    path = library_path()
    with _legal(path):
        operator = ops.Custom(f"{path}:{function}", out_shapes, lambda *_: out_types, func_type="aot")
    operator.add_prim_attr("side_effect_mem", True)
    # MindSpore caches inferred shapes by an operator's name, attributes and inputs; ours depend on more than these.
    operator.add_prim_attr("instance", next(_instances))
    return operator


def fails_later() -> bool:
    """Return True if kernels report errors in their data only after the call has returned, as on a GPU.

    A call in a graph then succeeds and changes nothing, and the graph can be called again. On the CPU the call fails.
    """
    return hasattr(_library().handle, "replay_take_failure")


def _take_failure() -> tuple[str, int]:
    """Return the kernel and the status of the first unreported failure. Work in flight is not included."""
    kernel = ctypes.c_char_p()
    handle = _library().handle
    status = handle.replay_take_failure(ctypes.byref(kernel)) if handle is not None and fails_later() else OK
    return (kernel.value or b"?").decode(), status


def raise_earlier_failure() -> None:
    """Raise a RuntimeError for a kernel failure in an earlier graph that has not been reported."""
    kernel, status = _take_failure()
    if status != OK:
        cause = FAILURES.get(status, f"it refused its arguments with status {status}")
        raise RuntimeError(
            f"The kernel '{kernel}' failed in a graph that ran before this call: {cause}. That call of the kernel "
            "changed nothing and returned zeros."
        )


def raise_own_failure() -> None:
    """Raise a KernelError if a kernel failed in the last graph, which must have finished."""
    kernel, status = _take_failure()
    if status != OK:
        raise KernelError(kernel, status)
