"""Makes the files of this folder, and `draws.json` with the samples that follow.

    python tests/golden/make.py

They were made once and are never made again: later versions must load them. A later format gets files of its own.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_replay import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    FrameStack,
    MixedReplay,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
    save,
)

FOLDER = Path(__file__).parent
CAPACITY = 12
SCHEMA: dict[str, Any] = {
    "shapes": [(2,), (), ()],
    "types": ["float32", "float32", "bool"],
    "names": ["observation", "reward", "terminated"],
}


def insert(buffer: Any, count: int) -> Any:
    """Insert rows with their serial numbers, in episodes of four."""
    first = int(buffer.serials.asnumpy()[0])
    n = np.arange(first, first + count)
    flags = {"end": n % 4 == 3} if buffer.has_episodes else {}
    buffer.insert([np.stack([n, -n], 1).astype(np.float32), n.astype(np.float32), n % 4 == 3], **flags)
    return buffer


def used(buffer: Any) -> Any:
    """Return a buffer that has wrapped and been drawn from, with other priorities and a deleted row."""
    insert(buffer, 17)
    buffer.sample()
    if buffer.prioritized:
        buffer.update_priorities(np.arange(8, 14), np.arange(6) / 2)
    if buffer.weighted and not isinstance(buffer, ReservoirReplayBuffer):
        buffer.advance(2)
        insert(buffer, 1)
        buffer.delete([9])
    return buffer


def draws(buffer: Any) -> list[list[Any]]:
    """Return the next samples."""
    return [[numbers(column.asnumpy()) for column in buffer.sample()] for _ in range(3)]


def numbers(array: np.ndarray) -> list[Any]:
    """Return the elements as numbers for JSON; it does not know bfloat16."""
    return (array.astype(np.float32) if array.dtype.name == "bfloat16" else array).tolist()


def make() -> dict[str, Any]:
    """Return the objects to save, by name."""
    n = 3
    types = ["bool", "int8", "uint16", "int64", "float16", "float64", "bfloat16"]
    several = ReplayBuffer(sample_size=n, capacity=5, shapes=[(2,)] * len(types), types=types, seed=12)
    several.insert([np.arange(14).reshape(7, 2).astype(dtype) for dtype in several.columns.numpy_types])
    return {
        "uniform": used(ReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, seed=1)),
        "weighted": used(
            ReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, max_use=9, max_staleness=5, replace=False, seed=2)
        ),
        "prioritized": used(
            PrioritizedReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, alpha=0.7, beta_steps=20, seed=3)
        ),
        "views": used(
            PrioritizedReplayBuffer(
                sample_size=n, capacity=CAPACITY, **SCHEMA, views=[FrameStack(2), NStep(2, 0.9)], seed=4
            )
        ),
        "sequence": used(
            SequenceReplayBuffer(
                sample_size=n, capacity=CAPACITY, **SCHEMA, sequence_length=2, burn_in=1, prioritized=True, seed=5
            )
        ),
        "episode": used(EpisodeReplayBuffer(sample_size=1, capacity=CAPACITY, **SCHEMA, max_episode_length=4, seed=6)),
        "elastic": used(ElasticReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, window=4, seed=7)),
        "reservoir": used(ReservoirReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, seed=8)),
        "reservoir_weighted": used(
            ReservoirReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, max_use=20, seed=9)
        ),
        "mixed": MixedReplay(
            [
                (used(PrioritizedReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, seed=10)), 0.75),
                (used(ReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, seed=11)), 0.25),
            ],
            8,
            adjustable=True,
            seed=13,
        ),
        "types": several,
        "incremental": used(ReplayBuffer(sample_size=n, capacity=CAPACITY, **SCHEMA, seed=14)),
    }


def main() -> None:
    made = make()
    for name, buffer in made.items():
        save(buffer, FOLDER / f"{name}.safetensors", incremental=True)
    save(insert(made["incremental"], 2), FOLDER / "incremental.safetensors", incremental=True)
    expected = {name: draws(buffer) for name, buffer in made.items()}
    (FOLDER / "draws.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
