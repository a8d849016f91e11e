"""Finds and loads the kernel library, or says why it cannot be had."""

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from mindspore._c_expression import TensorPy

#: The module of csrc/calls.cc, or ``None`` where it could not be built, for which it takes Python's headers.
try:
    from .. import _calls as extension
except ImportError:
    extension = None  # type: ignore[assignment]

#: What a kernel returns when it has done its work, found too few rows, a position without a row, a priority that cannot
#: be, or an episode too long; csrc/status.h has the others.
OK, TOO_FEW_ROWS, OUT_OF_RANGE, BAD_WEIGHT, TOO_LONG = 0, 2, 3, 4, 5

#: What it found, in words.
_FAILURES = {
    TOO_FEW_ROWS: "fewer rows are eligible than a sample needs",
    OUT_OF_RANGE: "an index is out of range: no row is stored there",
    BAD_WEIGHT: "a priority, weight or beta is negative, NaN or infinite, or beyond its range",
    TOO_LONG: "an episode would have more rows than it may have",
}

_instances = itertools.count()


def _host_address(tensor: Tensor) -> int:
    return tensor.asnumpy().ctypes.data


#: The address of a Tensor's memory on the CPU. MindSpore 2.7 knows none before a graph has used the Tensor.
address = _host_address if ms.__version__.startswith("2.7") else TensorPy._data_ptr


def is_vector(value: Any, dtype: Any, numpy_dtype: np.dtype[Any]) -> bool:
    """Whether a kernel can read a Tensor or array where it lies, as ``[n]`` of this dtype, n at least 1."""
    if type(value) is np.ndarray:
        return value.dtype == numpy_dtype and value.ndim == 1 and value.size > 0 and value.flags.c_contiguous
    if type(value) is not Tensor or value.dtype is not dtype or value.has_init or not value.is_contiguous():
        return False
    return len(value.shape) == 1 and value.shape[0] > 0


_FOLDER = Path(__file__).resolve().parent.parent


class KernelError(RuntimeError):
    """A kernel refused its arguments, or found that it could not do its work. It changed nothing."""

    def __init__(self, kernel: str, status: int) -> None:
        did = "failed" if status in _FAILURES else "refused its arguments"
        why = f": {_FAILURES[status]}" if status in _FAILURES else ""
        super().__init__(f"The kernel '{kernel}' {did} with status {status}{why}.")
        self.status = status


class _Library(NamedTuple):
    path: Path | None
    handle: ctypes.CDLL | None
    reason: str


#: Name of the kernel library for each device target that has one.
_NAMES = {"CPU": "_kernels", "GPU": "_kernels_cuda"}


@functools.lru_cache
def _library_for(device: str) -> _Library:
    if device not in _NAMES:
        reason = f"native kernels run on CPU and GPU, and the device target is {device}, where nothing has been run"
        return _Library(None, None, reason)
    library = "the kernel library" if device == "CPU" else "the CUDA kernel library"
    path = _FOLDER / f"{_NAMES[device]}.so"
    if not path.exists():
        note = path.with_suffix(".txt")  # written by setup.py where it could not build the library
        why = note.read_text(encoding="utf-8").strip() if note.exists() else f"there is no {path}"
        return _Library(None, None, f"{library} was not built: {why}")
    try:
        return _Library(path, ctypes.CDLL(str(path)), "")
    except OSError as error:
        return _Library(None, None, f"{library} does not load: {error}")


def _library() -> _Library:
    """The library for the current device target."""
    return _library_for(ms.get_context("device_target"))


def host_memory() -> bool:
    """Whether Parameters lie in the host's memory, so that Python and kernels called from it may read and write there.

    Elsewhere ``asnumpy()`` is a copy, an address means nothing to Python, and kernels run in compiled graphs only.
    """
    return ms.get_context("device_target") == "CPU"


def direct_calls(backend: str) -> bool:
    """Whether calls from Python run the kernels on the memory of a buffer of this backend, with no graph in between."""
    return backend == "native" and host_memory()


def library_path() -> str:
    """Path of the kernel library for the current device target; empty if there is none that loads."""
    return str(_library().path or "")


def why_not(device: str | None = None) -> str:
    """Why native kernels cannot run on a device target, by default the current one; empty if they can.

    Whether there is such a device is for MindSpore to say.
    """
    return (_library() if device is None else _library_for(device)).reason


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


class _CtypesCall:
    """What ``_calls.Call`` is, by ctypes: a kernel and the addresses of its arguments."""

    def __init__(
        self, kernel: int, size: int, params: int, ndims: int, shapes: int, dtypes: int,
        address_of: Callable[[Tensor], int],
    ) -> None:  # fmt: skip
        self._params = (ctypes.c_void_p * size).from_address(params)
        self._address_of_tensor = address_of
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 6)(kernel)
        self.run = functools.partial(function, size, params, ndims, shapes, dtypes, None, None)

    def locate(self, at: int, items: Sequence[Tensor | np.ndarray]) -> None:
        """Makes arguments from `at` on the memory of these Tensors and contiguous arrays."""
        self._params[at : at + len(items)] = list(map(self._address_of, items))

    def _address_of(self, item: Any) -> int:
        if isinstance(item, np.ndarray):
            if not item.flags.c_contiguous:
                raise ValueError("an array that is not contiguous")
            return item.ctypes.data
        address = self._address_of_tensor(item)
        if not address:
            raise ValueError("a Tensor that has no memory yet")
        return address


class DirectCall:
    """Calls a kernel on addresses in the host's memory, with no MindSpore in between.

    Not safe for threads: the caller holds the lock of the buffer that owns this object.

    Args:
        function (str): Name of the kernel.
        shapes (Sequence[tuple[int, ...]]): Shape of every argument, inputs first, then outputs.
        dtypes (Sequence[str]): Dtype of every argument as the kernels spell it, for example ``"float32"``.
    """

    def __init__(self, function: str, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> None:
        size = len(shapes)
        self._name = function
        self.addresses: Any = (ctypes.c_void_p * size)()
        self._shapes = [(ctypes.c_int64 * max(len(shape), 1))(*shape) for shape in shapes]
        pointers = (ctypes.POINTER(ctypes.c_int64) * size)(
            *(ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)) for shape in self._shapes)
        )
        ndims = (ctypes.c_int * size)(*(len(shape) for shape in shapes))
        names = (ctypes.c_char_p * size)(*(dtype.encode() for dtype in dtypes))
        self._arguments: tuple[Any, ...] = self.addresses, ndims, pointers, names
        kernel: Any = ctypes.cast(getattr(_library_for("CPU").handle, function), ctypes.c_void_p).value
        make: Any = extension.Call if extension else _CtypesCall
        call = make(kernel, size, *(ctypes.addressof(array) for array in self._arguments), address)
        #: `locate(at, items)`: arguments from `at` on are the memory of these Tensors and contiguous arrays, which come
        #: as a tuple or list. They have to live until the call is over.
        self.locate = call.locate
        self._run = call.run

    def set_leading(self, arguments: range, n: int) -> None:
        """Sets the first axis of these arguments to ``n``; they are always set together."""
        if self._shapes[arguments.start][0] != n:
            for i in arguments:
                self._shapes[i][0] = n

    def __call__(self) -> None:
        status = self._run()
        if status != OK:
            raise KernelError(self._name, status)


@contextlib.contextmanager
def kernels_kept_out(column: Tensor) -> Iterator[None]:
    """While it lasts no kernel runs on the buffer whose first column this is, in no thread.

    Only for the host's memory. In it no kernel may be called, and no work in flight waited for.
    """
    handle: Any = _library_for("CPU").handle
    place = ctypes.c_void_p(address(column))
    handle.replay_hold(place)
    try:
        yield
    finally:
        handle.replay_let_go(place)


def fails_later() -> bool:
    """Whether kernels find what is wrong with their data after the call has returned, as on a GPU.

    A call in a graph then ends well, changes nothing, and the graph can be called again. On the CPU it fails.
    """
    return hasattr(_library().handle, "replay_take_failure")


def _take_failure() -> tuple[str, int]:
    """Kernel and status of the first failure that nobody was told of yet; of work in flight nothing is known."""
    kernel = ctypes.c_char_p()
    handle: Any = _library().handle
    status = handle.replay_take_failure(ctypes.byref(kernel)) if fails_later() else OK
    return (kernel.value or b"?").decode(), status


def raise_earlier_failure() -> None:
    """Raises a RuntimeError if a kernel failed in a graph that ran before and nobody was told yet."""
    kernel, status = _take_failure()
    if status != OK:
        what = _FAILURES.get(status, f"it refused its arguments with status {status}")
        raise RuntimeError(
            f"The kernel '{kernel}' failed in a graph that ran before this call: {what}. That call of the kernel "
            "changed nothing and gave zeros."
        )


def raise_own_failure() -> None:
    """Raises a KernelError if a kernel has failed in the graph that was called last; that graph must be done."""
    kernel, status = _take_failure()
    if status != OK:
        raise KernelError(kernel, status)
