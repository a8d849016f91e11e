"""Types that annotations share: what users pass, and what they get."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike


class TensorLike(Protocol):
    """A Tensor of a framework, which `store` does not import."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""

    @property
    def dtype(self) -> object:
        """Its dtype, of the framework's own kind."""

    def asnumpy(self) -> np.ndarray:
        """Return its values."""


#: Numbers that users pass, such as handles, priorities, flags and rows of one column.
Values: TypeAlias = ArrayLike | TensorLike
#: Values in lists, tuples and dicts.
Nested: TypeAlias = "Values | Sequence[Nested] | Mapping[str, Nested]"
#: One row or a batch that users pass: the values of each column, in order or by name.
Experience: TypeAlias = Sequence[Nested] | Mapping[str, Nested]
#: What users get: an array, or a Tensor that shares its memory.
ArrayOrTensor: TypeAlias = np.ndarray | TensorLike
#: The outputs of a call.
Outputs: TypeAlias = tuple[ArrayOrTensor, ...]
#: A batch as users get it, a tuple or a dict by name.
Sample: TypeAlias = Outputs | dict[str, ArrayOrTensor]
#: The state of a buffer by name.
Arrays: TypeAlias = Mapping[str, np.ndarray]
