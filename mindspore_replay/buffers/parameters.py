"""The Parameters of a buffer's state: how they are made, overwritten and loaded."""

import weakref
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops
from mindspore.common.initializer import Zero

from ..columns import TYPES, numpy_type, type_name
from ..ops import native
from ..ops.eager import wait_for_work
from ..store.base.types import Values

#: Bytes of an array that is copied at first: MindSpore needs 100 us less for that than to make zeros.
_MOST_COPIED = 1 << 16


def state_parameter(name: str, value: object) -> Parameter:
    """Make a Parameter that no optimizer touches."""
    return Parameter(Tensor(value), name=name, requires_grad=False)


def parameter_on(name: str, array: np.ndarray, on_host: bool = False) -> Parameter:
    """Make a Parameter that no optimizer touches, on the CPU in the memory of this array, with `on_host` always."""
    if array.nbytes <= _MOST_COPIED:
        first = Tensor(array)
    else:
        first = Tensor(shape=array.shape, dtype=TYPES[type_name(array.dtype)], init=Zero())
    parameter = Parameter(first, name=name, requires_grad=False)
    parameter.set_data(ms.from_numpy(array))
    parameter.on_host = on_host
    load_in_place(parameter)
    return parameter


def is_on_host(parameter: Parameter) -> bool:
    """Return True if the Parameter's own memory is that of the host, so that ``asnumpy()`` is a view of it."""
    return native.on_cpu() or getattr(parameter, "on_host", False)


def load_in_place(parameter: Parameter) -> None:
    """Make ``set_data``, which loads checkpoints, write to the existing memory.

    MindSpore would move the Parameter to new memory, which neither kernels called from Python nor a compiled graph
    would use.
    """
    reference = weakref.ref(parameter)

    def set_data(data: Values, slice_shape: bool = False) -> Parameter:
        parameter: Any = reference()
        value = data if isinstance(data, Tensor) else Tensor(data, parameter.dtype)
        if value.shape != parameter.shape:
            raise ValueError(
                f"For 'set_data', the data of {parameter.name!r} must have shape {tuple(parameter.shape)}, but got "
                f"{tuple(value.shape)}."
            )
        wait_for_work()
        overwrite(parameter, (value if value.dtype == parameter.dtype else value.astype(parameter.dtype)).asnumpy())
        return parameter

    parameter.set_data = set_data


def refuse_loads(parameter: Parameter, cls_name: str, folder: Path) -> None:
    """Make ``set_data`` an error: in a folder, rows that replace others get new serial numbers."""

    def set_data(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(
            f"For '{cls_name}', {parameter_name!r} is in the folder {folder}, where only a whole state can be loaded: "
            "call the buffer's load_state_dict, or load(path, buffer=buffer) for a file of save."
        )

    parameter_name, parameter.set_data = parameter.name, set_data


def overwrite(parameter: Parameter, array: np.ndarray | np.generic) -> None:
    """Overwrite a Parameter with values of the same shape and dtype."""
    if is_on_host(parameter):
        parameter.asnumpy()[...] = array
    else:
        data = Tensor(np.asarray(array, numpy_type(parameter.dtype)))
        if parameter.dtype == ms.bfloat16:  # MindSpore's operator does not support it
            Parameter.set_data(parameter, data)
        else:
            ops.assign(parameter, data)


class Held(NamedTuple):
    """A Parameter as an array of a state, with the methods of `Plain`."""

    parameter: Parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the Parameter."""
        return tuple(self.parameter.shape)

    @property
    def dtype(self) -> str:
        """Name of its dtype in files."""
        return type_name(self.parameter.dtype)

    @property
    def numpy_type(self) -> np.dtype[Any]:
        """NumPy dtype of `asnumpy`."""
        return numpy_type(self.parameter.dtype)

    @property
    def in_memory(self) -> bool:
        """True if `asnumpy` is the memory of the Parameter itself."""
        return is_on_host(self.parameter)

    def asnumpy(self) -> np.ndarray:
        """Return the value, after work in flight is done."""
        wait_for_work()
        return self.parameter.asnumpy()

    def overwrite(self, array: np.ndarray | np.generic) -> None:
        """Overwrite the Parameter with values of the same shape and dtype, after work in flight is done."""
        wait_for_work()
        overwrite(self.parameter, array)
