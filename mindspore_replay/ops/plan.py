"""How a sample is drawn, and what it gives.

Axes: ``B`` samples, ``*F`` a column's shape.
"""

from typing import Any, NamedTuple

import mindspore as ms
import numpy as np

from ..columns import Columns

# Kinds of outputs; those of what lies around a start as csrc/windows.h has them.
WINDOW, MASK, RETURN, DISCOUNT, RELABELLED, GOAL, LENGTH, CHAIN, STACK, HANDLE, WEIGHT = range(11)

_TYPES = {
    MASK: ms.bool_, RELABELLED: ms.bool_, DISCOUNT: ms.float32, LENGTH: ms.int32, CHAIN: ms.int32, HANDLE: ms.int64,
    WEIGHT: ms.float32,
}  # fmt: skip

# Where positions are counted from: the start, or the last row of the chain of an n-step return.
FROM_START, FROM_LAST = 0, 1

#: By which row a sample gets another goal: none, or a strategy of hindsight.
STRATEGIES = ("none", "future", "episode", "final", "random")


class Output(NamedTuple):
    """One of the Tensors that a sample gives.

    Args:
        kind (int): ``WINDOW``: rows of a column. ``MASK``: whether there are such rows, bool. ``RETURN``: the
            discounted sum of a column over the chain. ``DISCOUNT``: gamma^k over k rows of the chain, and 0 where the
            last of them has a nonzero `column`. ``RELABELLED``: whether the sample has another goal, bool. ``GOAL``: a
            row of `other` if so, else of `column`. ``LENGTH``: steps of the episode from the start on, as far as
            outputs reach, int32. ``CHAIN``: rows of the chain, int32. ``STACK``: as ``WINDOW``, but a run is of zeros
            unless its last row is there. ``HANDLE``: handles of the rows drawn, or of starts, int64. ``WEIGHT``:
            importance weights, float32.
        column (int): A column, where the kind has one.
        other (int): Another.
        anchor (int): What positions are counted from.
        first (int): The first position.
        runs (int): Of windows, stacks and masks: runs of positions, each of which begins one later than the one before.
        length (int): Positions of a run.
        lead (tuple[int, ...]): The axes that `runs` and `length` make in the output, between ``B`` and ``*F``.
    """

    kind: int
    column: int = 0
    other: int = 0
    anchor: int = FROM_START
    first: int = 0
    runs: int = 1
    length: int = 1
    lead: tuple[int, ...] = ()

    def shape(self, n: int, columns: Columns) -> tuple[int, ...]:
        if self.kind in (WINDOW, STACK, RETURN, GOAL):
            return (n, *self.lead, *columns.shapes[self.column])
        return (n, *self.lead)

    def dtype(self, columns: Columns) -> Any:
        return _TYPES[self.kind] if self.kind in _TYPES else columns.types[self.column]

    def reach(self, chain: int) -> int:
        """How many steps from the start on it may read."""
        if self.kind not in (WINDOW, STACK, MASK):
            return 1
        return (chain - 1 if self.anchor == FROM_LAST else 0) + self.first + self.runs - 1 + self.length


class SamplePlan(NamedTuple):
    """How a sample is drawn and what it gives.

    Args:
        n (int): ``B``.
        draw (str): ``"uniform"``: each row of a ring without weights is equally likely. ``"rank"``: each eligible row
            is, and weights are 0 and 1. ``"priority"``: by weight.
        replace (bool), ordered (bool), max_use (Union[int, None]): As for `ReplayBuffer`.
        by_buffer (bool): Whether the smallest weight of the buffer is the measure of importance weights.
        beta_step (float): By which beta moves.
        chain (int): Rows of the longest n-step return, at least 1.
        needs_next (bool): Whether the observation after a row is that of the next row.
        gamma (float): Discount of one step.
        strategy (str): One of `STRATEGIES`.
        ratio (float): Share of samples with another goal.
        outputs (tuple[Output, ...]): What it gives.
    """

    n: int
    draw: str
    replace: bool
    ordered: bool
    max_use: int | None
    by_buffer: bool
    beta_step: float
    chain: int
    needs_next: bool
    gamma: float
    strategy: str
    ratio: float
    outputs: tuple[Output, ...]

    @property
    def around(self) -> tuple[Output, ...]:
        """What it gives of what lies at and around starts."""
        return tuple(output for output in self.outputs if output.kind not in (HANDLE, WEIGHT))

    @property
    def reaches_out(self) -> bool:
        """Whether it gives anything but rows at starts."""
        return any(output != Output(WINDOW, output.column) for output in self.around)

    def options(self) -> np.ndarray:
        """Everything of it that is an int, as the kernel for windows takes it."""
        draw = [self.draw == "priority", self.replace, self.ordered, self.max_use or 0, self.by_buffer]
        chain = [self.chain, self.needs_next, STRATEGIES.index(self.strategy)]
        outputs = [number for output in self.around for number in output[:-1]]
        return np.array([*draw, *chain, *outputs], np.int64)

    def numbers(self) -> np.ndarray:
        """The ratio, and the powers of gamma from 0 to `chain`."""
        return np.array([self.ratio, *(self.gamma**step for step in range(self.chain + 1))])

    def shapes(self, columns: Columns) -> tuple[tuple[int, ...], ...]:
        """Shapes of what the kernel for windows gives: handles, importance weights, and what lies around starts."""
        return ((self.n,), (self.n,), *(output.shape(self.n, columns) for output in self.around))

    def types(self, columns: Columns) -> tuple[Any, ...]:
        """Dtypes of what the kernel for windows gives."""
        return (ms.int64, ms.float32, *(output.dtype(columns) for output in self.around))
