"""Columns and rows of the buffers beside a slow twin: of any length, of one length, and of steps that views show."""

from collections.abc import Sequence
from typing import Any

import numpy as np

LONGEST, CAPACITY = 5, 10
ITEMS = {"tokens": 29, "words": 31}
#: Two kinds of lengths: `logits` shares that of `tokens`, `flags` that of `words`.
KINDS_OF_LENGTHS = {"tokens": ("tokens", "logits"), "words": ("words", "flags")}
COLUMNS: dict[str, Any] = {
    "shapes": [(None,), (), (None, 2), (None,), (None,), ()],
    "types": ["int32", "float32", "float32", "int16", "bool", "int32"],
    "names": ["tokens", "reward", "logits", "words", "flags", "group"],
    "max_length": LONGEST,
    "items": ITEMS,
    "share_lengths": list(KINDS_OF_LENGTHS.values()),
}
#: The same columns, of rows of one length.
FIXED: dict[str, Any] = {
    "shapes": [(3,), (), (3, 2), (2,), (2,), ()],
    **{key: COLUMNS[key] for key in ("types", "names")},
}
#: Steps whose next observation is that of the next row, and steps with their own.
STEPS: dict[str, Any] = {
    "shapes": [(2,), (), (), ()],
    "types": ["float32", "float32", "bool", "bool"],
    "names": ["observation", "reward", "terminated", "truncated"],
}
OWN_NEXT = {key: [*STEPS[key], value] for key, value in zip(STEPS, [(2,), "float32", "next_observation"])}
#: Steps with goals.
GOALS = {
    key: [*STEPS[key], *value]
    for key, value in zip(STEPS, [[(2,)] * 2, ["float32"] * 2, ["achieved_goal", "desired_goal"]])
}
#: With a reward of two numbers.
WIDE = OWN_NEXT | {"shapes": [(2,), (2,), (), (), (2,)], "types": ["float32", "float64", "bool", "bool", "float32"]}
NAMES: tuple[str, ...] = tuple(COLUMNS["names"])
LEADER = {name: leader for leader, names in KINDS_OF_LENGTHS.items() for name in names}


def row_of(number: int, n: int, words: int, changed: int = 0) -> dict[str, Any]:
    """Return a row of n tokens and so many words. Each item holds its row's number and its place."""
    places = np.arange(n) + 10 * (number % 1000)
    return {
        "tokens": places.astype(np.int32) + 100_000 * changed,
        "reward": np.float32(number + 0.5 * changed),
        "logits": np.stack([places, -places + changed], 1).astype(np.float32),
        "words": (np.arange(words) + 10 * (number % 1000)).astype(np.int16),
        "flags": (np.arange(words) + number) % 3 == 0,
        "group": np.int32(number // 3 % 3),
    }


def step_of(number: int, columns: dict[str, Any]) -> dict[str, Any]:
    """Return a row with unique numbers."""
    x = number + 1
    reward = np.array([x * x % 17 - 5, 2 - x * x % 13], columns["types"][1])
    values = {
        "observation": np.array([x, 0.5 * x], np.float32),
        "reward": reward if columns["shapes"][1] else reward[0],
        "terminated": np.bool_(x % 11 == 5),
        "truncated": np.bool_(x % 4 == 1),
        "next_observation": np.array([-x, 0.25], np.float32),
        "achieved_goal": np.array([x % 5, x * 0.125], np.float32),
        "desired_goal": np.array([-x, 0.5], np.float32),
    }
    return {name: values[name] for name in columns["names"]}


def joined(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as a batch: lists of arrays."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def padded(rows: Sequence[np.ndarray], name: str, width: int, filler: int = 0) -> np.ndarray:
    """Return rows of a column as an array; what is behind their items does not count."""
    if name not in LEADER:
        return np.stack(rows)
    out = np.full((len(rows), width, *rows[0].shape[1:]), filler).astype(rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def plain(result: Any) -> Any:
    """Return results with NumPy arrays in place of Tensors."""
    if isinstance(result, dict):
        return {name: plain(value) for name, value in result.items()}
    if isinstance(result, (tuple, list)):
        return tuple(map(plain, result))
    return result.asnumpy() if hasattr(result, "asnumpy") else np.asarray(result)
