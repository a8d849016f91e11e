"""Order of rows in time, and the outputs of a sample: single rows, or windows around the rows at which it starts.

Axes: ``B`` samples, ``C`` capacity, ``T`` steps of a window, ``*F`` a column's shape.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .schema import Schema

#: Flags of a row: it is the last of its episode; it is read and never drawn, since it holds only the observation after
#: its episode or its next one is not known; no window may contain it; a final row may follow it in its episode, or, if
#: it is no `END`, has followed it.
END, FINAL, DELETED, OPEN = 1, 2, 4, 8


class WindowRule(NamedTuple):
    """Rule for valid windows, in steps of one stream.

    Args:
        past (int): Steps before the start; fewer at the beginning of an episode.
        future (int): Steps from the start on, including it.
        stride (int): Period of starts, counted from the first step of the episode.
        pad_end (bool): Whether a window may extend beyond the end of its episode.
        streams (int): Environments that insert in step.
        max_length (int): Steps of the longest episode, 0 for no limit.
        terminated (int): Column that is nonzero where an episode has terminated, -1 for none.
        needs_next (bool): Whether the observation after a row is that of the next row.

    Examples:
        >>> from mindspore_replay.store import WindowRule
        >>> rule = WindowRule(past=2, future=8, stride=1, pad_end=False, streams=1, max_length=0)
        >>> print(rule.array())
        [ 2  8  1  0  1  0 -1  0]
    """

    past: int
    future: int
    stride: int
    pad_end: bool
    streams: int
    max_length: int
    terminated: int = -1
    needs_next: bool = False

    def array(self) -> np.ndarray:
        """Return the rule as an argument of kernels. Shape ``[8]``, int64."""
        return np.array(self, np.int64)


def with_ends(rule: WindowRule, plan: "SamplePlan", schema: Schema) -> WindowRule:
    """Return the rule with what it takes to see where an episode ends.

    The column that says so is the one that makes discounts zero, or one named ``"terminated"`` with one number a row.
    """
    columns = [output.column for output in plan.outputs if output.kind == DISCOUNT]
    if not columns and schema.given_names is not None and "terminated" in schema.names:
        columns.append(schema.names.index("terminated"))
    known = (
        columns and math.prod(schema.shapes[columns[0]]) == 1 and columns[0] not in (*schema.late, *schema.compressed)
    )
    return rule._replace(terminated=columns[0] if known else -1, needs_next=plan.needs_next)


def marks_of(rule: WindowRule, ends: np.ndarray, terminated: np.ndarray | None) -> np.ndarray:
    """Return the flags of new rows, whatever follows them, as in csrc/core/marks.h. Shape ``[n]``, uint8.

    Args:
        rule (WindowRule): The rule.
        ends (numpy.ndarray): Flags that the caller gives. Shape ``[n]``, uint8.
        terminated (Union[numpy.ndarray, None]): Whether each row says that it has terminated, bool ``[n]``; ``None``
            if no column says so.
    """
    if terminated is None:
        return ends
    unknown = (ends == END) & ~terminated & rule.needs_next
    return np.select([unknown, terminated & (ends & END == 0)], [END | FINAL | OPEN, END | OPEN], ends).astype(np.uint8)


def continues(before: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Return which rows with these flags belong to the episodes of the rows before them."""
    follows = (before & OPEN > 0) & (flags & (FINAL | OPEN) == FINAL)
    return (before & END == 0) | follows


def legal_starts(state: Mapping[str, np.ndarray], rule: WindowRule) -> np.ndarray:
    """Find the slots of rows at which a window may start, from scratch. Shape ``[C]``, bool. Cost O(C)."""
    capacity, count, streams = len(state["steps"]), int(state["count"]), rule.streams
    legal = np.zeros(capacity, bool)
    slots = (int(state["head"]) + np.arange(count)) % capacity
    for stream in range(streams):  # the rows of one stream, from the oldest
        rows = slots[stream::streams]
        legal[rows] = _legal_in_stream(state["steps"][rows], state["flags"][rows], state["use_counts"][rows] < 0, rule)
    return legal


def _legal_in_stream(steps: np.ndarray, flags: np.ndarray, removed: np.ndarray, rule: WindowRule) -> np.ndarray:
    index = np.arange(len(steps))
    ends, deleted = flags & END > 0, flags & DELETED > 0
    stops = ends.copy()  # rows after which a window cannot continue
    stops[-1:] = True
    stops[:-1] |= deleted[1:]
    stop = np.minimum.accumulate(np.where(stops, index, len(index))[::-1])[::-1]
    last = np.minimum(stop, index + rule.future - 1)
    whole = last == index + rule.future - 1
    barrier = np.maximum.accumulate(np.where(deleted, index, -1))
    past = np.minimum(rule.past, steps)
    fits = whole | ends[last] if rule.pad_end else whole
    on_stride = steps % rule.stride == 0
    if not rule.pad_end:
        on_stride |= ends[last]
    return fits & on_stride & (barrier < index - past) & (index >= past) & ~removed & (flags & FINAL == 0)


def check_timeline(cls_name: str, state: Mapping[str, np.ndarray], streams: int) -> None:
    """Raise a ValueError if the steps of rows are not consecutive, or a deleted row counts as stored."""
    slots = (int(state["head"]) + np.arange(int(state["count"]))) % len(state["steps"])
    steps, flags, uses = (state[key][slots] for key in ("steps", "flags", "use_counts"))
    following = np.where(flags & END, 0, steps + 1)[:-streams] if streams < len(steps) else steps[:0]
    wrong = []
    if (steps < 0).any() or (steps[streams:] != following).any():
        wrong.append("'steps' are not consecutive in the rows of a stream")
    if ((flags & DELETED > 0) & (uses >= 0)).any() or (flags > (END | FINAL | DELETED | OPEN)).any():
        wrong.append("'flags' are none that rows have, or a deleted row counts as live")
    if ((flags & FINAL > 0) & (flags & END == 0)).any():
        wrong.append("a row with only an observation is not the last of its episode")
    followed = flags & (END | OPEN) == OPEN
    if followed[-streams:].any() or (followed[:-streams] & (flags[streams:] & FINAL == 0)).any():
        wrong.append("a row that a final row must follow is followed by none")
    if wrong:
        raise ValueError(f"For '{cls_name}', the rows must make episodes: {'; '.join(wrong)}.")


# Kinds of outputs, as csrc/core/windows.h has them.
WINDOW, MASK, RETURN, DISCOUNT, RELABELLED, GOAL, LENGTH, CHAIN, STACK, HANDLE, WEIGHT, GIVEN = range(12)

# Origins of positions: the start, or the last row of the chain of an n-step return; or runs that are such chains.
FROM_START, FROM_LAST, OF_CHAIN = 0, 1, 2

#: Ways to draw starts.
DRAWS = ("uniform", "rank", "priority", "oldest_first", "newest_first", "epochs")

#: Choice of the row whose goal replaces a sample's: none, or a strategy of hindsight.
STRATEGIES = ("none", "future", "episode", "final", "random")


#: Dtypes of outputs that do not consist of rows of a column.
_DTYPES = {
    MASK: "bool",
    RELABELLED: "bool",
    DISCOUNT: "float32",
    LENGTH: "int32",
    CHAIN: "int32",
    HANDLE: "int64",
    WEIGHT: "float32",
    GIVEN: "bool",
}


class Output(NamedTuple):
    """One of the arrays that a sample consists of.

    Args:
        kind (int): ``WINDOW``: rows of a column. ``MASK``: whether these rows exist, bool. ``RETURN``: the discounted
            sum of a column over the chain of each position. ``DISCOUNT``: gamma^k for the k rows of that chain, and 0
            if the last of them has a nonzero `column`. ``RELABELLED``: whether the sample has another goal, bool.
            ``GOAL``: as ``WINDOW``, but if it has, each row that exists is the goal, a row of `other`. ``LENGTH``:
            steps of the episode from the start on, within the reach of the outputs, int32. ``CHAIN``: rows of the chain
            of each step, int32. ``STACK``: as ``WINDOW``, but a run is all zeros unless its last row exists.
            ``HANDLE``: the handle of the start, int64. ``WEIGHT``: its importance weight, float32, 1 if samples are not
            drawn by priority. ``GIVEN``: whether the sample is no padding, bool.
        column (int): A column, if the kind has one.
        other (int): Another column; with ``FROM_LAST``, the step whose chain is the origin of the first run.
        anchor (int): Origin of positions. With ``OF_CHAIN`` that is the start, and each run is the chain of its first
            step, with zeros after its last row.
        first (int): The first position.
        runs (int): For windows, stacks, masks and chains: number of runs of positions, each of which begins one later
            than the previous; with ``FROM_LAST``, the origin of each is the chain of its own step.
        length (int): Positions of a run.
        lead (tuple[int, ...]): The axes of the output for `runs` and `length`, between ``B`` and ``*F``.

    Examples:
        >>> from mindspore_replay.store import Output, Schema
        >>> schema = Schema("Store", shapes=[(4,)], types=["float32"])
        >>> output = Output(kind=0, column=0)  # rows of a column
        >>> print(output.shape(32, schema), output.dtype(schema))
        (32, 4) float32
    """

    kind: int
    column: int = 0
    other: int = 0
    anchor: int = FROM_START
    first: int = 0
    runs: int = 1
    length: int = 1
    lead: tuple[int, ...] = ()

    def shape(self, n: int, columns: Schema) -> tuple[int, ...]:
        """Return the shape of the output for n samples."""
        if self.kind in (WINDOW, STACK, RETURN, GOAL):
            return (n, *self.lead, *columns.shapes[self.column])
        return (n, *self.lead)

    def dtype(self, columns: Schema) -> str:
        """Return the name of the output's dtype."""
        return _DTYPES.get(self.kind) or columns.dtypes[self.column]

    @property
    def is_row(self) -> bool:
        """True if it is only the row of the start."""
        return self == Output(WINDOW, self.column)

    def reach(self, chain: int) -> int:
        """Return the steps from the start on that it may read."""
        if self.kind not in (WINDOW, STACK, MASK, RETURN):
            return 1
        last = self.first + self.runs - 1 + self.length
        if self.anchor == FROM_LAST:
            return last + self.other + chain - 1
        return last + chain - 1 if self.kind == RETURN else last

    @property
    def begin(self) -> int:
        """First step that it may read, counted from the start."""
        return self.first + self.other if self.anchor == FROM_LAST else self.first


class SamplePlan(NamedTuple):
    """The way to draw a sample, and its outputs.

    Args:
        n (int): ``B``.
        draw (str): ``"uniform"``, from a ring without weights; ``"rank"``, each valid start with equal probability,
            by weights of 0 and 1; ``"priority"``; ``"oldest_first"`` or ``"newest_first"``, valid starts in this
            order; or ``"epochs"``, each once an epoch.
        outputs (tuple[Output, ...]): Its outputs.
        replace (bool), max_use (Union[int, None]): As for `ReplayBuffer`.
        ordered (bool): As for `ReplayBuffer`, for a draw with equal probability.
        by_buffer (bool): Whether importance weights are relative to the smallest weight of the buffer.
        beta_step (float): Increment of beta.
        chain (int): Rows of the longest n-step return, at least 1.
        needs_next (bool): Whether the observation after a row is that of the next row.
        gamma (float): Discount of one step.
        strategy (str): One of `STRATEGIES`.
        ratio (float): Share of samples with another goal.

    Examples:
        >>> from mindspore_replay.store import Output, SamplePlan, Schema
        >>> schema = Schema("Store", shapes=[(4,), ()], types=["float32", "int32"])
        >>> plan = SamplePlan(n=32, draw="uniform", outputs=(Output(0, 0), Output(0, 1)))
        >>> print(plan.specs(schema))
        [((32, 4), 'float32'), ((32,), 'int32')]
    """

    n: int
    draw: str
    outputs: tuple[Output, ...]
    replace: bool = True
    ordered: bool = False
    max_use: int | None = None
    by_buffer: bool = False
    beta_step: float = 0.0
    chain: int = 1
    needs_next: bool = False
    gamma: float = 1.0
    strategy: str = "none"
    ratio: float = 0.0

    @property
    def in_order(self) -> bool:
        """True if rows are not drawn at random, but in order."""
        return self.draw in ("oldest_first", "newest_first")

    @property
    def always_handles(self) -> bool:
        """True if a sample has handles even if they are not asked for: those with priorities, and those of windows."""
        return any(output.kind in (WEIGHT, MASK) for output in self.outputs)

    @property
    def by_kernel(self) -> bool:
        """True if a kernel draws this way."""
        return self.draw in DRAWS

    def options(self) -> np.ndarray:
        """Return all options but the powers, as an argument of kernels; floats are given by their bits."""
        draw = [DRAWS.index(self.draw), self.replace, self.ordered, self.max_use or 0, self.by_buffer]
        chain = [self.chain, self.needs_next, STRATEGIES.index(self.strategy)]
        outputs = [number for output in self.outputs for number in output[:-1]]
        numbers = np.array([self.beta_step, self.ratio], np.float64).view(np.int64)
        return np.array([*draw, *chain, *numbers, *outputs], np.int64)

    def powers(self) -> np.ndarray:
        """Return the powers of gamma from 0 to `chain`."""
        return np.array([self.gamma**step for step in range(self.chain + 1)])

    @property
    def around(self) -> tuple[Output, ...]:
        """The outputs that are rows at and around starts."""
        return tuple(output for output in self.outputs if output.kind not in (HANDLE, WEIGHT, GIVEN))

    @property
    def reaches_out(self) -> bool:
        """True if it reads other rows than those at starts."""
        return any(not output.is_row for output in self.around)

    @property
    def by_steps(self) -> bool:
        """True if each step of a window has a chain of its own; then a sample holds transitions only."""
        return {MASK, RETURN} <= {output.kind for output in self.outputs}

    @property
    def reach(self) -> int:
        """Number of steps that it may read, from the start on."""
        return max([1, *(output.reach(self.chain) for output in self.outputs)])

    def specs(self, columns: Schema) -> list[tuple[tuple[int, ...], str]]:
        """Return the shape and dtype of each output."""
        return [(output.shape(self.n, columns), output.dtype(columns)) for output in self.outputs]
