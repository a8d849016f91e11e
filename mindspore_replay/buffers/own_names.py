"""Cells that keep names and dtypes of their own."""

from collections.abc import Iterator
from typing import Any

from mindspore import Parameter, nn

#: What MindSpore marks a Cell with, and all Cells in it, whose operators are to compute in another dtype.
_PRECISIONS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


class OwnNames:
    """A Cell whose Parameters keep their names and dtypes in any owner.

    A checkpoint names the Parameters as the Cell calls them itself, and mixed precision of its owner, by ``to_float``
    or ``amp``, casts nothing in it. It is true even where its length is 0.
    """

    def add_flags(self: Any, **flags: Any) -> Any:
        """Add flags as ``nn.Cell.add_flags`` does, without those of mixed precision."""
        columns = getattr(self, "columns", None)
        for flag, dtype in _PRECISIONS.items():
            if flags.pop(flag, False) and columns is not None:
                columns.owner_dtype = dtype
        return nn.Cell.add_flags(self, **flags)

    def _len_graph(self):
        raise RuntimeError("'len' of a buffer is for Python alone: in a graph its 'size' is a Tensor.")

    def __bool__(self) -> bool:
        return True

    def parameters_and_names(self: Any, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Iterate over the Parameters; each has the name given here while it is looked at."""
        for key, parameter in nn.Cell.parameters_and_names(self, name_prefix, expand):
            name, parameter.name = parameter.name, key
            try:
                yield key, parameter
            finally:
                if parameter.name == key:
                    parameter.name = name
