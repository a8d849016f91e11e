"""The command line: ``mindspore-replay inspect`` and ``doctor``."""

import argparse
import sys
import zipfile
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv (Union[Sequence[str], None]): Arguments. Default: ``None``, for those of the process.

    Returns:
        int: 0 on success, 1 on failure, with the reason on the standard error output. Invalid arguments end the
        process with 2.
    """
    try:
        from . import doctor, inspect
    except ImportError as error:  # for example if a new MindSpore has moved what the package needs
        print(f"mindspore-replay: {error}", file=sys.stderr)
        return 1
    modules = {"inspect": inspect, "doctor": doctor}
    parser = argparse.ArgumentParser(prog="mindspore-replay", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in modules.items():
        summary, _, examples = (module.__doc__ or "").partition("\n\n")
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
    options = parser.parse_args(argv)
    try:
        return modules[options.command].run(options)
    except (ImportError, IndexError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile) as error:
        print(f"mindspore-replay {options.command}: {error}", file=sys.stderr)
        return 1
