"""Columns of a buffer with MindSpore's dtypes, and those of their Parameters."""

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from .store.base.schema import DTYPES, Schema, type_name

#: The dtypes allowed for a column, by name.
TYPES: dict[str, Any] = {name: getattr(ms, "bool_" if name == "bool" else name) for name in DTYPES}

_BFLOAT16 = Tensor([0.0], ms.bfloat16).asnumpy().dtype  # NumPy has none; MindSpore registers its own


def numpy_type(dtype: object) -> np.dtype:
    """Return the NumPy dtype for a MindSpore dtype, or for its name."""
    name = type_name(dtype)
    return _BFLOAT16 if name == "bfloat16" else np.dtype(name)


class Columns(Schema):
    """Names, shapes and dtypes of the columns of a buffer. Arguments and errors are those of `Schema`."""

    numpy_type = staticmethod(numpy_type)

    @property
    def types(self) -> tuple[Any, ...]:
        """MindSpore dtype of each column."""
        return tuple(TYPES[name] for name in self.dtypes)

    @property
    def stored_types(self) -> tuple[Any, ...]:
        """MindSpore dtype of each column's Parameter."""
        return tuple(TYPES[name] for name in self.stored_dtypes)

    def check_composite(self) -> None:
        """Raise a TypeError if MindSpore's own operators cannot store a column."""
        wrong = [self._label(i) for i, dtype in enumerate(self.dtypes) if dtype == "bfloat16"]
        if wrong:
            raise TypeError(
                f"For '{self.cls_name}', {', '.join(wrong)} is bfloat16, which MindSpore's operators neither "
                "scatter nor gather: the composite backend cannot store it. Use float16, or native on a CPU."
            )
