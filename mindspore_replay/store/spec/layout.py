"""Contents of a sample by name: the stored columns, as modified by views."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..base.nested import NO_NAMES, Names
from ..base.schema import Schema
from .plan import (
    CHAIN,
    DISCOUNT,
    FROM_LAST,
    GOAL,
    MASK,
    OF_CHAIN,
    RELABELLED,
    REPEATED,
    REPEATED_STACK,
    RETURN,
    REWARD,
    STACK,
    WINDOW,
    Output,
)


class View(Protocol):
    """A modification of the contents of a sample."""

    def apply_to(self, layout: "SampleLayout") -> None:
        """Request what the view changes."""


class StepRange(NamedTuple):
    """Steps of a window, relative to its start.

    Args:
        first (int): The first step. The start is 0.
        length (int): Number of steps.
    """

    first: int
    length: int


class Hindsight(NamedTuple):
    """Relabelling of samples with other goals.

    Args:
        strategy (str): Choice of the row for the goal.
        ratio (float): Share of samples that are relabelled.
        reward_fn (Union[Callable, str]): Computes rewards from achieved goals and goals, and perhaps the other columns.
        achieved (str), goal (str), reward (str), terminated (str): The columns.
        takes_batch (bool): Whether it accepts the other columns. Default: ``False``.
        tolerance (float): For rewards that the kernel computes, the distance up to which they are 0. Default: ``-1.0``,
            for those of `reward_fn`.
    """

    strategy: str
    ratio: float
    reward_fn: Callable[..., Any] | str
    achieved: str
    goal: str
    reward: str
    terminated: str
    takes_batch: bool = False
    tolerance: float = -1.0

    @property
    def is_sparse(self) -> bool:
        """True if the kernel computes rewards, by distance."""
        return self.tolerance >= 0


class RelabelPlan(NamedTuple):
    """The outputs of a sample that relabelling reads or changes, by index, and their properties.

    Args:
        columns (Hindsight): The view.
        width (int): Outputs of a sample, followed by the hidden ones.
        achieved (int), goal (int), reward (int): Fields of these columns.
        next_goal (Union[int, None]): Field of the goal in the next observation.
        terminated (Union[int, None]): Field of the column of terminations.
        mask (Union[int, None]): The mask, if samples are windows.
        goal_shape (tuple[int, ...]): Shape of one goal.
        goal_type (str), reward_type (str): Dtypes of the columns.
        chain (Union[int, None]): Rows of the longest n-step return, or ``None`` without returns. With returns also:
        gamma (float): Discount of one step.
        discount (int): The discount.
        truncated (Union[int, None]): Field of the column ``"truncated"``.
        following (tuple[int, ...]): Fields of next observations, in the order of their hidden outputs.
        batch (Names): The columns for the reward function.
        batch_at (tuple[int, ...]): Their fields. With returns, their hidden outputs.
        batch_fields (tuple): Their shapes and dtypes.
        step_discounts (Union[int, None]): The hidden output of each step's own discount.
    """

    columns: Hindsight
    width: int
    achieved: int
    goal: int
    reward: int
    next_goal: int | None
    terminated: int | None
    mask: int | None
    goal_shape: tuple[int, ...]
    goal_type: str
    reward_type: str
    chain: int | None = None
    gamma: float = 1.0
    discount: int = -1
    truncated: int | None = None
    following: tuple[int, ...] = ()
    batch: Names = NO_NAMES
    batch_at: tuple[int, ...] = ()
    batch_fields: tuple[tuple[tuple[int, ...], str], ...] = ()
    step_discounts: int | None = None


class SampleLayout:
    """Collects the requests of views, and converts them to outputs of the sampling operator.

    Args:
        cls_name (str): Class to name in errors.
        columns (Columns): The columns.
        steps (Union[StepRange, None]): The steps of a window, or ``None`` for single rows.
    """

    def __init__(self, cls_name: str, columns: Schema, steps: StepRange | None = None) -> None:
        self.cls_name = cls_name
        self.columns = columns
        self.steps = steps
        self.chain = 1
        self.gamma = 1.0
        self.returns: str | None = None
        self.terminated: str | None = None
        self.discount: str | None = None
        self.hindsight: Hindsight | None = None
        self._roles: dict[str, str] = {}
        self.step_discount: str | None = None
        self._stacks: dict[str, int] = {}
        self._repeated: set[str] = set()
        self._next: list[str] = []
        self._last: list[str] = []

    def column(self, view: str, argument: str, name: str) -> int:
        """Return the index of a column that is an argument of a view.

        Raises:
            ValueError: If there is no such column, or another view uses it for something else.
        """
        if self.columns.given_names is None:
            raise ValueError(f"For '{self.cls_name}', {view} needs a buffer made with 'names'.")
        if name not in self.columns.names:
            raise ValueError(
                f"For '{self.cls_name}', {view} needs a column {name!r} as its '{argument}', but got "
                f"{list(self.columns.names)}."
            )
        role = self._roles.setdefault(name, argument)
        if role != argument and {role, argument} != {"observation", "goal"}:
            raise ValueError(
                f"For '{self.cls_name}', {view} takes the column {name!r} as its '{argument}', but another view uses "
                f"it as its '{role}'."
            )
        return self.columns.names.index(name)

    def inside(self, names: Sequence[str]) -> list[str]:
        """Return columns of these names, and those whose dotted names begin with one of them."""
        all_names = self.columns.names
        return [one for name in names for one in [c for c in all_names if c.startswith(f"{name}.")] or [name]]

    def only_one(self, view: str, is_present: bool) -> None:
        """Raise a ValueError if there is another view of this kind."""
        if is_present:
            raise ValueError(f"For '{self.cls_name}', there can be only one view {view}.")

    def stack(self, name: str, frames: int, repeats: bool) -> None:
        """Stack each row of a column with those before it. Before the episode's first row are zeros, or that row."""
        self.only_one(f"FrameStack of {name!r}", name in self._stacks)
        self._stacks[name] = frames
        if repeats:
            self._repeated |= {name, f"next_{name}"}

    def add_next(self, name: str) -> None:
        """Add the next observation of a column, unless there is a column for it."""
        if name not in self._next:
            self._next.append(name)

    def of_last_row(self, name: str) -> None:
        """Take a column from the last row of the chain."""
        self._last.append(name)

    @property
    def needs_next(self) -> bool:
        """True if the observation after a row is that of the next row."""
        return any(f"next_{name}" not in self.columns.names for name in self._next)

    def outputs(self) -> dict[str, Output]:
        """Return the output of the sampling operator for each field, in order."""
        fields = {name: self._field(name, i) for i, name in enumerate(self.columns.names)}
        for name in self._next:
            following = f"next_{name}"
            if following in fields:
                fields[following] = self._at_end(following)
            else:
                fields[following] = self._at_end(name, first=1)
        for name in self._last:
            fields[name] = self._at_end(name)
        if self.returns is not None and self.discount is not None and self.terminated is not None:
            of_steps = 0 if self.step_discount is None else 1 + self.columns.names.index(self.step_discount)
            fields[self.returns] = fields[self.returns]._replace(kind=RETURN, other=of_steps)
            fields[self.discount] = self._window(self.terminated)._replace(kind=DISCOUNT, other=of_steps)
        if self.hindsight is not None:
            if self.hindsight.goal in self._stacks:
                raise ValueError(
                    f"For '{self.cls_name}', FrameStack cannot stack {self.hindsight.goal!r}, the goal of "
                    "HindsightRelabel: give it the names of the other columns as 'observation'."
                )
            goal, reward = self.hindsight.goal, self.hindsight.reward
            fields[goal] = fields[goal]._replace(kind=GOAL)
            if self.hindsight.is_sparse:
                if reward in self._stacks or self.returns not in (None, reward):
                    raise ValueError(
                        f"For '{self.cls_name}', HindsightRelabel with reward_fn='sparse' needs a 'reward' that is "
                        f"that of NStep too, and that FrameStack does not stack, but got {reward!r}."
                    )
                kinds = {f"next_{goal}": GOAL, reward: REWARD if self.returns is None else RETURN}
                fields |= {key: fields[key]._replace(kind=kind) for key, kind in kinds.items() if key in fields}
        return fields

    def hidden(self) -> tuple[Output, ...]:
        """Return outputs of the sampling operator that are not fields, for the rewards of other goals."""
        if self.hindsight is None or self.hindsight.is_sparse:
            return ()
        if self.returns is None:
            return (Output(RELABELLED),)
        first, steps = self.steps or (0, 1)
        lead = (steps,) if self.steps else ()
        chains = Output(CHAIN, first=first, runs=steps, lead=lead)
        discounts = () if self.step_discount is None else (self.step_discount,)
        achieved, *others = (
            Output(WINDOW, self.columns.names.index(name), 0, OF_CHAIN, first, steps, self.chain, (*lead, self.chain))
            for name in (self.hindsight.achieved, *self._batch(), *discounts)
        )
        following = map(self._after_each, self._following())
        return (Output(RELABELLED), chains, achieved, *following, *others)

    def _batch(self) -> Names:
        """Return the names of the reward function's columns besides the goals."""
        view = self.hindsight
        if view is None or not view.takes_batch:
            return NO_NAMES
        return Names(name for name in self.columns.names if name not in (view.achieved, view.goal))

    def relabelling(self, before: int) -> RelabelPlan | None:
        """Return where relabelling finds its outputs, after `before` others, or ``None`` if it has nothing to do."""
        if self.hindsight is None or self.hindsight.is_sparse:
            return None
        view, fields, columns = self.hindsight, list(self.outputs()), self.columns
        at = {name: before + i for i, name in enumerate(fields)}
        goal, reward = columns.names.index(view.goal), columns.names.index(view.reward)
        plan = RelabelPlan(
            columns=view,
            width=before + len(fields),
            achieved=at[view.achieved],
            goal=at[view.goal],
            reward=at[view.reward],
            next_goal=at.get(f"next_{view.goal}"),
            terminated=at.get(self.terminated or view.terminated),
            mask=None if self.steps is None else before - 1,
            goal_shape=columns.shapes[goal],
            goal_type=columns.dtypes[goal],
            reward_type=columns.dtypes[reward],
            batch=(batch := self._batch()),
            batch_at=tuple(at[name] for name in batch),
            batch_fields=tuple((columns.shapes[i], columns.dtypes[i]) for i in map(columns.names.index, batch)),
        )
        if self.returns is None or self.discount is None:
            return plan
        following = tuple(at[f"next_{name}"] for name in self._following())
        return plan._replace(
            chain=self.chain,
            gamma=self.gamma,
            discount=at[self.discount],
            truncated=at.get("truncated"),
            following=following,
            batch_at=tuple(2 + len(following) + i for i in range(len(batch))),
            step_discounts=None if self.step_discount is None else 2 + len(following) + len(batch),
        )

    def _following(self) -> list[str]:
        """Return the observations whose next ones another goal may change, by ending a chain: all but the goal."""
        goal = self.hindsight and self.hindsight.goal
        return [] if self.chain == 1 else [name for name in self._next if name != goal]

    def _after_each(self, name: str) -> Output:
        """Return the output with the next observation after each step of a chain but the last."""
        first, steps = self.steps or (0, 1)
        own = f"next_{name}" in self.columns.names
        frames, stacked, column = self._stacked(f"next_{name}" if own else name)
        begin, length = first + (not own) - frames + 1, steps + self.chain - 2
        if not stacked:
            return Output(WINDOW, column, first=begin, length=length, lead=(length,))
        return Output(self._kind(name, STACK), column, first=begin, runs=length, length=frames, lead=(length, frames))

    def mask(self) -> Output:
        """Return the output that is a mask of the steps that exist."""
        if self.steps is None:
            raise ValueError("single rows have no mask")
        return Output(MASK, first=self.steps.first, length=self.steps.length, lead=(self.steps.length,))

    def _field(self, name: str, column: int) -> Output:
        return self._window(name) if name in self._stacks or self.steps else Output(WINDOW, column)

    def _at_end(self, name: str, first: int = 0) -> Output:
        """Return the output with rows of a column at a position relative to the last row of the chain."""
        if self.steps is None:
            return self._window(name, first)._replace(anchor=FROM_LAST)
        frames, stacked, column = self._stacked(name)
        begin, steps = self.steps
        lead = (steps, *stacked)
        return Output(self._kind(name, WINDOW), column, begin, FROM_LAST, first - frames + 1, steps, frames, lead)

    def _kind(self, name: str, kind: int) -> int:
        """Return the kind of an output of a column's stacks."""
        return {WINDOW: REPEATED, STACK: REPEATED_STACK}[kind] if name in self._repeated else kind

    def _stacked(self, name: str) -> tuple[int, tuple[int, ...], int]:
        """Return the frames of a column's stack, the axis that they add, and the column's index."""
        frames = self._stacks.get(name, 1)
        return frames, (frames,) if name in self._stacks else (), self.columns.names.index(name)

    def _window(self, name: str, first: int = 0) -> Output:
        frames, stacked, column = self._stacked(name)
        if self.steps is None:
            return Output(self._kind(name, WINDOW), column, first=first - frames + 1, length=frames, lead=stacked)
        begin, steps = self.steps.first - frames + 1, self.steps.length
        if not stacked:
            return Output(WINDOW, column, first=begin, length=steps, lead=(steps,))
        return Output(self._kind(name, STACK), column, first=begin, runs=steps, length=frames, lead=(steps, frames))


def past_of(outputs: Sequence[Output]) -> int:
    """Return the number of steps before its start that a window contains."""
    return max(0, *(-output.begin for output in outputs))
