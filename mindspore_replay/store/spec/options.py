"""Options of a store."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..base.late import COUNTS_INVALID, PENDING
from ..base.length_groups import LengthGroup
from ..base.structs import ROW_RULE
from .episodes import END, FINAL, OPEN, WindowRule
from .epochs import EpochRule
from .plan import SamplePlan


class Options(NamedTuple):
    """Validated options: how to store and sample rows.

    Args:
        capacity (int): Most rows stored.
        plan (SamplePlan): How a sample is drawn, and its outputs.
        num_envs (int): Environments that insert in step.
        seed (int): Seed of the random sequence, in [0, 2^64).
        weighting (Union[tuple[float, float], None]): Alpha and epsilon, which convert priorities to weights, or
            ``None`` without weights.
        initial_priority (float): Priority of new rows until a larger one is set.
        largest_held (bool): Whether only the rows stored at the insertion count for that.
        rule (Union[WindowRule, None]): Where windows may start, or ``None`` for samples of single rows.
        never_evicts_valid (bool): Whether an insertion must not evict a row that can still be sampled. Requires weights
            0 and 1.
        epochs (Union[EpochRule, None]): The rule for batches, if rows are sampled in epochs.
        max_staleness (Union[int, None]): Remove rows older than this by the learner's clock.
        late (tuple[int, ...]): Columns written after the insertion. Rows without them are not sampled.
        reservoir (bool): Whether to store rows by Algorithm R instead of in a ring.
        beta (Union[float, None]): Initial beta, if rows are sampled by priority.
        window (Union[int, None]): Initial number of newest rows to sample from, if adjustable.
        length_groups (tuple[LengthGroup, ...]): The columns whose rows differ in length.
        cls_name (str): Class to name in errors.

    Examples:
        >>> from mindspore_replay.store import Options, Output, SamplePlan
        >>> plan = SamplePlan(n=32, draw="uniform", outputs=(Output(0, 0),))
        >>> options = Options(capacity=1000, plan=plan, weighting=(1.0, 0.0))
        >>> print(options.num_envs, options.has_handles, options.groups)
        1 True frozenset({'row_state'})
    """

    capacity: int
    plan: SamplePlan
    num_envs: int = 1
    seed: int = 0
    weighting: tuple[float, float] | None = None
    initial_priority: float = 1.0
    largest_held: bool = False
    rule: WindowRule | None = None
    never_evicts_valid: bool = False
    epochs: EpochRule | None = None
    max_staleness: int | None = None
    late: tuple[int, ...] = ()
    reservoir: bool = False
    beta: float | None = None
    window: int | None = None
    length_groups: tuple[LengthGroup, ...] = ()
    cls_name: str = "Store"

    @property
    def groups(self) -> frozenset[str]:
        """The optional groups of the state, as named in the signatures."""
        present = {
            "reservoir": self.reservoir,
            "row_state": self.weighting is not None,
            "episodes": self.rule is not None,
            "epochs": self.epochs is not None,
        }
        return frozenset(group for group, is_present in present.items() if is_present)

    def row_rule(self) -> np.ndarray:
        """Return the rule for rows with weights as an argument of kernels. Shape ``[5]``, float64."""
        assert self.weighting is not None
        rule = {"alpha": self.weighting[0], "epsilon": self.weighting[1], "keep": self.never_evicts_valid}
        rule |= {"late": self.new_uses(), "initial_priority": self.initial_priority}
        return np.array([rule[name] for name in ROW_RULE], np.float64)

    def new_uses(self) -> int:
        """Return the use count of a new row: 0, or that of a row of which all late columns are missing."""
        return PENDING + self.late_bits(self.late) if self.late else 0

    def stale_after(self) -> np.ndarray:
        """Return `max_staleness`, -1 for no limit, as an argument of kernels. Shape ``[1]``, int64."""
        return np.array([-1 if self.max_staleness is None else self.max_staleness], np.int64)

    def late_bits(self, columns: Sequence[int]) -> int:
        """Return a number with a bit for each late column of these, as an argument of kernels."""
        return sum(1 << bit for bit, column in enumerate(self.late) if column in columns)

    def written(self, columns: Sequence[int], counts: bool) -> np.ndarray:
        """Describe the columns that an update writes, as an argument of kernels. Shape ``[2]``, int64.

        The bits of the late ones, with `COUNTS_INVALID` if `counts`, and the place of the column of terminations among
        them, -1 if it is not.
        """
        terminated = -1 if self.rule is None else self.rule.terminated
        place = columns.index(terminated) if terminated in columns else -1
        return np.array([self.late_bits(columns) | (COUNTS_INVALID if counts else 0), place], np.int64)

    @property
    def end_flags(self) -> int:
        """Flags of the last row of an episode that is cut off: as if inserted with `end`.

        Without a column of terminations that would be a termination, which it is not.
        """
        if self.rule is None or not self.rule.needs_next:
            return END
        return END | FINAL | (OPEN if self.rule.terminated >= 0 else 0)

    @property
    def streams(self) -> int:
        """Environments of each insertion, or 0 if the buffer does not store episodes and accepts any number of rows."""
        return 0 if self.rule is None else self.num_envs

    @property
    def keeps_turn(self) -> bool:
        """True if rows may have to wait for late columns of rows before them: see `state.deliverable`."""
        return bool(self.late) and self.never_evicts_valid and self.plan.draw == "oldest_first"

    @property
    def has_handles(self) -> bool:
        """True if rows have handles: if each has a weight or its own serial number."""
        return self.weighting is not None or self.reservoir

    @property
    def min_rows_to_sample(self) -> int:
        """Smallest number of rows that can be drawn with which a sample succeeds."""
        if self.epochs is None:
            return self.plan.needed
        return 1 if self.epochs.pad else self.plan.n * self.epochs.world

    @property
    def rows_to_wait_for(self) -> int:
        """Number of rows that can be drawn from which on `can_sample` is true, unless a window is smaller.

        With replacement that is more than a sample needs: the rows of a sample, or all that can be drawn if they are
        fewer.
        """
        return min(self.plan.n, self.most_starts) if self.plan.repeats else self.min_rows_to_sample

    @property
    def most_starts(self) -> int:
        """Largest number of rows at which samples can start."""
        unfinished = 0 if self.rule is None or self.rule.pad_end else self.rule.future - 1
        return self.capacity - unfinished * self.num_envs
