"""Replay in shards, which are processes on one or more machines, by Ray."""

from .sharded import ShardedReplay
from .writer import ShardWriter

__all__ = ["ShardWriter", "ShardedReplay"]
