"""Finds and loads the kernel library, or says why it cannot be had."""

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import Tensor, ops

#: What a kernel returns when it has done its work, found too few rows, or an episode too long; csrc/status.h has the
#: other values.
OK, TOO_FEW_ROWS, TOO_LONG = 0, 2, 5

_instances = itertools.count()


def _host_address(tensor: Tensor) -> int:
    return tensor.asnumpy().ctypes.data


#: The address of a Tensor's memory on the CPU. MindSpore 2.7 knows none before a graph has used the Tensor.
address = _host_address if ms.__version__.startswith("2.7") else Tensor.data_ptr

_FOLDER = Path(__file__).resolve().parent.parent


class KernelError(RuntimeError):
    """A kernel refused its arguments and changed nothing."""

    def __init__(self, kernel: str, status: int) -> None:
        super().__init__(f"The kernel '{kernel}' refused its arguments with status {status}.")
        self.status = status


class _Library(NamedTuple):
    path: Path | None
    handle: ctypes.CDLL | None
    reason: str


@functools.lru_cache(maxsize=1)
def _library() -> _Library:
    path = _FOLDER / "_kernels.so"
    if not path.exists():
        note = _FOLDER / "_kernels.txt"  # written by setup.py where it could not build the library
        why = note.read_text(encoding="utf-8").strip() if note.exists() else f"there is no {path}"
        return _Library(None, None, f"the kernel library was not built: {why}")
    try:
        return _Library(path, ctypes.CDLL(str(path)), "")
    except OSError as error:
        return _Library(None, None, f"the kernel library does not load: {error}")


def library_path() -> str:
    """Path of the kernel library; empty if there is none that loads."""
    return str(_library().path or "")


def why_not() -> str:
    """Why native kernels cannot run here and now; empty if they can."""
    if _library().reason:
        return _library().reason
    device = ms.get_context("device_target")
    return "" if device == "CPU" else f"native kernels run on the CPU, and the device target is {device}"


def choose_backend(backend: str, cls_name: str) -> str:
    """The backend to use, ``"native"`` or ``"composite"``, for what the user asked for."""
    if backend not in ("auto", "native", "composite"):
        raise ValueError(
            f"For '{cls_name}', 'backend' must be one of 'auto', 'native', 'composite', but got {backend!r}."
        )
    reason = why_not()
    if backend == "native" and reason:
        raise RuntimeError(f"For '{cls_name}', backend='native' cannot be had: {reason}.")
    if backend == "auto":
        return "composite" if reason else "native"
    return backend


def custom(function: str, out_shapes: Callable[..., Any], out_types: Any) -> ops.Custom:
    """The custom operator of a kernel, for compiled graphs. It may write into the Parameters that it takes.

    Args:
        function (str): Name of the kernel.
        out_shapes (Callable): From the inputs' shapes to the output's shape, or a tuple of shapes.
        out_types (Union[mindspore.dtype, tuple[mindspore.dtype]]): The output's dtype, or a tuple of dtypes.
    """
    operator = ops.Custom(f"{_library().path}:{function}", out_shapes, lambda *_: out_types, func_type="aot")
    operator.add_prim_attr("side_effect_mem", True)
    # MindSpore caches what it infers by an operator's name, attributes and inputs; ours depends on more than these.
    operator.add_prim_attr("instance", next(_instances))
    return operator


class DirectCall:
    """Calls a kernel on addresses, with no MindSpore in between.

    Not safe for threads: the caller holds the lock of the buffer that owns this object.

    Args:
        function (str): Name of the kernel.
        shapes (Sequence[tuple[int, ...]]): Shape of every argument, inputs first, then outputs.
        dtypes (Sequence[str]): Dtype of every argument as the kernels spell it, for example ``"float32"``.
    """

    def __init__(self, function: str, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> None:
        size = len(shapes)
        self._name = function
        self.addresses = (ctypes.c_void_p * size)()
        self._shapes = [(ctypes.c_int64 * max(len(shape), 1))(*shape) for shape in shapes]
        pointers = (ctypes.POINTER(ctypes.c_int64) * size)(
            *(ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)) for shape in self._shapes)
        )
        self._call = functools.partial(
            getattr(_library().handle, function),
            ctypes.c_int(size),
            self.addresses,
            (ctypes.c_int * size)(*(len(shape) for shape in shapes)),
            pointers,
            (ctypes.c_char_p * size)(*(dtype.encode() for dtype in dtypes)),
            None,
            None,
        )

    def set_leading(self, arguments: range, n: int) -> None:
        """Sets the first axis of these arguments to ``n``."""
        for i in arguments:
            self._shapes[i][0] = n

    def __call__(self) -> None:
        status = self._call()
        if status != OK:
            raise KernelError(self._name, status)
