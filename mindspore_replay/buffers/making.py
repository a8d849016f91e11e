"""Makes the buffers of configurations and of files."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mindspore import nn

from ..checkpoint.buffers import Maker, load_buffers
from ..config.configuration import buffer_class, create
from ..store.spec.registry import find


def get_buffer_cls(config: Mapping[str, Any]) -> type:
    """Return the class that a configuration names.

    Args:
        config (Mapping): `type` is a class or a name: ``"uniform"`` (also ``"naive"``, ``"deque"``), the default,
            ``"prioritized"`` (also ``"priority"``, ``"advanced"``), ``"sequence"``, ``"episode"``, ``"reservoir"``,
            ``"elastic"``, ``"queue"`` or ``"epochs"``. For the first two, `priority` (bool) overrides the choice, if
            given.

    Returns:
        type: The class.

    Raises:
        TypeError: If `type` is neither a class nor a string, or `priority` is no bool.
        ValueError: If no class has this name, or the configuration describes a whole training.

    Examples:
        >>> from mindspore_replay.buffers.making import get_buffer_cls
        >>> print(get_buffer_cls({"type": "advanced"}).__name__, get_buffer_cls({}).__name__)
        PrioritizedReplayBuffer ReplayBuffer
    """
    return buffer_class(config, _found)


def create_buffer(config: Mapping[str, Any], create_config: Mapping[str, Any] | None = None) -> Any:
    """Make the buffer, or the buffers, of a configuration with the keys of MindSpore RL or DI-engine.

    Args:
        config (Mapping): Its keys are

            - `type` (Union[type, str]): class or name, as `get_buffer_cls` takes it. Default: ``"uniform"``.
            - `number` (int): number of such buffers. With a `seed`, buffer i gets ``seed + i``. Default: ``1``.
            - `capacity` or `replay_buffer_size` (int): rows of one buffer. Required.
            - `sample_size` (int): rows of one sample. Required.
            - `data_shape` or `shapes` (Sequence): shape of one row of each column. Required.
            - `data_type` or `types` (Sequence): dtype of each column, ``mindspore.float32``, ``numpy.float32`` or
              ``"float32"``. Required.
            - `columns` (Mapping): in place of these two, the fields of a `Column` for each name, or `Column` objects.
            - `priorities` (Mapping): the fields of `Priorities`, for classes that take it.
            - `params` (Mapping): more keys, on the same level as those outside of it.
            - `shards` (Union[int, Mapping]): number of shards of a `distributed.ShardedReplay`, or its arguments.
            - `limiter` (Mapping): arguments of a `RateLimiter`, set as the buffer's ``limiter``.
            - `storage` (Union[str, PathLike]): as for the class. Each of several buffers gets a subfolder with its
              number or name.
            - any other argument of the class, such as `seed` or `names`. An infinite limit means no limit.
            - any other key of DI-engine: `priority`, `priority_IS_weight`, `priority_power_factor`,
              `IS_weight_power_factor`, `anneal_step` and more. ``docs/coming_from/di_engine.md`` lists all of them.
            - `multi_buffer` or `multi_type_replaybuffer` (bool): if true, each key with a mapping names a buffer, and
              the mapping configures it. All other keys apply to every buffer that does not set them itself. A common
              `seed` is varied by buffer. Default: ``False``.

        create_config (Union[Mapping, None]): DI-engine's second dict: `type`, or, for several buffers, a mapping with
            `type` for each by name. Default: ``None``.

    Returns:
        Union[Cell, CellList, dict, ShardedReplay]: A buffer; for `number` > 1 a ``CellList``; for several buffers a
        dict of them; for `shards` a ``distributed.ShardedReplay``.

    Raises:
        TypeError: If `config`, or a part that must be a mapping, is not one, or a value is of another type.
        ValueError: If a key is unknown, missing, unsupported, or given twice, also under both libraries' names. For an
            unknown key the error suggests a known one.

    Examples:
        >>> from mindspore_replay import create_buffer
        >>> config = {"type": "prioritized", "capacity": 1000, "sample_size": 32, "alpha": 0.7}
        >>> buffer = create_buffer(config | {"data_shape": [(4,), ()], "data_type": ["float32", "int32"]})
        >>> print(type(buffer).__name__, buffer.capacity, buffer.sample_size, buffer.spec.priorities.alpha)
        PrioritizedReplayBuffer 1000 32 0.7
    """
    return create(Maker(_found, _list_of, {}), config, create_config)


def load(
    path: str | os.PathLike[str],
    *,
    buffer: Any = None,
    capacity: int | None = None,
    backend: str = "auto",
    progress: bool = False,
) -> Any:
    """Make the buffer that `save` wrote. The same samples follow as after the save.

    With another `capacity`, the buffer keeps the newest rows that fit, with their handles, priorities and other state.
    The rest count as overwritten. Its samples then differ, since rows are in other slots. So it is with a `buffer` with
    other ``items`` for rows of any length.

    Args:
        path (Union[str, PathLike]): The file. From a file of a
            `TrainingCheckpoint`, the buffers are loaded, as a dict.
        buffer (Union[Cell, dict, CellList, None]): Load the state into this buffer instead of a new one. It must have
            the same class, columns, and arguments that affect rows. Required for a buffer with `HindsightRelabel` or of
            your own class. In a folder, rows that replace others get new serial numbers. Default: ``None``.
        capacity (Union[int, None]): Capacity of the new buffer. A `buffer` may differ in capacity too, unless it is a
            reservoir. Default: ``None``, for that of the saved buffer.
        backend (str): Backend of a new buffer. Default: ``"auto"``.
        progress (bool): Whether to show a progress bar. Requires tqdm. Default: ``False``.

    Returns:
        Union[Cell, dict, CellList]: What was saved, or `buffer`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated, altered or of another kind, or `buffer` or
            `capacity` does not fit. `buffer` is unchanged then.
        TypeError: If an argument is of another type.
        RuntimeError: If the backend is not available, or `buffer` is in a folder to which a process is attached.
        ImportError: If `progress` is asked for and tqdm is not installed.

    Examples:
        >>> import tempfile
        >>> import numpy as np, mindspore as ms
        >>> from mindspore_replay import ReplayBuffer, load, save
        >>> buffer = ReplayBuffer(sample_size=3, capacity=100, shapes=[()], types=[ms.int32], seed=0)
        >>> buffer = buffer.insert([np.arange(50, dtype=np.int32)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(buffer, f"{folder}/buffer.safetensors")
        ...     newest = load(f"{folder}/buffer.safetensors", capacity=5)
        >>> print(newest.size(), *newest.rows())
        5 [45 46 47 48 49]
    """
    return load_buffers(Maker(_found, _list_of, {"backend": backend}), path, buffer, capacity, progress)


def _found(name: str) -> Any:
    return find(name, "distributed" if name == "ShardedReplay" else "")


def _list_of(buffers: Sequence[nn.Cell], name: str) -> nn.CellList:
    """Return a list of buffers. The name that it has in a dict becomes the prefix of its Parameters."""
    cells = nn.CellList(buffers)
    if name:
        cells.update_parameters_name(f"{name}.")
    return cells
