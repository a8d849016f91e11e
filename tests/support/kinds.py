"""Every kind of buffer: its class, the arguments that make it one, and what its samples begin with."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flat import flat

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpochReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)


class Kind(NamedTuple):
    """A kind of buffer.

    Args:
        cls (type): Its class.
        options (dict): Arguments, beside sizes and columns.
        plain (tuple): Names of what a sample holds before the columns.
        handles (tuple): The same of a sample ``with_indices``; ``None`` if rows have no handles.
    """

    cls: Callable[..., Any]
    options: dict[str, Any]
    plain: tuple[str, ...] = ()
    handles: tuple[str, ...] | None = None

    def make(self, sample_size: int, capacity: int, *columns: Any, **more: Any) -> Any:
        """Make a buffer of this kind; the arguments go before those of the kind."""
        return self.cls(sample_size, capacity, **flat(*columns, **self.options | more))


STEPS, WHOLE = {"sequence_length": 2}, {"max_episode_length": 4}
INDICES, BY_PRIORITY, MASKED = ("indices",), ("indices", "weights"), ("indices", "mask")
WEIGHED, LENGTHS = (*BY_PRIORITY, "mask"), ("indices", "lengths", "mask")
RANKED = (*BY_PRIORITY, "lengths", "mask")
KINDS: dict[str, Kind] = {
    "uniform": Kind(ReplayBuffer, {}),
    "distinct": Kind(ReplayBuffer, {"replace": False}),
    "weighted": Kind(ReplayBuffer, {"weighted": True}, (), INDICES),
    "distinct, weighted": Kind(ReplayBuffer, {"weighted": True, "replace": False}, (), INDICES),
    "limits": Kind(ReplayBuffer, {"max_use": 3, "max_staleness": 9}, (), INDICES),
    "compressed": Kind(ReplayBuffer, {"compress": [0], "backend": "native"}),
    "prioritized": Kind(PrioritizedReplayBuffer, {}, BY_PRIORITY, BY_PRIORITY),
    "reservoir": Kind(ReservoirReplayBuffer, {}, (), INDICES),
    "reservoir, weighted": Kind(ReservoirReplayBuffer, {"weighted": True}, (), INDICES),
    "elastic": Kind(ElasticReplayBuffer, {"window": 4}),
    "elastic, weighted": Kind(ElasticReplayBuffer, {"window": 4, "weighted": True}, (), INDICES),
    "elastic by priority": Kind(ElasticReplayBuffer, {"window": 4, "prioritized": True}, BY_PRIORITY, BY_PRIORITY),
    "sequences": Kind(SequenceReplayBuffer, STEPS, MASKED, MASKED),
    "sequences by priority": Kind(SequenceReplayBuffer, {**STEPS, "prioritized": True}, WEIGHED, WEIGHED),
    "episodes": Kind(EpisodeReplayBuffer, WHOLE, LENGTHS, LENGTHS),
    "episodes by priority": Kind(EpisodeReplayBuffer, {**WHOLE, "prioritized": True}, RANKED, RANKED),
    "epochs": Kind(EpochReplayBuffer, {}),
    "epochs, weighted": Kind(EpochReplayBuffer, {"weighted": True}, (), INDICES),
    "padded epochs": Kind(EpochReplayBuffer, {"last": "pad"}, ("mask",)),
    "padded epochs, weighted": Kind(EpochReplayBuffer, {"last": "pad", "weighted": True}, ("mask",), MASKED),
    "epochs of sequences": Kind(EpochReplayBuffer, {"last": "pad", **STEPS}, MASKED, MASKED),
    "queue": Kind(ReplayQueue, {}, (), INDICES),
    "queue that evicts": Kind(ReplayQueue, {"when_full": "evict"}, (), INDICES),
    "queue of sequences": Kind(ReplayQueue, STEPS, MASKED, MASKED),
}
#: One kind of each class.
CLASSES = ("uniform", "prioritized", "reservoir", "elastic", "sequences", "episodes", "epochs", "queue")


def ends_every(buffer: Any, steps: int, n: int) -> dict[str, list[bool]]:
    """Return arguments of an insertion of `n` rows whose episodes have so many steps, if the buffer has episodes."""
    return {"end": [i % steps == steps - 1 for i in range(n)]} if buffer.has_episodes else {}


def full_sample(buffer: Any) -> tuple[Any, ...]:
    """Return a sample with all of its bookkeeping."""
    return buffer.sample(with_indices=buffer.has_handles)  # type: ignore[no-any-return]
