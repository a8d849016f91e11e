"""Views: other forms of samples of rows that are stored once."""

from ..store.spec.frame_stack import FrameStack
from ..store.spec.hindsight import HindsightRelabel
from ..store.spec.n_step import NStep

__all__ = ["FrameStack", "HindsightRelabel", "NStep"]
