"""Measures this project and others on the same work in the same run.

    python benchmarks/compare.py                                   # everything: about an hour, and some GB of disk
    python benchmarks/compare.py --only insert_1 sample_64 --peers cpprb torchrl
    python benchmarks/compare.py --page docs/benchmarks.md         # also writes the results into that page
    python benchmarks/compare.py queues        # rows from writers to a learner, and the learner's latency
    python benchmarks/compare.py insert        # 1, 2 and 4 processes insert single rows into one buffer
    python benchmarks/compare.py larger        # a buffer three times as large as the memory allowed
    python benchmarks/compare.py lengths       # rows that differ in length; an environment of 5 GB
    python benchmarks/compare.py durability    # rows that survive a loss of power; --out must be on a disk
    python benchmarks/compare.py compressed    # frames; needs "ale-py>=0.10" "opencv-python-headless<4.12" lz4
    python benchmarks/compare.py queues --list

Each peer runs in a process and a virtual environment of its own, made on demand from the pinned requirements in
``benchmarks/comparison/requirements.ini``; this project and the plain NumPy ring run in the environment of this
command. A round measures each peer once, one after the other. Results go to standard output and to ``runs/comparison``:
those of the cases to ``comparison.md``, all rounds to ``comparison.json``, a figure to ``comparison.png``; those of
others to files of their names. The modules in ``benchmarks/comparison`` say what each measures, and how each library is
used.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comparison import compressed, durable, environments, larger, lengths, queues
from comparison.cases import CASES, Case
from comparison.environments import Installation
from comparison.report import Report, Tables, table
from comparison.rounds import Figures, Question, Runner
from tqdm import tqdm


@dataclass(frozen=True)
class Comparison:
    """What is measured, and of whom."""

    peers: Mapping[str, Installation]
    items: Sequence[Case | Question]
    rounds: int  # unless the command says
    seconds: float = 0.0  # of a measurement whose answer is figures
    #: Makes files in the working directory of the peers.
    prepare: Callable[[Path], None] = lambda folder: None


COMPARISONS = {
    "cases": Comparison(environments.PEERS, CASES, 15),
    "queues": Comparison(environments.QUEUES, queues.QUESTIONS, 5, 2.0),
    "insert": Comparison(environments.INSERT, queues.INSERT, 5, 2.0),
    "larger": Comparison(environments.LARGER, larger.QUESTIONS, 5, 8.0),
    "lengths": Comparison(environments.LENGTHS, lengths.QUESTIONS, 7, 1.0),
    "durability": Comparison(environments.DURABILITY, durable.QUESTIONS, 5, 0.5),
    "compressed": Comparison(environments.COMPRESSED, compressed.CASES, 15, prepare=compressed.play_all),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", nargs="?", choices=list(COMPARISONS), default="cases", help="(default: cases)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases or questions (default: all)")
    parser.add_argument("--peers", nargs="+", metavar="PEER", help="who (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of each case")
    parser.add_argument("--seconds", type=float, help="seconds of a measurement")
    parser.add_argument("--environments", type=Path, default=environments.ENVIRONMENTS, help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/comparison"), help="of results (default: %(default)s)")
    parser.add_argument("--page", type=Path, help="page that has the results of the last run, which are replaced")
    parser.add_argument("--list", action="store_true", help="show names and peers, and end")
    options = parser.parse_args()
    comparison = COMPARISONS[options.comparison]
    for chosen, known in (("only", [item.name for item in comparison.items]), ("peers", list(comparison.peers))):
        if unknown := set(getattr(options, chosen) or ()) - set(known):
            parser.error(f"--{chosen}: {', '.join(sorted(unknown))}: not among {', '.join(known)}")
    options.only = options.only or [item.name for item in comparison.items if getattr(item, "usual", True)]
    options.peers = options.peers or list(comparison.peers)
    options.rounds = options.rounds or comparison.rounds
    options.seconds = options.seconds or comparison.seconds
    return options


def tables(
    runner: Runner, items: Sequence[Case | Question], rounds: int, seconds: float
) -> Iterator[tuple[str, Figures]]:
    """Measure tables of figures; a case is a column."""
    for title in dict.fromkeys(item.title.partition(": ")[0] for item in items):
        asked = [item for item in items if item.title.partition(": ")[0] == title]
        if all(isinstance(item, Question) for item in asked):
            yield title, runner.measure(asked, rounds, seconds)
            continue
        found = Figures({}, {})
        for case in asked:
            for name, result in runner.run(case, rounds).items():
                unit, factor = ("", 1) if case.unit == "bytes" else ("us: ", 1e6)
                if result.values:
                    column = unit + case.title.partition(": ")[2]
                    found.values.setdefault(name, {})[column] = [value * factor for value in result.values]
                else:
                    found.missing[name] = result.missing
        yield title, found


def main() -> None:
    options = arguments()
    comparison = COMPARISONS[options.comparison]
    items = [item for item in comparison.items if item.name in options.only]
    if options.list:
        print("\n".join(f"{item.name:30s} {item.title}" for item in comparison.items))
        print("\npeers:", ", ".join(comparison.peers))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    peers = {name: place for name, place in comparison.peers.items() if name in options.peers}
    with tempfile.TemporaryDirectory(dir=options.out) as files:
        comparison.prepare(Path(files))
        with Runner(peers, options.environments, Path(files)) as runner:
            measure(runner, items, options)


def measure(runner: Runner, items: Sequence[Case | Question], options: argparse.Namespace) -> None:
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
        for title, found in tables(runner, items, options.rounds, options.seconds):
            report.add(title, found)
    if options.page:
        report.put_into(options.page)


if __name__ == "__main__":
    main()
