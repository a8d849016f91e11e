"""The operators under the buffers, for compiled graphs: kernels, and MindSpore's own operators."""

from . import statement_hook

statement_hook.install()
