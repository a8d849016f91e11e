"""Optional dependencies: how to get one that is missing."""


def install_command(extra: str) -> str:
    """Return the command that brings the packages of an extra, for errors.

    Args:
        extra (str): A key of the project's optional dependencies.
    """
    return f'pip install ".[{extra}]" in a checkout of mindspore_replay'
