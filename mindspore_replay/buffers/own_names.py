"""Base class of Cells that keep names and dtypes independent of their owner."""

from collections.abc import Iterator
from typing import Any

from mindspore import Parameter, nn

#: Flags that mixed precision sets on a Cell and all its sub-cells, with the dtype that operators then compute in.
_PRECISIONS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


class OwnNames:
    """A Cell whose Parameters keep their names and dtypes in any owner.

    A checkpoint uses the Cell's own names for its Parameters, and mixed precision of its owner, by ``to_float`` or
    ``amp``, does not cast its data. ``bool`` of it is True even if its length is 0.
    """

    def add_flags(self: Any, **flags: Any) -> Any:
        """Add flags as ``nn.Cell.add_flags`` does, except those of mixed precision."""
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
        """Iterate over the Parameters, each of which has the yielded name during its iteration."""
        for key, parameter in nn.Cell.parameters_and_names(self, name_prefix, expand):
            name, parameter.name = parameter.name, key
            try:
                yield key, parameter
            finally:
                if parameter.name == key:
                    parameter.name = name
