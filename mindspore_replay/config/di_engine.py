"""Translates DI-engine's configuration keys to arguments of the buffers."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..store.base.checks import any_number, check_bool, need
from ..store.base.column import Priorities
from ..store.faces.classes import PrioritizedReplayBuffer

#: DI-engine's keys, with the argument that each stands for.
RENAMED = {
    "replay_buffer_size": "capacity",
    "anneal_step": "beta_steps",
    "priority_power_factor": "alpha",
    "IS_weight_power_factor": "beta",
    "IS_weight_anneal_train_iter": "beta_steps",
    "set_buffer_size": "window",
}
_CORRECTION = ("beta", "anneal_step", "IS_weight_power_factor", "IS_weight_anneal_train_iter")
#: Keys that switch priorities and importance weights on and off.
SWITCHES = ("priority", "priority_IS_weight")
#: Keys that are accepted and have no effect, with the type of their values.
IGNORED: dict[str, tuple[type, ...]] = {
    "deepcopy": (bool,),
    "enable_track_used_data": (bool,),
    "name": (str,),
    "cfg_type": (str,),
    "monitor": (Mapping, type(None)),
    "periodic_thruput_seconds": (int, float, type(None)),
    "train_iter_per_log": (int, type(None)),
}
#: Keys without a counterpart: the values that request nothing, besides None, and the alternative to any other value.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "priority_max_limit": ((math.inf, 1000), "limit the priorities that you give to 'update_priorities'"),
    "replay_buffer_start_size": ((0,), "compare size() with it before you sample"),
    "min_sample_ratio": ((1,), "compare size() with a multiple of sample_size before you sample"),
    "import_names": ((), "import the module yourself and give the class as 'type'"),
}
#: The key that `limiter_arguments` translates, and the keys in its value; those of time have no effect.
LIMITER = "thruput_controller"
_RATES, _RATIO, _WINDOW = "push_sample_rate_limit", "sample_min_limit_ratio", "window_seconds"
#: All keys of DI-engine that are not arguments of a buffer.
KEYS = (*RENAMED, *SWITCHES, *IGNORED, *REFUSED, LIMITER)
#: Keys that only prioritized buffers take.
OF_PRIORITIES = ("alpha", "priority_power_factor", *_CORRECTION)
#: Keys whose value is a mapping that is not a buffer's configuration.
MAPPINGS = (LIMITER, "monitor")

#: Arguments of a prioritized buffer that are fields of `Priorities` in other classes.
_FACTORS = ("alpha", "beta", "beta_steps")
_LIMITS = ("max_use", "max_staleness")
_COUNTS = ("replay_buffer_size", "anneal_step", "IS_weight_anneal_train_iter", *_LIMITS)


def class_by_priority(buffer_cls: type, priority: object, find: Callable[[str], Any]) -> type:
    """Return the uniform or the prioritized class by the key `priority`. Other classes are unchanged."""
    names = "ReplayBuffer", "PrioritizedReplayBuffer"
    if priority is None or buffer_cls not in map(find, names):
        return buffer_cls
    cls: type = find(names[check_bool("create_buffer", "priority", priority)])
    return cls


def without_empty_limits(accepted: Collection[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without limits that are ``None`` or infinite, if the class does not accept them."""
    return {
        key: value
        for key, value in config.items()
        if key not in _LIMITS or key in accepted or value not in (None, math.inf)
    }


def to_arguments(buffer_cls: type, accepted: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Translate DI-engine's keys, but for those that are names of the class's arguments. All others are unchanged.

    Raises:
        TypeError: If a value is of another type.
        ValueError: If a key has no counterpart, contradicts the class, or means the same as another one.
    """
    foreign = {key for key in KEYS if key in values and key not in accepted}
    refused = [
        f"{key!r}: {REFUSED[key][1]}" for key in REFUSED if key in foreign and not _asks_nothing(key, values[key])
    ]
    if refused:
        raise ValueError(f"For 'create_buffer', there is no counterpart of {'; of '.join(refused)}.")
    for key in IGNORED:
        if key in foreign and not isinstance(values[key], IGNORED[key]):
            expected = IGNORED[key][0].__name__
            raise TypeError(f"For 'create_buffer', {key!r} must be of type {expected}, but got {values[key]!r}.")
    others = {key: value for key, value in values.items() if key not in foreign or key in (*RENAMED, *SWITCHES)}
    return _renamed(accepted, _switched(buffer_cls, accepted, others))


def _switched(buffer_cls: type, accepted: Collection[str], values: dict[str, Any]) -> dict[str, Any]:
    """Replace `priority` and `priority_IS_weight` by the arguments that they mean."""
    switches = {
        key: check_bool("create_buffer", key, values[key]) for key in SWITCHES if key in values and key not in accepted
    }
    values = {key: value for key, value in values.items() if key not in switches}
    priority, correction = switches.get("priority"), switches.get("priority_IS_weight")
    prioritized = issubclass(buffer_cls, PrioritizedReplayBuffer)
    either = "priorities" in accepted
    if either:
        if priority is not None:
            need_once("priority", "priorities" if "priorities" in values else None, "priorities")
        prioritized = values.get("priorities") is not None or priority is True
    if priority is not None and priority != prioritized:
        does = "draws" if prioritized else "does not draw"
        raise ValueError(f"For 'create_buffer', 'priority' is {priority}, but '{buffer_cls.__name__}' {does} by it.")
    if priority is False:
        values = {key: value for key, value in values.items() if key not in OF_PRIORITIES}
    if correction is False:
        values = {key: value for key, value in values.items() if key not in (*_CORRECTION, "beta_steps")}
        if prioritized and "priorities" not in values:
            values["beta"] = 0.0
    needing = [key for key in values if key in OF_PRIORITIES and (either or key not in accepted)]
    needing += ["priority_IS_weight"] if correction else []
    if needing and not prioritized:
        raise ValueError(
            f"For 'create_buffer', {needing} need priorities, which '{buffer_cls.__name__}' has not: name the type "
            "'prioritized' or give 'priority': True, or leave them out."
        )
    if either and prioritized and "priorities" not in values:
        values["priorities"] = {}
    return values


def _renamed(accepted: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, value in values.items():
        argument = key if key in accepted else RENAMED.get(key, key)
        need_once(key, spelled.get(argument), argument)
        spelled[argument] = key
        if key == "set_buffer_size":
            value = _first_window(accepted, value, values)
        elif key in _LIMITS and isinstance(value, float) and value == math.inf:
            value = None
        elif key in _COUNTS and isinstance(value, float) and value.is_integer():
            value = int(value)
        arguments[argument] = value
    if arguments.get("priorities") is not None:  # of a class that has alpha and beta there
        factors = {key: arguments.pop(key) for key in _FACTORS if key in arguments and key not in accepted}
        if factors and arguments["priorities"]:
            need_once(spelled[min(factors)], "priorities", f"priorities.{min(factors)}")
        arguments["priorities"] = arguments["priorities"] or Priorities(**factors)
    return {key: value for key, value in arguments.items() if key != "window" or value is not None}


def _first_window(accepted: Collection[str], size: Any, values: Mapping[str, Any]) -> int | None:
    """Return the window at the start of the training, at most the capacity."""
    if size is None:
        return None
    if "window" not in accepted:
        raise ValueError("For 'create_buffer', 'set_buffer_size' needs the type 'elastic'.")
    need(callable(size), TypeError, "create_buffer", "'set_buffer_size' must be a function", size)
    return min(int(size(0)), *(values[key] for key in ("capacity", "replay_buffer_size") if key in values))


def need_once(key: str, other: str | None, argument: str) -> None:
    """Raise a ValueError if another key sets the argument too."""
    if other is not None:
        raise ValueError(f"For 'create_buffer', {other!r} and {key!r} both give '{argument}': give one of them.")


def _asks_nothing(key: str, value: object) -> bool:
    """Return True if a key without a counterpart has a value that requests nothing, as modules of DI-engine do."""
    if key == "import_names" and isinstance(value, (list, tuple)):
        return all(isinstance(name, str) and name.startswith("ding.") for name in value)
    return value is None or value in REFUSED[key][0]


def limiter_arguments(controller: Mapping[str, Any], sample_size: int, num_envs: int) -> dict[str, Any] | None:
    """Return the arguments of a `RateLimiter` equivalent to the key `thruput_controller`.

    DI-engine's rates are insertions a sample, ours samples an insertion. It counts the operations of the last seconds,
    a `RateLimiter` counts all. The error buffer is the smallest with which the two sides cannot block each other.

    Returns ``None`` if nothing is limited.
    """
    _check_keys(LIMITER, controller, (_RATES, _RATIO, _WINDOW))
    rates = controller.get(_RATES) or {}
    _check_keys(_RATES, rates, ("max", "min"))
    numbers = {"max": rates.get("max", math.inf), "min": rates.get("min", 0), _RATIO: controller.get(_RATIO, 1)}
    most, fewest, ratio = (any_number("create_buffer", key, value) for key, value in numbers.items())
    if not (0 <= fewest <= most and most > 0 and 0 <= ratio < math.inf and fewest < math.inf):
        raise ValueError(
            f"For 'create_buffer', {LIMITER!r} must have 0 <= min <= max and a ratio of at least 0, but got "
            f"{controller!r}."
        )
    if fewest == 0 and most == math.inf and ratio <= 1:
        return None
    low, high = 1 / most, math.inf if fewest == 0 else 1 / fewest
    return {
        "samples_per_insert": (low, high),
        "min_size": max(math.ceil(ratio * sample_size), 1),
        "error_buffer": max((low * num_envs + sample_size) / 2, 1.0),
    }


def _check_keys(name: str, value: Any, allowed: Collection[str]) -> None:
    need(isinstance(value, Mapping), TypeError, "create_buffer", f"{name!r} must be a mapping", value)
    unknown = sorted(map(str, set(value) - set(allowed)))
    need(not unknown, ValueError, "create_buffer", f"{name!r} must hold some of {list(allowed)}", unknown)
