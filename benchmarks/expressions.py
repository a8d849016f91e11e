"""Measures what MindSpore's operators cost in a compiled function: to compile, and to run in a DQN's step.

    python benchmarks/expressions.py [--rounds 31]

To compile: MindSpore parses what a graph calls anew for each graph, so the time of an expression is that of a graph
with it less that of one without. To run: the time of an operator is that of a function that applies it forty times,
one after the other, less that of one that does nothing, by forty; network and batch are those of
`benchmarks/compare.py --only dqn`.
"""

import argparse
import importlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from comparison.cases import DQN
from measuring import MICRO, measure, once
from mindspore import Tensor

REPEAT = 40
BATCH, UNITS = DQN["batch_size"], DQN["hidden"][0]
SIZES = [4 * UNITS, UNITS, UNITS * UNITS, UNITS, UNITS * 2, 2]  # of the weights
#: Slow expressions, and faster ones with the same result; of int64 Tensors ``x [8]``, ``m [8, 8]`` and ``i []``.
COMPILED = {
    "ops.arange(8)": "numbers(8)",
    "x[0]": "Gather(x, i, 0)",
    "m[:, 0]": "Gather(m, i, 1)",
    "ops.searchsorted(x, x)": "SearchSorted(x, x)",
    "max(x.shape[0], 3)": "x.shape[0] if x.shape[0] > 3 else 3",
    "ops.reduce_sum(x)": "ops.sum(x)",
    "ops.broadcast_to(i, x.shape)": "i + ops.zeros_like(x)",
    "ops.reshape(i, (1,))": "ops.expand_dims(i, 0)",
    "ops.stack((x, x))": "Stack((x, x))",
    "(x,) + (x,)": "(x, x)",
}
#: Operators of a step: an expression, and the shape of `x`, which becomes its result.
RUN = {
    "MatMul, 64 x 64 by 64 x 64": ("matmul(x, square)", (BATCH, UNITS)),
    "BiasAdd, BiasAddGrad": ("bias_add(x, bias)", (BATCH, UNITS)),
    "ReLU, ReluGrad": ("relu(x)", (BATCH, UNITS)),
    "Concat of six gradients, and L2Loss": ("x * l2_loss(ops.concat((x, *others)))", (SIZES[0],)),
    "Mul of all gradients": ("x * 1.001", (sum(SIZES),)),
    "Adam of all weights, in one vector": ("ops.depend(x, adam(*vectors, *ones, x))", (sum(SIZES),)),
    "Mul, Add, Sqrt, Minimum of a number": ("x * 1.001", (1,)),
    "GatherD, and its gradient": ("gather(x, 1, zero)", (BATCH, 1)),
    "Adam of 64 x 64": ("ops.depend(x, adam(*squares, *ones, x))", (UNITS, UNITS)),
    "Split of the vector, and Concat": ("ops.concat(ops.split(x, sizes))", (sum(SIZES),)),
    "Dense, in place of MatMul and BiasAdd": ("ops.dense(x, square, bias)", (BATCH, UNITS)),
}
HEAD = f"""
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

Gather, SearchSorted, Stack = ops.Gather(), ops.SearchSorted(), ops.Stack()
m, i = Tensor(np.ones((8, 8), np.int64)), Tensor(0)
numbers = ops.constexpr(lambda n: Tensor(np.arange(n)), name="numbers")
matmul, bias_add, relu = ops.MatMul(transpose_b=True), ops.BiasAdd(), ops.ReLU()
l2_loss, adam, gather = ops.L2Loss(), ops.Adam(), ops.gather_elements
sizes = {SIZES}
others = tuple(Tensor(np.ones(size, np.float32)) for size in sizes[1:])
square, bias = Tensor(np.eye({UNITS}, dtype=np.float32)), Tensor(np.zeros({UNITS}, np.float32))
ones, zero = (Tensor(0.9, ms.float32),) * 6, Tensor(np.zeros(({BATCH}, 1), np.int32))


def states(shape):
    return tuple(Parameter(Tensor(np.zeros(shape, np.float32)), name=f"{{name}}{{shape}}") for name in "wmv")


squares, vectors = states(({UNITS}, {UNITS})), states(sum(sizes))
"""
BODY = """

class Body(nn.Cell):
    def construct(self, x):
        for _ in range({repeat}):
            x = {expression}
        return x
"""
NUMBERS = itertools.count()


def cell(folder: str, expression: str, repeat: int = 1) -> Callable[..., Any]:
    """Return a Cell that applies an expression to `x` so often; MindSpore compiles it from a file."""
    name = f"expression_{next(NUMBERS)}"
    Path(folder, f"{name}.py").write_text(HEAD + BODY.format(expression=expression, repeat=repeat))
    importlib.invalidate_caches()
    return importlib.import_module(name).Body()


def compiling(folder: str, rounds: int) -> None:
    """Print milliseconds of the processor that an expression adds to the compilation of a graph."""
    x, times = Tensor(np.arange(8)), dict[str, list[float]]()
    for turn in range(rounds + 1):
        for expression in ["x", *COMPILED, *COMPILED.values()]:
            graph, start = cell(folder, expression), time.process_time()
            graph(x)
            if turn:  # the first one warms up
                times.setdefault(expression, []).append(1000 * (time.process_time() - start))
    added = {name: statistics.median(values) - statistics.median(times["x"]) for name, values in times.items()}
    print("| expression | ms | faster | ms |\n|---|---|---|---|")
    for slow, fast in COMPILED.items():
        print(f"| `{slow}` | {added[slow]:.0f} | `{fast}` | {added[fast]:.0f} |")


def running(folder: str, rounds: int) -> None:
    calls = {}
    for name, (expression, shape) in RUN.items():
        x = Tensor(np.full(shape, 0.5, np.float32))
        for key, one, repeat in ((name, expression, REPEAT), (f"without {name}", "x + 0.0", 1)):
            graph = cell(folder, one, repeat)
            calls[key] = lambda graph=graph, x=x: once(lambda: graph(x).asnumpy(), 5)
            for _ in range(11):  # MindSpore tries numbers of threads during the first fifty calls of a graph
                calls[key]()
    times = measure(calls, rounds)
    print("\n| operator | us |\n|---|---|")
    for name in RUN:
        both = zip(times[name], times[f"without {name}"], strict=True)
        print(f"| {name} | {statistics.median((a - b) / REPEAT * MICRO for a, b in both):.1f} |")
    print(f"| a call of a compiled function that does nothing | {statistics.median(times[key]) * MICRO:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what operators cost to compile and to run.")
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds, a sixth of them to compile (default: 31)")
    rounds = parser.parse_args().rounds
    ms.set_context(mode=ms.GRAPH_MODE)
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        compiling(folder, max(rounds // 6, 1))
        running(folder, rounds)


if __name__ == "__main__":
    main()
