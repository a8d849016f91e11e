"""Runs this project for long under conditions that are made hard for it, and looks for faults.

    python benchmarks/soak.py threads [--minutes 10 | --seconds N] [--actors 8] [--buffer prioritized ...]
                                      [--backend native|composite] [--learner compiled|eager]
    python benchmarks/soak.py processes [--minutes 10 | --seconds N] [--deaths N] [--writers 8] [--pause SECONDS]
                                        [--buffer uniform ...]
    python benchmarks/soak.py power [--cuts 10000] [--seed 0]  # what a disk may hold, built from what was written
    python benchmarks/soak.py power --real 50        # a file system that is shut down under load; needs root
    python benchmarks/soak.py power --trainings 5    # trainings that are killed and cut 200 times each
    python benchmarks/soak.py readers [--reader checkpoint] [--seconds 3600]  # guided by lines reached; needs atheris
    python benchmarks/soak.py readers --plain 2000 [--seed 0]     # so many random changes, without atheris
    python benchmarks/soak.py readers --sanitized --plain 20000   # the kernels under sanitizers; needs g++

``python benchmarks/soak.py threads --help`` and so on say what is done. Exit code: 0 without a fault; `threads` ends
with 3 if a thread hangs.
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
