"""Drivers of buffers with weights, on top of `drivers`."""

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from drivers import COMBINATIONS, Calls, Combination, Compiled, Eager, arrays, driver_of
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

#: Arguments that most tests share: drivers with equal arguments share compiled graphs. Weights are the square roots of
#: priorities.
SHAPES, TYPES, CAPACITY = [(2,), ()], [ms.float32, ms.int32], 6
MAX_USE, MAX_STALENESS = 6, 5
ROOTS: dict[str, Any] = {"cls": PrioritizedReplayBuffer, **{"alpha": 0.5, "beta": 0.5, "beta_steps": 4, "epsilon": 0.0}}
LIMITS: dict[str, Any] = {"max_use": MAX_USE, "max_staleness": MAX_STALENESS}
LIMITED: dict[str, dict[str, Any]] = {"uniform": LIMITS, "prioritized": ROOTS | LIMITS}
#: Where each of these is tested. Calls from Python run the same composite operators for both, in graphs that take long.
PLACES = [
    (combination, kind)
    for combination in COMBINATIONS
    for kind in LIMITED
    if (*combination.driver, kind) != ("composite", "eager", "uniform")
]


class WeightedCalls(Calls):
    """The methods of a buffer, each in a compiled function of its own."""

    @ms.jit
    def insert_with(self, priority, *rows):
        self.buffer.insert(rows, priority=priority)
        return self.buffer.size()

    @ms.jit
    def insert_made(self, version, *rows):
        self.buffer.insert(rows, version=version)
        return self.buffer.size()

    @ms.jit
    def insert_made_with(self, version, priority, *rows):
        self.buffer.insert(rows, priority=priority, version=version)
        return self.buffer.size()

    @ms.jit
    def sample_handles(self):
        return self.buffer.sample(with_indices=True)

    @ms.jit
    def sample_handles_between(self, start, stop):
        return self.buffer.sample((start, stop), with_indices=True)

    @ms.jit
    def sample_with(self, beta):
        return self.buffer.sample(beta=beta)

    @ms.jit
    def update(self, indices, priorities):
        return self.buffer.update_priorities(indices, priorities)

    @ms.jit
    def delete(self, indices):
        return self.buffer.delete(indices)

    @ms.jit
    def advance(self, steps):
        self.buffer.advance(steps)
        return self.buffer.size()

    @ms.jit
    def info(self, indices):
        return self.buffer.info(indices)


class EagerWeighted(Eager):
    """Calls the methods from Python, with NumPy arrays and Python scalars in and out."""

    def insert(self, rows: Sequence[Any], priority: Any = None, version: Any = None) -> None:
        given = {} if priority is None else {"priority": priority}
        given |= {} if version is None else {"version": version}
        assert self.buffer.insert(list(rows), **given) is self.buffer

    def sample_handles(self, sample_range: Any = None) -> tuple[np.ndarray, ...]:
        where = () if sample_range is None else (sample_range,)
        return arrays(self.buffer.sample(*where, with_indices=True))

    def sample_weighted(self, beta: float | None = None) -> tuple[np.ndarray, ...]:
        return arrays(self.buffer.sample(beta=beta))

    def draw(self) -> tuple[np.ndarray, ...]:
        """Draw a sample: its handles and rows, from a uniform or a prioritized buffer."""
        return draw(self)

    def update(self, indices: Any, priorities: Any) -> int:
        return count(self.buffer.update_priorities(indices, priorities))

    def delete(self, indices: Any) -> int:
        return count(self.buffer.delete(indices))

    def advance(self, steps: int = 1) -> None:
        assert self.buffer.advance(steps) is self.buffer

    def info(self, indices: Any) -> list[tuple[float, int, int]]:
        return facts(self.buffer.info(indices))


class CompiledWeighted(Compiled):
    """Calls the methods in compiled functions, with NumPy arrays and Python scalars in and out."""

    functions = WeightedCalls

    def insert(self, rows: Sequence[Any], priority: Any = None, version: Any = None) -> None:
        if priority is None and version is None:
            super().insert(rows)
            return
        given = [] if version is None else [Tensor(version, ms.int64)]
        given += [] if priority is None else [Tensor(priority, ms.float32)]
        if version is None:
            function = self.calls.insert_with
        else:
            function = self.calls.insert_made if priority is None else self.calls.insert_made_with
        function(*given, *(Tensor(row) for row in rows)).asnumpy()

    def sample_handles(self, sample_range: Any = None) -> tuple[np.ndarray, ...]:
        if sample_range is None:
            return arrays(self.calls.sample_handles())
        bounds = (None if b is None else Tensor(b, ms.int64) for b in sample_range)
        return arrays(self.calls.sample_handles_between(*bounds))

    def draw(self) -> tuple[np.ndarray, ...]:
        """Draw a sample: its handles and rows, from a uniform or a prioritized buffer."""
        return draw(self)

    def sample_weighted(self, beta: float | None = None) -> tuple[np.ndarray, ...]:
        return arrays(self.calls.sample() if beta is None else self.calls.sample_with(Tensor(beta, ms.float64)))

    def update(self, indices: Any, priorities: Any) -> int:
        return count(self.calls.update(Tensor(indices, ms.int64), Tensor(priorities, ms.float32)))

    def delete(self, indices: Any) -> int:
        return count(self.calls.delete(Tensor(indices, ms.int64)))

    def advance(self, steps: int = 1) -> None:
        self.calls.advance(Tensor(steps, ms.int64)).asnumpy()

    def info(self, indices: Any) -> list[tuple[float, int, int]]:
        return facts(self.calls.info(Tensor(indices, ms.int64)))


def draw(driver: Any) -> tuple[np.ndarray, ...]:
    """Draw a sample of all rows: its handles and rows, from a uniform or a prioritized buffer."""
    if not isinstance(driver.buffer, PrioritizedReplayBuffer):
        return driver.sample_handles()
    handles, _, *rows = driver.sample_weighted()
    return handles, *rows


def count(rows: Tensor) -> int:
    """Check dtype and shape of a number of rows, and return it as an int."""
    assert (rows.dtype, rows.shape) == (ms.int32, ())
    return int(rows)


def facts(columns: Sequence[Tensor]) -> list[tuple[float, int, int]]:
    """Check the dtypes of the results of `info`, and return them row by row."""
    priority, uses, staleness = arrays(columns)
    assert (priority.dtype, uses.dtype, staleness.dtype) == (np.float32, np.int32, np.int64)
    assert priority.shape == uses.shape == staleness.shape
    return list(zip(priority.tolist(), uses.tolist(), staleness.tolist(), strict=True))


def make_driver(combination: Combination, *args: Any, cls: type[ReplayBuffer] = ReplayBuffer, **kwargs: Any) -> Any:
    """Make a buffer of a class, with weights or without, and a driver of it for a combination."""
    buffer = cls(*args, backend=combination.backend, **kwargs)
    if not hasattr(buffer, "weights"):
        return driver_of(combination, buffer)
    return EagerWeighted(buffer) if combination.call == "eager" else CompiledWeighted(buffer)
