"""The parts of a file, each with arrays of its own, and an array in host memory as one of them."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..store.state import is_by_slot


@dataclass(frozen=True)
class Plain:
    """An array of a state, in host memory.

    Args:
        array (Any): The array, or a `CompressedColumn`.
        dtype (str): Name of its dtype in files.
    """

    array: Any
    dtype: str

    #: Calls of ``set_data``, which only Parameters have; and whether `asnumpy` is the memory of the state itself.
    loads: ClassVar[int] = 0
    in_memory: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def numpy_type(self) -> np.dtype[Any]:
        """NumPy dtype of the array."""
        return self.array.dtype  # type: ignore[no-any-return]

    def asnumpy(self) -> np.ndarray:
        """Return the array."""
        return self.array  # type: ignore[no-any-return]

    def overwrite(self, array: np.ndarray | np.generic) -> None:
        """Overwrite the array with values of the same shape and dtype."""
        self.array[...] = array


class Part(NamedTuple):
    """An object whose own state is saved.

    Args:
        prefix (str): Prefix of the names of its arrays.
        owner (Any): The object, whose `state_arrays` returns the arrays by name.
        is_buffer (bool): Whether it has rows. Default: ``False``.
    """

    prefix: str
    owner: Any
    is_buffer: bool = False

    def state(self) -> dict[str, Any]:
        """Return the arrays of the state by name, each a `Plain` or with its methods."""
        return self.owner.state_arrays()  # type: ignore[no-any-return]

    def updates(self) -> np.ndarray:
        """Return the numbers of updates; a part without rows has none."""
        return self.owner.updates if self.is_buffer else np.zeros(1, np.int64)

    def row_keys(self) -> set[str]:
        """Return the keys of the arrays with one row a slot."""
        return {key for key in self.state() if self.is_buffer and is_by_slot(key)}
