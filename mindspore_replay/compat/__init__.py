"""Runs MindSpore RL on today's MindSpore: its operators, its replay buffers, and the patches that it needs.

Importing this package changes nothing. Call `install`.
"""

from ..store.base.optional import needs_mindspore

try:
    from .patches import Patch, install, uninstall
except Exception as error:
    raise needs_mindspore(__name__, error) from None

__all__ = ["Patch", "install", "uninstall"]
