"""Measures what MindSpore takes to compile: expressions of a compiled body, and the methods of buffers.

    python benchmarks/compiling.py [--rounds 5]

MindSpore parses what a graph calls anew for each graph. The time of an expression is that of a graph with it less that
of a graph without: its first use. Times are of the processor, medians over graphs that are compiled in turns. Those of
buffers are of a function that calls one method.
"""

import argparse
import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

#: Slow expressions, and faster ones with the same result; of int64 Tensors ``x [8]``, ``m [8, 8]`` and ``i []``.
EXPRESSIONS = {
    "x": "x",
    "ops.arange(8)": "numbers(8)",
    "x[0]": "Gather(x, i, 0)",
    "m[:, 0]": "Gather(m, i, 1)",
    "ops.searchsorted(x, x)": "SearchSorted(x, x)",
    "max(x.shape[0], 3)": "x.shape[0] if x.shape[0] > 3 else 3",
    "ops.reduce_sum(x)": "ops.sum(x)",
    "ops.broadcast_to(i, x.shape)": "i + ops.zeros_like(x)",
    "ops.reshape(i, (1,))": "ops.expand_dims(i, 0)",
    "ops.stack((x, x))": "Stack((x, x))",
    "ops.gather(x, i, 0)": "Gather(x, i, 0)",
    "(x,) + (x,)": "(x, x)",
}
MODULE = """
import numpy as np
from mindspore import Tensor, ops

Gather, SearchSorted, Stack = ops.Gather(), ops.SearchSorted(), ops.Stack()
m, i = Tensor(np.ones((8, 8), np.int64)), Tensor(0)
numbers = ops.constexpr(lambda n: Tensor(np.arange(n)), name="numbers")


def function(x):
    return {expression}
"""
BUFFERS = {"uniform": ReplayBuffer, "prioritized": PrioritizedReplayBuffer}
OPTIONS: dict[str, Any] = {"sample_size": 4, "capacity": 16, "shapes": [(2,), ()], "types": ["float32", "int32"]}
ROWS = Tensor(np.ones((4, 2), np.float32)), Tensor(np.ones(4, np.int32))


class Calls:
    """The methods of a buffer, each compiled by itself."""

    #: All that were made: MindSpore finds graphs by an object's address.
    kept: list["Calls"] = []  # noqa: RUF012

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.kept.append(self)

    @ms.jit
    def insert(self, *rows):
        self.buffer.insert(rows)
        return self.buffer.size()

    @ms.jit
    def sample(self):
        return self.buffer.sample()

    @ms.jit
    def update_priorities(self, indices, priorities):
        return self.buffer.update_priorities(indices, priorities)


def seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def of_expressions(rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each expression takes, one for each round."""
    x, times = Tensor(np.arange(8)), {}
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        both = [*EXPRESSIONS, *EXPRESSIONS.values()]
        for turn in range(rounds + 1):
            for place, expression in enumerate(both):
                name = f"compiled_{place}_{turn}"
                Path(folder, f"{name}.py").write_text(MODULE.format(expression=expression))
                importlib.invalidate_caches()
                graph = ms.jit(importlib.import_module(name).function)
                taken = seconds(lambda graph=graph: graph(x))
                if turn:  # the first one warms up
                    times.setdefault(expression, []).append(taken)
        sys.path.remove(folder)
    return times


def of_buffers(rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each method takes with each backend, one for each round."""
    times: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for kind, backend in ((kind, backend) for kind in BUFFERS for backend in ("native", "composite")):
            calls = Calls(BUFFERS[kind](**OPTIONS, seed=0, backend=backend))
            cases = {"insert": lambda calls=calls: calls.insert(*ROWS), "sample": calls.sample}
            if kind == "prioritized":
                indices, priorities = Tensor(np.arange(4)), Tensor(np.ones(4, np.float32))
                cases["update_priorities"] = lambda calls=calls, a=indices, b=priorities: calls.update_priorities(a, b)
            for name, call in cases.items():
                taken = seconds(call)
                if turn:
                    times.setdefault(f"{kind}, {backend}: {name}", []).append(taken)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what MindSpore takes to compile.")
    parser.add_argument("--rounds", type=int, default=5, help="graphs of each kind (default: 5)")
    rounds = parser.parse_args().rounds
    ms.set_context(mode=ms.GRAPH_MODE)
    times = {name: statistics.median(values) * 1000 for name, values in of_expressions(rounds).items()}
    print("ms, first use in a graph")
    for slow, fast in list(EXPRESSIONS.items())[1:]:
        print(f"{slow:30s} {times[slow] - times['x']:7.1f}     {fast:38s} {times[fast] - times['x']:7.1f}")
    print("ms, a graph that calls one method")
    for name, values in of_buffers(rounds).items():
        print(f"{name:42s} {statistics.median(values) * 1000:7.0f}")


if __name__ == "__main__":
    main()
