"""The kinds of buffers that are driven beside their slow twin: of rows of any length, of one length, and with views."""

import itertools
from typing import Any, NamedTuple

from any_length import COLUMNS, FIXED, GOALS, OWN_NEXT, STEPS, WIDE, row_of, step_of
from model_rows import RATIO, TOLERANCE, Views

from mindspore_replay import FrameStack, HindsightRelabel, NStep

DRAWS = 2


def views_of(views: Views) -> list[Any]:
    """Make the views of a buffer."""
    goals = [HindsightRelabel(views.goals, RATIO, "sparse", tolerance=TOLERANCE)] if views.goals else []
    return [
        *goals,
        *([NStep(views.n, views.gamma)] if views.n else []),
        *([FrameStack(views.frames)] if views.frames else []),
    ]


class Kind(NamedTuple):
    """A class, options that choose or change rows, and columns."""

    cls: str
    options: dict[str, Any]
    columns: dict[str, Any] = COLUMNS

    @property
    def any_length(self) -> bool:
        return self.columns is COLUMNS

    def row(self, number: int, n: int = 3, words: int = 2, changed: int = 0) -> dict[str, Any]:
        """Return a row; of any length, with so many items."""
        if "tokens" in self.columns["names"]:
            return row_of(number, n, words, changed)
        return step_of(number, self.columns)


def _kinds() -> dict[str, Kind]:
    uniform, priority, sequence = "ReplayBuffer", "PrioritizedReplayBuffer", "SequenceReplayBuffer"
    limits = {"max_use": 3, "max_staleness": 3}
    late, both = {"late": ["reward"]}, {"late": ["logits", "reward"]}
    at_random = {"sample_length": {"tokens": 3, "words": 2}, "cut": "random"}
    by = {"prioritized": True, "alpha": 0.7, "beta_steps": 5}
    return {
        "uniform": Kind(uniform, {"weighted": True}),
        "cut": Kind(uniform, at_random | {"cut": "first", "weighted": True}),
        "distinct": Kind(uniform, {"replace": False, "ordered": True, "num_envs": 2} | at_random),
        "limits": Kind(uniform, limits),
        "used once": Kind(uniform, {"max_use": 1, "ordered": True, "replace": False}),
        "late": Kind(uniform, both | {"max_staleness": 4}),
        "by priority": Kind(priority, {"alpha": 0.7, "beta_steps": 5, "normalize": "buffer"} | limits),
        "largest held": Kind(priority, {"default_priority": "largest_held", "initial_priority": 0.25, "max_use": 4}),
        "largest held, late": Kind(priority, {"default_priority": "largest_held", "num_envs": 2} | late | at_random),
        "newest": Kind("ElasticReplayBuffer", {"window": 4, "max_use": 5}),
        "newest by priority": Kind("ElasticReplayBuffer", {"window": 5, "normalize": "buffer"} | by | at_random),
        "epochs": Kind("EpochReplayBuffer", {"weighted": True} | at_random),
        "padded epochs": Kind("EpochReplayBuffer", {"last": "pad", "rank": 1, "world": 2, "max_use": 2}),
        "epochs of sequences": Kind("EpochReplayBuffer", {"sequence_length": 2, "max_staleness": 4}),
        "epochs of padded sequences": Kind(
            "EpochReplayBuffer", {"sequence_length": 3, "pad_end": True, "last": "pad", "num_envs": 2}
        ),
        "late in epochs": Kind("EpochReplayBuffer", {"last": "pad"} | both),
        "queue": Kind("ReplayQueue", {"max_staleness": 5}),
        "queue that evicts": Kind("ReplayQueue", {"when_full": "evict", "order": "lifo"} | at_random),
        "stack": Kind("ReplayQueue", {"order": "lifo"}),
        "queue of sequences": Kind("ReplayQueue", {"sequence_length": 2, "burn_in": 1, "num_envs": 2}),
        "queue of padded sequences": Kind(
            "ReplayQueue", {"sequence_length": 3, "stride": 2, "pad_end": True, "when_full": "evict"}
        ),
        "late in a queue": Kind("ReplayQueue", both),
        "sequences": Kind(sequence, {"sequence_length": 2, "burn_in": 1, "stride": 2} | limits),
        "padded sequences": Kind(sequence, {"sequence_length": 3, "pad_end": True, "num_envs": 2} | both | at_random),
        "sequences by priority": Kind(
            sequence, {"sequence_length": 2, "default_priority": "largest_held", "max_staleness": 5} | by
        ),
        "distinct sequences": Kind(sequence, {"sequence_length": 1, "replace": False}),
        "episodes": Kind("EpisodeReplayBuffer", {"max_episode_length": 3, "max_use": 5} | at_random),
        "episodes by priority": Kind("EpisodeReplayBuffer", {"max_episode_length": 4, "num_envs": 2} | by | late),
    }


def _fixed() -> dict[str, Kind]:
    uniform, priority, reservoir = "ReplayBuffer", "PrioritizedReplayBuffer", "ReservoirReplayBuffer"
    late, both = {"late": ["reward"]}, {"late": ["logits", "reward"]}
    exact = {"alpha": 1.0, "epsilon": 0.0}
    window = {"prioritized": True, "capacity": 40, **exact}  # which ends within nodes of the tree
    every: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": (uniform, {}),
        "plain, ordered": (uniform, {"ordered": True, "num_envs": 2}),
        "plain, distinct": (uniform, {"replace": False, "capacity": 4}),
        "plain, distinct, ordered": (uniform, {"replace": False, "ordered": True}),
        "plain reservoir": (reservoir, {}),
        "plain epochs": ("EpochReplayBuffer", {"last": "pad"}),
        "deletions alone": (uniform, {"weighted": True}),
        "used once": (uniform, {"max_use": 1, "ordered": True}),
        "used twice": (uniform, {"max_use": 2, "max_staleness": 1}),
        "distinct": (uniform, {"max_staleness": 0, "replace": False}),
        "distinct, ordered": (uniform, {"replace": False, "ordered": True, "max_use": 3, "max_staleness": 9}),
        "late": (uniform, both | {"max_staleness": 3, "num_envs": 2}),
        "reservoir": (reservoir, {"weighted": True, "replace": False}),
        "reservoir, used once": (reservoir, {"max_use": 1}),
        "reservoir, used often": (reservoir, {"max_use": 6}),
        "late in a reservoir": (reservoir, both),
        "by the root": (priority, {"alpha": 0.5, "epsilon": 0.0, "normalize": "buffer"}),
        "by priority, used once": (priority, {"alpha": 1.0, "beta": 1.0, "max_use": 1}),
        "by priority, stale": (priority, {"alpha": 0.0, "max_staleness": 2, "beta": 0.0, "beta_steps": 2}),
        "by priority": (
            priority,
            {"alpha": 0.7, "beta_steps": 3, "max_use": 3, "max_staleness": 4, "initial_priority": 0.1},
        ),
        "largest held": (priority, {"default_priority": "largest_held", "max_use": 3, "initial_priority": 0.25}),
        "late, by priority": (priority, both | {"max_use": 5, "normalize": "buffer"}),
        "newest": ("ElasticReplayBuffer", {"max_use": 6, "capacity": 40}),
        "newest by priority": ("ElasticReplayBuffer", window | {"default_priority": "largest_held"}),
        "by the window's weights": (
            "ElasticReplayBuffer",
            window | {"normalize": "buffer", "beta_steps": 7, "max_use": 2, "initial_priority": 1.5},
        ),
        "epochs": ("EpochReplayBuffer", {"weighted": True, "rank": 1, "world": 2}),
        "padded epochs": ("EpochReplayBuffer", {"weighted": True, "last": "pad", "rank": 2, "world": 3}),
        "epochs of rows used twice": ("EpochReplayBuffer", {"max_use": 2}),
        "late in epochs": ("EpochReplayBuffer", both | {"last": "pad"}),
        "queue": ("ReplayQueue", {"num_envs": 2}),
        "late in a queue": ("ReplayQueue", both),
        "late in a queue that evicts": ("ReplayQueue", both | {"when_full": "evict"}),
        "late in a queue of sequences": ("ReplayQueue", late | {"sequence_length": 2}),
        "sequences": ("SequenceReplayBuffer", both | {"sequence_length": 3, "burn_in": 1, "max_staleness": 4}),
        "sequences by priority": (
            "SequenceReplayBuffer",
            both | {"sequence_length": 2, "burn_in": 1, "pad_end": True, "prioritized": True, "max_staleness": 4},
        ),
        "episodes": ("EpisodeReplayBuffer", {"max_episode_length": 4, "num_envs": 2, "capacity": 24}),
        "episodes by priority": (
            "EpisodeReplayBuffer",
            {"max_episode_length": 3, "prioritized": True, "default_priority": "largest_held"},
        ),
    }
    by = {"prioritized": True}
    all_of_it = {**by, "burn_in": 2, "stride": 2, "alpha": 0.7, "beta_steps": 3}
    sequences: dict[str, tuple[int, dict[str, Any]]] = {
        "plain": (3, {}),
        "two environments": (3, {"stride": 2, "burn_in": 2, "num_envs": 2}),
        "padded": (4, {"stride": 2, "burn_in": 1, "pad_end": True, "max_use": 3, "replace": False}),
        "padded, two environments": (3, {"pad_end": True, "num_envs": 2, "max_staleness": 2, "replace": False}),
        "whole ring": (10, {"burn_in": 3, "pad_end": True}),
        "root": (3, by | {"alpha": 0.5, "epsilon": 0.0, "normalize": "buffer"}),
        "everything": (3, all_of_it | {"max_use": 2, "max_staleness": 3}),
        "everything, two environments": (3, all_of_it | {"max_use": 4, "max_staleness": 5, "num_envs": 2}),
        "by priority, padded": (5, by | {"stride": 5, "pad_end": True, "num_envs": 2, "max_staleness": 1}),
        "by priority, one step": (1, by | {"burn_in": 3, "stride": 2}),
    }
    episodes: dict[str, tuple[int, dict[str, Any]]] = {
        "two environments": (3, {"num_envs": 2, "max_use": 2, "replace": False, "max_staleness": 1, "capacity": 24}),
        "whole ring": (13, {"max_use": 4}),
        "exact": (4, by | exact | {"beta_steps": 20}),
        "everything": (3, by | {"alpha": 0.5, "normalize": "buffer", "num_envs": 2, "max_use": 2}),
    }
    epochs: dict[str, tuple[int, dict[str, Any]]] = {
        "padded": (4, {"pad_end": True}),
        "of environments": (3, {"pad_end": True, "num_envs": 3}),
        "with burn-in, overlapping": (4, {"pad_end": True, "burn_in": 2, "stride": 2, "max_use": 3}),
        "apart": (2, {"pad_end": True, "stride": 3, "max_staleness": 2}),
        "whole": (3, {"weighted": True}),
        "in graphs": (3, {"pad_end": True, "burn_in": 1, "stride": 2, "num_envs": 2}),
    }
    of_steps: dict[str, tuple[str, str, dict[str, tuple[int, dict[str, Any]]]]] = {
        "sequences": ("SequenceReplayBuffer", "sequence_length", sequences),
        "episodes": ("EpisodeReplayBuffer", "max_episode_length", episodes),
        "epochs of sequences": ("EpochReplayBuffer", "sequence_length", epochs),
    }
    for what, (cls, argument, kinds) in of_steps.items():
        for name, (steps, options) in kinds.items():
            every[f"{what}, {name}"] = cls, {"capacity": 13, argument: steps, **options}
    lengths: dict[str, dict[str, Any]] = {
        "sequences": {"sequence_length": 3},
        "overlapping sequences": {"sequence_length": 3, "stride": 2, "burn_in": 1},
        "padded sequences": {"sequence_length": 3, "pad_end": True, "num_envs": 2},
    }
    for name, options in lengths.items():
        for order, when_full in itertools.product(("fifo", "lifo"), ("block", "evict")):
            given = {**options, "order": order, "when_full": when_full, "capacity": 12}
            every[f"queue of {name}, {order}, {when_full}"] = "ReplayQueue", given
    return {f"fixed: {name}": Kind(*kind, FIXED) for name, kind in every.items()}


def _views() -> dict[str, Kind]:
    limits, roots = {"max_use": 5, "max_staleness": 4}, {"alpha": 0.5, "epsilon": 0.0, "beta_steps": 4}
    by, two = roots | {"prioritized": True}, {"num_envs": 2}
    rows: dict[str, tuple[Views, dict[str, Any]]] = {
        "returns": (Views(3, 0.5), two | limits),
        "returns, own next": (Views(5, 0.9, own_next=True), {"replace": False}),
        "returns, own next, two environments": (Views(2, 1.0, own_next=True), two | {"ordered": True}),
        "frames": (Views(frames=4), limits),
        "late, frames": (Views(frames=2), {"late": ["reward"]}),
        "one frame": (Views(frames=1), two),
        "returns and frames": (Views(3, 0.5, 3), two | {"ordered": True}),
        "returns and frames by priority": (Views(2, 0.9, 4), roots | limits),
        "goals of later steps": (Views(goals="future"), two | limits),
        "goals of any row": (Views(goals="random"), {"replace": False}),
        "goals and returns": (Views(3, 0.5, goals="future"), two | limits),
        "goals and all by priority": (Views(2, 0.9, 3, goals="episode"), roots | limits),
        "goals by priority": (Views(goals="final"), roots | limits),
    }
    steps: dict[str, tuple[Views, dict[str, Any]]] = {
        "burn-in": (Views(3, 0.5), {"sequence_length": 3, "burn_in": 2} | limits),
        "padded": (Views(2, 0.9), two | {"sequence_length": 4, "pad_end": True}),
        "one step": (Views(3, 0.5), two | {"sequence_length": 1, "burn_in": 1}),
        "own next": (Views(5, 0.9, own_next=True), {"sequence_length": 3, "stride": 2, "replace": False}),
        "own next, padded": (Views(1, 0.5, own_next=True), {"sequence_length": 3, "pad_end": True} | by),
        "frames": (Views(3, 0.5, 3), two | {"sequence_length": 3, "burn_in": 1, "pad_end": True}),
        "by priority": (Views(2, 1.0, 2), {"sequence_length": 2, "stride": 3} | by | limits),
        "episodes": (Views(3, 0.5), two | {"max_episode_length": 6} | limits),
        "episodes, own next": (Views(2, 0.5, own_next=True), {"max_episode_length": 5} | by),
        "episodes of frames": (Views(2, 0.9, 3), {"max_episode_length": 5}),
        "goals, burn-in": (Views(goals="future"), {"sequence_length": 3, "burn_in": 2}),
        "goals, padded": (Views(goals="final"), two | {"sequence_length": 4, "pad_end": True}),
        "goals and returns": (Views(3, 0.5, goals="random"), {"sequence_length": 2, "burn_in": 1} | by),
        "episodes with goals": (Views(goals="episode"), {"max_episode_length": 5}),
        "episodes with goals and returns": (Views(3, 0.5, goals="episode"), {"max_episode_length": 6} | limits),
    }
    made = {}
    for name, (views, options) in rows.items():
        cls = "PrioritizedReplayBuffer" if "priority" in name else "ReplayBuffer"
        made[name] = cls, views, {"capacity": 13} | options
    for name, (views, options) in steps.items():
        cls = "EpisodeReplayBuffer" if "episodes" in name else "SequenceReplayBuffer"
        made[f"steps, {name}"] = cls, views, {"capacity": 17} | options
    found = {}
    for name, (cls, views, options) in made.items():
        columns = (WIDE if "replace" in options else OWN_NEXT) if views.own_next else GOALS if views.goals else STEPS
        found[f"views: {name}"] = Kind(cls, {"views": views} | options, columns)
    return found


KINDS = _kinds() | _fixed() | _views()
