"""Views: other forms of samples of rows that are stored once."""

from ..store.recipe.frame_stack import FrameStack
from ..store.recipe.hindsight import HindsightRelabel
from ..store.recipe.n_step import NStep

__all__ = ["FrameStack", "HindsightRelabel", "NStep"]
