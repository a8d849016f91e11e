"""DI-engine's buffers under their own names and with their own methods, on the buffers of this library."""

from .configured import (
    AdvancedReplayBuffer,
    DequeBufferWrapper,
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    IBuffer,
    NaiveReplayBuffer,
    SequenceReplayBuffer,
    create_buffer,
    get_buffer_cls,
)
from .deque_buffer import Buffer, DequeBuffer
from .layout import BufferedData
from .middleware import (
    PriorityExperienceReplay,
    clone_object,
    group_sample,
    padding,
    sample_range_view,
    staleness_check,
    use_time_check,
)

__all__ = [
    "AdvancedReplayBuffer",
    "Buffer",
    "BufferedData",
    "DequeBuffer",
    "DequeBufferWrapper",
    "ElasticReplayBuffer",
    "EpisodeReplayBuffer",
    "IBuffer",
    "NaiveReplayBuffer",
    "PriorityExperienceReplay",
    "SequenceReplayBuffer",
    "clone_object",
    "create_buffer",
    "get_buffer_cls",
    "group_sample",
    "padding",
    "sample_range_view",
    "staleness_check",
    "use_time_check",
]
