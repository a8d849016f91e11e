"""Rows of any length: a slow twin of a buffer, and random operations with both."""

from collections.abc import Callable
from typing import Any

import numpy as np

LONGEST, ITEMS, CAPACITY = 5, 17, 6
COLUMNS: dict[str, Any] = {
    "shapes": [(None,), (), (None, 2), (None,)],
    "types": ["int32", "float32", "float32", "bool"],
    "names": ["tokens", "reward", "log_probs", "flags"],
    "max_length": LONGEST,
    "items": {"tokens": ITEMS, "flags": ITEMS + 2},
    "share_lengths": [("tokens", "log_probs")],
    "seed": 0,
}
#: Two kinds of lengths: `flags` has one item more than `tokens`, at most the longest row.
BOTH = "tokens", "flags"


def row(k: int, n: int) -> dict[str, Any]:
    """Return a row with the number k, of n items."""
    return {
        "tokens": np.arange(n, dtype=np.int32) + 100 * k,
        "reward": np.float32(k),
        "log_probs": np.full((n, 2), k, np.float32),
        "flags": np.arange(min(n + 1, LONGEST)) % 2 == k % 2,
    }


def joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as a batch: lists of arrays."""
    return {name: [one[name] for one in rows] for name in rows[0]}


class Twin:
    """The rows as a list, and the items on tapes, of which each row needs a whole place on a round of the tape."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.inserted = 0
        self.tapes: dict[str, list[int]] = {name: [] for name in BOTH}  # the number of the row of each item; -1: a gap
        self.starts: dict[str, list[int]] = {name: [] for name in BOTH}

    def insert(self, rows: list[dict[str, Any]]) -> None:
        for name, tape in self.tapes.items():
            size = COLUMNS["items"][name]
            if not self.rows:
                tape.clear()
            before, starts, tried = list(tape), [], list(tape)
            for k, one in enumerate(rows):
                if len(tried) % size + len(one[name]) > size:
                    tried += [-1] * (size - len(tried) % size)
                starts.append(len(tried))
                tried += [self.inserted + k] * len(one[name])
            if len(tried) - len(before) > size:  # all rows of the call on a new round
                tried, starts = before + [-1] * (-len(before) % size), []
                for k, one in enumerate(rows):
                    starts.append(len(tried))
                    tried += [self.inserted + k] * len(one[name])
            self.tapes[name], self.starts[name] = tried, self.starts[name][len(self.starts[name]) - len(self.rows) :]
            self.starts[name] += starts
        self.rows += rows
        self.inserted += len(rows)
        gone = max(len(self.rows) - CAPACITY, 0)
        for name, tape in self.tapes.items():
            first = len(tape) - COLUMNS["items"][name]
            gone = max(gone, sum(start < first for start in self.starts[name]))
        del self.rows[:gone]
        for starts in self.starts.values():
            del starts[:gone]

    def check(self, buffer: Any) -> None:
        """Raise an AssertionError unless a buffer has these rows."""
        buffer.check_valid()
        assert buffer.size() == len(self.rows)
        if not self.rows:
            return
        read = buffer.get_item(np.arange(len(self.rows)), as_dict=True)
        for i, one in enumerate(self.rows):
            for name, values in one.items():
                n = read["flags_lengths" if name == "flags" else "tokens_lengths"][i]
                assert name == "reward" or n == len(values)
                np.testing.assert_array_equal(read[name][i] if name == "reward" else read[name][i, :n], values)
                assert name == "reward" or not read[name][i, n:].any()


def run(seed: int, make: Callable[[], Any], steps: int = 150) -> None:
    """Do the same random operations with a buffer and a twin, and compare them after each."""
    random, buffer, twin = np.random.default_rng(seed), make(), Twin()
    for k in range(steps):
        if k % 41 == 40:
            buffer.reset()
            twin = Twin()
            continue
        rows = [row(k + j, int(random.integers(0, LONGEST + 1))) for j in range(random.integers(1, 4))]
        twin.insert(rows)
        way = random.integers(0, 3)
        if hasattr(buffer, "insert_rows"):
            buffer.insert_rows(rows)
        elif len(rows) == 1 and way:
            buffer.insert(rows[0])
        elif way == 1:
            lengths = {name: [len(one[name]) for one in rows] for name in BOTH}
            flat = {key: np.concatenate([np.atleast_1d(one[key]) for one in rows]) for key in rows[0]}
            buffer.insert(flat, lengths=lengths)
        elif way == 2:
            lengths = {name: np.array([len(one[name]) for one in rows]) for name in BOTH}
            padded = {
                key: np.stack(
                    [
                        np.pad(one[key], [(0, LONGEST - len(one[key])), (0, 0)][: one[key].ndim], constant_values=7)
                        if one[key].ndim
                        else one[key]
                        for one in rows
                    ]
                )
                for key in rows[0]
            }
            buffer.insert(padded, lengths=lengths)
        else:
            buffer.insert(joined(rows))
        twin.check(buffer)
    if hasattr(buffer, "close"):
        buffer.close()
