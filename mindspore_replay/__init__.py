"""Device-side experience replay for MindSpore, in its compiled graph."""

from ._version import __version__
from .buffers.prioritized import PrioritizedReplayBuffer
from .buffers.replay import ReplayBuffer
from .config import create_buffer, get_buffer_cls, load_config
from .ops import statement_hook
from .ops.status import KernelStatus, kernel_status

UniformReplayBuffer = ReplayBuffer
PriorityReplayBuffer = PrioritizedReplayBuffer

__all__ = [
    "KernelStatus",
    "PrioritizedReplayBuffer",
    "PriorityReplayBuffer",
    "ReplayBuffer",
    "UniformReplayBuffer",
    "__version__",
    "create_buffer",
    "get_buffer_cls",
    "kernel_status",
    "load_config",
]

statement_hook.install()
