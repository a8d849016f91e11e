"""Optional dependencies: imports them, with the command that installs a missing one in errors."""

import importlib
from typing import Any


def install_command(extra: str) -> str:
    """Return the pip command that installs the packages of an extra, for errors.

    Args:
        extra (str): A key of the project's optional dependencies.
    """
    return f'pip install ".[{extra}]" in a checkout of mindspore_replay'


def optional(module: str, what: str, extra: str, package: str = "") -> Any:
    """Import a module of an optional package for `what`. Raise an ImportError with the command for its `extra`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"'{what}' needs {package or module}: {install_command(extra)}") from error


def needs_mindspore(what: str, error: ModuleNotFoundError) -> ImportError:
    """Return the error of something that needs MindSpore, where that is not installed, else the error itself."""
    if error.name != "mindspore":
        return error
    return ImportError(
        f"'{what}' needs MindSpore: {install_command('mindspore')}; mindspore_replay.host contains buffers that need "
        "no MindSpore"
    )
