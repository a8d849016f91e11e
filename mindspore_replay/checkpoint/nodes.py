"""Descriptions of buffers as JSON: their form, without the classes themselves."""

from typing import Any

from ..store.checks import MAX_CAPACITY
from .file_format import damaged

#: Names of the classes that can be made from a description.
CLASSES = (
    "ElasticReplayBuffer", "EpisodeReplayBuffer", "EpochReplayBuffer", "MixedReplay", "PrioritizedReplayBuffer",
    "ReplayBuffer", "ReplayQueue", "ReservoirReplayBuffer", "SequenceReplayBuffer",
)  # fmt: skip
_DEEPEST = 100  # nesting of lists


def descriptions(description: Any) -> list[dict[str, Any]]:
    """Return the descriptions of the parts, in the order of `parts_of`."""
    if "class" in description:
        return [description, *(node for source in description.get("sources", []) for node in descriptions(source))]
    parts = description["dict"].values() if "dict" in description else description["list"]
    return [node for part in parts for node in descriptions(part)]


def check_description(path: Any, description: Any, depth: int = 0) -> None:
    """Raise a ValueError if a description is malformed."""
    kinds = ("class", "dict", "list")
    kind = [key for key in kinds if isinstance(description, dict) and key in description]
    parts: Any = []
    if len(kind) == 1 and depth < _DEEPEST:
        value = description[kind[0]]
        parts = description.get("sources", []) if kind == ["class"] else value
        right = {"class": str, "dict": dict, "list": list}[kind[0]]
        if value and isinstance(value, right) and isinstance(parts, (list, dict)) and _describes_one(description):
            for part in parts.values() if isinstance(parts, dict) else parts:
                check_description(path, part, depth + 1)
            return
    raise damaged(path, f"describes no buffer: {str(description)[:200]}")


def _describes_one(description: dict[str, Any]) -> bool:
    """Return True if the description of a single Cell can make it, or says why not."""
    if "class" not in description or isinstance(description.get("folder"), str):
        return True
    known = isinstance(description.get("reason"), str) or (
        isinstance(description.get("arguments"), dict) and description["class"] in CLASSES
    )
    capacity = description.get("capacity", 0)
    return known and type(capacity) is int and ("sources" in description or 0 < capacity <= MAX_CAPACITY)


def same_kind(first: Any, second: Any) -> bool:
    """Return True if two descriptions name the same classes in the same order, and the same ones are in folders."""
    if first.keys() != second.keys() and not {"class"} <= first.keys() & second.keys():
        return False
    if "dict" in first:
        names = [list(each["dict"]) for each in (first, second)]
        pairs = zip(first["dict"].values(), second["dict"].values())
        return names[0] == names[1] and all(same_kind(*pair) for pair in pairs)
    key = "list" if "list" in first else "sources"
    parts = [each.get(key, []) for each in (first, second)]
    return (
        first.get("class") == second.get("class")
        and ("folder" in first) == ("folder" in second)
        and len(parts[0]) == len(parts[1])
        and all(same_kind(*pair) for pair in zip(*parts))
    )


def summary(description: Any) -> str:
    """Return a short form of a description, for errors."""
    if "dict" in description:
        return "{" + ", ".join(f"{name!r}: {summary(part)}" for name, part in description["dict"].items()) + "}"
    if "list" in description:
        return "[" + ", ".join(map(summary, description["list"])) + "]"
    sources = [summary(source) for source in description.get("sources", [])]
    place = " in a folder" if "folder" in description else ""
    return description["class"] + (f"({', '.join(sources)})" if sources else "") + place
