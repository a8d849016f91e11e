"""Replay buffers in host memory, with only NumPy: rows, the state of each row, and the operators on them.

Its rooms, each of which imports those before it alone: base, spec, kernels, folder, rows, waits, faces.
"""

from .base.schema import Schema
from .kernels.library import KernelError
from .rows.store import Store
from .spec.episodes import WindowRule
from .spec.options import Options
from .spec.plan import Output, SamplePlan

__all__ = ["KernelError", "Options", "Output", "SamplePlan", "Schema", "Store", "WindowRule"]
