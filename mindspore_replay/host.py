"""Replay buffers without MindSpore: the classes of the package on NumPy arrays, in memory or in a folder.

Constructors, methods, results and errors are those of the classes of the same names in `mindspore_replay`, with arrays
in place of Tensors, and numbers in place of Tensors of one number. Samples for the same seed are the same. NumPy has no
bfloat16: such columns contain its bits as uint16.
"""

import os
from collections.abc import Mapping
from typing import Any

from .checkpoint.buffers import Maker, load_buffers, save
from .config.configuration import create
from .store.base.column import Column, Priorities
from .store.faces.attached import attach
from .store.faces.classes import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    EpochReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayQueue,
    ReservoirReplayBuffer,
    SequenceReplayBuffer,
)
from .store.faces.mixture import MixedReplay
from .store.waits.limiter import RateLimiter

__all__ = [
    "Column",
    "ElasticReplayBuffer",
    "EpisodeReplayBuffer",
    "EpochReplayBuffer",
    "MixedReplay",
    "Priorities",
    "PrioritizedReplayBuffer",
    "RateLimiter",
    "ReplayBuffer",
    "ReplayQueue",
    "ReservoirReplayBuffer",
    "SequenceReplayBuffer",
    "attach",
    "create_buffer",
    "load",
    "save",
]


def create_buffer(config: Mapping[str, Any], create_config: Mapping[str, Any] | None = None) -> Any:
    """Make the buffers of a configuration, as `mindspore_replay.create_buffer` does.

    Args:
        config (Mapping): The configuration: MindSpore RL's keys, or DI-engine's.
        create_config (Union[Mapping, None]): DI-engine's second dict. Default: ``None``.

    Returns:
        Union[ReplayBuffer, list, dict]: A buffer; for `number` > 1 a list; for several buffers a dict of them.

    Raises:
        TypeError, ValueError: If a key or a value does not fit, or `shards` is asked for.

    Examples:
        >>> from mindspore_replay.host import create_buffer
        >>> config = {"type": "prioritized", "capacity": 1000, "sample_size": 32, "alpha": 0.7}
        >>> buffer = create_buffer(config | {"data_shape": [(4,), ()], "data_type": ["float32", "int32"]})
        >>> print(type(buffer).__name__, buffer.capacity, buffer.sample_size)
        PrioritizedReplayBuffer 1000 32
    """
    return create(_MAKER, config, create_config)


def load(
    path: str | os.PathLike[str], *, buffer: Any = None, capacity: int | None = None, progress: bool = False
) -> Any:
    """Make the buffer in a file, also one of `mindspore_replay.save`, as `mindspore_replay.load` does.

    Args:
        path (Union[str, PathLike]): The file.
        buffer (Union[ReplayBuffer, dict, list, None]): Load the state into this buffer instead of a new one. Default:
            ``None``.
        capacity (Union[int, None]): Capacity of the new buffer. Default: ``None``, for that of the saved buffer.
        progress (bool): Whether to show a progress bar. Requires tqdm. Default: ``False``.

    Returns:
        Union[ReplayBuffer, dict, list]: What was saved, or `buffer`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated, altered or of another kind, or `buffer` or
            `capacity` does not fit. `buffer` is unchanged then.

    Examples:
        >>> import tempfile
        >>> from mindspore_replay.host import ReplayBuffer, load, save
        >>> buffer = ReplayBuffer(sample_size=3, capacity=100, shapes=[()], types=["int32"], seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(buffer.insert([list(range(50))]), f"{folder}/buffer.safetensors")
        ...     print(*load(f"{folder}/buffer.safetensors").sample(), *buffer.sample())
        [32 35 19] [32 35 19]
    """
    return load_buffers(_MAKER, path, buffer, capacity, progress)


_MAKER = Maker(globals().get, lambda buffers, _: list(buffers), {})
