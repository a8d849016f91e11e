"""MindSpore RL on today's MindSpore: its operators, its replay buffers, and what it needs to be imported.

Nothing here is active unless called.
"""

from .patches import Patch, install, uninstall

__all__ = ["Patch", "install", "uninstall"]
