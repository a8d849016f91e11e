"""Batches from several buffers. Axes: ``B`` sample_size, ``n`` handles."""

import copy
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, NoReturn

import numpy as np

from ..base.checks import check_number, check_size
from ..base.habits import NoContainer, only_from_python, package_of, wrong_sample
from ..base.mixins import mixin
from ..base.naming import named, sample_names
from ..base.nested import NO_NAMES, Names
from ..base.types import Experience, Sample, Values
from ..kernels import library
from ..kernels.locks import Event, Held, Locks, hold_locks
from ..kernels.state import fitting
from ..rows.inputs import as_array, as_priority
from ..spec.arguments import keeps_arguments
from .front import LocalFront
from .local import LocalBuffer
from .showing import title

_front = attrgetter("_front")
#: Outputs of a batch that come only with handles.
_WITH_HANDLES = ("indices", "weights")


class MixtureState:
    """What the package asks of a mixture, that of so many rows of each source. All its arrays are theirs."""

    def __init__(self, sources: Sequence[LocalBuffer], counts: Sequence[int]) -> None:
        self._sources, self._counts = sources, counts

    @property
    def runs_graphs(self) -> bool:
        """True if a sample drawn from Python runs a compiled graph."""
        return any(source.state.runs_graphs for source in self._sources)

    def turn_to_sample(self, stop: Event | None) -> Held:
        """Wait until the limiters of the sources allow a sample. Raise a RuntimeError soon after `stop` is set."""
        return Locks(*(_front(source).turn_to_sample(stop, n) for source, n in zip(self._sources, self._counts)))

    def state_arrays(self) -> Mapping[str, Any]:
        """Return its own arrays: none."""
        return {}

    def check_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Accept no arrays."""


@mixin
@only_from_python
@keeps_arguments
class MixedReplay(NoContainer):
    """Samples of several buffers of this module, mixed: `mindspore_replay.MixedReplay` on arrays.

    Examples:
        >>> from mindspore_replay.host import MixedReplay, ReplayBuffer
        >>> columns = {"shapes": [()], "types": ["int32"], "seed": 0}
        >>> agent, expert = (ReplayBuffer(1, 9, **columns).insert([list(range(n, n + 9))]) for n in (0, 100))
        >>> source, step = MixedReplay([(agent, 0.5), (expert, 0.5)], sample_size=4).sample()
        >>> print(source, step)
        [0 0 1 1] [  5   6 105 106]
    """

    #: Code for a sample of ``{}`` rows, for errors.
    _OTHER_SIZE: ClassVar[str] = "MixedReplay(parts, {}).sample()"

    def __init__(self, parts: Sequence[tuple[Any, float]], sample_size: int) -> None:
        super().__init__()
        name = type(self).__name__
        self.sample_size = check_size(name, "sample_size", sample_size)
        self.sources: tuple[Any, ...] = _checked_sources(name, parts, package_of(self))
        for _, ratio in parts:
            check_number(name, "ratios", ratio, 1e-30, 1e30)
        self._ratios, self._specs = [ratio for _, ratio in parts], [source.spec for source in self.sources]
        self._steps, self._counts = self._checked_steps(), self._checked_counts()
        #: Buffers on the rows of the sources, for the number of rows of each.
        self._parts = tuple(source.with_sample_size(n) for source, n in zip(self.sources, self._counts))
        self._limited, self._fronts = ([*map(_front, buffers)] for buffers in (self.sources, self._parts))
        self._source = np.repeat(np.arange(len(self._specs), dtype=np.int32), self._counts)
        self.state = MixtureState(self.sources, self._counts)
        self._direct, self._now = self._kernels()
        self._front = self._fronts[0]

    # Checks of the arguments.

    def _checked_steps(self) -> tuple[str, ...]:
        """Return the outputs of a sample that describe its steps. Raise a ValueError if samples of sources differ."""
        steps = [tuple(key for key in spec.bookkeeping if key not in _WITH_HANDLES) for spec in self._specs]
        outputs = [(*of, *((key, *field) for key, field in s.fields.items())) for of, s in zip(steps, self._specs)]
        first = outputs[0]
        if wrong := [f"source {i}: {others}" for i, others in enumerate(outputs) if others != first]:
            raise ValueError(
                f"For '{type(self).__name__}', the samples of all sources must have the columns of source 0, {first}, "
                f"but got {'; '.join(wrong)}."
            )
        return steps[0]

    def _checked_counts(self) -> list[int]:
        """Return the number of rows that each source draws. Raise a ValueError if one can never provide them."""
        name, n = type(self).__name__, self.sample_size
        counts = exact_counts(self._ratios, n)
        if min(counts) < 1:
            raise ValueError(
                f"For '{name}', each source must get a row, but with ratios {[*map(float, self._ratios)]} the "
                f"sample_size={n} rows are {counts}."
            )
        most = [spec.largest_sample for spec in self._specs]
        if wrong := [f"source {i}: {count} of at most {most[i]}" for i, count in enumerate(counts) if count > most[i]]:
            raise ValueError(
                f"For '{name}', each source must be large enough for its rows of a batch of sample_size={n}, but got "
                f"{'; '.join(wrong)}. Take a larger capacity, or fewer rows."
            )
        return counts

    def _checked_pairs(self, source: Values, indices: Values) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and handles, each ints ``[n]``. Raise an error if they are invalid."""
        name, arrays = type(self).__name__, (as_array(source), as_array(indices))
        for argument, array in zip(("source", "indices"), arrays):
            if array.dtype.kind not in "iu":
                raise TypeError(f"For '{name}', '{argument}' must hold ints, but got {array.dtype.name}.")
        owners, handles = arrays
        if owners.ndim != 1 or owners.shape != handles.shape or not owners.size:
            raise ValueError(
                f"For '{name}', 'source' and 'indices' must have the shape [n], n at least 1, but got "
                f"{list(owners.shape)} and {list(handles.shape)}."
            )
        if owners.min() < 0 or owners.max() >= len(self._specs):
            raise ValueError(f"For '{name}', 'source' must be in [0, {len(self._specs)}), but got {owners.tolist()}.")
        return owners, handles

    def _names(self, with_indices: bool) -> Names:
        """Return the names of a batch's outputs."""
        has_names = all(spec.columns.given_names is not None for spec in self._specs)
        bookkeeping = ("source", *_WITH_HANDLES, *self._steps)
        columns = tuple(self._specs[0].fields)
        return sample_names(type(self).__name__, has_names, bookkeeping, columns, with_indices, optional=_WITH_HANDLES)

    # Samples.

    def sample(
        self, *_misplaced: NoReturn, as_dict: bool = False, with_indices: bool = False, **_unknown: NoReturn
    ) -> Sample:
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
            raise wrong_sample(type(self).__name__, self, _misplaced, _unknown, self._OTHER_SIZE)
        names, now = self._names(with_indices) if as_dict else NO_NAMES, self._now
        for limited, front, calls in self._direct:
            if limited.limiter is not None or front.calls is not calls:
                now = None
        batch = None if now is None else now(with_indices)
        if type(batch) is not tuple:
            batch = self._drawn(with_indices)
        return named(names, batch) if as_dict else batch

    def _kernels(self) -> tuple[tuple[tuple[LocalFront, LocalFront, Any], ...], Any]:
        """Return the fronts and stores of the sources, and a function that draws from all, if one call of C++ can."""
        draws = [getattr(front.calls.try_sample, "__self__", None) for front in self._fronts]
        if any(draw is None or front.folder or front.relabel for draw, front in zip(draws, self._fronts)):
            return (), None
        stores, specs = [front.calls for front in self._fronts], [front.spec for front in self._fronts]
        counted = (store.arrays.get("weights", store.arrays["count"].reshape(1))[-1:] for store in stores)
        others = ((spec.options.min_rows_to_sample, spec.has_handles, spec.prioritized) for spec in specs)
        parts = tuple((*part, *other) for *part, other in zip(draws, counted, others))
        in_order = sorted(self._fronts, key=lambda front: id(front.shared.lock))  # as `hold_locks` takes them
        share = None if package_of(self) == "mindspore_replay.host" else self._fronts[0].share
        call = library.calls.Mixture(tuple(front.calls.guard for front in in_order), parts, share)
        return tuple(zip(self._limited, self._fronts, stores)), call.now

    def _drawn(self, with_indices: bool) -> tuple[Any, ...]:
        """Draw from all sources, or from none, each in its own way, when their limiters allow it."""
        sources = zip(self._limited, self._counts)
        turns = [(front, turn) for front, n in sources if (turn := front.take("sample", n)) is not None]
        watched = Locks(*(turn.watched(front.calls) for front, turn in turns))
        with Locks(*(turn.taken() for _, turn in turns)), hold_locks(self.sources), watched:
            for i, front in enumerate(self._fronts):
                front.ready()
                if (rows := front.available()) < front.spec.options.min_rows_to_sample:
                    raise front.too_few(rows, type(self).__name__, f" of source {i}")
            batches = []
            for front in self._fronts:
                batch, n = [*map(as_array, front.relabelled(front.calls.sample()))], front.spec.sample_size
                batch[:0] = [] if front.has_handles else [np.full(n, -1)]
                batch[1:1] = [] if front.spec.prioritized else [np.ones(n, np.float32)]
                batches.append(batch)
        outputs = [np.concatenate(parts) for parts in zip(*batches)]
        return tuple(map(self._front.share, (self._source.copy(), *(outputs if with_indices else outputs[2:]))))

    def can_sample(self) -> Any:
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
        can = all(part.can_sample() for part in self._fronts)
        return self._front.truth(np.array(can))

    # The state of rows.

    def update_priorities(self, source: Values, indices: Values, priorities: Values) -> Any:
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
            >>> print(mixed.update_priorities(source, indices, reward))
            0
        """
        owners, handles = self._checked_pairs(source, indices)
        new, invalid = as_priority(type(self).__name__, priorities, handles.size), 0
        for i, front in enumerate(self._fronts):
            if front.spec.prioritized and (mine := owners == i).any():
                invalid += int(front.update_priorities(handles[mine], np.broadcast_to(new, mine.shape)[mine]))
        return self._front.count(np.array(invalid, np.int32))

    def update(self, source: Values, indices: Values, values: Experience) -> Any:
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
        owners, handles = self._checked_pairs(source, indices)
        rows = [np.where(owners == i, handles, -1) for i in range(len(self._fronts))]
        members = [(i, front) for i, front in enumerate(self._fronts) if front.has_handles]
        for i, front in members:  # check all before anything is written
            front.calls.check_update(rows[i], values)
        invalid = sum(int(front.update(rows[i], values)) - int((owners != i).sum()) for i, front in members)
        return self._front.count(np.array(invalid, np.int32))

    # The state.

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the states of all sources, as `mindspore_replay.MixedReplay.state_dict` does."""
        states = enumerate(source.state_dict().items() for source in self.sources)
        return {f"source_{i}.{key}": value for i, items in states for key, value in items}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state from `state_dict`. After an error nothing is changed."""
        others, states = dict(state_dict), []
        for i in range(len(self.sources)):
            prefix = f"source_{i}."
            states.append({key.removeprefix(prefix): others.pop(key) for key in state_dict if key.startswith(prefix)})
        fitting(type(self).__name__, others, {})
        checked = [(source.state, source.state.checked_state(state)) for source, state in zip(self.sources, states)]
        with Locks(*(source.sole_use(state) for source, state in checked)):
            for source, state in checked:
                source.load_checked(state)

    def __deepcopy__(self, memo: dict[int, object]) -> "MixedReplay":
        """Make an independent mixture of copies of the sources, with the same ratios."""
        return type(self)(list(zip(copy.deepcopy(self.sources, memo), self._ratios)), self.sample_size)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"For '{type(self).__name__}', a mixture cannot be pickled: write it to a file with save(mixture, path), "
            "or load_state_dict its state_dict() into another. In this process copy.deepcopy(mixture) is a copy."
        )

    def __len__(self) -> int:
        """Return the number of rows stored in all sources together. Only from Python."""
        return sum(map(len, self.sources))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        """Return the sample size, and of each source its ratio and the first line of what it shows."""
        sources = [f"{ratio} of {title(source)}" for source, ratio in zip(self.sources, self._ratios)]
        return "\n  ".join([f"{type(self).__name__}: sample_size={self.sample_size}", *sources])


def exact_counts(ratios: Sequence[float], n: int) -> list[int]:
    """Return the rows of each source among n: the whole part of its share. The first source gets the rest."""
    total = sum(ratios)
    counts = [int(ratio / total * n + 1e-9) for ratio in ratios]  # 0.29 * 100 is 28.999999999999996
    counts[0] += n - sum(counts)
    return counts


def _checked_sources(name: str, parts: object, package: str) -> tuple[Any, ...]:
    """Return the buffers. Raise an error if a pair is invalid."""
    if not isinstance(parts, (list, tuple)) or not parts:
        raise TypeError(f"For '{name}', 'parts' must be a list of pairs (buffer, ratio), but got {parts!r}.")
    for part in parts:
        if not isinstance(part, (list, tuple)) or len(part) != 2 or not isinstance(part[0], LocalBuffer):
            raise TypeError(f"For '{name}', each of 'parts' must be a pair (buffer, ratio), but got {part!r}.")
        if package_of(part[0]) != package:
            raise TypeError(
                f"For '{name}' of {package}, each of 'parts' must be a pair (buffer, ratio) with a buffer of the same "
                f"module, but got a {type(part[0]).__name__} of {package_of(part[0])}."
            )
    if len({id(buffer) for buffer, _ in parts}) < len(parts):
        raise ValueError(f"For '{name}', each buffer may come only once in 'parts', but got one twice.")
    return tuple(buffer for buffer, _ in parts)
