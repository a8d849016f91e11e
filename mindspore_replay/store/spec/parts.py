"""Parts of a buffer: how rows are drawn, when they expire, and the contents of a sample.

A public class chooses the parts and passes them to `Buffer`, which checks them and makes `Options` of them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..base.checks import LAST_CLOCK, check_bool, check_choice, check_number, check_size, seconds_of
from ..base.column import Priorities
from ..base.schema import Schema
from .episodes import PAD_OPEN, WindowRule
from .epochs import EpochRule
from .layout import SampleLayout, StepRange, View, past_of
from .options import Options
from .plan import DISCOUNT, GIVEN, HANDLE, LENGTH, WEIGHT, Output, SamplePlan


class Sampler:
    """A way to draw rows.

    Attributes:
        replace (bool): Whether a row may occur twice in one sample.
        ordered (bool): Whether drawn positions count from the oldest row.
        window (Union[int, None]): Initial number of newest rows to draw from, if that may change.
        weighting (tuple[float, float]): Alpha and epsilon, which convert a priority to a weight. By default every
            weight is 1.
        initial_priority (float): Priority of new rows as long as none was larger.
        default_priority (str): Which priority is a new row's: the ``"largest"`` so far, or ``"largest_held"``.
        first_beta (Union[float, None]): Initial beta, if samples include importance weights.
        beta_step (float): Increment of beta for each sample.
        by_buffer (bool): Whether importance weights are divided by the largest of the buffer, not of the batch.
        never_evicts_valid (bool): Whether an insertion may not evict a row that can still be drawn.
        waits (bool): Whether insertions and samples may wait for each other.
        priorities (Union[Priorities, None]): How priorities become weights, if rows are drawn by them.
        epochs (Union[EpochRule, None]): The rule for batches, if rows are drawn in epochs.
    """

    replace = True
    ordered = False
    window: int | None = None
    weighting = (0.0, 0.0)
    initial_priority = 1.0
    default_priority = "largest"
    first_beta: float | None = None
    beta_step = 0.0
    by_buffer = False
    never_evicts_valid = False
    waits = False
    epochs: EpochRule | None = None
    priorities: Priorities | None = None

    def check(self, name: str, sample_size: int, capacity: int) -> None:
        """Check the sampler's arguments. A TypeError or ValueError names the class `name`."""

    def check_window(self, name: str, sample_size: int, capacity: int) -> None:
        """Check the window, if there is one."""
        if self.window is not None:
            self.window = check_size(name, "window", self.window, capacity, 1 if self.replace else sample_size)

    def draw(self, weighted: bool) -> str:
        """Return the name of the draw of `plan.DRAWS`, for a buffer with or without weights."""
        raise NotImplementedError


class Uniform(Sampler):
    """Draws valid rows uniformly, from the newest `window` rows if that is set."""

    def __init__(self, replace: bool = True, ordered: bool = False, window: int | None = None) -> None:
        self.replace, self.ordered, self.window = replace, ordered, window

    def check(self, name: str, sample_size: int, capacity: int) -> None:
        """Raise an error that names an argument that does not fit the sizes."""
        check_bool(name, "replace", self.replace)
        check_bool(name, "ordered", self.ordered)
        self.check_window(name, sample_size, capacity)

    def draw(self, weighted: bool) -> str:
        """Return the name of the draw, for a buffer with or without weights."""
        return "rank" if weighted else "uniform"


class Prioritized(Sampler):
    """Draws rows in proportion to (priority + epsilon)^alpha, one from each stratum of the total weight.

    With `window`, that is the weight of the newest `window` rows.
    """

    priorities: Priorities

    def __init__(self, priorities: Priorities, window: int | None = None) -> None:
        self.priorities, self.window = priorities, window

    def check(self, name: str, sample_size: int, capacity: int) -> None:
        """Raise an error that names an argument that does not fit the sizes."""
        self.check_window(name, sample_size, capacity)
        priorities = self.priorities
        epsilon = check_number(name, "epsilon", priorities.epsilon, 0.0, 1e30)
        if 0 < epsilon < 1e-37:
            raise ValueError(f"For '{name}', 'epsilon' must be 0 or at least 1e-37, but got {epsilon}.")
        check_choice(name, "normalize", priorities.normalize, "batch", "buffer")
        check_choice(name, "default_priority", priorities.default_priority, "largest", "largest_held")
        self.priorities = replace(
            priorities,
            alpha=check_number(name, "alpha", priorities.alpha),
            beta=check_number(name, "beta", priorities.beta),
            beta_steps=check_size(name, "beta_steps", priorities.beta_steps, minimum=0),
            epsilon=epsilon,
            initial_priority=check_number(name, "initial_priority", priorities.initial_priority, 1e-37, 3e38),
        )
        priorities = self.priorities
        self.first_beta, self.by_buffer = priorities.beta, priorities.normalize == "buffer"
        self.initial_priority, self.default_priority = priorities.initial_priority, priorities.default_priority
        self.weighting = priorities.alpha, priorities.epsilon
        self.beta_step = (1 - priorities.beta) / priorities.beta_steps if priorities.beta_steps else 0.0

    def draw(self, weighted: bool) -> str:
        """Return the name of the draw."""
        return "priority"


class InOrder(Sampler):
    """Draws the oldest valid rows, or the newest ones first."""

    replace = False

    def __init__(self, order: str, when_full: str, timeout: float | None = 0) -> None:
        self.order, self.when_full, self.timeout = order, when_full, timeout

    def check(self, name: str, sample_size: int, capacity: int) -> None:
        """Raise an error that names an argument outside its range."""
        check_choice(name, "order", self.order, "fifo", "lifo")
        check_choice(name, "when_full", self.when_full, "block", "evict")
        self.timeout = seconds_of(self.timeout, name)
        self.never_evicts_valid = self.when_full == "block"
        self.waits = self.never_evicts_valid and self.timeout != 0

    def draw(self, weighted: bool) -> str:
        """Return the name of the draw."""
        return "oldest_first" if self.order == "fifo" else "newest_first"


class InEpochs(Sampler):
    """Draws each valid row once an epoch, in a random order, and shares out the batches among `world` learners."""

    replace = False

    def __init__(self, last: str, rank: int, world: int) -> None:
        self.last, self.rank, self.world = last, rank, world

    def check(self, name: str, sample_size: int, capacity: int) -> None:
        """Raise an error that names an argument outside its range."""
        check_choice(name, "last", self.last, "drop", "pad")
        world = check_size(name, "world", self.world)
        rank = check_size(name, "rank", self.rank, world - 1, minimum=0)
        if sample_size * world > capacity and self.last == "drop":
            raise ValueError(
                f"For '{name}', 'capacity' must be at least sample_size * world = {sample_size * world}, the rows of "
                f"one batch of all learners, but got {capacity}."
            )
        self.epochs = EpochRule(self.last == "pad", rank, world)

    def draw(self, weighted: bool) -> str:
        """Return the name of the draw."""
        return "epochs"


def sampler_of(name: str, priorities: Priorities | None, replace: bool, window: int | None = None) -> Sampler:
    """Make the sampler of a class that supports both ways to draw."""
    if priorities is None:
        return Uniform(replace, window=window)
    if not isinstance(priorities, Priorities):
        raise TypeError(
            f"For '{name}', 'priorities' must be mindspore_replay.Priorities or None, but got {priorities!r}: write "
            "Priorities(alpha=0.6, beta=0.4)."
        )
    if not check_bool(name, "replace", replace):
        raise ValueError(
            f"For '{name}', 'replace' must be True, but got False: one row is sampled from each stratum of the total "
            "weight, and a row may fill several."
        )
    return Prioritized(priorities, window)


class Expiry(NamedTuple):
    """Limits after which rows are removed. Each needs weights, which `weighted` requests without a limit."""

    max_use: int | None = None
    max_staleness: int | None = None
    weighted: bool = False

    def checked(self, name: str) -> "Expiry":
        """Return valid limits, with `weighted` set if they need it. Raise an error if one is invalid."""
        use, staleness = self.max_use, self.max_staleness
        use = None if use is None else check_size(name, "max_use", use)
        if staleness is not None:
            staleness = check_size(name, "max_staleness", staleness, LAST_CLOCK, minimum=0)
        weighted = check_bool(name, "weighted", self.weighted) or use is not None or staleness is not None
        return Expiry(use, staleness, weighted)


class SingleRows(NamedTuple):
    """Samples of single rows, or of the results of views for each row.

    Args:
        padded (bool): Whether a sample may be short. Default: ``False``.
    """

    padded: bool = False

    def checked(self, name: str) -> "SingleRows":
        """Return this span, which the class configures."""
        return self

    @property
    def steps(self) -> None:
        """None, since a sample has no steps."""
        return None

    def rule(self, layout: SampleLayout, past: int, num_envs: int) -> WindowRule:
        """Return the rule of starts, for views that read other rows of the episode."""
        return WindowRule(past, 2 if layout.needs_next else 1, 1, True, num_envs, 0)

    def bookkeeping(self, layout: SampleLayout) -> dict[str, Output]:
        """Return the mask of the rows that are no padding, if there may be padding."""
        return {"mask": Output(GIVEN)} if self.padded else {}


class Sequences(NamedTuple):
    """Samples of sequences of steps of one episode."""

    sequence_length: int
    burn_in: int
    stride: int
    pad_end: bool

    def checked(self, name: str) -> "Sequences":
        """Return the part with valid sizes. Raise an error if one is invalid."""
        return Sequences(
            check_size(name, "sequence_length", self.sequence_length),
            check_size(name, "burn_in", self.burn_in, minimum=0),
            check_size(name, "stride", self.stride),
            check_bool(name, "pad_end", self.pad_end),
        )

    @property
    def steps(self) -> StepRange:
        """Steps of a sample, relative to its start."""
        return StepRange(-self.burn_in, self.burn_in + self.sequence_length)

    def rule(self, layout: SampleLayout, past: int, num_envs: int) -> WindowRule:
        """Return the rule of starts: a multiple of the stride from the first step of the episode."""
        return WindowRule(past, self.sequence_length, self.stride, self.pad_end, num_envs, 0)

    def bookkeeping(self, layout: SampleLayout) -> dict[str, Output]:
        """Return the mask of the steps that exist."""
        return {"mask": layout.mask()}


class Episodes(NamedTuple):
    """Samples of whole episodes: sequences from the first step on, padded at the end."""

    max_episode_length: int

    def checked(self, name: str) -> "Episodes":
        """Return the part with a valid length. Raise an error if it is invalid."""
        return Episodes(check_size(name, "max_episode_length", self.max_episode_length))

    @property
    def steps(self) -> StepRange:
        """Steps of a sample, relative to its start."""
        return StepRange(0, self.max_episode_length)

    def rule(self, layout: SampleLayout, past: int, num_envs: int) -> WindowRule:
        """Return the rule of starts: the first step of a whole episode."""
        longest = self.max_episode_length
        return WindowRule(0, longest, longest, True, num_envs, longest)

    def bookkeeping(self, layout: SampleLayout) -> dict[str, Output]:
        """Return the lengths of the episodes, and the mask of the steps that exist."""
        return {"lengths": Output(LENGTH), "mask": layout.mask()}


def span_of(
    name: str, sequence_length: int | None, burn_in: int, stride: int | None, pad_end: bool, padded: bool = False
) -> SingleRows | Sequences:
    """Make the span of a class of single rows or of sequences, which by default do not overlap."""
    if sequence_length is not None:
        return Sequences(sequence_length, burn_in, sequence_length if stride is None else stride, pad_end)
    if (burn_in, stride, pad_end) != (0, None, False):
        raise ValueError(
            f"For '{name}', 'burn_in', 'stride' and 'pad_end' need 'sequence_length', but got burn_in={burn_in!r}, "
            f"stride={stride!r} and pad_end={pad_end!r} without it."
        )
    return SingleRows(padded)


class Parts(NamedTuple):
    """The parts of one buffer.

    Args:
        sampler (Sampler): How rows are drawn.
        limits (Expiry): When rows expire.
        span (Union[SingleRows, Sequences, Episodes]): Unit of a sample.
        views (Sequence): Modifications of the contents of a sample.
        reservoir (bool): Whether rows are chosen by Algorithm R, instead of a ring.
    """

    sampler: Sampler
    limits: Expiry = Expiry()
    span: SingleRows | Sequences | Episodes = SingleRows()
    views: Sequence[View] = ()
    reservoir: bool = False

    def checked(self, name: str, sample_size: int, capacity: int) -> "Parts":
        """Check the values of all parts, and return the parts with them.

        Raises:
            TypeError: If a value is of another type.
            ValueError: If a value is outside its range.
        """
        if not isinstance(self.views, (list, tuple)):
            raise TypeError(f"For '{name}', 'views' must be a list or tuple of views, but got {self.views!r}.")
        self.sampler.check(name, sample_size, capacity)
        return self._replace(limits=self.limits.checked(name), span=self.span.checked(name))

    def rows_to_hold(self, sample_size: int, num_envs: int) -> int:
        """Return the rows that a sample may wait for while insertions wait for room, or 0 if they do not wait."""
        if not self.sampler.waits:
            return 0
        span = self.span
        unfinished = span.sequence_length - 1 if isinstance(span, Sequences) and not span.pad_end else 0
        return sample_size + unfinished * num_envs

    def layout(self, name: str, columns: Schema) -> SampleLayout:
        """Return the layout of a sample, with the views applied."""
        layout = SampleLayout(name, columns, self.span.steps)
        for view in self.views:
            if isinstance(view, type) or not hasattr(view, "apply_to"):
                raise TypeError(f"For '{name}', 'views' must hold views such as NStep, but got {view!r}.")
            view.apply_to(layout)
        return layout

    def options(
        self, name: str, layout: SampleLayout, sample_size: int, capacity: int, num_envs: int, seed: int
    ) -> Options:
        """Make the options of the buffer's store."""
        sampler, limits = self.sampler, self.limits
        prioritized = sampler.first_beta is not None
        fields = (*self.span.bookkeeping(layout).values(), *layout.outputs().values(), *layout.hidden())
        has_episodes = bool(self.views) or not isinstance(self.span, SingleRows)
        rule = self.span.rule(layout, past_of(fields), num_envs) if has_episodes else None
        if rule is not None and sampler.epochs is not None and isinstance(self.span, Sequences) and rule.pad_end:
            rule = rule._replace(pad_end=PAD_OPEN)  # an epoch is over the rows that are stored now
        needs_weights = prioritized or has_episodes or bool(layout.columns.late or layout.columns.length_groups)
        weighted = limits.weighted or needs_weights
        hindsight = layout.hindsight
        first = (HANDLE,) * (weighted or self.reservoir) + (WEIGHT,) * prioritized
        plan = SamplePlan(
            n=sample_size,
            draw=sampler.draw(weighted),
            outputs=(*map(Output, first), *fields),
            replace=sampler.replace,
            ordered=sampler.ordered,
            max_use=limits.max_use,
            by_buffer=sampler.by_buffer,
            beta_step=sampler.beta_step,
            chain=layout.chain,
            needs_next=layout.needs_next,
            gamma=layout.gamma,
            strategy=hindsight.strategy if hindsight else "none",
            ratio=hindsight.ratio if hindsight else 0.0,
            achieved=layout.columns.names.index(hindsight.achieved) if hindsight else 0,
            tolerance=hindsight.tolerance if hindsight else -1.0,
        )
        return Options(
            capacity=capacity,
            plan=plan,
            num_envs=num_envs,
            seed=seed,
            weighting=sampler.weighting if weighted else None,
            initial_priority=sampler.initial_priority,
            largest_held=sampler.default_priority == "largest_held",
            rule=None if rule is None else _with_ends(rule, plan, layout.columns),
            never_evicts_valid=sampler.never_evicts_valid,
            epochs=sampler.epochs,
            max_staleness=limits.max_staleness,
            late=layout.columns.late,
            reservoir=self.reservoir,
            beta=sampler.first_beta,
            window=sampler.window,
            length_groups=layout.columns.length_groups,
            cls_name=name,
        )


def _with_ends(rule: WindowRule, plan: SamplePlan, schema: Schema) -> WindowRule:
    """Return the rule with the column of terminations.

    It is the column that makes discounts zero, or one named ``"terminated"`` with one number per row.
    """
    columns = [output.column for output in plan.outputs if output.kind == DISCOUNT]
    if not columns and schema.given_names is not None and "terminated" in schema.names:
        columns.append(schema.names.index("terminated"))
    readable = columns and math.prod(schema.shapes[columns[0]]) == 1 and columns[0] not in schema.compressed
    return rule._replace(terminated=columns[0] if readable else -1, needs_next=plan.needs_next)
