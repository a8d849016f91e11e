"""Runs this project for long under conditions that are made hard for it, and looks for faults.

    python benchmarks/soak.py threads      # actors insert while a learner samples the same buffer; some die
    python benchmarks/soak.py processes    # processes on a buffer in a folder are killed
    python benchmarks/soak.py power        # the power of buffers in folders is cut
    python benchmarks/soak.py readers      # files of a fuzzer are read, in place of those of strangers

``python benchmarks/soak.py threads --help`` and so on show more. Exit code: 0 without a fault; `threads` ends with 3 if
a thread hangs.
"""

import argparse
import importlib
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["threads", "processes", "power", "readers"])
    command = parser.parse_args(sys.argv[1:2]).command
    module = importlib.import_module(f"soaks.{command}")
    own = argparse.ArgumentParser(
        prog=f"{sys.argv[0]} {command}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(own)
    return int(module.run(own.parse_args(sys.argv[2:])))


if __name__ == "__main__":
    sys.exit(main())
