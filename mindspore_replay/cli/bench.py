"""Times the operators on this machine: medians of interleaved rounds, in microseconds.

Each line is one call from Python; "compiled" is the time that an operator adds to a compiled graph. Half of the rounds
are warm-up. Other load on the machine can double the figures.

Examples:
  mindspore-replay bench
  mindspore-replay bench --capacity 1000000 --backend composite
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from ..buffers.prioritized import PrioritizedReplayBuffer
from ..buffers.replay import ReplayBuffer
from ..ops.status import kernel_status
from .timing import MICRO, measure, once

_REPEAT = 50  # uses of a buffer in one call of a compiled body
_CALLS = 5  # calls of a compiled body in a round
_SAMPLE, _DRAWS = 64, 256  # sample sizes of the uniform and the prioritized buffer
_UNIFORM: dict[str, Any] = {"shapes": [(4,), (), (), (4,)], "types": ["float32", "int32", "float32", "float32"]}
_PRIORITIZED: dict[str, Any] = {"shapes": [(17,), (6,), (1,)], "types": ["float32"] * 3}
_NOTHING = "nothing, compiled"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--capacity", type=int, default=100_000, help="rows of the buffers (default: 100000)")
    parser.add_argument("--rounds", type=int, default=31, help="timed rounds (default: 31)")
    parser.add_argument("--backend", choices=["auto", "native", "composite"], default="auto")


def run(options: argparse.Namespace) -> int:
    """Time the operators, and print the medians and quartiles."""
    for name, least in (("capacity", _DRAWS), ("rounds", 1)):
        if getattr(options, name) < least:
            raise ValueError(f"'--{name}' must be at least {least}, but got {getattr(options, name)}.")
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        _measure(options)
    finally:
        ms.set_context(mode=before)
    return 0


def _measure(options: argparse.Namespace) -> None:
    print(kernel_status())
    print(f"MindSpore {ms.__version__}, NumPy {np.__version__}, capacity {options.capacity:,}, {options.rounds} rounds")
    times = measure(_timers(options.capacity, options.backend), options.rounds)
    nothing = times.pop(_NOTHING)
    print(f"{'':44} {'median':>10}   quartiles")
    for name, seconds in times.items():
        values = np.array(seconds) * MICRO
        if name.endswith("compiled"):
            values = (values - np.array(nothing) * MICRO) / _REPEAT
        low, middle, high = np.percentile(values, (25, 50, 75))
        print(f"{name:44} {middle:10.1f}   [{low:.1f}, {high:.1f}]")


class _Body(nn.Cell):
    """Repeats an operator on a buffer in one graph, or does nothing."""

    def __init__(self, buffer: Any, operator: str, row: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.buffer = buffer
        self.operator = operator
        self.row = row

    def construct(self, x):
        for _ in range(_REPEAT):
            x = x + 1
            if self.operator == "insert":
                self.buffer.insert(self.row)
            elif self.operator == "sample":
                self.buffer.sample()
            elif self.operator == "sample + update":
                indices, weights = self.buffer.sample()[:2]
                self.buffer.update_priorities(indices, weights)
        return x


def _filled(buffer_cls: Any, sample_size: int, capacity: int, schema: dict[str, Any], backend: str) -> Any:
    buffer = buffer_cls(sample_size=sample_size, capacity=capacity, **schema, seed=0, backend=backend)
    return buffer.insert(_rows(schema, capacity))


def _row(schema: dict[str, Any]) -> list[np.ndarray]:
    return [np.zeros(shape, dtype) for shape, dtype in zip(schema["shapes"], schema["types"])]


def _rows(schema: dict[str, Any], n: int) -> list[np.ndarray]:
    return [np.zeros((n, *field.shape), field.dtype) for field in _row(schema)]


def _timers(capacity: int, backend: str) -> dict[str, Callable[[], float]]:
    """Return the cases to time, as functions that return seconds a call."""
    uniform = _filled(ReplayBuffer, _SAMPLE, capacity, _UNIFORM, backend)
    prioritized = _filled(PrioritizedReplayBuffer, _DRAWS, capacity, _PRIORITIZED, backend)
    row, batch, other = _row(_UNIFORM), _rows(_UNIFORM, _SAMPLE), _row(_PRIORITIZED)
    priorities = np.random.default_rng(0).random(_DRAWS).astype(np.float32)
    calls: dict[str, tuple[Callable[[], Any], int]] = {
        "uniform insert 1": (lambda: uniform.insert(row), 500),
        f"uniform insert {_SAMPLE}": (lambda: uniform.insert(batch), 250),
        f"uniform sample {_SAMPLE}": (uniform.sample, 250),
        "prioritized insert 1": (lambda: prioritized.insert(other), 500),
        f"prioritized sample + update {_DRAWS}": (
            lambda: prioritized.update_priorities(prioritized.sample()[0], priorities), 100
        ),
    }  # fmt: skip
    # Many in a row, since the first ones find cold caches. Compiled graphs take a hundred times as long, so fewer.
    share = 20 if uniform.runs_graphs else 1
    return {
        **{name: functools.partial(once, call, n // share) for name, (call, n) in calls.items()},
        _NOTHING: _compiled(uniform, "nothing", row),
        "uniform insert 1, compiled": _compiled(uniform, "insert", row),
        f"uniform sample {_SAMPLE}, compiled": _compiled(uniform, "sample", row),
        "prioritized insert 1, compiled": _compiled(prioritized, "insert", other),
        f"prioritized sample + update {_DRAWS}, compiled": _compiled(prioritized, "sample + update", other),
    }


def _compiled(buffer: Any, operator: str, row: list[np.ndarray]) -> Callable[[], float]:
    body, start = _Body(buffer, operator, tuple(map(Tensor, row))), Tensor(0, ms.int32)
    return lambda: once(lambda: body(start).asnumpy(), _CALLS)
