"""Device-side experience replay for MindSpore, in its compiled graph."""

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .buffers.base import Buffer as Buffer
    from .buffers.elastic import ElasticReplayBuffer as ElasticReplayBuffer
    from .buffers.episode import EpisodeReplayBuffer as EpisodeReplayBuffer
    from .buffers.epochs import EpochReplayBuffer as EpochReplayBuffer
    from .buffers.making import create_buffer as create_buffer
    from .buffers.making import load as load
    from .buffers.mixed import MixedReplay as MixedReplay
    from .buffers.prioritized import PrioritizedReplayBuffer as PrioritizedReplayBuffer
    from .buffers.prioritized import PriorityReplayBuffer as PriorityReplayBuffer
    from .buffers.queue import ReplayQueue as ReplayQueue
    from .buffers.replay import ReplayBuffer as ReplayBuffer
    from .buffers.replay import UniformReplayBuffer as UniformReplayBuffer
    from .buffers.reservoir import ReservoirReplayBuffer as ReservoirReplayBuffer
    from .buffers.sequence import SequenceReplayBuffer as SequenceReplayBuffer
    from .checkpoint.buffers import save as save
    from .config.configuration import load_config as load_config
    from .ops.status import kernel_status as kernel_status
    from .store.base.column import Column as Column
    from .store.base.column import Priorities as Priorities
    from .store.faces.attached import attach as attach
    from .store.faces.weights import SharedWeights as SharedWeights
    from .store.waits.limiter import RateLimiter as RateLimiter
    from .training.checkpoint import TrainingCheckpoint as TrainingCheckpoint
    from .training.collector import Collector as Collector
    from .training.monitor import ReplayMonitor as ReplayMonitor
    from .training.prefetch import Prefetch as Prefetch
    from .training.priorities import sequence_priorities as sequence_priorities
    from .training.spaces import columns_of as columns_of
    from .training.vector import VectorRows as VectorRows
    from .views import FrameStack as FrameStack
    from .views import HindsightRelabel as HindsightRelabel
    from .views import NStep as NStep


def _places() -> dict[str, str]:
    """Return the module of each public name, as type checkers find it above."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: f".{node.module}" for node in imports for name in node.names}


_PLACES = _places()
__all__ = sorted(["__version__", *_PLACES])


def __getattr__(name: str) -> Any:
    """Import what needs MindSpore on first use, since `mindspore_replay.store` works without it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_PLACES[name], __name__), name)
    except Exception as error:
        from .store.base.optional import needs_mindspore

        raise needs_mindspore(f"{__name__}.{name}", error) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
