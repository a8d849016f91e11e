"""Device-side experience replay for MindSpore, in its compiled graph."""

from ._version import __version__
from .buffers.elastic import ElasticReplayBuffer
from .buffers.episode import EpisodeReplayBuffer
from .buffers.mixed import MixedReplay
from .buffers.prioritized import PrioritizedReplayBuffer
from .buffers.replay import ReplayBuffer
from .buffers.reservoir import ReservoirReplayBuffer
from .buffers.sequence import SequenceReplayBuffer
from .checkpoint import TrainingCheckpoint, load, save
from .config import create_buffer, get_buffer_cls, load_config
from .limiter import RateLimiter
from .monitor import ReplayMonitor
from .ops import statement_hook
from .ops.status import KernelStatus, kernel_status
from .prefetch import Prefetch
from .priorities import sequence_priorities
from .vector import VectorRows
from .views.frame_stack import FrameStack
from .views.hindsight import HindsightRelabel
from .views.n_step import NStep
from .writers import JSONLinesWriter, TensorBoardWriter, TerminalWriter

UniformReplayBuffer = ReplayBuffer
PriorityReplayBuffer = PrioritizedReplayBuffer

__all__ = [
    "ElasticReplayBuffer",
    "EpisodeReplayBuffer",
    "FrameStack",
    "HindsightRelabel",
    "JSONLinesWriter",
    "KernelStatus",
    "MixedReplay",
    "NStep",
    "Prefetch",
    "PrioritizedReplayBuffer",
    "PriorityReplayBuffer",
    "RateLimiter",
    "ReplayBuffer",
    "ReplayMonitor",
    "ReservoirReplayBuffer",
    "SequenceReplayBuffer",
    "TensorBoardWriter",
    "TerminalWriter",
    "TrainingCheckpoint",
    "UniformReplayBuffer",
    "VectorRows",
    "__version__",
    "create_buffer",
    "get_buffer_cls",
    "kernel_status",
    "load",
    "load_config",
    "save",
    "sequence_priorities",
]

statement_hook.install()
