"""Buffers in files."""

from .reader import load
from .writer import save

__all__ = ["load", "save"]
