"""Checks of what a method needs in a buffer."""

from ..base.schema import Schema
from .options import Options
from .plan import SamplePlan


def need_weights(options: Options, method: str) -> None:
    """Raise a RuntimeError unless a buffer has a weight for each row."""
    if options.weighting is None:
        raise RuntimeError(
            f"For '{options.cls_name}', '{method}' needs a buffer that stores a weight for each row: make it with "
            "weighted=True."
        )


def need_handles(options: Options, method: str) -> None:
    """Raise a RuntimeError unless a buffer has handles."""
    if not options.has_handles:
        need_weights(options, method)


def need_priorities(options: Options, method: str) -> None:
    """Raise a RuntimeError unless a buffer draws by priority."""
    if options.beta is None:
        raise RuntimeError(
            f"For '{options.cls_name}', '{method}' needs a buffer that draws by priority: make a "
            "PrioritizedReplayBuffer, or a SequenceReplayBuffer, EpisodeReplayBuffer or ElasticReplayBuffer with "
            "priorities=Priorities()."
        )


def need_episodes(options: Options, argument: str) -> None:
    """Raise a RuntimeError unless a buffer stores episodes."""
    if options.rule is None:
        raise RuntimeError(
            f"For '{options.cls_name}', {argument!r} needs a buffer that stores the episode of each row: make it with "
            "views=[...], or use SequenceReplayBuffer or EpisodeReplayBuffer. Leave it out for samples of "
            "single rows, which need no ends."
        )


def need_lengths(columns: Schema) -> None:
    """Raise a ValueError unless a buffer has a column whose rows differ in length."""
    if not columns.length_groups:
        raise ValueError(
            f"For '{columns.cls_name}', 'longest' and 'sample_packed' need a column whose shape begins with None."
        )


def too_few_rows(
    cls_name: str,
    plan: SamplePlan,
    weighted: bool,
    eligible: int,
    stored: int,
    pending: str = "",
    *,
    source: str = "",
    place: str = "",
) -> RuntimeError:
    """Return the error for a sample of more rows than are eligible, and a note on rows that are pending."""
    unit = "eligible row" if weighted else "row"
    needs = f"sample_size={plan.n} {unit}s" if plan.needed == plan.n else f"at least 1 {unit}"
    return RuntimeError(
        f"For '{cls_name}', a sample needs {needs}{source}, but got {eligible} in the range to draw from, of {stored} "
        f"stored{place}. Wait until can_sample() is true.{pending}"
    )
