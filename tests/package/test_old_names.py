"""Without each private name of MindSpore in turn, the core works on its fallback, or says what is missing.

One process imports MindSpore, and forks for each name: the fork imports the package without it, and runs `PROGRAM`.
`WITHOUT=wait PYTHONPATH=tests/support pytest -p without tests/buffers/test_state.py` runs a whole file so.
"""

import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
from places import TESTS

from mindspore_replay import mindspore_api

#: Uses a buffer from Python and in a graph, in files, and whatever else needs a private name. Prints one line.
PROGRAM = '''import copy
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

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
for backend, compiled in ways if sys.argv[1] in ("isconstant", "make_dict") else ways[:2]:
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


def main():
    attempt("statement", lambda: ms.jit(Statement(make("native")))(Tensor(1.0, ms.float32)))
    attempt("in flight", written_in_flight)
    attempt("listed", listed_and_written)
    attempt("checkpoint", lambda: TrainingCheckpoint("training", buffer=buffer).save(step=1))
    attempt("owner", owners)
    attempt("compat", lambda: (compat.install(), compat.uninstall()))
    attempt("trace", lambda: traced(Tensor(1.0)))
'''


FORKS = """
import os, sys
import mindspore
import without
for names in sys.argv[1:]:
    print("==", names, flush=True)
    if os.fork():
        os.wait()
    else:
        without.hide(names.split("+"))
        sys.argv = ["program", names]
        import program
        program.main()
        os._exit(0)
"""

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
    "SET_CELL": {"compat": lacks("'compat.install'", "mindspore.nn.Cell._set_attr_for_cell")},
}
#: Names that `compat.install` alone needs, all by the same check as `SET_CELL`.
SAME = {"CONTEXT_SETTERS", "context_parameter", "adds_in_place", "IN_PLACE_TARGET", "PLAIN_TARGET"}


def test_the_core_without_each_name_in_turn(tmp_path: Path):
    assert CHANGES.keys() | SAME == mindspore_api.NAMES.keys()
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "forks.py").write_text(FORKS)  # MindSpore wants the source of all callers
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "forks.py", *CHANGES],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{TESTS / 'support'}:{tmp_path}:{os.environ['PYTHONPATH']}", "GLOG_v": "3"},
    )
    _, *reports = result.stdout.split("== ")
    for name, report in zip(CHANGES, reports, strict=True):
        expected = [f"{key}: {end}" for key, end in (FINE | CHANGES[name]).items()]
        assert report.replace("'In a", "In a").replace("Python.'", "Python.").splitlines() == [name, *expected], (
            result.stderr
        )
