"""Buffers from configurations: a dict, or a YAML file."""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mindspore import nn

from .buffers.episode import EpisodeReplayBuffer
from .buffers.prioritized import PrioritizedReplayBuffer
from .buffers.replay import ReplayBuffer
from .buffers.sequence import SequenceReplayBuffer

#: Classes by the names that a configuration may use.
BUFFER_TYPES: dict[str, type] = {
    "uniform": ReplayBuffer,
    "naive": ReplayBuffer,
    "deque": ReplayBuffer,
    "prioritized": PrioritizedReplayBuffer,
    "priority": PrioritizedReplayBuffer,
    "advanced": PrioritizedReplayBuffer,
    "sequence": SequenceReplayBuffer,
    "episode": EpisodeReplayBuffer,
}

_SCHEMA_KEYS = {"data_shape": "shapes", "data_type": "types"}
_OWN_KEYS = ("type", "number", "params", *_SCHEMA_KEYS)


def load_config(path: str | Path) -> dict[str, Any]:
    """Reads a YAML file.

    Args:
        path (Union[str, Path]): The file.

    Returns:
        dict: Its content. `create_buffer` takes the part that describes a buffer.

    Raises:
        ImportError: If PyYAML is not installed.
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds no mapping.
    """
    try:
        import yaml
    except ImportError as error:
        raise ImportError("'load_config' needs PyYAML: pip install 'mindspore_replay[examples]'") from error
    with open(path, encoding="utf-8") as file:
        config = yaml.safe_load(file)
    if not isinstance(config, dict):
        raise ValueError(f"For 'load_config', {path} must hold a mapping, but got {type(config).__name__}.")
    return config


def get_buffer_cls(config: Mapping[str, Any]) -> type:
    """The class that a configuration names.

    Args:
        config (Mapping): `type` is a class or a name: ``"uniform"`` (also ``"naive"``, ``"deque"``), the default,
            ``"prioritized"`` (also ``"priority"``, ``"advanced"``), ``"sequence"`` or ``"episode"``.

    Returns:
        type: The class.

    Raises:
        TypeError: If `type` is neither a class nor a string.
        ValueError: If no class has this name.
    """
    buffer_type = config.get("type", "uniform")
    if isinstance(buffer_type, type):
        return buffer_type
    if not isinstance(buffer_type, str):
        raise TypeError(f"For 'get_buffer_cls', 'type' must be a class or a name, but got {buffer_type!r}.")
    if buffer_type not in BUFFER_TYPES:
        raise ValueError(
            f"For 'get_buffer_cls', 'type' must be one of {', '.join(BUFFER_TYPES)}, but got {buffer_type!r}"
            f"{_nearest(buffer_type, BUFFER_TYPES)}."
        )
    return BUFFER_TYPES[buffer_type]


def create_buffer(config: Mapping[str, Any]) -> Any:
    """Makes the buffer, or the buffers, that a configuration in MindSpore RL's keys describes.

    Args:
        config (Mapping): Its keys are

            - `type` (Union[type, str]): class or name, as `get_buffer_cls` takes it. Default: ``"uniform"``.
            - `number` (int): how many such buffers. With a `seed`, buffer i gets ``seed + i``. Default: ``1``.
            - `capacity` (int): rows of one buffer. Required.
            - `sample_size` (int): rows of one sample. Default: ``1``.
            - `data_shape` (Sequence): shape of one row of each column. Required.
            - `data_type` (Sequence): dtype of each column, ``mindspore.float32`` or ``"float32"``. Required.
            - `params` (Mapping): more arguments of the class by name; `capacity` and `sample_size` may stand here too.
            - any other argument of the class by name, such as `seed` or `names`.
            - `multi_type_replaybuffer` (bool): if true, every other key is the name of a buffer and its value a
              configuration as above. Default: ``False``.

    Returns:
        Union[Cell, CellList, dict]: A buffer; for `number` > 1 a ``CellList``; for `multi_type_replaybuffer` a dict of
        them.

    Raises:
        TypeError: If `config`, or a part of it that should be one, is no mapping, or `number` is no int.
        ValueError: If a key is unknown, missing or given twice. The nearest known key is named.
    """
    _check_mapping("config", config)
    if config.get("multi_type_replaybuffer", False):
        return _create_named({key: part for key, part in config.items() if key != "multi_type_replaybuffer"})
    config = {key: value for key, value in config.items() if key != "multi_type_replaybuffer"}
    buffer_cls = get_buffer_cls(config)
    arguments = _arguments(buffer_cls, config)
    number = config.get("number", 1)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"For 'create_buffer', 'number' must be an int, but got {number!r} ({type(number).__name__}).")
    if number < 1:
        raise ValueError(f"For 'create_buffer', 'number' must be positive, but got {number}.")
    if number == 1:
        return buffer_cls(**arguments)
    seed = arguments.pop("seed", None)
    seeds = [{} if seed is None else {"seed": seed + i} for i in range(number)]
    return nn.CellList([buffer_cls(**arguments, **extra) for extra in seeds])


def _create_named(configs: Mapping[str, Any]) -> dict[str, Any]:
    for name, part in configs.items():
        _check_mapping(name, part)
    buffers = {name: create_buffer(part) for name, part in configs.items()}
    for name, buffer in buffers.items():
        if isinstance(buffer, nn.CellList):
            buffer.update_parameters_name(f"{name}.")  # a dict gives its Cells no prefix, and lists count from 0 each
    return buffers


def _arguments(buffer_cls: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the class, out of a configuration whose keys are checked here."""
    params = config.get("params") or {}
    _check_mapping("params", params)
    parameters = inspect.signature(buffer_cls).parameters.values()
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    given = {key: value for key, value in config.items() if key not in _OWN_KEYS}
    twice = sorted(set(given) & set(params))
    if twice:
        raise ValueError(f"For 'create_buffer', {twice} stand both in the configuration and in its 'params'.")
    if not any(p.kind == p.VAR_KEYWORD for p in parameters):
        known = [name for name in accepted if name not in _SCHEMA_KEYS.values()]
        _check_known([*given, *params], [*known, *_OWN_KEYS, "multi_type_replaybuffer"])
    arguments = {"sample_size": 1, **given, **params}
    arguments.update({_SCHEMA_KEYS[key]: config[key] for key in _SCHEMA_KEYS if key in config})
    keys = {argument: key for key, argument in _SCHEMA_KEYS.items()}
    needed = [p.name for p in parameters if p.default is p.empty and p.name in accepted and p.name not in arguments]
    missing = [keys.get(name, name) for name in needed]
    if missing:
        raise ValueError(f"For 'create_buffer', the configuration lacks {missing}; it has {sorted(map(str, config))}.")
    return arguments


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"For 'create_buffer', {name!r} must be a mapping, but got {value!r} ({type(value).__name__}).")


def _check_known(keys: Iterable[Any], known: Iterable[str]) -> None:
    known = list(known)
    unknown = [f"{key!r}{_nearest(str(key), known)}" for key in keys if key not in known]
    if unknown:
        raise ValueError(f"For 'create_buffer', the configuration has unknown keys: {'; '.join(unknown)}.")


def _nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word nearest to this one."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.0)
    return f" (the nearest is {matches[0]!r})" if matches else ""
