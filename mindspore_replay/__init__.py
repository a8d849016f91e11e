"""Device-side experience replay for MindSpore, in its compiled graph."""

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .buffers.base import Buffer
    from .buffers.elastic import ElasticReplayBuffer
    from .buffers.episode import EpisodeReplayBuffer
    from .buffers.epochs import EpochReplayBuffer
    from .buffers.making import create_buffer, get_buffer_cls, load
    from .buffers.mixed import MixedReplay
    from .buffers.prioritized import PrioritizedReplayBuffer
    from .buffers.prioritized import PrioritizedReplayBuffer as PriorityReplayBuffer
    from .buffers.queue import ReplayQueue
    from .buffers.replay import ReplayBuffer
    from .buffers.replay import ReplayBuffer as UniformReplayBuffer
    from .buffers.reservoir import ReservoirReplayBuffer
    from .buffers.sequence import SequenceReplayBuffer
    from .checkpoint.buffers import save
    from .config.configuration import load_config
    from .ops.status import KernelStatus, kernel_status
    from .store.base.column import Column, Priorities
    from .store.faces.attached import attach
    from .store.faces.weights import SharedWeights
    from .store.waits.limiter import RateLimiter
    from .training.checkpoint import TrainingCheckpoint
    from .training.collector import Collector
    from .training.monitor import ReplayMonitor
    from .training.prefetch import Prefetch
    from .training.priorities import sequence_priorities
    from .training.sinks import JSONLinesSink, TensorBoardSink, TerminalSink
    from .training.spaces import columns_of
    from .training.vector import VectorRows
    from .views import FrameStack, HindsightRelabel, NStep

#: The module of each public name, and its name there if different.
_PLACES = {
    "Buffer": "buffers.base",
    "Collector": "training.collector",
    "Column": "store.base.column",
    "ElasticReplayBuffer": "buffers.elastic",
    "EpisodeReplayBuffer": "buffers.episode",
    "EpochReplayBuffer": "buffers.epochs",
    "FrameStack": "views",
    "HindsightRelabel": "views",
    "JSONLinesSink": "training.sinks",
    "KernelStatus": "ops.status",
    "MixedReplay": "buffers.mixed",
    "NStep": "views",
    "Prefetch": "training.prefetch",
    "Priorities": "store.base.column",
    "PrioritizedReplayBuffer": "buffers.prioritized",
    "PriorityReplayBuffer": "buffers.prioritized:PrioritizedReplayBuffer",
    "RateLimiter": "store.waits.limiter",
    "ReplayBuffer": "buffers.replay",
    "ReplayMonitor": "training.monitor",
    "ReplayQueue": "buffers.queue",
    "ReservoirReplayBuffer": "buffers.reservoir",
    "SequenceReplayBuffer": "buffers.sequence",
    "SharedWeights": "store.faces.weights",
    "TensorBoardSink": "training.sinks",
    "TerminalSink": "training.sinks",
    "TrainingCheckpoint": "training.checkpoint",
    "UniformReplayBuffer": "buffers.replay:ReplayBuffer",
    "VectorRows": "training.vector",
    "attach": "store.faces.attached",
    "columns_of": "training.spaces",
    "create_buffer": "buffers.making",
    "get_buffer_cls": "buffers.making",
    "kernel_status": "ops.status",
    "load": "buffers.making",
    "load_config": "config.configuration",
    "save": "checkpoint.buffers",
    "sequence_priorities": "training.priorities",
}

__all__ = [
    "Buffer",
    "Collector",
    "Column",
    "ElasticReplayBuffer",
    "EpisodeReplayBuffer",
    "EpochReplayBuffer",
    "FrameStack",
    "HindsightRelabel",
    "JSONLinesSink",
    "KernelStatus",
    "MixedReplay",
    "NStep",
    "Prefetch",
    "Priorities",
    "PrioritizedReplayBuffer",
    "PriorityReplayBuffer",
    "RateLimiter",
    "ReplayBuffer",
    "ReplayMonitor",
    "ReplayQueue",
    "ReservoirReplayBuffer",
    "SequenceReplayBuffer",
    "SharedWeights",
    "TensorBoardSink",
    "TerminalSink",
    "TrainingCheckpoint",
    "UniformReplayBuffer",
    "VectorRows",
    "__version__",
    "attach",
    "columns_of",
    "create_buffer",
    "get_buffer_cls",
    "kernel_status",
    "load",
    "load_config",
    "save",
    "sequence_priorities",
]


def __getattr__(name: str) -> Any:
    """Import what needs MindSpore on first use, since `mindspore_replay.store` works without it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, own = _PLACES[name].partition(":")
    try:
        value = getattr(importlib.import_module(f".{module}", __name__), own or name)
    except Exception as error:
        from .store.base.optional import needs_mindspore

        raise needs_mindspore(f"{__name__}.{name}", error) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
