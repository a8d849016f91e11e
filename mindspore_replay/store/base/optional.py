"""Optional dependencies: imports them, with the command that installs a missing one in errors."""

import importlib
from typing import Any

import numpy as np


def install_command(extra: str) -> str:
    """Return the pip command that installs the packages of an extra, for errors.

    Args:
        extra (str): A key of the project's optional dependencies.
    """
    return f'pip install -e ".[{extra}]" in a checkout of mindspore_replay'


def optional(module: str, feature: str, extra: str, package: str = "") -> Any:
    """Import a module of an optional package for `feature`. Raise an ImportError with the command for its `extra`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"'{feature}' needs {package or module}: {install_command(extra)}") from error


def wrong_numpy() -> str:
    """Return why MindSpore does not work with this NumPy, and what to install, or an empty string if it does."""
    if int(np.__version__.split(".")[0]) < 2:
        return ""
    return f"NumPy {np.__version__}: MindSpore is compiled against NumPy 1: pip install 'numpy<2' 'scipy<1.14'"


def needs_mindspore(feature: str, error: Exception) -> Exception:
    """Return the error of something that needs MindSpore, where that is missing or fails, else the error itself."""
    if str(getattr(error, "name", None)).partition(".")[0] != "mindspore":
        reason = wrong_numpy()
        return ImportError(f"'{feature}' needs MindSpore, which cannot be used. {reason}") if reason else error
    return ImportError(
        f"'{feature}' needs MindSpore: {install_command('mindspore')}; mindspore_replay.host contains buffers that "
        "need no MindSpore"
    )
