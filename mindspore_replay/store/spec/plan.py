"""The outputs of a sample: single rows, or windows around the rows at which it starts.

Axes: ``B`` samples, ``T`` steps of a window, ``*F`` a column's shape.
"""

from typing import NamedTuple

import numpy as np

from ..base.schema import Schema
from ..base.structs import FLOATS, PLAN

# Kinds of outputs, as csrc/core/windows.h has them.
WINDOW, MASK, RETURN, DISCOUNT, RELABELLED, GOAL, LENGTH, CHAIN, STACK, HANDLE, WEIGHT, GIVEN = range(12)
REPEATED, REPEATED_STACK, REWARD = 12, 13, 14

#: Kinds that consist of rows of a column.
OF_ROWS = WINDOW, STACK, REPEATED, REPEATED_STACK
#: Kinds with the shape of a column.
_OF_COLUMN = (*OF_ROWS, RETURN, GOAL, REWARD)

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
    """One output array of a sample.

    Args:
        kind (int): ``WINDOW``: rows of a column. ``MASK``: whether these rows exist, bool. ``RETURN``: the discounted
            sum of a column over each position's chain. ``DISCOUNT``: gamma^k for the k rows of that chain, 0 if
            `column` of the last one is nonzero. ``RELABELLED``: whether the sample is relabelled, bool. ``GOAL``: as
            ``WINDOW``, but in a relabelled sample each existing row is the goal. ``REWARD``: as ``WINDOW``, but in a
            relabelled sample the reward by distance. ``LENGTH``: steps of
            the episode from the start on, within the reach of the outputs, int32. ``CHAIN``: rows of each step's chain,
            int32. ``STACK``: as ``WINDOW``, but a run is all zeros unless its last row exists. ``REPEATED``,
            ``REPEATED_STACK``: as ``WINDOW`` and ``STACK``, but with the episode's first row in place of those before
            it, unless the run has no row. ``HANDLE``: the handle of the start, int64. ``WEIGHT``: its importance
            weight, float32, 1 without priorities. ``GIVEN``: whether the sample is not padding, bool.
        column (int): A column, if the kind requires one.
        other (int): Another column. For returns and discounts, 1 plus the index of the column of per-step discounts, or
            0. With ``FROM_LAST``, the step whose chain is the origin of the first run.
        anchor (int): Origin of positions. With ``OF_CHAIN``, the start. Each run is the chain of its first step,
            followed by zeros.
        first (int): The first position.
        runs (int): For windows, stacks, masks and chains: number of runs of positions, each beginning one later than
            the previous. With ``FROM_LAST``, the origin of each is its own step's chain.
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
        if self.kind in _OF_COLUMN:
            return (n, *self.lead, *columns.shapes[self.column])
        return (n, *self.lead)

    def dtype(self, columns: Schema) -> str:
        """Return the name of the output's dtype."""
        return _DTYPES.get(self.kind) or columns.dtypes[self.column]

    @property
    def is_row(self) -> bool:
        """True if the output is only the row of the start."""
        return self == Output(WINDOW, self.column)

    def reach(self, chain: int) -> int:
        """Return the steps from the start on that the output may read."""
        if self.kind not in (*_OF_COLUMN, MASK):
            return 1
        last = self.first + self.runs - 1 + self.length
        if self.anchor == FROM_LAST:
            return last + self.other + chain - 1
        return last + chain - 1 if self.kind == RETURN else last

    @property
    def begin(self) -> int:
        """First step that the output may read, counted from the start."""
        return self.first + self.other if self.anchor == FROM_LAST else self.first


class SamplePlan(NamedTuple):
    """How to sample, and the outputs.

    Args:
        n (int): ``B``.
        draw (str): ``"uniform"``, from a ring without weights; ``"rank"``, uniformly from the valid starts, with
            weights 0 and 1; ``"priority"``; ``"oldest_first"`` or ``"newest_first"``, valid starts in this order; or
            ``"epochs"``, each once an epoch.
        outputs (tuple[Output, ...]): Its outputs.
        replace, max_use: As for `ReplayBuffer`.
        ordered (bool): As for `ReplayBuffer`, for uniform sampling.
        by_buffer (bool): Whether importance weights are relative to the buffer's smallest weight.
        beta_step (float): Increment of beta.
        chain (int): Rows of the longest n-step return, at least 1.
        needs_next (bool): Whether next observations are read from the next row.
        gamma (float): Discount of one step.
        strategy (str): One of `STRATEGIES`.
        ratio (float): Share of samples with another goal.
        achieved (int): The column of the goals that rows achieved.
        tolerance (float): The largest distance from another goal at which its reward is 0, or negative for rewards as
            they are stored.

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
    achieved: int = 0
    tolerance: float = -1.0

    @property
    def in_order(self) -> bool:
        """True if rows are not drawn at random, but in order."""
        return self.draw in ("oldest_first", "newest_first")

    @property
    def repeats(self) -> bool:
        """True if a row may occur twice in one sample, for which one row is enough."""
        return self.replace and self.draw in ("uniform", "rank", "priority")

    @property
    def needed(self) -> int:
        """Eligible rows that a sample needs, but for those of epochs."""
        return 1 if self.repeats else self.n

    @property
    def always_handles(self) -> bool:
        """True if a sample has handles even if they are not asked for: those with priorities, and those of windows."""
        return any(output.kind in (WEIGHT, MASK) for output in self.outputs)

    def options(self) -> np.ndarray:
        """Return all options but the powers, as an argument of kernels, with floats as their bits."""
        numbers = {"draw": DRAWS.index(self.draw), "strategy": STRATEGIES.index(self.strategy)}
        numbers |= dict(zip(FLOATS, np.array([getattr(self, name) for name in FLOATS], np.float64).view(np.int64)))
        outputs = [number for output in self.outputs for number in output[:-1]]
        return np.array([*(numbers.get(name, getattr(self, name)) or 0 for name in PLAN), *outputs], np.int64)

    def powers(self) -> np.ndarray:
        """Return the powers of gamma from 0 to `chain`."""
        return np.array([self.gamma**step for step in range(self.chain + 1)])

    @property
    def around(self) -> tuple[Output, ...]:
        """The outputs that are rows at and around starts."""
        return tuple(output for output in self.outputs if output.kind not in (HANDLE, WEIGHT, GIVEN))

    @property
    def bookkeeping(self) -> int:
        """Number of outputs before the columns."""
        return [output.kind in (*_OF_COLUMN, DISCOUNT) for output in self.outputs].index(True)

    @property
    def reaches_out(self) -> bool:
        """True if a sample reads other rows than those at starts."""
        return any(not output.is_row for output in self.around)

    @property
    def by_steps(self) -> bool:
        """True if each step of a window has a separate chain. A sample then contains transitions only."""
        return {MASK, RETURN} <= {output.kind for output in self.outputs}

    @property
    def reach(self) -> int:
        """Number of steps that a sample may read, from the start on."""
        return max([1, *(output.reach(self.chain) for output in self.outputs)])

    def specs(self, columns: Schema) -> list[tuple[tuple[int, ...], str]]:
        """Return the shape and dtype of each output."""
        return [(output.shape(self.n, columns), output.dtype(columns)) for output in self.outputs]
