"""The classes of buffers: their constructors, each of which chooses the parts of its class, and what one alone can do.

Results are arrays. The classes of the package derive from these, and make Tensors of them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ..base.checks import check_size
from ..base.column import Column, Priorities
from ..base.habits import only_from_python
from ..base.length_groups import LONGEST
from ..base.mixins import mixin
from ..base.types import Values
from ..spec.layout import View
from ..spec.parts import (
    Episodes,
    Expiry,
    InEpochs,
    InOrder,
    Parts,
    Prioritized,
    Sequences,
    Uniform,
    sampler_of,
    span_of,
)
from ..waits.rate_rule import QueueAccount
from .local import LocalBuffer

_Self = TypeVar("_Self", bound=LocalBuffer)


@mixin
@only_from_python
class ReplayBuffer(LocalBuffer, public=True):
    """A ring of rows, sampled uniformly: `mindspore_replay.ReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReplayBuffer
        >>> buffer = ReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], names=["step"], seed=0)
        >>> buffer = buffer.insert([list(range(9))])
        >>> print(*buffer.sample(), buffer.sample(as_dict=True)["step"])
        [5 6 3] [5 7 1]
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        num_envs: int = 1,
        replace: bool = True,
        ordered: bool = False,
        max_use: int | None = None,
        max_staleness: int | None = None,
        weighted: bool = False,
        views: Sequence[View] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        parts = Parts(Uniform(replace, ordered), Expiry(max_use, max_staleness, weighted), views=views)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed, storage, backend)

    def sample(
        self,
        sample_range: tuple[Any, Any] | None = None,
        *_misplaced: NoReturn,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Sample `sample_size` rows uniformly from the rows of a range that were not removed.

        Args:
            sample_range (Union[tuple, None]): ``(start, stop)``, a slice of the rows, oldest first. Negative bounds
                count from the newest row, ``None`` is open, bounds outside are clamped. Default: ``None``, for all
                rows.
            as_dict (bool): Whether to return a dict by column name. Default: ``False``.
            with_indices (bool): Whether to return handles first, int64 ``[B]``, or as ``"indices"`` in a dict. Requires
                weights. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `sample_range` is no pair, or `as_dict` is set and the buffer has no names.
            RuntimeError: If no row of the range is eligible, or without replacement fewer than `sample_size`. See
                `can_sample`. In a graph the operator raises it.

        Examples:
            >>> from mindspore_replay import ReplayBuffer
            >>> buffer = ReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], names=["step"], seed=0)
            >>> buffer = buffer.insert([list(range(9))])
            >>> print(*buffer.sample(), *buffer.sample((-3, None)))  # from all rows, from the newest three
            [5 6 3] [7 8 6]
            >>> print(buffer.sample(as_dict=True)["step"])
            [7 2 3]
        """
        if _misplaced or _unknown or type(sample_range) is int:
            raise self._wrong_sample((sample_range, *_misplaced) if sample_range is not None else _misplaced, _unknown)
        return self._front.sample(sample_range, None, as_dict, with_indices, LONGEST if longest else None)


@mixin
@only_from_python
class PrioritizedReplayBuffer(LocalBuffer, public=True):
    """A ring of rows, sampled by priority: `mindspore_replay.PrioritizedReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import PrioritizedReplayBuffer
        >>> buffer = PrioritizedReplayBuffer(sample_size=3, capacity=9, shapes=[()], types=["int32"], seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], priority=[1.0, 0.0, 1.0])
        >>> indices, weights, step = buffer.sample()
        >>> print(indices, weights, step, buffer.update_priorities(indices, [1.0, 2.0, 3.0]))
        [0 2 2] [1. 1. 1.] [10 12 12] 0
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        num_envs: int = 1,
        max_use: int | None = None,
        max_staleness: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 0,
        epsilon: float = 1e-6,
        normalize: str = "batch",
        initial_priority: float = 1.0,
        default_priority: str = "largest",
        views: Sequence[View] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        priorities = Priorities(alpha, beta, beta_steps, epsilon, normalize, initial_priority, default_priority)
        sampler = Prioritized(priorities)
        parts = Parts(sampler, Expiry(max_use, max_staleness), views=views)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed, storage, backend)

    def sample(
        self,
        *_misplaced: NoReturn,
        beta: Values | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        r"""Draw one row from each of `sample_size` equal strata of the total weight, with importance weights.

        The importance weight of a row with weight :math:`w_i` is :math:`(w_\min / w_i)^\beta`, where :math:`w_\min`
        is the smallest weight of the sample, or of all eligible rows if `normalize` is ``"buffer"``. That equals
        :math:`(N \cdot P(i))^{-\beta}` divided by its largest value.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, in [0, 1]. A Tensor must have shape ``[]`` or ``[1]``.
                Default: ``None``, for the Parameter `beta`, which advances in either case.
            as_dict (bool): Whether to return a dict, with ``"indices"``, ``"weights"`` and the columns' names.
                Default: ``False``.
            with_indices (bool): Accepted as by other buffers. Handles always come first here. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Handles of the rows, int64 ``[B]``, for `update_priorities`; importance weights, float32
            ``[B]``, in [0, 1]; copies of the rows, ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `beta` is not a number, or `as_dict` is set and the buffer has no names.
            ValueError: If `beta` is outside [0, 1], or `as_dict` is set and a column is named ``"indices"`` or
                ``"weights"``.
            RuntimeError: If no row is eligible. See `can_sample`. In a graph the operator
                raises it, also for a Tensor `beta` outside [0, 1].

        Examples:
            >>> from mindspore_replay import PrioritizedReplayBuffer
            >>> buffer = PrioritizedReplayBuffer(sample_size=2, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]])
            >>> indices, weights, step = buffer.sample()
            >>> print(indices, weights, step)
            [0 2] [1. 1.] [10 12]
            >>> indices, weights, step = buffer.sample(beta=1.0)  # with another beta
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, beta, as_dict, with_indices, LONGEST if longest else None)


@mixin
@only_from_python
class SequenceReplayBuffer(LocalBuffer, public=True):
    """A ring of steps, sampled as sequences: `mindspore_replay.SequenceReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import SequenceReplayBuffer
        >>> buffer = SequenceReplayBuffer(1, 8, shapes=[()], types=["int32"], sequence_length=2, seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
        >>> print(*buffer.sample())
        [1] [[ True  True]] [[11 12]]
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        sequence_length: int,
        burn_in: int = 0,
        stride: int = 1,
        pad_end: bool = False,
        priorities: Priorities | None = None,
        num_envs: int = 1,
        replace: bool = True,
        max_use: int | None = None,
        max_staleness: int | None = None,
        views: Sequence[View] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        sampler = sampler_of(type(self).__name__, priorities, replace)
        span = Sequences(sequence_length, burn_in, stride, pad_end)
        parts = Parts(sampler, Expiry(max_use, max_staleness), span, views)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed, storage, backend)
        vars(self).update(span._asdict())

    def sample(
        self,
        *_misplaced: NoReturn,
        beta: Values | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Sample sequences.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, as for `PrioritizedReplayBuffer.sample`. Only if
                `prioritized`. Default: ``None``.
            as_dict (bool): Whether to return a dict, with ``"indices"``, ``"weights"`` if `prioritized`, ``"mask"`` and
                the columns' names. Default: ``False``.
            with_indices (bool): Accepted as by other buffers. Handles always come first here. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Handles of the starts, int64 ``[B]``; if `prioritized`, importance weights, float32
            ``[B]``; a mask of the steps that exist, bool ``[B, T]``; copies of the rows, ``[B, T, *F]`` for each
            column, zeros where the mask is ``False``.

        Raises:
            TypeError, ValueError: As for `PrioritizedReplayBuffer.sample`.
            RuntimeError: If there is no valid start, or without replacement fewer than `sample_size`. See `can_sample`.
                In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import SequenceReplayBuffer
            >>> buffer = SequenceReplayBuffer(1, 8, shapes=[()], types=["int32"], sequence_length=2, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
            >>> indices, mask, steps = buffer.sample()
            >>> print(indices, mask, steps)
            [1] [[ True  True]] [[11 12]]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, beta, as_dict, with_indices, LONGEST if longest else None)


@mixin
@only_from_python
class EpisodeReplayBuffer(LocalBuffer, public=True):
    """A ring of steps, sampled as whole episodes: `mindspore_replay.EpisodeReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import EpisodeReplayBuffer
        >>> buffer = EpisodeReplayBuffer(1, 8, shapes=[()], types=["int32"], max_episode_length=4, seed=0)
        >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
        >>> print(*buffer.sample())
        [0] [3] [[ True  True  True False]] [[10 11 12  0]]
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        max_episode_length: int,
        priorities: Priorities | None = None,
        num_envs: int = 1,
        replace: bool = True,
        max_use: int | None = None,
        max_staleness: int | None = None,
        views: Sequence[View] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        sampler = sampler_of(type(self).__name__, priorities, replace)
        parts = Parts(sampler, Expiry(max_use, max_staleness), Episodes(max_episode_length), views)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed, storage, backend)
        vars(self).update(max_episode_length=max_episode_length)

    def sample(
        self,
        *_misplaced: NoReturn,
        beta: Values | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Sample finished episodes.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, as for `PrioritizedReplayBuffer.sample`. Only if
                `prioritized`. Default: ``None``.
            as_dict (bool): Whether to return a dict, with ``"indices"``, ``"weights"`` if `prioritized`, ``"lengths"``,
                ``"mask"`` and the columns' names. Default: ``False``.
            with_indices (bool): Accepted as by other buffers. Handles always come first here. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Handles of the episodes, int64 ``[B]``; if `prioritized`, importance weights, float32
            ``[B]``; the episodes' lengths, int32 ``[B]``; a mask of the steps that exist, bool ``[B, L]``; copies of
            the rows, ``[B, L, *F]`` for each column, zeros where the mask is ``False``. With `NStep` the steps are
            transitions, so ``final`` rows do not count.

        Raises:
            TypeError, ValueError: As for `PrioritizedReplayBuffer.sample`.
            RuntimeError: If no episode is finished, or without replacement fewer than `sample_size`. See `can_sample`.
                In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import EpisodeReplayBuffer
            >>> buffer = EpisodeReplayBuffer(1, 8, shapes=[()], types=["int32"], max_episode_length=4, seed=0)
            >>> buffer = buffer.insert([[10, 11, 12]], end=[False, False, True])
            >>> indices, lengths, mask, steps = buffer.sample()
            >>> print(indices, lengths, mask, steps)
            [0] [3] [[ True  True  True False]] [[10 11 12  0]]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, beta, as_dict, with_indices, LONGEST if longest else None)

    def sample_groups(
        self, key: str, groups: int, size_in_group: int, ordered: bool = True, *, as_dict: bool = False
    ) -> Any:
        r"""Sample groups of rows with equal values in a column.

        Groups are uniform and distinct, of rows of the episodes that `sample` can return. It reads the column of all
        rows: cost O(C log C).

        Axes: ``G`` groups, ``L`` size_in_group.

        Args:
            key (str): Name of the column that defines the groups, of ints and of shape ``()``.
            groups (int): ``G``.
            size_in_group (int): ``L``, most rows of a group.
            ordered (bool): Whether to return consecutive rows of a group, in insertion order from a random one on.
                ``False`` returns distinct rows in random order. Smaller groups are returned whole. Default: ``True``.
            as_dict (bool): Whether to return a dict, with ``"mask"`` and the columns' names. Default: ``False``.

        Returns:
            tuple[Tensor, ...]: A mask of the rows that exist, bool ``[G, L]``; copies of the rows, ``[G, L, *F]`` for
            each column, zeros where the mask is ``False``.

        Raises:
            TypeError: If an argument is of another type, or the buffer has no names.
            ValueError: If there is no such column, it is not of ints, or a size is not positive, or if `as_dict` is set
                and a column is named ``"mask"``.
            RuntimeError: If there are fewer than `groups` groups. In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import EpisodeReplayBuffer
            >>> names, types = ["task", "step"], ["int32", "int32"]
            >>> buffer = EpisodeReplayBuffer(1, 8, [(), ()], types, max_episode_length=8, names=names, seed=0)
            >>> buffer = buffer.insert([[0, 1, 0, 1, 1], list(range(5))], end=[False] * 4 + [True])
            >>> mask, task, step = buffer.sample_groups("task", groups=2, size_in_group=3)
            >>> print(mask, task, step, sep="\n")
            [[ True  True  True]
             [ True  True False]]
            [[1 1 1]
             [0 0 0]]
            [[1 3 4]
             [0 2 0]]
        """
        grouping = key, groups, size_in_group, ordered
        return self._front.sample_groups(grouping, as_dict, lambda name: self.state.state_arrays()[name].asnumpy())


@mixin
@only_from_python
class ElasticReplayBuffer(LocalBuffer, public=True):
    """A ring of rows, sampled from the newest: `mindspore_replay.ElasticReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ElasticReplayBuffer
        >>> buffer = ElasticReplayBuffer(3, 100, shapes=[()], types=["int32"], window=5, seed=0)
        >>> print(*buffer.insert([list(range(100))]).set_window(50).sample())
        [82 85 69]
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        window: int | None = None,
        priorities: Priorities | None = None,
        num_envs: int = 1,
        replace: bool = True,
        max_use: int | None = None,
        max_staleness: int | None = None,
        weighted: bool = False,
        views: Sequence[View] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        window = capacity if window is None else window
        sampler = sampler_of(type(self).__name__, priorities, replace, window)
        parts = Parts(sampler, Expiry(max_use, max_staleness, weighted), views=views)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed, storage, backend)

    def set_window(self: _Self, window: Any) -> _Self:
        """Set the number of newest rows to sample from.

        Args:
            window (Union[int, Tensor]): In [1, `capacity`], without replacement at least `sample_size`. A Tensor must
                have shape ``[]`` or ``[1]``.

        Returns:
            ElasticReplayBuffer: The buffer itself. In a graph a tuple with the number of rows stored, int32 ``[]``.

        Raises:
            TypeError: If `window` is not an int.
            ValueError: If `window` is outside its range. In a graph the operator raises a RuntimeError for such a
                Tensor, and the window does not change.

        Examples:
            >>> from mindspore_replay import ElasticReplayBuffer
            >>> buffer = ElasticReplayBuffer(3, 100, shapes=[()], types=["int32"], window=5, seed=0)
            >>> print(*buffer.insert([list(range(100))]).set_window(50).sample())
            [82 85 69]
        """
        size = self._front.checked_window(window)
        state = self.state
        with state.exclusive():
            state.state_arrays()["window"].overwrite(size)
        return self

    def sample(
        self,
        *_misplaced: NoReturn,
        beta: Values | None = None,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Sample `sample_size` of the newest `window` rows, uniformly or by priority. Removed rows are skipped.

        Args:
            beta (Union[float, Tensor, None]): Beta of this call, as for `PrioritizedReplayBuffer.sample`. Only if
                `prioritized`. Default: ``None``.
            as_dict (bool): Whether to return a dict by column name. Default: ``False``.
            with_indices (bool): Whether to return the rows' handles first, as for `ReplayBuffer.sample`. Default:
                ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor ``[B, *F]`` for each column in the order of `shapes`. If
            `prioritized`, handles, int64 ``[B]``, and importance weights, float32 ``[B]``, precede them.

        Raises:
            TypeError: If `as_dict` is set and the buffer has no names.
            ValueError: If `beta` is outside [0, 1].
            RuntimeError: If `beta` is given and the buffer is not `prioritized`, or the window has no
                eligible row, or without replacement fewer than `sample_size`. See `can_sample`. In a graph the operator
                raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import ElasticReplayBuffer
            >>> buffer = ElasticReplayBuffer(3, 100, shapes=[()], types=["int32"], window=5, seed=0)
            >>> print(*buffer.insert([list(range(100))]).sample())
            [98 98 96]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, beta, as_dict, with_indices, LONGEST if longest else None)


@mixin
@only_from_python
class ReservoirReplayBuffer(LocalBuffer, public=True):
    """A reservoir of all rows so far: `mindspore_replay.ReservoirReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReservoirReplayBuffer
        >>> buffer = ReservoirReplayBuffer(sample_size=3, capacity=4, shapes=[()], types=["int32"], seed=0)
        >>> print(*buffer.insert([list(range(100))]).sample())
        [28 28 29]
    """

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        replace: bool = True,
        max_use: int | None = None,
        weighted: bool = False,
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        parts = Parts(Uniform(replace), Expiry(max_use, None, weighted), reservoir=True)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, 1, seed, storage, backend)

    def sample(
        self, *_misplaced: NoReturn, as_dict: bool = False, with_indices: bool = False, **_unknown: NoReturn
    ) -> Any:
        """Sample `sample_size` rows uniformly from those not removed.

        Args:
            as_dict (bool): Whether to return a dict by column name. Default: ``False``.
            with_indices (bool): Whether to return handles first, int64 ``[B]``, or as ``"indices"`` in a dict. Default:
                ``False``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, one Tensor ``[B, *F]`` for each column in the order of `shapes`.

        Raises:
            TypeError: If `as_dict` is set and the buffer has no names.
            RuntimeError: If no row is eligible, or without replacement fewer than `sample_size`. See `can_sample`. In a
                graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import ReservoirReplayBuffer
            >>> buffer = ReservoirReplayBuffer(sample_size=3, capacity=4, shapes=[()], types=["int32"], seed=0)
            >>> print(*buffer.insert([list(range(100))]).sample())
            [28 28 29]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, None, as_dict, with_indices)


@mixin
@only_from_python
class EpochReplayBuffer(LocalBuffer, public=True):
    """A ring of rows, each sampled once an epoch: `mindspore_replay.EpochReplayBuffer` on arrays.

    Examples:
        >>> from mindspore_replay.host import EpochReplayBuffer
        >>> buffer = EpochReplayBuffer(2, 8, shapes=[()], types=["int32"], names=["step"], seed=0)
        >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
        >>> for batch in buffer.minibatches(epochs=2, as_dict=True):
        ...     print(batch["step"])
        [10 14]
        [13 11]
        [14 12]
        [11 13]
    """

    sequence_length: int | None
    rank: int
    world: int

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        sequence_length: int | None = None,
        burn_in: int = 0,
        stride: int | None = None,
        pad_end: bool = False,
        last: str = "drop",
        rank: int = 0,
        world: int = 1,
        num_envs: int = 1,
        max_use: int | None = None,
        max_staleness: int | None = None,
        weighted: bool = False,
        views: Sequence[View] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        span = span_of(type(self).__name__, sequence_length, burn_in, stride, pad_end, last == "pad")
        parts = Parts(InEpochs(last, rank, world), Expiry(max_use, max_staleness, weighted), span, views)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed, storage, backend)
        steps = span._asdict() if isinstance(span, Sequences) else {"sequence_length": None}
        vars(self).update(steps, last=last, rank=rank, world=world)

    def sample(
        self,
        *_misplaced: NoReturn,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Return the next batch of the epoch. If none is left, begin the next epoch.

        Args:
            as_dict (bool): Whether to return a dict by name, the mask as ``"mask"``. Default: ``False``.
            with_indices (bool): Whether to return handles first, int64 ``[B]``, or as ``"indices"`` in a dict. Requires
                weights. Always for sequences. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, ``[B, *F]`` for each column; with ``last="pad"`` first a mask of the
            rows that are not padding, bool ``[B]``. For sequences, handles of the starts, int64 ``[B]``, -1 for
            padding, a mask of the steps that exist, bool ``[B, T]``, and ``[B, T, *F]`` for each column.

        Raises:
            TypeError: If `as_dict` is set and the buffer has no names.
            RuntimeError: If there are too few rows for one batch. In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import EpochReplayBuffer
            >>> buffer = EpochReplayBuffer(2, 8, shapes=[()], types=["int32"], names=["step"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
            >>> for _ in range(buffer.batches()):
            ...     print(*buffer.sample())
            [10 14]
            [13 11]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, None, as_dict, with_indices, LONGEST if longest else None)

    def batches(self) -> int:
        """Return the number of batches in an epoch over the rows stored now. Only from Python.

        Examples:
            >>> from mindspore_replay import EpochReplayBuffer
            >>> buffer = EpochReplayBuffer(2, 8, shapes=[()], types=["int32"], names=["step"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
            >>> print(buffer.batches())
            2
        """
        return self._front.batches()

    def begin_epoch(self: _Self) -> _Self:
        """End the current epoch. The next sample begins another, over the rows stored then.

        Returns:
            EpochReplayBuffer: The buffer itself. In a graph a tuple with the number of rows stored, int32 ``[]``.

        Examples:
            >>> from mindspore_replay import EpochReplayBuffer
            >>> buffer = EpochReplayBuffer(2, 8, shapes=[()], types=["int32"], names=["step"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
            >>> print(*buffer.sample(), *buffer.begin_epoch().sample())
            [10 14] [12 10]
        """
        self._front.begin_epoch()
        return self

    def minibatches(self, epochs: int = 1, *, as_dict: bool = False) -> Iterator[Any]:
        """Iterate over the batches of new epochs. Only from Python.

        An epoch ends with its last batch, sooner if rows are evicted or removed meanwhile, or when another begins.

        In a graph, call `begin_epoch` once and `sample` as often as there are batches.

        Args:
            epochs (int): Number of epochs. Default: ``1``.
            as_dict (bool): As for `sample`. Default: ``False``.

        Yields:
            Union[tuple[Tensor, ...], dict[str, Tensor]]: The results of `sample`.

        Raises:
            TypeError, ValueError: If `epochs` is no positive int.
            RuntimeError: If there are too few rows for one batch.

        Examples:
            >>> from mindspore_replay import EpochReplayBuffer
            >>> buffer = EpochReplayBuffer(2, 8, shapes=[()], types=["int32"], names=["step"], seed=0)
            >>> buffer = buffer.insert([[10, 11, 12, 13, 14]])
            >>> for batch in buffer.minibatches(epochs=2, as_dict=True):
            ...     print(batch["step"])
            [10 14]
            [13 11]
            [14 12]
            [11 13]
        """
        for _ in range(check_size(type(self).__name__, "epochs", epochs)):
            yield from self._front.minibatches(lambda: self.sample(as_dict=as_dict))


@mixin
@only_from_python
class ReplayQueue(LocalBuffer, public=True):
    """A queue that delivers each step once: `mindspore_replay.ReplayQueue` on arrays.

    Examples:
        >>> from mindspore_replay.host import ReplayQueue
        >>> queue = ReplayQueue(sample_size=2, capacity=4, shapes=[()], types=["int32"])
        >>> print(*queue.insert([[10, 11, 12, 13]]).sample(), *queue.sample(), queue.can_sample())
        [10 11] [12 13] False
    """

    sequence_length: int | None

    def __init__(
        self,
        sample_size: int,
        capacity: int,
        shapes: Sequence[Sequence[int]] | None = None,
        types: Sequence[object] | None = None,
        *,
        names: Sequence[str] | None = None,
        columns: Mapping[str, Column] | Sequence[Column] | None = None,
        sequence_length: int | None = None,
        burn_in: int = 0,
        stride: int | None = None,
        pad_end: bool = False,
        order: str = "fifo",
        when_full: str = "block",
        timeout: float | None = 0,
        max_staleness: int | None = None,
        num_envs: int = 1,
        views: Sequence[View] = (),
        seed: int | None = None,
        storage: str | os.PathLike[str] | None = None,
        backend: str = "auto",
    ) -> None:
        span = span_of(type(self).__name__, sequence_length, burn_in, stride, pad_end)
        parts = Parts(InOrder(order, when_full, timeout), Expiry(1, max_staleness), span, views)
        super().__init__(sample_size, capacity, shapes, types, parts, names, columns, num_envs, seed, storage, backend)
        steps = span._asdict() if isinstance(span, Sequences) else {"sequence_length": None}
        vars(self).update(steps, order=order, when_full=when_full)

    def sample(
        self,
        *_misplaced: NoReturn,
        as_dict: bool = False,
        with_indices: bool = False,
        longest: bool = False,
        **_unknown: NoReturn,
    ) -> Any:
        """Deliver the next rows or sequences, and remove them.

        Args:
            as_dict (bool): Whether to return a dict by name. Default: ``False``.
            with_indices (bool): Whether to return handles first, int64 ``[B]``, or as ``"indices"`` in a dict. Always
                for sequences. Default: ``False``.
            longest (bool): Whether to pad rows of different lengths to the longest of the batch. Only from Python.
                Default: ``False``, to ``sample_length``.

        Returns:
            tuple[Tensor, ...]: Copies of the rows, ``[B, *F]`` for each column. For sequences, as
            `SequenceReplayBuffer.sample`: handles of the starts, int64 ``[B]``, a mask, bool ``[B, T]``, and
            ``[B, T, *F]`` for each column.

        Raises:
            TypeError: If `as_dict` is set and the buffer has no names.
            TimeoutError: If too few rows are inserted in time.
            RuntimeError: If there are too few rows, with ``timeout=0``. In a graph the operator raises a RuntimeError.

        Examples:
            >>> from mindspore_replay import ReplayQueue
            >>> queue = ReplayQueue(sample_size=2, capacity=4, shapes=[()], types=["int32"], names=["step"])
            >>> print(*queue.insert([list(range(4))]).sample(), queue.sample(as_dict=True)["step"])
            [0 1] [2 3]
        """
        if _misplaced or _unknown:
            raise self._wrong_sample(_misplaced, _unknown)
        return self._front.sample(None, None, as_dict, with_indices, LONGEST if longest else None)

    def account(self) -> QueueAccount:
        """Return how many rows can be sampled, and how many inserted. Only from Python.

        Examples:
            >>> from mindspore_replay import ReplayQueue
            >>> queue = ReplayQueue(sample_size=2, capacity=4, shapes=[()], types=["int32"])
            >>> print(queue.insert([[10, 11, 12]]).account())
            QueueAccount(name='ReplayQueue', capacity=4, valid=3, room=1, pending='', items='')
        """
        return self._front.account()
