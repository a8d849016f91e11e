"""Buffers, and whole training runs, in files."""

from .reader import load
from .training import TrainingCheckpoint
from .writer import save

__all__ = ["TrainingCheckpoint", "load", "save"]
