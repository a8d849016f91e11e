"""Optional dependencies: the command that installs a missing one."""


def install_command(extra: str) -> str:
    """Return the pip command that installs the packages of an extra, for errors.

    Args:
        extra (str): A key of the project's optional dependencies.
    """
    return f'pip install ".[{extra}]" in a checkout of mindspore_replay'


def needs_mindspore(what: str, error: ModuleNotFoundError) -> ImportError:
    """Return the error of something that needs MindSpore, where that is not installed; else the error itself."""
    if error.name != "mindspore":
        return error
    return ImportError(
        f"'{what}' needs MindSpore: {install_command('mindspore')}; mindspore_replay.host has the buffers that do "
        "without"
    )
