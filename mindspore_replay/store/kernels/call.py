"""Calls kernels on host memory."""

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..base.length_groups import LengthGroup, arguments_of
from ..base.schema import DTYPES
from . import library
from .signatures import ROWS, Signature


class Array(NamedTuple):
    """An argument of a kernel.

    Args:
        shape (tuple[int, ...]): Its shape, or that of the first call.
        dtype (str): Its dtype, as the kernels spell it.
        memory (Union[numpy.ndarray, None]): The array itself, or ``None`` if each call has its own.
    """

    shape: tuple[int, ...]
    dtype: str
    memory: np.ndarray | None = None


def fixed(array: np.ndarray) -> Array:
    """Return an argument that is always this array."""
    return Array(array.shape, array.dtype.name, array)


#: The arrays of a state as arguments of kernels; the columns are a list.
State = Mapping[str, Array | list[Array]]


class Tensors(NamedTuple):
    """The Tensors of a framework, which calls accept and return besides arrays. By default there are none.

    Args:
        cls (Union[type, None]), address_of (Union[Callable, None]): Their class, and a function for the address of one.
        share (Union[Callable, None]): Makes one that shares the memory of an array.
        dtypes (Mapping[str, Any]): Their dtypes by name.
        guard (Union[Guard, None]): Held by calls that lock by themselves, an object of csrc/python/guard.h.
    """

    cls: type | None = None
    share: Callable[[np.ndarray], Any] | None = None
    address_of: Callable[[Any], int] | None = None
    dtypes: Mapping[str, Any] = MappingProxyType({})
    guard: "library.calls.Guard | None" = None


#: Those of a store without a framework.
NO_TENSORS = Tensors()
_NAMES = {name: name.encode() for name in DTYPES}  # each at one address, which kernels compare first


class Call:
    """A kernel and its arguments, for the objects of csrc/python.

    Args:
        operator (str): Name of the operator.
        groups (Collection[str]): The optional groups of state that the buffer has.
        arguments (Mapping[str, Union[Array, Sequence[Array]]]): The arguments. A sequence of arrays for columns,
            rows and outputs. For an array that is left out, each call has its own, of the signature's dtype.
        length_groups (Sequence[LengthGroup]): The columns whose rows differ in length: their items are arguments,
            and ``"lengths"``, int32, come before the rows. Default: ``()``.
        fields (Sequence[int]): The columns of the rows, as for `arguments_of`. Default: ``()``.
    """

    def __init__(
        self,
        operator: str,
        groups: Collection[str],
        arguments: Mapping[str, Any],
        length_groups: Sequence[LengthGroup] = (),
        fields: Sequence[int] = (),
    ) -> None:
        signature: Signature = library.table("CPU")[1][operator]
        self._places: dict[str, int] = {}
        arenas = [arguments[f"items.{name}"] for group in length_groups for name in group.names]
        plan = Array((), "int64")
        arrays: list[Array] = [plan, arguments["head"], arguments["random_state"], *arenas] if length_groups else []
        for item in signature.present(groups):
            if length_groups and item.name == ROWS:
                arrays[0] = fixed(arguments_of(length_groups, fields, len(arrays) - 3 - len(arenas)))
                self._places["lengths"] = len(arrays)
                arrays += [Array((1,), "int32")] * len(length_groups)
            argument = arguments.get(item.name, Array((1,), item.dtype))
            these = [argument] if isinstance(argument, Array) else list(argument)
            self._places[item.name] = len(arrays)
            arrays += these
        self._kept = [array.memory for array in arrays]  # keeps their addresses valid
        self._size = size = len(arrays)
        shapes = [(ctypes.c_int64 * (len(array.shape) or 1))(*array.shape) for array in arrays]
        addresses = [None if array is None else array.ctypes.data for array in self._kept]
        pointers = (ctypes.c_void_p * size)(*map(ctypes.addressof, shapes))
        ndims = (ctypes.c_int * size)(*map(len, [array.shape for array in arrays]))
        names = (ctypes.c_char_p * size)(*[_NAMES[array.dtype] for array in arrays])
        self._arguments: tuple[Any, ...] = (ctypes.c_void_p * size)(*addresses), ndims, pointers, names
        self._shapes = shapes
        kernel = library.address_of(f"{signature.kernel}_items" if length_groups else signature.kernel)
        #: The kernel with its arguments, an object of csrc/python/call.h.
        params, ndims_at, shapes_at, dtypes_at = [ctypes.addressof(array) for array in self._arguments]
        owned = self._kept, shapes, self._arguments
        self.direct = library.calls.Call(kernel, size, params, ndims_at, shapes_at, dtypes_at, owned)

    def let_arrays_go(self) -> None:
        """Drop the references to the arrays: the caller keeps their memory."""
        self._kept.clear()

    def give(self, place: int, array: np.ndarray) -> None:
        """Take an argument of the next call, whose shape has the same axes behind the first. The caller keeps it."""
        self._arguments[0][place] = array.__array_interface__["data"][0]
        self._shapes[place][0] = len(array)

    def raw(self) -> tuple[Any, ...]:
        """Return the arguments as the kernels' interface has them: number, addresses, ranks, shapes and dtypes."""
        return self._size, *self._arguments

    def place(self, name: str) -> int:
        """Return the place of an argument, or of its first column, or -1 if the kernel has none of this name."""
        return self._places.get(name, -1)
