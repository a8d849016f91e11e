"""Options of a store."""

from typing import NamedTuple

from .windows import SamplePlan, WindowRule


class Options(NamedTuple):
    """Checked options: how rows are kept and drawn.

    Args:
        capacity (int): Rows that are kept.
        plan (SamplePlan): How a sample is drawn and what it gives.
        num_envs (int): Environments that write in step.
        seed (int): Start of the random sequence, in [0, 2^64).
        weighting (Union[tuple[float, float], None]): Alpha and epsilon, by which a priority becomes a weight; ``None``
            where no weights are kept.
        rule (Union[WindowRule, None]): Where windows may start; ``None`` where samples are of single rows.
        max_staleness (Union[int, None]): The clock's lead over a row's insertion after which the row is removed.
        reservoir (bool): Whether rows are kept by Algorithm R, and not in a ring.
        beta (Union[float, None]): Beta at first, where samples are drawn by priority.
        window (Union[int, None]): Newest rows of which samples are drawn at first, where that may change.
        end_flags (int): Flags of a row behind which its episode breaks off.
        cls_name (str): The class that errors speak of.
    """

    capacity: int
    plan: SamplePlan
    num_envs: int = 1
    seed: int = 0
    weighting: tuple[float, float] | None = None
    rule: WindowRule | None = None
    max_staleness: int | None = None
    reservoir: bool = False
    beta: float | None = None
    window: int | None = None
    end_flags: int = 1
    cls_name: str = "Store"

    @property
    def groups(self) -> frozenset[str]:
        """The optional groups of the state, in the words of the signatures."""
        there = {
            "reservoir": self.reservoir,
            "row_state": self.weighting is not None,
            "episodes": self.rule is not None,
        }
        return frozenset(group for group, is_there in there.items() if is_there)

    @property
    def has_handles(self) -> bool:
        """True if rows have handles: where each has a weight or a serial number of its own."""
        return self.weighting is not None or self.reservoir

    @property
    def most_starts(self) -> int:
        """The most rows at which samples may start at a time, and so the largest sample."""
        unfinished = 0 if self.rule is None or self.rule.pad_end else self.rule.future - 1
        return self.capacity - unfinished * self.num_envs
