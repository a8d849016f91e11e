"""Runs MindSpore RL on today's MindSpore: its operators, its replay buffers, and the patches that it needs.

Importing this package changes nothing; call `install`.
"""

from .patches import Patch, install, uninstall

__all__ = ["Patch", "install", "uninstall"]
