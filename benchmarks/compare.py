"""Measures this project and others on the same work in the same run.

    python benchmarks/compare.py                                   # everything: about an hour, and some GB of disk
    python benchmarks/compare.py --only insert_1 sample_64 --peers cpprb torchrl
    python benchmarks/compare.py queues                            # rows from writers to a learner: half an hour
    python benchmarks/compare.py queues --list
    python benchmarks/compare.py --page docs/benchmarks.md         # also writes the results into that page

Each peer runs in a process and a virtual environment of its own, made on demand from the pinned requirements in
``benchmarks/comparison/requirements``; this project and the plain NumPy ring run in the environment of this command. A
round measures each peer once, one after the other. Medians go to standard output. Without a name, medians, quartiles
and ratios go to ``comparison.md``, a figure to ``comparison.png`` and all rounds to ``comparison.json``; those of
``queues`` go to ``queues.md`` and ``queues.json``.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comparison import queues
from comparison.cases import CASES, Case
from comparison.environments import PEERS, QUEUES, Installation
from comparison.report import Report, Tables, table
from comparison.rounds import Question, Runner
from tqdm import tqdm


@dataclass(frozen=True)
class Comparison:
    """What is measured, and of whom.

    Args:
        peers (Mapping): The environments by name.
        items (Sequence): Cases that are timed, or questions whose answers are figures.
        rounds (int): Rounds, if the command does not say.
        seconds (float): Seconds of a measurement whose answer is figures, if the command does not say.
    """

    peers: Mapping[str, Installation]
    items: Sequence[Case | Question]
    rounds: int
    seconds: float = 0.0


COMPARISONS = {"cases": Comparison(PEERS, CASES, 15), "queues": Comparison(QUEUES, queues.QUESTIONS, 5, 2.0)}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", nargs="?", choices=list(COMPARISONS), default="cases", help="(default: cases)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases or questions (default: all)")
    parser.add_argument("--peers", nargs="+", metavar="PEER", help="who (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of each case")
    parser.add_argument("--seconds", type=float, help="seconds of a measurement")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path.home() / ".cache" / "mindspore_replay_benchmarks",
        help="where virtual environments are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/comparison"), help="folder of the results (default: %(default)s)"
    )
    parser.add_argument("--page", type=Path, help="page that has the results of the last run, which are replaced")
    parser.add_argument("--list", action="store_true", help="show names and peers, and end")
    options = parser.parse_args()
    comparison = COMPARISONS[options.comparison]
    for chosen, known in (("only", [item.name for item in comparison.items]), ("peers", list(comparison.peers))):
        if unknown := set(getattr(options, chosen) or ()) - set(known):
            parser.error(f"--{chosen}: {', '.join(sorted(unknown))}: not among {', '.join(known)}")
        setattr(options, chosen, getattr(options, chosen) or known)
    options.rounds = options.rounds or comparison.rounds
    options.seconds = options.seconds or comparison.seconds
    return options


def main() -> None:
    options = arguments()
    comparison = COMPARISONS[options.comparison]
    items = [item for item in comparison.items if item.name in options.only]
    if options.list:
        print("\n".join(f"{item.name:30s} {item.title}" for item in items))
        print("\npeers:", ", ".join(comparison.peers))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    peers = {name: place for name, place in comparison.peers.items() if name in options.peers}
    with (
        tempfile.TemporaryDirectory(dir=options.out) as files,
        Runner(peers, options.environments, Path(files)) as runner,
    ):
        if options.comparison == "cases":
            report = Report(options.out, options.rounds, runner.versions)
            progress = tqdm(items)
            for case in progress:
                progress.set_description(case.name)
                results = runner.run(case, options.rounds)
                report.add(case, results)
                progress.write(table(case, results) + "\n")
        else:
            report = Tables(options.out, options.rounds, runner.versions, options.comparison)
            titles = list(dict.fromkeys(item.title for item in items))
            for title in tqdm(titles):
                asked = [item for item in items if item.title == title]
                report.add(title, runner.measure(asked, options.rounds, options.seconds))
    if options.page:
        report.put_into(options.page)


if __name__ == "__main__":
    main()
