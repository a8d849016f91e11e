"""Measures rows that differ in length, as sequences of tokens do, beside other libraries.

    python benchmarks/lengths.py                 # 10 minutes, and an environment of 5 GB with the other libraries
    python benchmarks/lengths.py --peers memory folder list --rounds 3

Each row has two columns, tokens and their log-probabilities, of a length from a log-normal: the median is 500, the
longest 4096. A library holds 20,000 rows; new ones take the place of the oldest. Each runs in a process and an
environment of its own, made on demand; see ``comparison/processes/lengths.py`` for how each is called. A round measures
each once, one after the other. A table of medians goes to standard output, all rounds to ``--json``:

- rows a second, put one by one, put by 256, and drawn by 8;
- bytes of memory of the library's processes for each byte of the rows;
- packed batches of 256 rows beside the time of a copy of so many bytes, for rows of 128, 512 and 2048 tokens.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison.environments import HERE, Installation
from processes import table

from mindspore_replay.host import Column, ReplayBuffer

KINDS = {"memory": "", "folder": "", "list": "", "torchrl": "transfer_queue", "transfer_queue": "transfer_queue"}
TITLES = {
    "memory": "mindspore_replay, in memory",
    "folder": "mindspore_replay, in a folder",
    "list": "a list in the process",
    "torchrl": "torchrl, `LazyStackStorage`",
    "transfer_queue": "TransferQueue, `SimpleStorage`",
}
ASKED = {"put_1": "rows/s put one by one", "put_256": "rows/s put by 256", "get_8": "rows/s drawn by 8"}


class Peer:
    """A library in a process of its own."""

    def __init__(self, kind: str, environments: Path, files: Path) -> None:
        place = Installation("processes.lengths", (kind,), KINDS[kind])
        self.process = subprocess.Popen(
            [str(place.python(environments)), "-m", "comparison.processes.lengths", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=files,
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_WAIT_POLICY": "PASSIVE"},
        )
        first = self.answer()
        self.versions = first["versions"]
        self.figures = {"bytes a byte": [first["memory"]]}

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, question: str) -> None:
        """Measure once more."""
        assert self.process.stdin is not None
        print(question, file=self.process.stdin, flush=True)
        self.figures.setdefault(ASKED[question], []).append(self.answer())

    def close(self) -> None:
        """End the process, which ends with its questions."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def packed(tokens: int, rounds: int) -> float:
    """Return the rate of packed batches of 256 rows of so many tokens, as a part of that of a copy of their bytes."""
    buffer = ReplayBuffer(
        256,
        4096,
        columns={
            "tokens": Column((None,), "int32", longest=tokens, items=4096 * tokens),
            "log_probs": Column((None,), "float32", lengths_of="tokens"),
        },
    )
    flat = np.arange(4096 * tokens)
    buffer.insert([flat.astype(np.int32), flat.astype(np.float32)], lengths=np.full(4096, tokens))
    source, target = np.ones((4096, 2 * tokens), np.int32), np.empty((256, 2 * tokens), np.int32)
    first, times = iter(np.random.default_rng(0).integers(4096 - 256, size=2 * rounds)), {"packed": [], "copy": []}

    def copy() -> None:
        start = next(first)
        target[:] = source[start : start + 256]

    for i in range(2 * rounds):
        for name, call in {"packed": buffer.sample_packed, "copy": copy}.items():
            begin = time.perf_counter()
            call()
            if i >= rounds:
                times[name].append(time.perf_counter() - begin)
    return statistics.median(times["copy"]) / statistics.median(times["packed"])


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=list(KINDS), default=list(KINDS), help="(default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path.home() / ".cache" / "mindspore_replay_benchmarks",
        help="where virtual environments are kept (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="also write the figures of every round to this file")
    return parser.parse_args(given)


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as files:
        peers = {TITLES[kind]: Peer(kind, options.environments, Path(files)) for kind in options.peers}
        try:
            for _ in range(options.rounds):
                for question in ASKED:
                    for peer in peers.values():
                        peer.ask(question)
        finally:
            for peer in peers.values():
                peer.close()
    print(table({name: peer.figures for name, peer in peers.items()}))
    parts = {tokens: packed(tokens, 200) for tokens in (128, 512, 2048)}
    for tokens, part in parts.items():
        print(f"packed batches of 256 rows of {tokens} tokens: {part:.2f} of a copy")
    if options.json:
        found = {name: {"figures": peer.figures, "versions": peer.versions} for name, peer in peers.items()}
        options.json.write_text(json.dumps({"peers": found, "packed": parts}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
