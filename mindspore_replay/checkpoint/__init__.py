"""Buffers, and whole training runs, in files."""

from .reader import load
from .saving import save
from .training import TrainingCheckpoint

__all__ = ["TrainingCheckpoint", "load", "save"]
