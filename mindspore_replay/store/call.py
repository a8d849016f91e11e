"""Calls kernels on host memory."""

import ctypes
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from . import library
from .signatures import Signature


class Array(NamedTuple):
    """An argument of a kernel.

    Args:
        shape (tuple[int, ...]): Its shape, or that of the first call.
        dtype (str): Its dtype, as the kernels spell it.
        memory (Union[numpy.ndarray, None]): The array itself; ``None`` if it is bound later.
    """

    shape: tuple[int, ...]
    dtype: str
    memory: np.ndarray | None = None


def kept(array: np.ndarray) -> Array:
    """Return an argument that is always this array."""
    return Array(array.shape, array.dtype.name, array)


class Tensors(NamedTuple):
    """The Tensors of a framework, which calls take and give besides arrays; by default there are none.

    Args:
        kind (Union[type, None]): Their class.
        share (Union[Callable, None]): Makes one that shares the memory of an array.
        address_of (Union[Callable, None]): Returns the address of one.
        int64 (Any): The dtype of handles.
        float32 (Any): The dtype of priorities.
        guard (Union[Guard, None]): Held by calls that lock by themselves, an object of csrc/python/guard.h.
    """

    kind: type | None = None
    share: Callable[[np.ndarray], Any] | None = None
    address_of: Callable[[Any], int] | None = None
    int64: Any = None
    float32: Any = None
    guard: Any = None


#: Those of a store without a framework.
NO_TENSORS = Tensors()


class Call:
    """A kernel and its arguments, which are bound by name.

    Not thread-safe: the caller holds the lock of the buffer that owns this object.

    Args:
        operator (str): Name of the operator.
        groups (Collection[str]): The optional groups of state that the buffer has.
        arguments (Mapping[str, Union[Array, Sequence[Array]]]): The arguments; a sequence of arrays for columns, rows
            and outputs. An array that is not given is bound later, with the signature's dtype.
    """

    def __init__(self, operator: str, groups: Collection[str], arguments: Mapping[str, Any]) -> None:
        signature: Signature = library.table("CPU")[1][operator]
        self._kernel = signature.kernel
        self._places: dict[str, range] = {}
        arrays: list[Array] = []
        for item in signature.present(groups):
            given = arguments.get(item.name, Array((1,), item.dtype))
            these = [given] if isinstance(given, Array) else list(given)
            self._places[item.name] = range(len(arrays), len(arrays) + len(these))
            arrays += these
        self._kept = [array.memory for array in arrays]  # keeps their addresses valid
        self._size = size = len(arrays)
        self._shapes = [(ctypes.c_int64 * max(len(array.shape), 1))(*array.shape) for array in arrays]
        addresses = (array.memory.ctypes.data if array.memory is not None else None for array in arrays)
        pointers = (ctypes.c_void_p * size)(*map(ctypes.addressof, self._shapes))
        ndims = (ctypes.c_int * size)(*(len(array.shape) for array in arrays))
        names = (ctypes.c_char_p * size)(*(array.dtype.encode() for array in arrays))
        self._arguments: tuple[Any, ...] = (ctypes.c_void_p * size)(*addresses), ndims, pointers, names
        kernel = _kernel(self._kernel)
        #: The kernel with its arguments, an object of csrc/python/call.h.
        params, ndims_at, shapes_at, dtypes_at = (ctypes.addressof(array) for array in self._arguments)
        owned = self._kept, self._shapes, self._arguments
        self.direct: Any = library.calls.Call(kernel, size, params, ndims_at, shapes_at, dtypes_at, owned)
        self._run, self._locate = self.direct.run, self.direct.locate

    def bind(self, name: str, *arrays: Any) -> None:
        """Bind contiguous arrays to an argument, one for each column; they must stay alive until the call is over."""
        self._locate(self._places[name].start, arrays)

    def set_leading(self, name: str, n: int) -> None:
        """Set the first axis of an argument, for all columns alike."""
        place = self._places[name]
        if self._shapes[place.start][0] != n:
            for i in place:
                self._shapes[i][0] = n

    def bind_vector(self, name: str, vector: Any) -> None:
        """Bind a contiguous vector, ``[]`` or ``[n]``, to an argument."""
        self._locate(self._places[name].start, (vector,))
        self.set_leading(name, vector.size)

    def let_arrays_go(self) -> None:
        """Hold the arrays no longer: the caller makes sure that their memory stays."""
        self._kept.clear()

    def raw(self) -> tuple[Any, ...]:
        """Return the arguments as the kernels' interface has them: number, addresses, ranks, shapes and dtypes."""
        return self._size, *self._arguments

    def check(self, status: int) -> None:
        """Raise a KernelError for a status other than success."""
        if status != library.OK:
            raise library.KernelError(self._kernel, status)

    def __call__(self) -> None:
        """Call the kernel.

        Raises:
            KernelError: If the kernel failed; then it changed nothing.
        """
        status = self._run()
        if status != library.OK:
            raise library.KernelError(self._kernel, status)

    def changing(self, count: np.ndarray, tensors: Tensors, **inputs: tuple[type, Any]) -> Callable[..., Any]:
        """Return a function that calls the kernel with vectors ``[n]`` and returns the number that it writes.

        Args:
            count (numpy.ndarray): Where the kernel writes its number.
            tensors (Tensors): The Tensors that it takes.
            inputs (tuple[type, Any]): For each vector an array's dtype and a Tensor's.

        Returns:
            Callable: ``(*vectors)``, which returns an array ``[]``; an int if the vectors have to be converted first,
            or the kernel failed. Then nothing has changed.
        """
        vectors = tuple((self.place(name), *types) for name, types in inputs.items())
        kind, address_of = tensors.kind, tensors.address_of
        return library.calls.Change(tensors.guard, self.direct, count, vectors, kind, address_of).now

    def place(self, name: str) -> int:
        """Return the place of an argument, or of its first column; -1 if the kernel has none of this name."""
        return self._places[name].start if name in self._places else -1

    def giving(
        self,
        name: str,
        outputs: Iterable[tuple[tuple[int, ...], np.dtype[Any]]],
        share: Callable[[np.ndarray], Any] | None,
        guard: Any = None,
    ) -> Callable[[int], Any]:
        """Return a function that calls the kernel with new arrays for an argument, one for each column.

        Args:
            name (str): The argument.
            outputs (Iterable): Shape and dtype of each column.
            share (Union[Callable, None]): Converts the arrays. ``None`` returns them.
            guard (Union[Guard, None]): Held during the call, an object of csrc/python/guard.h.

        Returns:
            Callable: ``(skip)``, which returns a tuple of the columns without the first `skip`, or the status of a
            kernel that failed.
        """
        made = tuple(library.calls.Output(shape, dtype) for shape, dtype in outputs)
        return library.calls.Give(guard, self.direct, self.place(name), made, share).now


@functools.lru_cache
def _kernel(name: str) -> int:
    address = ctypes.cast(getattr(library.library_for("CPU").handle, name), ctypes.c_void_p).value
    assert address is not None
    return address
