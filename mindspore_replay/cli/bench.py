"""Times the operators on this machine: medians of interleaved rounds, in microseconds.

Each line is one call from Python; "compiled" is the time that an operator adds to a compiled graph.

examples:
  mindspore-replay bench
  mindspore-replay bench --capacity 1000000 --backend composite
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from ..buffers.prioritized import PrioritizedReplayBuffer
from ..buffers.replay import ReplayBuffer
from ..ops.status import kernel_status

_REPEAT = 20  # times that a compiled body works on a buffer
_FIELDS: dict[str, Any] = {"shapes": [(4,), (), (), (4,)], "types": ["float32", "int32", "float32", "float32"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--capacity", type=int, default=100_000, help="rows of the buffers (default: 100000)")
    parser.add_argument("--rounds", type=int, default=11, help="timed rounds (default: 11)")
    parser.add_argument("--backend", choices=["auto", "native", "composite"], default="auto")


def run(options: argparse.Namespace) -> int:
    """Times and prints."""
    for name in ("capacity", "rounds"):
        if getattr(options, name) < 1:
            raise ValueError(f"'--{name}' must be positive, but got {getattr(options, name)}.")
    if options.capacity < 256:
        raise ValueError(
            f"'--capacity' must be at least 256, the rows of the largest sample, but got {options.capacity}."
        )
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
    timers = _timers(options.capacity, options.backend)
    times: dict[str, list[float]] = {name: [] for name in timers}
    for i in range(options.rounds + 2):
        for name, timer in timers.items():
            seconds = timer()
            if i >= 2:
                times[name].append(seconds * 1e6)
    for name in ("uniform", "prioritized"):
        nothing = times.pop(f"{name} nothing, compiled")
        for key in [key for key in times if key.startswith(name) and key.endswith("compiled")]:
            times[key] = [(with_it - without) / _REPEAT for with_it, without in zip(times[key], nothing)]
    print(f"{'':44} {'median':>10}   quartiles")
    for name, values in times.items():
        low, high = np.percentile(values, (25, 75))
        print(f"{name:44} {statistics.median(values):10.1f}   [{low:.1f}, {high:.1f}]")


class _Body(nn.Cell):
    """Works on a buffer some times in one graph."""

    def __init__(self, buffer: Any, operator: str, row: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.buffer = buffer
        self.operator = operator
        self.row = row

    def construct(self, start):
        for _ in range(_REPEAT):
            if self.operator == "insert 1":
                self.buffer.insert(self.row)
            elif self.operator == "sample":
                self.buffer.sample()
            elif self.operator == "sample + update 256":
                indices, weights, *_ = self.buffer.sample()
                self.buffer.update_priorities(indices, weights)
        return start + 1


def _filled(buffer_cls: Any, sample_size: int, capacity: int, backend: str) -> Any:
    buffer = buffer_cls(sample_size, capacity, **_FIELDS, seed=0, backend=backend)
    return buffer.insert(_rows(capacity))


def _rows(n: int) -> list[np.ndarray]:
    return [np.zeros((n, *shape), dtype) for shape, dtype in zip(_FIELDS["shapes"], _FIELDS["types"])]


def _timers(capacity: int, backend: str) -> dict[str, Callable[[], float]]:
    uniform = _filled(ReplayBuffer, 64, capacity, backend)
    prioritized = _filled(PrioritizedReplayBuffer, 256, capacity, backend)
    row, batch = [column[0] for column in _rows(1)], _rows(64)
    priorities = np.random.default_rng(0).random(256).astype(np.float32)
    timers: dict[str, Callable[[], float]] = {
        "uniform insert 1": lambda: _once(lambda: uniform.insert(row), 50),
        "uniform insert 64": lambda: _once(lambda: uniform.insert(batch), 50),
        "uniform sample 64": lambda: _once(uniform.sample, 50),
        "prioritized insert 1": lambda: _once(lambda: prioritized.insert(row), 50),
        "prioritized sample + update 256": lambda: _once(
            lambda: prioritized.update_priorities(prioritized.sample()[0], priorities), 20
        ),
    }
    tensors = tuple(Tensor(column) for column in row)
    start = Tensor(0, ms.int32)
    cases: dict[str, tuple[Any, tuple[str, ...]]] = {
        "uniform": (uniform, ("nothing", "insert 1", "sample")),
        "prioritized": (prioritized, ("nothing", "insert 1", "sample + update 256")),
    }
    for name, (buffer, operators) in cases.items():
        for operator in operators:
            body = _Body(buffer, operator, tensors)
            label = f"{name} {operator}{' 64' if operator == 'sample' else ''}, compiled"
            timers[label] = lambda body=body: _once(lambda: body(start).asnumpy(), 3)  # type: ignore[misc]
    return timers


def _once(function: Callable[[], Any], repeat: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - begin) / repeat
