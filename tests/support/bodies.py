"""Building blocks of compiled bodies in the tests."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import pytest
from mindspore import Tensor, nn

from mindspore_replay import ReplayBuffer

#: Each backend in one mode: both modes compile the same graph, and those of the composite backend take long.
ONCE = pytest.mark.parametrize(("mode", "backend"), [("pynative", "native"), ("graph", "composite")], indirect=["mode"])

#: Objects that stay until MindSpore has freed its graphs.
kept: list[Any] = []


class Kept:
    """An object with compiled methods that stays as long as its graphs.

    MindSpore finds the graphs of an object that is not a Cell by its address, so another object at the same address
    would run the old one's graphs, on the old one's buffer.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        kept.append(made)
        return made

    def __init__(self, buffer: Any = None) -> None:
        self.buffer = buffer


def make_buffer(backend: str, **options: Any) -> ReplayBuffer:
    """Make a buffer for rows of two fields, both the row's number."""
    return ReplayBuffer(2, 6, [(2,), ()], [ms.float32, ms.int32], seed=3, backend=backend, **options)


def filled(make: Callable[[str], Any], backend: str, fill: Callable[[Any], Any]) -> Any:
    """Return a buffer after `fill`. A composite one takes over the state of a native one, which compiles no graph."""
    buffer = make("native")
    fill(buffer)
    if backend == "native":
        return buffer
    other = make(backend)
    other.load_state_dict(buffer.state_dict())
    return other


def compiled(cell: nn.Cell, mode: str) -> Callable[..., Any]:
    """Return the Cell as a graph: unchanged in GRAPH_MODE, by `jit` in PYNATIVE_MODE."""
    return cell if mode == "graph" else ms.jit(cell.construct)


def row(number: int) -> tuple[Tensor, Tensor]:
    return Tensor([number, number], ms.float32), Tensor(number, ms.int32)


def ints(values: Any) -> list[int]:
    return [int(value) for value in values]


class Body(nn.Cell):
    """A Cell with a buffer, or with what takes the place of one."""

    def __init__(self, buffer: Any) -> None:
        super().__init__()
        self.buffer = buffer
        self.zero = Tensor(0, ms.int32)


class Sampling(Body):
    """A graph that draws a sample as a dict."""

    def construct(self) -> Any:
        return self.buffer.sample(as_dict=True)
