"""Calls of a buffer in each combination of backend and call: from Python, or in a compiled function."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from bodies import Kept
from mindspore import Tensor

from mindspore_replay import PrioritizedReplayBuffer, ReplayBuffer

MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}


class Combination(NamedTuple):
    """A backend and a way to call, in which a behaviour is tested.

    In both modes buffers call the same kernels, and functions the same graphs: `test_twin.py` takes both in turn.
    """

    backend: str
    call: str

    def __str__(self) -> str:
        return "-".join(self)


CALLS = ("eager", "compiled")
COMBINATIONS = [Combination(*values) for values in itertools.product(("native", "composite"), CALLS)]
NATIVE = Combination("native", "eager")
COMPILED = Combination("native", "compiled")


def missing(ran: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the combinations in which each test did not run, given those in which it did."""
    every = set(map(str, COMBINATIONS))
    return {name: sorted(every - done) for name, done in ran.items() if every - done}


class Calls(Kept):
    """The methods of a buffer, each in a compiled function of its own."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    @ms.jit
    def insert(self, *rows, **given):
        self.buffer.add(rows, **given)  # also for runs without the hook
        return self.buffer.size()

    @ms.jit
    def get_item(self, index):
        return self.buffer.get_item(index)

    @ms.jit
    def sample(self, **given):
        return self.buffer.sample(**given)

    @ms.jit
    def sample_handles(self):
        return self.buffer.sample(with_indices=True)

    @ms.jit
    def sample_between(self, start, stop):
        return self.buffer.sample((start, stop))

    @ms.jit
    def sample_handles_between(self, start, stop):
        return self.buffer.sample((start, stop), with_indices=True)

    @ms.jit
    def update_priorities(self, indices, priorities):
        return self.buffer.update_priorities(indices, priorities)

    @ms.jit
    def write_terminated(self, indices, terminated):
        return self.buffer.update(indices, {"terminated": terminated})

    @ms.jit
    def delete(self, indices):
        return self.buffer.delete(indices)

    @ms.jit
    def info(self, indices):
        return self.buffer.info(indices)

    @ms.jit
    def advance(self, steps):
        self.buffer.advance(steps)
        return self.buffer.size()

    @ms.jit
    def reset(self):
        self.buffer.reset()
        return self.buffer.size()

    @ms.jit
    def can_sample(self):
        return self.buffer.can_sample()

    @ms.jit
    def status(self):
        return self.buffer.size(), self.buffer.full(), self.buffer.can_sample()


#: Dtypes of arguments in graphs.
DTYPES = {"priority": ms.float32, "version": ms.int64, "end": ms.bool_, "final": ms.bool_, "beta": ms.float64}


class Driver:
    """Calls the methods of a buffer, with NumPy arrays and Python scalars in and out.

    Args:
        buffer (ReplayBuffer): The buffer.
        call (str): ``"eager"`` from Python, ``"compiled"`` in a compiled function each.
        handles_first (bool): Whether `sample` gives handles and rows of a buffer whose samples hold rows alone.
    """

    def __init__(self, buffer: Any, call: str = "eager", handles_first: bool = False) -> None:
        self.buffer, self.handles_first = buffer, handles_first and type(buffer) is ReplayBuffer
        self.compiled = call == "compiled"
        self.calls: Any = Calls(buffer) if self.compiled else buffer

    def insert(self, rows: Sequence[Any], priority: Any = None, **given: Any) -> None:
        given = {name: value for name, value in {"priority": priority, **given}.items() if value is not None}
        if not self.compiled:
            assert self.buffer.insert(list(rows), **given) is self.buffer
            return
        types = self.buffer.columns.numpy_types
        rows = [
            Tensor(np.asarray(row, dtype) if isinstance(row, (bool, int, float)) else np.asarray(row))
            for row, dtype in zip(rows, types, strict=True)
        ]
        self.calls.insert(*rows, **{name: Tensor(value, DTYPES[name]) for name, value in given.items()}).asnumpy()

    def sample(self, sample_range: Any = None, beta: float | None = None) -> tuple[np.ndarray, ...]:
        if self.handles_first:
            return self.sample_handles()
        if sample_range is not None:
            return self._between("sample", sample_range)
        if beta is None:
            return arrays(self.calls.sample())
        return arrays(self.calls.sample(beta=Tensor(beta, ms.float64) if self.compiled else beta))

    def sample_handles(self, sample_range: Any = None) -> tuple[np.ndarray, ...]:
        if sample_range is not None:
            return self._between("sample_handles", sample_range)
        return arrays(self.calls.sample_handles() if self.compiled else self.buffer.sample(with_indices=True))

    def _between(self, method: str, bounds: Any) -> tuple[np.ndarray, ...]:
        if not self.compiled:
            given = {"with_indices": True} if method == "sample_handles" else {}
            return arrays(self.buffer.sample(bounds, **given))
        bounds = [None if bound is None else Tensor(bound, ms.int64) for bound in bounds]
        return arrays(getattr(self.calls, f"{method}_between")(*bounds))

    def draw(self) -> tuple[np.ndarray, ...]:
        """Draw a sample: its handles and rows, from a uniform or a prioritized buffer."""
        if not isinstance(self.buffer, PrioritizedReplayBuffer):
            return self.sample_handles()
        handles, _, *rows = self.sample()
        return handles, *rows

    def get_item(self, index: Any) -> tuple[np.ndarray, ...]:
        return arrays(self.calls.get_item(self._ints(index)))

    def update(self, indices: Any, priorities: Any) -> int:
        given = Tensor(priorities, ms.float32) if self.compiled else priorities
        return count(self.calls.update_priorities(self._ints(indices), given))

    def write_terminated(self, indices: Any, terminated: Any) -> int:
        if self.compiled:
            return count(self.calls.write_terminated(self._ints(indices), Tensor(terminated, ms.bool_)))
        return count(self.buffer.update(indices, {"terminated": terminated}))

    def delete(self, indices: Any) -> int:
        return count(self.calls.delete(self._ints(indices)))

    def info(self, indices: Any) -> list[tuple[float, int, int]]:
        return facts(self.calls.info(self._ints(indices)))

    def advance(self, steps: int = 1) -> None:
        done = self.calls.advance(self._ints(steps))
        assert done is self.buffer or int(done) >= 0

    def reset(self) -> None:
        done = self.calls.reset()
        assert done is self.buffer or int(done) == 0

    def status(self) -> tuple[int, bool, bool]:
        if self.compiled:
            return plain(*self.calls.status())
        return plain(self.buffer.size(), self.buffer.full(), self.buffer.can_sample())

    def _ints(self, values: Any) -> Any:
        return Tensor(values, ms.int64) if self.compiled else values


def arrays(rows: Sequence[Tensor]) -> tuple[np.ndarray, ...]:
    """Copy Tensors to NumPy arrays."""
    return tuple(row.asnumpy().copy() for row in rows)


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


def plain(size: Tensor, full: Tensor, can_sample: Tensor) -> tuple[int, bool, bool]:
    """Check dtypes and shapes of the size and the two conditions, and return them as Python values."""
    assert (size.dtype, full.dtype, can_sample.dtype) == (ms.int32, ms.bool_, ms.bool_)
    assert size.shape == full.shape == can_sample.shape == ()
    return int(size), bool(full), bool(can_sample)


def make_driver(
    combination: Combination, *args: Any, cls: Any = ReplayBuffer, handles_first: bool = False, **kwargs: Any
) -> Driver:
    """Make a buffer of a class and a driver of it for a combination."""
    buffer = cls(*args, backend=combination.backend, **({"seed": 0} | kwargs))
    return Driver(buffer, combination.call, handles_first)


#: Drivers that tests share, each with the state of its empty buffer.
shared_drivers: dict[str, tuple[Driver, dict[str, Any]]] = {}


def shared_driver(combination: Combination, *args: Any, **kwargs: Any) -> Driver:
    """Return a driver of an empty buffer. Equal arguments give the same driver, and so its compiled graphs."""
    key = repr((combination, args, sorted(kwargs.items())))
    if key not in shared_drivers:
        driver = make_driver(combination, *args, **kwargs)
        shared_drivers[key] = driver, driver.buffer.state_dict()
    driver, empty = shared_drivers[key]
    driver.buffer.load_state_dict(empty)
    return driver


#: Arguments of buffers with weights that most tests share. Weights are the square roots of priorities.
SHAPES, TYPES, CAPACITY = [(2,), ()], [ms.float32, ms.int32], 6
ROOTS: dict[str, Any] = {"cls": PrioritizedReplayBuffer, **{"alpha": 0.5, "beta": 0.5, "beta_steps": 4, "epsilon": 0.0}}
LIMITS: dict[str, Any] = {"max_use": 6, "max_staleness": 5}
LIMITED: dict[str, dict[str, Any]] = {"uniform": LIMITS, "prioritized": ROOTS | LIMITS}
#: Where each of these is tested: of composite operators, whose graphs take long, each way to call with one of them.
PLACES = [
    (combination, kind)
    for combination in COMBINATIONS
    for kind in LIMITED
    if (*combination, kind) not in (("composite", "eager", "uniform"), ("composite", "compiled", "prioritized"))
]
