"""Optional dependencies: the command that installs a missing one."""


def install_command(extra: str) -> str:
    """Return the pip command that installs the packages of an extra, for errors.

    Args:
        extra (str): A key of the project's optional dependencies.
    """
    return f'pip install ".[{extra}]" in a checkout of mindspore_replay'
