"""The configuration of a sharded buffer: that of one buffer, and the settings of the shards."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..columns import Columns
from ..config.configuration import SHARDS, arguments_of, check_part, flat
from ..ops import native
from ..store.base.checks import check_size
from ..store.base.habits import hint
from ..store.faces.place import IN_MEMORY
from ..store.spec.described import read, spec_of
from ..store.spec.registry import find
from ..store.spec.spec import BufferSpec
from ..store.waits.limiter import RateLimiter

#: The classes that shards may be of.
_KINDS = ("ReplayBuffer", "PrioritizedReplayBuffer", "SequenceReplayBuffer", "EpisodeReplayBuffer")
_KEYS = ("number", "folder", "timeout", "name", "batch", "in_flight", "resources")
_NAME = "ShardedReplay"


def split(config: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a configuration into that of one buffer and the arguments of the shards, which `arguments` override."""
    if not isinstance(config, Mapping):
        raise TypeError(f"For '{_NAME}', 'config' must be a mapping, but got {type(config).__name__}.")
    config = flat(config)
    check_part(_NAME, config)
    if "sample_size" not in config:
        raise ValueError(f"For '{_NAME}', the configuration lacks 'sample_size', the rows of one sample of all shards.")
    shards = config.pop(SHARDS, {})
    settings = dict(shards) if isinstance(shards, Mapping) else {"number": shards}
    unknown = [f"{key!r}{hint(str(key), _KEYS)}" for key in settings if key not in _KEYS]
    if unknown:
        raise ValueError(f"For '{_NAME}', 'shards' has unknown keys: {'; '.join(unknown)}.")
    settings |= {key: value for key, value in arguments.items() if value is not None}
    if "number" not in settings:
        raise ValueError(f"For '{_NAME}', the configuration must say how many 'shards', or 'num_shards' must.")
    return config, settings


def whole_spec(config: Mapping[str, Any]) -> tuple[BufferSpec, RateLimiter | None]:
    """Return the spec of one buffer with the rows of all shards, and the limiter of its configuration if it has one."""
    if config.get("number", 1) != 1 or any(config.get(key) for key in ("multi_buffer", "multi_type_replaybuffer")):
        raise ValueError(f"For '{_NAME}', the configuration must be that of one buffer: make one for each.")
    if config.get("storage") not in IN_MEMORY:
        raise ValueError(
            f"For '{_NAME}', 'storage' must not be a folder, since shards keep rows in their own memory, but "
            f"got {config['storage']!r}."
        )
    buffer_cls, arguments, limits = arguments_of(config, find)
    spec = spec_of(buffer_cls, arguments, Columns)
    if native.on_cpu():  # a shard runs on the CPU, whatever device the learner uses
        native.choose_backend("native", spec.cls_name)
    name = spec.public_class
    refused = {
        "'type' must not be epochs: each shard would have an epoch of its own": name == "EpochReplayBuffer",
        "'type' must not be queue: shards would deliver rows in an order of their own. Attach processes to a queue in "
        "a folder": name == "ReplayQueue",
        f"'type' must be uniform, prioritized, sequence or episode, but got {spec.cls_name}": name not in _KINDS,
        "no column may be late: a writer does not know the handles of its rows, which land later. Attach processes to "
        "a buffer in a folder": spec.columns.late,
        "no column may be compressed: shards store rows as they are": spec.columns.compressed,
        "no shape may begin with None: shards exchange rows of one length. Attach processes to a buffer in a "
        "folder": spec.columns.length_groups,
        "'views' cannot hold HindsightRelabel: shards draw samples, without its function": spec.achieved_goal,
        f"'num_envs' must be 1 where rows know their episode, but got {spec.num_envs}: give each environment a writer "
        "of its own": spec.has_episodes and spec.num_envs > 1,
    }
    for why, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"For '{_NAME}', {why}.")
    return spec, None if limits is None else RateLimiter(**limits)


def shard_specs(whole: BufferSpec, number: int, seed: int | None) -> list[BufferSpec]:
    """Return the spec of each shard, with a share of the capacity, the larger ones first, and a separate seed.

    A shard may have fewer rows than a sample, so its own `sample_size` is 1: a call asks for the number of rows.
    """
    if whole.capacity < number:
        raise ValueError(
            f"For '{_NAME}', 'capacity' must be at least one row for each of {number} shards, but got {whole.capacity}."
        )
    json, (rows, more) = whole.to_json(), divmod(whole.capacity, number)
    json["arguments"] |= {"sample_size": 1}
    return [read({**json, "capacity": rows + (i < more)}, None if seed is None else seed + i) for i in range(number)]


def most_starts(spec: BufferSpec, capacity: int, shards: int) -> int:
    """Return the most rows of so many shards of a capacity together at which samples can start."""
    return capacity - shards * (spec.capacity - spec.options.most_starts)


def check_sample_size(specs: Sequence[BufferSpec], size: object) -> int:
    """Return a sample size. Raise an error if shards, of which the last is the smallest, can never deliver it."""
    size = check_size(_NAME, "sample_size", size)
    capacity = sum(spec.capacity for spec in specs)
    most = most_starts(specs[-1], capacity, len(specs))
    if size > most and not specs[-1].options.plan.repeats:
        raise ValueError(
            f"For '{_NAME}', 'sample_size' must be at most {most}, what {len(specs)} shards of capacity={capacity} "
            f"rows together can give, but got {size}."
        )
    return size
