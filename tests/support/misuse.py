"""The table of misuse: wrong calls, and what every front of a buffer answers, but for the class that it names."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor

NAMES = ["obs", "act"]
COLUMNS: dict[str, Any] = {
    "sample_size": 2,
    "capacity": 8,
    "shapes": [(2,), ()],
    "types": ["float32", "int32"],
    "seed": 0,
}
#: Kind of configuration, and its arguments.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("uniform", {}),
    "named": ("uniform", {"names": NAMES}),
    "weighted": ("uniform", {"names": NAMES, "weighted": True}),
    "prioritized": ("prioritized", {"names": NAMES}),
    "sequence": ("sequence", {"names": NAMES, "sequence_length": 2}),
    "elastic": ("elastic", {"names": NAMES}),
    "queue": ("queue", {"names": NAMES}),
}
OBS, ACT = np.zeros(2, np.float32), np.array(1, np.int32)
ROW, WRONG = [OBS, ACT], [OBS.astype(np.float64), ACT]
HANDLES, HALF = np.array([0, 1]), np.array([0.5])
ONES = np.ones(2, np.float32)
NAN = float("nan")


class Case(NamedTuple):
    """A wrong call.

    Attributes:
        kind (str): Kind of buffer.
        error (type[Exception]): What it raises.
        words (str): A part of the message.
        call (tuple): Method and positional arguments.
        named (dict): Keyword arguments.
        filled (bool): Whether four rows are stored.
        in_kernel (bool): Whether a graph notices only when it runs, and raises a RuntimeError in MindSpore's words.
    """

    kind: str
    error: type[Exception]
    words: str
    call: tuple[Any, ...]
    named: dict[str, Any] = {}  # noqa: RUF012  nobody changes it
    filled: bool = True
    in_kernel: bool = False


def rows(n: int) -> list[np.ndarray]:
    return [np.zeros((n, 2), np.float32), np.zeros(n, np.int32)]


_BY_PRIORITY = (
    "needs a buffer that draws by priority: make a PrioritizedReplayBuffer, or a SequenceReplayBuffer, "
    "EpisodeReplayBuffer or ElasticReplayBuffer with prioritized=True."
)
_NAMELESS = "'as_dict' needs a buffer made with 'names'."
_WEIGHT = "needs a buffer that stores a weight for each row"
_EPISODES = "needs a buffer that stores the episode of each row"
_DTYPES = "'exp' must have the columns' dtypes. column 'obs'"
_HANDLE_TYPE, _HANDLE_SHAPE = "'indices' must hold ints, but got float64", "'indices' must have shape [] or [n], but"
_AT_LEAST_ONE = "name at least one, or leave the call out."
_EARLY = "but got 0 in the range to draw from, of 0 stored"
_LENGTH = "must be one number for all rows or have shape"
_NEGATIVE, _NAN = (HANDLES, -ONES), (HANDLES, NAN * ONES)

CASES: dict[str, Case] = {
    # Rows.
    "dtype": Case("named", TypeError, _DTYPES, ("insert", WRONG)),
    "shape": Case("named", ValueError, "'exp' must hold one row in each", ("insert", [OBS[:1], ACT])),
    "lengths": Case("named", ValueError, "expected (2,), but got (3,)", ("insert", [rows(2)[0], rows(3)[1]])),
    "too few columns": Case("named", ValueError, "one array for each of the 2", ("insert", [OBS])),
    "rows without a list": Case("named", TypeError, "'exp' must be a list or tuple of 2", ("insert", 3)),
    "no rows": Case("named", TypeError, "but got NoneType", ("insert",)),
    "unknown name": Case("named", ValueError, "missing ['act'], unknown ['at']", ("insert", {"obs": OBS, "at": ACT})),
    "dict without names": Case("plain", TypeError, "can be a dict only of", ("insert", {"obs": OBS, "act": ACT})),
    "positional priority": Case("named", TypeError, "one positional argument", ("insert", ROW, 1.0)),
    "one by one": Case("named", TypeError, "write insert([obs, act])", ("insert", OBS, ACT)),
    "by keyword": Case("named", TypeError, "write insert({'obs'", ("insert",), {"obs": OBS, "act": ACT}),
    "unknown keyword": Case("named", TypeError, "by keyword, but got ['done']", ("insert", ROW), {"done": True}),
    "room": Case("queue", RuntimeError, "there must be room for 9 rows", ("insert", rows(9)), in_kernel=True),
    # Priorities.
    "no priorities": Case("named", RuntimeError, _BY_PRIORITY, ("insert", ROW), {"priority": 1.0}),
    "negative priority": Case("prioritized", ValueError, "but got -1.0", ("insert", ROW), {"priority": -1.0}),
    "NaN as priority": Case("prioritized", ValueError, "but got nan", ("insert", ROW), {"priority": NAN}),
    "string as priority": Case("prioritized", TypeError, "must be a number or", ("insert", ROW), {"priority": "x"}),
    "bool as priority": Case("prioritized", TypeError, "must be a number or", ("insert", ROW), {"priority": True}),
    "too many priorities": Case("prioritized", ValueError, f"{_LENGTH} [1]", ("insert", ROW), {"priority": ONES}),
    "axes of priorities": Case("prioritized", ValueError, "got [1, 2]", ("insert", ROW), {"priority": ONES[None]}),
    # Episodes.
    "end": Case("named", RuntimeError, f"'end' {_EPISODES}", ("insert", ROW), {"end": True}),
    "end of one": Case("named", RuntimeError, f"'end' {_EPISODES}", ("insert", ROW), {"end": np.array([False])}),
    "final": Case("named", RuntimeError, f"'final' {_EPISODES}", ("insert", ROW), {"final": True}),
    "int as end": Case("sequence", TypeError, "'end' must be a bool", ("insert", ROW), {"end": 1}),
    "string as final": Case("sequence", TypeError, "'final' must be a bool", ("insert", ROW), {"final": "x"}),
    "too many ends": Case("sequence", ValueError, "'end' must have shape [1]", ("insert", ROW), {"end": ONES > 0}),
    "one end": Case("sequence", ValueError, "'end' must have shape [3]", ("insert", rows(3)), {"end": True}),
    "axes of ends": Case("sequence", ValueError, "got [1, 2]", ("insert", ROW), {"end": ONES[None] > 0}),
    "no episodes": Case("named", RuntimeError, f"'end_episodes' {_EPISODES}", ("end_episodes",)),
    # Versions and handles.
    "version": Case("named", RuntimeError, f"'insert(version=...)' {_WEIGHT}", ("insert", ROW), {"version": 0}),
    "negative version": Case("weighted", ValueError, "but got -1", ("insert", ROW), {"version": -1}),
    "newer version": Case("weighted", ValueError, "but got 5", ("insert", ROW), {"version": 5}, in_kernel=True),
    "float as version": Case("weighted", TypeError, "'version' must be an int", ("insert", ROW), {"version": 0.5}),
    "versions": Case("weighted", ValueError, f"versions {_LENGTH} [1]", ("insert", ROW), {"version": HANDLES}),
    "axes of versions": Case("weighted", ValueError, "got [1, 2]", ("insert", ROW), {"version": HANDLES[None]}),
    # What is wrong first: the columns, what the buffer lacks, the rows, the other arguments.
    "columns before priority": Case("named", ValueError, "one array for", ("insert", [OBS]), {"priority": 1.0}),
    "priority before rows": Case("named", RuntimeError, _BY_PRIORITY, ("insert", WRONG), {"priority": 1.0}),
    "end before rows": Case("named", RuntimeError, _EPISODES, ("insert", WRONG), {"end": True}),
    "rows before priorities": Case("prioritized", TypeError, _DTYPES, ("insert", WRONG), {"priority": -1.0}),
    "rows before ends": Case("sequence", TypeError, _DTYPES, ("insert", WRONG), {"end": 1}),
    "rows before versions": Case("weighted", TypeError, _DTYPES, ("insert", WRONG), {"version": 0.5}),
    # Samples.
    "size": Case("prioritized", TypeError, "but got sample(32). A sample always has", ("sample", 32)),
    "batch_size": Case("prioritized", TypeError, "A sample always has", ("sample",), {"batch_size": 32}),
    "unknown argument": Case("named", TypeError, "by keyword, but got sample(foo=", ("sample",), {"foo": 1}),
    "beta": Case("named", RuntimeError, f"'sample(beta=...)' {_BY_PRIORITY}", ("sample",), {"beta": 0.5}),
    "string as beta": Case("prioritized", TypeError, "'beta' must be a number", ("sample",), {"beta": "x"}),
    "bool as beta": Case("prioritized", TypeError, "'beta' must be a number", ("sample",), {"beta": True}),
    "negative beta": Case("prioritized", ValueError, "'beta' must be in [0, 1]", ("sample",), {"beta": -0.5}),
    "NaN as beta": Case("prioritized", ValueError, "'beta' must be in [0, 1]", ("sample",), {"beta": NAN}),
    "two betas": Case("prioritized", TypeError, "must be one number", ("sample",), {"beta": Tensor([0.5, 0.5])}),
    "array as beta": Case("prioritized", ValueError, "[0, 1]", ("sample",), {"beta": np.array(2.0)}, in_kernel=True),
    "dict of no names": Case(
        "plain", TypeError, "'as_dict' needs a buffer made with 'names'.", ("sample",), {"as_dict": True}
    ),
    "early": Case("named", RuntimeError, _EARLY, ("sample",), filled=False, in_kernel=True),
    "early priorities": Case("prioritized", RuntimeError, _EARLY, ("sample",), filled=False, in_kernel=True),
    "early sequences": Case("sequence", RuntimeError, _EARLY, ("sample",), filled=False, in_kernel=True),
    "early queue": Case("queue", RuntimeError, _EARLY, ("sample",), filled=False, in_kernel=True),
    # Priorities of rows, columns of rows, their removal.
    "no update_priorities": Case("named", RuntimeError, _BY_PRIORITY, ("update_priorities", HANDLES, ONES)),
    "handles of priorities": Case("prioritized", TypeError, _HANDLE_TYPE, ("update_priorities", HALF, ONES[:1])),
    "axes of handles": Case("prioritized", ValueError, _HANDLE_SHAPE, ("update_priorities", HANDLES[None], ONES)),
    "no handles": Case(
        "prioritized", ValueError, f"{_HANDLE_SHAPE} got [0]: {_AT_LEAST_ONE}", ("update_priorities", HANDLES[:0], ONES)
    ),
    "negative priorities": Case("prioritized", ValueError, "got -1", ("update_priorities", *_NEGATIVE), in_kernel=True),
    "NaN in priorities": Case("prioritized", ValueError, "got nan", ("update_priorities", *_NAN), in_kernel=True),
    "bools as priorities": Case("prioritized", TypeError, "hold numbers", ("update_priorities", HANDLES, ONES > 0)),
    "number of priorities": Case("prioritized", ValueError, _LENGTH, ("update_priorities", HANDLES, np.ones(3))),
    "no update": Case("named", RuntimeError, f"'update' {_WEIGHT}", ("update", HANDLES, {"act": HANDLES})),
    "unknown column": Case("weighted", ValueError, "but got ['at']", ("update", HANDLES, {"at": HANDLES})),
    "dtype of a column": Case("weighted", TypeError, "expected int32, but got", ("update", HANDLES, {"act": ONES})),
    "shape of a column": Case("weighted", ValueError, "'values' must hold a row", ("update", HANDLES, {"obs": ONES})),
    "too few values": Case("weighted", ValueError, "one array for each of the 2", ("update", HANDLES, [rows(2)[0]])),
    "handles of update": Case("weighted", TypeError, _HANDLE_TYPE, ("update", HALF, {"act": rows(1)[1]})),
    "axes of update": Case("weighted", ValueError, _HANDLE_SHAPE, ("update", HANDLES[None], {"act": rows(2)[1]})),
    "no delete": Case("named", RuntimeError, f"'delete' {_WEIGHT}", ("delete", HANDLES)),
    "handles of delete": Case("weighted", TypeError, _HANDLE_TYPE, ("delete", HALF)),
    "axes of delete": Case("weighted", ValueError, _HANDLE_SHAPE, ("delete", HANDLES[None])),
    "no info": Case("named", RuntimeError, f"'info' {_WEIGHT}", ("info", HANDLES)),
    "axes of info": Case("weighted", ValueError, _HANDLE_SHAPE, ("info", HANDLES[None])),
    "handles of info": Case("weighted", TypeError, _HANDLE_TYPE, ("info", HALF)),
    "no advance": Case("named", RuntimeError, f"'advance' {_WEIGHT}", ("advance",)),
    "float as steps": Case("weighted", TypeError, "'steps' must be an int, but got 0.5", ("advance", 0.5)),
    "negative steps": Case("weighted", ValueError, "'steps' must be in [0, ", ("advance", -1)),
    "two steps": Case("weighted", TypeError, "'steps' must be an int or a Tensor []", ("advance", Tensor([1, 2]))),
    # Reading.
    "position": Case("named", IndexError, "'index' must be in [-4, 4)", ("get_item", 99), in_kernel=True),
    "float as position": Case("named", TypeError, "'index' must be an int or hold ints", ("get_item", 0.5)),
    "no handle": Case("weighted", ValueError, f"{_HANDLE_SHAPE} got [0]: {_AT_LEAST_ONE}", ("delete", [])),
    "axes of positions": Case("named", ValueError, "'index' must have shape", ("get_item", HANDLES[None])),
    "item": Case("named", TypeError, "rows are read by get_item, not by [...]", ("__getitem__", 0)),
}
for _kind in ("sequence", "elastic"):
    CASES[f"beta of {_kind}"] = Case(_kind, RuntimeError, _BY_PRIORITY, ("sample",), {"beta": 0.5})
    CASES[f"priority of {_kind}"] = Case(_kind, RuntimeError, _BY_PRIORITY, ("insert", ROW), {"priority": 1.0})
    CASES[f"no priorities of {_kind}"] = Case(_kind, RuntimeError, _BY_PRIORITY, ("update_priorities", HANDLES, ONES))
for _kind in ("weighted", "prioritized"):
    CASES[f"end of {_kind}"] = Case(_kind, RuntimeError, f"'end' {_EPISODES}", ("insert", ROW), {"end": True})
    CASES[f"final of {_kind}"] = Case(_kind, RuntimeError, f"'final' {_EPISODES}", ("insert", ROW), {"final": True})
#: Those of flags that a mixture always has.
CASES["handles"] = Case("named", RuntimeError, _WEIGHT, ("sample",), {"with_indices": True})
CASES["handles of new rows"] = Case("named", RuntimeError, _WEIGHT, ("insert", ROW), {"with_indices": True})
CASES["range"] = Case("named", TypeError, "'sample_range' must be (start, stop)", ("sample", (0.5, 2)))

#: Shards take no range.
NOT_OF_SHARDS = [CASES["range"]]

#: Parts of messages that a front says in its own way: its class, keywords and way out; what only it knows.
_OWN = [
    (r"For '\w+'", "For 'X'"),
    (r"takes [\w, ]+ by keyword", "takes some by keyword"),
    (r"or for \w+ rows .*", "or in another way."),
    (r"(got sample\(\w+=)\w+\)|\.\.\.\)", r"\1...)"),
    (r" of source \d| in the \d+ shards that answer", ""),
    (r"from 0 to \d+", "from 0 to n"),
]


def answer(call: Callable[[], Any]) -> tuple[type[Exception] | None, str]:
    """Return the error of a call, without what only its front says; ``None`` if there is none."""
    try:
        _settle(call())
    except Exception as error:
        text = str(error).split("\n")[0]
        for own, common in _OWN:
            text = re.sub(own, common, text)
        return type(error), text.strip("'")
    return None, ""


def _settle(result: Any) -> None:
    for part in result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else ():
        _settle(part)
    if isinstance(result, Tensor):
        result.asnumpy()


def check(case: Case, front: Any, expected: tuple[Any, str] | None = None) -> tuple[Any, str]:
    """Check what a front answers to a wrong call: the error of the table, in the expected words; return both."""
    method, *given = case.call
    found = answer(lambda: getattr(front, method)(*given, **case.named))
    assert found[0] is case.error, found
    assert case.words in found[1].replace("For 'X', ", "")
    assert expected is None or found == expected
    return found
