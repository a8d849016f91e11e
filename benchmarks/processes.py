"""Measures buffers that other processes fill, and buffers larger than memory, and those of other libraries beside them.

    python benchmarks/processes.py insert    # 1, 2 and 4 processes insert single rows into one buffer: 10 minutes
    python benchmarks/processes.py collect   # 1, 2 and 4 processes step environments for one buffer: 5 minutes
    python benchmarks/processes.py larger    # a buffer three times as large as the memory allowed: 15 minutes

Each library runs in a virtual environment of its own, as in ``benchmarks/compare.py``; Ray in that of this command. A
round measures each once, one after the other. Tables of medians go to standard output, all rounds to ``--json``.

``insert``: CartPole transitions, 100,000 of them, in shared memory. An insertion counts when it has returned, and then
the row is in the buffer.

``collect``: each process steps four environments of CartPole by a network of two layers of 64, and its rows count when
they are in the learner's process, or in shared memory. No network learns.

``larger``: rows of four Atari frames, inserted once by 64, then drawn at random by 32, by a process in a memory cgroup
(version 1; it must be writable). The limit comes on top of the memory that a process has when its libraries are
loaded. Files are in ``--folder``, which should be on a disk. A buffer in memory, whose process must be killed, shows
that the limit holds.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparison.cases import row_bytes
from comparison.environments import HERE, Installation
from comparison.processes.larger import ATARI, BATCH
from comparison.processes.team import CAPACITY
from comparison.rounds import PeerError, PeerProcess


def _program(module: str, arguments: tuple[str, ...] = (), requirements: str = "") -> Installation:
    return Installation(f"processes.{module}", arguments, requirements)


OURS = "mindspore_replay"
INSERT: dict[str, Installation] = {
    OURS: _program("insert_ours"),
    "dm-reverb, writer": _program("insert_reverb", ("writer",), "reverb"),
    "dm-reverb, Client.insert": _program("insert_reverb", ("insert",), "reverb"),
    "Ray actor": _program("insert_ray"),
    "torchrl": _program("insert_torchrl", (), "torchrl"),
}
COLLECT: dict[str, Installation] = {
    OURS: _program("collect_ours"),
    "RLlib": _program("collect_rllib", (), "rllib"),
    "torchrl": _program("collect_torchrl", (), "torchrl"),
}
IN_MEMORY = f"{OURS}, in memory"
LARGER: dict[str, Installation] = {
    f"{OURS}, folder": _program("larger_ours"),
    "torchrl": _program("larger_torchrl", (), "torchrl"),
    "rlox": _program("larger_rlox", (), "rlox"),
    f"{IN_MEMORY}, no limit": _program("larger_ours", ("memory",)),
    f"{IN_MEMORY}, limit": _program("larger_ours", ("memory",)),
}
WRITERS = 1, 2, 4
GROUPS = Path("/sys/fs/cgroup/memory")

#: The figures of a peer in each round, by figure, or the reason why there are none.
Figures = dict[str, list[float]] | str


def insert(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Figures], Any]:
    """Measure insertion from other processes."""
    return _worked(INSERT, "writing", options, folder)


def collect(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Figures], Any]:
    """Measure environment steps of other processes."""
    return _worked(COLLECT, "collecting", options, folder)


def _worked(
    peers: Mapping[str, Installation], word: str, options: argparse.Namespace, folder: Path
) -> tuple[dict[str, Figures], Any]:
    results: dict[str, Figures] = {}
    processes: dict[str, PeerProcess] = {}
    versions = {}
    try:
        for name in options.peers:
            try:
                processes[name] = PeerProcess(name, peers[name], options.environments, folder)
                versions[name] = processes[name].ask(ask="versions")["versions"]
                for writers in options.writers:  # starts them
                    processes[name].ask(ask="work", writers=writers, seconds=0.2)
                results[name] = {}
            except (PeerError, RuntimeError) as error:
                results[name] = str(error)
        for _ in range(options.rounds):
            for writers in options.writers:
                for name, figures in results.items():
                    if isinstance(figures, str):
                        continue
                    try:
                        answer = processes[name].ask(ask="work", writers=writers, seconds=options.seconds)
                    except PeerError as error:
                        results[name] = str(error)
                        continue
                    rows, seconds = answer["rows"], answer["seconds"]
                    if answer["stored"] < min(CAPACITY, sum(rows)):
                        results[name] = f"only {answer['stored']} of {sum(rows)} rows were stored"
                        continue
                    one = statistics.mean(taken / n for n, taken in zip(rows, seconds))
                    together = sum(n / taken for n, taken in zip(rows, seconds))
                    figures.setdefault(f"us a row, {writers} {word}", []).append(one * 1e6)
                    figures.setdefault(f"rows/s, {writers} {word}", []).append(together)
    finally:
        for process in processes.values():
            try:
                process.ask(ask="end")
            except PeerError as error:
                print(error, file=sys.stderr)
            process.close()
    return results, versions


class MemoryGroup:
    """A group of processes whose memory can be limited, with that of the files that they use."""

    def __init__(self) -> None:
        self.path = GROUPS / f"mindspore_replay_{os.getpid()}"

    def __enter__(self) -> "MemoryGroup":
        try:
            self.path.mkdir()
        except OSError as error:
            raise SystemExit(f"'larger' needs a writable memory cgroup of version 1 in {GROUPS}: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        (self.path / "memory.force_empty").write_text("0")
        self.path.rmdir()

    def enter(self) -> None:
        """Move this process into the group."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, size: int) -> None:
        """Limit the group to so many bytes, and count anew what it uses at most."""
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if (self.path / name).exists():
                (self.path / name).write_text(str(size))
        (self.path / "memory.max_usage_in_bytes").write_text("0")

    @property
    def most(self) -> int:
        """The largest number of bytes used since the limit was set."""
        return int((self.path / "memory.max_usage_in_bytes").read_text())

    @property
    def kills(self) -> int:
        """The number of processes killed for their memory."""
        facts = dict(line.split() for line in (self.path / "memory.oom_control").read_text().splitlines())
        return int(facts["oom_kill"])


def larger_once(name: str, place: Installation, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Measure a peer once.

    Raises:
        PeerError: If its process ends early.
    """
    rows = math.ceil(3 * options.limit / row_bytes(ATARI) / BATCH) * BATCH
    python = place.python(options.environments)
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "GLOG_v": "3"}
    limited = "no limit" not in name
    with tempfile.TemporaryDirectory(dir=folder) as files, MemoryGroup() as group:
        process = subprocess.Popen(
            [str(python), "-m", f"comparison.{place.module}", str(rows), str(options.seconds), files, *place.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=files,
            env=environment,
            preexec_fn=group.enter if limited else None,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        figures: dict[str, float] = {}
        for line in process.stdout:
            if not line.startswith("{"):  # from a library
                continue
            figures.update(json.loads(line))
            if len(figures) == 1:
                if limited:
                    group.limit(int(figures["heap"]) + options.limit)
                process.stdin.write("\n")
                process.stdin.flush()
        process.stdin.close()
        process.stdout.close()
        if process.wait():
            killed = f", killed for its memory at {group.most >> 20} MiB" if group.kills else ""
            raise PeerError(f"its process ended with {process.returncode}{killed}")
        if limited:
            figures["most"] = group.most
    for name in ("heap", "most"):
        if name in figures:
            figures[name] /= 1 << 20
    return figures


def larger(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Figures], Any]:
    """Measure buffers larger than memory."""
    results: dict[str, Figures] = {name: {} for name in options.peers}
    for _ in range(options.rounds):
        for name, figures in results.items():
            if isinstance(figures, str):
                continue
            try:
                found = larger_once(name, LARGER[name], options, folder)
            except (PeerError, RuntimeError) as error:
                results[name] = str(error)
                continue
            print(name, found, file=sys.stderr, flush=True)
            for key, value in found.items():
                figures.setdefault(UNITS.get(key, key), []).append(value)
    return results, {"limit": options.limit}


UNITS = {"insert": "rows/s inserted", "sample": "rows/s sampled", "heap": "MiB of libraries", "most": "most MiB"}


def table(results: Mapping[str, Figures]) -> str:
    """Return a table in Markdown: the median of each figure."""
    heads = list(dict.fromkeys(key for figures in results.values() if not isinstance(figures, str) for key in figures))
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    missing = []
    for name, figures in results.items():
        if isinstance(figures, str):
            missing.append(f"{name}: {figures}")
            continue
        middles = [statistics.median(figures[head]) if head in figures else None for head in heads]
        lines.append(f"| {name} | " + " | ".join(map(_shown, middles)) + " |")
    return "\n".join([*lines, *([""] if missing else []), *missing])


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, peers, seconds, rounds in (
        ("insert", insert, list(INSERT), 2.0, 5),
        ("collect", collect, list(COLLECT), 4.0, 5),
        ("larger", larger, list(LARGER), 8.0, 5),
    ):
        command = commands.add_parser(name, help=(run.__doc__ or "").strip())
        command.set_defaults(run=run)
        command.add_argument("--peers", nargs="+", metavar="PEER", choices=peers, default=peers, help=f"of {peers}")
        command.add_argument("--rounds", type=int, default=rounds, help="(default: %(default)s)")
        command.add_argument("--seconds", type=float, default=seconds, help="of a measurement (default: %(default)s)")
        command.add_argument(
            "--environments",
            type=Path,
            default=Path.home() / ".cache" / "mindspore_replay_benchmarks",
            help="where virtual environments are kept (default: %(default)s)",
        )
        command.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="(default: %(default)s)")
        command.add_argument("--json", type=Path, help="also write the figures of every round to this file")
        if name != "larger":
            command.add_argument("--writers", nargs="+", type=int, default=list(WRITERS))
        else:
            command.add_argument("--limit", type=lambda text: int(text) << 20, default=512 << 20, metavar="MIB")
    return parser.parse_args(given)


def main() -> None:
    options = arguments()
    run: Callable[..., tuple[dict[str, Figures], Any]] = options.run
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        results, facts = run(options, Path(folder))
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps({"results": results, "facts": facts}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
