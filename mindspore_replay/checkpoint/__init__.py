"""Checkpoints: buffers and whole training runs saved to files and loaded from them."""

from .reader import load
from .saving import save
from .training import TrainingCheckpoint

__all__ = ["TrainingCheckpoint", "load", "save"]
