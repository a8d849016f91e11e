"""Makes buffers from configurations: dicts or YAML files."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..checkpoint.buffers import Maker
from ..store.base.checks import check_no_pipe, check_size
from ..store.base.column import Column, Priorities
from ..store.base.habits import hint
from ..store.base.optional import optional
from ..store.faces.place import IN_MEMORY
from ..store.waits.limiter import RateLimiter
from . import di_engine

#: Classes by the names that a configuration may use.
BUFFER_TYPES: dict[str, str] = {
    "uniform": "ReplayBuffer",
    "naive": "ReplayBuffer",
    "deque": "ReplayBuffer",
    "prioritized": "PrioritizedReplayBuffer",
    "priority": "PrioritizedReplayBuffer",
    "advanced": "PrioritizedReplayBuffer",
    "sequence": "SequenceReplayBuffer",
    "episode": "EpisodeReplayBuffer",
    "reservoir": "ReservoirReplayBuffer",
    "elastic": "ElasticReplayBuffer",
    "queue": "ReplayQueue",
    "epochs": "EpochReplayBuffer",
}

_SCHEMA_KEYS = {"data_shape": "shapes", "data_type": "types"}
#: Keys with the argument that each stands for.
_ARGUMENTS = {**di_engine.RENAMED, **_SCHEMA_KEYS}
_SEVERAL_KEYS = ("multi_type_replaybuffer", "multi_buffer")
#: Key with the number of shards, or a mapping of their settings.
SHARDS = "shards"
_OWN_KEYS = ("type", "number", "params", "limiter", SHARDS, *_SCHEMA_KEYS, *_SEVERAL_KEYS)
#: Keys whose value is a mapping without being a buffer's configuration.
_MAPPINGS = ("limiter", "columns", "priorities", SHARDS, *di_engine.MAPPINGS)
#: The key of the buffer's configuration in that of a whole training, at any depth.
_PART = "replay_buffer"
#: Values that a file may hold.
_MOST_VALUES = 100_000


def load_config(path: str | Path) -> dict[str, Any]:
    r"""Read a YAML file.

    Args:
        path (Union[str, Path]): The file.

    Returns:
        dict: Its content. Pass the part that describes a buffer to `create_buffer`.

    Raises:
        ImportError: If PyYAML is not installed.
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not YAML or contains no mapping, a mapping has a key twice, or there are more than
            100,000 values with aliases expanded.

    Examples:
        >>> import pathlib, tempfile
        >>> from mindspore_replay import load_config
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "buffer.yaml"
        >>> _ = path.write_text("type: prioritized\ncapacity: 1000\n")
        >>> print(load_config(path))
        {'type': 'prioritized', 'capacity': 1000}
    """
    yaml = optional("yaml", "load_config", "examples", "PyYAML")
    check_no_pipe("load_config", path)
    try:
        with open(path, encoding="utf-8") as file:
            loader = yaml.SafeLoader(file)
            node = loader.get_single_node()
            config = None
            if node is not None:
                _checked_size(node, {})
                config = loader.construct_document(node)
    except (ArithmeticError, RecursionError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"For 'load_config', {path} must be a YAML file, but got: {str(error)[:500]}.") from None
    if not isinstance(config, dict):
        raise ValueError(f"For 'load_config', {path} must hold a mapping, but got {type(config).__name__}.")
    return config


def _checked_size(node: Any, sizes: dict[int, int]) -> int:
    """Return the number of values in a node of YAML, with aliases expanded. Raise a ValueError for too many."""
    if id(node) not in sizes:
        sizes[id(node)] = _MOST_VALUES  # of a node within itself
        is_mapping, items = node.id == "mapping", [] if node.id == "scalar" else node.value
        keys = [(key.tag, key.value) for key, _ in items if key.id == "scalar"] if is_mapping else []
        if len(set(keys)) < len(keys):
            raise ValueError(f"a key occurs twice in a mapping{node.start_mark}")
        parts = [part for item in items for part in (item if is_mapping else (item,))]
        sizes[id(node)] = 1 + sum(_checked_size(part, sizes) for part in parts)
    if sizes[id(node)] > _MOST_VALUES:
        raise ValueError(f"it holds more than {_MOST_VALUES} values, those of aliases counted again")
    return sizes[id(node)]


def buffer_class(config: Mapping[str, Any], find: Callable[[str], Any]) -> type:
    """Return the class that a configuration names, as `get_buffer_cls` does. `find` returns that of a name."""
    config = flat(config)
    check_part("get_buffer_cls", config)
    buffer_type = config.get("type", "uniform")
    if isinstance(buffer_type, type):
        return di_engine.class_by_priority(buffer_type, config.get("priority"), find)
    if not isinstance(buffer_type, str):
        raise TypeError(f"For 'get_buffer_cls', 'type' must be a class or a name, but got {buffer_type!r}.")
    if buffer_type not in BUFFER_TYPES:
        raise ValueError(
            f"For 'get_buffer_cls', 'type' must be one of {', '.join(BUFFER_TYPES)}, but got {buffer_type!r}"
            f"{hint(buffer_type, BUFFER_TYPES)}."
        )
    return di_engine.class_by_priority(find(BUFFER_TYPES[buffer_type]), config.get("priority"), find)


def create(
    maker: Maker, config: Mapping[str, Any], create_config: Mapping[str, Any] | None = None, name: str = ""
) -> Any:
    """Make the buffers of a configuration, as `create_buffer` does. `name` is that in a dict of buffers."""
    _check_mapping("config", config)
    if create_config is not None:
        _check_mapping("create_config", create_config)
        config = _with_types(config, create_config)
    config = flat(config)
    check_part("create_buffer", config)
    if _is_several(config):
        return _create_named({key: value for key, value in config.items() if key not in _SEVERAL_KEYS}, maker)
    if SHARDS in config:
        sharded = maker.find("ShardedReplay")
        if sharded is None:
            raise ValueError("For 'create_buffer', 'shards' needs mindspore_replay.create_buffer: Ray needs MindSpore.")
        return sharded(config)
    buffer_cls, arguments, limits = arguments_of(config, maker.find)
    number = check_size("create_buffer", "number", config.get("number", 1))
    if number == 1:
        return _made(maker, buffer_cls, arguments, limits)
    seed = arguments.pop("seed", None)
    individual = [_own_storage(arguments, i) | ({} if seed is None else {"seed": seed + i}) for i in range(number)]
    return maker.list_of([_made(maker, buffer_cls, arguments | extra, limits) for extra in individual], name)


def arguments_of(
    config: Mapping[str, Any], find: Callable[[str], Any]
) -> tuple[type, dict[str, Any], Mapping[str, Any] | None]:
    """Return the class of a flat configuration, its arguments, and those of its limiter if it has one."""
    buffer_cls = buffer_class(config, find)
    arguments = _arguments(buffer_cls, config)
    return buffer_cls, arguments, _limiter_arguments(config, arguments)


def _own_storage(common: Mapping[str, Any], name: object) -> dict[str, Any]:
    """Return the storage of one of several buffers: a subfolder of the folder of all."""
    storage = common.get("storage")
    if storage in IN_MEMORY:
        return {}
    if Path(str(name)).name != str(name) or str(name) in ("", ".", ".."):
        raise ValueError(
            f"For 'create_buffer', the name of a buffer in a folder must be a name of a file, but got {name!r}."
        )
    return {"storage": Path(storage) / str(name)}


def _made(maker: Maker, buffer_cls: type, arguments: Mapping[str, Any], limits: Mapping[str, Any] | None) -> Any:
    limiter = None if limits is None else maker.find("RateLimiter")(**limits)
    buffer = buffer_cls(**arguments)
    if limiter is not None:
        buffer.limiter = limiter
    return buffer


def _limiter_arguments(config: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    limits = config.get("limiter")
    theirs = None if di_engine.LIMITER in arguments else config.get(di_engine.LIMITER)
    if limits is not None and theirs is not None:
        raise ValueError(f"For 'create_buffer', 'limiter' and {di_engine.LIMITER!r} mean the same: give one of them.")
    if limits is None:
        rows = arguments["sample_size"], arguments.get("num_envs", 1)
        return None if theirs is None else di_engine.limiter_arguments(theirs, *rows)
    _check_mapping("limiter", limits)
    _check_fields(RateLimiter, "limiter", limits)
    return limits


def _with_types(config: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a second configuration, with `type` or a mapping with `type` for each buffer, into the first."""
    merged = dict(config)
    for key, value in types.items():
        if key == "type" and config.get("type", value) == value:
            merged["type"] = value
        elif key == "type":
            raise ValueError(f"For 'create_buffer', 'type' is {config['type']!r}, but in 'create_config' {value!r}.")
        elif key == "import_names":
            merged[key] = value
        elif isinstance(value, Mapping) and isinstance(config.get(key), Mapping):
            merged[key] = _with_types(config[key], value)
        else:
            names = [name for name, section in config.items() if isinstance(section, Mapping)]
            raise ValueError(
                "For 'create_buffer', 'create_config' must hold 'type', or a mapping with it for each buffer, "
                f"but it has {key!r}{hint(str(key), ['type', *names])}. Of DI-engine's create_config give the part "
                "'replay_buffer'."
            )
    return merged


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the keys of `params` on its top level."""
    outer = {key: value for key, value in config.items() if key != "params"}
    params = config.get("params") or {}
    _check_mapping("params", params)
    twice = sorted(set(outer) & set(params))
    if twice:
        raise ValueError(f"For 'create_buffer', {twice} must not be both in the configuration and in its 'params'.")
    return outer | (flat(params) if params else {})


def check_part(function: str, config: Mapping[str, Any]) -> None:
    """Raise a ValueError for the configuration of a whole training, in which that of the buffer is a part."""
    path = [] if _is_several(config) else _path_to_part(config)
    if path:
        section = "".join(f"[{key!r}]" for key in path)
        raise ValueError(
            f"For '{function}', 'config' must be the part that describes the buffer, but got the configuration of a "
            f"whole training run: pass config{section}."
        )


def _path_to_part(config: Mapping[str, Any]) -> list[Any]:
    """Return the keys that lead to the configuration of a buffer inside of another, empty if there is none."""
    if isinstance(config.get(_PART), Mapping):
        return [_PART]
    parts = {key: _path_to_part(value) for key, value in config.items() if isinstance(value, Mapping)}
    return next(([key, *path] for key, path in parts.items() if path), [])


def _is_several(config: Mapping[str, Any]) -> bool:
    keys = [key for key in _SEVERAL_KEYS if key in config]
    if len(keys) > 1:
        raise ValueError(f"For 'create_buffer', {keys} mean the same: give one of them.")
    return any(config[key] for key in keys)


def _create_named(config: Mapping[str, Any], maker: Maker) -> dict[str, Any]:
    """Make a buffer for each mapping. All other keys apply to each of them."""
    names = [key for key, value in config.items() if isinstance(value, Mapping) and key not in _MAPPINGS]
    if not names:
        raise ValueError(
            f"For 'create_buffer', several buffers need a mapping each, but got only {sorted(map(str, config))}."
        )
    common = {key: value for key, value in config.items() if key not in names}
    buffers: dict[str, Any] = {}
    for name in names:
        section = flat(config[name])
        set_here = {_ARGUMENTS.get(key, key) for key in section}
        section |= {key: value for key, value in common.items() if _ARGUMENTS.get(key, key) not in set_here}
        if "storage" not in set_here:
            section |= _own_storage(common, name)
        buffers[name] = create(maker, section, name=name)
        if common.get("seed") is not None:
            common["seed"] += section.get("number", 1)
    return buffers


def _arguments(buffer_cls: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of the class from a flat configuration, whose keys are checked here."""
    parameters = inspect.signature(buffer_cls).parameters.values()
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind == p.VAR_KEYWORD for p in parameters):
        config = di_engine.without_empty_limits(accepted, config)
        _check_known(config, [*accepted, *_OWN_KEYS, *di_engine.KEYS, *di_engine.OF_PRIORITIES])
    values = {key: value for key, value in config.items() if key not in _OWN_KEYS}
    for key, argument in _SCHEMA_KEYS.items():
        if key in config:
            di_engine.need_once(key, argument if argument in values else None, argument)
            values[argument] = config[key]
    arguments = di_engine.to_arguments(buffer_cls, accepted, _with_records(values))
    keys = {argument: key for key, argument in _SCHEMA_KEYS.items()}
    needed = [p.name for p in parameters if p.default is p.empty and p.name in accepted]
    needed += [] if config.get(di_engine.LIMITER) is None or "sample_size" in needed else ["sample_size"]
    needed += [] if "columns" in arguments or "columns" not in accepted else ["shapes", "types"]
    missing = [keys.get(name, name) for name in needed if name not in arguments]
    if missing:
        raise ValueError(f"For 'create_buffer', the configuration lacks {missing}; it has {sorted(map(str, config))}.")
    return arguments


def _with_records(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the columns and priorities, which a YAML file has as mappings, as records."""
    arguments = dict(values)
    columns = arguments.get("columns")
    if isinstance(columns, Mapping):
        arguments["columns"] = {name: _record(Column, f"columns.{name}", column) for name, column in columns.items()}
    elif isinstance(columns, (list, tuple)):
        arguments["columns"] = [_record(Column, f"columns.{i}", column) for i, column in enumerate(columns)]
    if "priorities" in arguments:
        arguments["priorities"] = _record(Priorities, "priorities", arguments["priorities"])
    return arguments


def _record(cls: type, name: str, value: object) -> object:
    """Return the record of a mapping. Any other value stays, for the constructor to check."""
    if isinstance(value, Mapping):
        _check_fields(cls, name, value)
        return cls(**value)
    return value


def _check_fields(cls: type, name: str, value: Mapping[str, Any]) -> None:
    """Raise a ValueError for a mapping with unknown arguments of a class, or without some."""
    parameters = inspect.signature(cls).parameters.values()
    _check_known(value, [p.name for p in parameters], f"{name}.")
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in value]
    if missing:
        raise ValueError(f"For 'create_buffer', {name!r} lacks {missing}; it has {sorted(map(str, value))}.")


def _check_mapping(name: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"For 'create_buffer', {name!r} must be a mapping, but got {value!r} ({type(value).__name__}).")


def _check_known(keys: Iterable[Any], allowed: Sequence[str], before: str = "") -> None:
    meant = [key for key in allowed if key not in di_engine.REFUSED]
    unknown = [f"{f'{before}{key}'!r}{hint(str(key), meant, before)}" for key in keys if key not in allowed]
    if unknown:
        raise ValueError(f"For 'create_buffer', the configuration has unknown keys: {'; '.join(unknown)}.")
