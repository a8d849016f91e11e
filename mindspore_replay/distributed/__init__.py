"""Replay over several processes and machines, on Ray."""

from .sharded import ShardedReplay
from .writer import ShardWriter

__all__ = ["ShardWriter", "ShardedReplay"]
