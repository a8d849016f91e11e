"""Batches from several buffers, in graphs too."""

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from ..ops.eager import give_graph_bodies
from ..ops.primitives import named_in_graph
from ..ops.statement_hook import statement_body
from ..store.base.nested import Step
from ..store.faces import mixture
from ..store.spec.registry import registered
from .compile_time import TENSOR, compile_time, stand_in
from .isolated_cell import IsolatedCell
from .storage import need_kernels


@registered
class MixedReplay(mixture.MixedReplay, IsolatedCell, nn.Cell):
    r"""Samples of several buffers, mixed in a fixed ratio.

    Insert rows into each buffer separately: a buffer of demonstrations then keeps its rows. The buffers' samples must
    have the same columns. Prioritized and uniform buffers can be combined; buffers of sequences or of episodes only
    with their own kind. For other ratios make another mixture of the same buffers.

    Axes: ``B`` sample_size, ``*F`` the shape of a column of the buffers' samples.

    Args:
        parts (Sequence[tuple[ReplayBuffer, float]]): Buffers, the sources 0, 1, ..., and their positive ratios. Their
            own `sample_size` is ignored.
        sample_size (int): ``B``, rows of a batch. Each source contributes its share, rounded down, at least one row.
            Source 0 also contributes the rest.

    Attributes:
        sources (tuple[ReplayBuffer]): The buffers.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the columns of two samples differ, two sources are the same buffer, a ratio is not positive, or a
            source would contribute no row.

    Examples:
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import MixedReplay, PrioritizedReplayBuffer, ReplayBuffer
        >>> agent = PrioritizedReplayBuffer(sample_size=4, capacity=100, shapes=[()], types=[ms.int32], seed=0)
        >>> expert = ReplayBuffer(sample_size=4, capacity=10, shapes=[()], types=[ms.int32], seed=0)
        >>> for buffer, first in (agent, 0), (expert, 1000):
        ...     buffer = buffer.insert([first + np.arange(10, dtype=np.int32)])
        >>> mixed = MixedReplay([(agent, 0.75), (expert, 0.25)], 4)
        >>> source, indices, weights, step = mixed.sample(with_indices=True)
        >>> print(source, indices, step)
        [0 0 0 1] [ 2  5  7 -1] [   2    5    7 1006]
        >>> print(mixed.update_priorities(source, indices, np.full(4, 0.5)))
        0
    """

    def __init__(self, parts: Sequence[tuple[Any, float]], sample_size: int) -> None:
        super().__init__(parts, sample_size)
        for i, buffer in enumerate(self.sources):
            if buffer.backend == "composite":
                need_kernels(type(self).__name__, f"source {i}", "a buffer with backend='composite'")
            self.insert_child_to_cell(f"source_{i}", buffer)  # setting it would rename its Parameters
        self._sources_of_rows = Tensor(self._source)
        self._no_handles = tuple(Tensor(np.full(n, -1), ms.int64) for n in self._counts)
        self._ones = tuple(Tensor(np.ones(n), ms.float32) for n in self._counts)
        self._with_handles, self._prioritized = zip(*((spec.has_handles, spec.prioritized) for spec in self._specs))
        self._zero, self._invalid, self._check_source = Tensor(0, ms.int32), Tensor(-1, ms.int64), ops.Assert()

    def state_dict(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """Copy the states of all sources, as NumPy arrays.

        With arguments, which MindSpore passes for an enclosing Cell, it is ``nn.Cell.state_dict``.

        Returns:
            dict[str, numpy.ndarray]: Copies, by name: ``source_0.head`` is `head` of source 0.
        """
        if args or kwargs:
            return nn.Cell.state_dict(self, *args, **kwargs)
        return super().state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: object, **kwargs: object) -> Any:
        """Load a state from `state_dict`. The same batches follow as after the copy.

        Args:
            state_dict (Mapping[str, numpy.ndarray]): The state of a mixture with sources of the same columns and
                capacities.
            args (Any): More arguments of ``nn.Cell.load_state_dict``, for a state of another origin.
            kwargs (Any): As `args`.

        Raises:
            ValueError: If a source's state does not fit. Nothing is changed then.

        Examples:
            >>> from mindspore_replay import MixedReplay, ReplayBuffer
            >>> buffers = [ReplayBuffer(1, 9, [()], ["int32"]).insert([list(range(9))]) for _ in range(2)]
            >>> mixed = MixedReplay([(buffers[0], 0.5), (buffers[1], 0.5)], sample_size=4)
            >>> state, first = mixed.state_dict(), mixed.sample()[1]
            >>> mixed.load_state_dict(state)
            >>> print(state["source_0.count"], (mixed.sample()[1] == first).all())
            9 True
        """
        if "source_0.version" not in state_dict:
            return nn.Cell.load_state_dict(self, state_dict, *args, **kwargs)
        return super().load_state_dict(state_dict)

    def _load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Load the sources' states from the ``state_dict`` of an enclosing Cell."""
        for i, buffer in enumerate(self.sources):
            arrays = buffer.state.completed(arrays, f"source_{i}.")
        self.load_state_dict(arrays)

    # What graphs compile.

    def _batch_of(self, i):
        """Return handles, importance weights and the other outputs of source i."""
        if self._with_handles[i]:
            batch = self._parts[i].sample(with_indices=True)
        else:
            batch = (self._no_handles[i], *self._parts[i].sample())
        return batch if self._prioritized[i] else (*batch[:1], self._ones[i], *batch[1:])

    def _sample_graph(self, *misplaced, as_dict=False, with_indices=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        batches = ()
        for i in range(len(self._parts)):
            batches = (*batches, self._batch_of(i))
        result = (self._sources_of_rows + self._zero,)
        for j in range(0 if with_indices else 2, len(batches[0])):
            column = ()
            for batch in batches:
                column = (*column, batch[j])
            result = (*result, ops.concat(column, 0))
        return named_in_graph(self._steps_of_names(with_indices), result) if as_dict else result

    @compile_time
    def _steps_of_names(self, with_indices: bool) -> tuple[Step, ...]:
        return self._names(with_indices).steps

    def _can_sample_graph(self):
        result = self._parts[0].can_sample()
        for i in range(1, len(self._parts)):
            result = ops.logical_and(result, self._parts[i].can_sample())
        return result

    def _update_priorities_graph(self, source, indices, priorities):
        owned, invalid = self._owned(source, indices), self._zero + 0
        for i in range(len(self._parts)):
            if self._prioritized[i]:
                invalid = invalid + self._parts[i].update_priorities(owned[i][0], priorities) - owned[i][1]
        return invalid

    def _update_rows(self, source, indices, values):
        owned, invalid = self._owned(source, indices), self._zero + 0
        for i in range(len(self._parts)):
            if self._with_handles[i]:
                invalid = invalid + self._parts[i].update(owned[i][0], values) - owned[i][1]
        return invalid

    _update_graph = statement_body(_update_rows)

    def _owned(self, source, indices):
        """Return for each source the handles, valid for its own rows alone, and how many are of others."""
        self._check_pairs((TENSOR, source.dtype, source.shape), (TENSOR, indices.dtype, indices.shape))
        ok, owned = ops.all(ops.logical_and(source >= 0, source < len(self._parts))), ()
        self._check_source(ok, (source,))
        for i in range(len(self._parts)):
            others = ops.logical_or(source != i, ops.logical_not(ok))  # an assertion does not stop what follows it
            handles = ops.select(others, self._invalid, ops.cast(indices, ms.int64))
            owned = (*owned, (handles, ops.reduce_sum(ops.cast(others, ms.int32))))
        return owned

    @compile_time
    def _check_pairs(self, *arguments: tuple[Any, ...]) -> bool:
        self._checked_pairs(*map(stand_in, arguments))
        return True


give_graph_bodies(MixedReplay, IsolatedCell)
