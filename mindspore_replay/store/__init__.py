"""Replay buffers in host memory, with NumPy alone: rows, the state of each row, and the operators on them."""

from .library import KernelError
from .options import Options
from .schema import Schema
from .store import Store
from .windows import Output, SamplePlan, WindowRule

__all__ = ["KernelError", "Options", "Output", "SamplePlan", "Schema", "Store", "WindowRule"]
