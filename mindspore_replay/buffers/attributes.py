"""Attributes that the methods of a buffer use."""

from typing import Any

from mindspore import Parameter, Tensor

from ..columns import Columns
from ..ops.operators import Operators
from ..store.options import Options
from .layout import SampleLayout


class Attributes:
    """The attributes that `Buffer` sets."""

    sample_size: int
    capacity: int
    num_envs: int
    max_use: int | None
    backend: str
    columns: Columns
    layout: SampleLayout
    options: Options
    weighted: bool
    has_handles: bool
    prioritized: bool
    has_episodes: bool
    limiter: Any
    head: Parameter
    clock: Parameter
    _bookkeeping: tuple[str, ...]
    #: How many columns there are.
    _width: int
    _lock: Any
    #: What calls from Python do: a `Store` on the Parameters' own memory, or compiled graphs.
    _calls: Any
    #: Whether it is a store.
    _direct: bool
    #: The operators of compiled graphs.
    _graph: Operators
    #: Gives samples drawn from Python the rewards for other goals, where they have some.
    _finish_now: Any
    _zero: Tensor
    _flag_values: tuple[Tensor, ...]

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, or ``None`` if the buffer was made without."""
        return self.columns.given_names

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of one row of each column."""
        return self.columns.shapes

    @property
    def types(self) -> tuple[Any, ...]:
        """MindSpore dtype of each column."""
        return self.columns.types

    def _size_graph(self):
        return self._graph.state.count + self._zero
