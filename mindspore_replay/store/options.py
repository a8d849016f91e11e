"""Options of a store."""

from typing import NamedTuple

import numpy as np

from .epochs import EpochRule
from .windows import SamplePlan, WindowRule


class Options(NamedTuple):
    """Validated options: how rows are stored and drawn.

    Args:
        capacity (int): Most rows stored.
        plan (SamplePlan): How a sample is drawn, and its outputs.
        num_envs (int): Environments that insert in step.
        seed (int): Seed of the random sequence, in [0, 2^64).
        weighting (Union[tuple[float, float], None]): Alpha and epsilon, which convert a priority to a weight; ``None``
            without weights.
        rule (Union[WindowRule, None]): Where windows may start; ``None`` if samples are of single rows.
        keeps_valid (bool): Whether an insertion may not evict a row that can still be drawn; only with weights 0 and 1.
        epochs (Union[EpochRule, None]): The rule for batches, if rows are drawn in epochs.
        max_staleness (Union[int, None]): Rows older than this by the learner's clock are removed.
        reservoir (bool): Whether rows are chosen by Algorithm R, instead of a ring.
        beta (Union[float, None]): Initial beta, if samples are drawn by priority.
        window (Union[int, None]): Initial number of newest rows to draw from, if that may change.
        end_flags (int): Flags of a row that end its episode.
        cls_name (str): Class to name in errors.
    """

    capacity: int
    plan: SamplePlan
    num_envs: int = 1
    seed: int = 0
    weighting: tuple[float, float] | None = None
    rule: WindowRule | None = None
    keeps_valid: bool = False
    epochs: EpochRule | None = None
    max_staleness: int | None = None
    reservoir: bool = False
    beta: float | None = None
    window: int | None = None
    end_flags: int = 1
    cls_name: str = "Store"

    @property
    def groups(self) -> frozenset[str]:
        """The optional groups of the state, as named in the signatures."""
        there = {
            "reservoir": self.reservoir,
            "row_state": self.weighting is not None,
            "episodes": self.rule is not None,
            "epochs": self.epochs is not None,
        }
        return frozenset(group for group, is_there in there.items() if is_there)

    def row_rule(self) -> np.ndarray:
        """Return the rule for rows with weights as an argument of kernels. Shape ``[3]``, float64."""
        assert self.weighting is not None
        return np.array([*self.weighting, self.keeps_valid], np.float64)

    @property
    def has_handles(self) -> bool:
        """True if rows have handles: if each has a weight or its own serial number."""
        return self.weighting is not None or self.reservoir

    @property
    def fewest(self) -> int:
        """Smallest number of rows that can be drawn with which a sample succeeds."""
        if self.epochs is None:
            return self.plan.n
        return 1 if self.epochs.pad else self.plan.n * self.epochs.world

    @property
    def most_starts(self) -> int:
        """Largest number of rows at which samples can start, and so the largest sample."""
        unfinished = 0 if self.rule is None or self.rule.pad_end else self.rule.future - 1
        return self.capacity - unfinished * self.num_envs
