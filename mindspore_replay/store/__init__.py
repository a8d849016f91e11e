"""Replay buffers in host memory, with only NumPy: rows, the state of each row, and the operators on them."""

from .episodes import WindowRule
from .library import KernelError
from .options import Options
from .plan import Output, SamplePlan
from .schema import Schema
from .store import Store

__all__ = ["KernelError", "Options", "Output", "SamplePlan", "Schema", "Store", "WindowRule"]
