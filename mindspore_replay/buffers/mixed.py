"""Batches from several buffers."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from ..ops.eager import graph_body
from ..ops.mixture import PickRows
from ..ops.primitives import named_in_graph
from ..ops.statement_hook import statement_body
from ..store.base.habits import NoContainer
from ..store.base.nested import Step
from ..store.base.types import Experience, Values
from ..store.faces.mixture import LARGEST_RATIO, SMALLEST_RATIO, MixedRecipe
from ..store.spec.registry import registered
from .compile_time import TENSOR, compile_time, stand_in
from .copying import keep_names
from .isolated_cell import IsolatedCell
from .parameters import Held, load_in_place, state_parameter
from .storage import need_kernels

_numbers = itertools.count()


@registered
class MixedReplay(MixedRecipe, IsolatedCell, NoContainer, nn.Cell):
    r"""Samples of several buffers, mixed in a fixed ratio.

    Insert rows into each buffer separately: a buffer of demonstrations then keeps its rows. The buffers' samples must
    have the same columns. Prioritized and uniform buffers can be combined; buffers of sequences or of episodes only
    with their own kind.

    Axes: ``B`` sample_size, ``m`` sources, ``*F`` the shape of a column of the buffers' samples.

    Args:
        parts (Sequence[tuple[ReplayBuffer, float]]): Buffers, the sources 0, 1, ..., and their positive ratios. Their
            own `sample_size` is ignored.
        sample_size (int): ``B``, rows of a batch. Each source contributes its share, rounded down, at least one row.
            Source 0 also contributes the rest.
        rewards (Union[Sequence[Union[float, None]], None]): For each source, a reward that replaces the column
            ``"reward"``, or ``None`` to keep it. Default: ``None``, to keep all.
        adjustable (bool): Whether `set_ratios` can change the ratios. If so, each source samples ``B`` rows, even at
            ratio 0, and must store that many. The rows to keep are chosen without changing their probabilities.
            `max_use` is then not supported. Default: ``False``.
        seed (Union[int, None]): Seed of the random choice of rows to keep, as for `ReplayBuffer`. Default: ``None``.

    Attributes:
        sources (tuple[ReplayBuffer]): The buffers.
        ratios (Parameter): Their ratios, if `adjustable`. Shape ``[m]``, float64.
        random_state (Parameter): Key and counter of the random sequence, if `adjustable`. Shape ``[2]``, int64.

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

    def _checked_sources(self, name: str, parts: object) -> tuple[Any, ...]:
        sources = super()._checked_sources(name, parts)
        for i, source in enumerate(sources):
            if source.backend == "composite":
                need_kernels(name, f"source {i}", "a buffer with backend='composite'")
        return sources

    def _begin(self) -> None:
        for i, buffer in enumerate(self.sources):
            self.insert_child_to_cell(f"source_{i}", buffer)  # setting it would rename its Parameters
        front, prefix = self._front, f"{type(self).__name__}_{next(_numbers)}."
        for key, held in front.own.items():
            parameter = state_parameter(key, held.asnumpy())
            front.own[key] = Held(parameter)
            nn.Cell.__setattr__(self, key, parameter)  # users cannot
            parameter.name = prefix + key
            load_in_place(parameter)
        self._parts, self._steps, self._place_of_rewards = front.parts, len(front.steps), front.place_of_rewards
        self._rewards = tuple(None if value is None else Tensor(value) for value in front.rewards)
        self._source = Tensor(np.repeat(np.arange(len(front.counts)), front.counts), ms.int32)
        self._no_handles = tuple(Tensor(np.full(n, -1), ms.int64) for n in front.counts)
        self._ones = tuple(Tensor(np.ones(n), ms.float32) for n in front.counts)
        self._with_handles = tuple(spec.has_handles for spec in front.specs)
        self._prioritized, self._divides = tuple(spec.prioritized for spec in front.specs), tuple(front.relative)
        self._zero, self._invalid, self._one = Tensor(0, ms.int32), Tensor(-1, ms.int64), Tensor(1, ms.float32)
        self._check_source = ops.Assert()
        self._check_given = ops.Assert()
        if self.adjustable:
            self._pick = PickRows(self.sample_size, len(self.sources))

    def state_dict(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """Copy the states of the mixture and all sources, as NumPy arrays.

        With arguments, which MindSpore passes for an enclosing Cell, it is ``nn.Cell.state_dict``.

        Returns:
            dict[str, numpy.ndarray]: Copies, by name: ``source_0.head`` is `head` of source 0.

        Examples:
            >>> from mindspore_replay import MixedReplay, ReplayBuffer
            >>> buffers = [ReplayBuffer(1, 9, [()], ["int32"]).insert([list(range(9))]) for _ in range(2)]
            >>> state = MixedReplay([(buffers[0], 0.5), (buffers[1], 0.5)], sample_size=4).state_dict()
            >>> print(state["source_0.count"], state["source_1.count"])
            9 9
        """
        if args or kwargs:
            return super().state_dict(*args, **kwargs)
        return self._front.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: object, **kwargs: object) -> object:
        """Load a state from `state_dict`. The same batches follow as after the copy.

        Args:
            state_dict (Mapping[str, numpy.ndarray]): The state of a mixture with sources of the same columns and
                capacities.
            args (Any): More arguments of ``nn.Cell.load_state_dict``, for a state of another origin.
            kwargs (Any): As `args`.

        Raises:
            ValueError: If a source's state, the ratios or the random state do not fit. Nothing is changed then.

        Examples:
            >>> from mindspore_replay import MixedReplay, ReplayBuffer
            >>> buffers = [ReplayBuffer(1, 9, [()], ["int32"]).insert([list(range(9))]) for _ in range(2)]
            >>> mixed = MixedReplay([(buffers[0], 0.5), (buffers[1], 0.5)], sample_size=4)
            >>> state, first = mixed.state_dict(), mixed.sample()[1]
            >>> mixed.load_state_dict(state)
            >>> print((mixed.sample()[1] == first).all())
            True
        """
        if "source_0.version" not in state_dict:
            return super().load_state_dict(state_dict, *args, **kwargs)
        self._front.load_state_dict(state_dict)
        return None

    def __deepcopy__(self, memo: dict[int, object]) -> "MixedReplay":
        """Make an independent mixture of copies of the sources, with the same ratios and random state."""
        made: MixedReplay = super().__deepcopy__(memo)
        own, copies = ({k: held.parameter for k, held in one._front.own.items()} for one in (self, made))
        keep_names(type(self).__name__, own, copies)
        return made

    def _load_from_cell(self, arrays: dict[str, np.ndarray]) -> None:
        """Load the mixture's state from the ``state_dict`` of an enclosing Cell."""
        for i, buffer in enumerate(self.sources):
            arrays = buffer.state.completed(arrays, f"source_{i}.")
        self.load_state_dict(arrays)

    def _batch_of(self, i):
        """Return handles, importance weights and the other outputs of source i."""
        batch = self._parts[i].sample(with_indices=True) if self._with_handles[i] else self._parts[i].sample()
        head = (self._no_handles[i],)
        if self._with_handles[i]:
            head = batch[:1]
            batch = batch[1:]
        if self._prioritized[i]:
            head = head + batch[:1]
            batch = batch[1:]
        else:
            head = (*head, self._ones[i])
        batch = head + batch
        if self._rewards[i] is None:
            return batch
        at = self._place_of_rewards
        return (*batch[:at], self._rewarded(i, batch), *batch[at + 1 :])

    def _rewarded(self, i, batch):
        """Return the source's reward for every row, or for every step that exists."""
        reward = ops.zeros_like(batch[self._place_of_rewards]) + self._rewards[i]
        if self._steps == 0:
            return reward
        mask = ops.cast(batch[1 + self._steps], reward.dtype)
        return reward * ops.reshape(mask, mask.shape + (1,) * (reward.ndim - mask.ndim))

    def _draw(self):
        """Return sources, handles, importance weights and the other outputs of a batch."""
        batches = ()
        for i in range(len(self._parts)):
            batches = (*batches, self._batch_of(i))
        result = ()
        for j in range(len(batches[0])):
            column = ()
            for batch in batches:
                column = (*column, batch[j])
            result = (*result, ops.concat(column, 0))
        if not self.adjustable:
            return (self._source + self._zero, *result)
        source, index = self._pick(self.ratios, self.random_state)
        rows = index + ops.cast(source, ms.int64) * self.sample_size
        picked = (source, self._picked(result[0], rows), self._relative(self._picked(result[1], rows), source))
        for column in result[2:]:
            picked = (*picked, self._picked(column, rows))
        return picked

    def _relative(self, weights, source):
        """Divide the importance weights of each source by the largest of its rows that were picked."""
        for i in range(len(self._parts)):
            if self._divides[i]:
                own = source == i
                largest = ops.reduce_max(ops.select(own, weights, ops.zeros_like(weights)))
                largest = ops.select(largest > 0, largest, self._one)
                weights = ops.select(own, weights / largest, weights)
        return weights

    def _picked(self, column, rows):
        """Return these rows of a column. MindSpore's page says that `gather` takes no bool."""
        if column.dtype == ms.bool_:
            return ops.cast(ops.gather(ops.cast(column, ms.uint8), rows, 0), ms.bool_)
        return ops.gather(column, rows, 0)

    def _sample_graph(self, *misplaced, as_dict=False, with_indices=False, **unknown):
        self._refuse_graph(misplaced, unknown)
        batch = self._draw()
        batch = batch if with_indices else batch[:1] + batch[3:]
        return named_in_graph(self._steps_of_names(with_indices), batch) if as_dict else batch

    @graph_body(_sample_graph)
    def sample(
        self, *_misplaced: NoReturn, as_dict: bool = False, with_indices: bool = False, **_unknown: NoReturn
    ) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Sample a batch, the rows of source 0 first.

        Args:
            as_dict (bool): Whether to return a dict, with ``"source"`` and the other outputs by name. Default:
                ``False``.
            with_indices (bool): Whether to return handles and importance weights after the source. They are -1 and 1
                for rows of a buffer without handles or priorities. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: The source of each row, int32 ``[B]``; if `with_indices`, handles, int64 ``[B]``, and
            importance weights, float32 ``[B]``; for sequences the mask, for episodes lengths and mask; copies of the
            rows, ``[B, *F]`` for each column.

        Raises:
            TypeError: If `as_dict` is set and a buffer has no names.
            RuntimeError: If a source has too few eligible rows. No source is sampled then. In a graph the operator
                raises it, and other sources may have been sampled.

        Examples:
            >>> from mindspore_replay import MixedReplay, ReplayBuffer
            >>> columns = {"shapes": [()], "types": ["int32"], "seed": 0}
            >>> agent, expert = (ReplayBuffer(1, 9, **columns).insert([list(range(n, n + 9))]) for n in (0, 100))
            >>> source, step = MixedReplay([(agent, 0.5), (expert, 0.5)], sample_size=4).sample()
            >>> print(source, step)
            [0 0 1 1] [  5   6 105 106]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(as_dict, with_indices)

    @compile_time
    def _steps_of_names(self, with_indices: bool) -> tuple[Step, ...]:
        return self._front.sample_names(with_indices).steps

    @graph_body(IsolatedCell._len_graph)
    def __len__(self) -> int:
        """Return the number of rows stored in all sources together. Only from Python."""
        return self._front.size()

    def _can_sample_graph(self):
        result = self._parts[0].can_sample()
        for i in range(1, len(self._parts)):
            result = ops.logical_and(result, self._parts[i].can_sample())
        return result

    @graph_body(_can_sample_graph)
    def can_sample(self) -> Tensor:
        """Return True if each source has enough eligible rows for a batch. Shape ``[]``, bool.

        From Python, the limiters of the sources must also allow the sample now. A graph does not check them.

        Examples:
            >>> from mindspore_replay import MixedReplay, ReplayBuffer
            >>> agent, expert = (ReplayBuffer(1, 9, shapes=[()], types=["int32"]) for _ in range(2))
            >>> mixed = MixedReplay([(agent, 0.5), (expert, 0.5)], sample_size=4)
            >>> _ = agent.insert([list(range(9))])
            >>> print(mixed.can_sample())  # the expert's rows are missing
            False
        """
        return Tensor(self._front.can_sample())

    def _update_graph(self, source, indices, priorities):
        ok = self._known_sources(source, indices)
        invalid = self._zero + 0
        for i in range(len(self._parts)):
            if self._prioritized[i]:
                others = ops.logical_or(source != i, ops.logical_not(ok))  # an assertion does not stop what follows it
                handles = ops.select(others, self._invalid, ops.cast(indices, ms.int64))
                skipped = self._parts[i].update_priorities(handles, priorities)
                invalid = invalid + skipped - ops.reduce_sum(ops.cast(others, ms.int32))
        return invalid

    @graph_body(_update_graph)
    def update_priorities(self, source: Values, indices: Values, priorities: Values) -> Tensor:
        """Set priorities of rows, each in its buffer. Rows of buffers without priorities are skipped.

        Args:
            source (Union[Tensor, Sequence[int]]): Sources from `sample`, ints ``[n]``, in a graph a Tensor.
            indices (Union[Tensor, Sequence[int]]): Handles from `sample`, int32 or int64 ``[n]``, in a graph a Tensor.
            priorities (Union[Tensor, Sequence[float], float]): One priority for all, or one for each, as for
                `PrioritizedReplayBuffer.update_priorities`.

        Returns:
            Tensor: Number of invalid handles. Shape ``[]``, int32.

        Raises:
            TypeError: If `source` or `indices` are not of ints, or `priorities` not numeric.
            ValueError: If shapes do not fit, there is no such source, or a priority is negative, NaN or infinite.
                Nothing is changed then. In a graph the operator raises a RuntimeError for the last two.

        Examples:
            >>> from mindspore_replay import MixedReplay, PrioritizedReplayBuffer
            >>> columns = {"shapes": [()], "types": ["float32"]}
            >>> buffers = [PrioritizedReplayBuffer(1, 9, **columns).insert([[0.5] * 9]) for _ in range(2)]
            >>> mixed = MixedReplay([(buffers[0], 0.5), (buffers[1], 0.5)], sample_size=4)
            >>> source, indices, weights, reward = mixed.sample(with_indices=True)
            >>> print(mixed.update_priorities(source, indices, reward.abs()))
            0
        """
        return Tensor(self._front.update_priorities(source, indices, priorities), ms.int32)

    def _update_rows_graph(self, source, indices, values):
        ok = self._known_sources(source, indices)
        invalid = self._zero + 0
        for i in range(len(self._parts)):
            if self._with_handles[i]:
                others = ops.logical_or(source != i, ops.logical_not(ok))
                skipped = self._parts[i].update(ops.select(others, self._invalid, ops.cast(indices, ms.int64)), values)
                invalid = invalid + skipped - ops.reduce_sum(ops.cast(others, ms.int32))
        return invalid

    @graph_body(statement_body(_update_rows_graph))
    def update(self, source: Values, indices: Values, values: Experience) -> Tensor:
        """Write columns of stored rows, each in its buffer. Rows of buffers without handles are skipped.

        Args:
            source (Union[Tensor, Sequence[int]]): Sources from `sample`, ints ``[n]``, in a graph a Tensor.
            indices (Union[Tensor, Sequence[int]]): Handles from `sample`, int32 or int64 ``[n]``, in a graph a Tensor.
                If several name one row, the last counts.
            values (Union[dict, Sequence]): A dict of some columns by name, or one Tensor for each column, of stored
                rows, ``[n, *F]``, as for `ReplayBuffer.update`. They must fit each source with handles.

        Returns:
            Tensor: Number of invalid handles. They are skipped. Shape ``[]``, int32.

        Raises:
            TypeError: If `source` or `indices` are not of ints, or a column does not hold a dtype.
            ValueError: If shapes do not fit, or there is no such source or column. Nothing is written then. In a graph
                the operator raises a RuntimeError for an unknown source.

        Examples:
            >>> from mindspore_replay import MixedReplay, ReplayBuffer
            >>> columns = {"shapes": [()], "types": ["int32"], "weighted": True}
            >>> buffers = [ReplayBuffer(1, 9, **columns).insert([list(range(9))]) for _ in range(2)]
            >>> mixed = MixedReplay([(buffers[0], 0.5), (buffers[1], 0.5)], sample_size=4)
            >>> source, indices, weights, step = mixed.sample(with_indices=True)
            >>> print(mixed.update(source, indices, [step * 0]))
            0
        """
        return Tensor(self._front.update(source, indices, values), ms.int32)

    def _known_sources(self, source, indices):
        self._check_pairs((TENSOR, source.dtype, source.shape), (TENSOR, indices.dtype, indices.shape))
        ok = ops.all(ops.logical_and(source >= 0, source < len(self._parts)))
        self._check_source(ok, (source,))
        return ok

    @compile_time
    def _check_pairs(self, *known: tuple[Any, ...]) -> bool:
        self._front.pairs(*map(stand_in, known))
        return True

    def _set_ratios_graph(self, ratios):
        if not self.adjustable:
            raise RuntimeError("'set_ratios' needs a MixedReplay made with adjustable=True.")
        if isinstance(ratios, Tensor):
            self._check_length(ratios.shape)
            given = ops.cast(ratios, ms.float64)
            in_range = ops.logical_and(given >= SMALLEST_RATIO, given <= LARGEST_RATIO)
            ok = ops.logical_and(ops.all(ops.logical_or(in_range, given == 0)), ops.any(in_range))
            self._check_given(ok, (given,))
            ops.assign(self.ratios, ops.select(ok, given, self.ratios))
        else:
            ops.assign(self.ratios, ops.stack([ops.cast(ratio, ms.float64) for ratio in self._check_ratios(ratios)]))
        return ops.reshape(self.ratios, (-1,))

    @graph_body(_set_ratios_graph)
    def set_ratios(self, ratios: Values) -> "MixedReplay":
        """Set the ratios of the sources.

        Args:
            ratios (Union[Sequence[float], Tensor]): One for each source, 0 or in [1e-30, 1e30], not all 0. A Tensor
                must have shape ``[m]``.

        Returns:
            MixedReplay: The mixture itself.

        Raises:
            RuntimeError: If it was not made with ``adjustable=True``.
            TypeError: If `ratios` is not numeric.
            ValueError: If there is not one for each source, one is negative, or all are 0. In a graph the operator
                raises a RuntimeError for such Tensors, and the ratios do not change.

        Examples:
            >>> from mindspore_replay import MixedReplay, ReplayBuffer
            >>> buffers = [ReplayBuffer(1, 9, [()], ["int32"]).insert([list(range(9))]) for _ in range(2)]
            >>> mixed = MixedReplay([(buffers[0], 1.0), (buffers[1], 1.0)], sample_size=4, adjustable=True, seed=0)
            >>> print(*(mixed.set_ratios(ratios).sample()[0] for ratios in ([1.0, 1.0], [0.0, 1.0])))
            [0 0 1 1] [1 1 1 1]
        """
        self._front.set_ratios(ratios)
        return self

    @compile_time
    def _check_ratios(self, ratios: Sequence[float]) -> tuple[float, ...]:
        return tuple(self._front.checked_ratios(list(ratios)).tolist())

    @compile_time
    def _check_length(self, shape: tuple[int, ...]) -> bool:
        self._front.checked_ratios(np.ones(shape))
        return True
