"""Operators of the buffers for compiled graphs: kernels, or compositions of MindSpore's own operators."""

from . import statement_hook

statement_hook.install()
