"""Measures what each of MindSpore's operators in a DQN's step costs in a compiled function.

    python benchmarks/dqn_operators.py [--rounds 31]

The network and the batch are those of `benchmarks/compare.py --only dqn`. The time of an operator is that of a function
that applies it forty times, one after the other, less that of one that does nothing, by forty. "In a step" counts
the operators of the graph that MindSpore runs.
"""

import argparse
import importlib
import statistics
import sys
import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
from comparison.cases import DQN
from measuring import MICRO, measure, once
from mindspore import Tensor

REPEAT = 40
BATCH, UNITS = DQN["batch_size"], DQN["hidden"][0]
#: Of the weights.
SIZES = [4 * UNITS, UNITS, UNITS * UNITS, UNITS, UNITS * 2, 2]

#: An operator, how many of its kind are in a step, its expression, and the shape of `x`, which becomes its result.
OPERATORS = (
    ("MatMul, 64 x 64 by 64 x 64", 11, "matmul(x, square)", (BATCH, UNITS)),
    ("BiasAdd, and the sums of BiasAddGrad", 9, "bias_add(x, bias)", (BATCH, UNITS)),
    ("ReLU, and ReluGrad", 6, "relu(x)", (BATCH, UNITS)),
    ("Concat of the gradients, L2Loss of the vector", 1, "x * l2_loss(ops.concat((x, *others)))", (SIZES[0],)),
    ("Mul of the vector", 1, "x * 1.001", (sum(SIZES),)),
    ("Adam of the vector", 1, "ops.depend(x, adam(*vectors, one, one, one, one, one, one, x))", (sum(SIZES),)),
    ("Mul, Add, Sqrt, Minimum of a number", 13, "x * 1.001", (1,)),
    ("GatherD, and its gradient", 2, "gather(x, 1, zero)", (BATCH, 1)),
    (
        "Adam of 64 x 64, in place of that of the vector",
        0,
        "ops.depend(x, adam(*squares, one, one, one, one, one, one, x))",
        (UNITS, UNITS),
    ),
    (
        "Split of the vector and Concat, in place of memory that is shared",
        0,
        "ops.concat(ops.split(x, sizes))",
        (sum(SIZES),),
    ),
    ("Dense, in place of MatMul and BiasAdd", 0, "ops.dense(x, square, bias)", (BATCH, UNITS)),
)

HEAD = f"""
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

matmul, bias_add, relu = ops.MatMul(transpose_b=True), ops.BiasAdd(), ops.ReLU()
l2_loss, adam = ops.L2Loss(), ops.Adam()
gather = ops.gather_elements
sizes = {SIZES}
others = tuple(Tensor(np.ones(size, np.float32)) for size in sizes[1:])
square, bias = Tensor(np.eye({UNITS}, dtype=np.float32)), Tensor(np.zeros({UNITS}, np.float32))
one, zero = Tensor(0.9, ms.float32), Tensor(np.zeros(({BATCH}, 1), np.int32))


def states(shape):
    return tuple(Parameter(Tensor(np.zeros(shape, np.float32)), name=f"{{name}}{{shape}}") for name in "wmv")


squares, vectors = states(({UNITS}, {UNITS})), states(sum(sizes))


class Nothing(nn.Cell):
    def construct(self, x):
        return x + 0.0
"""

BODY = """

class Body{number}(nn.Cell):
    def construct(self, x):
        for _ in range({repeat}):
            x = {expression}
        return x
"""


def cells(folder: str) -> object:
    """Write a module with a Cell for each operator, which MindSpore compiles from its source, and import it."""
    bodies = [BODY.format(number=i, repeat=REPEAT, expression=each[2]) for i, each in enumerate(OPERATORS)]
    Path(folder, "dqn_bodies.py").write_text(HEAD + "".join(bodies))
    sys.path.insert(0, folder)
    return importlib.import_module("dqn_bodies")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what each operator in a DQN's step costs.")
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds (default: 31)")
    rounds = parser.parse_args().rounds
    ms.set_context(mode=ms.GRAPH_MODE)
    with tempfile.TemporaryDirectory() as folder:
        module = cells(folder)
        calls = {}
        for i, (name, _, _, shape) in enumerate(OPERATORS):
            for key, cell in ((name, getattr(module, f"Body{i}")()), (f"without {name}", module.Nothing())):
                x = Tensor(np.full(shape, 0.5, np.float32))
                calls[key] = lambda cell=cell, x=x: once(lambda: cell(x).asnumpy(), 5)
        for call in calls.values():  # MindSpore tries numbers of threads during the first fifty calls of a graph
            for _ in range(11):
                call()
        times = measure(calls, rounds)
    print("| operator | us | in a step |\n|---|---|---|")
    for name, count, _, _ in OPERATORS:
        both = zip(times[name], times[f"without {name}"], strict=True)
        cost = statistics.median((a - b) / REPEAT * MICRO for a, b in both)
        print(f"| {name} | {cost:.1f} | {count or ''} |")
    empty = statistics.median(times[f"without {OPERATORS[0][0]}"]) * MICRO
    print(f"| a call of a compiled function that does nothing, from Python | {empty:.0f} | 1 |")


if __name__ == "__main__":
    main()
