"""Without each private name of MindSpore, the core works on its fallback, or says what is missing.

A fork of a process that has imported MindSpore runs `PROGRAM` for each of `GROUPS`, names that do not need each other.
`WITHOUT=wait PYTHONPATH=tests/support pytest -p without tests/buffers/test_state.py` runs a whole file so.
"""

from pathlib import Path

import mindspore as ms
from forks import run_each

from mindspore_replay import mindspore_api

#: Imports the package without names; uses a buffer from Python and in a graph, in files, and whatever else needs one.
PROGRAM = '''import copy
import sys

import mindspore as ms
import numpy as np
import without
from mindspore import Tensor, nn, ops

without.hide(sys.argv[1:])
from mindspore_replay import PrioritizedReplayBuffer, TrainingCheckpoint, compat, load, save


class Step(nn.Cell):
    """Stores a row, draws rows and sets their priorities."""

    def __init__(self, buffer):
        super().__init__()
        self.buffer = buffer

    def construct(self, row, extra):
        self.buffer.add([row, 7])
        batch = self.buffer.sample(as_dict=True)
        return self.buffer.update_priorities(batch["indices"], batch["x"] + extra), batch["x"], batch["y"]


class Statement(nn.Cell):
    def __init__(self, buffer):
        super().__init__()
        self.buffer = buffer

    def construct(self, row):
        self.buffer.insert([row, 7])
        return self.buffer.size()


def make(backend, seed=0):
    columns = {"shapes": [(), ()], "types": ["float32", "int32"], "names": ["x", "y"]}
    return PrioritizedReplayBuffer(4, 8, **columns, backend=backend, seed=seed)


def state(buffer):
    return {key: array.tobytes() for key, array in buffer.state_dict().items()}


states = []
# The last compiles long.
ways = [("native", False), ("native", True), ("composite", True)]
for backend, compiled in ways if "make_dict" in sys.argv[1:] else ways[:2]:
    buffer = make(backend).insert([np.zeros(4, np.float32), [1, 2, 3, 4]])
    step = ms.jit(Step(buffer)) if compiled else Step(buffer).construct
    drawn = [step(Tensor(float(i), ms.float32), Tensor(0, ms.float32))[1].asnumpy().tolist() for i in range(1, 12)]
    assert set(drawn[-1]) <= set(map(float, range(4, 12))), drawn
    states.append((drawn, state(buffer)))
assert all(one == states[0] for one in states), "all ways give the same"
batch = buffer.sample()
save(buffer, "buffer")
again = load("buffer")
assert state(again) == state(buffer)
assert state(copy.deepcopy(buffer)) == state(buffer)
assert buffer.with_sample_size(2).sample()[2].shape == (2,)


def attempt(name, call):
    """Print how a call ends."""
    try:
        call()
    except (RuntimeError, TypeError) as error:
        print(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
    else:
        print(f"{name}: fine")


def written_in_flight():
    """A Parameter that an operator in flight writes is read after that."""
    buffer, matrix = make("native").insert([[1.0], [1]]), Tensor(np.eye(500, dtype=np.float32))
    product = matrix
    for _ in range(8):
        product = ops.matmul(product, matrix)
    ops.assign(buffer.buffer[0], ops.ones_like(buffer.buffer[0]) * ops.reduce_max(product) * 3)
    row = buffer.get_item(0)[0]
    assert float(row) == 3, row


def listed_and_written():
    """The same, by a Parameter that MindSpore was given by `get_parameters`."""
    buffer, matrix = make("native").insert([[1.0], [1]]), Tensor(np.eye(500, dtype=np.float32))
    owner = nn.SequentialCell(buffer)
    column = next(p for p in owner.get_parameters() if p.shape == (8,) and p.dtype == ms.float32)
    product = matrix
    for _ in range(8):
        product = ops.matmul(product, matrix)
    ops.assign(column, ops.ones_like(column) * ops.reduce_max(product) * 3)
    assert float(buffer.get_item(0)[0]) == 3


@ms.jit(capture_mode="trace")
def traced(x):
    buffer.sample()
    return x * 2


def owners():
    one, other = (Step(make("native", seed).insert([[float(seed)], [1]])) for seed in (1, 2))
    one.load_state_dict({name: Tensor(parameter.asnumpy()) for name, parameter in other.parameters_and_names()})
    assert float(one.buffer.get_item(0)[0]) == 2


attempt("statement", lambda: ms.jit(Statement(make("native")))(Tensor(1.0, ms.float32)))
attempt("in flight", written_in_flight)
attempt("listed", listed_and_written)
attempt("checkpoint", lambda: TrainingCheckpoint("training", buffer=buffer).save(step=1))
attempt("owner", owners)
attempt("compat", lambda: (compat.install(), compat.uninstall()))
attempt("trace", lambda: traced(Tensor(1.0)))
'''

TRACE = (
    "RuntimeError: A replay buffer cannot be used in ms.jit(capture_mode='trace'), which would run its methods only "
    "while it traces. Use capture_mode='ast', the default, or 'bytecode'."
)
ENDLESS = f"{TRACE} MindSpore goes on tracing after this error: start the program anew."
FINE = dict.fromkeys(("statement", "in flight", "listed", "checkpoint", "owner", "compat"), "fine") | {"trace": TRACE}


def lacks(what: str, place: str) -> str:
    return (
        f"RuntimeError: {what} needs {place}, which MindSpore {ms.__version__} lacks. The versions that it was tested "
        f"with are {', '.join(mindspore_api.TESTED)}."
    )


#: What differs without a name: at the least nothing, as fallbacks do what the names do.
CHANGES: dict[str, dict[str, str]] = {
    **{name: {} for name in ("address", "share", "wait", "PARAMETERS", "isconstant", "make_dict", "EXACT")},
    "EXPAND_STATEMENT": {
        "statement": "RuntimeError: In a graph, 'insert' and 'update' of a buffer need a hook in MindSpore's parser, "
        "which was not found in this version: write buffer.add(rows), and call 'update' from "
        "Python.",
        "compat": lacks("'compat.install'", "mindspore.graph._parse.expand_expr_statement"),
    },
    **{name: {"trace": ENDLESS} for name in ("jit_contexts", "refuse_trace")},
    **{
        name: {"checkpoint": lacks("'TrainingCheckpoint'", f"mindspore.common.seed.{name}")}
        for name in ("_GLOBAL_SEED", "_KERNEL_SEED")
    },
    "LOAD": {
        "owner": lacks("'load_state_dict' of a Cell that holds a buffer", "mindspore.nn.Cell._load_from_state_dict")
    },
    "cells_of": {"compat": lacks("'compat.install'", "mindspore.nn.Cell()._cells")},
    "INNER_OPERATORS": {"compat": lacks("'compat.install'", mindspore_api.INNER_OPERATORS)},
}
#: Names that are hidden together: no two change the same line, and none does its work by another of its group.
GROUPS = [
    ["address", "isconstant", "make_dict", "EXACT", "jit_contexts", "_GLOBAL_SEED", "cells_of"],
    ["share", "wait", "EXPAND_STATEMENT", "_KERNEL_SEED", "LOAD"],
    ["PARAMETERS", "refuse_trace", "INNER_OPERATORS"],
]
#: Names that `compat.install` alone needs, all by the same check as `INNER_OPERATORS`.
SAME = {"SET_CELL", "CONTEXT_SETTERS", "context_parameter", "adds_in_place", "IN_PLACE_TARGET", "PLAIN_TARGET"}


def test_the_core_without_each_name(tmp_path: Path):
    assert CHANGES.keys() | SAME == mindspore_api.NAMES.keys()
    assert sorted(name for group in GROUPS for name in group) == sorted(CHANGES)
    (tmp_path / "program.py").write_text(PROGRAM)  # MindSpore wants the source of what it compiles
    for group, done in zip(GROUPS, run_each(tmp_path / "program.py", GROUPS), strict=True):
        changed = [line for name in group for line in CHANGES[name].items()]
        assert len(changed) == len(dict(changed)), group
        expected = [f"{key}: {end}" for key, end in (FINE | dict(changed)).items()]
        lines = done.stdout.replace("'In a", "In a").replace("Python.'", "Python.").splitlines()
        assert (done.returncode, lines) == (0, expected), (group, done.stderr)
