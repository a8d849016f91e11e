"""Replay in shards, which are processes on one or more machines, by Ray."""

import importlib
from typing import TYPE_CHECKING

from ..store.base.optional import needs_mindspore

if TYPE_CHECKING:
    from .sharded import ShardedReplay
    from .writer import ShardWriter

__all__ = ["ShardWriter", "ShardedReplay"]

_PLACES = {"ShardWriter": "writer", "ShardedReplay": "sharded"}


def __getattr__(name: str) -> object:
    """Import what needs MindSpore on first use, since the process of a shard works without it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
    except Exception as error:
        raise needs_mindspore(f"{__name__}.{name}", error) from None
    globals()[name] = value
    return value
