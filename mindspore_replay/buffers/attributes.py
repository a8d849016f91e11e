"""Attributes of a buffer for the classes that contain its methods."""

from typing import Any

from mindspore import Parameter, Tensor

from ..columns import Columns
from ..store.compressed import CompressedColumn
from ..store.locks import FolderLock
from ..store.options import Options
from ..store.recipe.layout import SampleLayout
from ..store.recipe.spec import BufferSpec
from .front import BufferFront


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
    spec: BufferSpec
    weighted: bool
    has_handles: bool
    prioritized: bool
    has_episodes: bool
    limiter: Any
    head: Parameter
    clock: Parameter
    #: Eligible rows with which a sample succeeds.
    _min_rows_to_sample: int
    #: Number of columns.
    _late: tuple[int, ...]
    _present: tuple[int, ...]
    _lock: Any
    _outer_lock: FolderLock
    #: The compressed columns, by their names in the state.
    compressed: dict[str, CompressedColumn]
    #: Runs calls from Python: a `Store` on the Parameters' own memory, or `CompiledCalls`.
    _calls: Any
    _try_insert: Any
    #: What calls from Python do with it.
    _front: BufferFront
    #: True if it is a `Store`.
    _direct: bool
    #: Files that hold the rows; ``None`` for memory.
    _folder: Any
    #: The buffers on the same rows, which are closed together.
    _on_these_rows: Any
    #: The operators of compiled graphs.
    _graph: Any
    #: Computes the rewards of relabelled samples drawn from Python, if there are any.
    _relabel: Any
    _zero: Tensor
    _flag_values: tuple[Tensor, ...]

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns; ``None`` if the buffer has no names."""
        return self.columns.given_names

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of one row of each column."""
        return self.columns.shapes

    @property
    def types(self) -> tuple[Any, ...]:
        """MindSpore dtype of each column."""
        return self.columns.types

    @property
    def achieved_goal(self) -> str | None:
        """Column of the goals achieved, in the state after an action, if samples get other goals."""
        return self.spec.achieved_goal

    def _size_graph(self):
        return self._graph.count() + self._zero

    def _stored_graph(self):
        """Return what stands for the buffer in a graph, where a method cannot return it.

        A tuple has no method by the name of one of a buffer's, so that a chained call stops the compiler; a Tensor has
        `add`.
        """
        return (self._size_graph(),)
