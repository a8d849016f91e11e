"""Calls of a buffer in each combination of mode, backend and call: from Python, or in a compiled function."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from bodies import Kept
from mindspore import Tensor

from mindspore_replay import ReplayBuffer

MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}


class Combination(NamedTuple):
    """A mode, a backend and a way to call, in which a behaviour is tested."""

    mode: str
    backend: str
    call: str

    def __str__(self) -> str:
        return "-".join(self)

    @property
    def driver(self) -> tuple[str, str]:
        """The key of a driver: in both modes buffers call the same kernels, and functions the same graphs."""
        return self.backend, self.call


CALLS = ("eager", "compiled")
COMBINATIONS = [Combination(*values) for values in itertools.product(MODES, ("native", "composite"), CALLS)]


def missing(ran: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the combinations in which each test did not run, given those in which it did."""
    every = {"-".join(names) for names in itertools.product(("pynative", "graph"), ("native", "composite"), CALLS)}
    return {name: sorted(every - done) for name, done in ran.items() if every - done}


class Calls(Kept):
    """The methods of a buffer, each in a compiled function of its own."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    @ms.jit
    def insert(self, *rows):
        self.buffer.add(rows)  # also for runs without the hook
        return self.buffer.size()

    @ms.jit
    def get_item(self, index):
        return self.buffer.get_item(index)

    @ms.jit
    def sample(self):
        return self.buffer.sample()

    @ms.jit
    def sample_between(self, start, stop):
        return self.buffer.sample((start, stop))

    @ms.jit
    def reset(self):
        self.buffer.reset()
        return self.buffer.size()

    @ms.jit
    def status(self):
        return self.buffer.size(), self.buffer.full(), self.buffer.can_sample()


class Eager:
    """Calls the methods from Python, with NumPy arrays in and out."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    def insert(self, rows: Sequence[Any]) -> None:
        assert self.buffer.insert(list(rows)) is self.buffer

    def get_item(self, index: Any) -> tuple[np.ndarray, ...]:
        return arrays(self.buffer.get_item(index))

    def sample(self, sample_range: Any = None) -> tuple[np.ndarray, ...]:
        return arrays(self.buffer.sample(sample_range))

    def reset(self) -> None:
        assert self.buffer.reset() is self.buffer

    def status(self) -> tuple[int, bool, bool]:
        return plain(self.buffer.size(), self.buffer.full(), self.buffer.can_sample())


class Compiled:
    """Calls the methods in compiled functions, with NumPy arrays in and out."""

    #: The compiled functions.
    functions: type[Calls] = Calls

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer
        self.calls: Any = self.functions(buffer)

    def insert(self, rows: Sequence[Any]) -> None:
        types = self.buffer.columns.numpy_types
        rows = [
            Tensor(np.asarray(row, dtype) if isinstance(row, (bool, int, float)) else row)
            for row, dtype in zip(rows, types, strict=True)
        ]
        self.calls.insert(*rows).asnumpy()

    def get_item(self, index: Any) -> tuple[np.ndarray, ...]:
        return arrays(self.calls.get_item(Tensor(index, ms.int64)))

    def sample(self, sample_range: Any = None) -> tuple[np.ndarray, ...]:
        if sample_range is None:
            return arrays(self.calls.sample())
        return arrays(self.calls.sample_between(*(None if b is None else Tensor(b, ms.int64) for b in sample_range)))

    def reset(self) -> None:
        assert int(self.calls.reset()) == 0

    def status(self) -> tuple[int, bool, bool]:
        return plain(*self.calls.status())


def arrays(rows: Sequence[Tensor]) -> tuple[np.ndarray, ...]:
    """Copy Tensors to NumPy arrays."""
    return tuple(row.asnumpy().copy() for row in rows)


def plain(size: Tensor, full: Tensor, can_sample: Tensor) -> tuple[int, bool, bool]:
    """Check dtypes and shapes of the size and the two conditions, and return them as Python values."""
    assert (size.dtype, full.dtype, can_sample.dtype) == (ms.int32, ms.bool_, ms.bool_)
    assert size.shape == full.shape == can_sample.shape == ()
    return int(size), bool(full), bool(can_sample)


def make_driver(combination: Combination, *args: Any, **kwargs: Any) -> Any:
    """Make a buffer and a driver of it for a combination."""
    return driver_of(combination, ReplayBuffer(*args, backend=combination.backend, **kwargs))


def driver_of(combination: Combination, buffer: ReplayBuffer) -> Any:
    """Return a driver of a buffer for a combination."""
    return Eager(buffer) if combination.call == "eager" else Compiled(buffer)
