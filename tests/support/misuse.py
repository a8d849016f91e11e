"""The tables of misuse: wrong calls of the public classes, and the error of each, the same on every face of a buffer.

A case is a line of a table: what is written, and the error, whose message stands behind "For 'CLASS', "; … is any text.
An error may say where it is expected: `PYTHON`: not in graphs, `CELL`: only of buffers of MindSpore from Python,
`KERNEL`: a graph fails when it runs, in MindSpore's words. `test_misuse.py` runs all cases, and checks that they leave
the buffer as it was.
"""

import functools
import inspect
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mindspore as ms  # noqa: F401  calls are written with it
import numpy as np
from flat import flat
from mindspore import Tensor, nn  # noqa: F401

import mindspore_replay
from mindspore_replay import Column, FrameStack, HindsightRelabel, NStep, attach, host  # noqa: F401
from mindspore_replay.buffers.making import get_buffer_cls

COLUMNS: dict[str, Any] = {
    "sample_size": 2, "capacity": 8, "shapes": [(2,), ()], "types": ["float32", "int32"], "seed": 0,
}  # fmt: skip
NAMED: dict[str, Any] = {"names": ["obs", "act"]}

# What calls are written with.
nan, inf = float("nan"), float("inf")
OBS, ACT = np.zeros(2, np.float32), np.array(1, np.int32)
ROW, WRONG = [OBS, ACT], [OBS.astype("complex64"), ACT]
HANDLES, HALF, ONES, TWO = np.array([0, 1]), np.array([0.5]), np.ones(2, np.float32), np.array([1, 2], np.int32)
FRAMES, FINAL = np.ones((2, 3), np.float32), np.array([np.zeros(2), None], object)
STEP, ENDS = {"reward": "float32", "terminated": "bool"}, [False, False, True, True]
FIVE, FIVE_PAIRS, SIX = np.zeros(5, np.int32), np.zeros((5, 2), np.float32), np.zeros(6, np.float32)
GOALS = HindsightRelabel("future", 0.5, np.subtract)
SPARSE = HindsightRelabel("future", 0.5, "sparse", tolerance=0.1)
BEFORE = HindsightRelabel("future", 1.0, np.subtract, achieved_goal="observation")


def rows(n: int) -> list[np.ndarray]:
    return [np.zeros((n, 2), np.float32), np.zeros(n, np.int32)]


def row(**changed: Any) -> dict[str, Any]:
    """Return a row of the kind "any length", with changes."""
    return {"tokens": TWO, "words": TWO, "logits": np.zeros((2, 2), np.float32), "reward": 0.5, **changed}


#: Of a configuration.
PPG = {"multi_buffer": True, "policy": {"replay_buffer_size": 100}, "value": {"replay_buffer_size": 1000}}
SHARED_GOALS = {
    "names": ["achieved_goal", "desired_goal", "reward"], "data_shape": [()] * 3, "data_type": ["float32"] * 3,
    "views": [GOALS],
}  # fmt: skip


class Kind(NamedTuple):
    """A kind of buffer: its type in a configuration, arguments beside `COLUMNS`, and the call that fills it."""

    type: str
    options: dict[str, Any] = NAMED
    fill: Callable[[Any], Any] = lambda b: b.insert(rows(4))


def columns(*names: str, **types: str) -> dict[str, Any]:
    """Return columns: arrays of two numbers, then scalars."""
    shapes = [(2,) if name in names else () for name in (*names, *types)]
    return {"shapes": shapes, "types": ["float32"] * len(names) + list(types.values()), "names": [*names, *types]}


def _limit(buffer: Any) -> None:
    buffer.limiter = (host if type(buffer).__module__ == host.__name__ else mindspore_replay).RateLimiter(1, 2, 9)


_LENGTHS = {
    "shapes": [(None,), (None,), (None, 2), ()], "types": ["int32", "int32", "float32", "float32"],
    "names": ["tokens", "words", "logits", "reward"], "max_length": 5, "items": 29,
    "share_lengths": [("tokens", "logits")],
}  # fmt: skip
#: Of a call: a column of any length, a late one, and sizes without other columns.
A, A_LATE = Column((None,), "int32", longest=5, items=20), Column((), "float32", late=True)
ONLY_SIZES = {"shards": 2, "data_shape": None, "data_type": None}
_TOKENS = {"shapes": [(None,)], "types": ["int32"], "names": ["tokens"], "max_length": 5, "items": 20}
KINDS = {
    "plain": Kind("uniform", {}),
    "named": Kind("uniform"),
    "flags": Kind("uniform", {"types": ["float32", "bool"]}, lambda b: None),
    "distinct": Kind("uniform", {"replace": False}),
    "two environments": Kind("uniform", {"num_envs": 2, "names": ["observation", "act"], "views": [FrameStack(1)]}),
    "weighted": Kind("uniform", {**NAMED, "weighted": True}),
    "old clock": Kind("uniform", {"max_staleness": 3}, lambda b: b.advance(2**62 - 1)),
    "old policies": Kind(
        "uniform", {"max_staleness": 4}, lambda b: b.advance(7).insert(rows(4), version=[7, 4, 6, 5]).insert(rows(2))
    ),
    "limited": Kind("uniform", NAMED, _limit),
    "late": Kind("uniform", {**NAMED, "late": ["act"]}, lambda b: b.insert([OBS])),
    "compressed": Kind("uniform", {**NAMED, "compress": ["obs"]}),
    "prioritized": Kind("prioritized"),
    "sequence": Kind("sequence", {**NAMED, "sequence_length": 2}),
    "elastic": Kind("elastic", {**NAMED, "window": 4}),
    "episodes": Kind("episode", {**NAMED, "max_episode_length": 3}, lambda b: b.insert(rows(4), end=ENDS)),
    "episodes without names": Kind("episode", {"max_episode_length": 3}, lambda b: None),
    "reservoir": Kind("reservoir"),
    "full reservoir": Kind("reservoir", NAMED, lambda b: b.insert(rows(8))),
    "weighted reservoir": Kind("reservoir", {**NAMED, "weighted": True}),
    "queue": Kind("queue"),
    "epochs": Kind("epochs"),
    "any length": Kind("uniform", {**_LENGTHS, "weighted": True}, lambda b: b.insert(row()).insert(row())),
    "tokens": Kind("uniform", {**_TOKENS, "weighted": True}, lambda b: b.insert([[[1], [2]]])),
    "windows of any length": Kind("sequence", {**_LENGTHS, "sequence_length": 2}, lambda b: None),
    "nested": Kind("uniform", {"names": ["a.x", "a.y"], "weighted": True}),
    "mixture": Kind("mixture", {}),
    "shorter": Kind(
        "uniform", {**_LENGTHS, "weighted": True}, lambda b: b.insert(row(tokens=TWO[:1], logits=FIVE_PAIRS[:1]))
    ),
    "mixture of any length": Kind("mixture", {"of": ("any length", "shorter")}),
    "steps": Kind("uniform", columns("observation", **STEP)),
    "whole steps": Kind("uniform", columns("observation", "next_observation", **STEP)),
    "steps with a discount": Kind("uniform", columns("observation", **STEP, discount="float32")),
    "goals": Kind("uniform", columns("achieved_goal", "desired_goal", reward="float32")),
}

#: Shards take neither a range nor a length.
NOT_OF_SHARDS = ("sample((", "sample([", 'sample("', "sample(longest")

PYTHON, CELL, KERNEL = "not in graphs", "only of Cells", "a graph fails when it runs"

# Parts of many messages.
BY_PRIORITY = (
    "needs a buffer that draws by priority: make a PrioritizedReplayBuffer, or a SequenceReplayBuffer, "
    "EpisodeReplayBuffer or ElasticReplayBuffer with priorities=Priorities()."
)
WEIGHT = "needs a buffer that stores a weight for each row: make it with weighted=True."
EPISODES = (
    "needs a buffer that stores the episode of each row: make it with views=[...], or use SequenceReplayBuffer or "
    "EpisodeReplayBuffer. Leave it out for samples of single rows, which need no ends."
)
LAYOUT = (
    "'exp' must hold one row in each column's shape, or a batch of rows with one leading axis more, the same in each "
    "column. column "
)
DTYPES = "'exp' must have dtypes that the columns hold. column "
EACH_DTYPE = (
    "must be one of bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, "
    "bfloat16, as a MindSpore or NumPy dtype or its name, but got "
)
RECORDS = "'columns' must be a dict of mindspore_replay.Column by name, or a list of them, with at least one, but got "
ENTRIES = "must be a list or tuple with one entry for each column, but got "
ANY_AXES = "must have shape [] or [n], but got "
PAIRS = "'source' and 'indices' must have the shape [n], n at least 1, but got "
RATE = (
    "'samples_per_insert' must be positive, or the fewest and the most samples with 0 <= low <= high, high above 0 "
    "and low finite, but got "
)
PART = (
    "'config' must be the part that describes the buffer, but got the configuration of a whole training run: pass "
    "config"
)
KEYS = "the configuration has unknown keys: "
TYPES = "'create_config' must hold 'type', or a mapping with it for each buffer, but it has "
OF_THEM = "'buffer' must be a buffer, a MixedReplay, or a dict, list or CellList of them, but got "
OF_ROWS, CLOCKS = "the weights must be those of its rows: ", "the clocks must be those of its rows: "
FOLLOW = "'clock' must begin with [now, 0], and 'insertion_clocks' from 0 to now, but got "
OWN_SLOT = (
    "'row_serials' must be different numbers from 0 to 7, and each of the first 8 of them in its own slot, but got "
)
SCHEMA = "'state_dict' must be that of a buffer with the same columns. "
CURSORS = (
    "the cursors must describe a ring of capacity 8: count <= min(inserted - base, capacity) and head = (inserted - "
    "base - count) % capacity, but got "
)
RESERVOIR = (
    "the cursors must describe a reservoir of capacity 8: head = 0 and count = min(inserted - base, capacity), but got "
)
COUNTS = "'rule' and 'counts' must be those of a limiter, but got "
MISSING = "the keys of 'exp' must be the columns' names: missing "
LACKS = "the configuration lacks "
IN_FOUR = "'index' must be in [-4, 4), since 4 rows are stored, but got "
TOO_FEW = "a sample needs at least 1 row, but got 0 in the range to draw from, of "
UNKNOWN = "there are unknown arguments: "
WAIT = ". Wait until can_sample() is true."
OTHER_SIZE = ". A sample always has sample_size=2 rows: write sample(), or for 32 rows with_sample_size(32).sample()."
OF_PRIORITIES = "'sample' takes beta, as_dict, with_indices, longest by keyword, but got "
UNTIL_FULL = (
    "stored. Wait until full() is true. Before that, get_item(range(len(buffer))) returns the stored rows, and "
    "datasets.to_npz writes them."
)
ARRAYS_BY_NAME = "'network' must hold arrays of numbers by name, but got an array of … u…"
PRIORITY = "a priority must be finite and at least 0, but got "
BY_ROW = (
    "a column 'next_observation' would store each frame twice: leave it out, the next observation is built from the "
    "next row."
)
#: What composite operators do not serve, and the way out.
KERNELS = (
    "needs kernels, with backend='native' or, on a device without them, storage='host', its default, but got backend="
    "'composite' and storage='device'. The composite backend serves single rows, drawn uniformly or by priority."
)
NONE_NEED = "a column whose shape begins with None."

# fmt: off
#: Calls, by kind of buffer.
CALLS: dict[str, dict[str, Exception]] = {
    "compressed": {"flush()": RuntimeError("'flush' needs a buffer made with storage=folder…", PYTHON)},
    "plain": {
        "insert(OBS)": TypeError("'exp' must be a list or tuple of 2 arrays, but got ndarray.", PYTHON),
        "insert([OBS, ACT, ACT])": ValueError("'exp' must hold one array for each of the 2 columns, but got 3."),
        'insert({"obs": OBS, "act": ACT})': TypeError("'exp' can be a dict only of a buffer made with 'names'."),
        'insert([OBS.astype("complex64"), ACT.astype("float64")])':
            TypeError(DTYPES + "0: expected float32, but got complex64; column 1: expected int32, but got float64. …"),
        "insert([OBS, Tensor(7, ms.float32)])": TypeError(DTYPES + "1: expected int32, but got float32. …"),
        "insert([[[1.0], [1.0, 2.0]], 7])": ValueError(
            "the lists of a column in 'exp' must have equal lengths. column 0: got [[1.0], [1.0, 2.0]].", PYTHON),
        "insert([OBS, 1j])": TypeError(DTYPES + "1: expected int32, but got the complex 1j. …", PYTHON),
        "insert([OBS, 2**31])": ValueError("column 1 is int32 and cannot hold 2147483648."),
        "insert([OBS[None, :1], np.zeros(3, np.int32)])":
            ValueError(LAYOUT + "0: expected (1, 2), but got (1, 1); column 1: expected (1,), but got (3,)."),
        "add(WRONG)": TypeError(
            "'exp' must have dtypes that the columns hold. column 0: expected float32, but got complex64. Cast it "
            "yourself: call .astype(np.float32) on an array, .astype(ms.float32) on a Tensor."),
        "add(0.0, 1)": TypeError(
            "'insert' takes a row or a batch as one list or dict, but got 2 arguments: write insert([a, b])."),
        "add(obs=0.0, act=1)": TypeError("'insert' takes a row or a batch … got columns by keyword, ['act', 'obs']:…"),
        "insert([[1.0, 2.0], [1]], lengths=[2])": ValueError("'lengths' needs " + NONE_NEED, PYTHON),
        "sample(longest=True)": ValueError("'longest' and 'sample_packed' need " + NONE_NEED),
        "sample_packed()": ValueError("'longest' and 'sample_packed' need " + NONE_NEED, PYTHON),
        "sample(as_dict=True)": TypeError("'as_dict' needs a buffer made with 'names'."),
        "sample((0, 1, 2))": TypeError("'sample_range' must be (start, stop), each an int or None, but got (0, 1, 2)."),
        "sample((0.5, 2))": TypeError("'sample_range' must be (start, stop), each an int or None, but got (0.5, 2)."),
        "sample((2, 1))": RuntimeError(TOO_FEW + "4 stored" + WAIT, PYTHON),
        "get_item(4)": IndexError("'index' must be in [-4, 4), since 4 rows are stored, but got 4.", PYTHON),
        "get_item(-5)": IndexError("'index' must be in [-4, 4), since 4 rows are stored, but got -5.", PYTHON),
        "get_item(np.uint64(2**64 - 1))": IndexError(IN_FOUR + "18446744073709551615.", PYTHON),
        "get_item(0.0)": TypeError("'index' must be an int or hold ints, but got float64."),
        "with_sample_size(0)": ValueError("'sample_size' must be in [1, 2147483647], but got 0.", PYTHON),
        "with_sample_size(2.0)": TypeError("'sample_size' must be an int, but got 2.0 (float).", PYTHON),
        '__setattr__("limiter", 5)': TypeError("'limiter' must be a RateLimiter or None, but got int.", PYTHON),
    },
    "plain, empty": {
        "get_item(0)": IndexError("'index' must be that of a stored row, and none is stored yet.", PYTHON),
        "rows()": RuntimeError("'rows' returns all capacity=8 rows, but got 0 " + UNTIL_FULL, PYTHON),
    },
    "named": {
        "insert(3)": TypeError("'exp' must be a list or tuple of 2 arrays, but got int."),
        'insert({"obs": OBS})': ValueError(MISSING + "['act'], unknown []."),
        'insert({"obs": OBS, "at": ACT})': ValueError(MISSING + "['act'], unknown ['at']."),
        "insert(ROW, 1.0)": TypeError("…one positional argument, the rows, but got 2: … insert(rows, priority=...)."),
        "insert(OBS, ACT)": TypeError("'insert' takes a row or a batch as one list or … got 2 arguments:…"),
        "insert(obs=OBS, act=ACT)": TypeError("'insert' takes a row or a … got columns by keyword, ['act', 'obs']:…"),
        "insert(ROW, done=True)": TypeError("'insert' takes priority, end, final, version, … got ['done']."),
        "insert(ROW, priority=1.0)": RuntimeError("'insert(priority=...)' " + BY_PRIORITY),
        "insert(ROW, end=True)": RuntimeError("'end' " + EPISODES),
        "insert(ROW, final=True)": RuntimeError("'final' " + EPISODES),
        "insert(ROW, version=0)": RuntimeError("'insert(version=...)' " + WEIGHT),
        "insert(ROW, with_indices=True)": RuntimeError("'insert(with_indices=True)' " + WEIGHT),
        "end_episodes()": RuntimeError("'end_episodes' " + EPISODES),
        "sample(32)": TypeError(
            "'sample' takes sample_range, as_dict, with_indices, longest by keyword, but got sample(32)" + OTHER_SIZE),
        "sample(foo=1)":
            TypeError("'sample' takes sample_range, as_dict, with_indices, longest by keyword, but got sample(foo=1)."),
        "sample(beta=0.5)": RuntimeError("'sample(beta=...)' " + BY_PRIORITY),
        "sample(with_indices=True)": RuntimeError("'sample(with_indices=True)' " + WEIGHT),
        "update_priorities(HANDLES, ONES)": RuntimeError("'update_priorities' " + BY_PRIORITY),
        'update(HANDLES, {"act": HANDLES})': RuntimeError("'update' " + WEIGHT),
        "delete(HANDLES)": RuntimeError("'delete' " + WEIGHT),
        "info(HANDLES)": RuntimeError("'info' " + WEIGHT),
        "advance()": RuntimeError("'advance' " + WEIGHT),
        "get_item(HANDLES[None])": ValueError("'index' must have shape [] or [k], but got [1, 2]."),
        "__getitem__(3)": TypeError("rows are read by get_item, not by [...]: get_item(3)."),
        "__iter__()": TypeError("a buffer cannot be iterated: sample() returns a batch, and …", PYTHON),
    },
    "named, empty": {"sample()": RuntimeError(TOO_FEW + "0 stored" + WAIT, KERNEL)},
    "flags": {
        "insert([OBS, 2])": ValueError("column 1 is bool and cannot hold 2.", PYTHON),
    },
    "distinct": {
        "sample((3, None))": RuntimeError(
            "a sample needs sample_size=2 rows, but got 1 in the range to draw from, of 4 stored" + WAIT, PYTHON),
        "with_sample_size(9)": ValueError("'sample_size' must be at most 8, the most rows that … got 9.", PYTHON),
    },
    "two environments": {
        "insert(ROW)": ValueError("'exp' must hold a positive multiple of num_envs=2 rows, but got 1."),
        "insert(rows(3))": ValueError("'exp' must hold a positive multiple of num_envs=2 rows, but got 3."),
    },
    "weighted": {
        "insert(ROW, version=-1)": ValueError(
            "a version must be a value that the learner's clock has had, from 0 to 0, but got -1. Nothing was stored."),
        "insert(ROW, version=5)": ValueError(
            "a version must be a value that the learner's clock has had, from 0 to 0, but got 5. Nothing was "
            "stored.", KERNEL),
        "insert(ROW, version=0.5)": TypeError("'version' must be an int or hold ints, but got float64."),
        "insert(ROW, version=HANDLES)": ValueError(
            "the versions must be one number for all rows or have shape [1], one for each, but got shape [2]."),
        "insert(ROW, version=HANDLES[None])": ValueError("'version' must have shape [] or [n], but got [1, 2]."),
        'update(HANDLES, {"at": HANDLES})':
            ValueError("the keys of 'values' must be some of the columns ['obs', 'act'], but got ['at']."),
        "update(HANDLES, {})": ValueError("the keys of 'values' must be some of the columns ['obs', … got []."),
        "update(HANDLES, 3)": TypeError("'values' must be a list or tuple of 2 arrays, but got int."),
        'update([], {"act": []})': ValueError("'indices' must have shape [] or [n], but got [0]: …", PYTHON),
        'update(HANDLES, {"act": ONES})':
            TypeError("'values' must have dtypes that … column 'act': expected int32, but got float32. …"),
        'update(HANDLES, {"act": HANDLES + 2**31})':
            ValueError("column 'act' is int32 and cannot hold 2147483648.", PYTHON),
        'update(HANDLES, {"obs": ONES})': ValueError("'values' must hold a row of each column for each of … got (2,)."),
        "update(HANDLES, [rows(2)[0]])": ValueError("'values' must hold one array for each of the 2 … got 1."),
        'update(HALF, {"act": rows(1)[1]})': TypeError("'indices' must hold ints, but got float64."),
        'update(HANDLES[None], {"act": rows(2)[1]})': ValueError("'indices' " + ANY_AXES + "[1, 2]."),
        "delete(HALF)": TypeError("'indices' must hold ints, but got float64."),
        "delete(HANDLES[None])": ValueError("'indices' must have shape [] or [n], but got [1, 2]."),
        "delete([])": ValueError("'indices' " + ANY_AXES + "[0]: name at least one, or leave the call out."),
        "info(HALF)": TypeError("'indices' must hold ints, but got float64."),
        "info(HANDLES[None])": ValueError("'indices' must have shape [] or [n], but got [1, 2]."),
        "advance(0.5)": TypeError("'steps' must be an int, but got 0.5 (float)."),
        "advance(-1)": ValueError("'steps' must be in [0, 4611686018427387904], but got -1."),
        "advance(Tensor([1, 2]))": TypeError("'steps' must be an int or a Tensor [] of … got a Tensor [2] of int64."),
    },
    "old clock": {"advance(2)": ValueError("'steps' must be in [0, 1], but got 2.", PYTHON)},
    "prioritized": {
        "insert(ROW, priority=-1.0)": ValueError("a priority must be finite and at least 0, but got -1.0."),
        'insert(ROW, priority="x")': TypeError("a priority must be a number or hold numbers, but got str32."),
        "insert(ROW, priority=ONES)": ValueError(
            "the priorities must be one number for all rows or have shape [1], one for each, but got shape [2]."),
        "insert(ROW, priority=ONES[None])": ValueError("priorities must have shape [] or [n], but got [1, 2]."),
        "sample(32)": TypeError(OF_PRIORITIES + "sample(32)" + OTHER_SIZE),
        "sample(32, 0.4)": TypeError(OF_PRIORITIES + "sample(32, 0.4)" + OTHER_SIZE),
        "sample(0.4)": TypeError(OF_PRIORITIES + "sample(0.4).", CELL),
        'sample(beta="x")': TypeError("'beta' must be a number, but got 'x' (str)."),
        "sample(beta=nan)": ValueError("'beta' must be in [0, 1], but got nan."),
        "sample(beta=Tensor([0.5, 0.5]))": TypeError("'beta' must be one number, but got shape [2] of float32."),
        "sample(beta=np.array(2.0))": ValueError("'beta' must be in [0, 1], but got 2.0.", KERNEL),
        "update_priorities(HALF, ONES[:1])": TypeError("'indices' must hold ints, but got float64."),
        "update_priorities(HANDLES[None], ONES)": ValueError("'indices' must have shape [] or [n], but got [1, 2]."),
        "update_priorities(HANDLES[:0], ONES)":
            ValueError("'indices' must have shape [] or [n], but got [0]: name at least one, or leave the call out."),
        "update_priorities(HANDLES, -ONES)": ValueError("a priority must be finite and at least … got -1.0.", KERNEL),
        "update_priorities(HANDLES, nan * ONES)": ValueError("a priority must be finite and at … got nan.", KERNEL),
        "update_priorities(HANDLES, Tensor([1.0, inf]))": ValueError(PRIORITY + "inf.", PYTHON),
        "update_priorities(HANDLES, -1e-30)": ValueError("a priority must be … got -1.0000000031710769e-30.", PYTHON),
        "update_priorities(HANDLES, [1e39, 1.0])": ValueError("a priority must be finite and at … got inf.", PYTHON),
        "update_priorities(HANDLES, ONES > 0)": TypeError("a priority must be a number or hold numbers, but got bool."),
        "update_priorities(HANDLES, np.ones(3))": ValueError(
            "the priorities must be one number for all rows or have shape [2], one for each, but got shape [3]."),
    },
    "prioritized, empty": {
        "sample()": RuntimeError("a sample needs at least 1 … got 0 in the range to draw from, of 0 stored.…", KERNEL),
    },
    "sequence": {
        "sample(32)": TypeError("…but got sample(32)" + OTHER_SIZE),
        "insert(ROW, end=1)": TypeError("'end' must be a bool or hold bools, but got int64."),
        "insert(ROW, final=0)": TypeError("'final' must be a bool or hold bools, but got int64."),
        "insert(ROW, end=ONES > 0)":
            ValueError("'end' must have shape [1], one flag for each row, or [], but got shape [2]."),
        "insert(rows(3), end=True)": ValueError("'end' must have shape [3], one flag for each row, but got shape []."),
        "insert(rows(2), end=[True])": ValueError("'end' must have shape [2], one flag for … got shape [1].", PYTHON),
        "insert(rows(2), final=np.ones(3, bool))": ValueError("'final' must have shape [2], one flag … got shape [3]."),
        "insert(rows(2), end=np.zeros(0, bool))": ValueError("'end' must have shape [] or [n], but got [0]: …", PYTHON),
        "insert(ROW, end=ONES[None] > 0)": ValueError("'end' must have shape [] or [n], but got [1, 2]."),
    },
    "sequence, empty": {
        "sample()": RuntimeError("a sample needs at least 1 … got 0 in the range to draw from, of 0 stored.…", KERNEL),
    },
    "elastic": {
        "sample(32)": TypeError("…but got sample(32)" + OTHER_SIZE),
        "set_window(9)": ValueError("'window' must be in [1, 8], but got 9."),
        "set_window(Tensor(-1))": ValueError("'window' must be in [1, 8], but got -1.", CELL),
        "set_window(2.0)": TypeError("'window' must be an int, but got 2.0 (float)."),
        "set_window(Tensor(4.0))": TypeError("'window' must be an int or a Tensor … got a Tensor [] of float32.", CELL),
        "set_window(Tensor([4, 4]))": TypeError("'window' must be an int or a … got a Tensor [2] of int64.", CELL),
    },
    "episodes": {
        "sample(32)": TypeError("…but got sample(32)" + OTHER_SIZE),
        "insert(rows(4), end=np.zeros(4, bool))": ValueError(
            "no episode may have more than max_episode_length=3 rows: insert the last of them with end=True, or call "
            "end_episodes() before the next. Nothing was stored.", KERNEL),
        'sample_groups("color", 1, 2)':
            ValueError("'key' must be one of the columns ['obs', 'act'], but got 'color'.", PYTHON),
        'sample_groups("obs", 1, 2)': ValueError(
            "the column 'key' must hold ints and have shape (), but 'obs' is float32 of shape (2,).", PYTHON),
        'sample_groups("act", 0, 2)': ValueError("'groups' must be in [1, 8], but got 0.", PYTHON),
        'sample_groups("act", 1, 1.5)': TypeError("'size_in_group' must be an int, but got 1.5 (float).", PYTHON),
        'sample_groups("act", 1, 2, ordered=1)': TypeError("'ordered' must be a bool, but got 1 (int).", PYTHON),
        'sample_groups("act", 3, 2)': RuntimeError(
            "'groups' must be at most the number of groups by 'act' in finished episodes, 1, but got 3.", PYTHON),
    },
    "episodes without names": {
        'sample_groups("act", 1, 1)': TypeError("'sample_groups' needs a buffer made with 'names'.", PYTHON),
    },
    "reservoir": {
        "sample(32)": TypeError("…but got sample(32)" + OTHER_SIZE),
    },
    "reservoir, empty": {"sample()": RuntimeError(TOO_FEW + "0 stored" + WAIT, PYTHON)},
    "epochs": {"sample(32)": TypeError("…but got sample(32)" + OTHER_SIZE)},
    "epochs, empty": {
        "sample()": RuntimeError(
            "a sample needs sample_size=2 rows, but got 0 in the range to draw from, of 0 stored" + WAIT, PYTHON),
    },
    "queue": {
        "sample(32)": TypeError("…but got sample(32)" + OTHER_SIZE),
        "insert(rows(9))": RuntimeError(
            "there must be room for 9 rows, but got 4 free of capacity=8, since rows that were not sampled yet may "
            "not be evicted: sample first, pass a timeout to wait for room, or … when_full='evict'.", KERNEL),
        '__setattr__("limiter", None)': TypeError("'limiter' cannot be set, but got None: …", PYTHON),
    },
    "queue, empty": {
        "sample()":
            RuntimeError("a sample needs sample_size=2 eligible rows, but got 0 in …, of 0 stored" + WAIT, KERNEL),
    },
    "late": {
        "insert([OBS, ACT])": ValueError("'exp' must hold one array for each of the 1 columns that are not … got 2."),
        'insert({"obs": OBS, "act": ACT})':
            ValueError(MISSING + "[], unknown ['act']. ['act'] are late: 'update' writes them."),
        "sample()": RuntimeError("a sample needs at least 1 … got 0 in the range to draw from, of 1 stored.…", PYTHON),
    },
    "any length": {
        "insert(row(), lengths=[-1])":
            ValueError("'lengths' must be ints >= 0, one for each row, [B], but got [-1].", PYTHON),
        "insert(row(), lengths=[2.0])":
            ValueError("'lengths' must be ints >= 0, one for each row, [B], but got float64 of shape [1].", PYTHON),
        "insert(row(tokens=np.zeros(6, np.int32)))": ValueError(
            "no row of column 'tokens' may be longer than longest=5, but got 6 items. Nothing was stored.", PYTHON),
        "insert(row(tokens=np.array([1, 2**31])))":
            ValueError("column 'tokens' is int32 and cannot hold 2147483648.", PYTHON),
        "insert(row(tokens=np.zeros(3, np.int32)))":
            ValueError("the columns ['tokens', 'logits'] share their lengths, but got [3] and [2].", PYTHON),
        "insert(row(logits=np.zeros((2, 3), np.float32)))": ValueError(
            "rows must hold any number of items of the column's shape. column 'logits': expected (n, 2), but got (2, "
            "3).", PYTHON),
        'insert(row(reward=[1.0]), lengths={"tokens": [4]})': ValueError(
            "column 'tokens' must hold the 4 items of all rows, or padded rows, [1, L], but got [2].", PYTHON),
        "insert(row(tokens=[FIVE] * 6, words=[TWO] * 6, logits=[FIVE_PAIRS] * 6, reward=SIX))": ValueError(
            "the rows of one call may have items=29 items in column 'tokens', but got 30…", PYTHON),
        "insert(row(tokens=[None, [1, 2]]))": ValueError(
            "the lists of a column in 'exp' must have equal lengths. column 'tokens': got [None, [1, 2]].", PYTHON),
        "insert(row(tokens=[[1], 5]))": ValueError(
            "the items of a column must have one shape. Column 'tokens': got ['()', 'no items'].", PYTHON),
        'update([0], {"tokens": TWO})': ValueError(
            "'values' must hold a row of each column for each of 'indices', of column 'tokens' a list of 1, but got "
            "one row.", PYTHON),
        'update([0, 1], {"tokens": [TWO, TWO[:1]]})': ValueError(
            "rows keep their lengths, but got 1 items of column 'tokens' for the row 1, which has 2. Insert another "
            "row.", PYTHON),
        'update([0, 1], {"tokens": [TWO, None]})':
            TypeError("'values' must have … column 'tokens': expected int32, but got object. …", PYTHON),
        'update(0, {"tokens": 5})':
            ValueError("rows must hold any number of items … column 'tokens': expected (n,), but got ().", PYTHON),
        "sample_packed(max_items=4)": ValueError("'max_items' must be in [5, 2147483647], but got 4.", PYTHON),
    },
    "windows of any length": {
        "sample_packed()": ValueError("'sample_packed' needs samples of single … got windows of steps.", PYTHON),
    },
    "nested": {
        'update(HANDLES, {"a": {"z": ONES}})':
            ValueError("the keys of 'values' must be some of the columns ['a.x', 'a.y'], but got ['a.z']."),
    },
    "mixture": {
        'update([0, 2], [0, 1], {"act": [1, 2]})': ValueError("'source' must be in [0, 2), but got [0, 2].", PYTHON),
        'update(0, 1, {"act": 1})': ValueError(PAIRS + "[] and [].", PYTHON),
        'update([0.0], [1], {"act": [1]})': TypeError("'source' must hold ints, but got float64.", PYTHON),
        'update([0, 1], [0, 1], {"at": [1, 2]})': ValueError(
            "For 'ReplayBuffer', the keys … must be some of the columns ['obs', 'act'], but got ['at'].", PYTHON),
        'update([0, 1], [0, 1], {"obs": np.zeros((2, 2), complex)})': TypeError(
            "For 'ReplayBuffer', 'values' must have dtypes that the columns hold. column 'obs': expected float32, but "
            "got complex128. …", PYTHON),
        'update([0, 1], [0, 1], {"act": [1]})': ValueError(
            "For 'ReplayBuffer', 'values' must hold a row of each column for each of 'indices'. column 'act': "
            "expected (2,), but got (1,).", PYTHON),
        "update_priorities([0, 1], [1, 1, 1], 1.0)": ValueError(PAIRS + "[2] and [3].", PYTHON),
        "update_priorities(HANDLES * 1.0, HANDLES, ONES)": TypeError("'source' must hold ints, but got float64."),
        "update_priorities([0, 1], [1, 1], [1.0, -1.0])": ValueError(PRIORITY + "-1.0.", PYTHON),
        "update_priorities([0, 1], [1, 1], [1.0, 2.0, 3.0])": ValueError(
            "the priorities must be one number … or have shape [2], one for each, but got shape [3].", PYTHON),
        "update_priorities(HANDLES + 1, HANDLES, ONES)": ValueError("'source' must be in [0, … got [1, 2].", KERNEL),
        "sample(8)": TypeError("'sample' takes as_dict, with_indices … or for 8 rows MixedReplay(parts, 8).sample()."),
    },
    "mixture of any length": {  # the first source, which would take its row, is left as it is
        'update([0, 1], [0, 0], {"tokens": [TWO + 1, TWO]})': ValueError(
            "For 'ReplayBuffer', rows keep their lengths, but got 2 items of column 'tokens' for the row 0, which has "
            "1. Insert another row.", PYTHON),
    },
}

#: Arguments of constructors, by kind of buffer, beside its own.
CONSTRUCTORS: dict[str, dict[str, Exception]] = {
    "plain": {
        "shapes=[], types=[]": ValueError("'shapes' must name at least one column, but got []."),
        "shapes=[(4, 0), ()]": ValueError("each axis of 'shapes[0]' must be positive, but got (4, 0)."),
        "shapes=[(4.0,), ()]": TypeError("'shapes[0]' must be a tuple of ints, but got (4.0,)."),
        'shapes="ab"': TypeError("'shapes' " + ENTRIES + "'ab' (str)."),
        "types=3": TypeError("'types' " + ENTRIES + "3 (int)."),
        'types=["float32"]': ValueError("'types' must have one entry for each of the 2 shapes, but got 1."),
        "names=[]": ValueError("'names' must have one entry for each of the 2 shapes, but got 0."),
        'names=["a", ""]': TypeError("each of 'names' must be a non-empty string, but got ''."),
        'names=["a", "a"]': ValueError("'names' must differ from each other, but got ('a', 'a')."),
        'names=["a", "a.x"]': ValueError(
            "a column cannot hold other columns, but 'names' has ['a'] and names that go on after it with a dot."),
        'names="ab"': TypeError("'names' must be a list or tuple with one entry for each column, but got 'ab' (str)."),
        'types=["float32", ""]': TypeError("'types[1]' " + EACH_DTYPE + "''."),
        "seed=1.5": TypeError("'seed' must be an int or None, but got 1.5 (float)."),
        "seed=-1": ValueError("'seed' must be in [0, 2^64), but got -1."),
        "seed=2**64": ValueError("'seed' must be in [0, 2^64), but got 18446744073709551616."),
        'backend="cuda"': ValueError("'backend' must be one of 'auto', 'native', 'composite', but got 'cuda'.", CELL),
        "replace=1": TypeError("'replace' must be a bool, but got 1 (int)."),
        'ordered="yes"': TypeError("'ordered' must be a bool, but got 'yes' (str)."),
        "weighted=1": TypeError("'weighted' must be a bool, but got 1 (int)."),
        'types=[ms.bfloat16, "int32"], backend="composite"': TypeError(
            "column 0 is bfloat16, which MindSpore's operators neither scatter nor gather: the composite backend "
            "cannot store it. Use float16, or native on a CPU.", CELL),
        "capacity=0": ValueError("'capacity' must be in [1, 2147483647], but got 0."),
        "capacity=1.0": TypeError("'capacity' must be an int, but got 1.0 (float)."),
        "capacity=True": TypeError("'capacity' must be an int, but got True (bool)."),
        "sample_size=0": ValueError("'sample_size' must be in [1, 2147483647], but got 0."),
        "sample_size=1.0": TypeError("'sample_size' must be an int, but got 1.0 (float)."),
        "num_envs=0": ValueError("'num_envs' must be in [1, 2147483647], but got 0."),
        'num_envs="1"': TypeError("'num_envs' must be an int, but got '1' (str)."),
        "sample_size=1_000_000, replace=False": ValueError(
            "'sample_size' must be at most 'capacity', but got sample_size=1000000 and capacity=8. The order of the "
            "arguments is (sample_size, capacity, shapes, types); give the sizes by name."),
        "max_use=0": ValueError("'max_use' must be in [1, 2147483647], but got 0."),
        "max_use=1.0": TypeError("'max_use' must be an int, but got 1.0 (float)."),
        "max_staleness=-1": ValueError("'max_staleness' must be in [0, 4611686018427387904], but got -1."),
        'max_staleness="3"': TypeError("'max_staleness' must be an int, but got '3' (str)."),
        "buffer_size=9": TypeError("there are unknown arguments: 'buffer_size' (here 'capacity')."),
        'bachend="native", vieuws=()': TypeError(
            "there are unknown arguments: 'bachend' (the nearest is 'backend'); 'vieuws' (the nearest is 'views')."),
        "xyz=1": TypeError("there are unknown arguments: 'xyz'."),
        "storage=3": TypeError("'storage' must be None, 'device', 'host' or the path of a folder, but got 3…"),
        'storage=""': ValueError("'storage' must be None, 'device', 'host' or the path of a folder, but got ''…"),
        "views=[3]": TypeError("'views' must hold views such as NStep, but got 3."),
    },
    "named": {
        "columns={}": TypeError(RECORDS + "{}."),
        "columns=3": TypeError(RECORDS + "3."),
        'columns={"obs": (4,)}': TypeError(
            "'columns.obs' must be a mindspore_replay.Column, but got (4,): write Column((4,), \"float32\") for rows "
            "of this shape and dtype."),
        "columns=[(), Column((), 3)]": TypeError("'columns.0' must be a mindspore_replay.Column, but got ():…"),
        'columns=[Column(4, "int32")]': TypeError("'columns.0.shape' must be a tuple of ints, but got 4."),
        'columns=[Column((0,), "int32")]': ValueError("each axis of 'columns.0.shape' must be positive, … got (0,)."),
        'columns={"x": Column((), "int3")}': TypeError("'columns.x.dtype' must be one of bool, … but got 'int3'."),
        'columns={"x": Column((), "int32", late=1)}': TypeError("'columns.x.late' must be a bool, but got 1 (int)."),
        'columns={"x": Column((2,), "int32", compress=None)}':
            TypeError("'columns.x.compress' must be a bool, but got None (NoneType)."),
        'columns=[Column((), "int32")], names=["x"]': ValueError(
            "'columns' says what 'shapes', 'types' and 'names' say: give either, not both."),
        "types=None": TypeError("'shapes' and 'types', or 'columns', are required: a dict of …"),
        'late=["obs", "act"]': ValueError(
            "one column must not be late, and at most 16 may be, but got 2 of 2 columns with late=True."),
        'compress=["act"]': ValueError(
            "only columns of arrays may have compress=True, but ['act'] are of scalars, which take less memory as "
            "they are."),
        'compress=["obs"], backend="composite"': ValueError(
            "compress=True needs the kernels of the CPU, with backend='native' and, on another device, storage='host', "
            "but got backend='composite' and storage='device'.", CELL),
        'backend="composite", storage="host"':
            ValueError("storage='host' needs the kernels of the CPU: but got backend=…", CELL),
        'backend="composite", storage="./rows"':
            ValueError("storage='./rows' needs the kernels of the CPU: but got backend=…", CELL),
        'compress=["obs"], storage="./rows"': ValueError("compress=True needs the memory of … got storage='./rows'."),
    },
    "prioritized": {
        "alpha=1.5": ValueError("'alpha' must be in [0, 1], but got 1.5."),
        "alpha=nan": ValueError("'alpha' must be in [0, 1], but got nan."),
        "alpha=True": TypeError("'alpha' must be a number, but got True (bool)."),
        "beta=-1": ValueError("'beta' must be in [0, 1], but got -1."),
        "beta=None": TypeError("'beta' must be a number, but got None (NoneType)."),
        "beta_steps=-1": ValueError("'beta_steps' must be in [0, 2147483647], but got -1."),
        "beta_steps=1.5": TypeError("'beta_steps' must be an int, but got 1.5 (float)."),
        "epsilon=1e-40": ValueError("'epsilon' must be 0 or at least 1e-37, but got 1e-40."),
        "epsilon=nan": ValueError("'epsilon' must be in [0, 1e+30], but got nan."),
        'normalize="max"': ValueError("'normalize' must be 'batch' or 'buffer', but got 'max'."),
        "initial_priority=0": ValueError("'initial_priority' must be in [1e-37, 3e+38], but got 0."),
        "initial_priority=None": TypeError("'initial_priority' must be a number, but got None (NoneType)."),
        'default_priority="mean"':
            ValueError("'default_priority' must be 'largest' or 'largest_held', but got 'mean'."),
    },
    "sequence": {
        'backend="composite"': ValueError("'sequence_length' " + KERNELS, CELL),
        "sequence_length=0": ValueError("'sequence_length' must be in [1, 2147483647], but got 0."),
        "sequence_length=2.0": TypeError("'sequence_length' must be an int, but got 2.0 (float)."),
        "burn_in=-1": ValueError("'burn_in' must be in [0, 2147483647], but got -1."),
        "stride=0": ValueError("'stride' must be in [1, 2147483647], but got 0."),
        "pad_end=1": TypeError("'pad_end' must be a bool, but got 1 (int)."),
        'priorities="yes"': TypeError(
            "'priorities' must be mindspore_replay.Priorities or None, but got 'yes': write Priorities(alpha=0.6, "
            "beta=0.4)."),
        "burn_in=7": ValueError(
            "'capacity' must be at least 9, the rows that a sample reaches over in 1 environments, but got 8."),
        "sample_size=9, replace=False": ValueError(
            "'sample_size' must be at most 'capacity', but got sample_size=9 and capacity=8. The order of the "
            "arguments is (sample_size, capacity, shapes, types); give the sizes by name."),
        "sample_size=8, replace=False": ValueError(
            "'sample_size' must be at most 7, the most starts of sequences that capacity=8 rows can hold, but got 8."),
        "sample_size=7, num_envs=2, replace=False": ValueError(
            "'sample_size' must be at most 6, the most starts of sequences that capacity=8 rows can hold, but got 7."),
        "prioritized=True, replace=False": ValueError(
            "'replace' must be True, but got False: one row is sampled from each stratum of the total weight, and a "
            "row may fill several."),
        "prioritized=True, alpha=1.5": ValueError("'alpha' must be in [0, 1], but got 1.5."),
        "ordered=False": TypeError(UNKNOWN + "'ordered' (leave it out: only ReplayBuffer has it, and rows are …"),
    },
    "elastic": {
        'backend="composite"': ValueError("'window' " + KERNELS, CELL),
        "window=0": ValueError("'window' must be in [1, 8], but got 0."),
        "priorities=True": TypeError("'priorities' must be mindspore_replay.Priorities or None, but got True: write…"),
    },
    "episodes": {
        'backend="composite"': ValueError("'max_episode_length' " + KERNELS, CELL),
        "max_episode_length=0": ValueError("'max_episode_length' must be in [1, 2147483647], but got 0."),
        "max_episode_length=3.0": TypeError("'max_episode_length' must be an int, but got 3.0 (float)."),
        "num_envs=5": ValueError(
            "'capacity' must be at least 15, the rows that a sample reaches over in 5 environments, but got 8."),
        "views=[1]": TypeError("'views' must hold views such as NStep, but got 1."),
    },
    "reservoir": {
        'backend="composite"': ValueError("a reservoir " + KERNELS, CELL),
        "max_staleness=3": TypeError("there are unknown arguments: 'max_staleness' (the nearest is 'max_use')."),
        "shapes=[(None,), ()]": ValueError("columns whose shape begins with None cannot be used with a reservoir, …"),
    },
    "queue": {
        'backend="composite"': ValueError("drawing in order " + KERNELS, CELL),
        'order="random"': ValueError("'order' must be 'fifo' or 'lifo', but got 'random'."),
        'when_full="wait"': ValueError("'when_full' must be 'block' or 'evict', but got 'wait'."),
        "timeout=-1": ValueError("'timeout' must be None or at least 0 seconds, but got -1."),
        'timeout="long"': TypeError("'timeout' must be a number, but got 'long' (str)."),
        "stride=2": ValueError(
            "'burn_in', 'stride' and 'pad_end' need 'sequence_length', but got burn_in=0, stride=2 and pad_end=False "
            "without it."),
        "replace=True": TypeError(UNKNOWN + "'replace' (leave it out: this class draws in one way)."),
        "num_envs=9": ValueError("'capacity' must be at least num_envs=9, the rows of one … got 8."),
        "num_envs=9, sequence_length=1":
            ValueError("'capacity' must be at least 9, the rows that a sample reaches over in 9 … got 8."),
    },
    "epochs": {
        'backend="composite"': ValueError("drawing in epochs " + KERNELS, CELL),
        'last="keep"': ValueError("'last' must be 'drop' or 'pad', but got 'keep'."),
        "rank=2, world=2": ValueError("'rank' must be in [0, 1], but got 2."),
        "world=0": ValueError("'world' must be in [1, 2147483647], but got 0."),
        "world=2.0": TypeError("'world' must be an int, but got 2.0 (float)."),
        "world=5": ValueError("'capacity' must be at least sample_size * world = 10, the rows of one batch … got 8."),
        "sample_size=9": ValueError(
            "'sample_size' must be at most 'capacity', but got sample_size=9 and capacity=8. The order of the "
            "arguments is (sample_size, capacity, shapes, types); give the sizes by name."),
    },
    "any length": {
        "max_length=None": ValueError(
            "column 'tokens', whose shape begins with None, needs 'longest', the items of the longest row, and "
            "'items', the items to reserve memory for, but got Column(shape=(None,), dtype='int32', items=29)."),
        "items=4": ValueError("'columns.tokens.items' must be in [5, 1099511627776], but got 4."),
        'share_lengths=[("tokens", "reward")]': ValueError(
            "'lengths_of' must name a column whose shape begins with None, as its own does, and that has no "
            "'lengths_of' itself, but got Column(shape=(), dtype='float32', lengths_of='tokens')."),
        'share_lengths=[("reward", "tokens")]': ValueError("'lengths_of' must name a column … lengths_of='reward')."),
        'share_lengths=[("tokens", "words"), ("words", "logits")]': 
            ValueError("'lengths_of' must name a column … lengths_of='words')."),
        "columns=[A, Column((None,), 'int32', lengths_of='b')]": ValueError(
            "'columns.1.lengths_of' must be one of the columns indices below 2, but got 'b'."),
        "columns=[A, Column((None,), 'int32', lengths_of=0, longest=3)]": ValueError(
            "['longest'] of column '1' need a shape that begins with None, and no 'lengths_of', but got Column(…)."),
        'late=["words", "logits"]': ValueError(
            "the late column 'words', whose rows differ in length, needs 'lengths_of', the name of a column that is "
            "not late and whose rows are as long."),
        'cut="last"': ValueError("'columns.tokens.cut' must be 'first' or 'random', but got 'last'."),
        "sample_length=6": ValueError("'columns.tokens.sample_length' must be in [1, 5], but got 6."),
        "columns=[Column((), 'int32', longest=4, cut='random')]": ValueError(
            "['longest', 'cut'] of column '0' need a shape that begins with None, and no … Column(…)."),
        "shapes=[(2, None), (None,), (None, 2), ()]": TypeError("'columns.tokens.shape' must be … got (2, None)."),
        'compress=["logits"]': ValueError(
            "columns whose shape begins with None cannot be used with compress=True, which stores rows of one length: "
            "pad the rows to one length, and declare that."),
        "views=[NStep(2, 0.9)]": ValueError(
            "columns whose shape begins with None cannot be used with 'views', which join steps of one length: pad "
            "the rows to one length, and declare that."),
    },
    "steps": {
        'views=[NStep(2, 0.9)], backend="composite"': ValueError("'views' " + KERNELS, CELL),
        'views=[NStep(2, 0.9)], shapes=[(2,), (2,), ()], compress=["reward"]':
            ValueError("columns that a view computes with must not have compress=True, but got ['reward']…"),
        "views=[FrameStack(2)], names=None": ValueError("FrameStack needs a buffer made with 'names'."),
        "views=[NStep(2, 0.5)], names=None": ValueError("NStep needs a buffer made with 'names'."),
        "views=[GOALS]": ValueError(
            "HindsightRelabel needs a column 'achieved_goal' as its 'achieved_goal', but got ['observation', "
            "'reward', 'terminated']."),
        'views=[NStep(2, 0.5, reward="r")]':
            ValueError("NStep needs a column 'r' as its 'reward', but got ['observation', 'reward', 'terminated']."),
        'views=[NStep(2, 0.5, observation=["x"])]': ValueError(
            "NStep needs a column 'x' as its 'observation', but got ['observation', 'reward', 'terminated']."),
        'views=[NStep(2, 0.5)], types=["float32", "int32", "bool"]':
            TypeError("For 'NStep', the column 'reward' must be float32 or float64."),
        "views=[NStep(2, 0.5)], shapes=[(2,), (), (1,)]":
            ValueError("For 'NStep', the column 'terminated' must have shape ()."),
        "views=FrameStack(2)": TypeError("'views' must be a list or tuple of views, but got FrameStack(k=2)."),
        "views=[FrameStack(8)]": ValueError(
            "'capacity' must be at least 9, the rows that a sample reaches over in 1 environments, but got 8."),
        "views=[NStep(9, 0.5)]": ValueError(
            "'capacity' must be at least 9, the rows that a sample reaches over in 1 environments, but got 8."),
        "views=[NStep(2, 0.5), NStep(3, 0.9)]": ValueError("there can be only one view NStep."),
        'views=[FrameStack(3, observation="reward"), NStep(2, 0.5)]': ValueError("NStep takes the column 'reward' …"),
    },
    "whole steps": {
        "views=[FrameStack(2)]": ValueError(BY_ROW),
        "views=[FrameStack(4), NStep(3, 0.9)]": ValueError(BY_ROW),
    },
    "steps with a discount": {
        "views=[NStep(2, 0.5)]": ValueError(
            "NStep adds a field 'discount' to a sample: rename the column of this name, or pass discount='discount' "
            "if it contains the discount of each step."),
        'views=[NStep(2, 0.9, discount="discount")], types=["float32", "float32", "bool", "int32"]':
            TypeError("For 'NStep', the column 'discount' must be float32 or float64 of shape ()."),
        'views=[NStep(2, 0.9, discount="discount")], shapes=[(2,), (), (), (2,)]':
            TypeError("For 'NStep', the column 'discount' must be float32 or float64 of shape ()."),
    },
    "goals": {
        "views=[GOALS], names=None": ValueError("HindsightRelabel needs a buffer made with 'names'."),
        "views=[FrameStack(2)]": ValueError(
            "FrameStack needs a column 'observation' as its 'observation', but got ['achieved_goal', 'desired_goal', "
            "'reward']."),
        "views=[NStep(2, 0.5)]": ValueError(
            "NStep needs a column 'terminated' as its 'terminated', but got ['achieved_goal', 'desired_goal', "
            "'reward']."),
        "views=[GOALS], shapes=[(2,), (3,), ()]": ValueError(
            "For 'HindsightRelabel', the columns 'achieved_goal' and 'desired_goal' must have one shape and dtype, "
            "but got (2,) of float32 and (3,) of float32."),
        "views=[GOALS], shapes=[(2,), (2,), (1,)]":
            ValueError("For 'HindsightRelabel', the column 'reward' must have shape ()."),
        'views=[GOALS, HindsightRelabel("final", 0.5, np.subtract)]': ValueError("there can be only one view …"),
        'views=[GOALS, FrameStack(2, observation="desired_goal")]': ValueError(
            "FrameStack cannot stack 'desired_goal', the goal of HindsightRelabel: give it the names of the other "
            "columns as 'observation'."),
        'views=[GOALS, FrameStack(2, observation="achieved_goal")]': ValueError(
            "FrameStack takes the column 'achieved_goal' as its 'observation', but another view uses it as its "
            "'achieved_goal'."),
        'views=[SPARSE], types=["int32", "int32", "float32"]': ValueError(
            "For 'HindsightRelabel', reward_fn='sparse' needs 'desired_goal' and 'reward' of float32 or float64, but "
            "got ['float32', 'int32']: give a function."),
        'views=[SPARSE, FrameStack(2, observation="reward")]': ValueError("FrameStack takes the column 'reward' as …"),
        'views=[BEFORE], names=["observation", "desired_goal", "reward"]': ValueError(
            "HindsightRelabel needs the goals achieved in the state after an action, but the column 'observation' "
            "holds that before it: add a column 'next_observation'."),
        'views=[GOALS], compress=["achieved_goal"]':
            ValueError("no column may have compress=True with HindsightRelabel, which computes rewards from rows."),
    },
    "late": {
        'backend="composite"': ValueError("late=True " + KERNELS, CELL),
    },
}

#: What is changed in the state `s` of a buffer, by kind, before it is loaded again; ``None``: left out.
STATES: dict[str, dict[str, Exception]] = {
    "prioritized": {
        '{"weights": None}': ValueError(SCHEMA + "'weights': expected float64 (48,), but got nothing."),
        '{"weights": s["weights"] + 1}': ValueError(OF_ROWS + "…"),
        '{"use_counts": ~s["use_counts"]}': ValueError(OF_ROWS + "the weight in slot 0 must be 0.0…"),
        '{"max_priority": np.float32(0.01)}': ValueError(OF_ROWS + "'max_priority' is 0.0…"),
        '{"counts": s["counts"] - 1}': ValueError(OF_ROWS + "'counts' is [-1, -1, -1, -1, -1]…"),
        '{"clock": np.array([0, 9, 0])}': ValueError(CLOCKS + "'clock' is …"),
        '{"insertion_clocks": s["insertion_clocks"] + 99}': ValueError(CLOCKS + "'insertion_clocks' are not …"),
    },
    "old policies": {
        '{"clock": np.array([7, 0, 7])}': ValueError(CLOCKS + "'clock' is [7, 0, 7], …"),
        '{"clock": np.array([7, 0, 0])}': ValueError(CLOCKS + "…to a newer one behind row 0."),
        '{"insertion_clocks": np.array([7, 4, 6, 5, 6, 7, 0, 0])}': ValueError(CLOCKS + "…one behind row 4."),
    },
    "plain": {
        '{"version": np.array(2)}': ValueError("'version' of 'state_dict' must be 1, but got 2."),
        '{"capacity": None}': ValueError("'capacity' of 'state_dict' must be 8, but got nothing."),
        '{"head": None}': ValueError(SCHEMA + "'head': expected int32 (), but got nothing."),
        '{"tail": np.array(0)}': ValueError(SCHEMA + "unknown keys ['tail']."),
        '{"column.1": s["column.1"][:5]}': ValueError(SCHEMA + "'column.1': expected int32 (8,), but got int32 (5,)."),
        '{"column.0": s["column.0"].astype("float64"), "count": np.int64(4)}': ValueError(
            "'state_dict' must be that of a buffer with the same columns. 'column.0': expected float32 (8, 2), but "
            "got float64 (8, 2); 'count': expected int32 (), but got int64 ()."),
        '{"head": np.int32(3)}': ValueError(CURSORS + "head=3, count=4, inserted=4, base=0."),
    },
    "elastic": {'{"window": np.array([0])}': ValueError("'window' must be in [1, 8], but got 0.")},
    "reservoir": {
        '{"head": np.int32(1)}': ValueError(RESERVOIR + "head=1, count=4, inserted=4, base=0."),
    },
    "full reservoir": {
        '{"row_serials": np.array([0, 1, 2, 3, 4, 5, 6, 8])}': ValueError(OWN_SLOT + "[0 1 2 3 4 5 6 8]."),
    },
    "weighted reservoir": {
        '{"clock": np.array([0, 99, 0])}': ValueError(FOLLOW + "[0, 99] and [0, 0, 0, 0]."),
    },
    "epochs": {
        '{"epoch": s["epoch"] + np.array([0, 0, 9, 0, 0])}': ValueError(
            "'epoch' must be a key, a serial number, at most 8 rows, a position and a number of epochs, but got [0, "
            "0, 9, 0, 0]."),
    },
    "compressed": {
    },
    "mixture": {
        '{"source_1.count": np.int32(7)}':
            ValueError("For 'PrioritizedReplayBuffer', " + CURSORS + "head=0, count=7, inserted=4, base=0."),
        '{"source_2.count": np.int32(7)}': ValueError(SCHEMA + "unknown keys ['source_2.count']."),
        '{"source_0.random_state": np.array([7, 7]), "source_1.count": np.int32(99)}':
            ValueError("For 'PrioritizedReplayBuffer', " + CURSORS + "head=0, count=99, inserted=4, base=0."),
    },
    "limited": {
        '{"limiter.rule": np.array([nan, -1, 0, 0, 7])}':
            ValueError("For 'RateLimiter', " + COUNTS + "[nan, -1.0, 0.0, 0.0, 7.0] and [0, 0, 0, 0]."),
        '{"limiter.counts": np.array([1, 0, 2, 0])}':
            ValueError("For 'RateLimiter', " + COUNTS + "[1.0, 1.0, 2.0, 9.0, 1.0] and [1, 0, 2, 0]."),
        '{"limiter.counts": None}': ValueError(SCHEMA + "'limiter.counts': expected int64 (4,), but got nothing."),
    },
}

#: Calls of other classes and functions, by the name that the message begins with.
FUNCTIONS: dict[str, dict[str, Exception]] = {
    "attach": {"attach(3)": TypeError("'folder' must be a path, but got 3.")},
    "Buffer.open": {"Buffer.open(3)": TypeError("'folder' must be a path, but got 3.", CELL)},
    "NStep": {
        "NStep(0, 0.5)": ValueError("'n' must be in [1, 2147483647], but got 0."),
        "NStep(1.5, 0.5)": TypeError("'n' must be an int, but got 1.5 (float)."),
        "NStep(2, nan)": ValueError("'gamma' must be in [0, 1], but got nan."),
        'NStep(2, "1")': TypeError("'gamma' must be a number, but got '1' (str)."),
    },
    "FrameStack": {
        "FrameStack(0)": ValueError("'k' must be in [1, 2147483647], but got 0."),
        'FrameStack("4")': TypeError("'k' must be an int, but got '4' (str)."),
        'FrameStack(2, padding="edge")': ValueError("'padding' must be one of zeros, first, but got 'edge'."),
    },
    "HindsightRelabel": {
        'HindsightRelabel("past", 0.5, np.subtract)': ValueError("'strategy' must be one of future, … got 'past'."),
        'HindsightRelabel("none", 0.5, np.subtract)': ValueError("'strategy' must be one of future, … got 'none'."),
        'HindsightRelabel("future", 1.5, np.subtract)': ValueError("'ratio' must be in [0, 1], but got 1.5."),
        'HindsightRelabel("future", "1", np.subtract)': TypeError("'ratio' must be a number, but got '1' (str)."),
        'HindsightRelabel("future", 0.5, 3)': TypeError("'reward_fn' must be a function or 'sparse', but got 3."),
        'HindsightRelabel("future", 0.5, "sparse")': ValueError("'tolerance' is the … got reward_fn='sparse' and …"),
        'HindsightRelabel("future", 0.5, np.subtract, tolerance=0.1)': ValueError("'tolerance' is the distance of …"),
        'HindsightRelabel("future", 0.5, "sparse", tolerance=-0.1)': ValueError("'tolerance' must be in [0, 1e+30], …"),
        'HindsightRelabel("future", 0.5, "sparse", tolerance="a")': TypeError("'tolerance' must be a number, but …"),
        'HindsightRelabel("future", 0.8, lambda goal: goal)': TypeError(
            "'reward_fn' must accept (achieved_goal, goal) or (achieved_goal, goal, batch), but got one with the "
            "arguments (goal). Bind others with functools.partial."),
    },
    "RateLimiter": {
        "RateLimiter(0, 1, 1)": ValueError(RATE + "0."),
        "RateLimiter(inf, 1, 1)": ValueError(RATE + "inf."),
        "RateLimiter((1, 2, 3), 1, 1)": ValueError("'samples_per_insert' must be a number or two, but got (1, 2, 3)."),
        'RateLimiter("2", 1, 1)': TypeError("'samples_per_insert' must be a number, but got '2' (str)."),
        "RateLimiter(1, 0, 1)": ValueError("'min_size' must be in [1, 2147483647], but got 0."),
        "RateLimiter(1, 1.5, 1)": TypeError("'min_size' must be an int, but got 1.5 (float)."),
        "RateLimiter(1, 1, inf)": ValueError("'error_buffer' must be finite and at least 1, but got inf."),
        "RateLimiter(1, 1, None)": TypeError("'error_buffer' must be a number, but got None (NoneType)."),
        "RateLimiter(1, 1, 1, timeout=-1)": ValueError("'timeout' must be None or at least 0 seconds, but got -1."),
        "RateLimiter(1, 1, 1).can_insert(0)": ValueError("'rows' must be in [1, 2147483647], but got 0."),
        "RateLimiter(1, 1, 1).can_sample(0)": ValueError("'rows' must be in [1, 2147483647], but got 0."),
        "RateLimiter(1, 1, 1).inserting(timeout=nan).__enter__()": ValueError("'timeout' must be None or … got nan."),
        "RateLimiter(1, 1, 1).change(samples_per_insert=2, min_size=0)": ValueError("'min_size' must be in … got 0."),
    },
    "MixedReplay": {
        "MixedReplay([], 4)": TypeError("'parts' must be a list of pairs (buffer, ratio), but got []."),
        'MixedReplay([buffer("plain")], 4)': TypeError("each of 'parts' must be a pair (buffer, … got ReplayBuffer:…"),
        'MixedReplay([("a", 1.0)], 4)': TypeError("each of 'parts' must be a pair (buffer, … got ('a', 1.0)."),
        'MixedReplay([(buffer("plain"), "1")], 4)': TypeError("'ratios' must be a number, but got '1' (str)."),
        'MixedReplay([(buffer("plain"), nan)], 4)': ValueError("'ratios' must be in [1e-30, 1e+30], but got nan."),
        'MixedReplay([(buffer("plain"), 0.9), (buffer("plain"), 0.1)], 4)':
            ValueError("each source must get a row, but with ratios [0.9, 0.1] the sample_size=4 rows are [4, 0]."),
        'MixedReplay([(buffer("goals"), 1), (buffer("named"), 1)], 4)': ValueError(
            "the samples of all sources must have the columns of source 0, (('achieved_goal', (2,), 'float32'), "
            "('desired_goal', (2,), 'float32'), ('reward', (), 'float32')), but got source 1: (('obs', (2,), "
            "'float32'), ('act', (), 'int32'))."),
        'MixedReplay([(buffer("plain"), 1), (buffer("distinct"), 1)], 20)': ValueError(
            "each source must be large enough for its rows of a batch of sample_size=20, but got source 1: 10 of at "
            "most 8. Take a larger capacity, or fewer rows."),
        "MixedReplay([(ONE, 1), (ONE, 1)], 4)": ValueError("each buffer may come only once in … got one twice."),
        'MixedReplay([(buffer("plain"), 1)], 4, rewards=(1.0,))': TypeError("there are unknown arguments: 'rewards'."),
    },
    "create_buffer": {
        "create_buffer([CONFIG])": TypeError("'config' must be a mapping, but got [{'type': …"),
        "create_buffer({})": ValueError(LACKS + "['sample_size', 'capacity', 'data_shape', 'data_type']; it has []."),
        "create_buffer(config(data_type=None))": ValueError(LACKS + "['data_type']; it has ['capacity', …"),
        'create_buffer(config(sample_size=None, thruput_controller={"sample_min_limit_ratio": 2}))':
            ValueError(LACKS + "['sample_size']; it has […"),
        'create_buffer(config(type="sequence"))': ValueError(LACKS + "['sequence_length']; it has ['capacity', …"),
        'create_buffer(config(type="episode"))': ValueError(LACKS + "['max_episode_length']; it has ['capacity', …"),
        'create_buffer({"multi_buffer": True, "a": CONFIG, "b": config(sample_size=None)})': ValueError(
            "the configuration lacks ['sample_size']; it has ['capacity', 'data_shape', 'data_type', 'type']."),
        'create_buffer({"multi_type_replaybuffer": True, "policy": 3})':
            ValueError("several buffers need a mapping each, but got only ['policy']."),
        'create_buffer({"env": {}, "policy": {"cuda": False, "other": {"replay_buffer": CONFIG}}})':
            ValueError(PART + "['policy']['other']['replay_buffer']."),
        'create_buffer(config(params={"capacity": 3}))':
            ValueError("['capacity'] must not be both in the configuration and in its 'params'."),
        "create_buffer(config(params=[1]))": TypeError("'params' must be a mapping, but got [1] (list)."),
        "create_buffer(config(shapes=[(4,)]))":
            ValueError("'shapes' and 'data_shape' both give 'shapes': give one of them."),
        'create_buffer(config(types=["int32"]))':
            ValueError("'types' and 'data_type' both give 'types': give one of them."),
        "create_buffer(config(number=2.0))": TypeError("'number' must be an int, but got 2.0 (float)."),
        "create_buffer(config(number=0))": ValueError("'number' must be in [1, 2147483647], but got 0."),
        'create_buffer(config(type="unifrom"))': ValueError(
            "For 'get_buffer_cls', 'type' must be one of uniform, naive, deque, prioritized, priority, advanced, "
            "sequence, episode, reservoir, elastic, queue, epochs, but got 'unifrom' (the nearest is 'uniform')."),
        "create_buffer(config(capacity=0))": ValueError("For 'ReplayBuffer', 'capacity' must be in [1, … got 0."),
        'create_buffer(config(data_type=["float23", "int32", "bool"]))':
            TypeError("For 'ReplayBuffer', 'types[0]' " + EACH_DTYPE + "'float23'."),
        'create_buffer(config(limiter={"samples_per_insert": 1, "min_size": 3}))':
            ValueError("'limiter' lacks ['error_buffer']; it has ['min_size', 'samples_per_insert']."),
        'create_buffer(config(limiter={"speed": 3}))': ValueError(KEYS + "'limiter.speed'."),
        "create_buffer(config(limiter=3))": TypeError("'limiter' must be a mapping, but got 3 (int)."),
        "create_buffer(config(capcity=1, sed=2))":
            ValueError(KEYS + "'capcity' (the nearest is 'capacity'); 'sed' (the nearest is 'seed')."),
        'create_buffer(config(params={"capcity": 1}))': ValueError(KEYS + "'capcity' (the nearest is 'capacity')."),
        'create_buffer({"multi_type_replaybuffer": True, "policy": CONFIG, "value": config(capcity=1)})':
            ValueError("the configuration has unknown keys: 'capcity' (the nearest is 'capacity')."),
        "create_buffer(config(samplesize=1))": ValueError(KEYS + "'samplesize' (the nearest is 'sample_size')."),
        "create_buffer(config(data_shapes=1))": ValueError(KEYS + "'data_shapes' (the nearest is 'data_shape')."),
        "create_buffer(config(data_types=1))": ValueError(KEYS + "'data_types' (the nearest is 'data_type')."),
        "create_buffer(config(Number=1))": ValueError(KEYS + "'Number' (the nearest is 'number')."),
        "create_buffer(config(param=1))": ValueError(KEYS + "'param' (the nearest is 'params')."),
        "create_buffer(config(sed=1))": ValueError(KEYS + "'sed' (the nearest is 'seed')."),
        "create_buffer(config(max_uses=1))": ValueError(KEYS + "'max_uses' (the nearest is 'max_use')."),
        "create_buffer(config(size=1))": ValueError("the configuration has unknown keys: 'size' (here 'capacity')."),
        "create_buffer(config(buffer_size=1))": ValueError(KEYS + "'buffer_size' (here 'capacity')."),
        "create_buffer(config(batch_size=1))": ValueError(KEYS + "'batch_size' (here 'sample_size')."),
        "create_buffer(config(n_step=1))": ValueError("the configuration has unknown keys: 'n_step' (here 'views')."),
        "create_buffer(config(gamma=1))": ValueError("the configuration has unknown keys: 'gamma'."),
        'create_buffer(config(ordered=True, type="prioritized"))': ValueError(
            KEYS + "'ordered' (leave it out: only ReplayBuffer has it, and rows are equally likely either way)."),
        'create_buffer({"multi_buffer": True, "polcy": 3})':
            ValueError("several buffers need a mapping each, but got only ['polcy']."),
        "create_buffer(config(replaybuffersize=3, **PPG))":
            ValueError("…'replaybuffersize' (the nearest is 'replay_buffer_size')."),
        "create_buffer(config(multi_type_replaybuffer=True, **PPG))":
            ValueError("['multi_type_replaybuffer', 'multi_buffer'] mean the same: give one of them."),
        "create_buffer(PPG)": ValueError("…lacks ['sample_size', 'data_shape', 'data_type']…"),
        'create_buffer(config(type="naive"), {"type": "priority"})':
            ValueError("'type' is 'naive', but in 'create_config' 'priority'."),
        'create_buffer(config(type=None, **PPG), {"polcy": {"type": "naive"}})':
            ValueError(TYPES + "'polcy' (the nearest is 'policy')…"),
        'create_buffer(config(type=None, **PPG), {"env": {}, "replay_buffer": {}})':
            ValueError(TYPES + "'env'…Of DI-engine's create_config give the part 'replay_buffer'."),
        "create_buffer(CONFIG, [{}])": TypeError("'create_config' must be a mapping, but got […"),
        'create_buffer(config(priority=True, priorities={}, type="sequence", sequence_length=2))':
            ValueError("'priorities' and 'priority' both give 'priorities': give one of them."),
        'create_buffer(config(priorities={"beta": 0.5}, priority_power_factor=1, type="sequence", sequence_length=2))':
            ValueError("'priorities' and 'priority_power_factor' both give 'priorities.alpha': give one of them."),
        'create_buffer(config(alpha=1, type="sequence", sequence_length=2))':
            ValueError("['alpha'] need priorities, which 'SequenceReplayBuffer' has not: …"),
        'create_buffer(config(beta=1, type="episode", max_episode_length=3))': ValueError("['beta'] need priorities…"),
        'create_buffer(config(anneal_step=1, type="deque"))': ValueError("['anneal_step'] need priorities…"),
        "create_buffer(config(priority_power_factor=1))": ValueError("['priority_power_factor'] need priorities…"),
        "create_buffer(config(IS_weight_power_factor=1))": ValueError("['IS_weight_power_factor'] need priorities…"),
        "create_buffer(config(priority_IS_weight=True))": ValueError("['priority_IS_weight'] need priorities…"),
        "create_buffer(config(priority=False, priority_IS_weight=True))":
            ValueError("['priority_IS_weight'] need priorities…"),
        'create_buffer(config(type="reservoir", priority=True))':
            ValueError("'priority' is True, but 'ReservoirReplayBuffer' does not …"),
        "create_buffer(config(priority=1))": TypeError("'priority' must be a bool, but got 1 (int)."),
        'create_buffer(config(priority_IS_weight="yes"))':
            TypeError("'priority_IS_weight' must be a bool, but got 'yes' (str)."),
        "create_buffer(config(deepcopy=1))": TypeError("'deepcopy' must be of type bool, but got 1."),
        'create_buffer(config(name=["x"]))': TypeError("'name' must be of type str, but got ['x']."),
        "create_buffer(config(monitor=5))": TypeError("'monitor' must be of type Mapping, but got 5."),
        'create_buffer(config(periodic_thruput_seconds="60"))':
            TypeError("'periodic_thruput_seconds' must be of type int, but got '60'."),
        "create_buffer(config(replay_buffer_size=1))": ValueError("'capacity' and 'replay_buffer_size' both give …"),
        'create_buffer(config(type="priority", beta=1, IS_weight_power_factor=1))':
            ValueError("'beta' and 'IS_weight_power_factor' both give …"),
        'create_buffer(config(type="priority", beta_steps=1, anneal_step=1))':
            ValueError("'beta_steps' and 'anneal_step' both give …"),
        'create_buffer(config(type="priority", anneal_step=1, IS_weight_anneal_train_iter=1))':
            ValueError("'anneal_step' and 'IS_weight_anneal_train_iter' both give …"),
        "create_buffer(config(set_buffer_size=len))": ValueError("'set_buffer_size' needs the type 'elastic'."),
        'create_buffer(config(type="elastic", set_buffer_size=7))':
            TypeError("'set_buffer_size' must be a function, but got 7."),
        'create_buffer(config(type="elastic", set_buffer_size=abs, window=3))': ValueError("…both give 'window'…"),
        "create_buffer(config(thruput_controller=3))": TypeError("'thruput_controller' must be a mapping, but got 3."),
        'create_buffer(config(thruput_controller={"speed": 3}))': ValueError(
            "'thruput_controller' must hold some of ['push_sample_rate_limit', 'sample_min_limit_ratio', "
            "'window_seconds'], but got ['speed']."),
        'create_buffer(config(thruput_controller={"push_sample_rate_limit": 3}))':
            TypeError("'push_sample_rate_limit' must be a mapping, but got 3."),
        'create_buffer(config(thruput_controller={"push_sample_rate_limit": {"most": 3}}))':
            ValueError("'push_sample_rate_limit' must hold some of ['max', 'min'], but got ['most']."),
        'create_buffer(config(thruput_controller={"push_sample_rate_limit": {"max": 1, "min": 2}}))': ValueError(
            "'thruput_controller' must have 0 <= min <= max and a ratio of at least 0, but got "
            "{'push_sample_rate_limit': {'max': 1, 'min': 2}}."),
        'create_buffer(config(thruput_controller={"sample_min_limit_ratio": -1}))': ValueError(
            "'thruput_controller' must have 0 <= min <= max and a ratio of at least 0, but got "
            "{'sample_min_limit_ratio': -1}."),
        'create_buffer(config(thruput_controller={"sample_min_limit_ratio": 2}, limiter={"min_size": 1}))':
            ValueError("'limiter' and 'thruput_controller' mean the same: give one of them."),
        "create_buffer(config(priority_max_limit=999))":
            ValueError("there is no counterpart of 'priority_max_limit':…"),
        "create_buffer(config(replay_buffer_start_size=100))":
            ValueError("there is no counterpart of 'replay_buffer_start_size':…"),
        'create_buffer(config(import_names=["ding.data", "dizoo.atari"], min_sample_ratio=2))':
            ValueError("there is no counterpart of 'min_sample_ratio':…; of 'import_names':…"),
        "create_buffer(config(priority_is_weight=1))": ValueError(KEYS + "… (the nearest is 'priority_IS_weight')."),
    },
    "get_buffer_cls": {
        'get_buffer_cls({"replay_buffer": CONFIG})': ValueError(PART + "['replay_buffer']."),
        'get_buffer_cls({"type": 3})': TypeError("'type' must be a class or a name, but got 3."),
    },
    "sequence_priorities": {
        "sequence_priorities(Tensor(np.ones((3, 4), np.float32)), Tensor(np.ones((2, 4), bool)))":
            ValueError("'errors' and 'mask' must both have shape [B, T]."),
        "sequence_priorities(Tensor(np.ones((2, 4), np.float32)), Tensor(np.ones((2, 4), bool)), 1.5)":
            ValueError("'eta' must be in [0, 1]."),
    },
    "columns_of": {
        "columns_of(3)": TypeError("'envs' must be a gymnasium environment or the observation space of … got 3."),
    },
    "Prefetch": {
        "Prefetch(3)": TypeError("'buffer' must be a ReplayBuffer, MixedReplay or ShardedReplay, but got 3."),
        'Prefetch(buffer("plain"), 0)': ValueError("'depth' must be in [1, 2147483647], but got 0."),
    },
    "ReplayMonitor": {
        'ReplayMonitor(buffer("mixture"), SINK)': TypeError("'buffer' must be a buffer or a … got MixedReplay.…"),
        'ReplayMonitor(buffer("plain"), "log.jsonl")':
            TypeError("'sink' must have methods 'write' and 'close', but got str."),
        "ReplayMonitor({}, SINK)": ValueError("'buffer' must hold a buffer, but got none."),
        'ReplayMonitor(buffer("plain"), SINK).step(-1)': ValueError("'operations' must be in [0, … got -1."),
        'ReplayMonitor(buffer("plain"), SINK).step(0.5)': TypeError("'operations' must be an … got 0.5 (float)."),
        'ReplayMonitor(buffer("plain"), SINK, every=0)': ValueError("'every' must be in [1, 2147483647], but got 0."),
        'ReplayMonitor(buffer("plain"), SINK, step=-1)': ValueError("'step' must be in [0, … got -1."),
        'ReplayMonitor(buffer("plain"), SINK, step=0.5)': TypeError("'step' must be an int, but got 0.5 (float)."),
    },
    "save": {
        'save(buffer("plain"), "file", progress="yes")': TypeError("'progress' must be a bool, but got 'yes' (str)."),
        'save(3, "file")': TypeError(OF_THEM + "int."),
        'save([3], "file")': TypeError(OF_THEM + "int."),
        'save({1: buffer("plain")}, "file")': TypeError("the keys of 'buffer' must be strings, but got 1."),
        'save({"one": ONE, "other": ONE}, "file")': ValueError("'buffer' must contain each buffer once, but one …"),
        'save(buffer("plain"), "nowhere/buffer.safetensors")': FileNotFoundError(
            "…For 'save', …nowhere/buffer.safetensors could not be written and is what it was before: No such file "
            "or directory"),
    },
    "load": {
        'load("file", progress=1)': TypeError("'progress' must be a bool, but got 1 (int)."),
        'load("file", capacity=2.0)': TypeError("'capacity' must be an int, but got 2.0 (float)."),
        'load("file", buffer=buffer("plain"), capacity=3)':
            ValueError("'capacity' must be None where 'buffer' is given, but got 3."),
        'load("file", buffer=3)': TypeError(OF_THEM + "int."),
        'load("file", backend="other")': ValueError(
            "no buffer can be made from file: For 'ReplayBuffer', 'backend' must be one of 'auto', 'native', "
            "'composite', but got 'other'.", CELL),
        'load("nowhere.safetensors")': FileNotFoundError("…No such file or directory: '…nowhere.safetensors"),
    },
    "ShardedReplay": {
        "ShardedReplay(3)": TypeError("'config' must be a mapping, but got int."),
        "ShardedReplay(config(sample_size=None), num_shards=2)": ValueError(LACKS + "'sample_size'…"),
        'ShardedReplay({"replay_buffer": CONFIG}, num_shards=2)': ValueError("…: pass config['replay_buffer'].", CELL),
        'ShardedReplay(config(shards={"nummer": 2}))': ValueError("…unknown keys: 'nummer' (the nearest is 'number')."),
        "ShardedReplay(config(shards={}))": ValueError("…must say how many 'shards'…"),
        "ShardedReplay(config(shards=2, number=2))": ValueError("the configuration must be that of one buffer…"),
        "ShardedReplay(config(shards=2, multi_buffer=True))": ValueError("…must be that of one buffer…"),
        "ShardedReplay(config(shards=2, capacity=1, sample_size=1))":
            ValueError("'capacity' must be at least one row for each of 2 shards, but got 1."),
        'ShardedReplay(config(shards=2, type="reservoir"))':
            ValueError("'type' must be uniform, prioritized, sequence or episode, but got ReservoirReplayBuffer."),
        'ShardedReplay(config(shards=2, type="sequence", sequence_length=2, num_envs=2))':
            ValueError("'num_envs' must be 1 where rows know their episode, but got 2…"),
        "ShardedReplay(config(shards=2, alpha=1.0))": ValueError("For 'create_buffer', ['alpha'] need priorities…"),
        'ShardedReplay(config(columns={"a": A_LATE, "b": Column((), "int32")}, **ONLY_SIZES))':
            ValueError("no column may be late: a writer…"),
        'ShardedReplay(config(columns={"a": Column((2,), "int32", compress=True)}, **ONLY_SIZES))':
            ValueError("no column may be compressed: shards store rows…"),
        "ShardedReplay(config(shards=2, **SHARED_GOALS))": ValueError("'views' cannot hold HindsightRelabel…"),
    },
    "SharedWeights": {
        'SharedWeights(buffer("plain"))':
            TypeError("'buffer' must be a buffer in a folder, or a folder, but got ReplayBuffer…"),
        'SharedWeights("none")': FileNotFoundError("'buffer' must be in a folder, but there is no…"),
        'SharedWeights(".").publish(nn.ReLU())': TypeError("'network' must be a Cell with Parameters or a dict…"),
        'SharedWeights(".").publish({})': TypeError("'network' must be a Cell with Parameters or a dict of arrays…"),
        'SharedWeights(".").publish([ONES])': TypeError("'network' must be a Cell with Parameters or a dict…"),
        'SharedWeights(".").publish({"b": ONES, ("a", 0): 1.0})': TypeError(ARRAYS_BY_NAME),
        'SharedWeights(".").publish({"b": ONES, 0: 1.0})': TypeError(ARRAYS_BY_NAME),
        'SharedWeights(".").publish({"b": ONES, "a": None})': TypeError(ARRAYS_BY_NAME),
        'SharedWeights(".").publish({"b": ONES, "a": {"b": 1.0}})': TypeError(ARRAYS_BY_NAME),
        'SharedWeights(".").publish({"b": ONES, "a": np.zeros(1, "i4, f4")})': TypeError(ARRAYS_BY_NAME),
        'SharedWeights(".").publish({"a": ONES}, version=1.0)': TypeError("'version' must be an int…"),
        'SharedWeights(".").read(timeout=-1)': ValueError("'timeout' must be in…"),
    },
    "VectorRows": {
        'VectorRows(buffer("named"), "every_step")': ValueError(
            "'autoreset_mode' must be a gymnasium AutoresetMode or one of NextStep, SameStep, Disabled, but got "
            "'every_step'."),
        'VectorRows(buffer("named"), 7)': TypeError("…one of NextStep, SameStep, Disabled, but got 7 (int)."),
        'VectorRows(buffer("plain"), "NextStep")':
            TypeError("'buffer' must be made with 'names', but got a ReplayBuffer without."),
        "VectorRows(3, None)": TypeError("'buffer' must be made with 'names', but got a int without."),
        "step(None)": TypeError("'autoreset_mode' must be that of the vector environment, such as…"),
        "step(terminated=HANDLES)": TypeError("'terminated' must be bool, but got int64."),
        "step(info=[{}, {}])": TypeError("'info' must be a dict, but got list."),
        'step(action=ONES.astype("float64"), reward=np.array(["a", "b"]))': TypeError(
            "values must have dtypes that the columns hold. column 'action': expected int32, but got float64; "
            "column 'reward': expected float32, but got <U1."),
        "step(reward=[None, 1.0])": TypeError(
            "values must have dtypes that the columns hold. column 'reward': expected float32, but got object."),
        "step(truncated=np.array([True]))":
            ValueError("'truncated' must have shape (2,), a flag for each of the buffer's num_envs, but got (1,)."),
        "step(reward=np.zeros(3), action=np.array(4))": ValueError(
            "each value must hold one row of each environment. column 'action': expected (2, ...), but got (); "
            "column 'reward': expected (2, ...), but got (3,)."),
        "step(action=np.array([0, 2**31]))": ValueError("column 'action' is int32 and cannot hold 2147483648."),
        'step(names=["reward", "action", "observation", "value", "log_prob"], value=ONES, logprob=ONES)': ValueError(
            "columns that step() does not fill must be given by keyword, and no others: missing ['log_prob'], "
            "unknown ['logprob'], given twice []."),
        'step(names=["reward"], observation={"reward": FRAMES}, next_observation={"reward": FRAMES + 1})':
            ValueError("…: missing [], unknown [], given twice ['reward']."),
        'step(observation={"a": FRAMES, "b": FRAMES}, next_observation={"a": FRAMES})':
            ValueError("'observation' and 'next_observation' must have the same keys, but got ['a', 'b'] and ['a']."),
        'step(names=["obs", "next_obs"], obs=FRAMES, next_obs=FRAMES)': ValueError(
            "a column of the buffer must be one of the observation's keys ['observation'], but the columns are "
            "['obs', 'next_obs']…"),
        "step(observation=FRAMES, next_observation=FRAMES)": ValueError("…made with copy=False write into it…"),
        'step("SameStep", truncated=HANDLES > 0)': ValueError(
            "'autoreset_mode' must be that of the environments, but got SameStep, and environments [1] are done "
            "without a final observation in info['final_obs'].…"),
        'step("SameStep", truncated=ONES > 0, info={"final_obs": FINAL})':
            ValueError("…but got SameStep, and environments [1] are done without a final observation…"),
        'step("SameStep", truncated=HANDLES < 1, info={"final_obs": FINAL, "_final_obs": [True, False]})': ValueError(
            "info['final_obs'][0] must have 'observation' of shape (3,) and kind float32, but got shape (2,), …"),
        'step("NextStep", truncated=HANDLES < 1, info={"final_obs": FINAL, "_final_obs": [True, False]})': ValueError(
            "…but got NextStep, and environments [0] are done with a final observation in info['final_obs'].…"),
        'step("Disabled", truncated=HANDLES < 1, info={"final_obs": FINAL, "_final_obs": [True, False]})': ValueError(
            "…but got Disabled, and environments [0] are done with a final observation in info['final_obs'].…"),
    },
}

#: Calls that only a graph refuses, by kind of buffer; their arguments are constants of the graph.
GRAPHS: dict[str, dict[str, Exception]] = {
    "plain": {
        "insert([Tensor(OBS), ACT])":
            TypeError("…In a graph, 'exp' must hold Tensors or constant Python numbers: pass a Tensor."),
        "sample((np.array(0), None))":
            TypeError("…In a graph, 'sample_range' must be (start, stop), each an int, a Tensor or None."),
    },
    "prioritized": {
        "update_priorities(Tensor([0, 1]), [1.0, 2.0])": TypeError("…must be a Tensor or a number…"),
        "delete(0)": TypeError("…In a graph, 'indices' must be a Tensor of ints: pass a Tensor."),
    },
    "tokens": {
        "insert([Tensor(np.zeros(4, np.int32))], lengths=Tensor([2, 2]), with_indices=True)":
            ValueError("…rows with 'lengths' must be padded in a graph, [B, L, *F]…"),
        "insert([Tensor(np.zeros((2, 4), np.int32))], lengths=Tensor([2.0, 2.0]), with_indices=True)":
            ValueError("'lengths' must be ints >= 0, one for each row, [B], but got float32 of shape [2]."),
        "insert([Tensor(np.zeros((2, 4), np.float32))], lengths=Tensor([2, 2]), with_indices=True)":
            TypeError("…expected int32, but got float32…"),
        "insert([Tensor(np.zeros((2, 6), np.int32))], with_indices=True)":
            ValueError("…may be longer than longest=5…"),
        "insert([Tensor(np.zeros((2, 4, 1), np.int32))], lengths=Tensor([2, 2]), with_indices=True)":
            ValueError("…rows with 'lengths' must be padded…"),
        "sample(longest=True)": ValueError("…is known when a graph is compiled, but got longest=True…"),
        'update(Tensor([0]), {"tokens": Tensor(np.zeros((1, 5), np.int32))})':
            ValueError("…call 'update' of column 'tokens' from Python…"),
    },
}
# fmt: on


class Case(NamedTuple):
    """What is misused of a kind of buffer, and the error."""

    kind: str
    text: str
    error: Exception

    @property
    def where(self) -> str:
        return self.error.args[1] if len(self.error.args) > 1 else ""

    def answers(self, found: tuple[Any, str], cls: str) -> bool:
        """Return True if this is the error that the case expects of a class."""
        words = self.error.args[0]
        words = words if words.startswith(("For ", "…")) else f"For '{cls}', {words}"
        pattern = re.escape(words).replace("…", ".*")
        return found[0] is type(self.error) and re.fullmatch(pattern, found[1]) is not None


def cases(table: dict[str, dict[str, Exception]]) -> dict[str, Case]:
    """Return the cases of a table, by their names in tests."""
    found = (Case(kind, text, error) for kind, group in table.items() for text, error in group.items())
    return {f"{case.kind}: {case.text}": case for case in found}


class Call:
    """Notes the call of a method: its name and arguments."""

    def __getattribute__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **named: (name, given, named)


def value(text: str, **known: Any) -> Any:
    """Return the value of what is written."""
    return eval(text, {**globals(), **known})


def call(text: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the method of a call, and new arguments: those by position and those by keyword."""
    return value(f"buffer.{text}", buffer=Call())  # type: ignore[no-any-return]


def make(kind: str, package: Any, **more: Any) -> Any:
    """Return a buffer of a kind, filled unless it is one that is empty."""
    name, _, empty = kind.partition(", ")
    of, options, fill = KINDS[name]
    if of == "mixture":
        sources, more = options.get("of", ("weighted", "prioritized")), {k: v for k, v in options.items() if k != "of"}
        return package.MixedReplay([(make(source, package), 1) for source in sources], 4, **more)
    given = {**COLUMNS, **options}
    if "columns" in more:
        given = {key: value for key, value in given.items() if key not in inspect.signature(flat).parameters}
    given = {**given, **more} if "columns" in more else flat(**{**given, **more})
    buffer = getattr(package, get_buffer_cls({"type": of}).__name__)(**given)
    if not empty:
        fill(buffer)
    return buffer


@functools.cache
def face(kind: str, name: str) -> Any:
    """Return a buffer of a kind as one of its faces; only errors may come of it."""
    if name == "host":
        return make(kind, host)
    if name == "composite":
        return make(kind, mindspore_replay, backend="composite")
    if name == "attached":
        face(kind, "python")
        return attach(folder(kind), timeout=0)
    if name == "mixture":
        return mindspore_replay.MixedReplay([(face(kind, "python"), 1.0)], 2)
    more = {"storage": folder(kind)} if "attached" in faces(kind) else {}
    return make(kind, mindspore_replay, **more)


@functools.cache
def folder(kind: str) -> Path:
    return Path(tempfile.mkdtemp()) / "rows"


def faces(kind: str) -> list[str]:
    """Return the faces of a kind, beside graphs and mixtures; composite serves single rows, and a folder not all."""
    single = ("plain", "named", "distinct", "weighted", "prioritized")
    found = ["python", "host"] + ["composite"] * (kind.split(", ")[0] in single)
    return found + ["attached"] * (kind != "compressed" and "mixture" not in kind)


def state(kind: str, name: str) -> dict[str, np.ndarray]:
    """Return the state of a face, or of the buffer that a process is attached to."""
    return face(kind, "python" if name == "attached" else name).state_dict()  # type: ignore[no-any-return]


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(one[key].tobytes() == other[key].tobytes() for key in one)


#: Parts of messages that a face says in its own way: its class, keywords and way out; what only it knows.
_OWN = [
    (r"For '\w+'", "For 'X'"),
    (r"takes [\w, ]+ by keyword", "takes some by keyword"),
    (r"or for \w+ rows .*", "or in another way."),
    (r"(got sample\(\w+=)\w+\)|\.\.\.\)", r"\1...)"),
    (r" of source \d| in the \d+ shards that answer", ""),
    (r"from 0 to \d+", "from 0 to n"),
]


def answer(done: Callable[[], Any]) -> tuple[type[Exception] | None, str]:
    """Return the error of a call, or ``None``, and the first line of its message."""
    try:
        _settle(done())
    except Exception as error:
        return type(error), str(error).split("\n")[0].strip("'")
    return None, ""


def _settle(result: Any) -> None:
    for part in result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else ():
        _settle(part)
    if isinstance(result, Tensor):
        result.asnumpy()


def common(text: str) -> str:
    """Return a message without what only its face says."""
    for own, instead in _OWN:
        text = re.sub(own, instead, text)
    return text


def answer_of(case: Case, buffer: Any) -> tuple[Any, str]:
    """Return the error of a case's call on a face, without what only this face says."""
    method, given, named = call(case.text)
    error, text = answer(lambda: getattr(buffer, method)(*given, **named))
    return error, common(text)
