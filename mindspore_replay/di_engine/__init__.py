"""DI-engine's buffers under their own names and with their own methods, on the buffers of this library."""

from .deque_buffer import Buffer, DequeBuffer
from .middleware import (
    PriorityExperienceReplay,
    clone_object,
    group_sample,
    padding,
    sample_range_view,
    staleness_check,
    use_time_check,
)
from .rows import BufferedData

__all__ = [
    "Buffer",
    "BufferedData",
    "DequeBuffer",
    "PriorityExperienceReplay",
    "clone_object",
    "group_sample",
    "padding",
    "sample_range_view",
    "staleness_check",
    "use_time_check",
]
