"""Calls in the form of other libraries: each error says what to write here, from Python, attached and in a graph."""

import contextlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from kinds import CLASSES, KINDS
from mindspore import nn

from mindspore_replay import MixedReplay, ReplayBuffer, attach, create_buffer

COLUMNS: dict[str, Any] = {
    "sample_size": 4,
    "capacity": 50,
    "shapes": [(), (), ()],
    "types": ["float32", "int32", "float32"],
    "names": ["obs", "act", "rew"],
    "seed": 0,
}
ROW = [np.float32(0), np.int32(1), np.float32(2)]

BUFFERS = {kind: partial(KINDS[kind].make, **COLUMNS) for kind in CLASSES}
ROWS = "insert([obs, act, rew]) or insert({'obs': ..., 'act': ..., 'rew': ...})."
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "size": (
        lambda b: b.sample(32),
        "sample_size=4 rows: write sample(), or for 32 rows with_sample_size(32).sample().",
    ),
    "named size": (lambda b: b.sample(batch_size=8), "sample(batch_size=8). A sample always has sample_size=4 rows"),
    "size and beta": (lambda b: b.sample(32, 0.4), "but got sample(32, 0.4). A sample always has sample_size=4 rows"),
    "one by one": (lambda b: b.add(*ROW), f"got 3 arguments: write {ROWS}"),
    "by keyword": (
        lambda b: b.add(obs=0.0, act=1, rew=2.0),
        "columns by keyword, ['act', 'obs', 'rew']: write insert({'obs': ..., 'act': ..., 'rew': ...}).",
    ),
    "priority": (lambda b: b.insert(ROW, 3.0), "write the others by keyword, as insert(rows, priority=...)."),
    "unknown": (lambda b: b.insert(ROW, done=True), "by keyword, but got ['done']."),
    "iteration": (list, "a buffer cannot be iterated: sample() returns a batch"),
    "item": (lambda b: b[3], "rows are read by get_item, not by [...]: get_item(3)."),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", BUFFERS)
def test_from_python(kind: str, call: str):
    buffer = BUFFERS[kind]()
    with pytest.raises(TypeError, match=f"^For '{type(buffer).__name__}', .*{re.escape(CALLS[call][1])}"):
        CALLS[call][0](buffer)
    assert len(buffer) == 0


def test_attached(tmp_path: Path):
    with contextlib.closing(ReplayBuffer(**COLUMNS, storage=tmp_path / "rows")):
        attached = attach(tmp_path / "rows")
        with pytest.raises(TypeError, match=r"or for 32 rows attach\(folder, sample_size=32\)\.sample\(\)\."):
            attached.sample(32)
        attached.close()


def test_without_names():
    buffer = ReplayBuffer(4, 50, [(), ()], ["float32", "int32"])
    with pytest.raises(TypeError, match=r"write insert\(\[a, b\]\)\.$"):
        buffer.add(0.0, 1)
    with pytest.raises(TypeError, match=r"write insert\(\[a, b\]\), or a dict if the buffer is made with 'names'\.$"):
        buffer.add(obs=0.0, act=1)


def test_a_mixture():
    mixed = MixedReplay([(BUFFERS["uniform"](), 0.5), (BUFFERS["prioritized"](), 0.5)], 4)
    with pytest.raises(TypeError, match=r"^For 'MixedReplay', .* or for 8 rows MixedReplay\(parts, 8\)\.sample\(\)\.$"):
        mixed.sample(8)
    with pytest.raises(TypeError, match=r"^For 'MixedReplay', a buffer cannot be iterated"):
        list(mixed)


@pytest.mark.parametrize("kind", ["prioritized"])
def test_beta_by_keyword_alone(kind: str):
    buffer = BUFFERS[kind]()
    buffer.insert([np.zeros(9, np.float32), np.zeros(9, np.int32), np.zeros(9, np.float32)])
    for beta in (1, 0.4):
        with pytest.raises(
            TypeError, match=r"'sample' takes beta, as_dict, with_indices, longest by keyword, but got sample\("
        ):
            buffer.sample(beta)
    assert buffer.sample(beta=1)[1].shape == (4,)


class Sized(nn.Cell):
    """Asks for a number of rows in a graph; the table of misuse has the other calls."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.buffer = buffer

    def construct(self):
        return self.buffer.sample(32)


def test_in_a_graph():
    with pytest.raises(TypeError, match=r"or for 32 rows with_sample_size\(32\)\.sample\(\)\."):
        ms.jit(Sized(BUFFERS["prioritized"]()).construct)()


#: Arguments that a constructor has not, with the hint to what to write.
UNKNOWN: list[tuple[str, dict[str, Any], str]] = [
    ("prioritized", {"ordered": True}, "'ordered' (leave it out: only ReplayBuffer has it"),
    ("sequences", {"ordered": False}, "'ordered' (leave it out: only ReplayBuffer has it"),
    ("prioritized", {"replace": True}, "'replace' (leave it out: this class draws in one way)"),
    ("queue", {"replace": True}, "'replace' (leave it out: this class draws in one way)"),
    ("uniform", {"buffer_size": 9}, "'buffer_size' (here 'capacity')"),
    ("uniform", {"bachend": "native", "vieuws": ()}, "'bachend' (the nearest is 'backend'); 'vieuws' (the nearest is"),
    ("uniform", {"xyz": 1}, "'xyz'."),
]


@pytest.mark.parametrize(("kind", "arguments", "message"), UNKNOWN)
def test_unknown_arguments_of_constructors(kind: str, arguments: dict[str, Any], message: str):
    cls = type(BUFFERS[kind]())
    start = f"For '{cls.__name__}', there are unknown arguments: "
    with pytest.raises(TypeError, match=re.escape(start + message)):
        cls(**COLUMNS, **arguments)
    if len(arguments) == 1:
        with pytest.raises(ValueError, match=re.escape(f"the configuration has unknown keys: {message}")):
            create_buffer({"type": cls, **COLUMNS, **arguments})


def test_arguments_of_a_class_of_the_users():
    class Own(ReplayBuffer):
        def __init__(self, extra: int, **others: Any) -> None:
            super().__init__(**others)
            self.extra = extra

    assert Own(3, **COLUMNS).extra == 3
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'ordred'"):
        Own(3, **COLUMNS, ordred=True)
