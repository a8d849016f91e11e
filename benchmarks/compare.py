"""Measures this project and its peers on the same work in the same run.

    python benchmarks/compare.py                                   # everything: about an hour, and some GB of disk
    python benchmarks/compare.py --only insert_1 sample_64 --peers cpprb torchrl
    python benchmarks/compare.py --list
    python benchmarks/compare.py --page docs/benchmarks.md         # also writes the results into that page

Each peer runs in a process and a virtual environment of its own, made on demand from the pinned requirements in
``benchmarks/comparison/requirements``; this project and the plain NumPy ring run in the environment of this command. A
round times each peer once, one after the other. Medians, quartiles and ratios go to ``comparison.md``, a figure to
``comparison.png`` and all rounds to ``comparison.json``.
"""

import argparse
import tempfile
from pathlib import Path

from comparison.cases import CASES
from comparison.environments import PEERS
from comparison.report import Report, table
from comparison.rounds import Runner
from tqdm import tqdm


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=names, default=names, help="cases (default: all)")
    parser.add_argument("--peers", nargs="+", metavar="PEER", choices=list(PEERS), default=list(PEERS), help="who")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of each case (default: 15)")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path.home() / ".cache" / "mindspore_replay_benchmarks",
        help="where virtual environments are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/comparison"), help="folder of the results (default: %(default)s)"
    )
    parser.add_argument("--page", type=Path, help="page that ends with the results of the last run, which are replaced")
    parser.add_argument("--list", action="store_true", help="show cases and peers, and end")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.list:
        print("\n".join(f"{case.name:30s} {case.title}" for case in CASES))
        print("\npeers:", ", ".join(PEERS))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    peers = {name: PEERS[name] for name in PEERS if name in options.peers}
    with (
        tempfile.TemporaryDirectory(dir=options.out) as files,
        Runner(peers, options.environments, Path(files)) as runner,
    ):
        report = Report(options.out, options.rounds, runner.versions)
        progress = tqdm([case for case in CASES if case.name in options.only])
        for case in progress:
            progress.set_description(case.name)
            results = runner.run(case, options.rounds)
            report.add(case, results)
            progress.write(table(case, results) + "\n")
    if options.page:
        report.put_into(options.page)


if __name__ == "__main__":
    main()
