"""The Cells whose states are saved, and their Parameters as arrays."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from mindspore import Parameter, nn

from ..buffers.base import Buffer
from ..buffers.mixed import MixedReplay
from ..buffers.parameters import is_on_host, overwrite, times_loaded
from ..columns import numpy_type, type_name
from ..ops.eager import wait_for_work
from .parts import Part, Plain


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
    def loads(self) -> int:
        """Calls of ``set_data``."""
        return times_loaded(self.parameter)

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


class CellPart(Part):
    """A Cell whose own state is saved: a buffer, a `MixedReplay` without its sources, or the weights of a network."""

    def state(self) -> dict[str, Any]:
        """Return the Parameters of the state, and compressed columns, by name."""
        parameters = {key: Held(parameter) for key, parameter in self.owner.state_parameters().items()}
        if not isinstance(self.owner, Buffer):
            return parameters
        names = zip(self.owner.columns.compressed, self.owner.compressed.items())
        columns = {key: Plain(column, self.owner.columns.stored_dtypes[i]) for i, (key, column) in names}
        return parameters | columns

    def updates(self) -> np.ndarray:
        """Return the numbers of updates; a part without rows has none."""
        return self.owner.updates.asnumpy() if self.is_buffer else super().updates()


def parts_of(function: str, buffers: Any) -> list[CellPart]:
    """Return the parts of a buffer, a `MixedReplay`, or a dict or list of them."""
    cells = list(_cells(function, buffers))
    if len({id(cell) for cell in cells}) < len(cells):
        raise ValueError(f"For '{function}', 'buffer' must hold each buffer once, but one comes twice.")
    if cells == [buffers] and isinstance(buffers, Buffer):
        return [CellPart("", buffers, True)]
    return [CellPart(f"{i}.", cell, isinstance(cell, Buffer)) for i, cell in enumerate(cells)]


def _cells(function: str, buffers: Any) -> Iterator[Any]:
    if isinstance(buffers, Buffer):
        yield buffers
    elif isinstance(buffers, MixedReplay):
        yield buffers
        yield from buffers.sources
    elif isinstance(buffers, (Mapping, nn.CellList)) and len(buffers) > 0:
        for name in buffers if isinstance(buffers, Mapping) else ():
            if not isinstance(name, str):
                raise TypeError(f"For '{function}', the keys of 'buffer' must be strings, but got {name!r}.")
        for part in buffers.values() if isinstance(buffers, Mapping) else buffers:
            yield from _cells(function, part)
    else:
        raise TypeError(
            f"For '{function}', 'buffer' must be a buffer, a MixedReplay, or a dict or CellList of them, but got "
            f"{type(buffers).__name__}."
        )
