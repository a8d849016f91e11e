"""What a buffer is: one record, from which follows all that a store, a graph, a file or another process needs."""

import copy
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.checks import MAX_CAPACITY, check_seed, check_size
from ..base.column import Column, Priorities
from ..base.length_groups import least_items
from ..base.lengths import length_groups_of
from ..base.naming import sample_names
from ..base.nested import NO_NAMES, Names
from ..base.schema import Schema
from .arguments import encoded, positional_arguments, without
from .layout import RelabelPlan, SampleLayout
from .needs import need_handles
from .options import Options
from .parts import Episodes, Parts, Sequences

#: For each public class, that with its constructor.
constructors: dict[str, type] = {}


class BufferSpec:
    """What a buffer is: its class, columns, sizes and parts. What follows from them is computed once.

    Args:
        cls_name (str): Its class.
        constructor (Union[type, None]): Its constructor, a class of `classes`, or ``None`` for a user's class.
        columns (Schema): Its columns.
        sample_size (int): ``B``, rows of one sample.
        capacity (int): ``C``, most rows stored.
        num_envs (int): Environments that insert in step.
        seed (int): Seed of the random sequence.
        parts (Parts): How rows are drawn and stored, and the contents of a sample, checked.

    Attributes:
        layout (SampleLayout): The contents of a sample, with the views applied.
        options (Options): How a store keeps and draws the rows.
    """

    def __init__(
        self,
        cls_name: str,
        constructor: Any,
        columns: Schema,
        sample_size: int,
        capacity: int,
        num_envs: int,
        seed: int,
        parts: Parts,
    ) -> None:
        self.cls_name, self.constructor, self.columns, self.parts = cls_name, constructor, columns, parts
        self.sample_size, self.capacity, self.num_envs, self.seed = sample_size, capacity, num_envs, seed
        self.layout: SampleLayout = parts.layout(cls_name, columns)
        self.options: Options = parts.options(cls_name, self.layout, sample_size, capacity, num_envs, seed)
        self._check_sizes()

    def _check_sizes(self) -> None:
        name, options, rule = self.cls_name, self.options, self.options.rule
        if self.reach > self.capacity:
            raise ValueError(
                f"For '{name}', 'capacity' must be at least {self.reach}, the rows that a sample reaches over in "
                f"{self.num_envs} environments, but got {self.capacity}."
            )
        if options.plan.in_order and self.num_envs > self.capacity:
            raise ValueError(
                f"For '{name}', 'capacity' must be at least num_envs={self.num_envs}, the rows of one step, but got "
                f"{self.capacity}."
            )
        if self.sample_size > self.largest_sample:
            units = "rows" if rule is None else "starts of sequences"
            raise ValueError(
                f"For '{name}', 'sample_size' must be at most {self.largest_sample}, the most {units} that "
                f"capacity={self.capacity} rows can hold, but got {self.sample_size}."
            )
        rows = self.parts.rows_to_hold(self.sample_size, self.num_envs)
        for group in self.columns.length_groups:
            if group.items < (least := least_items(rows, group.longest)):
                raise ValueError(
                    f"For '{name}', 'items' must be at least {least} for column {group.name!r}, so that the {rows} "
                    f"rows that a sample may need fit with longest={group.longest} items each, but got {group.items}: "
                    "insertions and samples could wait for each other for ever. With timeout=0 they fail instead."
                )

    @property
    def largest_sample(self) -> int:
        """Most rows of a sample."""
        return MAX_CAPACITY if self.options.plan.repeats else self.options.most_starts

    @property
    def reach(self) -> int:
        """Rows that a sample reaches over, the smallest capacity."""
        rule = self.options.rule
        return 1 if rule is None else (rule.past + max(rule.future, self.layout.chain)) * self.num_envs

    def resized(self, sample_size: object) -> "BufferSpec":
        """Return the same buffer for another sample size. Raise an error if that is not valid."""
        spec = copy.copy(self)
        spec.sample_size = size = check_size(self.cls_name, "sample_size", sample_size)
        spec.options = self.options._replace(plan=self.options.plan._replace(n=size))
        spec._check_sizes()  # noqa: SLF001  of this class
        return spec

    @property
    def public_class(self) -> str | None:
        """The public class whose constructor the buffer's class has, or ``None`` for another constructor."""
        return None if self.constructor is None else self.constructor.__name__

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of its `public_class`'s constructor, without the capacity, the seed and the place."""
        if self.constructor is None:
            return {}
        parts = self.parts
        values = {
            **{"sample_size": self.sample_size, "num_envs": self.num_envs, "views": parts.views},
            **{"priorities": self.priorities, **self.columns.arguments(), **vars(parts.sampler)},
            **{**parts.limits._asdict(), **parts.span._asdict(), **vars(self.priorities or Priorities())},
        }
        return {key: values[key] for key in inspect.signature(self.constructor.__init__).parameters if key in values}

    @property
    def foreign(self) -> str | None:
        """Why a file cannot name the class, or ``None`` if it can."""
        return None if self.cls_name == self.public_class else f"{self.cls_name} is no class of mindspore_replay"

    @property
    def incomplete(self) -> str | None:
        """Why a file cannot store all views, or ``None`` if it can."""
        return next(filter(None, map(without, self.parts.views)), None)

    def to_json(self) -> dict[str, Any]:
        """Return the buffer as JSON, without the seed, with a ``reason`` if no buffer can be made from the JSON."""
        arguments = {key: encoded(value) for key, value in self.arguments().items()}
        description = {"class": self.cls_name, "capacity": self.capacity, "arguments": arguments}
        of_class, reason = {"kind": self.public_class} if self.foreign else {}, self.foreign or self.incomplete
        return description | of_class | ({"reason": reason} if reason else {})

    def called(self, cls_name: str) -> "BufferSpec":
        """Return the same buffer with another class to name in errors."""
        spec = copy.copy(self)
        spec.cls_name, spec.columns = cls_name, copy.copy(self.columns)
        vars(spec.columns).pop("references", None)
        spec.columns.cls_name, spec.options = cls_name, self.options._replace(cls_name=cls_name)
        return spec

    @property
    def weighted(self) -> bool:
        """True if each row has a weight."""
        return self.options.weighting is not None

    @property
    def priorities(self) -> Priorities | None:
        """How priorities become weights, if rows are drawn by them."""
        return self.parts.sampler.priorities

    @property
    def prioritized(self) -> bool:
        """True if rows are drawn by priority."""
        return self.options.beta is not None

    @property
    def has_episodes(self) -> bool:
        """True if the buffer stores episodes."""
        return self.options.rule is not None

    @property
    def has_handles(self) -> bool:
        """True if rows have handles."""
        return self.options.has_handles

    @property
    def always_handles(self) -> bool:
        """True if every sample includes handles, even if not asked for."""
        return self.options.plan.always_handles

    @property
    def needs_kernels(self) -> str | None:
        """What of the buffer needs kernels, for a message, or ``None`` if samples are single rows of a ring."""
        parts, columns = self.parts, self.columns
        reasons = {
            "compress=True": columns.compressed,
            "a column whose shape begins with None": columns.length_groups,
            "late=True": columns.late,
            "'views'": parts.views,
            "'sequence_length'": isinstance(parts.span, Sequences),
            "'max_episode_length'": isinstance(parts.span, Episodes),
            "'window'": parts.sampler.window is not None,
            "drawing in order": self.options.plan.in_order,
            "drawing in epochs": parts.sampler.epochs is not None,
            "a reservoir": parts.reservoir,
        }
        return next((feature for feature, is_used in reasons.items() if is_used), None)

    @property
    def achieved_goal(self) -> str | None:
        """Column of the goals achieved, in the state after an action, if samples get other goals."""
        return None if self.layout.hindsight is None else self.layout.hindsight.achieved

    @functools.cached_property
    def bookkeeping(self) -> tuple[str, ...]:
        """Outputs before the columns: handles and importance weights, lengths and masks."""
        first = ("indices",) * self.has_handles + ("weights",) * self.prioritized
        return (*first, *self.parts.span.bookkeeping(self.layout), *self.names_of_lengths)

    @functools.cached_property
    def names_of_lengths(self) -> tuple[str, ...]:
        """Names of the lengths of rows in a sample. A sample of whole episodes has lengths of these too."""
        groups = self.columns.length_groups
        is_plain = len(groups) == 1 and "lengths" not in self.parts.span.bookkeeping(self.layout)
        return ("lengths",) if is_plain else tuple(group.name_of_lengths for group in groups)

    @functools.cached_property
    def fields(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """For each column of a sample, its shape without the first axis, and its dtype."""
        outputs = self.layout.outputs().items()
        return {name: (output.shape(1, self.columns)[1:], output.dtype(self.columns)) for name, output in outputs}

    @functools.cached_property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the bookkeeping and of the columns of a sample."""
        return self.bookkeeping, tuple(self.fields)

    def sample_names(self, as_dict: bool, with_indices: bool) -> Names:
        """Return the names of a sample's parts, or none for a tuple. Raise an error if there is no such sample."""
        if with_indices:
            need_handles(self.options, "sample(with_indices=True)")
        if not as_dict:
            return NO_NAMES
        if with_indices not in self._sample_names:
            has_names, with_handles = self.columns.given_names is not None, with_indices or self.always_handles
            self._sample_names[with_indices] = sample_names(self.cls_name, has_names, *self.names, with_handles)
        return self._sample_names[with_indices]

    def row_names(self, as_dict: bool) -> Names:
        """Return the names of the lengths and columns of stored rows, or none if they are a tuple."""
        if not as_dict:
            return NO_NAMES
        has_names = self.columns.given_names is not None
        return sample_names(self.cls_name, has_names, self.names_of_lengths, self.columns.names)

    @functools.cached_property
    def _sample_names(self) -> dict[bool, Names]:
        return {}

    @property
    def relabelling(self) -> RelabelPlan | None:
        """Where relabelling finds the outputs of a sample, or ``None`` without hindsight."""
        return self.layout.relabelling(len(self.parts.span.bookkeeping(self.layout)))


def spec_for(
    cls: Any,
    sample_size: int,
    capacity: int,
    shapes: Sequence[Sequence[int]] | None,
    types: Sequence[object] | None,
    parts: Parts,
    names: Sequence[str] | None,
    columns: Mapping[str, Column] | Sequence[Column] | None,
    num_envs: int,
    seed: int | None,
) -> BufferSpec:
    """Return what a buffer of a class is, with the arguments of `LocalBuffer`. Raise an error if one is wrong."""
    name = cls.__name__
    size, most = check_size(name, "sample_size", sample_size), check_size(name, "capacity", capacity)
    if size > most and not parts.sampler.replace:
        raise ValueError(
            f"For '{name}', 'sample_size' must be at most 'capacity', but got sample_size={size} and "
            f"capacity={most}. The order of the arguments is {positional_arguments(cls)}; give the sizes by "
            "name."
        )
    num_envs = check_size(name, "num_envs", num_envs)
    schema = cls._columns_of(name, shapes, types, names, columns)
    without: dict[str, object] = {
        "a reservoir, which evicts rows in no order": parts.reservoir,
        "'views', which join steps of one length": parts.views,
        "compress=True, which stores rows of one length": schema.compressed,
    }
    parts = parts.checked(name, size, most)
    schema.let_lengths_differ(length_groups_of(schema, without, parts.rows_to_hold(size, num_envs)))
    return BufferSpec(name, cls._constructor, schema, size, most, num_envs, check_seed(name, seed), parts)
