"""Rows of any length, and kinds of buffers of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from reference_lengths import Row

LONGEST, CAPACITY, DRAWS = 5, 10, 2
ITEMS = {"tokens": 29, "words": 31}
#: Two kinds of lengths: `logits` shares that of `tokens`, `flags` that of `words`.
KINDS_OF_LENGTHS = {"tokens": ("tokens", "logits"), "words": ("words", "flags")}
COLUMNS: dict[str, Any] = {
    "shapes": [(None,), (), (None, 2), (None,), (None,), ()],
    "types": ["int32", "float32", "float32", "int16", "bool", "int32"],
    "names": ["tokens", "reward", "logits", "words", "flags", "group"],
    "max_length": LONGEST,
    "items": ITEMS,
    "share_lengths": list(KINDS_OF_LENGTHS.values()),
}
NAMES: tuple[str, ...] = tuple(COLUMNS["names"])
LEADER = {name: leader for leader, names in KINDS_OF_LENGTHS.items() for name in names}


def row_of(number: int, n: int, words: int, changed: int = 0) -> Row:
    """Return a row of n tokens and so many words. Each item holds its row's number and its place."""
    places = np.arange(n) + 10 * (number % 1000)
    return {
        "tokens": places.astype(np.int32) + 100_000 * changed,
        "reward": np.float32(number + 0.5 * changed),
        "logits": np.stack([places, -places + changed], 1).astype(np.float32),
        "words": (np.arange(words) + 10 * (number % 1000)).astype(np.int16),
        "flags": (np.arange(words) + number) % 3 == 0,
        "group": np.int32(number // 3 % 3),
    }


def joined(rows: Sequence[Row]) -> Row:
    """Return rows as a batch: lists of arrays."""
    return {name: [row[name] for row in rows] for name in rows[0]}


class Kind(NamedTuple):
    """A class and options that choose rows."""

    cls: str
    options: dict[str, Any]


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


KINDS = _kinds()


def padded(rows: Sequence[np.ndarray], name: str, width: int, filler: int = 0) -> np.ndarray:
    """Return rows of a column as an array; what is behind their items does not count."""
    if name not in LEADER:
        return np.stack(rows)
    out = np.full((len(rows), width, *rows[0].shape[1:]), filler).astype(rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def plain(result: Any) -> Any:
    """Return results with NumPy arrays in place of Tensors."""
    if isinstance(result, dict):
        return {name: plain(value) for name, value in result.items()}
    if isinstance(result, (tuple, list)):
        return tuple(map(plain, result))
    return result.asnumpy() if hasattr(result, "asnumpy") else np.asarray(result)
