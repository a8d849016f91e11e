"""Batches from several buffers, without MindSpore: shares, rows to keep, and the calls from Python on a mixture.

Axes: ``B`` sample_size, ``m`` sources, ``n`` handles.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..base.checks import check_bool, check_number, check_seed, check_size
from ..base.habits import NoContainer, only_from_python, package_of, wrong_sample
from ..base.mixins import mixin
from ..base.naming import named, sample_names
from ..base.nested import NO_NAMES, Names
from ..base.random import initial_state, random_bits
from ..base.schema import is_tensor
from ..base.types import Experience, Sample, Values
from ..kernels.locks import Event, Held, Locks, hold_locks
from ..kernels.state import fitting
from ..rows.inputs import as_array, as_priority
from ..spec.arguments import given_arguments, keeps_arguments
from ..spec.spec import BufferSpec
from .front import LocalFront
from .local import LocalBuffer
from .showing import title
from .state import Plain

SMALLEST_RATIO, LARGEST_RATIO = 1e-30, 1e30
#: A share of rows less than this below a whole number is rounded up: 0.29 * 100 is 28.999999999999996.
ROUNDING = 1e-9
_Self = TypeVar("_Self", bound="ArrayMixture")
_Mixed = TypeVar("_Mixed", bound="MixedRecipe")
#: Outputs of a batch that come only with handles.
_WITH_HANDLES = ("indices", "weights")


class Mixture:
    """The calls from Python on a `MixedReplay`, made through the fronts of its sources.

    Args:
        cls_name (str): Class to name in errors.
        sources (Sequence[LocalBuffer]): The buffers.
        front_of (Callable): Returns the front of a buffer.
        ratios (Sequence[float]): A ratio for each source.
        sample_size (int): ``B``, rows of a batch.
        rewards (Union[Sequence, None]): For each source, the reward of its rows, or ``None`` to keep it.
        adjustable (bool): Whether the ratios can change.
        seed (Union[int, None]): Seed of the random sequence that chooses rows to keep.

    Attributes:
        parts (tuple[LocalBuffer]): Buffers on the rows of the sources, for the number of rows of each.
        counts (list[int]): The number of these rows.
        steps (tuple[str, ...]): Outputs of a sample that describe its steps: lengths and masks.
        relative (list[bool]): Whether the importance weights of a source are divided by the largest of its rows.
        rewards (list): The reward of each source in the column's dtype, or ``None``.
        state (dict): The ratios and the random state, if they can change, each a `Plain` or with its methods.
    """

    def __init__(
        self,
        cls_name: str,
        sources: Sequence[LocalBuffer],
        front_of: Callable[[LocalBuffer], LocalFront],
        ratios: Sequence[float],
        sample_size: int,
        rewards: Sequence[float | None] | None,
        adjustable: bool,
        seed: int | None,
    ) -> None:
        self.cls_name, self.sources, self.sample_size, self.adjustable = cls_name, sources, sample_size, adjustable
        self.specs = [source.spec for source in sources]
        self._check_outputs()
        self.steps, self.fields = self._steps_of(self.specs[0]), self.specs[0].fields
        self.relative = [spec.prioritized and not spec.options.plan.by_buffer for spec in self.specs]
        first = self.checked_ratios(ratios, may_be_zero=False)
        self.counts = self._checked_counts(first)
        self.parts = tuple(source.with_sample_size(n) for source, n in zip(sources, self.counts))
        self._limited, self.fronts = ([*map(front_of, buffers)] for buffers in (sources, self.parts))
        self.rewards = self._checked_rewards(rewards)
        #: Its own state, without that of the sources.
        self.own: dict[str, Any] = {}
        if adjustable:
            arrays = {"ratios": first, "random_state": initial_state(check_seed(cls_name, seed))}
            self.own |= {key: Plain(array, array.dtype.name) for key, array in arrays.items()}

    # Checks of the arguments.

    @staticmethod
    def _steps_of(spec: BufferSpec) -> tuple[str, ...]:
        return tuple(key for key in spec.bookkeeping if key not in _WITH_HANDLES)

    def _check_outputs(self) -> None:
        """Raise a ValueError that lists the sources whose samples differ from those of source 0."""
        all_outputs = [(*self._steps_of(s), *((key, *field) for key, field in s.fields.items())) for s in self.specs]
        first = all_outputs[0]
        wrong = [f"source {i}: {outputs}" for i, outputs in enumerate(all_outputs) if outputs != first]
        if wrong:
            raise ValueError(
                f"For '{self.cls_name}', the samples of all sources must have the columns of source 0, {first}, but "
                f"got {'; '.join(wrong)}."
            )

    def checked_ratios(self, ratios: object, may_be_zero: bool = True) -> np.ndarray:
        """Return ratios as float64 ``[m]``. Raise an error if one is invalid."""
        name, m = self.cls_name, len(self.specs)
        ratios = as_array(ratios) if is_tensor(ratios) else ratios
        given = list(ratios) if isinstance(ratios, np.ndarray) and ratios.ndim == 1 else ratios
        if not isinstance(given, (list, tuple)) or len(given) != m:
            raise ValueError(f"For '{name}', 'ratios' must be {m} numbers, one for each source, but got {ratios!r}.")
        for ratio in given:
            check_number(name, "ratios", ratio, 0.0 if may_be_zero and ratio == 0 else SMALLEST_RATIO, LARGEST_RATIO)
        if not any(given):
            raise ValueError(f"For '{name}', one of the 'ratios' must be positive, but got {ratios!r}.")
        return np.array(given, np.float64)

    def _checked_counts(self, ratios: np.ndarray) -> list[int]:
        """Return the number of rows that each source draws. Raise a ValueError if one can never provide them."""
        name, n = self.cls_name, self.sample_size
        limited = [i for i, spec in enumerate(self.specs) if spec.parts.limits.max_use is not None]
        if self.adjustable and limited:
            raise ValueError(
                f"For '{name}', 'adjustable' draws rows that it does not deliver, so no source may have 'max_use', "
                f"but got {limited} with it."
            )
        counts = [n] * len(ratios) if self.adjustable else exact_counts(ratios.tolist(), n)
        if min(counts) < 1:
            raise ValueError(
                f"For '{name}', each source must get a row, but with ratios {ratios.tolist()} the sample_size={n} rows "
                f"are {counts}."
            )
        most = [spec.largest_sample for spec in self.specs]
        wrong = [f"source {i}: {count} of at most {most[i]}" for i, count in enumerate(counts) if count > most[i]]
        if wrong:
            raise ValueError(
                f"For '{name}', each source must be large enough for its rows of a batch of sample_size={n}, but got "
                f"{'; '.join(wrong)}. Take a larger capacity, or fewer rows."
            )
        return counts

    def _checked_rewards(self, rewards: object) -> list[np.ndarray | None]:
        name, fields, specs = self.cls_name, self.fields, self.specs
        values = [None] * len(specs) if rewards is None else rewards
        if not isinstance(values, (list, tuple)) or len(values) != len(specs):
            raise ValueError(f"For '{name}', 'rewards' must hold one entry for each source, but got {rewards!r}.")
        numbers = [value for value in values if value is not None]
        for value in numbers:
            check_number(name, "rewards", value, -LARGEST_RATIO, LARGEST_RATIO)
        if not numbers:
            return list(values)
        if "reward" not in fields:
            raise ValueError(f"For '{name}', 'rewards' need a column 'reward', but got {list(fields)}.")
        if any(spec.layout.returns is not None for spec in specs):
            raise ValueError(f"For '{name}', 'rewards' cannot replace the returns that NStep computes.")
        reward_type = fields["reward"][1]
        dtype = specs[0].columns.numpy_type(reward_type)
        with np.errstate(all="ignore"):
            lost = [value for value in numbers if not _fits(value, dtype)]
        if lost or dtype.name != reward_type:  # NumPy has no bfloat16
            raise ValueError(
                f"For '{name}', 'rewards' must fit the column's dtype, {reward_type}, but got {lost or numbers}."
            )
        return [None if value is None else np.array(value, dtype) for value in values]

    def pairs(self, source: Values, indices: Values) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and handles, each ints ``[n]``. Raise an error if they are invalid."""
        name, arrays = self.cls_name, (as_array(source), as_array(indices))
        for argument, array in zip(("source", "indices"), arrays):
            if array.dtype.kind not in "iu":
                raise TypeError(f"For '{name}', '{argument}' must hold ints, but got {array.dtype.name}.")
        given, handles = arrays
        if given.ndim != 1 or given.shape != handles.shape or not given.size:
            raise ValueError(
                f"For '{name}', 'source' and 'indices' must have the shape [n], n at least 1, but got "
                f"{list(given.shape)} and {list(handles.shape)}."
            )
        if given.min() < 0 or given.max() >= len(self.specs):
            raise ValueError(f"For '{name}', 'source' must be in [0, {len(self.specs)}), but got {given.tolist()}.")
        return given, handles

    def sample_names(self, with_indices: bool) -> Names:
        """Return the names of a batch's outputs."""
        has_names = all(spec.columns.given_names is not None for spec in self.specs)
        bookkeeping = ("source", *_WITH_HANDLES, *self.steps)
        columns = tuple(self.fields)
        return sample_names(self.cls_name, has_names, bookkeeping, columns, with_indices, optional=_WITH_HANDLES)

    # Samples.

    def sample(self, as_dict: bool, with_indices: bool) -> Sample:
        """Draw a batch, the rows of source 0 first."""
        names = self.sample_names(with_indices) if as_dict else NO_NAMES
        taken = [(front, front.take("sample", n)) for front, n in zip(self._limited, self.counts)]
        turns = [(front, turn) for front, turn in taken if turn is not None]
        watched = Locks(*(turn.watched(front.calls) for front, turn in turns))
        with Locks(*(turn.taken() for _, turn in turns)), hold_locks(self.sources), watched:
            source, *outputs = self._drawn()
        batch = tuple(map(self.fronts[0].share, (source, *(outputs if with_indices else outputs[2:]))))
        return named(names, batch) if as_dict else batch

    def turn_to_sample(self, stop: Event | None) -> Held:
        """Wait until the limiters of the sources allow a sample. Raise a RuntimeError soon after `stop` is set."""
        return Locks(*(front.turn_to_sample(stop, n) for front, n in zip(self._limited, self.counts)))

    def _drawn(self) -> tuple[np.ndarray, ...]:
        """Draw from all sources, or from none. Return sources, handles, importance weights and the other outputs."""
        for front in self.fronts:
            front.ready()
        for i, front in enumerate(self.fronts):
            if (rows := front.available()) < front.spec.options.min_rows_to_sample:
                raise front.too_few(rows, self.cls_name, f" of source {i}")
        batches, counts = [list(self._drawn_from(i)) for i in range(len(self.fronts))], self.counts
        if self.adjustable:
            kept = self._kept_rows()
            batches, counts = [[part[rows] for part in batch] for batch, rows in zip(batches, kept)], [*map(len, kept)]
            for batch, is_relative in zip(batches, self.relative):
                if is_relative and (largest := batch[1].max(initial=0)) > 0:
                    batch[1] /= largest
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts), *map(np.concatenate, zip(*batches))

    def _drawn_from(self, i: int) -> tuple[np.ndarray, ...]:
        """Draw from one source: handles, importance weights and the other outputs."""
        front, n = self.fronts[i], self.counts[i]
        drawn = front.calls.sample()
        batch = [*map(as_array, front.relabelled(drawn))]
        if not front.has_handles:
            batch.insert(0, np.full(n, -1))
        if not front.spec.prioritized:
            batch.insert(1, np.ones(n, np.float32))
        if self.rewards[i] is not None:
            batch[self.place_of_rewards] = self._rewarded(i, batch)
        return tuple(batch)

    @property
    def place_of_rewards(self) -> int:
        """Place of the rewards among handles, importance weights and the other outputs."""
        return 2 + len(self.steps) + [*self.fields, "reward"].index("reward")

    def _rewarded(self, i: int, batch: Sequence[np.ndarray]) -> np.ndarray:
        """Return the source's reward for every row, or for every step that exists."""
        reward = np.full_like(batch[self.place_of_rewards], self.rewards[i])
        if not self.steps:
            return reward
        mask = batch[1 + len(self.steps)].astype(reward.dtype)
        return reward * mask.reshape(mask.shape + (1,) * (reward.ndim - mask.ndim))

    def _kept_rows(self) -> list[np.ndarray]:
        """Choose the rows to keep of each source's batch of B, as `ops.mixture.PickRows` does."""
        counts, n = exact_counts(self.own["ratios"].asnumpy().tolist(), self.sample_size), self.sample_size
        key, counter = self.own["random_state"].asnumpy().tolist()
        bits = random_bits(key, counter + np.arange(len(counts)))
        first = ((bits >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
        self.own["random_state"].overwrite(np.array([key, counter + len(counts)]))
        points = (np.ceil((np.arange(k) + first[i]) * n / k) - 1 for i, k in enumerate(counts))
        return [rows.clip(0, n - 1).astype(np.int64) for rows in points]

    def can_sample(self) -> bool:
        """Return True if each source has enough eligible rows, and its limiter allows the sample now."""
        return all(part.can_sample(front) for front, part in zip(self._limited, self.fronts))

    # The state.

    def update_priorities(self, source: Values, indices: Values, priorities: Values) -> int:
        """Set priorities of rows, each in its own buffer. Return the number of invalid handles."""
        owners, handles = self.pairs(source, indices)
        new, invalid = as_priority(self.cls_name, priorities, handles.size), 0
        for i, front in enumerate(self.fronts):
            mine = owners == i
            if front.spec.prioritized and mine.any():
                invalid += int(front.update_priorities(handles[mine], np.broadcast_to(new, mine.shape)[mine]))
        return invalid

    def update(self, source: Values, indices: Values, values: Experience) -> int:
        """Write columns of stored rows, each in its own buffer. Return the number of invalid handles."""
        owners, handles = self.pairs(source, indices)
        members = [(i, front) for i, front in enumerate(self.fronts) if front.has_handles]
        for i, front in members:  # check all before anything is written
            front.calls.check_update(np.where(owners == i, handles, -1), values)
        invalid = 0
        for i, front in members:
            mine = owners == i
            invalid += int(front.update(np.where(mine, handles, -1), values)) - int((~mine).sum())
        return invalid

    def set_ratios(self, ratios: Values) -> None:
        """Set the ratios to draw by."""
        if not self.adjustable:
            raise RuntimeError(f"For '{self.cls_name}', 'set_ratios' needs adjustable=True in the constructor.")
        checked = self.checked_ratios(ratios)
        with hold_locks(self.sources):
            self.fronts[0].ready()
            self.own["ratios"].overwrite(checked)

    def size(self) -> int:
        """Return the number of rows stored in all sources together."""
        return sum(map(len, self.sources))

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the states of all sources, and the ratios and the random state."""
        own = {key: held.asnumpy().copy() for key, held in self.own.items()}
        states = enumerate(source.state_dict().items() for source in self.sources)
        return own | {f"source_{i}.{key}": value for i, items in states for key, value in items}

    def state_arrays(self) -> Mapping[str, Any]:
        """Return its own state by name, without that of the sources, for a file."""
        return self.own

    @property
    def runs_graphs(self) -> bool:
        """True if a sample drawn from Python runs a compiled graph."""
        return any(source.state.runs_graphs for source in self.sources)

    def check_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Raise a ValueError unless rows can be drawn by the ratios of a state."""
        if self.adjustable:
            self.checked_ratios(state["ratios"])

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state from `state_dict`. After an error nothing is changed."""
        own, states = dict(state_dict), []
        for i in range(len(self.sources)):
            prefix = f"source_{i}."
            states.append({key.removeprefix(prefix): own.pop(key) for key in state_dict if key.startswith(prefix)})
        expected = {key: (held.shape, held.dtype) for key, held in self.own.items()}
        arrays = fitting(self.cls_name, own, expected)
        self.check_state(arrays)
        of_sources = [source.state for source in self.sources]
        checked = [source.checked_state(state) for source, state in zip(of_sources, states)]
        with Locks(*(source.sole_use(state) for source, state in zip(of_sources, checked))):
            for source, state in zip(of_sources, checked):
                source.load_checked(state)
        for key, held in self.own.items():
            held.overwrite(arrays[key])


def exact_counts(ratios: Sequence[float], n: int) -> list[int]:
    """Return the rows of each source among n: the whole part of its share. The first source gets the rest."""
    total = sum(ratios)
    counts = [int(ratio / total * n + ROUNDING) for ratio in ratios]
    counts[0] += n - sum(counts)
    return counts


def _fits(value: float, dtype: np.dtype) -> bool:
    """Return True if a number keeps its value in a column's dtype: exactly for ints, up to rounding for floats."""
    cast = np.array(value).astype(dtype)
    return dtype.kind != "b" and (bool(cast == value) if dtype.kind in "iu" else bool(np.isfinite(cast)))


@mixin
@keeps_arguments
class MixedRecipe:
    """A mixture with the public constructor. A subclass chooses the buffers, and adds the other methods.

    Args:
        parts (Sequence[tuple[Buffer, float]]): Buffers, the sources 0, 1, ..., and their ratios.
        sample_size (int): ``B``, rows of a batch.
        rewards (Union[Sequence[Union[float, None]], None]): For each source, a reward that replaces the column
            ``"reward"``, or ``None`` to keep it. Default: ``None``, to keep all.
        adjustable (bool): Whether `set_ratios` can change the ratios. Default: ``False``.
        seed (Union[int, None]): Seed of the random sequence that chooses rows to keep. Default: ``None``.
    """

    #: Code for a sample of ``{}`` rows, for errors.
    _OTHER_SIZE: ClassVar[str] = "MixedReplay(parts, {}).sample()"

    def __init__(
        self,
        parts: Sequence[tuple[Any, float]],
        sample_size: int,
        *,
        rewards: Sequence[float | None] | None = None,
        adjustable: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.sample_size = check_size(name, "sample_size", sample_size)
        self.adjustable = check_bool(name, "adjustable", adjustable)
        self.sources = self._checked_sources(name, parts)
        ratios = [ratio for _, ratio in parts]
        given = self.sources, self._front_of, ratios, self.sample_size, rewards, self.adjustable, seed
        self._front = Mixture(name, *given)
        self._begin()

    @staticmethod
    def _front_of(source: Any) -> LocalFront:
        front: LocalFront = source._front  # noqa: SLF001  that of a buffer of this package
        return front

    def _begin(self) -> None:
        """Set the attributes of a subclass. The constructor calls this last."""

    def _checked_sources(self, name: str, parts: object) -> tuple[Any, ...]:
        """Return the buffers. Raise an error if a pair is invalid."""
        if not isinstance(parts, (list, tuple)) or not parts:
            raise TypeError(f"For '{name}', 'parts' must be a list of pairs (buffer, ratio), but got {parts!r}.")
        for part in parts:
            if not isinstance(part, (list, tuple)) or len(part) != 2 or not isinstance(part[0], LocalBuffer):
                raise TypeError(f"For '{name}', each of 'parts' must be a pair (buffer, ratio), but got {part!r}.")
            if package_of(part[0]) != package_of(self):
                raise TypeError(
                    f"For '{name}' of {package_of(self)}, each of 'parts' must be a pair (buffer, ratio) with a buffer "
                    f"of the same module, but got a {type(part[0]).__name__} of {package_of(part[0])}."
                )
        if len({id(buffer) for buffer, _ in parts}) < len(parts):
            raise ValueError(f"For '{name}', each buffer may come only once in 'parts', but got one twice.")
        return tuple(buffer for buffer, _ in parts)

    # The state, for files and copies.

    @property
    def state(self) -> Mixture:
        """What the rest of the package asks of a mixture. Users need none of it."""
        return self._front

    def __deepcopy__(self: _Mixed, memo: dict[int, object]) -> _Mixed:
        """Make an independent mixture of copies of the sources, with the same ratios and random state."""
        given = given_arguments(self)
        pairs = [(copy.deepcopy(buffer, memo), ratio) for buffer, ratio in given["parts"]]
        made = type(self)(**{**given, "parts": pairs, "seed": 0})
        for key, held in made.state.state_arrays().items():
            held.overwrite(self._front.own[key].asnumpy())
        return made

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"For '{type(self).__name__}', a mixture cannot be pickled: write it to a file with save(mixture, path), "
            "or load_state_dict its state_dict() into another. In this process copy.deepcopy(mixture) is a copy."
        )

    def __len__(self) -> int:
        return self._front.size()

    def __repr__(self) -> str:
        """Return the sample size, and of each source its ratio and the first line of what it shows."""
        ratios = [ratio for _, ratio in given_arguments(self)["parts"]]
        if self.adjustable:
            ratios = self._front.own["ratios"].asnumpy().tolist()
        sources = [f"{ratio} of {title(source)}" for source, ratio in zip(self.sources, ratios)]
        return "\n  ".join([f"{type(self).__name__}: sample_size={self.sample_size}", *sources])


@mixin
@only_from_python
class ArrayMixture(MixedRecipe, NoContainer):
    """A mixture of buffers on NumPy arrays: the methods of `MixedReplay`, with arrays in place of Tensors."""

    def sample(
        self, *_misplaced: NoReturn, as_dict: bool = False, with_indices: bool = False, **_unknown: NoReturn
    ) -> Sample:
        """Draw a batch, as `MixedReplay.sample` does."""
        if _misplaced or _unknown:
            raise wrong_sample(type(self).__name__, self, _misplaced, _unknown, self._OTHER_SIZE)
        return self._front.sample(as_dict, with_indices)

    def can_sample(self) -> bool:
        """Return True if each source has enough eligible rows for a batch, and its limiter allows the sample now."""
        return self._front.can_sample()

    def update_priorities(self, source: Values, indices: Values, priorities: Values) -> int:
        """Set priorities of rows, as `MixedReplay.update_priorities` does. Return the number of invalid handles."""
        return self._front.update_priorities(source, indices, priorities)

    def update(self, source: Values, indices: Values, values: Experience) -> int:
        """Write columns of stored rows, as `MixedReplay.update` does. Return the number of invalid handles."""
        return self._front.update(source, indices, values)

    def set_ratios(self: _Self, ratios: Values) -> _Self:
        """Set the ratios to draw by, as `MixedReplay.set_ratios` does."""
        self._front.set_ratios(ratios)
        return self

    @property
    def ratios(self) -> np.ndarray:
        """The ratios, if they can change. Shape ``[m]``, float64."""
        return self._front.own["ratios"].asnumpy().copy()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the states of all sources and its own, as `MixedReplay.state_dict` does."""
        return self._front.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, ArrayLike]) -> None:
        """Load a state, as `MixedReplay.load_state_dict` does."""
        self._front.load_state_dict(state_dict)

    def __bool__(self) -> bool:
        return True
